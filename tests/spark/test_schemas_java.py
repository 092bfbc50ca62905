"""Java's own Avro, from Spark's jars: what `rules.java` says of it is true, and where we are stricter its value really changes."""

from __future__ import annotations

import gc
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyspark
import pytest
from hypothesis import given, settings
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from kqlib.runtime import java
from kqlib.schemas import canonical, compare, rules
from tests.patience import WAIT
from tests.unit.schema_examples import LOGICAL, one, records
from tests.unit.test_schemas_rules import CASES

SEEN = settings(max_examples=40, deadline=None, database=None, derandomize=True)
JARS = Path(pyspark.__path__[0]) / "jars"
NEEDED = (
    "avro-1",
    "jackson-core-2",
    "jackson-databind-2",
    "jackson-annotations-2",
    "slf4j-api-2",
    "commons-compress-1",
)
TIMES = (
    "Date",
    "TimeMillis",
    "TimeMicros",
    *(f"{each}{unit}" for each in ("Timestamp", "LocalTimestamp") for unit in ("Millis", "Micros", "Nanos")),
)
# The specification wants both precision and scale to be the same; the value itself does not change by the precision.
SAME_VALUE = {"a decimal's precision grows", "a decimal's precision shrinks"}


@pytest.fixture(scope="module")
def avro() -> Iterator[Any]:
    """The package org.apache.avro in a JVM with nothing else in it."""
    jars = [str(jar) for start in NEEDED for jar in JARS.glob(f"{start}*.jar")]
    port, process = launch_gateway(
        jarpath=str(next(JARS.glob("py4j-*.jar"))),
        classpath=":".join(jars),
        javaopts=["-XX:TieredStopAtLevel=1"],
        java_path=java.find().command,
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    yield gateway.jvm.org.apache.avro
    gateway.shutdown()
    process.stdin.close()
    process.wait(WAIT)
    with warnings.catch_warnings():  # Py4J leaves its sockets to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        del gateway
        gc.collect()


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
    except Py4JJavaError as error:
        return str(error.java_exception.getClass().getName())


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
