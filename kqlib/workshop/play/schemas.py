"""A reader and a writer to pick: what becomes of an event's fields between them, and whether a level lets one follow the other.

In:  the versions of the games' schema and two that were refused. Out: `schemas()`: a Playground. Each drawing really encodes an event
     with the writer's schema and decodes the bytes with the reader's.
"""

from __future__ import annotations

from typing import Any

from kqlib.errors import IncompatibleSchema
from kqlib.schemas import LEVELS, Registry, check, compare, sources
from kqlib.workshop import games
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.view.table import Cell, Table

KNOWN: dict[str, int | str] = {
    **{f"v{each}": each for each in games.VERSIONS},
    **{each: each for each in games.REFUSED},
}
EVENTS, EVENT = 40, 8  # of a match day of forty events the ninth is sent: a goal


def schemas() -> Playground:
    """Pick a reader, a writer and a level: `kq.play.schemas()`."""
    controls = {
        "reader": dropdown("reader", KNOWN, "v3"),
        "writer": dropdown("writer", KNOWN, "v1"),
        "level": dropdown("level", LEVELS, "BACKWARD"),
    }
    return Playground("schemas", draw, controls)


def draw(reader: str, writer: str, level: str) -> Table:
    """What the reader makes of the writer's event, field by field."""
    ours, theirs = games.schema(KNOWN[reader]), games.schema(KNOWN[writer])
    written = games.values(games.events(EVENTS), KNOWN[writer])[EVENT]
    read, comes = _through(ours, theirs, written), sources(ours, theirs)
    broken = {reason.path: reason for reason in compare(ours, theirs)}
    rows: list[list[Any]] = []
    for name, source in comes.items():
        before = f"{source}: {written[source]!r}" if source else "–"
        failed = Cell(f"✗ {broken[name].rule}", broken[name].why, strong=True) if name in broken else None
        rows.append([name, before, failed or (repr(read[name]) if read else "–")])
    rows += [[name, f"{name}: {value!r}", "dropped"] for name, value in written.items() if name not in comes.values()]
    title = f"{reader} {'reads' if read else 'cannot read'} {writer} · {_may(reader, writer, level)}"
    return Table(rows, ["field", f"{writer} wrote", f"{reader} reads"], title)


def _through(ours: str, theirs: str, written: dict[str, Any]) -> dict[str, Any] | None:
    """The event as it arrives; None if it does not."""
    registry = Registry("NONE")
    data = registry.codec("theirs", theirs).encode(written)
    try:
        return dict(registry.codec("ours", ours).decode(data))
    except IncompatibleSchema:
        return None


def _may(reader: str, writer: str, level: str) -> str:
    """May the later of the two follow the earlier?"""
    first, second = sorted((reader, writer), key=list(KNOWN).index)
    allowed = check(level, games.schema(KNOWN[second]), [(1, games.schema(KNOWN[first]))])
    return f"{level} {'lets' if allowed else 'does not let'} {second} follow {first}"
