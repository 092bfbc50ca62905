"""One partition as a row of cells and marks, before it is drawn.

In:  a `Lane`: the records that were read, and where the partition's marks are.
Out: `rows(lanes)`: what stands in each row from left to right, the same for the SVG and for the twin:
     `Mark` (a bar between records), `Cell` (a record, or offsets that hold none), `More` (records left out, counted).

Offsets that hold no record (deleted, compacted away, or taken by a transaction's marker) are 'gone'. The caller need not
list them: every offset from `start` to `end` without a record is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kqlib.text import Key, count
from kqlib.workshop.view.picture import shortened

State = Literal["waiting", "claimed", "due", "done", "dead", "gone"]
STATES: tuple[State, ...] = get_args(State)
FINISHED = {"done", "dead", "gone"}

MOST, ENDS = 40, 10  # of a lane with more records than 40: the first and the last ten
ALONE = 2  # so many offsets in a row without a record get a cell each


@dataclass(frozen=True)
class Record:
    """A record in a lane: offset, key, state. A note is a few characters more ('v2'); `attempt` is for claimed ones."""

    offset: int
    key: Key = None
    state: State = "waiting"
    note: str = ""
    attempt: int = 1

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"{self.state!r} is not a state of a record: {', '.join(STATES)}")


@dataclass(frozen=True)
class Lane:
    """A partition: its records and its marks. `start` is the first offset of the picture.

    low: first offset still in the log · floor: committed · read: position · end: the next record's offset.
    """

    partition: int
    records: Sequence[Record] = ()
    low: int = 0
    end: int = 0
    floor: int | None = None
    read: int | None = None
    start: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(sorted(self.records, key=lambda record: record.offset)))
        offsets = [record.offset for record in self.records]
        if len(set(offsets)) != len(offsets):
            raise ValueError(f"partition {self.partition} has two records at one offset")
        # `end` may have been read before the last record was written: it is never before one of the records
        object.__setattr__(self, "end", max([self.end, *(offset + 1 for offset in offsets)]))
        object.__setattr__(self, "start", min([self.start, *offsets]))


@dataclass(frozen=True)
class Mark:
    """An upright bar before an offset; marks at the same offset share it: 'floor·read'."""

    offset: int
    word: str


@dataclass(frozen=True)
class Cell:
    """A record, or (record None) the offsets from first to last, which hold none."""

    first: int
    last: int
    record: Record | None = None

    @property
    def state(self) -> State:
        """The record's state; 'gone' without a record."""
        return self.record.state if self.record else "gone"

    @property
    def offsets(self) -> str:
        """'12', or '0…13' for several."""
        return str(self.first) if self.first == self.last else f"{self.first}…{self.last}"


@dataclass(frozen=True)
class More:
    """Records that are left out here, in words: '… 960 more'."""

    first: int
    words: str


Piece = Mark | Cell | More


@dataclass(frozen=True)
class Row:
    """A lane as it is shown: its name, its pieces, and words where there are no pieces to show."""

    name: str
    pieces: Sequence[Piece]
    words: str = ""


def rows(lanes: Sequence[Lane]) -> list[Row]:
    """The lanes of a picture; of too many only the first and the last ten, and how many records are left out."""
    first, hidden, last = shortened(lanes)
    records = count(sum(len(lane.records) for lane in hidden), "record")
    between = [Row("", (), f"… {count(len(hidden), 'more partition')} with {records}")] if hidden else []
    return [*map(_row, first), *between, *map(_row, last)]


def _row(lane: Lane) -> Row:
    """What stands in a lane from left to right; a lane without a cell says that it is empty."""
    marks = _marks(lane)
    stops = [mark.offset for mark in marks]
    pieces: list[Piece] = []
    for cell in _shortened(list(_cells(lane, stops)), stops):
        while marks and marks[0].offset <= cell.first:
            pieces.append(marks.pop(0))
        pieces.append(cell)
    return Row(f"p{lane.partition}", [*pieces, *marks], "" if pieces else "empty")


def _marks(lane: Lane) -> list[Mark]:
    """The lane's bars. Where nothing before it is gone, `low` says nothing and is left out."""
    places = {
        "low": lane.low if lane.low > lane.start else None,
        "floor": lane.floor,
        "read": lane.read,
        "end": lane.end,
    }
    offsets = sorted({offset for offset in places.values() if offset is not None})
    return [Mark(at, "·".join(word for word, offset in places.items() if offset == at)) for at in offsets]


def _cells(lane: Lane, stops: list[int]) -> Iterator[Cell]:
    """Every record, and between them the offsets without one."""
    after = lane.start
    for record in lane.records:
        yield from _gap(after, record.offset, stops)
        yield Cell(record.offset, record.offset, record)
        after = record.offset + 1
    yield from _gap(after, lane.end, stops)


def _gap(after: int, before: int, stops: list[int]) -> Iterator[Cell]:
    """The offsets without a record between two: a cell each if they are few, else one cell between any two bars."""
    inner = [stop for stop in stops if after < stop < before]
    for first, last in zip([after, *inner], [*inner, before], strict=True):
        if last - first <= ALONE:
            yield from (Cell(offset, offset) for offset in range(first, last))
        else:
            yield Cell(first, last - 1)


def _shortened(cells: list[Cell], stops: list[int]) -> list[Cell | More]:
    """Of more than forty records only the first and the last ten; the others are counted between any two bars."""
    places = [place for place, cell in enumerate(cells) if cell.record]
    if len(places) <= MOST:
        return [*cells]
    left, right = places[ENDS - 1] + 1, places[-ENDS]
    pieces: dict[int, list[Cell]] = {}
    for cell in cells[left:right]:
        pieces.setdefault(sum(stop <= cell.first for stop in stops), []).append(cell)
    counted: list[Cell | More] = []
    for piece in pieces.values():
        first, records = piece[0].first, sum(cell.record is not None for cell in piece)
        counted.append(More(first, f"… {records} more") if records else Cell(first, piece[-1].last))
    return [*cells[:left], *counted, *cells[right:]]
