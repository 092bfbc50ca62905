"""Confluent-framed Avro of many versions, decoded in the JVM: good rows on one side, bad rows with a cause on the other.

In:  a frame with a binary column `value`, a registry, a subject. Out: `Decoded`: `good` and `bad`, together all rows of the frame.

Each schema of the subject has a branch: `when(head == its five bytes, from_avro(body, writer, {'avroSchema': reader}))`. Only bad
rows pass through Python, where fastavro finds the cause (Spark's decoder gives none).

Spark's decoder leaves two things open. A broken record becomes a struct of nulls, which may also be a record of nullable fields. And
bytes after the value are not noticed. So sixteen random bytes follow each body, and each schema has a field that reads them. They come
out whole only if the value took exactly its own bytes. Encoding again to compare lengths would cost more, and it would be wrong for
arrays, which have several encodings. The decoded value passes through an array of one element (`explode_outer`): Spark computes that
once. With a plain column it would decode each row a second time to compare the end.

A version that the reader's schema cannot read would make all its rows bad. `IncompatibleSchema` says so before a row is read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kqlib.errors import CorruptPayload, IncompatibleSchema, NotAllowed, UnknownSchema
from kqlib.schemas import form, rules
from kqlib.schemas.wire import HEAD, MAGIC, Codec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kqlib.schemas import Registry

END = 16
# The reader's schema may still read most values of a version with these reasons. With others every row is bad.
PARTIAL = {"lost symbol", "lost branch"}
MOST = 100  # unexpected ids that the registry is asked for one by one; if there are more, its list of ids is read
ADDED = {"schema_id", "cause", "why", "_kq"}  # columns that decoding adds
CAUSES = {
    "null": "no bytes at all",
    "short": "fewer than the five bytes of the head",
    "magic": "the first byte is not 0: not written by a client of a schema registry",
    "unknown id": "the registry has no schema of that id",
    "wrong schema": "a schema of another subject",
    "new schema": "registered after this frame was made: decode it again",
    "truncated": "the bytes end in the middle of a value",
    "trailing bytes": "bytes are left over after the value",
    "not read": "the reader's schema cannot read this value",
    "broken": "the bytes are no value of their schema",
}
Cause = tuple[str, str]  # its name, and a sentence


def decode(df: DataFrame, registry: Registry, reader: str, *, schema: Any = None) -> Decoded:
    """Decode the column `value`: `decode(items, registry, "football-value").good.select("value.game")`.

    reader: the subject whose versions are expected; its latest schema reads them all, unless `schema` is given.
    good has the columns of df with `value` decoded, and `schema_id`; bad has them as they were, and `schema_id`, `cause`, `why`.
    """
    if not hasattr(df, "columns") or "value" not in df.columns:
        raise NotAllowed("decode(df, …) needs a frame with a column `value` of bytes, as kq.spark.items gives it")
    if taken := sorted(ADDED & set(df.columns)):
        raise NotAllowed(f"the frame has a column '{taken[0]}' already, which decoding adds: rename it")
    if not isinstance(reader, str) or not reader.strip():
        raise NotAllowed(f"reader is a subject of the registry, as in 'football-value', not {reader!r}")
    return Decoded(df, registry, reader, *readable(registry, reader, schema))


def readable(registry: Registry, subject: str, schema: Any = None) -> tuple[str, dict[int, str]]:
    """The reader's schema and those that it reads, by their ids; `IncompatibleSchema` if it reads no row of a version."""
    versions = [registry.version(subject, number) for number in registry.versions(subject)]
    reader = form.canonical(versions[-1].schema if schema is None else schema)
    writers = {each.id: form.canonical(each.schema) for each in versions}
    for each in versions:
        reasons = [reason for reason in rules.compare(reader, writers[each.id]) if reason.rule not in PARTIAL]
        if reasons:
            facts = {"path": reasons[0].path, "rule": reasons[0].rule, "version": each.number}
            version = f"version {each.number} of '{subject}' (schema {each.id})"
            raise IncompatibleSchema(
                f"the reader's schema cannot read {version} {reasons[0]}. Every row of that version would be bad; nothing was decoded",
                **facts,
            )
    return reader, writers


@dataclass(frozen=True)
class Decoded:
    """Rows that were decoded and rows that could not be: `good`, `bad`, or both in one frame, `rows`."""

    df: DataFrame = field(repr=False)
    registry: Registry = field(repr=False)
    subject: str
    reader: str = field(repr=False)
    writers: Mapping[int, str] = field(repr=False)

    @cached_property
    def rows(self) -> DataFrame:
        """Every row of the frame. `_kq.value` is its decoded value; `_kq` is null where it could not be decoded."""
        from pyspark.sql import functions as f

        end = _random_end()
        once = f.explode_outer(f.array(self._branches(end)))
        rows = self.df.select("*", _schema_id().alias("schema_id"), once.alias("_kq"))
        return rows.withColumn("_kq", f.when(f.col("_kq.end") == f.lit(end), f.col("_kq")))

    @cached_property
    def good(self) -> DataFrame:
        """The rows that were decoded."""
        return good(self.rows)

    @cached_property
    def bad(self) -> DataFrame:
        """The rows that were not, as they came, with the name of the cause and a sentence."""
        if self.rows.isStreaming:  # it cannot be read before it runs
            return self.quarantined(self.rows, ())
        return self.quarantined(self.rows, self.unexpected(self.rows))

    def quarantined(self, rows: DataFrame, unexpected: Iterable[int]) -> DataFrame:
        """The bad ones of these rows, with their causes. unexpected: ids in them that the registry is asked for."""
        from pyspark.sql import functions as f

        others = {number: self._cause_of_id(number) for number in unexpected}
        writers, reader = dict(self.writers), self.reader  # not self: a registry cannot travel to an executor
        cause = f.udf(lambda data: cause_of(data, writers, others, reader), "struct<cause: string, why: string>")
        bad = rows.where("_kq is null").withColumn("_why", cause("value"))
        return bad.select("*", "_why.cause", "_why.why").drop("_kq", "_why")

    def unexpected(self, rows: DataFrame) -> list[int]:
        """The ids in these rows that have no branch. If they are many, only those that the registry has."""
        strangers = rows.where(f"schema_id NOT IN ({', '.join(map(str, self.writers))})").select("schema_id")
        if strangers.isEmpty():  # nearly always, and it takes no shuffle
            return []
        found = sorted(row["schema_id"] for row in strangers.distinct().collect())
        if len(found) <= MOST:
            return found
        known = {number for subject in self.registry.subjects() for number in self.registry.ids(subject)}
        return [number for number in found if number in known]

    def _cause_of_id(self, number: int) -> Cause:
        """The cause of a row whose id has no branch."""
        try:
            name = form.name(self.registry.schema(number))
        except UnknownSchema:
            return "unknown id", f"the registry has no schema {number}"
        if number in self.registry.ids(self.subject):
            return "new schema", f"schema {number} was registered after this frame was made: decode it again"
        return "wrong schema", f"schema {number} ({name}) is of another subject than '{self.subject}'"

    def _branches(self, end: bytes) -> Column:
        from pyspark.sql import functions as f

        column: Any = f  # f.when(…).when(…)
        for number, writer in self.writers.items():
            mine = f.substring("value", 1, HEAD.size) == f.lit(HEAD.pack(MAGIC, number))
            column = column.when(mine, _decoded(writer, self.reader, end))
        return column


def good(rows: DataFrame) -> DataFrame:
    """Of `Decoded.rows` those that were decoded, with the value in place of its bytes."""
    quoted = (f"`{name.replace('`', '``')}`" for name in rows.columns if name != "_kq")
    names = ["_kq.value AS value" if name == "`value`" else name for name in quoted]
    return rows.where("_kq is not null").selectExpr(*names)


def _random_end() -> bytes:
    """Random bytes that contain the first one only once. So no end of them is their beginning, and they fit in one place only."""
    first, *rest = secrets.token_bytes(END)
    return bytes([first, *((each + (each == first)) % 256 for each in rest)])


def _schema_id() -> Column:
    """The schema's id in a row that has a head."""
    from pyspark.sql import functions as f

    framed = (f.length("value") >= HEAD.size) & (f.substring("value", 1, 1) == f.lit(bytes([MAGIC])))
    return f.when(framed, f.conv(f.hex(f.substring("value", 2, 4)), 16, 10).cast("long"))


def _decoded(writer: str, reader: str, end: bytes) -> Column:
    """A value of one version, and the bytes behind it."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    body = f.expr(f"substring(value, {HEAD.size + 1})")
    if writer == reader == '"bytes"':  # Confluent's clients leave out Avro's length before bare bytes
        return f.struct(body.alias("value"), f.lit(end).alias("end"))
    options = {"mode": "PERMISSIVE", "avroSchema": _with_end(reader)}
    return from_avro(f.concat(body, f.lit(end)), _with_end(writer), options)


def _with_end(schema: str) -> str:
    """The schema of a value and the end behind it. It has no namespace, so that the names in the value stay what they are."""
    end = {"type": "fixed", "name": "KqEnd", "size": END}
    fields = [{"name": "value", "type": json.loads(schema)}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "KqWhole", "fields": fields})


# --- why a row could not be decoded: runs on an executor, for bad rows only ------------------------------------------------


def cause_of(data: bytes | None, writers: Mapping[int, str], others: Mapping[int, Cause], reader: str) -> Cause:
    """Why these bytes could not be decoded. others: the causes of ids that are not in `writers`."""
    if data is None:
        return "null", CAUSES["null"]

    def schema(number: int) -> str:
        if number not in writers:
            cause, why = others.get(number, ("unknown id", f"schema {number} is none of those that are expected here"))
            raise UnknownSchema(why, cause=cause)
        return writers[number]

    codec = Codec(SimpleNamespace(schema=schema))  # it registers nothing
    codec.schema = reader
    try:
        codec.decode(bytes(data))
    except (CorruptPayload, UnknownSchema) as error:
        return str(error.facts["cause"]), str(error)
    except IncompatibleSchema as error:
        return "not read", str(error)
    except Exception as error:  # a schema that fastavro cannot use
        return "broken", f"{type(error).__name__}: {error}"
    return "not read", "fastavro reads this value and Spark does not"
