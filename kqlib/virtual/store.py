"""The queues of one partition and their verbs. Pure: no Kafka, no HTTP, no thread; one caller at a time.

In:  records and states as they are read, verbs. Out: answers, and in `Writes` the records that must be committed first.
An answer holds once its writes are committed. If they are not, the store is thrown away and read again. The answer `NOTHING` means
that there is nothing now, and that the caller may wait.

Stored in T.offsets, in the partition of the same number; keys and values are JSON:
    ["owner"]                      {"node": id, "url": address, "epoch": 3, "topic": id, "left": false}   see `ownership`
    ["consumer", queue, consumer]  {"tracked": 41}                              a cursor: the last offset that is done
    ["consumer", queue, consumer]  {"floor", "state", "at", "order", "most"}    a ledger: see `consumer`
    ["deleted", queue]             {"end": 77}                                  the queue is gone up to here
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kqlib.errors import KqError, LeaseLost, NotAllowed, PayloadTooLarge
from kqlib.queue import dead
from kqlib.queue.item import Headers, Out, Put
from kqlib.queue.partition import Claimed
from kqlib.queue.terms import Terms
from kqlib.topic_rules import DEAD_MORE_BYTES, RECORD_BYTES
from kqlib.virtual.consumer import ConsumerLedger, Name, check_terms, done_place
from kqlib.virtual.errors import NotFound, Rewind
from kqlib.virtual.index import KEY, PUT, QueueEntry, QueueIndex, RecordCache, StoredRecord, StoredState
from kqlib.virtual.names import DEAD, OFFSETS, checked, partition_of, queue_of
from kqlib.virtual.put_keys import KnownPut, PutKeys, digest_of

ANSWER = 4_000_000  # bytes of data in one answer, roughly
ATTEMPTS = 5  # of an item, unless the first claim names another limit
SPARE = 100  # outdated entries that the heap of changes may have
NOTHING: Any = object()


class Missing(Exception):  # noqa: N818 - a request, not an error
    """These records must be fetched first. Then the verb is called again."""

    def __init__(self, offsets: list[int]) -> None:
        super().__init__(f"{len(offsets)} records")
        self.offsets = offsets


@dataclass
class Writes:
    """What must be committed before an answer is given."""

    outs: list[Out] = field(default_factory=list)
    woken: set[str] = field(default_factory=set)  # queues whose waiting calls may go on now
    places: dict[int, int] = field(default_factory=dict)  # once committed: the offset of each


@dataclass(frozen=True)
class Place:
    """Which partition of which topic, and its limits."""

    topic: str
    partition: int
    partitions: int
    topic_id: str = "-"
    limit: int = RECORD_BYTES  # bytes of a record that is put
    keep: float = 7 * 24 * 3600.0  # seconds that an idle consumer is remembered
    most: int = RECORD_BYTES + DEAD_MORE_BYTES  # bytes of any record: a dead letter needs more than its item


@dataclass(frozen=True)
class ClaimedItem:
    """An item that was handed out."""

    receipt: str
    attempt: int
    deadline: float
    record: StoredRecord


class ItemStore:
    """The queues of one partition."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self.place, self.clock = place, clock
        # seconds since 1970; a node takes Kafka's clock, since its own may be wrong
        self.now: Callable[[], float] = time.time
        self.index, self.cache, self.puts = QueueIndex(), RecordCache(), PutKeys()
        self.ledgers: dict[Name, ConsumerLedger] = {}  # those with leases or delays
        self._changes: list[tuple[float, Name]] = []  # when a lease or a delay ends; a heap
        self._due: dict[Name, float] = {}  # the entry of each ledger that counts; others are outdated

    # --- what is read ---

    def load(self, key: bytes, value: bytes | None, at: float) -> None:
        """A record of T.offsets."""
        kind, *name = json.loads(key)
        if kind == "consumer":
            self.index.store(name[0], name[1], None if value is None else StoredState(value, at))
        elif kind == "deleted" and value is not None:
            self.index.marks[name[0]] = json.loads(value)["end"]

    def arrive(self, records: Iterable[tuple[str | None, StoredRecord]]) -> set[str]:
        """Take in records of the data topic, each with its queue. Out: the queues that have more now."""
        found = set()
        for name, record in records:
            queue = name
            if queue is not None and partition_of(queue, self.place.partitions) != self.place.partition:
                queue = None  # put with another hash, or another count of partitions: nobody looks for it here
            if record.put is not None and queue:
                self.puts.arrive(queue, record.put, record.offset, record.created / 1000)
            if self.index.add(queue, record.offset) and queue:
                self.cache.add(record)
                found.add(queue)
        return found

    def trim(self, low: int, out: Writes) -> None:
        """Forget the records below this offset: the log begins here now."""
        self.index.trim(low)
        for (queue, _), ledger in list(self.ledgers.items()):
            if (entry := self.index.entries.get(queue)) is not None:
                ledger.partition.purge(min(ledger.base + entry.gone, ledger.partition.ledger.top))
        for queue in [queue for queue, end in self.index.marks.items() if end <= low]:
            del self.index.marks[queue]
            self._write(out, ["deleted", queue], None)

    # --- looking ---

    def depth(self, queue: str, consumer: str) -> int:
        """How many records this consumer has not done; all of them if the consumer is not known."""
        entry, stored = self.index.entries.get(queue), self.index.stored(queue, consumer)
        if entry is None:
            return 0
        if stored is None:
            return len(entry.offsets)
        if stored.done is None:
            ledger = self.ledgers.get((queue, consumer))
            stored.done = entry.end - ledger.depth(entry) if ledger else done_place(entry, json.loads(stored.value))
        return entry.end - stored.done

    def uncounted(self, queues: Iterable[str]) -> list[Name]:
        """The consumers of these queues whose depth was not counted since they changed."""
        entries = [(queue, self.index.entries.get(queue)) for queue in queues]
        return [(q, c) for q, entry in entries if entry for c, at in (entry.consumers or {}).items() if at.done is None]

    def consumer(self, queue: str, consumer: str) -> dict[str, Any]:
        """What is known of a consumer."""
        stored, state = self.index.stored(queue, consumer), self._state(queue, consumer)
        if stored is None or state is None:
            raise _no_consumer(queue, consumer)
        ledger = self.ledgers.get((queue, consumer))
        counts = ledger.partition.counts() if ledger else {"claimed": 0, "delayed": 0}
        return {
            "consumer": consumer,
            "kind": "cursor" if "tracked" in state else "ledger",
            "tracked": state.get("tracked"),
            "depth": self.depth(queue, consumer),
            "claimed": counts["claimed"],
            "delayed": counts["delayed"],
            "idle": max(0.0, self.now() - stored.at),
        }

    def consumers(self, queue: str, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        """What is known of a queue's consumers, in the order of their names, a page of them."""
        names = (name for name in self._entry(queue).consumers or () if name > after)
        return [self.consumer(queue, name) for name in heapq.nsmallest(limit, names)]

    def queue(self, queue: str) -> dict[str, Any]:
        """What is known of a queue. Its depth is that of its slowest consumer."""
        entry = self._entry(queue)
        offsets, consumers = entry.offsets, entry.consumers or {}
        for name in self.uncounted([queue]):
            self.depth(*name)
        first = min((stored.done or 0 for stored in consumers.values()), default=entry.gone)
        return {
            "queue": queue,
            "partition": self.place.partition,
            "records": len(offsets),
            "depth": entry.end - first,
            "first": offsets[0] if offsets else None,
            "last": offsets[-1] if offsets else None,
        }

    def needed(self) -> int:
        """The lowest offset that some queue of this partition still needs."""
        return min((self._needed(queue, entry) for queue, entry in self.index.entries.items()), default=self.index.head)

    def _needed(self, queue: str, entry: QueueEntry) -> int:
        if not entry.offsets:
            return self.index.head
        if entry.consumers is None:
            return entry.offsets[0]
        places = []
        for consumer in entry.consumers:
            state = self._state(queue, consumer) or {}
            if "tracked" in state:
                places.append(entry.place(state["tracked"] + 1))
            else:
                places.append(self._ledger((queue, consumer), entry, state).floor_place)
        first = max(entry.gone, min(places))
        return entry.offset(first) if first < entry.end else self.index.head

    # --- put ---

    def put(self, queue: str, puts: Sequence[Put], out: Writes, key: str | None = None) -> Callable[[], list[int]]:
        """Records for a queue. The function that is returned gives their offsets once they are committed. key: see `put_keys`."""
        digest = digest_of(puts) if key else ""
        if key and (known := self.puts.find(queue, key, digest, self.now())):
            return lambda: list(known.offsets)
        records = [self._record(queue, put.data, put.key, put.all_headers, self.place.limit) for put in puts]
        if key:  # after the limit was checked: a dead letter, for which there is space, does not carry it
            mark = PUT, f"{key} {digest}".encode()
            records = [each._replace(headers=[*(each.headers or []), mark]) for each in records]
        start = len(out.outs)
        out.outs += records
        end = len(out.outs)
        made = self.puts.add(queue, key, KnownPut(digest, self.now(), len(puts), here=True)) if key else None

        def offsets() -> list[int]:
            found = [out.places[at] for at in range(start, end)]
            if made:
                made.offsets.extend(found)
            return found

        return offsets

    def _record(self, queue: str, data: bytes | None, key: bytes | None, headers: Headers, limit: int) -> Out:
        own = [*headers, *([(KEY, key)] if key is not None else [])]
        where = partition_of(queue, self.place.partitions)
        out = Out(self.place.topic, data, queue.encode(), own or None, where)
        if out.size > limit:
            raise PayloadTooLarge(topic=queue, size=out.size, limit=limit, safe="Nothing was stored.")
        return out

    # --- a queue as a log ---

    def read(self, queue: str, start: int, limit: int) -> tuple[list[StoredRecord], int]:
        """Up to `limit` records from an offset on, and where to go on: below that every record of this queue was looked at."""
        entry, total = self.index.entries.get(queue), 0
        found: list[StoredRecord] = []
        offsets = list(entry.offsets[entry.place(start) - entry.gone :][:limit]) if entry else []
        for offset in offsets:
            record = self.cache.get(offset)
            if record is None or total > ANSWER:
                if not found:
                    raise Missing(offsets)
                return found, found[-1].offset + 1
            found.append(record)
            total += len(record.data or b"")
        more = entry is not None and len(offsets) == limit and entry.offsets[-1] > found[-1].offset
        return found, found[-1].offset + 1 if more else max(start, self.index.head)

    def tracked(self, queue: str, consumer: str) -> int | None:
        """The last offset that a cursor has done; None: none yet."""
        state = self._state(queue, consumer)
        if state is not None and "tracked" not in state:
            raise NotAllowed(f"'{consumer}' works on '{queue}' with leases: claim, or read under another name")
        return state["tracked"] if state else None

    def track(self, queue: str, consumer: str, offset: int, rewind: bool, out: Writes) -> int:
        """Everything up to this offset is done."""
        self._entry(queue)
        tracked = self.tracked(queue, consumer)
        if offset >= self.index.head:
            raise NotAllowed(f"offset {offset} was not read yet: this partition ends at {self.index.head - 1}")
        if offset < (-1 if tracked is None else tracked) and not rewind:
            why = f"'{consumer}' has done '{queue}' up to {tracked}; {offset} is below that. Say allow_rewind"
            raise Rewind(why, tracked=tracked)
        if offset != tracked:
            self._store(queue, consumer, {"tracked": offset}, out)
        return offset

    def touch(self, queue: str, consumer: str, out: Writes) -> None:
        """Note that this consumer is not idle, although nothing comes. It is written only if the last note is old."""
        stored, state = self.index.stored(queue, consumer), self._state(queue, consumer)
        if stored is not None and state is not None and stored.at < self.now() - self.place.keep / 10:
            self._store(queue, consumer, state, out)

    # --- a queue with leases ---

    def claim(
        self,
        name: Name,
        most: int,
        lease: float,
        out: Writes,
        *,
        order: str | None = None,
        max_attempts: int | None = None,
    ) -> Any:
        """Up to `most` items: a function to call after the commit, which begins their leases. NOTHING: none now."""
        entry = self.index.entries.get(name[0])
        if entry is None:
            return NOTHING
        if not _has_letters(name[0]):
            max_attempts = None  # nothing is buried
        ledger = self._opened(name, entry, order, max_attempts)
        claims, missing = ledger.take(entry, most, self.cache.get)
        used_up, ledger.partition.used_up = ledger.partition.used_up, []
        for n in used_up:
            self._bury(ledger, n, "its attempts are used up", out)
        ledger.partition.end(used_up, done=True)
        self._save(name, ledger, entry, out)
        if not claims and missing:
            raise Missing(missing)
        self.touch(*name, out)
        if not claims:
            self._keep_or_drop(name, ledger)
            return NOTHING
        return lambda: self._begin_leases(name, ledger, claims, lease)

    def _begin_leases(
        self, name: Name, ledger: ConsumerLedger, claims: list[Claimed], seconds: float
    ) -> list[ClaimedItem]:
        partition = ledger.partition
        for claimed in claims:
            partition.start(claimed, seconds)
        self._keep_or_drop(name, ledger)
        return [
            ClaimedItem(f"{n}.{partition.ledger.epoch}.{lease.number}", attempt, lease.deadline, ledger.record(n))
            for lease, numbers, attempts in claims
            for n, attempt in zip(numbers, attempts, strict=True)
            if n in partition.leases  # the queue may have been deleted meanwhile
        ]

    def ack(self, name: Name, receipts: Sequence[str], out: Writes) -> list[str]:
        """Mark the items of these receipts as done."""
        return self._each(name, receipts, out, lambda ledger, numbers: ledger.partition.ack(numbers))

    def release(self, name: Name, receipts: Sequence[str], delay: float, out: Writes) -> list[str]:
        """Give these items back: they come again, at once or after the delay."""
        return self._each(
            name, receipts, out, lambda ledger, numbers: [ledger.partition.release(n, delay) for n in numbers]
        )

    def extend(self, name: Name, receipts: Sequence[str], lease: float, out: Writes) -> list[str]:
        """Give these items new leases, from now."""
        return self._each(
            name, receipts, out, lambda ledger, numbers: [ledger.partition.extend(n, lease) for n in numbers]
        )

    def bury(self, name: Name, receipts: Sequence[str], reason: str, out: Writes) -> list[str]:
        """Write these items to the dead letters, in the same transaction."""
        if name[0].endswith(DEAD):
            raise NotAllowed(f"'{name[0]}' holds dead letters already: ack or redrive one")
        checked("dead letters' queue", name[0] + DEAD)

        entry, ledger = self.index.entries.get(name[0]), self.ledgers.get(name)
        if entry and ledger and (missing := ledger.fetch(entry, [_number(each) for each in receipts], self.cache.get)):
            raise Missing(missing)

        def bury(ledger: ConsumerLedger, numbers: list[int]) -> None:
            for n in numbers:
                self._bury(ledger, n, reason, out)
                ledger.partition.ack([n])  # a later letter may be too large

        return self._each(name, receipts, out, bury)

    def redrive(self, name: Name, most: int, out: Writes) -> int:
        """Put dead letters back into their queue as new items, and ack them here, in one transaction. Out: how many."""
        origin = name[0].removesuffix(DEAD)
        if origin == name[0]:
            raise NotAllowed(f"'{name[0]}' holds no dead letters: redrive '{name[0]}{DEAD}'")
        entry = self.index.entries.get(name[0])
        if entry is None:
            return 0
        ledger = self._opened(name, entry)
        claims, missing = ledger.take(entry, most, self.cache.get)
        if missing and not claims:
            raise Missing(missing)
        taken = [n for claimed in claims for n in claimed.offsets]
        for n in taken:
            back = dead.back(ledger.partition.window.records[n], origin, name[1])
            out.outs.append(self._record(origin, back.value, None, back.headers or [], self.place.most))
        ledger.partition.ack(taken)
        self._save(name, ledger, entry, out)
        self._keep_or_drop(name, ledger)
        return len(taken)

    def _bury(self, ledger: ConsumerLedger, n: int, reason: str, out: Writes) -> None:
        queue, partition = ledger.partition.terms.queue, ledger.partition
        letter = dead.letter(
            partition.window.records[n],
            origin=f"{queue}/{self.place.partition}/{ledger.record(n).offset}",
            site=partition.terms.site,
            attempts=partition.ledger.attempts(n) or 0,
            reason=reason,
            partitions=1,
            limit=self.place.most,
        )
        where = partition_of(queue + DEAD, self.place.partitions)
        out.outs.append(Out(self.place.topic, letter.value, (queue + DEAD).encode(), letter.headers, where))

    def _each(
        self, name: Name, receipts: Sequence[str], out: Writes, do: Callable[[ConsumerLedger, list[int]], object]
    ) -> list[str]:
        """Do it in one call to all items whose leases hold. `LeaseLost` names those that were refused; the others are done."""
        ledger, done, refused = self.ledgers.get(name), list[str](), dict[str, str]()
        hold: dict[int, None] = {}
        for receipt in receipts:
            n, epoch, number = map(int, receipt.split("."))
            if n in hold and ledger is not None:  # twice in one request: first done, then refused
                do(ledger, [*hold])
                hold = {}
            if ledger is None:
                refused[receipt] = "nobody has it: its lease ended, or it is done already"
            elif why := ledger.partition.why_not(n, epoch, number):
                refused[receipt] = why
            else:
                hold[n] = None
                done.append(receipt)
        if hold and ledger is not None:
            do(ledger, [*hold])
        entry = self.index.entries.get(name[0])
        if ledger is not None and entry is not None:
            self._save(name, ledger, entry, out)
            self._keep_or_drop(name, ledger)
        if done:
            out.woken.add(name[0])
        if refused:
            first = next(iter(refused.values()))
            why = f"{len(refused)} of {len(receipts)} refused; what is in done is done. The first: {first}"
            raise LeaseLost(why, done=done, refused=refused)
        return done

    # --- consumers and queues come and go ---

    def forget(self, queue: str, consumer: str, out: Writes) -> None:
        """Delete a consumer."""
        if self.index.stored(queue, consumer) is None:
            raise _no_consumer(queue, consumer)
        self._forget(queue, consumer, out)

    def _forget(self, queue: str, consumer: str, out: Writes) -> None:
        self.index.store(queue, consumer, None)
        self._drop((queue, consumer))
        self._write(out, ["consumer", queue, consumer], None)

    def delete(self, queue: str, end: int, out: Writes) -> int:
        """Delete a queue up to `end`, for all readers, and its consumers with it."""
        for consumer in list(self._entry(queue).consumers or {}):
            self._forget(queue, consumer, out)
        end = max(end, self.index.head)
        self.index.delete(queue, end)
        self._write(out, ["deleted", queue], {"end": end})
        return end

    def forget_idle(self, out: Writes) -> int:
        """Delete the consumers that did nothing for `place.keep` seconds. Out: how many."""
        old = self.now() - self.place.keep
        idle = [(q, c) for q, c, stored in self.index.consumers() if stored.at < old and (q, c) not in self.ledgers]
        for queue, consumer in idle:
            self._forget(queue, consumer, out)
        return len(idle)

    def tidy(self) -> set[str]:
        """End the leases and delays that are over. Out: the queues that have something again."""
        found = set()
        while self._changes and self._changes[0][0] <= self.clock():
            at, name = heapq.heappop(self._changes)
            if self._due.get(name) != at:
                continue
            del self._due[name]
            if (ledger := self.ledgers.get(name)) is not None:
                ledger.partition.tidy()
                if ledger.partition.claimable():
                    found.add(name[0])
                self._keep_or_drop(name, ledger)
        return found

    def hand_over(self, owner: int) -> list[Out]:
        """The states of the consumers that have leases, with these leases, for the next owner. owner: the number of this one."""
        out = Writes()
        for name, ledger in self.ledgers.items():
            if ledger.partition.leases and (entry := self.index.entries.get(name[0])):
                self._store(*name, ledger.state(entry, self.index.head) | {"held": ledger.held(owner)}, out)
        return [each for each in out.outs if each.size <= self.place.most]

    def go_on(self, owner: int) -> None:
        """Go on with the leases that were handed over. owner: the number of the owner before, which left in good order."""
        for queue, consumer, stored in self.index.consumers():
            if b'"held":' in stored.value and (state := json.loads(stored.value))["held"][0] == owner:
                name, entry = (queue, consumer), self.index.entries[queue]
                ledger = self.ledgers[name] = self._ledger(name, entry, state)
                ledger.hold(state["held"], max(0.0, self.now() - stored.at))
                self._keep_or_drop(name, ledger)

    def next_change(self) -> float:
        """When `tidy` will find something."""
        return self._changes[0][0] if self._changes else float("inf")

    # --- states ---

    def _entry(self, queue: str) -> QueueEntry:
        entry = self.index.entries.get(queue)
        if entry is None:
            raise NotFound(f"there is no queue '{queue}': it appears with its first record")
        return entry

    def _state(self, queue: str, consumer: str) -> dict[str, Any] | None:
        stored = self.index.stored(queue, consumer)
        return None if stored is None else json.loads(stored.value)

    def _ledger(self, name: Name, entry: QueueEntry, state: dict[str, Any]) -> ConsumerLedger:
        """The consumer's ledger, from memory or from its stored state."""
        if name in self.ledgers:
            return self.ledgers[name]
        terms = Terms(*name, state["order"], state["most"] or None, self.clock)
        return ConsumerLedger.load(terms, self.place.partition, entry, state)

    def _opened(
        self, name: Name, entry: QueueEntry, order: str | None = None, max_attempts: int | None = None
    ) -> ConsumerLedger:
        """The consumer's ledger, kept in memory; a new one at its first claim."""
        state = self._state(*name)
        if state is None and name not in self.ledgers:
            most = 0 if not _has_letters(name[0]) else ATTEMPTS if max_attempts is None else max_attempts
            terms = Terms(*name, order or "any", most or None, self.clock)
            self.ledgers[name] = ConsumerLedger.new(terms, self.place.partition, entry, self.place.topic_id)
        elif state is not None:
            if "tracked" in state:
                raise NotAllowed(f"'{name[1]}' reads '{name[0]}' as a log, with an offset: claim under another name")
            check_terms(state, order, max_attempts)
            self.ledgers[name] = self._ledger(name, entry, state)
        return self.ledgers[name]

    def _save(self, name: Name, ledger: ConsumerLedger, entry: QueueEntry, out: Writes) -> None:
        if ledger.partition.version > ledger.stored_version:
            self._store(*name, ledger.state(entry, self.index.head), out)
            ledger.stored_version = ledger.partition.version

    def _store(self, queue: str, consumer: str, state: dict[str, Any], out: Writes) -> None:
        value = self._write(out, ["consumer", queue, consumer], state)
        self.index.store(queue, consumer, StoredState(value or b"", self.now()))

    def _write(self, out: Writes, key: list[str], state: dict[str, Any] | None) -> bytes | None:
        value = None if state is None else json.dumps(state, separators=(",", ":")).encode()
        out.outs.append(Out(self.place.topic + OFFSETS, value, json.dumps(key).encode(), None, self.place.partition))
        return value

    def _drop(self, name: Name) -> None:
        self.ledgers.pop(name, None)
        self._due.pop(name, None)

    def _keep_or_drop(self, name: Name, ledger: ConsumerLedger) -> None:
        """Drop an idle ledger from memory. Look at another one again when something changes by itself."""
        if ledger.idle:
            self._drop(name)
        elif (change := ledger.partition.next_change()) < self._due.get(name, float("inf")):
            self._due[name] = change  # a later change is noticed when this one is over
            heapq.heappush(self._changes, (change, name))
        if len(self._changes) > 2 * len(self._due) + SPARE:
            self._changes = [(at, each) for each, at in self._due.items()]
            heapq.heapify(self._changes)


def _has_letters(queue: str) -> bool:
    """Can a queue have dead letters? They have none themselves, and a name that is too long leaves no space for '.dead'."""
    return not queue.endswith(DEAD) and queue_of((queue + DEAD).encode()) is not None


def _number(receipt: str) -> int:
    """The number of a receipt's item in its queue."""
    return int(receipt.partition(".")[0])


def _no_consumer(queue: str, consumer: str) -> KqError:
    return NotFound(f"'{queue}' has no consumer '{consumer}'")
