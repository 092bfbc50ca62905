"""Where a promise is tried: workers to start, pause and kill, time to pass, things to break; and a record of every delivery.

In:  hands on a queue, wherever they are (another process, or in a test this one). Out: `Stage` and `Worker`, what checks are
written in, and the deliveries as a picture has them. Time in the record is a count of what happened, never seconds, so that it
is the same on every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.promises.hands import Got
from kqlib.workshop.promises.values import SILENT, Broken, Refused
from kqlib.workshop.view.deliveries import Delivery

How = Literal["ack", "release", "expired", "killed", "refused", "open"]
# seconds within which an item must come: a killed worker's session, a new member's joining, a busy machine
GRACE = 8.0 * PATIENCE
SOON = 0.5  # seconds in which nothing must come
# seconds after its wait in which a claim returns, unless the machine is too busy to tell what never comes
LATE = 0.5 * PATIENCE


class Far(Protocol):
    """Hands that may be in another process."""

    def call(self, verb: str, *args: Any, **how: Any) -> Any:
        """One call of `Hands`; raises `Refused` or `NotOffered`."""

    def kill(self) -> None:
        """SIGKILL."""

    def pause(self) -> None:
        """SIGSTOP."""

    def resume(self) -> None:
        """SIGCONT."""


@dataclass(frozen=True)
class Claim:
    """What a worker holds: the item, and whose claim of it this is."""

    worker: str
    got: Got

    @property
    def data(self) -> str:
        """The item's data: its name in the checks."""
        return self.got.data


@dataclass(frozen=True)
class Lease:
    """An item in a worker's hands, from when to when (None: still), and how that ended."""

    item: str
    worker: str
    attempt: int
    start: int
    end: int | None = None
    how: How = "open"


class Stage:
    """What a check may use. A kind of stage says how hands are made, how time passes and how things break."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._record: list[Lease] = []
        self._places: dict[tuple[str, int], int] = {}  # whose claim stands where in the record
        self._ends: dict[int, float] = {}  # open leases whose end was asked for: place in the record -> when
        self._at = 0
        self.answered = True  # False: a call got no answer, or a claim a late one

    def worker(self, **wishes: Any) -> Worker:
        """A new worker (a, b, …) in a process of its own; a wish (order="key") is told to a factory that takes it."""
        name = "abcdefgh"[len(self.workers)]
        with self.asking():
            self.workers.append(Worker(self, name, self._hands(wishes)))
        return self.workers[-1]

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Remember that a call got no answer."""
        try:
            yield
        except (Broken, Refused) as error:
            self.answered &= error.answered
            raise

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._pass(seconds)
        self._at += 1
        self.expire()

    def recreate(self) -> None:
        """Delete the queue's topic and create it again."""
        raise NotImplementedError

    def kill_leader(self) -> None:
        """Kill the broker that leads the queue's partition."""
        raise NotImplementedError

    def outage(self) -> None:
        """All brokers stand still for longer than a session, and go on."""
        raise NotImplementedError

    def lose_dead(self) -> None:
        """Delete the topic of the queue's dead letters."""
        raise NotImplementedError

    def now(self) -> float:
        """Seconds, from anywhere."""
        raise NotImplementedError

    def _hands(self, wishes: dict[str, Any]) -> Far:
        raise NotImplementedError

    def _pass(self, seconds: float) -> None:
        raise NotImplementedError

    # --- the record --------------------------------------------------------------------------------------------------

    def deliveries(self, item: str | None = None) -> tuple[str, tuple[Delivery, ...]]:
        """An item and its deliveries; the item that was delivered most often if none is named."""
        items = [each.item for each in self._record]
        item = item if item in items else max(items, key=items.count, default="")
        leases = [each for each in self._record if each.item == item]
        times = sorted({time for each in leases for time in (each.start, each.end) if time is not None})
        ends = [len(times) if each.end is None else times.index(each.end) for each in leases]
        rows = [f"worker {each.worker}{', too late' * (each.start == each.end)}" for each in leases]
        return item, tuple(
            Delivery(row, each.attempt, times.index(each.start), end, each.how)
            for row, each, end in zip(rows, leases, ends, strict=True)
        )

    def claimed(self, claim: Claim, lease: float | None) -> None:
        """A worker got an item."""
        self.expire()
        self._at += 1
        self._places[claim.worker, claim.got.number] = len(self._record)
        if lease is not None:
            self._ends[len(self._record)] = self.now() + lease
        before = sum(each.item == claim.data and each.start != each.end for each in self._record)
        self._record.append(Lease(claim.data, claim.worker, claim.got.attempt or before + 1, self._at))

    def ended(self, claim: Claim, how: How) -> None:
        """A lease ended; a verb refused after its end stands alone."""
        self.expire()
        self._at += 1
        place = self._places[claim.worker, claim.got.number]
        if self._record[place].how == "open":
            self._end(place, how)
        else:
            self._record.append(replace(self._record[place], start=self._at, end=self._at, how=how))

    def extended(self, claim: Claim, lease: float) -> None:
        """A lease ends later."""
        self.expire()
        self._ends[self._places[claim.worker, claim.got.number]] = self.now() + lease

    def killed(self, worker: str) -> None:
        """A worker is gone, and with it its leases."""
        self.expire()
        self._at += 1
        for place, each in enumerate(self._record):
            if each.how == "open" and each.worker == worker:
                self._end(place, "killed")

    def expire(self) -> None:
        """Leases whose time is over have ended."""
        for place in [place for place, end in self._ends.items() if end <= self.now()]:
            if self._record[place].how == "open":
                self._end(place, "expired")

    def _end(self, place: int, how: How) -> None:
        self._record[place] = replace(self._record[place], end=self._at, how=how)


class Worker:
    """One worker of a check: the verbs, each recorded."""

    def __init__(self, stage: Stage, name: str, far: Far) -> None:
        self.name, self._stage, self._far = name, stage, far
        self._joined = False  # a first claim waits for the group as well

    def ask(self, verb: str, *args: Any, **how: Any) -> Any:
        """One call of `Hands`."""
        with self._stage.asking():
            return self._far.call(verb, *args, **how)

    def put(self, *items: str, key: str | None = None) -> None:
        """Put items, one after the other."""
        for item in items:
            self.ask("put", item, key)

    def claim(self, lease: float | None = None, wait: float = SOON) -> Claim | None:
        """The next item, or None."""
        start = self._stage.now()
        got = self.ask("claim", lease, wait)
        if self._joined and self._stage.now() - start > wait + LATE:
            self._stage.answered = False
        self._joined = True
        if got is None:
            return None
        claim = Claim(self.name, got)
        self._stage.claimed(claim, lease)
        return claim

    def want(self, *items: str, lease: float | None = None) -> Claim:
        """The next item, which must come, and be one of these if some are named."""
        claim = self.claim(lease, GRACE)
        if claim is None:
            raise Broken(f"{listed(items)} never came" if items else f"nothing came to {self.name}", *items[:1])
        if items and claim.data not in items:
            raise Broken(f"{claim.data} came where {listed(items, ' or ')} was due", claim.data)
        return claim

    def take(self, *items: str, lease: float | None = None) -> list[Claim]:
        """All of these, in any order, each once and nothing else: held, in the order of the names."""
        claims: dict[str, Claim] = {}
        while len(claims) < len(items):
            claim = self.claim(lease, GRACE)
            missing = [item for item in items if item not in claims]
            if claim is None:
                raise Broken(f"{listed(missing)} never came", missing[0])
            if claim.data not in missing:
                why = "while it was out" if claim.data in claims else "although it was done"
                raise Broken(f"{claim.data} came again {why}", claim.data)
            claims[claim.data] = claim
        return [claims[item] for item in items]

    def nothing(self, why: str) -> None:
        """Nothing comes now; what comes is broken because of `why`."""
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
        self.ask("extend", claim.got.number, lease)
        self._stage.extended(claim, lease)

    def ack_refused(self, claim: Claim) -> bool:
        """Does the queue refuse this ack? A cluster that did not answer refused nothing."""
        try:
            self.ack(claim)
        except Refused as error:
            if error.kind in SILENT:
                raise
            return True
        return False

    def call(self, verb: str, *args: Any, **how: Any) -> Any:
        """Any other call of `Hands`; a claim stands for its item's number."""
        return self.ask(verb, *(arg.got.number if isinstance(arg, Claim) else arg for arg in args), **how)

    def leave_step(self, claim: Claim, failed: bool = False) -> None:
        """The end of a step: its item is done, unless the handler failed."""
        self.call("leave_step", claim, failed)
        if not failed:
            self._stage.ended(claim, "ack")

    def leave(self) -> None:
        """End it in good order."""
        self.ask("close")
        self._far.kill()

    def kill(self) -> None:
        """End it as a power cut does."""
        self._far.kill()
        self._stage.killed(self.name)

    def pause(self) -> None:
        """Stop its time."""
        self._far.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._far.resume()

    def _end(self, verb: str, claim: Claim, how: How, *more: Any) -> None:
        try:
            self.ask(verb, claim.got.number, *more)
        except Refused:
            self._stage.ended(claim, "refused")
            raise
        self._stage.ended(claim, how)


def listed(items: Any, word: str = " and ") -> str:
    """'1', '1 and 2', '1, 2 and 3'."""
    *first, last = items
    return f"{', '.join(first)}{word}{last}" if first else last
