"""Boxes in columns, and straight lines between them: a group's members and its partitions; the map of virtual queues.

In:  `Member` and `Slot` values. Out: `group(members, slots, title="scores") -> Picture`. Its twin:

    scores · 3 members, 1 idle, 1 busy · 5 partitions · lag 12
    member  p0 (lag 3) · p1 (lag 9)
    member  p2 · p3, busy
    member  idle
    nobody  p4

A member without a partition says idle; one that is busy does not poll. Behind a partition its lag is a bar: what is in the log and
not yet committed. Members need no name: which of them has which partition is different on every run.

In:  the partition of each queue, the partitions of each node. Out: `owners(queues, nodes, title="games") -> Picture`. Its twin:

    games · 3 queues · 2 partitions · 2 nodes
    ARS-CHE  p0  node A
    LIV-MUN  p0  node A
    INT-MIL  p1  node B

A partition that no node has says nobody: its queues must wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kqlib.text import count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned, ends, named
from kqlib.workshop.view.svg import NORMAL, box, clock, fit, line, text, width

ROW, HIGH = 30, 22  # from one row to the next; a box
LEFT, BETWEEN = 130, 110  # how wide a member's box is, and the space for lines
NAMED = 74  # how wide a partition's box is, with a name like p0
BAR = 180  # the longest lag
SLOTS = EDGE + LEFT + BETWEEN  # where the partitions begin
SIDE, MIDDLE = 150, 70  # how wide a queue's or node's box is, and a partition's on the map
STYLE = (
    ".box{fill:currentColor;fill-opacity:.05;stroke:currentColor;stroke-opacity:.5}"
    ".idle{fill:none;stroke-dasharray:4 3}.lag{fill:currentColor;fill-opacity:.4}"
    ".hold{stroke:currentColor;stroke-opacity:.6;stroke-width:1.5}"
)


@dataclass(frozen=True)
class Member:
    """A member of a group and the names of its partitions. busy: it does not poll at the moment."""

    name: str = ""
    holds: Sequence[str] = ()
    busy: bool = False

    @property
    def words(self) -> str:
        """Its name, or what it is."""
        return named(self.name) or "member"


@dataclass(frozen=True)
class Slot:
    """A partition as a group sees it: its name and its lag; None if it was not asked for."""

    name: str
    lag: int | None = None


def group(members: Iterable[Member], slots: Iterable[Slot], title: str = "group") -> Picture:
    """The picture of a group: who has what, who has nothing, how far behind each partition is."""
    every, partitions = list(members), list(slots)
    left, notes = ends(every, "member")
    right, more = ends(partitions, "partition")
    held = {name for member in every for name in member.holds}
    lags = {slot.name: named(slot.name) + (f" (lag {slot.lag:,})" if slot.lag else "") for slot in partitions}
    rows = [(member.words, _held(member, lags)) for member in left]
    nobody = [slot.name for slot in right if slot.name not in held]
    rows += [("nobody", " · ".join(lags[name] for name in nobody))] if nobody else []

    canvas = Canvas(title, _counts(every, partitions))
    high = max(len(left), len(right))
    places = dict(zip([slot.name for slot in right], _middles(canvas, len(right), high), strict=True))
    for member, y in zip(left, _middles(canvas, len(left), high), strict=True):
        lines = (line(EDGE + LEFT, y, SLOTS, places[name], "hold") for name in member.holds if name in places)
        canvas.add(*lines)
        _draw_member(canvas, member, y)
    longest = max([slot.lag or 0 for slot in partitions], default=0)
    _draw_slots(canvas, right, places, nobody, longest)
    return _finished(canvas, high, rows, [*notes, *more])


def _counts(members: Sequence[Member], slots: Sequence[Slot]) -> str:
    """'3 members, 1 idle · 4 partitions · lag 12'."""
    idle, busy = sum(not member.holds for member in members), sum(member.busy for member in members)
    words = count(len(members), "member") + (f", {idle} idle" if idle else "") + (f", {busy} busy" if busy else "")
    lags = [slot.lag for slot in slots if slot.lag is not None]
    return f"{words} · {count(len(slots), 'partition')}" + (f" · lag {sum(lags):,}" if lags else "")


def _held(member: Member, lags: Mapping[str, str]) -> str:
    """What a member has, in words."""
    words = " · ".join(lags[name] for name in member.holds if name in lags) or "idle"
    return f"{words}, busy" if member.busy else words


def _draw_member(canvas: Canvas, member: Member, y: float) -> None:
    """A member, and what is special about it."""
    state = "busy" if member.busy else "" if member.holds else "idle"
    taken = width(state, NORMAL) + 22 if state else 0
    parts = [_box(EDGE, y, LEFT, member.words, idle=not member.holds, rx=6, taken=taken)]
    parts += [text(EDGE + LEFT - 8, y + 3.5, state, anchor="end")] if state else []
    parts += [clock(EDGE + LEFT - 44, y)] if member.busy else []
    canvas.add("".join(parts))


def _draw_slots(
    canvas: Canvas, slots: Sequence[Slot], places: Mapping[str, float], nobody: Sequence[str], longest: int
) -> None:
    """The partitions; behind each its lag as a bar, in proportion to the longest one."""
    right = SLOTS + max([NAMED, *(min(LEFT, width(named(slot.name), NORMAL, bold=True) + 16) for slot in slots)])
    number = width(f"{longest:,}", NORMAL)
    space = min(BAR, WIDE - EDGE - right - 12 - number)
    for slot in slots:
        y = places[slot.name]
        parts = [_box(SLOTS, y, right - SLOTS, slot.name)]
        if slot.lag:
            bar = max(2.0, slot.lag * (space / longest))
            parts += [box(right + 4, y - 6, bar, 12, "lag", rx=2), text(right + 10 + bar, y + 3.5, f"{slot.lag:,}")]
        canvas.add("".join(parts))
        if slot.name in nobody:
            canvas.add(text(SLOTS - 6, y + 3, "nobody", NORMAL, anchor="end"))
    canvas.right = max(canvas.right, right + (12 + space + number if longest else 0))


# --- the map of virtual queues -----------------------------------------------------------------------------------------


def owners(queues: Mapping[str, int], nodes: Mapping[str, Sequence[int]], title: str = "queues") -> Picture:
    """The picture of the way to a queue: its partition, by the key's hash, and that partition's node, by the map."""
    node_of = {part: named(node) for node, held in nodes.items() for part in held}
    partitions = sorted({*queues.values(), *node_of})
    counts = [count(len(queues), "queue"), count(len(partitions), "partition"), count(len(nodes), "node")]
    left, more_queues = ends([*queues.items()], "queue")
    middle, more_partitions = ends(partitions, "partition")
    right, more_nodes = ends([*nodes.items()], "node")
    high = max(len(left), len(middle), len(right))

    canvas = Canvas(title, " · ".join(counts), y=46.0)
    begin = [EDGE, EDGE + SIDE + BETWEEN, EDGE + SIDE + BETWEEN + MIDDLE + BETWEEN]
    heads = zip(begin, ("queue = key", "partition", "node"), strict=True)
    canvas.add(*(text(x, canvas.y - 10, word, kind="faint") for x, word in heads))
    for x, word in ((begin[0] + SIDE, "hash % partitions"), (begin[1] + MIDDLE, "the map")):
        canvas.add(text(x + BETWEEN / 2, canvas.y - 10, word, NORMAL, "faint", anchor="middle"))
    places = dict(zip(middle, _middles(canvas, len(middle), high), strict=True))
    lines, boxes = list[str](), list[str]()
    for (queue, part), y in zip(left, _middles(canvas, len(left), high), strict=True):
        lines += [line(begin[0] + SIDE, y, begin[1], places[part], "hold")] if part in places else []
        boxes.append(_box(begin[0], y, SIDE, queue, rx=5))
    boxes += [_box(begin[1], y, MIDDLE, f"p{part}", idle=part not in node_of, rx=5) for part, y in places.items()]
    for (node, held), y in zip(right, _middles(canvas, len(right), high), strict=True):
        lines += [line(begin[2], y, begin[1] + MIDDLE, places[part], "hold") for part in held if part in places]
        boxes.append(_box(begin[2], y, SIDE, node, idle=not held, rx=5))
    canvas.add(*lines, *boxes, right=begin[2] + SIDE)
    nobody = [y for part, y in places.items() if part not in node_of]
    canvas.add(*(text(begin[1] + MIDDLE + 6, y + 3, "nobody", NORMAL) for y in nobody))
    rows = [(named(queue), f"p{part}", node_of.get(part, "nobody")) for queue, part in left]
    return _finished(canvas, high, rows, [*more_queues, *more_partitions, *more_nodes])


# --- what both share ---------------------------------------------------------------------------------------------------


def _middles(canvas: Canvas, many: int, high: int) -> list[float]:
    """The middles of so many boxes in a column that is `high` rows high."""
    return [canvas.y + ROW * high * (at + 0.5) / many for at in range(many)]


def _box(x: float, y: float, wide: float, words: str, *, idle: bool = False, rx: int = 4, taken: float = 0) -> str:
    """A box around a middle, and its name; `taken` pixels of it are for other words."""
    name = fit(named(words), NORMAL, wide - 16 - taken, bold=True)
    frame = box(x, y - HIGH / 2, wide, HIGH, "box idle" if idle else "box", rx=rx)
    return frame + text(x + 8, y + 3.5, name, kind="bold")


def _finished(canvas: Canvas, high: int, rows: Iterable[Sequence[str]], notes: Sequence[str]) -> Picture:
    """The picture, with what was left out below its boxes."""
    canvas.y += ROW * max(high, 1)
    canvas.add(*(text(EDGE, canvas.y + 12 + 16 * at, words, kind="faint") for at, words in enumerate(notes)))
    canvas.y += 16 * len(notes) + EDGE - 2
    return canvas.picture([*aligned(rows), *notes], STYLE)
