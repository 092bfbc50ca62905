"""The grade of a game, and its debrief: a table, what each fault was, and a curve of the work that was not done. It asks no cluster.

In:  an `Entry` for each fault that came, the audit's counts, samples. Out: `Report`, as text and as a page.
A fault is worth 100 points: its cause 30, its evidence 20, its repair 30, and up to 20 for a quick repair. The score is their mean.
A wrong answer costs 5 points of the score, a lost item 1 (20 at most).
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean
from typing import Any

from kqlib.text import count
from kqlib.workshop.gameday.faults import FAULTS
from kqlib.workshop.view import Picture, Table, curve

CAUSE, EVIDENCE, REPAIR, QUICK = 30, 20, 30, 20
WRONG, LOST, MOST_LOST = 5, 1, 20
COLUMNS = ("fault", "came", "found", "repaired", "cause", "evidence", "repair", "points")
STYLE = ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}div,pre{overflow-x:auto}"
META = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'>"


@dataclass
class Entry:
    """One fault of a game. Times are in seconds since the game began."""

    name: str
    made: float
    found: float | None = None
    proven: bool = False
    repaired: float | None = None
    by: str = ""  # who found it

    def points(self, length: float) -> int:
        """0 to 100. length: of the game, in seconds."""
        found = CAUSE * (self.found is not None) + EVIDENCE * self.proven
        if self.repaired is None:
            return found
        return round(found + REPAIR + QUICK * max(0.0, 1 - (self.repaired - self.made) / length))


@dataclass(frozen=True)
class Report:
    """What became of a game."""

    seed: int
    length: float  # seconds that it was to take
    entries: Sequence[Entry]
    wrong: Sequence[str] = ()  # answers that name a fault which was not there
    put: int = 0
    lost: int = 0
    doubled: int = 0
    samples: Sequence[Mapping[str, int]] = field(default_factory=list)  # items not done, by site
    every: float = 30.0  # seconds from one sample to the next
    names: Sequence[str] = ()  # of the first lost items

    @property
    def score(self) -> int | None:
        """0 to 100; None if no fault came."""
        if not self.entries:
            return None
        points = mean(each.points(self.length) for each in self.entries)
        return max(0, round(points - WRONG * len(self.wrong) - min(MOST_LOST, LOST * self.lost)))

    @property
    def table(self) -> Table:
        """A row a fault. Times are in minutes."""
        rows = []
        for each in self.entries:
            times = [None if at is None else f"{at / 60:.1f}" for at in (each.made, each.found, each.repaired)]
            ticks = [each.found is not None, each.proven, each.repaired is not None]
            rows.append([each.name, *times, *ticks, each.points(self.length)])
        return Table(rows, COLUMNS, f"Game day, seed {self.seed}: {self.result}")

    @property
    def result(self) -> str:
        """The score, or that there is none, and how many faults each player found first."""
        if self.score is None:
            return "no fault came"
        found = Counter(sorted(each.by for each in self.entries if each.by))
        return "; ".join([f"{self.score} of 100 points", *(f"{name} found {many}" for name, many in found.items())])

    @property
    def audit(self) -> str:
        """What was put, and what became of it."""
        wrong = f"; wrong answers: {', '.join(self.wrong)}" if self.wrong else ""
        named = f" ({', '.join([*self.names, *['…'] * (self.lost > len(self.names))])})" if self.names else ""
        return f"{count(self.put, 'item')} put for each site; {self.lost} lost{named}, {self.doubled} doubled{wrong}"

    @property
    def picture(self) -> Picture:
        """How many items were not done, by site, and when each fault came and was repaired."""
        sites = list(self.samples[0]) if self.samples else []
        words: dict[int, list[str]] = {}
        for each in self.entries:
            for at, word in ((each.made, each.name), (each.repaired, f"✓ {each.name}")):
                if at is not None:
                    step = min(len(self.samples), 1 + int(at / self.every))
                    words.setdefault(step, []).append(word)
        lines = {site: [sample[site] for sample in self.samples] for site in sites}
        events = {step: ", ".join(some) for step, some in words.items()}
        return curve(lines, f"items not done, every {self.every:g} s", step="look", events=events)

    def __str__(self) -> str:
        lines = [self.table.text, self.audit, ""]
        for each in (FAULTS[entry.name] for entry in self.entries):
            lines += [f"{each.name}: {each.cause}", f"  seen by   {each.trace}", f"  repaired  {each.repair}"]
        return "\n".join([*lines, "", self.picture.text])

    @property
    def page(self) -> str:
        """One HTML file that stands alone: the picture, and all of the text."""
        head = f"<!doctype html><html lang='en'>{META}<title>Game day</title><style>{STYLE}</style>"
        return f"{head}\n<div>{self.picture._repr_mimebundle_()['text/html']}</div>\n<pre>{html.escape(str(self))}</pre></html>\n"

    def plain(self) -> dict[str, Any]:
        """For programs."""
        entries = [asdict(each) | {"points": each.points(self.length)} for each in self.entries]
        return asdict(self) | {"entries": entries, "score": self.score}
