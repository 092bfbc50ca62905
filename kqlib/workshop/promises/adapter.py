"""A queue as a check calls it: the same few calls for any queue, which may be in another process.

In:  any object with some of the verbs put claim ack release extend bury redrive depth step delete create close, and `dead`.
Out: `QueueAdapter`, whose arguments and answers are plain values; `RemoteQueue`, the same in a process that can be paused and killed.
A verb that is missing, or that lacks an argument which the promise is about, is `NotOffered`.
"""

from __future__ import annotations

import inspect
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from kqlib.errors import NotInTime
from kqlib.kafka import Kafka
from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.children import ChildEnded, Children
from kqlib.workshop.promises.values import Broken, NotOffered, Refused

ADDRESS = re.compile(r"[\w.-]+:\d{2,5}(,[\w.-]+:\d{2,5})*")  # no two runs have the same
ANSWER = 30.0 * PATIENCE  # seconds for one answer
LOOK = 0.01  # seconds between two claims of a queue that cannot wait by itself
TOGETHER = 10.0 * PATIENCE  # seconds in which many threads must have an item each


@dataclass(frozen=True)
class Claim:
    """A claimed item: its number with this worker, its data, its attempt (None: the queue does not say), the worker's name."""

    number: int
    data: str
    attempt: int | None = None
    worker: str = ""


class QueueAdapter:
    """One worker's queue. Claimed items are named by their number."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self._items: list[Any] = []
        self._steps: dict[int, Any] = {}
        self._lock = threading.Lock()

    def put(self, data: str, key: str | None = None) -> None:
        """Put an item. key: given only if the promise is about keys; else each item has its own."""
        if key:
            self._call("put", data.encode(), must={"key": key.encode()})
        else:
            self._call("put", data.encode(), may={"key": data.encode()})

    def claim(self, lease: float | None = None, wait: float = 0) -> Claim | None:
        """The next item, or None if none comes within `wait` seconds."""
        verb = self._verb("claim")
        given = _given(verb, "claim", {} if lease is None else {"lease": lease}, {"wait": wait})
        deadline = time.monotonic() + wait
        while (item := verb(**given)) is None:
            if "wait" in given or time.monotonic() >= deadline:
                return None
            time.sleep(LOOK)
        with self._lock:
            self._items.append(item)
            return Claim(len(self._items) - 1, _text(item), getattr(item, "attempt", None))

    def ack(self, number: int) -> None:
        """This item is done."""
        self._call("ack", self._items[number])

    def release(self, number: int, delay: float | None = None) -> None:
        """Give it back, at once or to be due later."""
        self._call("release", self._items[number], must={} if delay is None else {"delay": delay})

    def extend(self, number: int, lease: float) -> None:
        """Keep it longer."""
        self._call("extend", self._items[number], must={"lease": lease})

    def bury(self, number: int, reason: str) -> None:
        """Move it to the dead letters, with a reason."""
        self._call("bury", self._items[number], must={"reason": reason})

    def redrive(self, items: list[str] | None = None, reason: str | None = None) -> None:
        """Put dead letters back: those of these items, or those with this reason."""
        if items is None:
            self._call("redrive", must={"reason": reason})
        else:
            ids = [letter.id for letter in self._dead().peek(100) if _text(letter) in items]
            self._call("redrive", must={"ids": ids})

    def depth(self) -> int:
        """How many items are not done."""
        depth: int | None = self._call("depth")
        if depth is None:
            raise NotOffered("depth")
        return depth

    def dead(self) -> list[str]:
        """The data of the dead letters. A queue without `peek` has them claimed."""
        dead = self._dead()
        if callable(getattr(dead, "peek", None)):
            return [_text(item) for item in dead.peek(100)]
        others, found = QueueAdapter(dead), []
        while (claim := others.claim(wait=1.0)) is not None:
            found.append(claim.data)
        return found

    def create(self) -> None:
        """Make the queue available."""
        self._call("create")

    def delete(self) -> None:
        """Mark the queue deleted."""
        self._call("delete")

    def enter_step(self, number: int, output: str, dead: bool = False) -> None:
        """Begin `with queue.step(item) as step: step.put(queue, output)`. dead: the output goes to `queue.dead`."""
        step = self._call("step", self._items[number])
        step.__enter__().put(self._dead() if dead else self.queue, output.encode())
        self._steps[number] = step

    def leave_step(self, number: int, failed: bool = False) -> None:
        """The end of the `with` block. failed: by an exception of the handler."""
        error = ValueError("the handler failed") if failed else None
        try:
            self._steps.pop(number).__exit__(type(error) if error else None, error, None)
        except ValueError as again:
            if again is not error:
                raise

    def leave_step_beside(self, number: int) -> None:
        """Leave the `with` block on a thread of its own. It may take long and fail."""

        def leave() -> None:
            with suppress(Exception):
                self.leave_step(number)

        threading.Thread(target=leave, daemon=True).start()

    def crowd(self, threads: int, items: int) -> tuple[int, list[str]]:
        """So many threads take these items: how many held one at the same time, and what they acked, sorted."""
        together = threading.Barrier(threads)
        held, done = list[str](), list[str]()

        def work(_: int) -> None:
            try:
                claim = self.claim(wait=TOGETHER)
                if claim is None:
                    return
                held.append(claim.data)
                together.wait(TOGETHER)
            except threading.BrokenBarrierError:
                return
            except Exception:
                together.abort()
                raise
            end = time.monotonic() + TOGETHER
            while claim is not None or (len(done) < items and time.monotonic() < end):
                if claim is not None:
                    self.ack(claim.number)
                    done.append(claim.data)
                claim = self.claim(wait=0.2) if len(done) < items else None

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        return len(held), sorted(done)

    def close(self) -> None:
        """Leave in good order. The queue has a `close`, or the site that it belongs to."""
        for each in (self.queue, getattr(self.queue, "site", None)):
            close = getattr(each, "close", None)
            if callable(close):
                close()
                return

    def _call(
        self, name: str, *args: Any, must: Mapping[str, Any] | None = None, may: Mapping[str, Any] | None = None
    ) -> Any:
        verb = self._verb(name)
        return verb(*args, **_given(verb, name, must or {}, may or {}))

    def _verb(self, name: str) -> Callable[..., Any]:
        verb: Callable[..., Any] | None = getattr(self.queue, name, None)
        if not callable(verb):
            raise NotOffered(name)
        return verb

    def _dead(self) -> Any:
        """The queue of its dead letters."""
        dead = getattr(self.queue, "dead", None)
        if dead is None:
            raise NotOffered("dead")
        return dead


def _given(verb: Callable[..., Any], name: str, must: Mapping[str, Any], may: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that this verb takes. One that it must take and does not is not offered."""
    known = inspect.signature(verb).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in known.values())
    for word in must:
        if word not in known and not anything:
            raise NotOffered(f"{name}({word}=…)")
    return {word: value for word, value in {**must, **may}.items() if word in known or anything}


def _text(item: Any) -> str:
    """An item's data as text. An item may be a Kafka message."""
    data = item.data if hasattr(item, "data") else item.value() if callable(getattr(item, "value", None)) else item
    return data.decode() if isinstance(data, bytes) else str(data)


# --- in another process -----------------------------------------------------------------------------------------------


class RemoteQueue:
    """A queue in a process of its own: `factory(cluster, name, **options)`, with the calls of `QueueAdapter`."""

    def __init__(
        self, children: Children, factory: Callable[..., Any], cluster: Kafka, name: str, **options: Any
    ) -> None:
        self.process = children.fork(_serve, factory, (cluster.bootstrap, cluster._own), name, options)
        try:
            self._answer("the factory")
        except BaseException:
            self.process.kill()
            raise

    def call(self, verb: str, *args: Any, **how: Any) -> Any:
        """One call. It raises `Refused` if the queue raised, or `NotOffered`."""
        with suppress(ChildEnded):  # the answer says so
            self.process.send((verb, args, how))
        return self._answer(verb)

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()

    def pause(self) -> None:
        """Freeze it."""
        self.process.pause()

    def resume(self) -> None:
        """Let it go on."""
        self.process.resume()

    def _answer(self, asked: str) -> Any:
        try:
            value = self.process.receive(ANSWER)
        except NotInTime:
            raise Broken(f"{asked} did not return within {ANSWER:g} s", answered=False) from None
        except ChildEnded:
            raise Broken(f"the worker's process ended in {asked}", answered=False) from None
        if isinstance(value, NotOffered | Refused):
            raise value
        return value


def _serve(line: Connection, factory: Callable[..., Any], cluster: Any, name: str, options: Any) -> None:
    """Make the queue, then answer calls until the other end is closed."""
    made: list[QueueAdapter] = []
    line.send(_tried(lambda: made.append(QueueAdapter(factory(Kafka(*cluster), name, **options)))))
    while True:
        verb, args, how = line.recv()
        line.send(_tried(getattr(made[0], verb), *args, **how))


def _tried(call: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """A call's answer, or what it raised, as a value that can be sent."""
    try:
        return call(*args, **how)
    except NotOffered as missing:
        return missing
    except Exception as error:
        return refused(error)


def refused(error: Exception) -> Refused:
    """What a queue raised: the error's name and its first sentence, without addresses."""
    words = ADDRESS.sub("…", str(error).strip().split("\n")[0])
    return Refused(type(error).__name__, words.partition(". ")[0])
