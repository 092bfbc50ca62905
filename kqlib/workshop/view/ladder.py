"""The ladder: which version of a queue keeps which promise, and what it costs.

In:  `Rung`s: a name, a `Step` a promise (kept, of how many trials, what was seen), what it costs in words.
Out: `Ladder(rungs)`: a table, and as text:

    kept of 2 promises   auto-commit · 1  leases · 2
    first in, first out  ✓ 10             ✓ 10
    released comes back  ✗                *✓ 3*
    costs                0 commits        1 commit

✓ of so many trials, ✗ broken, – not offered. Bold (between asterisks) is what a rung newly keeps: no rung to its left does.
What was seen stands behind each ✗: a click opens it, and `reasons` has all of it. A ladder of one rung shows it in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kqlib.text import clean, count
from kqlib.workshop.view.picture import escape
from kqlib.workshop.view.table import Cell, Table

SIGNS = {True: "✓", False: "✗", None: "–"}


@dataclass(frozen=True)
class Step:
    """How one rung keeps one promise: kept True (`trials` times), False (`seen` says what happened), None: not offered."""

    kept: bool | None
    trials: int = 0
    seen: str = ""

    @property
    def sign(self) -> str:
        """'✓ 10', '✗' or '–'."""
        return f"✓ {self.trials}" if self.kept and self.trials else SIGNS[self.kept]


@dataclass(frozen=True)
class Rung:
    """One version of a queue: its steps by promise, and what it costs, in words ('commits': '1 an item')."""

    name: str
    steps: Mapping[str, Step]
    costs: Mapping[str, str] = field(default_factory=dict)


class Ladder(Table):
    """Rungs side by side, a row a promise, what they cost below."""

    def __init__(self, rungs: Sequence[Rung]) -> None:
        promises = dict.fromkeys(name for rung in rungs for name in rung.steps)
        costs = dict.fromkeys(name for rung in rungs for name in rung.costs)
        kept = [sum(bool(step.kept) for step in rung.steps.values()) for rung in rungs]
        names = [f"{rung.name} · {n}" for rung, n in zip(rungs, kept, strict=True)]
        rows = [[promise, *_cells([rung.steps.get(promise) for rung in rungs])] for promise in promises]
        rows += [[cost, *(rung.costs.get(cost, "") for rung in rungs)] for cost in costs]
        super().__init__(rows, [f"kept of {count(len(promises), 'promise')}", *names], rule=len(promises))
        self._rungs, self._promises = rungs, promises

    @property
    def reasons(self) -> str:
        """What was seen, a line for each ✗ and –: 'released comes back, leases: …'."""
        seen = [(promise, rung.name, rung.steps.get(promise)) for promise in self._promises for rung in self._rungs]
        return "\n".join(clean(f"{promise}, {name}: {step.seen}") for promise, name, step in seen if step and step.seen)

    def _reasons(self) -> list[str]:
        """They stand in `reasons`, or in the cell."""
        return []

    def _inside(self, cell: Cell) -> str:
        """A ✗ opens what was seen."""
        if cell.value != "✗" or not cell.why:
            return super()._inside(cell)
        # no triangle: there are many
        sign = f'<summary style="list-style:none;cursor:pointer">{cell.value}</summary>'
        return f"<details>{sign}{escape(cell.why)}</details>"


def _cells(steps: Sequence[Step | None]) -> list[Cell]:
    """A promise's row. It is newly kept where no rung to the left keeps it; the first rung has none to its left."""
    cells = []
    for place, step in enumerate(steps):
        if step is None:
            cells.append(Cell(""))
            continue
        new = bool(step.kept) and place > 0 and not any(left and left.kept for left in steps[:place])
        seen = f" {step.seen}" if step.seen and len(steps) == 1 else ""
        cells.append(Cell(step.sign + seen, step.seen, strong=new))
    return cells
