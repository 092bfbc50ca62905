"""One partition as a row of cells and marks, before anybody draws it.

In:  a `Lane`: the records that somebody read, and where the partition's marks are.
Out: `steps(lane)`: what stands in the row from left to right, the same for the SVG and for the twin:
     `Mark` (a bar between records), `Cell` (a record, or offsets that hold none), `More` (records left out, counted).

A lane is a row; `rows(lanes)` leaves lanes out where there are too many, and says so.

Offsets that hold no record (deleted, compacted away, or taken by a transaction's marker) are 'gone'. The caller need not
list them: every offset from `start` to `end` without a record is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kqlib.text import Key, count

State = Literal["waiting", "claimed", "due", "done", "dead", "gone"]
STATES: tuple[State, ...] = get_args(State)
FINISHED = {"done", "dead", "gone"}

MOST = 40  # records of a lane that are all shown
ENDS = 10  # of more than that: so many from each end
MOST_LANES = 24  # partitions that are all shown
ALONE = 2  # offsets in a row without a record that still get a cell each


@dataclass(frozen=True)
class Record:
    """A record in a lane: where, which key, how far. A note is a few characters more ('v2'); `attempt` is for claimed ones."""

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
    """A partition: its records and its marks. `start` is where the picture begins; what was before is not spoken of.

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
        # asked before the last record came: the log's end is never before one of its records
        object.__setattr__(self, "end", max([self.end, *(offset + 1 for offset in offsets)]))


@dataclass(frozen=True)
class Mark:
    """An upright bar before an offset; marks that coincide share it."""

    offset: int
    words: tuple[str, ...]

    @property
    def word(self) -> str:
        """'floor', or 'floor·read' where both are."""
        return "·".join(self.words)


@dataclass(frozen=True)
class Cell:
    """A record, or (record None) the offsets from first to last, which hold none."""

    first: int
    last: int
    record: Record | None = None

    @property
    def gone(self) -> bool:
        """Is there no record here?"""
        return self.record is None or self.record.state == "gone"

    @property
    def offsets(self) -> str:
        """'12', or '0…13' for several."""
        return str(self.first) if self.first == self.last else f"{self.first}…{self.last}"


@dataclass(frozen=True)
class More:
    """Records that are left out here."""

    first: int
    records: int

    @property
    def words(self) -> str:
        """'… 960 more'."""
        return f"… {self.records} more"


Step = Mark | Cell | More


def steps(lane: Lane) -> list[Step]:
    """What stands in the row, from left to right."""
    marks = _marks(lane)
    stops = [mark.offset for mark in marks]
    row: list[Step] = []
    for cell in _shortened(list(_cells(lane, stops)), stops):
        while marks and marks[0].offset <= cell.first:
            row.append(marks.pop(0))
        row.append(cell)
    return row + marks


@dataclass(frozen=True)
class Row:
    """A lane as it is shown: its name, its steps, and words instead of steps where there are none to show."""

    name: str
    steps: Sequence[Step]
    words: str = ""


def rows(lanes: Sequence[Lane]) -> list[Row]:
    """The lanes of a picture; of too many only the first and the last ten, and how much is left out."""
    if len(lanes) <= MOST_LANES:
        return [_row(lane) for lane in lanes]
    hidden = lanes[ENDS:-ENDS]
    records = count(sum(len(lane.records) for lane in hidden), "record")
    left_out = Row("", (), f"… {count(len(hidden), 'more partition')} with {records}")
    return [*map(_row, lanes[:ENDS]), left_out, *map(_row, lanes[-ENDS:])]


def _row(lane: Lane) -> Row:
    """One lane; one without a cell says that it is empty."""
    row = steps(lane)
    return Row(f"p{lane.partition}", row, "empty" if all(isinstance(step, Mark) for step in row) else "")


def begin(lane: Lane) -> int:
    """The first offset of the picture."""
    return min(lane.start, lane.records[0].offset) if lane.records else lane.start


def _marks(lane: Lane) -> list[Mark]:
    """The lane's bars. Where nothing is gone before it, `low` says nothing and is left out."""
    low = lane.low if lane.low > begin(lane) else None
    places = {"low": low, "floor": lane.floor, "read": lane.read, "end": lane.end}
    offsets = sorted({offset for offset in places.values() if offset is not None})
    return [Mark(at, tuple(word for word, offset in places.items() if offset == at)) for at in offsets]


def _cells(lane: Lane, stops: list[int]) -> Iterator[Cell]:
    """Every record, and between them the offsets without one."""
    after = begin(lane)
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
    """Of more than forty records only the first and the last ten; what is left out is counted between the bars."""
    places = [place for place, cell in enumerate(cells) if cell.record]
    if len(places) <= MOST:
        return [*cells]
    left, right = places[ENDS - 1] + 1, places[-ENDS]
    return [*cells[:left], *_counted(cells[left:right], stops), *cells[right:]]


def _counted(hidden: list[Cell], stops: list[int]) -> Iterator[Cell | More]:
    """One piece between any two bars: how many records it hides, or that it holds none."""
    pieces: dict[int, list[Cell]] = {}
    for cell in hidden:
        pieces.setdefault(sum(stop <= cell.first for stop in stops), []).append(cell)
    for piece in pieces.values():
        records = sum(cell.record is not None for cell in piece)
        yield More(piece[0].first, records) if records else Cell(piece[0].first, piece[-1].last)
