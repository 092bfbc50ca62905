"""The ladder: which version of a queue keeps which promise, and what it costs.

In:  `Rung`s: a name, a `Step` a promise (kept, of how many trials, what was seen), what it costs in words.
Out: `Ladder`: an HTML table in a notebook, and as text:

    kept of 2 promises   auto-commit · 1  leases · 2
    first in, first out  ✓ 10             ✓ 10
    released comes back  ✗                *✓ 3*
    costs                0 commits        1 commit

✓ of so many trials, ✗ broken, – not offered. Bold (between asterisks) is what a rung newly keeps: no rung to its left does.
What was seen stands behind each ✗: a click opens it, and `reasons` has all of it. A ladder of one rung says it in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kqlib.text import clean, count
from kqlib.workshop.view.picture import columns, escape, pad
from kqlib.workshop.view.table import PADDING, RULE

BEHIND = "list-style:none;cursor:pointer"  # no triangle: there are many
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


@dataclass(frozen=True, repr=False)
class Ladder:
    """Rungs side by side, a row a promise."""

    rungs: Sequence[Rung]

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook stores."""
        return {"text/plain": self.text, "text/html": self.html}

    @property
    def promises(self) -> list[str]:
        """Its rows."""
        return list(dict.fromkeys(name for rung in self.rungs for name in rung.steps))

    @property
    def costs(self) -> list[str]:
        """The rows below."""
        return list(dict.fromkeys(name for rung in self.rungs for name in rung.costs))

    @property
    def reasons(self) -> str:
        """What was seen, a line for each ✗ and –: 'released comes back, leases: …'."""
        return "\n".join(
            clean(f"{promise}, {rung.name}: {step.seen}")
            for promise in self.promises
            for rung in self.rungs
            if (step := rung.steps.get(promise)) and step.seen
        )

    @property
    def text(self) -> str:
        """The ladder in words."""
        lines = [[clean(cell) for cell in line] for line in self._lines()]
        wide = [max(map(columns, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(pad, line, wide)).rstrip() for line in lines)

    @property
    def html(self) -> str:
        """The ladder for a notebook, a row a line."""
        side = f"text-align:left;{PADDING};vertical-align:top"
        head = "".join(f'<th style="{side};border-bottom:{RULE}">{escape(name)}</th>' for name in self._head())
        body = [self._row(promise, side) for promise in self.promises]
        for at, cost in enumerate(self.costs):
            edge = f"{side};border-top:{RULE}" if at == 0 else side
            cells = "".join(f'<td style="{edge}">{escape(each)}</td>' for each in [cost, *self._cost(cost)])
            body.append(f"<tr>{cells}</tr>")
        start = '<table style="border-collapse:collapse;margin:0;max-width:640px">'
        return "\n".join([start, f"<thead><tr>{head}</tr></thead>", "<tbody>", *body, "</tbody>", "</table>"])

    def _head(self) -> list[str]:
        """What is counted, then each rung's name and how many it keeps."""
        kept = [sum(bool(step.kept) for step in rung.steps.values()) for rung in self.rungs]
        names = [f"{rung.name} · {number}" for rung, number in zip(self.rungs, kept, strict=True)]
        return [f"kept of {count(len(self.promises), 'promise')}", *names]

    def _lines(self) -> Iterator[list[str]]:
        """The cells of the twin."""
        yield self._head()
        for promise in self.promises:
            yield [promise, *(self._word(step, new) for step, new in self._steps(promise))]
        for cost in self.costs:
            yield [cost, *self._cost(cost)]

    def _word(self, step: Step | None, new: bool) -> str:
        """A step in the twin; what was seen stands there if this is the only rung."""
        if step is None:
            return ""
        seen = f" {step.seen}" if step.seen and len(self.rungs) == 1 else ""
        return f"*{step.sign}*" if new else step.sign + seen

    def _cost(self, cost: str) -> list[str]:
        return [rung.costs.get(cost, "") for rung in self.rungs]

    def _steps(self, promise: str) -> Iterator[tuple[Step | None, bool]]:
        """Each rung's step, and whether this promise is newly kept there: by no rung to the left; the first has no left."""
        before = False
        for place, rung in enumerate(self.rungs):
            step = rung.steps.get(promise)
            kept = bool(step and step.kept)
            yield step, kept and place > 0 and not before
            before = before or kept

    def _row(self, promise: str, side: str) -> str:
        """A promise as a row of HTML; what was seen opens under its sign."""
        cells = [f'<td style="{side}">{escape(promise)}</td>']
        for step, new in self._steps(promise):
            style = f"{side};font-weight:600" if new else side
            seen = escape(step.seen) if step else ""
            title = f' title="{seen}"' if seen else ""
            cells.append(f'<td style="{style}"{title}>{self._sign(step, seen)}</td>')
        return f"<tr>{''.join(cells)}</tr>"

    def _sign(self, step: Step | None, seen: str) -> str:
        """A sign in HTML: with what was seen beside it if there is room, else behind it."""
        if step is None or not seen:
            return step.sign if step else ""
        if len(self.rungs) == 1:
            return f"{step.sign} {seen}"
        return (
            f'<details><summary style="{BEHIND}">{step.sign}</summary>{seen}</details>'
            if step.kept is False
            else step.sign
        )
