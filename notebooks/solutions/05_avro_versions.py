"""The exercises of 05-avro-versions: the five bytes, fields without a value, and a topic that is cleaned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer

import kqlib as kq
from kqlib.errors import CorruptPayload, IncompatibleSchema, UnknownSchema
from kqlib.kafka import reading
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def take_apart(message: bytes) -> tuple[int, bytes] | None:
    if len(message) < 5 or message[0] != 0:
        return None
    return int.from_bytes(message[1:5], "big"), message[5:]


def little_end_first(message: bytes) -> tuple[int, bytes] | None:
    """The id's largest byte comes first: int.from_bytes(…, "big")."""
    if len(message) < 5 or message[0] != 0:
        return None
    return int.from_bytes(message[1:5], "little"), message[5:]


def last_byte_alone(message: bytes) -> tuple[int, bytes] | None:
    """The id has four bytes, not one: ids grow past 255."""
    if len(message) < 5 or message[0] != 0:
        return None
    return message[4], message[5:]


def any_magic(message: bytes) -> tuple[int, bytes] | None:
    """You never look at the first byte. It must be 0; a JSON text begins with 123."""
    return (int.from_bytes(message[1:5], "big"), message[5:]) if len(message) >= 5 else None


def any_length(message: bytes) -> tuple[int, bytes] | None:
    """Three bytes cannot hold an id. Check the length first."""
    if not message or message[0] != 0:
        return None
    return int.from_bytes(message[1:5], "big"), message[5:]


def with_a_value(message: bytes) -> tuple[int, bytes] | None:
    """A record without fields is encoded in no bytes. Five bytes are a whole message."""
    return take_apart(message) if len(message) > 5 else None


FIVE_BYTES = Exercise(
    id="05.1",
    ask="one magic byte that is 0, four bytes of id with the largest first, and the rest is the value",
    task="return the schema's id as a number and the bytes behind it, or None",
    cases=[
        Case((b"\x00\x00\x00\x00\x01\x0eARS-CHE",), (1, b"\x0eARS-CHE"), "schema 1, then the value"),
        Case((b"\x00\x00\x01\x00\x02\x06",), (65538, b"\x06"), hint="The id is message[1:5], largest byte first."),
        Case((b'{"game": "ARS-CHE"}',), None, hint="This is JSON. Which byte tells you?"),
        Case((b"\x00\x00\x00",), None, hint="Three bytes have no space for an id."),
        Case((b"",), None, hint="There is no first byte here."),
        Case((b"\x00\x00\x00\x00\x07",), (7, b""), hint="A record without fields takes no bytes."),
    ],
    hints=(
        "message[0] is the magic byte, message[1:5] the id, message[5:] the value. What if there are fewer than five?",
        'int.from_bytes(message[1:5], "big") takes the largest byte first, as Kafka does everywhere.',
    ),
    solution=take_apart,
    wrong=(little_end_first, last_byte_alone, any_magic, any_length, with_a_value),
)


def lacks(reader: dict, writer: list) -> list:
    return [
        name
        for name, field in reader.items()
        if name not in writer and "default" not in field and not set(field.get("aliases", [])) & set(writer)
    ]


def lacks_without_aliases(reader: dict, writer: list) -> list:
    """An alias of the reader's field may be a field of the writer."""
    return [name for name, field in reader.items() if name not in writer and "default" not in field]


def lacks_without_defaults(reader: dict, writer: list) -> list:
    """A field with a default gets its value from there."""
    return [name for name, field in reader.items() if not {name, *field.get("aliases", [])} & set(writer)]


def truthy_defaults(reader: dict, writer: list) -> list:
    """An empty text and None are defaults too. Ask whether "default" is in the field, not what it is."""
    return [name for name in lacks_without_defaults(reader, writer) if not reader[name].get("default")]


def the_other_way_round(reader: dict, writer: list) -> list:
    """You return the writer's fields that the reader does not know. Those are skipped. Go through the reader's fields."""
    return [name for name in writer if name not in reader]


LACKS = Exercise(
    id="05.2",
    ask="a field of the reader comes from the writer's field of its name or of an alias, or from its own default",
    task="return a list: the names of the reader's fields that get no value",
    cases=[
        Case(({"game": {}, "minute": {}}, ["game", "minute"]), [], "the same fields"),
        Case(({"game": {}}, ["game", "minute"]), [], "what the reader does not know is skipped"),
        Case(({"game": {}, "stadium": {}}, ["game"]), ["stadium"], hint="Nothing gives this field a value."),
        Case(({"game": {}, "customer": {"default": ""}}, ["game"]), [], hint="A default may be empty."),
        Case(({"player": {"default": None}}, []), [], hint="A default may be None."),
        Case(({"minute": {"aliases": ["min"]}}, ["min"]), [], hint="Which name does the writer use for minute?"),
        Case(({"min": {}}, ["minute"]), ["min"], hint="An alias works in the reader's schema only."),
    ],
    hints=(
        "Go through the reader's fields, not the writer's. For each there are three ways to a value: name, alias, default.",
        'An empty or null default is a default too: ask "default" in field, not what it is.',
    ),
    solution=lacks,
    wrong=(lacks_without_aliases, lacks_without_defaults, truthy_defaults, the_other_way_round),
)


def clean_topic(messages: list, codec: Any, producer: Any, clean: str, aside: str) -> list:
    later = []
    for message in messages:
        try:
            event = codec.decode(message.value())
        except UnknownSchema:
            later.append(message.value())
        except (CorruptPayload, IncompatibleSchema):
            producer.produce(aside, message.value(), message.key())
        else:
            producer.produce(clean, codec.encode(event), message.key())
    producer.flush()
    return later


def one_except_for_all(messages: list, codec: Any, producer: Any, clean: str, aside: str) -> list:
    for message in messages:
        try:
            event = codec.decode(message.value())
        except Exception:
            producer.produce(aside, message.value(), message.key())
        else:
            producer.produce(clean, codec.encode(event), message.key())
    producer.flush()
    return []


def as_they_are(messages: list, codec: Any, producer: Any, clean: str, aside: str) -> list:
    later = []
    for message in messages:
        try:
            codec.decode(message.value())
        except UnknownSchema:
            later.append(message.value())
        except (CorruptPayload, IncompatibleSchema):
            producer.produce(aside, message.value(), message.key())
        else:
            producer.produce(clean, message.value(), message.key())
    producer.flush()
    return later


def drops_the_broken(messages: list, codec: Any, producer: Any, clean: str, aside: str) -> list:
    later = []
    for message in messages:
        try:
            event = codec.decode(message.value())
        except UnknownSchema:
            later.append(message.value())
        except CorruptPayload:
            continue
        else:
            producer.produce(clean, codec.encode(event), message.key())
    producer.flush()
    return later


def stops_at_the_first(messages: list, codec: Any, producer: Any, clean: str, aside: str) -> list:
    for message in messages:
        producer.produce(clean, codec.encode(codec.decode(message.value())), message.key())
    producer.flush()
    return []


def without_flush(messages: list, codec: Any, producer: Any, clean: str, aside: str) -> list:
    later = []
    for message in messages:
        try:
            event = codec.decode(message.value())
        except UnknownSchema:
            later.append(message.value())
        except CorruptPayload:
            producer.produce(aside, message.value(), message.key())
        else:
            producer.produce(clean, codec.encode(event), message.key())
    return later


def skips_tombstones(messages: list, codec: Any, producer: Any, clean: str, aside: str) -> list:
    return clean_topic([each for each in messages if each.value()], codec, producer, clean, aside)


def dirty(registry: Any, subject: str) -> tuple[list[tuple[bytes, bytes | None]], dict[str, int]]:
    """Records as (key, value): five events of each version, a tombstone, four of another kind; and how many of each there are."""
    records: list[tuple[bytes, bytes | None]] = []
    for version in kq.games.VERSIONS:
        codec = registry.codec(subject, kq.games.schema(version))
        for value in kq.games.values(kq.games.events(5), version):
            records.append((value["game"].encode(), codec.encode(value)))
    good = records[-1][1] or b""
    records.insert(3, (b"LIV-MUN", None))
    records.insert(7, (b"json", json.dumps({"game": "ARS-CHE"}).encode()))
    records.insert(9, (b"unknown", bytes([0, 0, 0, 0, 99]) + good[5:]))
    records.insert(12, (b"short", good[:-3]))
    records.insert(14, (b"long", good + b"!!"))
    return records, {"clean": 21, "aside": 3}


def _decoded(codec: Any, record: Any) -> Any:
    try:
        return codec.decode(record.value())
    except Exception as error:
        return type(error).__name__


def cleaning(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Send a dirty topic, let the answer clean it, and look into the two topics."""
    cluster = kafka()
    registry = kq.schemas.Registry()
    records, counts = dirty(registry, "dirty-value")
    codec = registry.codec("dirty-value", kq.games.schema(4))
    topics = [new_topic(cluster) for _ in range(3)]
    source, clean, aside = topics
    sender = Producer(cluster.client())
    for key, value in records:
        sender.produce(source, value, key)
    sender.flush(20)
    messages = reading.records(cluster, source)[0]
    # What is not flushed is not sent, however slow the machine is.
    producer = Producer(cluster.client(linger_ms=10_000))
    call = "answer(25 messages, …)"
    try:
        later = answer(messages, codec, producer, clean, aside)
    except (CorruptPayload, UnknownSchema, IncompatibleSchema) as error:
        hint = "One bad message must not stop the others. Which exceptions can codec.decode raise?"
        yield Tried(call, type(error).__name__, "a list", hint=hint)
        return
    producer.purge()
    producer.flush(1)
    in_clean, in_aside = (reading.records(cluster, topic)[0] for topic in (clean, aside))
    unknown = [value for key, value in records if key == b"unknown"]
    missing = "Records are missing. Is anything still in the producer's buffer when you return?"
    if in_clean or in_aside:
        missing = "Is each good event there, and the tombstone? codec.decode(None) is None, and codec.encode(None) too."
    yield Tried(f"records in `clean` after {call}", len(in_clean), counts["clean"], hint=missing)
    broken = [(key, value) for key, value in records if key in (b"json", b"short", b"long")]
    found = [(record.key(), record.value()) for record in in_aside]
    lost = "Bytes that no reader can decode belong in `aside`, unchanged and with their key."
    if any(key == b"unknown" for key, _ in found):
        lost = "UnknownSchema is no broken message: the registry may know its schema later. Return its value instead."
    yield Tried(f"keys in `aside` after {call}", [key for key, _ in found], [key for key, _ in broken], hint=lost)
    yield Tried("the bytes in `aside`", found == broken, True, "what is put aside stays as it was", lost)
    versions = {kq.schemas.split(record.value()).id for record in in_clean if record.value()}
    newest = "Encode the event again: codec.encode writes version 4."
    yield Tried("the schema ids in `clean`", sorted(versions), [4], "every event is in version 4", newest)
    wanted = [
        (key, codec.decode(value)) for key, value in records if key not in {b"json", b"short", b"long", b"unknown"}
    ]
    same = [(record.key(), _decoded(codec, record)) for record in in_clean] == wanted
    order = "The same keys and events, in the order of the messages."
    yield Tried("the keys and events in `clean`", "right" if same else "others", "right", "each with its key", order)
    yield Tried(
        call, later, unknown, "a later try may know the schema", "Return a list of the values with an unknown id."
    )


CLEAN = Exercise(
    id="05.3",
    ask="a good event is written anew, a broken one is put aside as it is, one with an unknown schema waits",
    task="write good events to clean in version 4, broken ones to aside as they are; return those with an unknown schema",
    probe=cleaning,
    hints=(
        "Put try … except … else around codec.decode(message.value()). The three exceptions are in kq.errors.",
        "CorruptPayload and IncompatibleSchema: produce the same bytes to aside. UnknownSchema: append them to the list. Then flush.",
    ),
    solution=clean_topic,
    wrong=(one_except_for_all, as_they_are, drops_the_broken, stops_at_the_first, without_flush, skips_tombstones),
    seconds=60,
)
