"""Values as bytes: what is read back, what is refused, and an error for every kind of bad bytes."""

from __future__ import annotations

import contextlib
import io
import json
from datetime import date
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings, strategies as st

from kqlib.errors import BadPayload, CorruptPayload, IncompatibleSchema, KqError, NotAllowed, UnknownSchema
from kqlib.schemas import Codec, Message, Registry, split
from kqlib.workshop import games
from kqlib.workshop.decoding import samples
from tests.unit.schema_examples import array, enum, field, fixed, inner, one, record, records, table

SEEN = settings(max_examples=40, deadline=None, database=None, derandomize=True)
V4 = games.schema(4)
GOAL = games.values(games.events(40), 4)[8]
CONTEXT = SerializationContext("games", MessageField.VALUE)


@pytest.fixture(scope="module")
def codec(registry: Registry) -> Codec:
    return registry.codec("games-value")


# --- the bytes ---------------------------------------------------------------------------------------------------------


def test_a_message_taken_apart(codec: Codec) -> None:
    data = codec.encode(GOAL)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, json.loads(V4), GOAL)
    assert data[:5] == b"\x00\x00\x00\x00\x04"
    assert split(data) == Message(0, 4, buffer.getvalue())


@pytest.mark.parametrize("version", games.VERSIONS)
def test_the_bytes_are_those_of_confluents_serializer_and_each_reads_the_other(
    registry: Registry, version: int
) -> None:
    schema = games.schema(version)
    ours, theirs = registry.codec("games-value", schema), AvroSerializer(registry.client, schema)
    for value in games.values(games.events(30) + games.events(30, sport="basketball"), version):
        data = theirs(value, CONTEXT)
        assert ours.encode(value) == data
        assert ours.decode(data) == value == AvroDeserializer(registry.client)(data, CONTEXT)


def test_a_schema_that_is_bytes_alone_is_written_bare_as_confluents_clients_do(registry: Registry) -> None:
    ours = registry.codec("bare-value", "bytes")
    theirs = AvroSerializer(registry.client, '"bytes"')(b"\x01abc", SerializationContext("bare", MessageField.VALUE))
    assert ours.encode(b"\x01abc") == theirs == b"\x00" + ours.id.to_bytes(4, "big") + b"\x01abc"
    assert ours.decode(theirs) == b"\x01abc"
    assert registry.codec("other-value", ["null", "bytes"]).decode(theirs) == b"\x01abc"
    with pytest.raises(IncompatibleSchema, match="as a whole: bytes cannot become int"):
        registry.codec("third-value", "int").decode(theirs)
    with pytest.raises(BadPayload, match="this schema takes bytes, not 'abc'"):
        ours.encode("abc")


@SEEN
@given(records())
def test_whatever_fits_a_schema_comes_back(schema: Any) -> None:
    codec = SHARED.codec("any", schema)
    for value in samples(schema):
        assert codec.decode(codec.encode(value)) == value


SHARED = Registry("NONE")


def test_a_tombstone_stays_one(codec: Codec) -> None:
    assert codec.encode(None) is None
    assert codec.decode(None) is None


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_is_read(codec: Codec, form: Any) -> None:
    assert codec.decode(form(codec.encode(GOAL))) == GOAL


def test_a_codec_without_a_schema_reads_each_message_as_it_was_written(registry: Registry) -> None:
    reads = registry.codec()
    for version in games.VERSIONS:
        value = games.values(games.events(40), version)[8]
        assert reads.decode(registry.codec("games-value", games.schema(version)).encode(value)) == value
    assert repr(reads) == "Codec(reads only)"


def test_an_old_message_is_read_into_the_new_schema(registry: Registry, codec: Codec) -> None:
    old = registry.codec("games-value", games.schema(1))
    value = codec.decode(old.encode(games.values(games.events(40), 1)[8]))
    assert (value["minute"], value["customer"], value["player"]) == (6, "", None)
    assert repr(old) == "Codec('games-value', schema 1)"


def test_a_new_message_is_refused_by_a_reader_that_is_too_old(registry: Registry, codec: Codec) -> None:
    with pytest.raises(IncompatibleSchema) as caught:
        registry.codec("games-value", games.schema(1)).decode(codec.encode(GOAL))
    assert (
        str(caught.value)
        == "schema 1 cannot read what schema 4 wrote at 'number': long cannot become int (rule: other type)"
    )


def test_broken_bytes_are_broken_for_every_reader(registry: Registry, codec: Codec) -> None:
    with pytest.raises(CorruptPayload, match="they are of schema 4"):
        registry.codec("games-value", games.schema(1)).decode(codec.encode(GOAL)[:-3])


# --- bytes that are something else -------------------------------------------------------------------------------------


def bad_bytes(good: bytes) -> dict[str, tuple[bytes, type[KqError], str]]:
    return {
        "empty": (b"", CorruptPayload, "0 bytes: a message has five bytes of head before its value"),
        "one byte": (b"\0", CorruptPayload, "1 byte: a message has five bytes of head before its value"),
        "wrong magic": (b"\x01" + good[1:], CorruptPayload, "the first byte is 1, not 0: not written by a client"),
        "JSON": (b'{"game": "ARS-CHE"}', CorruptPayload, "this is JSON, not Avro: it begins with"),
        "unknown id": (
            good[:1] + b"\0\0\0\x63" + good[5:],
            UnknownSchema,
            "schema 99 is not in this registry (in memory)",
        ),
        "head alone": (
            good[:5],
            CorruptPayload,
            "5 bytes that say they are of schema 4 (Event): they end in the middle",
        ),
        "one byte left": (good + b"!", CorruptPayload, "1 byte left over after a value of schema 4: these are not its"),
        "no text": (
            good[:5] + b"\x02\x00\x04\xff\xfe",
            CorruptPayload,
            "10 bytes that say they are of schema 4 (Event): they",
        ),
        "no symbol": (
            good[:5] + b"\x02\x40",
            CorruptPayload,
            "7 bytes that say they are of schema 4 (Event): they are no value",
        ),
    }


@pytest.mark.parametrize("kind", bad_bytes(b"\0" * 30))
def test_every_kind_of_bad_bytes_has_a_name_and_a_sentence(codec: Codec, kind: str) -> None:
    data, error, words = bad_bytes(codec.encode(GOAL))[kind]
    with pytest.raises(error) as caught:
        codec.decode(data)
    assert str(caught.value).startswith(words)


def test_no_beginning_of_a_message_passes_for_one(codec: Codec) -> None:
    data = codec.encode(GOAL)
    for cut in range(len(data)):
        with pytest.raises(CorruptPayload):
            codec.decode(data[:cut])


NAMED = (CorruptPayload, UnknownSchema, IncompatibleSchema)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(lambda data: b"\0\0\0\0\x04" + data)))
def test_random_bytes_never_raise_anything_but_the_named_errors(data: bytes) -> None:
    for reader in READERS:
        with contextlib.suppress(NAMED):
            reader.decode(data)
        with contextlib.suppress(CorruptPayload):
            split(data)


@SEEN
@given(records(), st.lists(st.binary(max_size=30), min_size=5, max_size=5))
def test_nor_do_they_with_any_other_schema(schema: Any, bodies: list[bytes]) -> None:
    codec = SHARED.codec("any", schema)
    for body in bodies:
        with contextlib.suppress(NAMED):
            codec.decode(b"\0" + codec.id.to_bytes(4, "big") + body)


def readers() -> list[Codec]:
    registry = Registry("NONE")
    made = [registry.codec("games-value", games.schema(version)) for version in games.VERSIONS]
    return [made[0], made[3], registry.codec()]


READERS = readers()

# --- values that do not fit --------------------------------------------------------------------------------------------

CHAIN = record(field("next", ["null", "R"]))
DEEP = record(
    field("n", "int"),
    field("f", "float", default=0),
    field("d", "double", default=0),
    field("ok", "boolean", default=True),
    field("no", "null", default=None),
    field("many", array("int"), default=[]),
    field("by", table("long"), default={}),
    field("in", ["null", inner(field("p", "int"))], default=None),
    field("rec", inner(field("q", "int"), name="K"), default={"q": 0}),
    field("e", enum("x", "y"), default="x"),
    field("x", fixed(2), default="ab"),
    field("when", {"type": "int", "logicalType": "date"}, default=0),
)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n": 1.5}, "'n' takes a whole number of 32 bits, not 1.5 (float)"),
        ({"n": 2**31}, "'n' takes a whole number of 32 bits, not 2147483648 (int)"),
        ({"n": True}, "'n' takes a whole number of 32 bits, not True (bool)"),
        ({}, "'n' is missing, and it has no default"),
        ({"n": 1, "m": 2}, "'m' is no field of 'R'; it has n, f, d, ok"),
        ({"n": 1, "f": 1e300}, "'f' takes a number of 32 bits, not 1e+300 (float)"),
        ({"n": 1, "f": "1"}, "'f' takes a number of 32 bits, not '1' (str)"),
        ({"n": 1, "d": "1"}, "'d' takes a number, not '1' (str)"),
        ({"n": 1, "ok": "no"}, "'ok' takes True or False, not 'no' (str)"),
        ({"n": 1, "ok": 0}, "'ok' takes True or False, not 0 (int)"),
        ({"n": 1, "no": 0}, "'no' takes nothing but None, not 0 (int)"),
        ({"n": 1, "many": [1, 2.5]}, "'many[1]' takes a whole number of 32 bits, not 2.5 (float)"),
        ({"n": 1, "many": 5}, "'many' takes a list, not 5 (int)"),
        ({"n": 1, "by": {"k": 2**63}}, "'by{'k'}' takes a whole number of 64 bits"),
        ({"n": 1, "in": {"p": "x"}}, "'in.p' takes a whole number of 32 bits, not 'x' (str)"),
        ({"n": 1, "in": 5}, "'in' takes nothing but None or a dict, not 5 (int)"),
        ({"n": 1, "rec": {"q": 1.5}}, "'rec.q' takes a whole number of 32 bits, not 1.5 (float)"),
        ({"n": 1, "rec": {"q": 1, "z": 1}}, "'z' is no field in 'rec' of 'K'; it has q"),
        ({"n": 1, "e": "z"}, "'e' takes one of 'x', 'y', not 'z' (str)"),
        ({"n": 1, "x": b"abc"}, "'x' takes 2 bytes, not b'abc' (bytes)"),
        ({"n": 1, "when": "today"}, "'when' takes a value of type date, not 'today' (str)"),
        ({"n": 1, "when": 10**7}, "'when' takes a value of type date, not 10000000 (int)"),  # a year above 9999
        (5, "this schema takes a dict, not 5 (int)"),
        ({"n": "x" * 100}, f"'n' takes a whole number of 32 bits, not '{'x' * 59} … (str)"),
    ],
)
def test_a_value_that_does_not_fit_names_the_field(wrong: Any, words: str) -> None:
    codec = SHARED.codec("deep", DEEP)
    with pytest.raises(BadPayload) as caught:
        codec.encode(wrong)
    start = f"this value does not fit schema {codec.id} of 'deep': "
    assert str(caught.value).startswith(start + words)
    assert str(caught.value).endswith(". Nothing was written")


UUID = {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize("schema", [UUID, ["null", UUID], array(UUID)], ids=str)
def test_a_text_that_no_reader_could_read_as_its_logical_type_is_not_written(schema: Any) -> None:
    codec = Registry().codec("s", one(schema))
    good, wrong = ([text] if "items" in schema else text for text in ("00000000-0000-0000-0000-000000000001", "no"))
    assert codec.decode(codec.encode({"a": good}))
    with pytest.raises(BadPayload, match="type uuid, not 'no'"):
        codec.encode({"a": wrong})


MAYBE = field("m", ["null", "int"])
GOAL_OR_NOT = ["null", inner(field("p", "int"), MAYBE)]
# what, schema, a value, the words that name the place
NOT_WHOLE: dict[str, tuple[Any, Any, str]] = {
    "a union with null": (record(field("n", "int"), MAYBE), {"n": 1}, "'m' is missing, and it has no default"),
    "a date": (one(["null", {"type": "int", "logicalType": "date"}]), {}, "'a' is missing, and it has no default"),
    "in a record": (one(inner(MAYBE)), {"a": {}}, "'a.m' is missing, and it has no default"),
    "in a record in a union": (one(GOAL_OR_NOT), {"a": {"p": 1}}, "'a.m' is missing, and it has no default"),
    "in an array": (one(array(inner(MAYBE))), {"a": [{"m": 1}, {}]}, "'a[1].m' is missing, and it has no default"),
    "in a map": (one(table(inner(MAYBE))), {"a": {"k": {}}}, "'a{'k'}.m' is missing, and it has no default"),
    "in a union in an array": (one(array(GOAL_OR_NOT)), {"a": [None, {"p": 1}]}, "'a[1].m' is missing, and it has"),
    "in a record that holds itself": (CHAIN, {"next": {"next": {}}}, "'next.next.next' is missing, and it has no"),
    "in a union at the top": (GOAL_OR_NOT, {"p": 1}, "'m' is missing, and it has no default"),
    "in a branch that is named": (one(GOAL_OR_NOT), {"a": ("I", {"p": 1})}, "'a.m' is missing, and it has no default"),
    "unknown": (one("int"), {"a": 1, "z": 2}, "'z' is no field of 'R'; it has a"),
    "unknown in a record": (one(inner(MAYBE)), {"a": {"m": 1, "z": 2}}, "'z' is no field in 'a' of 'I'; it has m"),
    "unknown in a union": (
        one(GOAL_OR_NOT),
        {"a": {"p": 1, "m": 1, "z": 2}},
        "'z' is no field in 'a' of 'I'; it has p",
    ),
    "unknown in an array": (one(array(GOAL_OR_NOT)), {"a": [{"p": 1, "m": 1, "z": 2}]}, "'z' is no field in 'a[0]' of"),
    "a branch that there is not": (one(GOAL_OR_NOT), {"a": ("Z", {})}, "'a' has no type 'Z'"),
}


@pytest.mark.parametrize(("schema", "value", "words"), NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_a_missing_field_is_never_written_as_null_and_an_unknown_one_never_left_out(
    schema: Any, value: Any, words: str
) -> None:
    with pytest.raises(BadPayload) as caught:
        SHARED.codec("not-whole", schema).encode(value)
    assert f": {words}" in str(caught.value)
    assert str(caught.value).endswith(". Nothing was written")


@pytest.mark.parametrize(
    ("schema", "value", "back"),
    [
        (one(["null", "int"], default=None), {}, {"a": None}),
        (one(["int", "null"], default=7), {}, {"a": 7}),
        (one({"type": "int", "logicalType": "date"}, default=0), {}, {"a": date(1970, 1, 1)}),
        (one(inner(field("m", ["null", "int"], default=None))), {"a": {}}, {"a": {"m": None}}),
        (one(["null", inner(field("q", "int", default=3))]), {"a": {}}, {"a": {"q": 3}}),
        (one(array(["null", inner(field("q", "int", default=3))])), {"a": [{}, None]}, {"a": [{"q": 3}, None]}),
        (one(inner(field("q", "int", default=3), field("m", "int")), default={"m": 1}), {}, {"a": {"q": 3, "m": 1}}),
        (one(inner(field("b", "bytes")), default={"b": "\u00ff"}), {}, {"a": {"b": b"\xff"}}),
        (one(array("bytes"), default=["\u00ff"]), {}, {"a": [b"\xff"]}),
        (one(GOAL_OR_NOT), {"a": ("I", {"p": 1, "m": None})}, {"a": {"p": 1, "m": None}}),
    ],
    ids=str,
)
def test_a_missing_field_takes_its_default(schema: Any, value: Any, back: Any) -> None:
    codec = SHARED.codec("default", schema)
    assert codec.decode(codec.encode(value)) == back


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
        ([{"type": "int", "logicalType": "date"}, "null"], 1, date(1970, 1, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001", Decimal("0.01")),
        (inner(field("q", "int", default=3)), {}, {"q": 3}),
        (array(inner(field("b", "bytes", default="\u00ff"))), [{}], [{"b": b"\xff"}]),
        (table("int"), {"k": 1}, {"k": 1}),
        ("float", "NaN", "NaN"),  # no number: it stays as it is written
    ],
    ids=str,
)
def test_an_old_message_gets_a_default_as_it_would_have_been_read_and_never_that_of_another_message(
    kind: Any, default: Any, value: Any
) -> None:
    registry = Registry(level="NONE")
    old = registry.codec("s", record()).encode({})
    codec = registry.codec("s", one(kind, default=default))
    first = codec.decode(old)["a"]
    assert (first, type(first)) == (value, type(value))
    if isinstance(first, dict | list):
        first.clear()
    assert codec.decode(old)["a"] == value


class Whole(int):
    """numpy's integers are no int either, but whole numbers."""


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ({"n": Whole(3)}, {"n": 3}),
        ({"n": 1, "f": 2, "d": 3}, {"n": 1, "f": 2.0, "d": 3.0}),
        ({"n": 1, "f": float("inf")}, {"n": 1, "f": float("inf")}),
        ({"n": 1, "many": (1, 2)}, {"n": 1, "many": [1, 2]}),
        ({"n": 1, "when": date(2024, 2, 29)}, {"n": 1, "when": date(2024, 2, 29)}),
        ({"n": -(2**31), "by": {"k": -(2**63)}}, {"n": -(2**31), "by": {"k": -(2**63)}}),
    ],
)
def test_what_fits_in_an_unusual_form_is_written(value: Any, back: Any) -> None:
    codec = SHARED.codec("deep", DEEP)
    read = codec.decode(codec.encode(value))
    assert {name: read[name] for name in back} == back


def test_a_default_of_bytes_is_bytes_for_who_writes_and_for_who_reads() -> None:
    schema = record(
        field("b", "bytes", default="\u00ff"),
        field("x", ["null", fixed(2)], default=None),
        field("y", fixed(1, "Y"), default="\u0001"),
    )
    new, old = SHARED.codec("bytes", schema), SHARED.codec("bytes", record())
    assert new.decode(new.encode({})) == new.decode(old.encode({})) == {"b": b"\xff", "x": None, "y": b"\x01"}


def test_a_record_that_holds_itself_is_checked_all_the_way_down() -> None:
    codec = SHARED.codec("chain", record(field("v", "int"), field("next", array("R"))))
    with pytest.raises(BadPayload, match=r"'next\[0\]\.v' takes a whole number"):
        codec.encode({"v": 1, "next": [{"v": 2.5, "next": []}]})


def chain(levels: int) -> bytes:
    return b"\x02" * levels + b"\0"


def test_bytes_of_any_depth_end_in_an_error_and_not_in_a_crash() -> None:
    codec = SHARED.codec("deep-chain", CHAIN)
    head = codec.encode({"next": None})[:5]
    assert codec.decode(head + chain(1)) == {"next": {"next": None}}
    assert codec.decode(head + chain(400))
    for levels in (10_000, 1_000_000):
        with pytest.raises(CorruptPayload, match="RecursionError"):
            codec.decode(head + chain(levels))


def test_a_large_value_that_is_not_deep_is_read() -> None:
    wide = SHARED.codec("wide", record(field("v", "int"), field("many", array("R"))))
    value = {"v": 1, "many": [{"v": number, "many": []} for number in range(2000)]}
    assert wide.decode(wide.encode(value)) == value


def test_a_value_nested_too_deeply_is_refused() -> None:
    codec = SHARED.codec("deep-list", record(field("v", "int"), field("many", array("R"))))
    value: dict[str, Any] = {"v": 1, "many": []}
    for _ in range(3000):
        value = {"v": 1, "many": [value]}
    with pytest.raises(BadPayload, match="it is nested too deeply"):
        codec.encode(value)


# --- wrong arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: SHARED.codec().encode({"a": 1}),
            "this codec reads only: give it a subject to write, registry.codec('football-value', schema)",
        ),
        (
            lambda: SHARED.codec(schema=V4),
            "a schema is registered under a subject: registry.codec('football-value', schema)",
        ),
        (lambda: SHARED.codec("deep", DEEP).decode("text"), "a message is bytes, not str"),
        (lambda: SHARED.codec("deep", DEEP).decode(5), "a message is bytes, not int"),
        (lambda: split(None), "a message is bytes, not NoneType"),
    ],
)
def test_a_wrong_argument_is_named(call: Any, sentence: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        call()
    assert str(caught.value) == sentence
