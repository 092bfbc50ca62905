"""Figures that differ on every run, written so that a stored output is the same on every run: as ratios within bands.

In:  ways to do the same work, or figures of them. Out: `in_turn(ways)`: the least seconds of each, by the clock or of CPU;
`ratios(…)`: a `Ratios`, which prints the band of each ratio. JupyterLab also shows the figures of this run, and which ratio is
outside of its band. They are not stored.

A band is (low, high) with high at most 4 × low, (low, None) for 'at least', or (None, high) for 'at most'. A ratio outside of its
band is printed as it is: then the stored output is wrong, and the comparison finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.workshop.view.bands import Band, bands
from kqlib.workshop.view.svg import escape

VIEW = "application/vnd.jupyter.widget-view+json"
WIDEST = 4.0  # a wider band says too little
QUICKER = 0.95  # of the least seconds so far: what counts as quicker
Ends = tuple[float | None, float | None]


def in_turn(
    ways: Mapping[str, Callable[[], object]],
    calm: int = 2,
    most: int = 6,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The least seconds of each way. The ways run in turn, so that another program on the machine disturbs all of them alike.

    It ends when no way has become quicker for `calm` rounds, after `most` rounds at the latest. A way that returns a float has
    measured itself. clock: `time.process_time` counts the CPU of all threads of this process, and not the time that they wait.
    """
    least: dict[str, float] = {}
    quiet = 0
    for _ in range(most):
        quiet += 1
        for name, way in ways.items():
            start = clock()
            own = way()
            seconds = own if isinstance(own, float) else clock() - start
            if seconds < QUICKER * least.get(name, float("inf")):
                quiet = 0
            least[name] = min(least.get(name, seconds), seconds)
        if quiet == calm:
            break
    return least


def ratios(title: str, figures: Mapping[str, float], expected: Mapping[str, Ends], unit: str = "s") -> Ratios:
    """How many times the first figure each other one is. expected: a band for each.

    unit: of the figures, for the live view. Without a unit it shows the ratios alone.
    """
    first, *others = figures
    if set(expected) != set(others):
        raise NotAllowed(f"a band for each of {', '.join(others)}, and for nothing else")
    if not figures[first]:
        raise NotAllowed(f"the figure of '{first}' is 0, and no other one can be compared with it")
    rows = []
    for name in others:
        ratio = figures[name] / figures[first]
        figure = f"{_short(ratio)} ×" + (f" · {_short(figures[name])} {unit}" if unit else "")
        rows.append(Band(name, *expected[name], within(ratio, expected[name]), ratio, figure))
    base = f"{first}, {_short(figures[first])} {unit}" if unit else first
    return Ratios(f"{title}, compared with '{first}'", rows, base)


def within(ratio: float, ends: Ends) -> str:
    """The band in words if the ratio is in it, else the ratio."""
    low, high = ends
    if (low is None and high is None) or (low and high and high > WIDEST * low):
        raise NotAllowed(f"a band's ends are at most 1 : {WIDEST:.0f} apart, or one of them is None, not {ends}")
    if high is None:
        words = f"at least {_times(low)}"
    elif low is None:
        words = f"at most {_times(high)}"
    else:
        words = f"between {_times(low).removesuffix(' ×')} and {_times(high)}"
    return words if (low or 0) <= ratio <= (high or float("inf")) else f"{_short(ratio)} ×, not {words}"


def _times(end: float | None) -> str:
    """'1/4' or '20 ×'."""
    assert end
    return f"1/{round(1 / end)}" if end < 1 and abs(1 / end - round(1 / end)) < 0.01 else f"{end:g} ×"


def _short(figure: float) -> str:
    """A figure with two or three digits."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


class Ratios:
    """Ratios in their bands: the same on every run, but for JupyterLab's live view."""

    def __init__(self, title: str, rows: list[Band], first: str) -> None:
        self.rows, self.first = rows, first
        stored = [Band(row.name, row.low, row.high, row.words) for row in rows]
        self.picture, self._live = bands(stored, title), bands(rows, title)

    def __getitem__(self, name: str) -> str:
        """A way's band in words."""
        return next(row.words for row in self.rows if row.name == name)

    @property
    def outside(self) -> list[str]:
        """A line for each ratio that is not in its band."""
        return [f"outside: {row.name}, {row.words}" for row in self.rows if ", not " in row.words]

    def __repr__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The bands for everybody; where widgets are known, with the figures of this run."""
        import ipywidgets as widgets

        shown = self._live._repr_mimebundle_()["text/html"]
        lines = [shown, escape(f"1 × in this run: {self.first}"), *map(escape, self.outside)]
        view = widgets.HTML(f'<div style="line-height:normal">{"<br>".join(lines)}</div>')
        return {**self.picture._repr_mimebundle_(), VIEW: view._repr_mimebundle_()[VIEW]}
