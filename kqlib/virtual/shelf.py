"""One partition's queues and everything that can be done with them. Pure: no Kafka, no HTTP, no thread; one caller at a time.

In:  records and states as they are read, verbs with the time at hand. Out: answers, and in `Writes` what must be stored with them.
An answer holds once its writes are committed; if they are not, the shelf is thrown away and read again. `NOTHING` says: not now.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kqlib.errors import LeaseLost, NotAllowed, PayloadTooLarge
from kqlib.queue import dead
from kqlib.queue.item import Headers, Out, Put, size
from kqlib.queue.partition import Claimed
from kqlib.virtual import work as works
from kqlib.virtual.cache import KEY, Kept
from kqlib.virtual.errors import Missing, NotFound, Rewind
from kqlib.virtual.index import Entry
from kqlib.virtual.names import DEAD, checked, partition_of
from kqlib.virtual.states import Place, States, Writes
from kqlib.virtual.work import Asked, Name, Work

ANSWER = 4_000_000  # bytes of data in one answer, roughly
SPARE = 100  # entries of the heap that may be left over
NOTHING: Any = object()


@dataclass(frozen=True)
class Given:
    """An item that was handed out."""

    receipt: str
    attempt: int
    deadline: float
    kept: Kept


class Shelf(States):
    """The queues of one partition."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(place, clock)
        self._changes: list[tuple[float, Name]] = []  # when a lease or a delay ends; a heap
        self._due: dict[Name, float] = {}  # the entry of each work that counts; others are left over

    # --- what is read ---

    def arrive(self, records: Iterable[tuple[str | None, Kept]]) -> set[str]:
        """Records of the data topic, with the queue of each: which queues have more now."""
        found = set()
        for queue, record in records:
            if queue is not None and partition_of(queue, self.place.partitions) != self.place.partition:
                queue = None  # another client's hash, or another count: nobody would look for it here  # noqa: PLW2901
            if self.index.add(queue, record.offset):
                self.cache.add(record)
                found.add(queue)
        return {queue for queue in found if queue}

    def trim(self, low: int, out: Writes) -> None:
        """The log begins here now."""
        self.index.trim(low)
        for (queue, _), work in list(self.works.items()):
            if (entry := self.index.get(queue)) is not None:
                first = work.base + entry.gone
                work.lost += sum(max(0, min(end, first) - start) for start, end, _ in work.ledger.runs())
                work.purge(min(first, work.ledger.top))
        for queue in [queue for queue, end in self.index.marks.items() if end <= low]:
            del self.index.marks[queue]
            self._state(out, ["deleted", queue], None)

    # --- put ---

    def put(self, queue: str, puts: Sequence[Put], out: Writes) -> Callable[[], list[int]]:
        """Records for a queue: a function to call once they are committed, which gives their offsets."""
        limit, start = self.place.limit, len(out.outs)
        outs = [self.record(queue, put.data, put.key, put.all_headers, limit) for put in puts]
        out.outs += outs
        return lambda: [out.places[at] for at in range(start, start + len(outs))]

    def record(self, queue: str, data: bytes | None, key: bytes | None, headers: Headers, limit: int) -> Out:
        """The record that puts an item into a queue, wherever that queue lies."""
        own = [*headers, *([(KEY, key)] if key is not None else [])]
        if (taken := size(data, queue.encode(), own)) > limit:
            raise PayloadTooLarge(topic=queue, size=taken, limit=limit, safe="Nothing was stored.")
        where = partition_of(queue, self.place.partitions)
        return Out(self.place.topic, data, queue.encode(), own or None, where)

    # --- as a log ---

    def read(self, queue: str, start: int, limit: int) -> tuple[list[Kept], int]:
        """Up to `limit` records from an offset on, and where to go on: everything of this queue below that was looked at."""
        entry, total = self.index.get(queue), 0
        found: list[Kept] = []
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

    def track(self, queue: str, consumer: str, offset: int, rewind: bool, out: Writes) -> int:
        """Everything up to this offset is done."""
        self._entry(queue)
        tracked = self.tracked(queue, consumer)
        if offset >= self.index.head:
            raise NotAllowed(f"offset {offset} was not read yet: this partition ends at {self.index.head - 1}")
        if offset < (-1 if tracked is None else tracked) and not rewind:
            raise Rewind(
                f"'{consumer}' has done '{queue}' up to {tracked}; {offset} is below that. Say allow_rewind",
                tracked or 0,
            )
        if offset != tracked:
            self._store(queue, consumer, {"tracked": offset}, out)
        return offset

    def touch(self, queue: str, consumer: str, out: Writes) -> None:
        """It is not idle, though nothing comes: say so where that is known from long ago only."""
        stored = self.index.stored(queue, consumer)
        if stored is not None and stored.at < self.now() - self.place.keep / 10:
            self._store(queue, consumer, works.parsed(stored.value), out)

    # --- as a queue ---

    def claim(self, name: Name, most: int, lease: float, asked: Asked, out: Writes) -> Any:
        """Up to `most` items: a function to call once this is committed, which begins their leases. NOTHING: none now."""
        entry = self.index.get(name[0])
        if entry is None:
            return NOTHING
        if name[0].endswith(DEAD):
            asked = Asked(asked.order)  # nothing is buried twice
        work = self._work(name, entry, asked)
        taken, missing = work.take(entry, most, self.cache.get)
        for n in work.used_up:
            self._bury(work, n, "its attempts are used up", out)
        work.end(work.used_up, done=True)
        work.used_up = []
        self._save(name, work, entry, out)
        if not taken and missing:
            raise Missing(missing)
        self.touch(*name, out)
        if not taken:
            self._settle(name, work)
            return NOTHING
        return lambda: self._given(work, taken, lease)

    def _given(self, work: Work, taken: list[Claimed], seconds: float) -> list[Given]:
        for claimed in taken:
            work.start(claimed, seconds)
        self._settle((work.terms.queue, work.terms.site), work)
        return [
            Given(works.receipt(n, work.ledger.epoch, lease.number), attempt, lease.deadline, work.kept(n))
            for lease, places, attempts in taken
            for n, attempt in zip(places, attempts, strict=True)
            if n in work.leases  # the queue may have been deleted meanwhile
        ]

    def ack(self, name: Name, receipts: Sequence[str], out: Writes) -> list[str]:
        """These are done."""
        return self._verb(name, receipts, out, lambda work, n: work.ack([n]))

    def release(self, name: Name, receipts: Sequence[str], delay: float, out: Writes) -> list[str]:
        """These come again, at once or later."""
        return self._verb(name, receipts, out, lambda work, n: work.release(n, delay))

    def extend(self, name: Name, receipts: Sequence[str], lease: float, out: Writes) -> list[str]:
        """These stay leased for longer."""
        return self._verb(name, receipts, out, lambda work, n: work.extend(n, lease))

    def bury(self, name: Name, receipts: Sequence[str], reason: str, out: Writes) -> list[str]:
        """These go to the dead letters, in the same transaction."""
        if name[0].endswith(DEAD):
            raise NotAllowed(f"'{name[0]}' holds dead letters already: ack or redrive one")
        checked("dead letters' queue", name[0] + DEAD)

        def bury(work: Work, n: int) -> None:
            self._bury(work, n, reason, out)
            work.ack([n])

        return self._verb(name, receipts, out, bury)

    def redrive(self, name: Name, most: int, out: Writes) -> int:
        """Dead letters go back to their queue as new items, and are done here, in one transaction: how many."""
        origin = name[0].removesuffix(DEAD)
        if origin == name[0]:
            raise NotAllowed(f"'{name[0]}' holds no dead letters: redrive '{name[0]}{DEAD}'")
        entry = self.index.get(name[0])
        if entry is None:
            return 0
        work = self._work(name, entry, Asked())
        taken, missing = work.take(entry, most, self.cache.get)
        if missing and not taken:
            raise Missing(missing)
        places = [n for claimed in taken for n in claimed.offsets]
        for n in places:
            back = dead.back(work.records[n], origin, name[1])
            out.outs.append(self.record(origin, back.value, None, back.headers or [], self.place.most))
        work.ack(places)
        self._save(name, work, entry, out)
        self._settle(name, work)
        return len(places)

    def _bury(self, work: Work, n: int, reason: str, out: Writes) -> None:
        queue, consumer = work.terms.queue, work.terms.site
        offset = work.kept(n).offset
        letter = dead.letter(
            work.records[n],
            origin=f"{queue}/{self.place.partition}/{offset}",
            site=consumer,
            attempts=work.ledger.attempts(n) or 0,
            reason=reason,
            partitions=1,
            limit=self.place.most,
        )
        where = partition_of(queue + DEAD, self.place.partitions)
        out.outs.append(Out(self.place.topic, letter.value, (queue + DEAD).encode(), letter.headers, where))

    def _verb(self, name: Name, receipts: Sequence[str], out: Writes, do: Callable[[Work, int], object]) -> list[str]:
        """Do it to each whose lease holds; `LeaseLost` says which were refused, the others are done."""
        work, done, refused = self.works.get(name), [], {}
        for receipt, (n, epoch, number) in [(each, works.parts(each)) for each in receipts]:
            why = "nobody has it: its lease ended, or it is done already" if work is None else ""
            if work is not None and not (why := work.held(n, epoch, number)):
                do(work, n)
                done.append(receipt)
            else:
                refused[receipt] = why
        entry = self.index.get(name[0])
        if work is not None and entry is not None:
            self._save(name, work, entry, out)
            self._settle(name, work)
        if done:
            out.woken.add(name[0])
        if refused:
            why = f"{len(refused)} of {len(receipts)} refused; what is in done is done. The first: {next(iter(refused.values()))}"
            raise LeaseLost(why, done=done, refused=refused)
        return done

    # --- consumers and queues come and go ---

    def forget(self, queue: str, consumer: str, out: Writes) -> None:
        """This consumer is no more."""
        if self.index.stored(queue, consumer) is None:
            raise NotFound(f"'{queue}' has no consumer '{consumer}'")
        self._forget(queue, consumer, out)

    def _forget(self, queue: str, consumer: str, out: Writes) -> None:
        self.index.store(queue, consumer, None)
        self.works.pop((queue, consumer), None)
        self._due.pop((queue, consumer), None)
        self._state(out, ["consumer", queue, consumer], None)

    def delete(self, queue: str, end: int, out: Writes) -> int:
        """The queue is gone up to here, for every reader, and its consumers with it."""
        for consumer in list(self._entry(queue).consumers or {}):
            self._forget(queue, consumer, out)
        end = max(end, self.index.head)
        self.index.delete(queue, end)
        self._state(out, ["deleted", queue], {"end": end})
        return end

    def forget_idle(self, out: Writes) -> int:
        """Consumers that did nothing for so long are no more: how many."""
        old = self.now() - self.place.keep
        idle = [(q, c) for q, c, stored in self.index.consumers() if stored.at < old and (q, c) not in self.works]
        for queue, consumer in idle:
            self._forget(queue, consumer, out)
        return len(idle)

    def tidy(self) -> set[str]:
        """Leases end, delays too: which queues have something again."""
        found = set()
        while self._changes and self._changes[0][0] <= self.clock():
            at, name = heapq.heappop(self._changes)
            if self._due.get(name) != at:
                continue
            del self._due[name]
            if (work := self.works.get(name)) is not None:
                work.tidy()
                if work.claimable():
                    found.add(name[0])
                self._settle(name, work)
        return found

    def next_change(self) -> float:
        """When `tidy` will find something."""
        return self._changes[0][0] if self._changes else float("inf")

    # --- work ---

    def _work(self, name: Name, entry: Entry, asked: Asked) -> Work:
        """The consumer's work, from memory, from what is stored, or begun."""
        said = self._said(*name)
        if said is not None and "tracked" in said:
            raise NotAllowed(f"'{name[1]}' reads '{name[0]}' as a log, with an offset: claim under another name")
        if said is not None:
            works.agree(said, asked)
        if name not in self.works:
            where = self.place.partition
            self.works[name] = (
                works.new(name, asked, where, entry, topic_id=self.place.topic_id, clock=self.clock)
                if said is None
                else works.load(name, said, where, entry, self.clock)
            )
        return self.works[name]

    def _save(self, name: Name, work: Work, entry: Entry, out: Writes) -> None:
        if work.version > work.stored:
            self._store(*name, work.dump(entry, self.index.head), out)
            work.stored = work.version

    def _settle(self, name: Name, work: Work) -> None:
        """Done with it for now: forgotten if what is stored says all, else looked at again when something changes by itself."""
        if work.cold:
            self.works.pop(name, None)
            self._due.pop(name, None)
        elif (change := work.next_change()) < self._due.get(
            name, float("inf")
        ):  # a later one is seen when this one is over
            self._due[name] = change
            heapq.heappush(self._changes, (change, name))
        if len(self._changes) > 2 * len(self._due) + SPARE:
            self._changes = [(at, each) for each, at in self._due.items()]
            heapq.heapify(self._changes)
