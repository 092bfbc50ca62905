"""Decoding without Spark: the cause of a broken row, and what is refused before a row is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kqlib.errors import IncompatibleSchema, NotAllowed, UnknownSchema
from kqlib.schemas import Registry
from kqlib.schemas.form import canonical
from kqlib.spark import decode, stream
from kqlib.spark.decode import CAUSES, END, _random_end, _with_end, cause_of
from kqlib.workshop import games


class Frame:
    """As much of a DataFrame as is looked at before a plan is made."""

    def __init__(self, *columns: str, streaming: bool = False) -> None:
        self.columns, self.isStreaming = list(columns), streaming


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Event", "fields": list(fields)}


@pytest.fixture(scope="module")
def whole(registry: Registry) -> bytes:
    data = registry.codec("games-value", games.schema(1)).encode(games.values(games.events(1), 1)[0])
    assert data is not None
    return data


@pytest.mark.parametrize(
    ("change", "cause", "words"),
    [
        (lambda data: None, "null", "no bytes at all"),
        (lambda data: b"", "short", "0 bytes: a message has five bytes of head"),
        (lambda data: data[:1], "short", "1 byte: a message has five bytes of head"),
        (lambda data: b'{"game": 1}', "magic", "this is JSON, not Avro"),
        (lambda data: b"\1" + data[1:], "magic", "the first byte is 1, not 0"),
        (lambda data: b"\0\0\0\0\x63" + data[5:], "unknown id", "schema 99 is none of those that are expected here"),
        (lambda data: b"\0\0\0\0\x07" + data[5:], "wrong schema", "schema 7 is of another subject"),
        (lambda data: data[:-1], "truncated", "they end in the middle of a value"),
        (lambda data: data[:5], "truncated", ""),
        (lambda data: data + b"\0", "trailing bytes", "1 byte left over after a value of schema 1"),
        (lambda data: data[:5] + b"\x02\x7e" + data[7:], "broken", "they are no value"),
        (lambda data: data, "not read", "fastavro reads this value and Spark does not"),
    ],
)
def test_every_kind_of_bad_row_has_a_cause(
    registry: Registry, whole: bytes, change: Callable[[bytes], bytes | None], cause: str, words: str
) -> None:
    writers = {number: canonical(registry.schema(number)) for number in registry.ids("games-value")}
    others = {7: ("wrong schema", "schema 7 is of another subject")}
    found, why = cause_of(change(whole), writers, others, writers[max(writers)])
    assert (found, words in why) == (cause, True), why
    assert found in CAUSES


def test_a_value_that_the_readers_schema_has_no_place_for_is_not_called_broken() -> None:
    registry = Registry("NONE")
    colour = {"name": "c", "type": {"type": "enum", "name": "C", "symbols": ["red", "blue"]}}
    red = {"name": "c", "type": {"type": "enum", "name": "C", "symbols": ["red"]}}
    writer, reader = record(colour), canonical(record(red))
    data = registry.codec("c", writer).encode({"c": "blue"})
    cause, why = cause_of(data, {1: canonical(writer)}, {}, reader)
    assert cause == "not read"
    assert "blue" in why


def test_the_bytes_behind_a_value_fit_in_one_place_only() -> None:
    ends = {_random_end() for _ in range(200)}
    assert len(ends) == 200
    for end in ends:
        assert len(end) == END
        assert all(end[:size] != end[-size:] for size in range(1, END))


def test_a_schema_with_an_end_keeps_the_names_of_the_value() -> None:
    plain = json.loads(_with_end(canonical(games.schema(1))))
    assert "namespace" not in plain
    assert plain["fields"][0]["type"]["namespace"] == "kq.games"
    nameless = json.loads(_with_end(canonical(record({"name": "a", "type": "int"}))))
    assert "namespace" not in nameless["fields"][0]["type"]


NUMBER = {"name": "number", "type": "int"}


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (NUMBER, {"name": "number", "type": "string"}, "other type"),
        (
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            "other logical type",
        ),
    ],
)
def test_a_version_of_which_every_row_would_be_bad_is_found_before_any_is_read(
    old: dict[str, Any], new: dict[str, Any], rule: str
) -> None:
    registry = Registry("NONE")
    registry.register("g", record(old))
    registry.register("g", record(new))
    with pytest.raises(
        IncompatibleSchema, match="Every row of that version would be bad; nothing was decoded"
    ) as caught:
        decode(Frame("value"), registry, "g")
    assert (caught.value.facts["rule"], caught.value.facts["version"]) == (rule, 1)


def test_a_forgotten_alias_is_found_before_any_row_is_read(registry: Registry) -> None:
    forgot = json.loads(games.schema(3))
    for field in forgot["fields"]:
        field.pop("aliases", None)
    with pytest.raises(IncompatibleSchema, match=r"cannot read version 1 of 'games-value' \(schema 1\) at 'minute'"):
        decode(Frame("value"), registry, "games-value", schema=forgot)


READER = "reader is a subject of the registry, as in 'football-value', not "
FRAME = "decode(df, …) needs a frame with a column `value` of bytes, as kq.spark.items gives it"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda r: decode("items", r, "games-value"), FRAME),
        (lambda r: decode(Frame("key"), r, "games-value"), FRAME),
        (
            lambda r: decode(Frame("value", "cause"), r, "games-value"),
            "the frame has a column 'cause' already, which decoding adds: rename it",
        ),
        (lambda r: decode(Frame("value"), r, None), f"{READER}None"),
        (lambda r: decode(Frame("value"), r, ""), f"{READER}''"),
        (
            lambda r: stream(Frame("value"), r, "games-value", print, "/c"),
            "stream(df, …) needs a streaming frame, from spark.readStream; decode(df, …) takes any other",
        ),
        (
            lambda r: stream(Frame("value", streaming=True), r, "games-value", 7, "/c"),
            "each is a function of (good, bad, batch), not int",
        ),
    ],
)
def test_a_wrong_argument_is_named(registry: Registry, call: Callable[[Registry], object], sentence: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        call(registry)
    assert str(caught.value) == sentence


def test_a_subject_that_is_not_there_is_cause_of(registry: Registry) -> None:
    with pytest.raises(UnknownSchema, match="subject 'nobody' is not in this registry"):
        decode(Frame("value"), registry, "nobody")
