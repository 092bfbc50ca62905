"""Puts with a key: a put that is repeated with the same key stores nothing, and gets the offsets of the first one. Pure.

In:  keys, and the records of a partition as they are read. Out: the offsets that a key has.
Each record of such a put has the header `kq-put` with the key and a digest of the whole put. So the next owner of the partition,
which reads the log anyhow, knows the same keys. A key is remembered for ten minutes, or for the last 100,000 such records.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kqlib.errors import NotAllowed
from kqlib.queue.item import Put

REMEMBERED = 600.0  # seconds
MOST = 100_000  # records


@dataclass(slots=True)
class KnownPut:
    """One put: its digest, when it was made, and its offsets, once it is committed."""

    digest: str
    at: float
    records: int = 0
    here: bool = False  # it was put here, and not read from the log alone
    offsets: array[int] = field(default_factory=lambda: array("q"))


class PutKeys:
    """The keys of one partition."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], KnownPut] = OrderedDict()
        self._records = 0

    def find(self, queue: str, key: str, digest: str, now: float) -> KnownPut | None:
        """The put that had this key; `NotAllowed` if it put something else."""
        self._forget(now)
        known = self._known.get((queue, key))
        if known is not None and known.digest != digest:
            raise NotAllowed(f"the Idempotency-Key {key!r} was used for other records of '{queue}'. Nothing was stored")
        return known

    def add(self, queue: str, key: str, known: KnownPut) -> KnownPut:
        """Remember a put."""
        self._known[queue, key] = known
        self._records += known.records
        return known

    def arrive(self, queue: str, mark: bytes, offset: int, at: float) -> None:
        """A record with this header was read. Keys that were put here are known already."""
        self._forget(at)  # the same key may have been used before
        key, _, digest = mark.decode(errors="replace").partition(" ")
        known = self._known.get((queue, key)) or self.add(queue, key, KnownPut(digest, at))
        if not known.here:
            known.offsets.append(offset)
            known.records += 1
            self._records += 1

    def _forget(self, now: float) -> None:
        while self._known and (self._records > MOST or next(iter(self._known.values())).at < now - REMEMBERED):
            self._records -= self._known.popitem(last=False)[1].records


def digest_of(puts: Sequence[Put]) -> str:
    """What tells one put from another one."""
    found = hashlib.sha256()
    for put in puts:
        length = None if put.data is None else len(put.data)
        found.update(repr((put.key, sorted(put.headers.items()), put.delay, length)).encode())
        found.update(put.data or b"")
    return found.hexdigest()[:16]
