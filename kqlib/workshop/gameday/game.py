"""One game: which faults come when, what the player answers, and what is repaired.

In:  a system, a seed, how many faults, how many minutes; turns of the clock. Out: the status, and a `Report` at the end.
A fault that cannot be made now, since another one is in the way, is tried again. A fault counts as repaired only if it was seen in
force before.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kqlib.errors import NotAllowed
from kqlib.runtime.patience import PATIENCE
from kqlib.text import count
from kqlib.workshop.gameday.faults import FAULTS, Made
from kqlib.workshop.gameday.grade import Entry, Report
from kqlib.workshop.gameday.system import AWAY, Counts, System

FIRST, LAST = 0.05, 0.65  # of a game: in this part of it faults come
CHECK = 10.0  # seconds from one look at a fault to the next
AGAIN = 5.0  # seconds until a fault that could not be made is tried again
SAMPLES = 40  # of the work that is not done
STILL = 20.0 * PATIENCE  # seconds without work at the end of a game: what is not done then is lost
MOST = len({each.touches for each in FAULTS.values()})


@dataclass(frozen=True)
class Hidden:
    """A fault that is to come."""

    name: str
    at: float  # seconds since the game began


def draw(seed: int, faults: int, minutes: float) -> list[Hidden]:
    """The faults of a seed, in the order in which they come. No two touch the same part of the system."""
    if not 1 <= faults <= MOST:
        raise NotAllowed(f"--faults: a whole number from 1 to {MOST}, not {faults}")
    if not 0 < minutes <= 24 * 60:
        raise NotAllowed(f"--minutes: a number above 0, up to {24 * 60}, not {minutes:g}")
    chance, chosen = Random(seed), dict[str, str]()
    for name in chance.sample(sorted(FAULTS), len(FAULTS)):
        if len(chosen) < faults:
            chosen.setdefault(FAULTS[name].touches, name)
    part = (LAST - FIRST) * minutes * 60 / faults
    begin = FIRST * minutes * 60
    return [Hidden(name, begin + part * (at + chance.random())) for at, name in enumerate(chosen.values())]


class Game:
    """A game that runs."""

    def __init__(
        self, system: System, seed: int, faults: int, minutes: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.system, self.seed, self.length = system, seed, minutes * 60
        self.to_come = draw(seed, faults, minutes)
        self.faults = faults
        self.made: dict[str, Made] = {}
        self.entries: dict[str, Entry] = {}
        self.wrong: list[str] = []
        self.samples: list[dict[str, int]] = []
        self.report: Report | None = None  # of a game that has ended
        self._clock, self._began = clock, clock()
        self._in_force: set[str] = set()
        self._next_look: dict[str, float] = {}
        self._next_try: dict[str, float] = {}

    @property
    def now(self) -> float:
        """Seconds since the game began."""
        return self._clock() - self._began

    # --- the clock ---

    def turn(self) -> None:
        """Make one fault that is due, look whether one is repaired, and keep a sample.

        One of each: while brokers are away each takes long, and a command waits for the end of a turn.
        """
        if self.report:
            return
        due = [each for each in self.to_come if self.now >= max(each.at, self._next_try.get(each.name, 0.0))]
        if due and self.now < self.length:
            self._make(due[0])
        looks = {name: self._next_look[name] for name, entry in self.entries.items() if entry.repaired is None}
        if looks and self.now >= min(looks.values()):
            self._look(min(looks, key=looks.__getitem__))
        if self.now >= len(self.samples) * self.length / SAMPLES and len(self.samples) <= SAMPLES:
            self.samples.append(self.system.counts().missing)

    def _make(self, hidden: Hidden) -> None:
        fault, begun = FAULTS[hidden.name], self.now
        try:
            made = fault.make(self.system, Random(f"{self.seed} {hidden.name}"))
        except AWAY:
            self._next_try[fault.name] = self.now + AGAIN
            return
        self.to_come.remove(hidden)
        self.made[fault.name] = made
        self.entries[fault.name] = Entry(fault.name, begun)
        self._next_look[fault.name] = self.now

    def _look(self, name: str) -> None:
        """Is this fault repaired? Before it was seen in force, it is looked at as often as possible."""
        try:
            repaired = self.made[name].repaired()
        except AWAY:  # another fault is in the way of the question
            self._next_look[name] = self.now + AGAIN
            return
        if not repaired:
            self._in_force.add(name)
        elif name in self._in_force:
            self.entries[name].repaired = self.now
        self._next_look[name] = self.now + (CHECK if name in self._in_force else 0)

    # --- what a player asks ---

    def status(self) -> str:
        """The time, the audit, and which processes run."""
        counts = self.system.counts()
        shown = " ".join(f"{site} {number}" for site, number in counts.missing.items())
        lines = [
            f"Minute {self.now / 60:.1f} of {self.length / 60:g}: {count(self.faults, 'fault')} in all.",
            f"items: {counts.put} put; {counts.waiting} wait in the outbox, {counts.aside} are aside; not done: {shown}",
            f"plan   {self.system.plan}",
        ]
        for name in self.system.services:
            lines.append(
                f"{name:<9} {'running' if self.system.running(name) else 'stopped'}  log {self.system.log(name)}"
            )
        lines.append(f"faults that there are: {', '.join(sorted(FAULTS))}")
        if self.now >= self.length:
            lines.append("The time is over: kq gameday end")
        return "\n".join(lines)

    def answer(self, name: str, evidence: str, by: str = "") -> str:
        """Note an answer. The debrief shows whether it is right."""
        if self.now >= self.length:
            raise NotAllowed("the time is over, and answers count no more: kq gameday end")
        if name not in FAULTS:
            raise NotAllowed(f"there is no fault {name!r}; choose from {', '.join(FAULTS)}")
        if name not in self.entries:
            if name not in self.wrong:
                self.wrong.append(name)
        else:
            entry = self.entries[name]
            if entry.found is None:
                entry.found, entry.by = self.now, by
            patterns = self.made[name].proof
            entry.proven |= all(re.search(each, evidence, re.IGNORECASE) for each in patterns)
        return f"Noted: {name}. Whether it is right is printed by kq gameday end."

    def restart(self, name: str) -> str:
        """Start a program or a broker anew."""
        self.system.restart(name)
        return f"{name} runs."

    def end(self) -> Report:
        """Let the work end, and grade. From then on nothing happens any more."""
        if self.report:
            return self.report
        for name, entry in self.entries.items():
            if entry.repaired is None:
                self._look(name)
        self.system.stop("feed")
        counts = self._settled()
        self.samples.append(counts.missing)
        self.report = Report(
            self.seed,
            self.length,
            list(self.entries.values()),
            self.wrong,
            counts.put,
            sum(counts.missing.values()),
            counts.doubled,
            self.samples,
            self.length / SAMPLES,
            self.system.lost() if any(counts.missing.values()) else [],
        )
        return self.report

    def _settled(self) -> Counts:
        """The counts when all is done, or when nothing was done for a while."""
        counts, since = self.system.counts(), self._clock()
        while any(counts.missing.values()) and self._clock() - since < STILL:
            time.sleep(0.2)
            if (now := self.system.counts()) != counts:
                counts, since = now, self._clock()
        return counts
