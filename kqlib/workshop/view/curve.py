"""A curve: how numbers go, step by step (standings by round, lag by what happened).

In:  for each line its name and its numbers, one a step; what a step is; what happened at which step, in a word.
Out: `curve({"ARS": [3, 4], "CHE": [0, 3]}) -> Picture`. Its twin:

    points after each round · 2 lines, 4 rounds
    round  1  2  3  4
    ARS    3  4  7  7
    CHE    0  3  4  7
    round 3: cup final

The first line is the one that the picture is about: it is thick and blue. The others are grey, and four of them differ
by their dashes. Each has its name at its end, behind a sample of its line.
Of more than twelve steps the twin gives the numbers at the ticks. It is not drawn by matplotlib: so it has few bytes, the same on
every machine, and it turns dark with its page.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from kqlib.text import clean, count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned
from kqlib.workshop.view.svg import AMBER, BLUE, NORMAL, fit, line, number, tag, text, width

NAME = 120  # pixels of a line's name
TOP, HIGH, FOOT = 44, 150, 34  # what is above the curves, their height, what is below
NUMBERS = 12  # of more steps the twin says some
APART = 11.0  # between two names at the right
LOWEST = TOP + HIGH + FOOT - 8.0  # the last of them
SAMPLE = 16  # of a line, before its name
DASHES = "8 3 2 3", None, "2 3", "8 3"  # of the grey lines
STYLE = (
    ".grid{stroke:currentColor;stroke-opacity:.15}.curve{fill:none;stroke:currentColor;stroke-opacity:.55;stroke-width:1.5}"
    f".first{{stroke:{BLUE};stroke-opacity:1;stroke-width:2.5}}.event{{stroke:{AMBER};stroke-width:2}}"
)


def curve(
    lines: Mapping[str, Sequence[float]],
    title: str = "curve",
    *,
    step: str = "step",
    events: Mapping[int, str] | None = None,
) -> Picture:
    """The picture of these lines. step: what one is called, counted from 1; events: a word at a step."""
    plot = _Plot({clean(name): list(values) for name, values in lines.items()})
    happened = [(at, clean(word)) for at, word in sorted((events or {}).items()) if 1 <= at <= plot.steps]
    canvas = Canvas(title, f"{count(len(lines), 'line')}, {count(plot.steps, clean(step))}")
    _draw_scale(canvas, plot, step)
    _draw_events(canvas, plot, happened)
    for at, values in reversed([*enumerate(plot.lines.values())]):  # the first one on top
        points = " ".join(f"{number(plot.x(n))},{number(plot.y(value))}" for n, value in enumerate(values, 1))
        canvas.add(tag("polyline", points=points, **_style(at)))
    _draw_names(canvas, plot)
    canvas.right, canvas.y = WIDE, TOP + HIGH + FOOT - 2

    rows = [[step, *map(str, plot.ticks)]]
    for name, values in plot.lines.items():
        rows.append([name, *(_in_words(values[at - 1]) if at <= len(values) else "" for at in plot.ticks)])
    twin = aligned(rows, right=range(1, len(rows[0])))
    return canvas.picture([*twin, *(f"{clean(step)} {at}: {word}" for at, word in happened)], STYLE)


class _Plot:
    """The lines, their scale, and where numbers are in the picture."""

    def __init__(self, lines: Mapping[str, Sequence[float]]) -> None:
        self.lines = lines
        self.steps = max(map(len, lines.values()), default=0)
        self.ticks = _ticks(self.steps)
        self.scale = _scale([value for values in lines.values() for value in values])
        names = max((min(NAME, width(name, NORMAL, bold=True)) for name in lines), default=0)
        self.left = EDGE + max(width(_in_words(value), NORMAL) for value in self.scale) + 6
        self.right = WIDE - EDGE - names - SAMPLE - 12

    def x(self, step: int) -> float:
        """A step's place."""
        return self.left + (self.right - self.left) * (step - 1) / max(1, self.steps - 1)

    def y(self, value: float) -> float:
        """A number's height."""
        return TOP + HIGH - HIGH * (value - self.scale[0]) / (self.scale[-1] - self.scale[0])


def _style(at: int) -> dict[str, str | None]:
    """How a line looks: the first one is thick, the others have dashes of their own."""
    return {"class_": "curve", "stroke_dasharray": DASHES[at % len(DASHES)]} if at else {"class_": "curve first"}


def _scale(values: Sequence[float]) -> list[float]:
    """The ticks of the upright axis, from the lowest up, in round numbers (1, 2 or 5, and zeros); 0 is among them."""
    low, high = min([0, *values]), max([0, *values])
    pace = _round((high - low) / 4)
    return [float(at * pace) for at in range(math.floor(low / pace), max(math.ceil(high / pace), 1) + 1)]


def _ticks(steps: int) -> list[int]:
    """The steps with a number below: a dozen at most, the first and the last one always."""
    pace = _round(steps / NUMBERS)
    inner = [at for at in range(pace, steps, pace) if at > 1 and steps - at >= pace / 2]
    return list(dict.fromkeys([1, *inner, steps])) if steps else []


def _round(least: float) -> int:
    """The first of 1, 2, 5, 10, 20, 50, … that is not smaller."""
    return next(each * 10**zeros for zeros in itertools.count() for each in (1, 2, 5) if each * 10**zeros >= least)


def _in_words(value: float) -> str:
    """A number without a needless point."""
    return f"{value:,.1f}".removesuffix(".0")


def _draw_scale(canvas: Canvas, plot: _Plot, step: str) -> None:
    """A thin line for each tick of the scale, numbers at the left and below."""
    for value in plot.scale:
        y = plot.y(value)
        canvas.add(line(plot.left, y, plot.right, y, "grid"))
        canvas.add(text(plot.left - 5, y + 3, _in_words(value), NORMAL, anchor="end"))
    for at in plot.ticks:
        canvas.add(text(plot.x(at), TOP + HIGH + 13, str(at), NORMAL, anchor="middle"))
    canvas.add(text(plot.left, TOP + HIGH + 26, step, kind="faint"))


def _draw_events(canvas: Canvas, plot: _Plot, happened: Sequence[tuple[int, str]]) -> None:
    """An upright bar and its word for each; a word that would touch the one before moves to the right."""
    free = 0.0
    for step, word in happened:
        x, wide = plot.x(step), width(word, NORMAL)
        place = max(min(max(x - wide / 2, plot.left), WIDE - EDGE - wide), free)
        canvas.add(line(x, TOP - 4, x, TOP + HIGH, "event"))
        canvas.add(text(place, TOP - 9, fit(word, NORMAL, WIDE - EDGE - place)))
        free = place + wide + 8


def _draw_names(canvas: Canvas, plot: _Plot) -> None:
    """Each line's name where it ends, moved apart where two end side by side."""
    ends = sorted((plot.y(values[-1]), at, name) for at, (name, values) in enumerate(plot.lines.items()) if values)
    for place, (_, at, name) in zip(_apart([y for y, _, _ in ends]), ends, strict=True):
        x = plot.x(len(plot.lines[name])) + 6
        kind = "" if at else "bold"
        canvas.add(tag("path", d=f"M{number(x)} {number(place)}h{SAMPLE}", **_style(at)))
        x += SAMPLE + 4
        canvas.add(text(x, place + 3.5, fit(name, NORMAL, WIDE - EDGE - x, bold=not at), kind=kind))


def _apart(heights: Sequence[float]) -> list[float]:
    """Places for names that should be at these heights, from the top down: a name moves down, and up again at the foot."""
    down = list(itertools.accumulate(heights, lambda above, y: max(y, above + APART)))
    limits = (LOWEST - APART * below for below in range(len(down)))
    return [min(place, limit) for place, limit in zip(reversed(down), limits, strict=True)][::-1]
