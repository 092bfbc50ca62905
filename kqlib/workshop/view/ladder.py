"""The ladder: which version of a queue keeps which promise, and what it costs.

In:  for each rung and promise whether it is kept, in how many trials, what was seen; what each rung costs, in words.
Out: `Ladder(rungs, costs)`: a table, and as text:

    kept of 2 promises   auto-commit · 1  leases · 2
    first in, first out  ✓ 10             ✓ 10
    released comes back  ✗                *✓ 3*
    costs                0 commits        1 commit

✓ of so many trials, ✗ broken, – not offered. Bold (between asterisks) is what a rung newly keeps: no rung to its left does.
What was seen stands behind each ✗: a click opens it, and `reasons` has all of it. A ladder of one rung shows it in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kqlib.text import clean, count
from kqlib.workshop.view.svg import escape
from kqlib.workshop.view.table import Cell, Table

SIGNS = {True: "✓", False: "✗", None: "–"}


class Kept(Protocol):
    """How one rung keeps one promise: kept True (`trials` times), False (`seen` says what happened), None: not offered."""

    @property
    def kept(self) -> bool | None: ...
    @property
    def trials(self) -> int: ...
    @property
    def seen(self) -> str: ...


class Ladder(Table):
    """Rungs side by side, a row a promise, what they cost below."""

    def __init__(self, rungs: Mapping[str, Mapping[str, Kept]], costs: Mapping[str, Mapping[str, str]] = {}) -> None:
        promises = list(dict.fromkeys(promise for steps in rungs.values() for promise in steps))
        words = dict.fromkeys(word for name in rungs for word in costs.get(name, {}))
        names = [f"{name} · {sum(bool(step.kept) for step in steps.values())}" for name, steps in rungs.items()]
        rows = [[promise, *_cells([steps.get(promise) for steps in rungs.values()])] for promise in promises]
        rows += [[word, *(costs.get(name, {}).get(word, "") for name in rungs)] for word in words]
        super().__init__(rows, [f"kept of {count(len(promises), 'promise')}", *names], rule=len(promises))
        self.verdicts, self.costs, self.promises = rungs, costs, promises

    @property
    def reasons(self) -> str:
        """What was seen, a line for each ✗ and –: 'released comes back, leases: …'."""
        rungs = self.verdicts.items()
        seen = [(promise, name, steps.get(promise)) for promise in self.promises for name, steps in rungs]
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


def _cells(steps: Sequence[Kept | None]) -> list[Cell]:
    """A promise's row. It is newly kept where no rung to the left keeps it; the first rung has none to its left."""
    cells = []
    for place, step in enumerate(steps):
        if step is None:
            cells.append(Cell(""))
            continue
        new = bool(step.kept) and place > 0 and not any(left and left.kept for left in steps[:place])
        seen = f" {step.seen}" if step.seen and len(steps) == 1 else ""
        sign = f"✓ {step.trials}" if step.kept and step.trials else SIGNS[step.kept]
        cells.append(Cell(sign + seen, step.seen, strong=new))
    return cells
