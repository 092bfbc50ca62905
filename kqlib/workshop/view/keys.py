"""Keys on partitions: a row is a partition, a block in it is a key, as long as the key has records.

In:  what `kq.keys` found, or `Placing`s by hand: which key is on which partition, with how many records. One, or several to
     compare (clients, before and after growth).
Out: `spread(found)`, `moved(found)`, `keys([placing], title="football") -> Picture`. Its twin, for two placings:

    football · 3 keys · 2 of them elsewhere
    murmur2 · 3 partitions
    p0  3 records  A B C
    p1  0 records  empty
    p2  0 records  empty
    crc32 · 3 partitions
    p0  1 record  B
    p1  1 record  C←p0
    p2  1 record  A←p0

A key's colour is one of eight, which colour-blind readers tell apart too; from the ninth key on it has a dashed edge.
`←p1`: on p1 in the first placing. A key to point at has a ring (*A* in the twin).
Keys too small for a letter share one block: '12 other keys'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kqlib import keys as kq_keys
from kqlib.errors import NotAllowed
from kqlib.text import Key, as_bytes, clean, count, cut
from kqlib.workshop.view.letters import MOST_KEYS, Lettering
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned, shortened, words_item
from kqlib.workshop.view.svg import BIG, NORMAL, box, fit, line, number, tag, text, width

MOST = 100_000  # keys of a picture
HIGH, AIR, BELOW = 26, 2, 6  # of a block; between two of them; between two rows
BESIDE = 14  # between two placings
CELL = 34  # a key of one record, where there is space
LEAST = 18  # narrower than this a block has no space for its letter
EVEN = "dotted: an even share"
STYLE = (
    ".rest{fill:currentColor;fill-opacity:.12;stroke:currentColor;stroke-opacity:.3}"
    ".none{fill:none;stroke:currentColor;stroke-opacity:.7}"
    ".ring{fill:none;stroke:currentColor;stroke-width:3}"
    ".even{stroke:currentColor;stroke-opacity:.7;stroke-dasharray:2 3}"
)


@dataclass(frozen=True)
class Placed:
    """A key on its partition, and how many records it has there."""

    key: Key
    partition: int
    records: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", as_bytes(self.key))
        if self.records < 0:
            raise ValueError(f"{self.records} is not a number of records")


@dataclass(frozen=True)
class Placing:
    """One way to put keys on partitions: what it is called, how many partitions there are, and where each key is."""

    name: str
    partitions: int
    placed: Sequence[Placed]

    def __post_init__(self) -> None:
        for one in self.placed:
            if not 0 <= one.partition < self.partitions:
                raise ValueError(f"there is no p{one.partition} among {count(self.partitions, 'partition')}")

    @property
    def rows(self) -> list[list[Placed]]:
        """The keys by partition."""
        rows: list[list[Placed]] = [[] for _ in range(self.partitions)]
        for one in self.placed:
            rows[one.partition].append(one)
        return rows

    @property
    def where(self) -> dict[Key, int]:
        """Each key's partition; records without a key have none of their own."""
        return {one.key: one.partition for one in self.placed if one.key is not None}


def spread(
    found: kq_keys.Spread, title: str = "keys", mark: Key = None, letters: Mapping[Key, str] | None = None
) -> Picture:
    """The keys on their partitions. `mark`: a key to point at. `letters`: those of earlier pictures."""
    return keys([_placing(found.hash, found, len(found))], title, mark, letters)


def moved(found: kq_keys.Moved, title: str = "keys", letters: Mapping[Key, str] | None = None) -> Picture:
    """The keys before and after: which of them are elsewhere, and where they were."""
    sides = (("before", found.before), ("after", found.after))
    return keys([_placing(name, found, n) for name, n in sides], title, letters=letters)


def _placing(name: str, found: kq_keys.Spread | kq_keys.Moved, n: int) -> Placing:
    if len(found.records) > MOST:
        raise NotAllowed(
            f"a picture shows at most {MOST:,} keys, and these are {len(found.records):,}: draw a part of them"
        )
    records = found.records.items()
    return Placing(name, n, [Placed(key, kq_keys.partition(key, n, found.hash), times) for key, times in records])


def keys(
    placings: Iterable[Placing], title: str = "keys", mark: Key = None, letters: Mapping[Key, str] | None = None
) -> Picture:
    """The picture of keys on partitions. `mark`: a key to point at. `letters`: key -> letter of earlier pictures."""
    every = list(placings)
    looks = _Looks(every, as_bytes(mark), letters)
    panels = [_Panel(placing, looks, every[0].where if at else {}) for at, placing in enumerate(every)]
    canvas = Canvas(title, _counts(every), y=24.0)
    beside = sum(panel.wide + BESIDE for panel in panels) - BESIDE <= WIDE - EDGE
    x, top = 0.0, canvas.y
    for panel in panels:
        canvas.add(f"<g transform='translate({number(x)},{number(top)})'>", *panel.parts, "</g>", right=x + panel.wide)
        canvas.y = max(canvas.y, top + panel.y)
        x, top = (x + panel.wide + BESIDE, top) if beside else (x, canvas.y)
    note = [words_item("←p1: on p1 in the first · faint: in the same place")] if any(p.moves for p in panels) else []
    canvas.legend([*looks.lettering.legend(coloured=True), *note])
    twin = [words for panel in panels for words in panel.twin]
    return canvas.picture([*twin, *looks.lettering.twin()], STYLE)


def _size(placed: Iterable[Placed]) -> int:
    """How many records these keys have."""
    return sum(one.records for one in placed)


def _counts(placings: Sequence[Placing]) -> str:
    """'12 keys · 2 of them elsewhere', or for one placing '12 keys · 1,000 records · the fullest has 40%, even is 25%'."""
    distinct = len({one.key for placing in placings for one in placing.placed})
    words = count(distinct, "key")
    if len(placings) > 1:
        was = placings[0].where
        elsewhere = max(sum(was.get(key, at) != at for key, at in placing.where.items()) for placing in placings)
        return f"{words} · {f'{elsewhere:,}' if elsewhere else 'none'} of them elsewhere"
    for placing in placings:
        total = _size(placing.placed)
        if total != distinct:
            fullest = max(map(_size, placing.rows), default=0) / (total or 1)
            even = 1 / (placing.partitions or 1)
            words += f" · {count(total, 'record')} · the fullest has {fullest:.0%}, even is {even:.0%}"
    return words


@dataclass(frozen=True)
class _Block:
    """A key in its row; or so many other keys, which are too small for a letter."""

    key: Key
    records: int
    was: int | None = None  # its partition in the first placing
    moves: bool = False
    pointed: bool = False
    more: int = 0

    def words(self, lettering: Lettering) -> str:
        """'A', 'A(310)', '*B*←p1', '12 other keys(48)'."""
        records = f"({self.records:,})" if self.records != (self.more or 1) else ""
        if self.more:
            return count(self.more, "other key") + records
        letter = f"*{lettering[self.key]}*" if self.pointed else lettering[self.key]
        return letter + records + (f"←p{self.was}" if self.moves else "")


class _Looks:
    """What is the same for all placings of a picture: the scale, the letters, and the key with the ring."""

    def __init__(self, placings: Sequence[Placing], mark: Key, letters: Mapping[Key, str] | None) -> None:
        fullest = max((_size(row) for placing in placings for row in placing.rows), default=0) or 1
        records = {one.records for placing in placings for one in placing.placed} - {0} or {1}
        self.mark = mark
        self.left = EDGE + max((width(f"p{placing.partitions - 1}", BIG, True) for placing in placings), default=0) + 10
        space = (WIDE - 2 * EDGE - self.left - width(f" {fullest:,}", NORMAL)) / fullest
        cell = CELL / min(records)
        self.scale = min(space, cell)  # pixels a record: the fullest row fits
        self.bars = len(records) > 1 or space < cell  # lengths are the message; else each key is a cell
        shown = self._with_letter(placings)
        self.shown, self.lettering = set(shown), Lettering(shown, letters)

    def _with_letter(self, placings: Sequence[Placing]) -> list[Key]:
        """The keys that get a letter: those with space for it, the largest if they are too many, and the one to point at."""
        largest: dict[Key, int] = {}
        for placing in placings:
            first, _, last = shortened(range(placing.partitions))
            drawn = {*first, *last}
            for one in placing.placed:
                pointed = one.key is not None and one.key == self.mark
                if one.partition in drawn and (pointed or self.scale * one.records >= LEAST):
                    largest[one.key] = max(largest.get(one.key, 0), one.records)
        ranked = sorted(largest, key=lambda key: (key != self.mark, -largest[key]))[:MOST_KEYS]
        return [key for key in largest if key in ranked]

    def block(self, block: _Block, x: float, y: float, wide: float) -> list[str]:
        """A key: its letter, where it was, and the ring; or a grey block for keys without a letter."""
        wide = max(wide - AIR, 1)
        middle = x + wide / 2
        if block.more:
            words = count(block.more, "other key")
            fits = width(words, NORMAL) + 4 <= wide
            words = text(middle, y + HIGH / 2 + 3, words, NORMAL, anchor="middle") if fits else ""
            return [box(x, y, wide, HIGH, "rest") + words]
        fill, ink = None, None
        if block.key is not None:
            fill, ink = self.lettering.style(block.key, tint=block.was is not None and not block.moves)
        parts = [box(x, y, wide, HIGH, None if fill else "none", style=fill)]
        if wide >= LEAST - AIR:
            letter = fit(self.lettering[block.key], BIG, wide - 2, True)
            parts.append(text(middle, y + (12 if block.moves else 17), letter, BIG, "bold", anchor="middle"))
            if block.moves:
                parts.append(text(middle, y + 22, fit(f"←p{block.was}", NORMAL, wide), NORMAL, anchor="middle"))
        ring = box(x - 1, y - 1, wide + 2, HIGH + 2, "ring", rx=5) if block.pointed else ""
        return [tag("g", *parts, style=ink) + ring]


class _Panel:
    """One placing: its name, a row a partition; with a line at the even share where lengths are the message."""

    def __init__(self, placing: Placing, looks: _Looks, was: Mapping[Key, int]) -> None:
        self.looks, self.was = looks, was
        name = f"{cut(clean(placing.name), 40)} · " if placing.name else ""
        name += count(placing.partitions, "partition")
        shown = fit(name, NORMAL, WIDE - 2 * EDGE - 160)  # the words about the dotted line follow
        self.parts, self.wide, self.y = [text(EDGE, 14, shown)], EDGE + width(shown, NORMAL), 20.0
        share = _size(placing.placed) / (placing.partitions or 1)
        self.even = looks.left + looks.scale * share if looks.bars and share else 0.0
        if self.even:
            self.parts.append(text(self.wide + 16, 14, EVEN, kind="faint"))
            self.wide += 16 + width(EVEN, NORMAL)
        self.moves = False
        first, hidden, last = shortened([*enumerate(placing.rows)])
        rows = [self._row(*each) for each in first]
        if hidden:
            records = count(sum(_size(row) for _, row in hidden), "record")
            between = f"… {len(hidden)} more partitions with {records}"
            self.parts.append(text(EDGE, self.y + 12, between, kind="faint"))
            self.wide, self.y = max(self.wide, EDGE + width(between, NORMAL)), self.y + 22
        rows += [self._row(*each) for each in last]
        self.twin = [name, *aligned(rows)]
        if hidden:
            self.twin.insert(1 + len(first), between)
        self.y += 6

    def _row(self, partition: int, placed: Sequence[Placed]) -> tuple[str, str, str]:
        """Draw a partition: its name, its blocks, its number of records behind them; the same in words."""
        blocks = self._blocks(partition, placed)
        self.parts.append(text(EDGE, self.y + 17, f"p{partition}", BIG, "bold"))
        x = self.looks.left
        for block in blocks:
            self.parts += self.looks.block(block, x, self.y, self.looks.scale * block.records)
            x += self.looks.scale * block.records
        words = f"{_size(placed):,}" if blocks else "empty"
        self.parts.append(text(x + 4, self.y + 17, words, kind="faint"))
        end = x + 4 + width(words, NORMAL)
        if self.even and not x < self.even < end + 2:  # it crosses no number
            self.parts.append(line(self.even, self.y, self.even, self.y + HIGH + BELOW, "even"))
        self.wide, self.y = max(self.wide, end), self.y + HIGH + BELOW
        in_words = " ".join(block.words(self.looks.lettering) for block in blocks) or "empty"
        return f"p{partition}", count(_size(placed), "record"), in_words

    def _blocks(self, partition: int, placed: Sequence[Placed]) -> list[_Block]:
        """A row's blocks: keys with a letter, then one block for all others."""
        blocks, others = list[_Block](), list[Placed]()
        for one in placed:
            if one.key not in self.looks.shown:
                others.append(one)
                continue
            was = self.was.get(one.key)
            moves = was is not None and was != partition
            self.moves = self.moves or moves
            pointed = one.key is not None and one.key == self.looks.mark
            blocks.append(_Block(one.key, one.records, was, moves, pointed))
        return [*blocks, _Block(None, _size(others), more=len(others))] if others else blocks
