"""What the codec of `kqlib.schemas` costs, next to fastavro alone and to Confluent's serializer.

In: nothing. Out: `measured()`: one round, {what: µs of CPU a value, or a ratio}. `make bench` prints it. In brackets is what the
codec may cost, as a multiple of bare fastavro.

The ways are timed in turn, a few events at a time, so that each meets the same noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import schemaless_reader, schemaless_writer

from kqlib.schemas import Registry
from kqlib.schemas.form import canonical, parsed
from kqlib.workshop import games

EVENTS, PART = 4000, 100
CONTEXT = SerializationContext("bench", MessageField.VALUE)
Ways = dict[str, tuple[Callable[[Any], object], Sequence[Any]]]  # what is called, with each of what


def measured() -> dict[str, float]:
    """One round: every event of a day, by each way."""
    schema, old = games.schema(4), games.schema(3)
    registry = Registry()
    registry.register("bench-value", old)
    codec, older = registry.codec("bench-value", schema), registry.codec("bench-value", old)
    ours, theirs = parsed(canonical(schema)), parsed(canonical(old))
    serializer, deserializer = AvroSerializer(registry.client, schema), AvroDeserializer(registry.client)
    values = games.values(games.events(EVENTS), 4)
    messages = [codec.encode(value) or b"" for value in values]
    before = [older.encode(value) or b"" for value in games.values(games.events(EVENTS), 3)]
    bodies, bodies_before = ([message[5:] for message in each] for each in (messages, before))

    def write(value: Any) -> bytes:
        buffer = BytesIO()
        schemaless_writer(buffer, ours, value)
        return buffer.getvalue()

    cost = _cost(
        {
            "encode, bare fastavro, µs": (write, values),
            "encode, codec, µs": (codec.encode, values),
            "encode, AvroSerializer, µs": (lambda value: serializer(value, CONTEXT), values),
            "decode, bare fastavro, µs": (lambda body: schemaless_reader(BytesIO(body), ours), bodies),
            "decode, codec, µs": (codec.decode, messages),
            "decode, AvroDeserializer, µs": (lambda message: deserializer(message, CONTEXT), messages),
            "decode an older version, bare, µs": (
                lambda body: schemaless_reader(BytesIO(body), theirs, ours),
                bodies_before,
            ),
            "decode an older version, codec, µs": (codec.decode, before),
        }
    )
    ratios = {
        "encode, codec ÷ bare (≤ 1.2)": cost["encode, codec, µs"] / cost["encode, bare fastavro, µs"],
        "decode, codec ÷ bare (≤ 1.5)": cost["decode, codec, µs"] / cost["decode, bare fastavro, µs"],
        "decode older, codec ÷ bare (≤ 1.5)": (
            cost["decode an older version, codec, µs"] / cost["decode an older version, bare, µs"]
        ),
    }
    return cost | ratios


def _cost(ways: Ways) -> dict[str, float]:
    """µs of CPU that one call takes, by way."""
    spent = dict.fromkeys(ways, 0.0)
    for part in range(0, EVENTS, PART):
        for name, (call, things) in ways.items():
            some, start = things[part : part + PART], time.thread_time()
            for thing in some:
                call(thing)
            spent[name] += time.thread_time() - start
    return {name: seconds / EVENTS * 1e6 for name, seconds in spent.items()}
