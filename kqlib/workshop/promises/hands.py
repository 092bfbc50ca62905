"""A worker's hands on its queue: the few calls that a check makes, fitted to whatever verbs the queue has.

In:  any object with some of the verbs put claim ack release extend bury depth step delete create close, and `dead`; or with
     Drupal's words for them. Out: `Hands`: items by number, so that a check in another process can name them.
A verb that is missing, or that lacks an argument which the promise is about, is `NotOffered`.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.promises.values import NotOffered

DRUPAL = {
    "put": "create_item",
    "claim": "claim_item",
    "ack": "delete_item",
    "release": "release_item",
    "depth": "number_of_items",
    "create": "create_queue",
    "delete": "delete_queue",
}
ALSO = {"lease": "lease_time"}  # the same argument in Drupal's words
LOOK = 0.01  # seconds between two claims of a queue that cannot wait by itself
TOGETHER = 10.0 * PATIENCE  # seconds in which many threads must have an item each


@dataclass(frozen=True)
class Got:
    """A claimed item: its number with this worker, its data, which attempt the queue says it is (None: it does not say)."""

    number: int
    data: str
    attempt: int | None = None


class Hands:
    """One worker's queue. Every argument and answer is a plain value."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self._items: list[Any] = []
        self._steps: dict[int, Any] = {}
        self._lock = threading.Lock()

    def put(self, data: str, key: str | None = None) -> None:
        """Put an item; `key` is one that the promise is about, without it each item has its own."""
        verb = self._verb("put")
        must = {"key": key.encode()} if key else {}
        may = {} if key else {"key": data.encode()}
        payload = data if verb.__name__ == DRUPAL["put"] else data.encode()
        verb(payload, **_given(verb, "put", must, may))

    def claim(self, lease: float | None = None, wait: float = 0) -> Got | None:
        """The next item, or None if none comes within `wait` seconds."""
        verb = self._verb("claim")
        given = _given(verb, "claim", {} if lease is None else {"lease": lease}, {"wait": wait})
        deadline = time.monotonic() + wait
        while True:
            item = verb(**given)
            if item is not None:
                return self._keep(item)
            if "wait" in given or time.monotonic() >= deadline:
                return None
            time.sleep(LOOK)

    def ack(self, number: int) -> None:
        """This item is done."""
        self._verb("ack")(self._items[number])

    def release(self, number: int, delay: float | None = None) -> None:
        """Give it back, at once or to be due later."""
        verb = self._verb("release")
        verb(self._items[number], **_given(verb, "release", {} if delay is None else {"delay": delay}))

    def extend(self, number: int, lease: float) -> None:
        """Keep it longer."""
        verb = self._verb("extend")
        verb(self._items[number], **_given(verb, "extend", {"lease": lease}))

    def depth(self) -> int:
        """How many items are not done."""
        depth: int | None = self._verb("depth")()
        if depth is None:
            raise NotOffered("depth")
        return depth

    def dead(self) -> list[str]:
        """What lies with the dead letters."""
        dead = self._dead()
        if callable(getattr(dead, "peek", None)):
            return [_text(item) for item in dead.peek(100)]
        others, found = Hands(dead), []
        while (got := others.claim(wait=1.0)) is not None:
            found.append(got.data)
        return found

    def bury(self, number: int, reason: str) -> None:
        """Move it to the dead letters, with a reason."""
        verb = self._verb("bury")
        verb(self._items[number], **_given(verb, "bury", {"reason": reason}))

    def redrive(self, items: list[str] | None = None, reason: str | None = None) -> None:
        """Put dead letters back: those of these items, or those with this reason."""
        verb = self._verb("redrive")
        choice = {"reason": reason} if items is None else {"ids": self._letters(items)}
        verb(**_given(verb, "redrive", choice))

    def create(self) -> None:
        """Make the queue available."""
        self._verb("create")()

    def delete(self) -> None:
        """Mark the queue deleted."""
        self._verb("delete")()

    def enter_step(self, number: int, output: str, dead: bool = False) -> None:
        """Begin `with queue.step(item) as step: step.put(queue, output)` and stay inside. dead: the output goes to `queue.dead`."""
        step = self._verb("step")(self._items[number])
        step.__enter__().put(self._dead() if dead else self.queue, output.encode())
        self._steps[number] = step

    def leave_step(self, number: int, failed: bool = False) -> None:
        """The end of the `with`; failed: by an exception of the handler's own."""
        error = ValueError("the handler failed") if failed else None
        try:
            self._steps.pop(number).__exit__(type(error) if error else None, error, None)
        except ValueError as again:
            if again is not error:
                raise

    def leave_step_beside(self, number: int) -> None:
        """Leave the `with` on a thread of its own. It may take long and fail."""

        def leave() -> None:
            with suppress(Exception):
                self.leave_step(number)

        threading.Thread(target=leave, daemon=True).start()

    def crowd(self, threads: int, items: int) -> tuple[int, list[str]]:
        """So many threads take these items: how many held one at the same time, and what they acked, sorted."""
        together, done = threading.Barrier(threads), []  # type: tuple[threading.Barrier, list[str]]
        held, troubles = [], []  # type: tuple[list[str], list[BaseException]]

        def work() -> None:
            try:
                got = self.claim(wait=TOGETHER)
                if got is None:
                    return
                held.append(got.data)
                try:
                    together.wait(TOGETHER)
                except threading.BrokenBarrierError:
                    return
                end = time.monotonic() + TOGETHER
                while got is not None or (len(done) < items and time.monotonic() < end):
                    if got is not None:
                        self.ack(got.number)
                        done.append(got.data)
                    got = self.claim(wait=0.2) if len(done) < items else None
            except BaseException as trouble:
                troubles.append(trouble)
                together.abort()

        crew = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        if troubles:
            raise troubles[0]
        return len(held), sorted(done)

    def close(self) -> None:
        """Leave in good order: what has a close is the queue, or the site that it belongs to."""
        for each in (self.queue, getattr(self.queue, "site", None)):
            close = getattr(each, "close", None)
            if callable(close):
                close()
                return

    def _verb(self, name: str) -> Callable[..., Any]:
        """A verb of the queue, by its own word or Drupal's."""
        for word in (name, DRUPAL.get(name, name)):
            verb = getattr(self.queue, word, None)
            if callable(verb):
                return verb
        raise NotOffered(name)

    def _dead(self) -> Any:
        """The queue of its dead letters."""
        dead = getattr(self.queue, "dead", None)
        if dead is None:
            raise NotOffered("dead")
        return dead

    def _letters(self, items: list[str]) -> list[str]:
        """The ids of these items' dead letters."""
        return [letter.id for letter in self._dead().peek(100) if _text(letter) in items]

    def _keep(self, item: Any) -> Got:
        with self._lock:
            self._items.append(item)
            return Got(len(self._items) - 1, _text(item), getattr(item, "attempt", None))


def known_clients() -> None:
    """Kafka's client classes say that they live in a module 'cimpl', which nobody can import: they could not travel."""
    import confluent_kafka

    sys.modules.setdefault("cimpl", confluent_kafka.cimpl)


def _given(
    verb: Callable[..., Any], name: str, must: dict[str, Any], may: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The arguments as this verb calls them; what it must take and does not is not offered."""
    try:
        known: Mapping[str, inspect.Parameter] = inspect.signature(verb).parameters
    except ValueError:  # written in C: it does not say what it takes
        known = {}
    anything = any(each.kind is each.VAR_KEYWORD for each in known.values())
    given = {}
    for word, value in {**must, **(may or {})}.items():
        taken = next((each for each in (word, ALSO.get(word, word)) if each in known), word if anything else None)
        if taken:
            given[taken] = value
        elif word in must:
            raise NotOffered(f"{name}({word}=…)")
    return given


def _text(item: Any) -> str:
    """An item's data as text; an item may be a Kafka message."""
    data = item.data if hasattr(item, "data") else item.value() if callable(getattr(item, "value", None)) else item
    return data.decode() if isinstance(data, bytes) else str(data)
