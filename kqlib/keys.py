"""Keys: which partition a key goes to, how evenly keys fill a topic, and which of them move when it grows.

In:  keys as a producer takes them (bytes, or text, which it writes as UTF-8), a number of partitions, and a client's hash.
Out: `partition(b"ARS-CHE", 6)`: a number; `spread(keys, 6)`: a `Spread`, records by partition; `moved(keys, 4, 6)`: a `Moved`,
what growth takes elsewhere. Computed by confluent_kafka's own functions; no broker is asked, and no client asks one either.

murmur2  Java's clients, Spark, Kafka Streams, and every client of kqlib (`partitioner=murmur2_random`)
crc32    librdkafka's default (`consistent_random`): confluent-kafka for Python, Go and .NET, if nothing else is set

A null key has no partition of its own: clients send such records to one partition for a while, then to another. An empty key is
a key for murmur2; librdkafka's default treats it like null, and only its `consistent` puts it where crc32 says.
"""

# ruff: noqa: A002 (`hash` is the word for it)

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, overload

from kqlib.errors import NotAllowed
from kqlib.text import count, spelled

Key = bytes | str
Hash = Literal["murmur2", "crc32"]
Choice = Callable[[bytes, int], int]

MOST = 2**31 - 1  # Kafka counts partitions in 31 bits, and so do the client's functions
LISTED = 1_000_000  # partitions of a spread, which has a number for each
NAMED = 3  # hot keys that a repr names


def partition(key: Key, n: int, hash: Hash = "murmur2") -> int:
    """The partition, of n, that a producer chooses for a key: `partition(b"ARS-CHE", 6)`."""
    return _choice(hash)(_bytes(key), _partitions(n))


def spread(keys: Iterable[Key], n: int, hash: Hash = "murmur2") -> Spread:
    """How many records each of n partitions gets. `keys`: the key of every record, so that a busy one comes often."""
    choose, records = _choice(hash), _counted(keys)
    if _partitions(n) > LISTED:
        raise NotAllowed(
            f"a spread counts the records of each partition, so of {LISTED:,} partitions at most, not {n:,}"
        )
    places = [choose(key, n) for key in map(_bytes, records)]
    sizes = [0] * n
    for place, times in zip(places, records.values(), strict=True):
        sizes[place] += times
    distinct = Counter(places)
    return Spread(tuple(sizes), tuple(distinct[place] for place in range(n)), hash, records)


def moved(keys: Iterable[Key], before: int, after: int, hash: Hash = "murmur2") -> Moved:
    """Which keys get another partition when a topic grows: what comes from then on lies apart from what was there."""
    choose, records = _choice(hash), _counted(keys)
    if _partitions(after) < _partitions(before):
        why = f"a topic never gets fewer partitions, so it does not go from {before} to {after}"
        raise NotAllowed(f"{why}. For fewer make a new topic and copy into it")
    places = {key: (choose(_bytes(key), before), choose(_bytes(key), after)) for key in records}
    return Moved({key: place for key, place in places.items() if place[0] != place[1]}, before, after, hash, records)


@dataclass(frozen=True, repr=False)
class Spread(Sequence[int]):
    """Records by partition: a sequence of their numbers, which add up to all records."""

    sizes: tuple[int, ...]  # records in each partition
    keys: tuple[int, ...]  # different keys in each partition
    hash: Hash
    records: Mapping[Key, int] = field(hash=False)  # of each key

    @property
    def evenness(self) -> float:
        """1.0 is even. 0.5 says that half as many partitions, evenly filled, would do: the fullest one sets the pace."""
        return sum(self.sizes) / (len(self.sizes) * max(self.sizes)) if any(self.sizes) else 1.0

    @property
    def idle(self) -> int:
        """How many partitions get nothing."""
        return self.sizes.count(0)

    @cached_property
    def hot(self) -> dict[Key, int]:
        """Keys that alone have more than a partition's even share, the largest first: no hash makes these even."""
        share = sum(self.sizes) / len(self.sizes)
        found = [(key, times) for key, times in self.records.items() if times > share]
        return dict(sorted(found, key=lambda one: (-one[1], _bytes(one[0]))))

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        return self.sizes[at]

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        what = f"{count(sum(self.sizes), 'record')} of {count(sum(self.keys), 'key')}"
        where = f"{count(len(self), 'partition')} by {self.hash}: {_shape(self.sizes)}"
        even = f"evenness {self.evenness:.2f}" + (f", {self.idle} idle" if self.idle else "")
        hot = [f"{spelled(key)} {times:,}" for key, times in list(self.hot.items())[:NAMED]]
        hot += [f"{len(self.hot) - NAMED} more"] if len(self.hot) > NAMED else []
        return f"{what} on {where}\n{even}" + (f" · hot: {', '.join(hot)}" if hot else "")


@dataclass(frozen=True, repr=False, eq=False)  # equal as any mapping is
class Moved(Mapping[Key, tuple[int, int]]):
    """The keys that get another partition: key -> (before, after). Empty when none does."""

    moves: Mapping[Key, tuple[int, int]] = field(hash=False)
    before: int
    after: int
    hash: Hash
    records: Mapping[Key, int] = field(hash=False)  # of each key, also of those that stay

    @property
    def share(self) -> float:
        """How many of all keys move, 0 to 1."""
        return len(self.moves) / len(self.records) if self.records else 0.0

    @cached_property
    def _by_bytes(self) -> dict[bytes, tuple[int, int]]:
        return {_bytes(key): places for key, places in self.moves.items()}

    def __getitem__(self, key: Key) -> tuple[int, int]:
        return self._by_bytes[_bytes(key)]  # "ARS-CHE" finds what was given as b"ARS-CHE"

    def __iter__(self) -> Iterator[Key]:
        return iter(self.moves)

    def __len__(self) -> int:
        return len(self.moves)

    def __repr__(self) -> str:
        verb = "moves" if len(self.moves) == 1 else "move"
        what = f"{len(self.moves):,} of {count(len(self.records), 'key')} {verb}"
        return f"{what} · {self.before} → {count(self.after, 'partition')} by {self.hash}"


# --- what comes in -----------------------------------------------------------------------------------------------------


def _choice(hash: Any) -> Choice:
    """The client's own function. Both take the remainder of an unsigned number: murmur2's after its sign bit is masked away."""
    from confluent_kafka import consistent, murmur2

    if hash not in ("murmur2", "crc32"):
        raise NotAllowed(f"hash is 'murmur2' (Java, Spark, kqlib) or 'crc32' (librdkafka's default), not {hash!r}")
    return murmur2 if hash == "murmur2" else consistent


def _partitions(n: Any) -> int:
    """A number of partitions that there can be."""
    if not isinstance(n, int) or isinstance(n, bool):
        raise NotAllowed(f"the number of partitions is a whole number, 1 or more, not {n!r}")
    if not 1 <= n <= MOST:
        raise NotAllowed(f"a topic has at least 1 partition and at most {MOST:,}, not {n:,}")
    return n


def _bytes(key: Any) -> bytes:
    """The key as it is sent: a producer writes text as UTF-8."""
    if isinstance(key, bytes):
        return key
    if key is None:
        why = "a null key has no partition of its own: clients send such records to one for a while, then to another"
        raise NotAllowed(f"{why}. Leave them out, or give them a key")
    if not isinstance(key, str):
        binary = isinstance(key, bytearray | memoryview)
        how = "say bytes(key)" if binary else "turn it into what your producer sends, as in str(key).encode()"
        raise NotAllowed(f"a key is bytes, or text for its UTF-8 form, not {type(key).__name__}: {how}")
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise NotAllowed(f"{key!r} has no UTF-8 form, so no producer sends it: take bytes") from None


def _counted(keys: Any) -> Mapping[Key, int]:
    """Each key once, as it was given first, and how often it is there."""
    if isinstance(keys, str | bytes | bytearray) or not isinstance(keys, Iterable):
        raise NotAllowed(f"keys are many, as in [b'ARS-CHE', b'LAL-BOS'], not one {type(keys).__name__}")
    given = list(keys)
    try:
        counted: Counter[Key] = Counter(given)
    except TypeError:  # a list, say: the sentence is the one for any key of a wrong type
        counted = Counter(map(_bytes, given))
    if {str, bytes} <= set(map(type, counted)):  # "A" and b"A" are the same key
        first = {_bytes(key): key for key in reversed(counted)}
        counted = Counter()
        for key in given:
            counted[first[_bytes(key)]] += 1
    return counted


# --- what goes out -----------------------------------------------------------------------------------------------------


def _shape(sizes: Sequence[int]) -> str:
    """'310 + 0 + 42'; of many partitions the fullest and the emptiest."""
    if len(sizes) <= 12:
        return " + ".join(f"{size:,}" for size in sizes)
    return f"{min(sizes):,} to {max(sizes):,} each"
