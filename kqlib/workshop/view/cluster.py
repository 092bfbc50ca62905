"""The cluster: a broker is a box, a replica is a small lane in it.

In:  `Broker` and `Partition` values. A broker that is missing from the list is dead: Kafka leaves out one that is down.
Out: `cluster(brokers, partitions, title="football") -> Picture`. Its twin:

    football · 3 brokers, 1 dead · 2 partitions, 1 without a leader
    broker 1 ◆  ★p0=10 epoch 3 · p1=7 out of ISR
    broker 2    p0=10
    broker 3 ✕  p0=4 out of ISR · p1=9
    no leader, so nobody can write or read: p1

The leader has a star and a solid top edge. A replica out of ISR is faded and says so. A dead broker is a dashed box with ✕, and
the controller has ◆. A note such as 'paused' is beside a broker's name. `=10` is the replica's end: the offset that its next record
will get.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kqlib.text import clean, count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Draw, Picture, aligned, ends, sign_item, words_item
from kqlib.workshop.view.svg import AMBER, BIG, NORMAL, box, cross, fit, line, number, red, tag, text, width

MOST_NAMES = 8  # partitions without a leader that are named
GAP, HEAD = 8, 28  # between boxes, and around replicas; a box's first line
LOW, HIGH = 20, 30  # a replica without and with words
WIDEST = 260  # one broker alone does not fill the page
STYLE = (
    ".broker{fill:currentColor;fill-opacity:.04;stroke:currentColor;stroke-opacity:.45}"
    ".down{fill:none;stroke-opacity:.7;stroke-dasharray:5 4}"
    ".replica{fill:none;stroke:currentColor;stroke-opacity:.45}.has{fill:currentColor;fill-opacity:.13}"
    ".out{opacity:.7}.out .replica{stroke-dasharray:2 2;stroke-opacity:.8}"
    ".edge{stroke:currentColor;stroke-width:3;stroke-linecap:round}"
    f".committed{{stroke:{AMBER};stroke-width:3}}"
)


@dataclass(frozen=True)
class Broker:
    """A broker as the cluster sees it. note: a word beside its name, like 'paused'."""

    id: int
    alive: bool = True
    controller: bool = False
    note: str = ""

    @property
    def signs(self) -> str:
        """What follows its name in the twin."""
        return f"{'' if self.alive else ' ✕'}{' ◆' if self.controller else ''}{self.note and f' {self.note}'}"


@dataclass(frozen=True)
class Partition:
    """A partition: who leads, who has a copy, who is in sync. `ends`: broker -> offset of its copy's next record.

    committed: the leader's high watermark.
    """

    topic: str
    number: int
    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    epoch: int | None = None
    ends: Mapping[int, int] | None = None
    committed: int | None = None

    def __post_init__(self) -> None:
        if self.leader is not None and self.leader < 0:  # how Kafka says that there is none
            object.__setattr__(self, "leader", None)


@dataclass(frozen=True)
class _Replica:
    """One copy of a partition as it is drawn: how much of the longest copy it has, and where that is committed, 0 to 1."""

    name: str
    leads: bool
    in_sync: bool
    note: str
    end: str
    full: float
    committed: float

    @classmethod
    def of(cls, partition: Partition, name: str, broker: int) -> _Replica:
        """This broker's copy. Its note is 'epoch 3' for the leader's, 'out of ISR', or nothing."""
        ends = partition.ends or {}
        leads, in_sync, end = broker == partition.leader, broker in partition.isr, ends.get(broker)
        words = [f"epoch {partition.epoch}"] if leads and partition.epoch is not None else []
        words += [f"committed {partition.committed}"] if leads and partition.committed is not None else []
        words += [] if in_sync else ["out of ISR"]
        longest = max(ends.values(), default=0)
        full = end / longest if end else 0.0
        committed = min(full, (partition.committed or 0) / longest) if longest and in_sync else 0.0
        return cls(name, leads, in_sync, ", ".join(words), "" if end is None else str(end), full, committed)

    @property
    def words(self) -> str:
        """'★p0=10 epoch 3'."""
        end = f"={self.end}" if self.end else ""
        star, note = "★" if self.leads else "", f" {self.note}" if self.note else ""
        return f"{star}{self.name}{end}{note}"

    @property
    def reserved(self) -> float:
        """How many pixels of its first line are not for its name."""
        return 12 + 14 * self.leads + (width(self.end, NORMAL) + 6 if self.end else 0)

    @property
    def least(self) -> float:
        """How wide it must be for its words."""
        return max(width(self.name, NORMAL, bold=True) + self.reserved, width(self.note, NORMAL) + 12)


def cluster(brokers: Iterable[Broker], partitions: Iterable[Partition], title: str = "cluster") -> Picture:
    """The picture of a cluster: which broker holds, leads and lags behind in what."""
    every = sorted(partitions, key=lambda partition: (partition.topic, partition.number))
    one_topic = len({partition.topic for partition in every}) <= 1
    named = [(f"p{p.number}" if one_topic else f"{clean(p.topic)}-{p.number}", p) for p in every]
    found = {broker: Broker(broker, alive=False) for partition in every for broker in partition.replicas}
    found |= {broker.id: broker for broker in brokers}
    all_brokers = [found[broker] for broker in sorted(found)]
    shown, hidden = ends(named, "partition")
    held = [[_Replica.of(p, name, each.id) for name, p in shown if each.id in p.replicas] for each in all_brokers]
    leaderless = [name for name, partition in named if partition.leader is None]
    notes = [*hidden, *_leaderless(leaderless)]

    dead = sum(not broker.alive for broker in all_brokers)
    counts = count(len(all_brokers), "broker") + (f", {dead} dead" if dead else "")
    counts += f" · {count(len(every), 'partition')}" + (f", {len(leaderless)} without a leader" if leaderless else "")
    canvas = Canvas(title, counts)
    _draw_brokers(canvas, all_brokers, held)
    canvas.legend(map(_note, notes))
    canvas.legend(_legend(all_brokers, held))
    names = [f"broker {each.id}{each.signs}" for each in all_brokers]
    words = [" · ".join(replica.words for replica in replicas) or "no replica" for replicas in held]
    return canvas.picture([*aligned(zip(names, words, strict=True)), *notes], STYLE)


def _leaderless(names: Sequence[str]) -> list[str]:
    """Which partitions have no leader, and what that means."""
    if not names:
        return []
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return [f"no leader, so nobody can write or read: {', '.join([*names[:MOST_NAMES], *more])}"]


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw_brokers(canvas: Canvas, all_brokers: Sequence[Broker], held: Sequence[Sequence[_Replica]]) -> None:
    """The brokers' boxes in rows, all replicas equally large."""
    in_a_row = len(all_brokers) if 1 < len(all_brokers) <= 4 else 3 if len(all_brokers) <= 9 else 4
    wide = min(WIDEST, (WIDE - 2 * EDGE - GAP * (in_a_row - 1)) / in_a_row)
    inner = wide - 2 * GAP
    every = [replica for replicas in held for replica in replicas]
    least = max((each.least for each in every), default=inner)
    across = max(1, int((inner + GAP) // (least + GAP)))
    size = (inner - GAP * (across - 1)) / across, HIGH if any(each.note for each in every) else LOW
    for first in range(0, len(all_brokers), in_a_row):
        row = range(first, min(first + in_a_row, len(all_brokers)))
        lines = max(1, *(math.ceil(len(held[at]) / across) for at in row))
        high = HEAD + lines * (size[1] + GAP)
        for at in row:
            x = EDGE + (at - first) * (wide + GAP)
            canvas.add(_broker(all_brokers[at], x, canvas.y, wide, high), right=x + wide)
            if not held[at]:
                canvas.add(text(x + GAP, canvas.y + HEAD + 12, "no replica", kind="faint"))
            for place, replica in enumerate(held[at]):
                left, top = place % across * (size[0] + GAP), place // across * (size[1] + GAP)
                canvas.add(_replica(replica, x + GAP + left, canvas.y + HEAD + top, *size))
        canvas.y += high + GAP


def _broker(broker: Broker, x: float, y: float, wide: float, high: float) -> str:
    """A broker's box and its name."""
    words = f"broker {broker.id}"
    parts = [box(x, y, wide, high, "broker" if broker.alive else "down broker", rx=8)]
    parts.append(text(x + GAP, y + 18, words, BIG, "bold"))
    x += GAP + width(words, BIG, bold=True) + 10
    if not broker.alive:
        parts.append(red(cross(x, y + 14, 4)) + text(x + 9, y + 18, "dead"))
        x += 45
    if broker.controller:
        parts.append(_diamond(x, y + 14))
        x += 16
    if broker.note:
        parts.append(text(x, y + 18, broker.note))
    return "".join(parts)


def _replica(replica: _Replica, x: float, y: float, wide: float, high: float) -> str:
    """One replica: a lane filled as far as its copy goes, star and name left, end right, words below."""
    parts = [box(x, y, wide, high, "replica")]
    if replica.full:
        parts.append(box(x, y, wide * replica.full, high, "has"))
    if replica.committed:
        parts.append(_committed(x + wide * replica.committed, y, high))
    if replica.leads:
        parts.append(line(x + 2, y, x + wide - 2, y, "edge") + _star(x + 11, y + 10.5))
    name = fit(replica.name, NORMAL, wide - replica.reserved, True)
    parts.append(text(x + (20 if replica.leads else 6), y + 14, name, kind="bold"))
    parts.append(text(x + wide - 6, y + 14, replica.end, anchor="end") if replica.end else "")
    parts.append(text(x + 6, y + 25, replica.note, NORMAL) if replica.note else "")
    return tag("g", *parts, class_=None if replica.in_sync else "out")


def _note(words: str) -> tuple[Draw, float]:
    """A line below the boxes: with a red cross where something does not work."""
    if words.startswith("…"):
        return words_item(words)
    return sign_item(lambda x, y: red(cross(x, y)), fit(words, NORMAL, WIDE - 2 * EDGE - 14))


def _legend(all_brokers: Sequence[Broker], held: Sequence[Sequence[_Replica]]) -> list[tuple[Draw, float]]:
    """What the signs mean: those that are there."""
    every = [replica for replicas in held for replica in replicas]
    items = [sign_item(_star, "leader")] if any(replica.leads for replica in every) else []
    items += [sign_item(_diamond, "controller")] if any(each.controller for each in all_brokers) else []
    if any(replica.committed for replica in every):
        items.append(sign_item(lambda x, y: _committed(x, y - 8, 16), "committed (high watermark)"))
    if any(replica.end for replica in every):
        items.append(words_item("number: the copy's end (its next offset)"))
    return items


def _committed(x: float, y: float, high: float) -> str:
    """Two marks at a place, at the upper and the lower edge: what is written between them can be read."""
    return line(x, y - 4, x, y + 5, "committed") + line(x, y + high - 3, x, y + high + 4, "committed")


def _star(x: float, y: float) -> str:
    """A ★ around a point."""
    tips = [(5 if tip % 2 == 0 else 5 * 0.42, math.pi * tip / 5) for tip in range(10)]
    points = " ".join(f"{number(x + r * math.sin(a))},{number(y - r * math.cos(a))}" for r, a in tips)
    return tag("polygon", points=points, fill="currentColor")


def _diamond(x: float, y: float) -> str:
    """A ◆ around a point."""
    corners = [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)]
    return tag("polygon", points=" ".join(f"{number(a)},{number(b)}" for a, b in corners), fill="currentColor")
