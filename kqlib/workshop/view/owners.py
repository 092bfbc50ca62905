"""The map of virtual queues: a queue is a key, its hash names a partition, and the map names the node that has it.

In:  which partition each queue lies in, which partitions each node has.
Out: `owners(queues, nodes, title="games") -> Picture`. Its twin:

    games · 3 queues · 2 partitions · 2 nodes
    ARS-CHE  p0  node A
    LIV-MUN  p0  node A
    INT-MIL  p1  node B

A partition that no node has says nobody: its queues must wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kqlib.text import clean, count, cut
from kqlib.workshop.view.group import HIGH, ROW, STYLE, _ends, _left_out
from kqlib.workshop.view.picture import (
    BIG,
    EDGE,
    NORMAL,
    SMALL,
    WIDE,
    Picture,
    fit,
    headline,
    headline_width,
    pad,
    sheet,
    tag,
    text,
)

LONGEST_TITLE, LONGEST_NAME = 100, 60
HEADS, TOP = 36, 46  # the columns' names, and what stands below them
SIDE, MIDDLE, GAP = 150, 70, 110  # how wide a queue's or node's box is, a partition's, and the room for lines
COLUMNS = [EDGE, EDGE + SIDE + GAP, EDGE + SIDE + GAP + MIDDLE + GAP]  # where the three begin


def owners(queues: Mapping[str, int], nodes: Mapping[str, Sequence[int]], title: str = "queues") -> Picture:
    """The picture of the way to a queue: its partition, by the key's hash, and that partition's node, by the map."""
    parts = sorted({*queues.values(), *(part for held in nodes.values() for part in held)})
    who = {part: _name(node) for node, held in nodes.items() for part in held}
    title = cut(clean(title), LONGEST_TITLE)
    rest = f"{count(len(queues), 'queue')} · {count(len(parts), 'partition')} · {count(len(nodes), 'node')}"
    shown, more = _ends([*queues.items()]), _left_out([*queues], "queue")
    rows = [(_name(queue), f"p{part}", who.get(part, "nobody")) for queue, part in shown]
    wide = [max((len(row[at]) for row in rows), default=0) for at in range(3)]
    lines = ["  ".join(pad(word, size) for word, size in zip(row, wide, strict=True)).rstrip() for row in rows]
    twin = "\n".join([f"{title} · {rest}", *lines, *([more] if more else [])])
    return Picture(_draw(shown, parts, nodes, more, (title, rest)), twin, f"{title} · {rest}")


def _name(words: str) -> str:
    """A queue's or node's name on one line."""
    return cut(clean(words), LONGEST_NAME)


def _draw(
    queues: Sequence[tuple[str, int]],
    parts: Sequence[int],
    nodes: Mapping[str, Sequence[int]],
    more: str,
    said: tuple[str, str],
) -> str:
    """The SVG: three columns of boxes, lines between them."""
    drawn, servers, held = _ends(parts), _ends([*nodes]), {part for node in nodes.values() for part in node}
    high = ROW * max(len(queues), len(drawn), len(servers), 1)
    left, right = _rows(len(queues), high), _rows(len(servers), high)
    places = dict(zip(drawn, _rows(len(drawn), high), strict=True))
    name = fit(said[0], BIG, WIDE - 2 * EDGE - headline_width("", said[1]), bold=True)
    out = [headline(name, said[1]), *_heads()]
    for (_, part), y in zip(queues, left, strict=True):
        out += _line(COLUMNS[0] + SIDE, y, COLUMNS[1], places.get(part))
    for node, y in zip(servers, right, strict=True):
        for part in nodes[node]:
            out += _line(COLUMNS[2], y, COLUMNS[1] + MIDDLE, places.get(part))
    out += [_box(COLUMNS[0], y, SIDE, queue) for (queue, _), y in zip(queues, left, strict=True)]
    out += [_box(COLUMNS[1], y, MIDDLE, f"p{part}", idle=part not in held) for part, y in places.items()]
    out += [_box(COLUMNS[2], y, SIDE, node, idle=not nodes[node]) for node, y in zip(servers, right, strict=True)]
    out += [text(COLUMNS[1] + MIDDLE + 6, y + 3, "nobody", SMALL) for part, y in places.items() if part not in held]
    notes = [words for words in (more, _left_out(parts, "partition"), _left_out([*nodes], "node")) if words]
    out += [text(EDGE, TOP + high + 12 + 16 * at, words, kind="faint") for at, words in enumerate(notes)]
    full = max(COLUMNS[2] + SIDE, EDGE + headline_width(name, said[1])) + EDGE
    return sheet(full, TOP + high + 16 * len(notes) + EDGE, " · ".join(said), out, STYLE)


def _rows(many: int, high: float) -> list[float]:
    """The middles of so many boxes that share a height."""
    return [TOP + high * (at + 0.5) / many for at in range(many)]


def _heads() -> list[str]:
    """What the columns are, and what leads from one to the next."""
    words = ("queue = key", "partition", "node")
    steps = ((COLUMNS[0] + SIDE, "murmur2 % partitions"), (COLUMNS[1] + MIDDLE, "the map"))
    return [
        *(text(x, HEADS, word, kind="faint") for x, word in zip(COLUMNS, words, strict=True)),
        *(text(x + GAP / 2, HEADS, word, SMALL, "faint", anchor="middle") for x, word in steps),
    ]


def _line(x: float, y: float, to: float, place: float | None) -> list[str]:
    """From a box to a partition, if that is drawn."""
    return [] if place is None else [tag("line", x1=x, y1=y, x2=to, y2=place, class_="hold")]


def _box(x: float, y: float, wide: float, words: str, idle: bool = False) -> str:
    """A box and its name."""
    box = tag("rect", x=x, y=y - HIGH / 2, width=wide, height=HIGH, rx=5, class_="box idle" if idle else "box")
    return box + text(x + 8, y + 3.5, fit(_name(words), NORMAL, wide - 16, bold=True), kind="bold")
