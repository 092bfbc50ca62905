"""Which schema really reads which: values are encoded with one schema and decoded with another.

In:  schemas by name. Out: `matrix(schemas)`: an `Outcome` for each reader and writer; `trial(reader, writer)`: one of them.

A schema reads another one if it reads all values of `samples`. They reach every symbol of an enum, every branch of a union, the
largest and smallest numbers, and bytes that are no text. No decoder complains about logical types, so the rules decide on those.
Java's verdict is shown if it differs from that of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.schemas import fits, form, rules
from kqlib.workshop.view.matrix import drawn, matrix as tabled
from kqlib.workshop.view.picture import Picture
from kqlib.workshop.view.table import Table

DEPTH = 4  # how deep a type that holds itself is followed
MOST = 64  # values
PLAIN: dict[str, tuple[Any, ...]] = {
    "null": (None,),
    "boolean": (True, False),
    "int": (1, -(2**31), 2**31 - 1),
    "long": (1, -(2**63), 2**63 - 1),
    "float": (0.5, -2.0),
    "double": (0.5, -1e300),
    "bytes": (b"abc", b"", b"\xff"),
    "string": ("abc", "", "ü"),
}


@dataclass(frozen=True)
class Outcome:
    """How many of a writer's values a reader reads, the rule that failed, and a sentence. java: its verdict, if it is another one."""

    reader: str
    writer: str
    read: int
    tried: int
    rule: str = ""
    why: str = ""
    java: str = ""

    def __bool__(self) -> bool:
        return self.read == self.tried


@dataclass(frozen=True, repr=False)
class Matrix:
    """Who reads whom: an Outcome for each reader and writer; shows itself as a table."""

    outcomes: tuple[Outcome, ...]

    @property
    def table(self) -> Table:
        """Readers down, writers across, the sentences behind."""
        return tabled(self.outcomes)

    def draw(self, title: str = "who reads whom") -> Picture:
        """The same as a picture."""
        return drawn(self.outcomes, title)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.table._repr_mimebundle_()


def matrix(schemas: Mapping[str, Any]) -> Matrix:
    """Every reader on every writer, computed by encoding and decoding values that are made from each schema."""
    if not isinstance(schemas, Mapping) or not schemas:
        raise NotAllowed("a matrix needs schemas by name, as in matrix({'v1': one, 'v2': two})")
    return Matrix(tuple(trial(schemas[r], schemas[w], (r, w)) for r in schemas for w in schemas))


def trial(reader: Any, writer: Any, names: tuple[str, str] = ("the reader", "the writer")) -> Outcome:
    """Encode `samples` with the writer's schema and decode them with the reader's."""
    new, old = form.canonical(reader), form.canonical(writer)
    tried = list(samples(old))
    reasons = rules.compare(new, old)
    silent = "" if all(reason.rule != rules.LOGICAL for reason in reasons) else rules.LOGICAL
    wrong = [words for value in tried if (words := silent or _failed(new, old, value))]
    if wrong:
        rule = reasons[0].rule if reasons else "not read"
        why = "; ".join(map(str, reasons)) or wrong[0]
        words = f"{names[0]} cannot read {names[1]} {why}"
    else:
        changes = "; ".join(rules.explain(new, old))
        rule, words = "", f"{names[0]} reads {names[1]}" + (f": {changes}" if changes else "")
    java = rules.java(new, old)
    if java == (not reasons):
        return Outcome(*names, len(tried) - len(wrong), len(tried), rule, words)
    words += f"; Java's Avro {'accepts' if java else 'refuses'} it"
    return Outcome(*names, len(tried) - len(wrong), len(tried), rule, words, "✓" if java else "✗")


def samples(schema: Any) -> Iterator[Any]:
    """Values that reach every part of a schema at least once."""
    parsed = form.parsed(form.canonical(schema))
    return islice(_samples(parsed, fits.named(parsed), 0), MOST)


def _failed(reader: str, writer: str, value: Any) -> str:
    """The decoder's complaint about this value, if it has one."""
    import fastavro

    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, form.parsed(writer), value)
    try:
        fastavro.schemaless_reader(BytesIO(buffer.getvalue()), form.parsed(writer), form.parsed(reader))
    except Exception as error:  # it depends on the schema what fastavro raises
        return f"{type(error).__name__}: {error}"
    return ""


def _samples(schema: Any, named: Mapping[str, Any], depth: int) -> Iterator[Any]:
    if isinstance(schema, list):
        for branch in schema if depth < DEPTH else schema[:1]:
            yield from _samples(branch, named, depth)
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in PLAIN:
        logical = isinstance(schema, dict) and "logicalType" in schema
        yield from _logical(schema) if logical else PLAIN[kind]
    elif kind in named:
        yield from _samples(named[kind], named, depth)
    else:
        yield from _inside(kind, schema, named, depth + 1)


def _inside(kind: str, schema: Any, named: Mapping[str, Any], depth: int) -> Iterator[Any]:
    if kind == "enum":
        yield from schema["symbols"]
    elif kind == "fixed":
        yield b"\xff" * schema["size"]
    elif kind == "array":
        yield from ([] if depth >= DEPTH else [[each] for each in _samples(schema["items"], named, depth)])
        yield []
    elif kind == "map":
        yield from ([] if depth >= DEPTH else [{"key": each} for each in _samples(schema["values"], named, depth)])
        yield {}
    else:
        columns = {
            field["name"]: list(islice(_samples(field["type"], named, depth), MOST)) for field in schema["fields"]
        }
        for row in range(max(map(len, columns.values()), default=1)):
            yield {name: column[row % len(column)] for name, column in columns.items()}


def _logical(schema: Any) -> Iterator[Any]:
    """Values of a logical type: its plain values, encoded and decoded again."""
    import fastavro

    uuid = "00000000-0000-0000-0000-000000000001"
    plain = PLAIN | {"int": (1,), "long": (1,), "bytes": (b"\x01", b"\xff"), "string": (uuid,)}
    for value in plain[schema["type"]]:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, schema["type"], value)
        yield fastavro.schemaless_reader(BytesIO(buffer.getvalue()), schema)
