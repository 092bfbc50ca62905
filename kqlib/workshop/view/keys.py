"""Keys on partitions: a row is a partition, a block in it is a key, as long as the key has records.

In:  `Placing`s: which key is on which partition, with how many records. One, or several to compare (clients, before and after growth).
Out: `keys([placing], title="football") -> Picture`. Its twin, for two:

    football · 3 keys · 2 of them elsewhere
    murmur2 · 3 partitions
    p0  3 records  A B C
    p1  0 records  empty
    p2  0 records  empty
    crc32 · 3 partitions
    p0  1 record  B
    p1  1 record  C←p0
    p2  1 record  A←p0

A key's colour is one of eight, which colour-blind readers tell apart too, and its letter says the same. `←p1`: on p1 in the
first placing. A key to point at has a ring (*A* in the twin). Keys too small for a letter share one block: '12 other keys'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kqlib.text import Key, as_bytes, clean, count, cut
from kqlib.workshop.view.legend import Drawn, Item, flow
from kqlib.workshop.view.letters import MOST_KEYS, Lettering
from kqlib.workshop.view.log_svg import DEEP, PALETTE
from kqlib.workshop.view.picture import (
    BIG,
    EDGE,
    NORMAL,
    SMALL,
    WIDE,
    Picture,
    escape,
    fit,
    headline,
    headline_width,
    number,
    pad,
    sheet,
    tag,
    text,
    width,
)

MOST, ENDS = 24, 10  # more partitions than 24: the first and the last ten
LONGEST_TITLE, LONGEST_NAME = 100, 40
HIGH, AIR, BELOW = 26, 2, 6  # of a block; between two of them; between two rows
BESIDE = 14  # between two placings
CELL = 34  # a key of one record, where there is room
LEAST = 18  # narrower than this a block has no room for its letter
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
    def sizes(self) -> list[int]:
        """Records by partition."""
        sizes = [0] * self.partitions
        for one in self.placed:
            sizes[one.partition] += one.records
        return sizes


def keys(
    placings: Iterable[Placing],
    title: str = "keys",
    mark: Key = None,
    letters: Mapping[Key, str] | None = None,
) -> Picture:
    """The picture of keys on partitions. `mark`: a key to point at. `letters`: key -> letter of earlier pictures."""
    every = list(placings)
    scale = _Scale.of(every)
    drawn = _lettered(every, scale, mark)
    lettering = Lettering.of(drawn, letters)
    panels = [_Panel.of(placing, lettering, set(drawn), every[0] if at else None) for at, placing in enumerate(every)]
    title, rest = cut(clean(title), LONGEST_TITLE), _counts(every, panels)
    sentence = f"{title} · {rest}"
    svg = _draw(panels, scale, _Looks(lettering, as_bytes(mark)), title, rest)
    return Picture(svg, "\n".join([sentence, *_twin(panels, lettering, as_bytes(mark))]), sentence)


# --- what is shown -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scale:
    """How many pixels a record gets, the same in all rows; and where the rows begin."""

    per_record: float
    left: float
    bars: bool  # lengths are the message; else each key is a cell

    @classmethod
    def of(cls, placings: Sequence[Placing]) -> _Scale:
        """So that the fullest row fits, and a key with the fewest records is a cell if there is room for that."""
        fullest = max((size for placing in placings for size in placing.sizes), default=0) or 1
        records = {one.records for placing in placings for one in placing.placed} - {0} or {1}
        left = EDGE + max((width(f"p{placing.partitions - 1}", BIG, True) for placing in placings), default=0) + 10
        room = WIDE - 2 * EDGE - left - width(f" {fullest:,}", NORMAL)
        cell = CELL / min(records)
        return cls(min(room / fullest, cell), left, len(records) > 1 or room / fullest < cell)

    def wide(self, records: int) -> float:
        """How long so many records are."""
        return self.per_record * records


def _lettered(placings: Sequence[Placing], scale: _Scale, mark: Key) -> list[Key]:
    """The keys that get a letter: those with room for it, the largest if they are too many, and the one to point at."""
    largest: dict[Key, int] = {}
    for placing in placings:
        for one in placing.placed:
            key = as_bytes(one.key)
            pointed = key is not None and key == as_bytes(mark)
            if _is_shown(one.partition, placing) and (pointed or scale.wide(one.records) >= LEAST):
                largest[key] = max(largest.get(key, 0), one.records)
    ranked = sorted(largest, key=lambda key: (key != as_bytes(mark), -largest[key]))
    shown = set(ranked[:MOST_KEYS])
    return [key for key in largest if key in shown]


def _is_shown(partition: int, placing: Placing) -> bool:
    """Of too many partitions only the first and the last ten are."""
    return placing.partitions <= MOST or not ENDS <= partition < placing.partitions - ENDS


@dataclass(frozen=True)
class _Block:
    """A key in its row, and where it is in the first placing if that is elsewhere; or `more` keys without a letter."""

    key: Key
    records: int
    came: int | None = None
    stays: bool = False  # it is in the same place there
    more: int = 0

    @property
    def words(self) -> str:
        """'12 other keys'."""
        return count(self.more, "other key")


@dataclass(frozen=True)
class _Row:
    """A partition: its blocks and its records; or words about partitions that are left out."""

    name: str
    blocks: Sequence[_Block]
    records: int
    words: str = ""


@dataclass(frozen=True)
class _Panel:
    """A placing as it is drawn."""

    name: str
    rows: Sequence[_Row]
    even: float  # a partition's even share
    elsewhere: int

    @classmethod
    def of(cls, placing: Placing, lettering: Lettering, drawn: set[Key], first: Placing | None) -> _Panel:
        """The rows of a placing; after the first one, each key knows where it is in that."""
        was = {as_bytes(one.key): one.partition for one in first.placed if one.key is not None} if first else {}
        rows: list[list[_Block]] = [[] for _ in range(placing.partitions)]
        elsewhere = set()
        for one in placing.placed:
            key = as_bytes(one.key)
            came = was.get(key, one.partition)
            elsewhere |= {key} if came != one.partition else set()
            shown = key in drawn
            blocks = rows[one.partition]
            moves, stays = came != one.partition, key in was and came == one.partition
            blocks.append(_Block(key, one.records, came if moves else None, stays, 0 if shown else 1))
        name = f"{cut(clean(placing.name), LONGEST_NAME)} · " if placing.name else ""
        name += count(placing.partitions, "partition")
        even = sum(placing.sizes) / (placing.partitions or 1)
        return cls(name, _rows([_joined(blocks) for blocks in rows]), even, len(elsewhere))


def _joined(blocks: Sequence[_Block]) -> list[_Block]:
    """A row's blocks: keys with a letter, then one block for all others."""
    rest = [block for block in blocks if block.more]
    kept = [block for block in blocks if not block.more]
    return [*kept, _Block(None, sum(block.records for block in rest), more=len(rest))] if rest else kept


def _rows(blocks: Sequence[Sequence[_Block]]) -> list[_Row]:
    """The rows; of too many partitions only the first and the last ten."""
    rows = [_Row(f"p{n}", row, sum(block.records for block in row)) for n, row in enumerate(blocks)]
    if len(rows) <= MOST:
        return rows
    hidden = rows[ENDS:-ENDS]
    records = count(sum(row.records for row in hidden), "record")
    return [*rows[:ENDS], _Row("", (), 0, f"… {len(hidden)} more partitions with {records}"), *rows[-ENDS:]]


# --- the words ---------------------------------------------------------------------------------------------------------


def _counts(placings: Sequence[Placing], panels: Sequence[_Panel]) -> str:
    """'12 keys · 2 of them elsewhere', or for one placing '12 keys · 1,000 records · the fullest has 40 %, even is 25 %'."""
    distinct = {as_bytes(one.key) for placing in placings for one in placing.placed}
    words = [count(len(distinct), "key")]
    if len(panels) > 1:
        elsewhere = max(panel.elsewhere for panel in panels)
        return " · ".join([*words, f"{elsewhere:,} of them elsewhere" if elsewhere else "none of them elsewhere"])
    total = sum(sum(placing.sizes) for placing in placings)
    if total != len(distinct):
        fullest = max(max(placing.sizes, default=0) for placing in placings) / (total or 1)
        words += [count(total, "record"), f"the fullest has {fullest:.0%}, even is {_even(placings[0]):.0%}"]
    return " · ".join(words)


def _even(placing: Placing) -> float:
    return 1 / placing.partitions if placing.partitions else 0.0


def _twin(panels: Sequence[_Panel], lettering: Lettering, mark: Key) -> list[str]:
    """A line a partition, below each placing's name; then what the letters stand for."""
    lines: list[str] = []
    for panel in panels:
        wide = max((len(row.name) for row in panel.rows), default=0)
        sizes = max((len(count(row.records, "record")) for row in panel.rows), default=0)
        lines.append(panel.name)
        for row in panel.rows:
            blocks = " ".join(_in_words(block, lettering, mark) for block in row.blocks) or "empty"
            size = pad(count(row.records, "record"), sizes)
            lines.append(row.words or f"{pad(row.name, wide)}  {size}  {blocks}")
    legend = " · ".join(f"{letter} {key}" for letter, key in lettering.legend())
    return [*lines, legend] if legend else lines


def _in_words(block: _Block, lettering: Lettering, mark: Key) -> str:
    """'A', 'A(310)', 'B←p1', '12 other keys(48)'."""
    records = f"({block.records:,})" if block.records != (block.more or 1) else ""
    if block.more:
        return block.words + records
    letter = f"*{lettering[block.key]}*" if block.key is not None and block.key == mark else lettering[block.key]
    return letter + records + ("" if block.came is None else f"←p{block.came}")


# --- the drawing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Looks:
    """How blocks are filled, and which one has the ring."""

    lettering: Lettering
    mark: Key

    def colour(self, key: Key) -> str:
        """A key's colour; the ninth key gets the first one's, and its letter tells them apart."""
        return PALETTE[self.lettering.place(key) % len(PALETTE)]

    def block(self, block: _Block, x: float, y: float, wide: float) -> str:
        """A key: its letter, and where it came from."""
        wide = max(wide - AIR, 1)
        if block.more:
            box = tag("rect", x=x, y=y, width=wide, height=HIGH, rx=4, class_="rest")
            fits = width(block.words, SMALL) + 4 <= wide
            words = text(x + wide / 2, y + HIGH / 2 + 3, block.words, SMALL, anchor="middle") if fits else ""
            return box + words
        fill, ink = self._colours(block)
        box = tag("rect", x=x, y=y, width=wide, height=HIGH, rx=4, class_=None if fill else "none", style=fill)
        letter = fit(self.lettering[block.key], BIG, wide - 2, True) if wide >= LEAST - AIR else ""
        deep = y + (17 if block.came is None else 13)
        parts = [box, text(x + wide / 2, deep, letter, BIG, "bold", anchor="middle") if letter else ""]
        if letter and block.came is not None:
            parts.append(text(x + wide / 2, y + 22, fit(f"←p{block.came}", SMALL, wide), SMALL, anchor="middle"))
        return tag("g", *parts, style=ink) + self._ring(block, x - 1, y - 1, wide + 2)

    def _ring(self, block: _Block, x: float, y: float, wide: float) -> str:
        """Around the key to point at; in the paper's ink, so not inside of the block's."""
        if block.key is None or block.key != self.mark:
            return ""
        return tag("rect", x=x, y=y, width=wide, height=HIGH + 2, rx=5, class_="ring")

    def _colours(self, block: _Block) -> tuple[str | None, str | None]:
        """A key's colour in full, a tint of it where the key stays; a null key has none."""
        if block.key is None:
            return None, None
        colour = self.colour(block.key)
        if block.stays:
            return f"fill:{colour};fill-opacity:.25", None
        return f"fill:{colour}", f"color:{'#fff' if colour in DEEP else '#111'}"

    def legend(self, came: bool) -> list[Item]:
        """What letters and frames mean."""
        items = []
        for letter, name in self.lettering.legend():
            key = next((key for key in self.lettering.worn if self.lettering[key] == letter), None)
            dot = None if key is None else self.colour(key)
            wide = 14 * bool(dot) + width(letter, NORMAL, True) + width(f" {name}", NORMAL)
            items.append(Item(partial(_letter_and_key, letter, name, dot), wide))
        return [*items, Item.words("←p1: on p1 in the first · faint: in the same place")] if came else items


def _letter_and_key(letter: str, name: str, dot: str | None, x: float, y: float) -> str:
    """'A ARS-CHE', behind a dot in the key's colour."""
    circle = tag("circle", cx=x + 5, cy=y + 8, r=5, fill=dot) if dot else ""
    words = tag("tspan", escape(letter), class_="bold") + escape(f" {name}")
    return circle + tag("text", words, x=x + 14 * bool(dot), y=y + 12)


def _draw(panels: Sequence[_Panel], scale: _Scale, looks: _Looks, title: str, rest: str) -> str:
    """The SVG: the placings side by side if there is room, else one below the other; then what the letters mean."""
    name = fit(title, BIG, WIDE - 2 * EDGE - headline_width("", rest), bold=True)
    drawn = _arranged([_panel(panel, scale, looks) for panel in panels])
    came = any(block.came is not None for panel in panels for row in panel.rows for block in row.blocks)
    legend = flow(looks.legend(came), drawn.y)
    wide = max(EDGE + headline_width(name, rest), drawn.wide, legend.wide)
    parts = [headline(name, rest), *drawn.parts, *legend.parts]
    return sheet(wide + EDGE, legend.y + 2, f"{title} · {rest}", parts, STYLE)


def _arranged(panels: Sequence[Drawn]) -> Drawn:
    """Drawn placings at their places, below the headline."""
    beside = sum(panel.wide + BESIDE for panel in panels) - BESIDE <= WIDE - EDGE
    parts, x, y, wide, deep = list[str](), 0.0, 24.0, 0.0, 24.0
    for panel in panels:
        parts += [f"<g transform='translate({number(x)},{number(y)})'>", *panel.parts, "</g>"]
        wide, deep = max(wide, x + panel.wide), max(deep, y + panel.y)
        x, y = (x + panel.wide + BESIDE, y) if beside else (x, deep)
    return Drawn(parts, wide, deep)


def _panel(panel: _Panel, scale: _Scale, looks: _Looks) -> Drawn:
    """A placing: its name, a row a partition; with a line at the even share where lengths are the message."""
    name = fit(panel.name, NORMAL, WIDE - 2 * EDGE - 160)  # the words about the dotted line follow
    parts, wide, y = [text(EDGE, 14, name)], EDGE + width(name, NORMAL), 20.0
    even = scale.left + scale.wide(1) * panel.even if scale.bars and panel.even else None
    if even is not None:
        parts.append(text(wide + 16, 14, "dotted: an even share", kind="faint"))
        wide += 16 + width("dotted: an even share", NORMAL)
    for row in panel.rows:
        drawn = _row(row, scale, looks, y, even)
        parts += drawn.parts
        y, wide = drawn.y, max(wide, drawn.wide)
    return Drawn(parts, wide, y + 6)


def _row(row: _Row, scale: _Scale, looks: _Looks, y: float, even: float | None) -> Drawn:
    """A partition: its name, its blocks, its number of records behind them, its piece of the line at the even share."""
    if row.words:
        return Drawn([text(EDGE, y + 12, row.words, kind="faint")], EDGE + width(row.words, NORMAL), y + 22)
    parts, x = [text(EDGE, y + 17, row.name, BIG, "bold")], scale.left
    for block in row.blocks:
        parts.append(looks.block(block, x, y, scale.wide(block.records)))
        x += scale.wide(block.records)
    words = f"{row.records:,}" if row.blocks else "empty"
    parts.append(text(x + 4, y + 17, words, kind="faint"))
    end = x + 4 + width(words, NORMAL)
    if even is not None and not x < even < end + 2:  # it crosses no number
        parts.append(tag("line", x1=even, y1=y, x2=even, y2=y + HIGH + BELOW, class_="even"))
    return Drawn(parts, end, y + HIGH + BELOW)
