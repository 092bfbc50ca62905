"""One partition that this node owns: a thread that reads what is asked of it, writes what must be written, and only then answers.

In:  `Op` values from any thread, records from the member, both through one inbox. Out: answers in futures.
Everything that came meanwhile shares the next transaction. A transaction goes through only while no other node has begun with
this partition's id, so it is also the proof that the partition is ours: no answer leaves here later than FRESH seconds after the
last one was begun. A node that was stopped and lost its partition proves nothing, and so answers nothing and writes nothing.

    loading    states and log are being read: `Unavailable`, ask again soon
    serving
    lost       another node has it: `NotMine`
    broken     a transaction's end is not known: the member makes a new keeper, which reads everything again
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
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from kqlib.errors import KqError
from kqlib.queue.item import Out
from kqlib.virtual.cache import Kept, kept
from kqlib.virtual.errors import Missing, NotMine, Unavailable
from kqlib.virtual.names import queue_of
from kqlib.virtual.pen import Broken, Fenced
from kqlib.virtual.shelf import NOTHING, Shelf
from kqlib.virtual.states import Writes
from kqlib.virtual.takeover import FRESH, Taken

log = logging.getLogger("kqlib.virtual")

PROVE = 0.5  # seconds after which an answer brings a new proof along
MANY = 500  # things done in one transaction
SEEN = 5.0  # seconds that a put waits until this node has read it
TIDY = 1.0  # seconds
BACKLOG = 20_000  # records in the inbox: then the member stops reading for a while


@dataclass(eq=False)
class Op:
    """Something that was asked of a partition."""

    run: Callable[[Shelf, Writes], Any]
    queue: str = ""
    until: float = 0.0  # waits so long for something
    empty: Any = None  # the answer when nothing came
    alone: bool = False  # sees only what is committed
    seen: bool = False  # answered when this node has read what it wrote
    future: Future[Any] = field(default_factory=Future)

    def answer(self, value: Any) -> None:
        """Say what came of it; whoever asked may be gone."""
        with suppress(InvalidStateError):
            if isinstance(value, BaseException):
                self.future.set_exception(value)
            else:
                self.future.set_result(value)


class Keeper:
    """A partition of ours."""

    def __init__(
        self,
        partition: int,
        begin: Callable[[Callable[[], bool]], Taken],  # its argument: has the partition been given up meanwhile?
        fetch: Callable[..., None],
        proof: Callable[[int], list[Out]],
    ) -> None:
        self.partition = partition
        self.state = "loading"
        self.why = "its records are being read"
        self.inbox: queues.SimpleQueue[Any] = queues.SimpleQueue()
        self._came = self._taken_in = 0  # records: each number is changed by one thread only
        self.shelf: Any = None
        self.chores: list[Callable[[Shelf, Writes], Any]] = []  # done now and then
        self._begin, self._fetch, self._proof = begin, fetch, proof
        self._taken: Taken | None = None
        self.epoch = self.low = 0
        self._proved = float("-inf")
        self._written = 0  # the end of what was written into this partition
        self._parked: dict[str, dict[Op, None]] = defaultdict(dict)
        self._until: list[tuple[float, int, Op]] = []  # when they stop waiting; a heap
        self._number = itertools.count()
        self._batch: list[Any] = []
        self._answers: list[tuple[Op, Any]] = []  # of this batch, not yet given
        self._unseen: list[tuple[int, float, Op, Any]] = []
        self._tidied = 0.0
        self._leave = threading.Event()
        self._left: list[Out] = []
        self._thread = threading.Thread(target=self._run, name=f"kq-virtual-{partition}", daemon=True)
        self._thread.start()

    # --- asked by other threads ---

    def ask(self, op: Op) -> Future[Any]:
        """Have it done; the answer comes in the future."""
        if self.state == "serving":
            self.inbox.put(op)
            if self.state != "serving":
                op.answer(self._refusal())  # it ended just now, and nobody looks into the inbox any more
        else:
            op.answer(self._refusal())
        return op.future

    def arrive(self, messages: list[Any]) -> None:
        """Records of the data topic, from the member."""
        self._came += len(messages)
        self.inbox.put(messages)

    @property
    def backlog(self) -> int:
        """Records in the inbox."""
        return self._came - self._taken_in

    def leave(self, last: list[Out]) -> None:
        """Finish what is begun, write `last`, answer nobody any more."""
        self._left = last
        self._leave.set()
        self.inbox.put(None)

    def join(self, seconds: float) -> None:
        """Return when it has ended, or after so long."""
        self._thread.join(seconds)

    def drop(self, why: str) -> None:
        """It is not ours any more; its own thread tells those who wait."""
        self._leave.set()
        self.why, self.state = why, "lost"
        self.inbox.put(None)

    def _refusal(self, unknown: bool = False) -> KqError:
        if self.state == "lost":
            return NotMine(f"partition {self.partition} is not this node's: {self.why}", unknown)
        return Unavailable(f"partition {self.partition} is not ready: {self.why}", unknown=unknown)

    # --- the thread ---

    def _run(self) -> None:
        try:
            taken = self._taken = self._begin(self._leave.is_set)
            self.shelf, self.epoch = taken.shelf, taken.epoch
            while not self._leave.is_set() and (self.shelf.index.head < taken.end or time.monotonic() < taken.ready):
                self._load(self._gather(0.02))
            if not self._leave.is_set():
                self.state, self.why = "serving", ""
            while not self._leave.is_set():
                self._serve(self._gather(self._patience()))
            self._finish()
        except Fenced:
            self._end("lost", "another node has taken it over", unknown=True)
        except Broken as error:
            self._end("broken", f"Kafka did not answer ({error})", error.unknown)
        except KqError as error:
            log.info("partition %s: %s", self.partition, error)
            self._end("broken", str(error))
        except Exception as error:  # a bug, or Kafka away at the start: read again from what is stored
            log.exception("partition %s", self.partition)
            self._end("broken", f"{type(error).__name__}: it is read again")
        finally:
            if self._taken is not None:
                self._taken.pen.close()

    def _finish(self) -> None:
        given_up = self.state == "serving"
        self._end("lost", "this node gives it up")
        if given_up and self._left:
            self._write(self._left)

    def _end(self, state: str, why: str, unknown: bool = False) -> None:
        """Nobody is answered any more but with a refusal."""
        if self.state not in ("lost", "broken"):
            self.why, self.state = why, state
        for op, _ in self._answers:  # also those that were refused in part: the other part is not committed
            op.answer(self._refusal(unknown))
        waiting = [op for ops in list(self._parked.values()) for op in ops]
        waiting += [each for each in self._batch if isinstance(each, Op)]
        for _, _, op, value in self._unseen:
            op.answer(value)  # it is committed
        self._unseen = []
        with suppress(queues.Empty):
            while True:
                if isinstance(each := self.inbox.get_nowait(), Op):
                    waiting.append(each)
        for op in waiting:
            op.answer(self._refusal())
        self._parked.clear()

    def _gather(self, seconds: float) -> list[Any]:
        """What came, as soon as something did."""
        found = []
        with suppress(queues.Empty):
            found.append(self.inbox.get(timeout=max(0.0, seconds)))
            while len(found) < MANY:
                found.append(self.inbox.get_nowait())
        return found

    def _patience(self) -> float:
        parked = self._until[0][0] if self._until else float("inf")
        return min(TIDY, parked - time.monotonic(), self.shelf.next_change() - self.shelf.clock())

    def _load(self, batch: list[Any]) -> None:
        for each in batch:
            if isinstance(each, list):
                self._arrive(each)
            elif isinstance(each, Op):
                each.answer(self._refusal())

    # --- a batch ---

    def _serve(self, batch: list[Any]) -> None:
        out, self._answers, self._batch = Writes(), [], batch
        for each in batch:
            if isinstance(each, list):
                out.woken |= self._arrive(each)
            elif isinstance(each, Op):
                if each.alone and out.outs:
                    self._settle(out)
                    out, self._answers = Writes(woken=out.woken), []
                self._do(each, out)
        out.woken |= self._tidy(out)
        self._unpark(out)
        self._settle(out)

    def _do(self, op: Op, out: Writes) -> None:
        if op.future.cancelled():
            return
        try:
            value = op.run(self.shelf, out)
        except Missing as missing:
            self._fetch(self.partition, missing.offsets, lambda found, gone: self.ask(self._fetched(op, found, gone)))
            return
        except KqError as error:
            value = error
        if value is not NOTHING:
            self._answers.append((op, value))
        elif op.until > time.monotonic():
            self._parked[op.queue][op] = None
            heapq.heappush(self._until, (op.until, next(self._number), op))
        else:
            self._answers.append((op, op.empty))

    def _fetched(self, op: Op, found: list[Kept], gone: list[int]) -> Op:
        """Once they are here, the same again."""

        def run(shelf: Shelf, out: Writes) -> Any:
            for record in found:
                shelf.cache.add(record)
            if gone:
                shelf.trim(max(gone) + 1, out)
            if not found and not gone:
                raise Unavailable("records could not be fetched from Kafka in time")
            return op.run(shelf, out)

        return Op(run, op.queue, op.until, op.empty, op.alone, op.seen, op.future)

    def _unpark(self, out: Writes) -> None:
        """Those that wait for a queue that has something now, and those whose time is over."""
        ops = [op for queue in out.woken & self._parked.keys() for op in self._parked.pop(queue)]
        while self._until and self._until[0][0] <= time.monotonic():
            op = heapq.heappop(self._until)[2]
            if op in self._parked.get(op.queue, ()):
                del self._parked[op.queue][op]
                ops.append(op)
                if not self._parked[op.queue]:
                    del self._parked[op.queue]
        for op in ops:
            self._do(op, out)

    def _sweep(self) -> None:
        """Of those that were answered, or hung up while they waited, nothing stays."""
        for queue, ops in list(self._parked.items()):
            self._parked[queue] = {op: None for op in ops if not op.future.cancelled()}
            if not self._parked[queue]:
                del self._parked[queue]
        self._until = [(op.until, next(self._number), op) for ops in self._parked.values() for op in ops]
        heapq.heapify(self._until)

    def _tidy(self, out: Writes) -> set[str]:
        if time.monotonic() - self._tidied > TIDY:
            self._tidied = time.monotonic()
            self._sweep()
            for chore in self.chores:
                chore(self.shelf, out)
        tidied: set[str] = self.shelf.tidy()
        return tidied

    def _arrive(self, messages: list[Any]) -> set[str]:
        self._taken_in += len(messages)
        records, end = [], 0
        for message in messages:
            error = message.error()
            if error is None:
                records.append((queue_of(message.key()), kept(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                end = max(end, message.offset())
        woken = self.shelf.arrive([each for each in records if each[1].offset >= self.shelf.index.head])
        self.shelf.index.seen(end)
        self._show()
        return woken

    # --- commit, then answer ---

    def _settle(self, out: Writes) -> None:
        """Commit, then answer; with a proof that is fresh when the answer leaves."""
        answers = self._answers
        if out.outs:
            places = self._write(out.outs)
            out.places.update(enumerate(places))
        elif answers and time.monotonic() - self._proved > PROVE:
            self._write(self._proof(self.epoch))
        values = [(op, _told(value)) for op, value in answers]
        while values and time.monotonic() - self._proved > FRESH:  # stopped between the proof and here
            self._write(self._proof(self.epoch))
        self._answers = []
        for op, value in values:
            if op.seen and self.shelf.index.head < self._written and not isinstance(value, BaseException):
                self._unseen.append((self._written, time.monotonic() + SEEN, op, value))
            else:
                op.answer(value)
        if self._unseen:
            self._show()

    def _show(self) -> None:
        """Puts are answered when whoever claims next finds them."""
        head, now = (self.shelf.index.head, time.monotonic()) if self.shelf else (0, 0.0)
        for _, _, op, value in (shown := [each for each in self._unseen if each[0] <= head or each[1] < now]):
            op.answer(value)
        if shown:
            self._unseen = [each for each in self._unseen if each not in shown]

    def _write(self, outs: list[Out]) -> list[int]:
        assert self._taken is not None  # nothing is written before
        start = time.monotonic()
        places = self._taken.pen.write(outs)
        self._proved = start
        own = [
            place
            for place, out in zip(places, outs, strict=True)
            if out.topic == self.shelf.place.topic and out.partition == self.partition
        ]
        self._written = max([self._written, *(place + 1 for place in own)])
        return places

    @property
    def written(self) -> int:
        """The end of what was written here."""
        return self._written


def _told(value: Any) -> Any:
    """An answer that begins with the commit (a lease) is made now."""
    return value() if callable(value) else value
