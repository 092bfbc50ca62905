"""Confluent-framed Avro in many versions, decoded in the JVM: what is right on one side, what is not on the other, nothing lost.

In:  a frame with a binary column `value`, a registry, a subject. Out: `Decoded`: `good` and `bad`, which together are what came in.

Each schema of the subject gets a branch of its own: `when(head == its five bytes, from_avro(body, writer, {'avroSchema': reader}))`.
No row passes through Python, but for the bad ones, whose cause is named there (`quarantine.py`).

Spark's decoder leaves two things unsaid. A broken record comes as a struct of nulls, which a record of nullable fields may well be;
and bytes after the value are not noticed. So each body gets sixteen random bytes behind it, and each schema a field that reads them:
they come out whole if, and only if, the value took exactly its own bytes. That is cheaper than encoding again to compare lengths, and
right where that is not (Avro has several encodings of one array). The result goes through an array of at most one (`explode_outer`):
a plain filter on it would make Spark decode each row again for the filter.

A version that the reader's schema cannot read would make every row of it bad: `IncompatibleSchema` says so before a row is read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kqlib.errors import IncompatibleSchema, NotAllowed, UnknownSchema
from kqlib.schemas import form, rules
from kqlib.schemas.wire import HEAD, MAGIC
from kqlib.spark.quarantine import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kqlib.schemas import Registry

END = 16
# Of these a reader's schema may still read most values of the version; the others make each of its rows bad.
SOME = {"lost symbol", "lost branch"}
MOST = 100  # unexpected ids that the registry is asked for one by one; if there are more, its list of ids is read
OWN = {"value", "schema_id", "cause", "why", "_kq"}  # columns that decoding adds


def decode(df: DataFrame, registry: Registry, reader: str, *, schema: Any = None) -> Decoded:
    """Decode the column `value`: `decode(items, registry, "football-value").good.select("value.game")`.

    reader: the subject whose versions are expected; its latest schema reads them all, unless `schema` is given.
    good has the columns of df with `value` decoded, and `schema_id`; bad has them as they were, and `schema_id`, `cause`, `why`.
    """
    if not hasattr(df, "columns") or "value" not in df.columns:
        raise NotAllowed("decode(df, …) needs a frame with a column `value` of bytes, as kq.spark.items gives it")
    if taken := sorted((OWN - {"value"}) & set(df.columns)):
        raise NotAllowed(f"the frame has a column '{taken[0]}' already, which decoding adds: rename it")
    if not isinstance(reader, str) or not reader.strip():
        raise NotAllowed(f"reader is a subject of the registry, as in 'football-value', not {reader!r}")
    versions = [registry.version(reader, number) for number in registry.versions(reader)]
    ours = form.canonical(versions[-1].schema if schema is None else schema)
    writers = {each.id: form.canonical(each.schema) for each in versions}
    _readable(reader, ours, {each.id: each.number for each in versions}, writers)
    return Decoded(df, registry, reader, ours, writers)


def _readable(subject: str, reader: str, numbers: Mapping[int, int], writers: Mapping[int, str]) -> None:
    """No version is lost as a whole; found here, and not as a flood of corruption."""
    for number, writer in writers.items():
        fatal = [reason for reason in rules.compare(reader, writer) if reason.rule not in SOME]
        if fatal:
            facts = {"path": fatal[0].path, "rule": fatal[0].rule, "version": numbers[number]}
            why = (
                f"the reader's schema cannot read version {numbers[number]} of '{subject}' (schema {number}) {fatal[0]}"
            )
            raise IncompatibleSchema(f"{why}. Every row of that version would be bad; nothing was decoded", **facts)


@dataclass(frozen=True)
class Decoded:
    """Rows decoded and rows that could not be: `good`, `bad`, or both in one frame, `rows`."""

    df: DataFrame = field(repr=False)
    registry: Registry = field(repr=False)
    subject: str
    reader: str = field(repr=False)
    writers: Mapping[int, str] = field(repr=False)

    @cached_property
    def rows(self) -> DataFrame:
        """Every row of the frame, with `_kq`: its value decoded (`_kq.value`), and null where it could not be."""
        from pyspark.sql import functions as f

        end = _end()
        whole = f.filter(f.array(self._branches(end)), lambda each: each.end == f.lit(end))
        return self.df.select("*", _id().alias("schema_id"), f.explode_outer(whole).alias("_kq"))

    @cached_property
    def good(self) -> DataFrame:
        """The rows that were decoded."""
        return good(self.rows)

    @cached_property
    def bad(self) -> DataFrame:
        """The rows that were not, as they came, with the name of the cause and a sentence."""
        return self.quarantined(self.rows)

    def quarantined(self, rows: DataFrame, unexpected: Iterable[int] | None = None) -> DataFrame:
        """The bad ones of these rows, with their causes; the registry is asked of ids that nobody expected."""
        from pyspark.sql import functions as f

        rows = rows.where("_kq is null")
        if unexpected is None:  # a stream cannot be asked before it runs
            unexpected = () if rows.isStreaming else self.unexpected(rows)
        others = {number: self._said(number) for number in unexpected}
        writers, reader = dict(self.writers), self.reader  # not self: a registry does not travel
        cause = f.udf(lambda data: named(data, writers, others, reader), "struct<cause: string, why: string>")
        return rows.withColumn("_why", cause("value")).select("*", "_why.cause", "_why.why").drop("_kq", "_why")

    def unexpected(self, rows: DataFrame) -> list[int]:
        """The ids in these rows that have no branch. If they are many, only those that the registry has."""
        strangers = rows.where(f"schema_id NOT IN ({', '.join(map(str, self.writers))})").select("schema_id")
        if strangers.isEmpty():  # nearly always, and to look takes no shuffle
            return []
        found = sorted(row["schema_id"] for row in strangers.distinct().collect())
        if len(found) <= MOST:
            return found
        known = {number for subject in self.registry.subjects() for number in self.registry.ids(subject)}
        return [number for number in found if number in known]

    def _said(self, number: int) -> str:
        """What the registry has to say of an id without a branch: its cause and a sentence."""
        try:
            name = form.name(self.registry.schema(number))
        except UnknownSchema:
            return f"unknown id: the registry has no schema {number}"
        if number in self.registry.ids(self.subject):
            return f"new schema: schema {number} was registered after this frame was made: decode it again"
        return f"wrong schema: schema {number} ({name}) is of another subject than '{self.subject}'"

    def _branches(self, end: bytes) -> Column:
        from pyspark.sql import functions as f

        column: Any = None
        for number, writer in self.writers.items():
            head = f.lit(HEAD.pack(MAGIC, number))
            value = _decoded(writer, self.reader, end)
            mine = f.substring("value", 1, HEAD.size) == head
            column = f.when(mine, value) if column is None else column.when(mine, value)
        return column


def good(rows: DataFrame) -> DataFrame:
    """Of `Decoded.rows` those that were decoded, their bytes replaced by the value."""
    quoted = (f"`{name.replace('`', '``')}`" for name in rows.columns if name != "_kq")
    names = ["_kq.value AS value" if name == "`value`" else name for name in quoted]
    return rows.where("_kq is not null").selectExpr(*names)


def _end() -> bytes:
    """Random bytes of which the first comes once: no end of them is their beginning, so they fit in one place only."""
    first, *rest = secrets.token_bytes(END)
    return bytes([first, *((each + (each == first)) % 256 for each in rest)])


def _id() -> Column:
    """The schema's id of a row that has a head."""
    from pyspark.sql import functions as f

    framed = (f.length("value") >= HEAD.size) & (f.substring("value", 1, 1) == f.lit(bytes([MAGIC])))
    return f.when(framed, f.conv(f.hex(f.substring("value", 2, 4)), 16, 10).cast("long"))


def _decoded(writer: str, reader: str, end: bytes) -> Column:
    """One version's value, and the bytes behind it."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    body = f.expr(f"substring(value, {HEAD.size + 1})")
    if writer == reader == '"bytes"':  # Confluent's clients leave out Avro's length before bare bytes
        return f.struct(body.alias("value"), f.lit(end).alias("end"))
    options = {"mode": "PERMISSIVE", "avroSchema": _with_end(reader)}
    return from_avro(f.concat(body, f.lit(end)), _with_end(writer), options)


def _with_end(schema: str) -> str:
    """The schema of a value with the end behind it; without a namespace, so that the value's own names stay what they are."""
    end = {"type": "fixed", "name": "KqEnd", "size": END}
    fields = [{"name": "value", "type": json.loads(schema)}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "KqWhole", "fields": fields})
