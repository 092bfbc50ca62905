"""Java's own Avro, from Spark's jars: `rules.java` knows its verdict, and where kqlib is stricter Java reads another value."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kqlib.schemas import canonical, compare, rules
from tests.unit.schema_examples import LOGICAL, one, records
from tests.unit.test_schemas_rules import CASES

SEEN = settings(max_examples=40, deadline=None, database=None, derandomize=True)
TIMES = (
    "Date",
    "TimeMillis",
    "TimeMicros",
    *(f"{each}{unit}" for each in ("Timestamp", "LocalTimestamp") for unit in ("Millis", "Micros", "Nanos")),
)
# The specification wants both precision and scale to be the same; the value itself does not change by the precision.
SAME_VALUE = {"a decimal's precision grows", "a decimal's precision shrinks"}


@pytest.fixture
def avro(spark: Any) -> Any:
    """The package org.apache.avro in Spark's JVM."""
    return spark.sparkContext._jvm.org.apache.avro


def accepts(avro: Any, reader: Any, writer: Any) -> bool:
    """What SchemaCompatibility says; it raises where a field of the reader has two sources."""
    both = (avro.Schema.Parser().parse(canonical(each)) for each in (reader, writer))
    try:
        return str(avro.SchemaCompatibility.checkReaderWriterCompatibility(*both).getType()) == "COMPATIBLE"
    except Py4JJavaError as error:
        assert "matches multiple fields" in str(error.java_exception)
        return False


def read(avro: Any, data: bytes, writer: Any, reader: Any) -> str:
    """The value as Java reads it, as text; or the name of the exception."""
    model = avro.generic.GenericData()
    for name in TIMES:
        model.addLogicalTypeConversion(getattr(avro.data.TimeConversions, f"{name}Conversion")())
    for name in ("Decimal", "UUID", "Duration"):
        model.addLogicalTypeConversion(getattr(avro.Conversions, f"{name}Conversion")())
    old, new = (avro.Schema.Parser().parse(canonical(each)) for each in (writer, reader))
    decoder = avro.io.DecoderFactory.get().binaryDecoder(data, None)
    try:
        return str(avro.generic.GenericDatumReader(old, new, model).read(None, decoder).toString())
    except (Py4JJavaError, PySparkException) as error:  # PySpark has its own classes for some of Java's
        return type(error).__name__


def test_javas_verdict_is_javas(avro: Any) -> None:
    pairs = {what: (reader, writer) for what, (reader, writer, *_) in (CASES | LOGICAL).items()}
    ours = {what: rules.java(*pair) for what, pair in pairs.items()}
    assert {what: accepts(avro, *pair) for what, pair in pairs.items()} == ours
    assert all(ours[what] for what in LOGICAL)  # it looks at none of them


def test_javas_verdict_is_javas_of_schemas_that_nobody_thought_of(avro: Any) -> None:
    @SEEN
    @given(records(), records())
    def agree(reader: Any, writer: Any) -> None:
        assert rules.java(reader, writer) == accepts(avro, reader, writer)

    agree()


@pytest.mark.parametrize("what", [what for what, (*_, fits) in LOGICAL.items() if not fits])
def test_what_we_refuse_and_java_accepts_is_another_value_in_java(avro: Any, what: str) -> None:
    reader, writer, value, _ = LOGICAL[what]
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(writer), value)
    before, after = (read(avro, buffer.getvalue(), *map(one, (writer, each))) for each in (writer, reader))
    assert compare(one(reader), one(writer))
    assert (before == after) == (what in SAME_VALUE)
