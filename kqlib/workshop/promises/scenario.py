"""What a check is written in: workers to start, pause and kill, time to pass, things to break.

In:  a world that makes queues in processes, lets time pass and breaks things. Out: `Scenario` and `Worker`. A `History` records the
deliveries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.promises.adapter import Claim
from kqlib.workshop.promises.history import History, How
from kqlib.workshop.promises.values import SILENT, Broken, Refused

# seconds within which an item must come: a killed worker's session, a new member's joining, a busy machine
GRACE = 8.0 * PATIENCE
SOON = 0.5  # seconds in which nothing must come
# seconds after its wait in which a claim returns. If it is later, the machine is too busy to tell what never comes.
LATE = 0.5 * PATIENCE


class Scenario:
    """One promise, tried on one queue, in a world: `run.KafkaWorld`, or one in memory in a test.

    A world has `process(**options)`, which gives a queue that can be called, paused and killed (`RemoteQueue`). It has `now()` and
    `sleep(seconds)`. What can break: `recreate()`, `lose_dead()`, `kill_leader()`, `outage()`.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        self.now: Callable[[], float] = world.now
        self.workers: list[Worker] = []
        self.history = History(world.now)
        self.answered = True  # False: a call got no answer, or a claim a late one

    def worker(self, **options: Any) -> Worker:
        """A new worker (a, b, …) in a process of its own. options: such as order="key", for a factory that takes them."""
        name = "abcdefgh"[len(self.workers)]
        with self.asking():
            self.workers.append(Worker(self, name, self.world.process(**options)))
        return self.workers[-1]

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Remember if a call gets no answer."""
        try:
            yield
        except (Broken, Refused) as error:
            self.answered &= error.answered
            raise

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.world.sleep(seconds)
        self.history.time_passed()


class Worker:
    """One worker of a check. Each call is recorded."""

    def __init__(self, scenario: Scenario, name: str, process: Any) -> None:
        self.name, self._scenario, self._process = name, scenario, process
        self._joined = False  # a first claim waits for the group as well

    def call(self, verb: str, *args: Any, **how: Any) -> Any:
        """One call of `QueueAdapter`. A claim stands for its item's number."""
        numbers = [arg.number if isinstance(arg, Claim) else arg for arg in args]
        with self._scenario.asking():
            return self._process.call(verb, *numbers, **how)

    def put(self, *items: str, key: str | None = None) -> None:
        """Put items, one after the other."""
        for item in items:
            self.call("put", item, key)

    def claim(self, lease: float | None = None, wait: float = SOON) -> Claim | None:
        """The next item, or None."""
        start = self._scenario.now()
        found = self.call("claim", lease, wait)
        if self._joined and self._scenario.now() - start > wait + LATE:
            self._scenario.answered = False
        self._joined = True
        if found is None:
            return None
        claim = replace(found, worker=self.name)
        self._scenario.history.claimed(claim, lease)
        return claim

    def expect(self, *items: str) -> Claim:
        """Claim the next item. One must come; if items are named, it must be one of them."""
        claim = self.claim(wait=GRACE)
        if claim is None:
            raise Broken(f"{listed(items)} never came" if items else f"nothing came to {self.name}", *items[:1])
        if items and claim.data not in items:
            raise Broken(f"{claim.data} came where {listed(items, ' or ')} was due", claim.data)
        return claim

    def expect_all(self, *items: str, lease: float | None = None) -> list[Claim]:
        """Claim all of these and hold them: they come in any order, each once, and nothing else comes. In the order of the names."""
        claims: dict[str, Claim] = {}
        while len(claims) < len(items):
            claim = self.claim(lease, GRACE)
            missing = [item for item in items if item not in claims]
            if claim is None:
                raise Broken(f"{listed(missing)} never came", missing[0])
            if claim.data not in missing:
                raise Broken(f"{claim.data} came {self._why_wrong(claim, missing)}", claim.data)
            claims[claim.data] = claim
        return [claims[item] for item in items]

    def expect_nothing(self, why: str) -> None:
        """Nothing may come now. `why` ends the sentence about what comes."""
        claim = self.claim()
        if claim is not None:
            raise Broken(f"{claim.data} came {why}", claim.data)

    def ack(self, *claims: Claim) -> None:
        """These are done."""
        for claim in claims:
            self._end("ack", claim, "ack")

    def release(self, *claims: Claim, delay: float | None = None) -> None:
        """Give these back, at once or to be due later."""
        for claim in claims:
            self._end("release", claim, "release", *([] if delay is None else [delay]))

    def bury(self, claim: Claim, reason: str) -> None:
        """Move it to the dead letters."""
        self._end("bury", claim, "ack", reason)

    def extend(self, claim: Claim, lease: float) -> None:
        """Keep it longer."""
        self.call("extend", claim, lease)
        self._scenario.history.extended(claim, lease)

    def ack_refused(self, claim: Claim) -> bool:
        """Does the queue refuse this ack? A cluster that did not answer refused nothing."""
        try:
            self.ack(claim)
        except Refused as error:
            if error.kind in SILENT:
                raise
            return True
        return False

    def leave_step(self, claim: Claim, failed: bool = False) -> None:
        """The end of a step: its item is done, unless the handler failed."""
        self.call("leave_step", claim, failed)
        if not failed:
            self._scenario.history.ended(claim, "ack")

    def leave(self) -> None:
        """End it in good order."""
        self.call("close")
        self._process.kill()

    def kill(self) -> None:
        """End it as a power cut does."""
        self._process.kill()
        self._scenario.history.killed(self.name)

    def pause(self) -> None:
        """Freeze it."""
        self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._process.resume()

    def _why_wrong(self, claim: Claim, due: list[str]) -> str:
        """Why this item may not come now, by what became of its earlier deliveries."""
        before = self._scenario.history.ends_before(claim)
        if "ack" in before:
            return "again although it was done"
        return "again while it was out" if "open" in before else f"where {listed(due, ' or ')} was due"

    def _end(self, verb: str, claim: Claim, how: How, *more: Any) -> None:
        try:
            self.call(verb, claim, *more)
        except Refused:
            self._scenario.history.ended(claim, "refused")
            raise
        self._scenario.history.ended(claim, how)


def listed(items: Any, word: str = " and ") -> str:
    """'1', '1 and 2', '1, 2 and 3'."""
    *first, last = items
    return f"{', '.join(first)}{word}{last}" if first else last
