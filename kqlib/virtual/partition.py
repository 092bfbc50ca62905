"""Serves one partition that this node owns. One thread runs operations, commits what they write, and only then answers.

In:  `Operation`s from any thread, records from the group member, both through one inbox. Out: answers in futures.
Everything that comes while a transaction runs shares the next one. A transaction succeeds only while no other node has begun with
this partition's id. So it is also the proof that the partition is ours: no answer leaves later than FRESH seconds after the last
transaction began. A node that was stopped and lost its partition can prove nothing: it answers nothing and writes nothing.

    loading    states and log are being read: `Unavailable`, ask again soon
    serving
    lost       another node has it: `NotMine`
    broken     the outcome of a transaction is not known: the member makes a new server, which reads everything again
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue as queues
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError

from kqlib.errors import KqError
from kqlib.queue.item import Out
from kqlib.virtual.errors import NotMine, Unavailable
from kqlib.virtual.index import StoredRecord
from kqlib.virtual.names import queue_of
from kqlib.virtual.ownership import FRESH, Ownership, Taken
from kqlib.virtual.store import NOTHING, ItemStore, Missing, Writes
from kqlib.virtual.writer import Fenced, WriteFailed

log = logging.getLogger("kqlib.virtual")

PROVE = 0.5  # seconds after which an answer brings a new proof along
MANY = 500  # operations in one transaction
SEEN = 5.0  # seconds that a put waits until this node has read it
TIDY = 1.0  # seconds between two looks at what is over
BACKLOG = 20_000  # records in the inbox: then the member stops reading for a while
Run = Callable[[ItemStore, Writes], Any]


@dataclass(eq=False)
class Operation:
    """A request to one partition."""

    run: Run
    queue: str = ""
    until: float = 0.0  # if there is nothing, it waits until then, on the monotonic clock
    alone: bool = False  # runs when all that was written before it is committed
    seen: bool = False  # is answered when this node has read what it wrote
    future: Future[Any] = field(default_factory=Future)

    def answer(self, value: Any) -> None:
        """Answer with a value or an error; the client may be gone."""
        with suppress(InvalidStateError):
            if isinstance(value, BaseException):
                self.future.set_exception(value)
            else:
                self.future.set_result(value)


class PartitionServer:
    """One partition that this node owns."""

    def __init__(
        self, ownership: Ownership, partition: int, fetch: Callable[..., object], mine: int | None = None
    ) -> None:
        """fetch: see `RecordFetcher`. mine: see `Ownership.take_over`."""
        self.partition = partition
        self.state, self.why = "loading", "its records are being read"
        self.inbox: queues.SimpleQueue[Any] = queues.SimpleQueue()
        self._came = self._taken_in = 0  # records: each number is changed by one thread only
        self.store: Any = None
        self._ownership, self._fetch, self._mine = ownership, fetch, mine
        self._taken: Taken | None = None
        self.epoch = self.low = 0
        self._proved = float("-inf")
        self.written = 0  # the end of what was written into this partition
        self._parked: dict[str, dict[Operation, None]] = defaultdict(dict)
        self._until: list[tuple[float, int, Operation]] = []  # when they stop waiting; a heap
        self._number = itertools.count()
        self._batch: list[Any] = []
        self._answers: list[tuple[Operation, Any]] = []  # of this batch, not yet given
        self._unseen: list[tuple[int, float, Operation, Any]] = []
        self._tidied = 0.0
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kq-virtual-{partition}", daemon=True)
        self._thread.start()

    # --- asked by other threads ---

    def ask(self, operation: Operation) -> Future[Any]:
        """Run it on the partition's thread; the answer comes in the future."""
        if self.state == "serving":
            self.inbox.put(operation)
        if self.state != "serving":  # perhaps it ended just now, and nothing takes from the inbox any more
            operation.answer(self._refusal())
        return operation.future

    def arrive(self, messages: list[Any]) -> None:
        """Records of the data topic, from the member."""
        self._came += len(messages)
        self.inbox.put(messages)

    @property
    def backlog(self) -> int:
        """Records in the inbox."""
        return self._came - self._taken_in

    @property
    def waiting(self) -> int:
        """Requests that wait until there is something."""
        return sum(map(len, list(self._parked.values())))

    def leave(self) -> None:
        """Finish what has begun, write that this node has left, and refuse what comes later."""
        self._leaving.set()
        self.inbox.put(None)

    def join(self, seconds: float) -> None:
        """Return when it has ended, or after so long."""
        self._thread.join(seconds)

    def drop(self, why: str) -> None:
        """Another node owns the partition, or will: refuse all that waits, on the server's own thread."""
        self.why, self.state = why, "lost"
        self.leave()

    def _refusal(self, unknown: bool = False) -> KqError:
        if self.state == "lost":
            return NotMine(f"partition {self.partition} is not this node's: {self.why}", unknown=unknown)
        return Unavailable(f"partition {self.partition} is not ready: {self.why}", unknown=unknown)

    # --- the thread ---

    def _run(self) -> None:
        try:
            self._take_over()
            while not self._leaving.is_set():
                self._serve(self._gather(self._patience()))
            self._finish()
        except Fenced:
            self._end("lost", "another node has taken it over", unknown=True)
        except WriteFailed as error:
            self._end("broken", f"Kafka did not answer ({error})", error.unknown)
        except KqError as error:
            log.info("partition %s: %s", self.partition, error, extra={"partition": self.partition})
            self._end("broken", str(error))
        except Exception as error:  # a bug, or Kafka away at the start: read again from what is stored
            log.exception("partition %s", self.partition, extra={"partition": self.partition})
            self._end("broken", f"{type(error).__name__}: it is read again")
        finally:
            if self._taken is not None:
                self._taken.writer.close()

    def _take_over(self) -> None:
        taken = self._taken = self._ownership.take_over(self.partition, self._mine, self._leaving.is_set)
        self.store, self.epoch = taken.store, taken.epoch
        while not self._leaving.is_set() and (self.store.index.head < taken.end or time.monotonic() < taken.ready):
            for each in self._gather(0.02):
                if isinstance(each, list):
                    self._arrive(each)
        if not self._leaving.is_set():
            self.store.go_on(taken.left)
            self.state, self.why = "serving", ""

    def _finish(self) -> None:
        given_up = self.state == "serving"
        self._end("lost", "this node gives it up")
        if given_up:
            self._write([*self.store.hand_over(self.epoch), *self._ownership.farewell(self.partition, self.epoch)])

    def _end(self, state: str, why: str, unknown: bool = False) -> None:
        """From here on every answer is a refusal."""
        if self.state not in ("lost", "broken"):
            self.why, self.state = why, state
        for operation, _ in self._answers:  # also those that were refused in part: the other part is not committed
            operation.answer(self._refusal(unknown))
        for _, _, operation, value in self._unseen:
            operation.answer(value)  # it is committed
        self._unseen = []
        waiting = [operation for parked in list(self._parked.values()) for operation in parked]
        while batch := self._gather(0.0):
            self._batch.extend(batch)
        waiting += [each for each in self._batch if isinstance(each, Operation)]
        for operation in waiting:
            operation.answer(self._refusal())
        self._parked.clear()

    def _gather(self, seconds: float) -> list[Any]:
        """What is in the inbox, as soon as something is."""
        found = []
        with suppress(queues.Empty):
            found.append(self.inbox.get(timeout=max(0.0, seconds)))
            while len(found) < MANY:
                found.append(self.inbox.get_nowait())
        return found

    def _patience(self) -> float:
        parked = self._until[0][0] if self._until else float("inf")
        return min(TIDY, parked - time.monotonic(), self.store.next_change() - self.store.clock())

    # --- a batch ---

    def _serve(self, batch: list[Any]) -> None:
        out, self._answers, self._batch = Writes(), [], batch
        for each in batch:
            if isinstance(each, list):
                out.woken |= self._arrive(each)
            elif isinstance(each, Operation):
                if each.alone and out.outs:
                    self._commit(out)
                    out, self._answers = Writes(woken=out.woken), []
                self._do(each, out)
        out.woken |= self._tidy(out)
        self._wake(out)
        self._commit(out)

    def _do(self, operation: Operation, out: Writes) -> None:
        if operation.future.cancelled():
            return
        try:
            value = operation.run(self.store, out)
        except Missing as missing:
            self._fetch(
                self.partition,
                missing.offsets,
                lambda found, gone: self.ask(replace(operation, run=_with_records(operation.run, found, gone))),
            )
            return
        except KqError as error:
            value = error
        if value is not NOTHING:
            self._answers.append((operation, value))
        elif operation.until > time.monotonic():
            self._parked[operation.queue][operation] = None
            heapq.heappush(self._until, (operation.until, next(self._number), operation))
        else:
            self._answers.append((operation, None))  # nothing came

    def _wake(self, out: Writes) -> None:
        """Run those that wait for a queue which has something now, and those whose time is over."""
        operations = [each for queue in out.woken & self._parked.keys() for each in self._parked.pop(queue)]
        while self._until and self._until[0][0] <= time.monotonic():
            operation = heapq.heappop(self._until)[2]
            if operation in self._parked.get(operation.queue, ()):
                del self._parked[operation.queue][operation]
                operations.append(operation)
        for operation in operations:
            self._do(operation, out)

    def _sweep(self) -> None:
        """Forget operations that were answered, and those whose client hung up while they waited."""
        for queue, operations in list(self._parked.items()):
            self._parked[queue] = {each: None for each in operations if not each.future.cancelled()}
            if not self._parked[queue]:
                del self._parked[queue]
        self._until = [(each.until, next(self._number), each) for parked in self._parked.values() for each in parked]
        heapq.heapify(self._until)

    def _tidy(self, out: Writes) -> set[str]:
        if time.monotonic() - self._tidied > TIDY:
            self._tidied = time.monotonic()
            self._sweep()
            self.store.forget_idle(out)
        return self.store.tidy()

    def _arrive(self, messages: list[Any]) -> set[str]:
        self._taken_in += len(messages)
        index, records, end = self.store.index, [], 0
        for message in messages:
            error = message.error()
            if error is None:
                if message.offset() >= index.head:
                    records.append((queue_of(message.key()), StoredRecord.of(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                end = max(end, message.offset())
        woken: set[str] = self.store.arrive(records)
        index.read_to(end)
        self._answer_seen()
        return woken

    # --- commit, then answer ---

    def _commit(self, out: Writes) -> None:
        """Commit, then answer, with a proof that is fresh when the answer leaves."""
        answers = self._answers
        if out.outs:
            out.places.update(enumerate(self._write(out.outs)))
        elif answers and time.monotonic() - self._proved > PROVE:
            self._prove()
        values = [(operation, value() if callable(value) else value) for operation, value in answers]
        while values and time.monotonic() - self._proved > FRESH:  # stopped between the proof and here
            self._prove()
        self._answers = []
        for operation, value in values:
            if operation.seen and self.store.index.head < self.written and not isinstance(value, BaseException):
                self._unseen.append((self.written, time.monotonic() + SEEN, operation, value))
            else:
                operation.answer(value)
        self._answer_seen()

    def _answer_seen(self) -> None:
        """A put is answered when this node has read it: then the next claim finds it."""
        head, now, unseen = self.store.index.head, time.monotonic(), self._unseen
        self._unseen = [each for each in unseen if head < each[0] and now <= each[1]]
        for end, until, operation, value in unseen:
            if end <= head or until < now:
                operation.answer(value)

    def _prove(self) -> None:
        self._write([self._ownership.proof(self.partition, self.epoch)])

    def _write(self, outs: list[Out]) -> list[int]:
        assert self._taken is not None  # nothing is written before
        start = time.monotonic()
        offsets = self._taken.writer.write(outs)
        self._proved = start
        for offset, out in zip(offsets, outs, strict=True):
            if out.topic == self.store.place.topic and out.partition == self.partition:
                self.written = max(self.written, offset + 1)
        return offsets


def _with_records(run: Run, found: list[StoredRecord], gone: list[int]) -> Run:
    """The same operation, once the records that it needs were fetched."""

    def again(store: ItemStore, out: Writes) -> Any:
        for record in found:
            store.cache.add(record)
        if gone:
            store.trim(max(gone) + 1, out)
        if not found and not gone:
            raise Unavailable("records could not be fetched from Kafka in time")
        return run(store, out)

    return again
