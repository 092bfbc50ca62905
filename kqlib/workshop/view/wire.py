"""Requests in their order, as a sequence: clients on the left, brokers on the right, an arrow for each request.

In:  requests as `Cluster.wire.seen()` has them. Out: `wire(requests, title="one item") -> Picture`. Its twin:

    one item · 2 clients, 3 requests
    worker 1 → 1  Produce 1       results/0 ×1, acks=all
    worker 1 ✕ 1  OffsetCommit 1  games/0 = 1             killed before
    worker 2 → 1  OffsetFetch 1   games/0 = 0

✕ is a request to which something happened on the wire; a red word is the error code of its answer. Polls are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kqlib.text import count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned, ends
from kqlib.workshop.view.svg import NORMAL, RED, box, cross, fit, line, number, red, tag, text, width

HIGH, HEAD = 26, 24  # a row, and the names above the first
LONGEST = 250  # of the words at an arrow's end
GAP = 90  # between two clients, or two brokers
STYLE = (
    ".life{stroke:currentColor;stroke-opacity:.3;stroke-dasharray:2 3}.arrow{stroke:currentColor;stroke-width:1.2}"
    ".tip{fill:currentColor}.name{fill:currentColor;fill-opacity:.07}"
)


@dataclass(frozen=True)
class Arrow:
    """A request between two named ends."""

    client: str
    broker: str
    call: str
    what: str
    error: str
    accident: str

    @property
    def sign(self) -> str:
        """An arrow, or a cross if something happened to it."""
        return "✕" if self.accident else "→"

    @property
    def end(self) -> str:
        """How it ended, if not well."""
        return ", ".join(filter(None, (self.error, self.accident)))


def wire(requests: Iterable[Any], title: str = "wire", polls: bool = False) -> Picture:
    """The picture of requests in their order. polls: with polls and heartbeats, whose number differs from run to run."""
    arrows = _arrows([each for each in requests if polls or not each.poll])
    clients = list(dict.fromkeys(each.client for each in arrows))
    brokers = sorted({each.broker for each in arrows}, key=lambda name: (len(name), name))
    canvas = Canvas(title, f"{count(len(clients), 'client')}, {count(len(arrows), 'request')}", y=30)
    drawn, hidden = ends(arrows, "request")
    middle = len(drawn) // 2 if hidden else len(drawn)
    _draw(canvas, clients, brokers, [*drawn[:middle], *hidden, *drawn[middle:]])
    rows = [(f"{each.client} {each.sign} {each.broker}", each.call, each.what, each.end) for each in drawn]
    lines = aligned(rows) if rows else ["(no requests)"]
    return canvas.picture([*lines[:middle], *hidden, *lines[middle:]], STYLE)


def _arrows(requests: Sequence[Any]) -> list[Arrow]:
    """Requests between named ends: two processes with one client id get a number each."""
    processes: dict[str, list[int | None]] = {}
    for each in requests:
        mine = processes.setdefault(each.client, [])
        if each.pid not in mine:
            mine.append(each.pid)
    arrows = []
    for each in requests:
        mine = processes[each.client]
        name = f"{each.client} {mine.index(each.pid) + 1}" if len(mine) > 1 else each.client
        arrows.append(Arrow(name, str(each.broker), f"{each.api} {each.nth}", each.what, each.error, each.accident))
    return arrows


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(canvas: Canvas, clients: Sequence[str], brokers: Sequence[str], rows: Sequence[Arrow | str]) -> None:
    """The ends with their lifelines, then a row for each request, and words for those that are left out."""
    names = [*clients, *(f"broker {name}" for name in brokers)]
    inside = WIDE - 2 * EDGE - 60
    gap = min(GAP, inside * 0.5 / max(1, len(names) - 2))
    places = {}
    for at, name in enumerate(clients):
        places[name] = EDGE + 40 + at * gap
    for at, name in enumerate(reversed(brokers)):
        places[f"broker {name}"] = WIDE - EDGE - 40 - at * gap
    low = canvas.y + HEAD + HIGH * len(rows) + 6
    for name in names:
        x = places[name]
        words = fit(name, NORMAL, gap - 8)
        canvas.add(line(x, canvas.y + HEAD - 4, x, low, "life"))
        canvas.add(box(x - 40, canvas.y, 80, 18, "name"), text(x, canvas.y + 13, words, anchor="middle"), right=x + 40)
    y = canvas.y + HEAD
    for each in rows:
        if isinstance(each, str):
            canvas.add(text(WIDE / 2, y + HIGH / 2 + 4, each, kind="faint", anchor="middle"))
        else:
            _row(canvas, each, places[each.client], places[f"broker {each.broker}"], y + HIGH - 6)
        y += HIGH
    canvas.y = low + 4


def _row(canvas: Canvas, arrow: Arrow, start: float, end: float, y: float) -> None:
    """One request: an arrow with its name above. One that did not arrive ends at a cross; so does one whose answer did not."""
    stops = "before" in arrow.accident or arrow.accident.startswith("request")
    ending = fit(arrow.end, NORMAL, LONGEST, bold=True)
    taken = width(ending, NORMAL, bold=True)
    tip = min(start + (end - start) * 0.75, max(start + 8, end - taken - 20)) if stops else end
    canvas.add(line(start, y, tip - (0 if stops else 5), y, "arrow"))
    if stops:
        canvas.add(red(cross(tip, y, 4)))
    else:
        canvas.add(tag("path", d=f"M{number(end)} {number(y)}l-6 -3v6z", class_="tip"))
    if arrow.accident and not stops:
        canvas.add(red(cross(start, y, 4)))
    canvas.add(
        text(
            start + 8, y - 4, fit(" · ".join(filter(None, (arrow.call, arrow.what))), NORMAL, end - start - taken - 26)
        )
    )
    if ending:
        canvas.add(tag("g", text(end - 8, y - 4, ending, NORMAL, "bold", anchor="end"), style=f"color:{RED}"))
