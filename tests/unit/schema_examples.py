"""Schemas for the tests of kqlib.schemas, and a strategy that makes many."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def table(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def fixed(size: int, name: str = "X") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def one(kind: Any, **more: Any) -> dict[str, Any]:
    """A record with one field a."""
    return record(field("a", kind, **more))


def inner(*fields: Any, **more: Any) -> dict[str, Any]:
    return record(*fields, **{"name": "I", **more})


P = field("p", "int")
KINDS: tuple[Any, ...] = (
    *("int", "long", "double", "string", "bytes"),
    *(["null", "int"], ["int", "null"], ["null", "long"], ["bytes", "string"], ["string", "null", "bytes"]),
    *(array("int"), array(["null", "long"]), table("string"), table("bytes"), fixed(2), fixed(3)),
    *(enum("x", "y"), enum("x"), enum("x", default="x"), enum("x", "y", name="F", aliases=["E"])),
    *(inner(P), inner(field("p", "long", default=3), field("q", "int", default=3)), ["null", inner(P)]),
    inner(field("q", "long", aliases=["p"]), name="J", aliases=["I"]),
    *(
        ["null", inner(P, field("z", "int"))],
        ["null", fixed(2)],
        ["null", array("string"), "int"],
        ["null", "R"],
        array("R"),
    ),
    *({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}),
)
DEFAULTS = {"int": 1, "long": 1, "double": 1.5, "string": "s", "bytes": "s"}


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Records with the same few names in them, so that two of them often fit, and often just do not."""
    fields, known = [], {"R"}
    for name in draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(0, 3))]:
        kind = draw(st.sampled_from(KINDS))
        names = set(re.findall(r'"name": "([A-Z])"', json.dumps(kind)))
        kind = "int" if names & known else kind  # a schema defines a name once
        known |= names
        more: dict[str, Any] = {}
        if isinstance(kind, str) and draw(st.booleans()):
            more["default"] = DEFAULTS[kind]
        aliases = draw(st.sampled_from([[], [], ["a"], ["b"], ["c", "a"]]))
        if aliases and name not in aliases:
            more["aliases"] = aliases
        fields.append(field(name, kind, **more))
    return record(*fields)


# --- logical types: what, reader, writer, a value as it is stored, and whether the reader may have it ----------------------


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: int, scale: int | None = None, **more: Any) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, **({} if scale is None else {"scale": scale}), **more)


def fixed_as(size: int, name: str, **more: Any) -> dict[str, Any]:
    return fixed(size) | {"logicalType": name, **more}


DATE, TIME_MS, TIME_US = logical("int", "date"), logical("int", "time-millis"), logical("long", "time-micros")
MS, US, NS = (logical("long", f"timestamp-{unit}") for unit in ("millis", "micros", "nanos"))
LOCAL_MS, LOCAL_US = (logical("long", f"local-timestamp-{unit}") for unit in ("millis", "micros"))
UUID = logical("string", "uuid")
WHEN, DAY, NAME = 1_709_208_000_123, 19_782, "00000000-0000-0000-0000-000000000001"
PRICE = b"\x01\xe2\x40"  # 123456

LOGICAL: dict[str, tuple[Any, Any, Any, bool]] = {
    "a decimal's scale grows": (decimal(6, 3), decimal(6, 2), PRICE, False),
    "a decimal's scale shrinks": (decimal(6, 2), decimal(6, 3), PRICE, False),
    "a decimal's precision grows": (decimal(8, 2), decimal(6, 2), PRICE, False),
    "a decimal's precision shrinks": (decimal(4, 2), decimal(6, 2), PRICE, False),
    "a decimal gets a scale": (decimal(6, 2), decimal(6), PRICE, False),
    "the scale of a decimal in a fixed": (
        fixed_as(3, "decimal", precision=6, scale=3),
        fixed_as(3, "decimal", precision=6, scale=2),
        PRICE,
        False,
    ),
    "milliseconds become microseconds": (US, MS, WHEN, False),
    "microseconds become milliseconds": (MS, US, WHEN, False),
    "microseconds become nanoseconds": (NS, US, WHEN, False),
    "nanoseconds become microseconds": (US, NS, WHEN, False),
    "local milliseconds become microseconds": (LOCAL_US, LOCAL_MS, WHEN, False),
    "a time in UTC becomes a local one": (LOCAL_MS, MS, WHEN, False),
    "a local time becomes one in UTC": (MS, LOCAL_MS, WHEN, False),
    "a time of day in milliseconds becomes microseconds": (TIME_US, TIME_MS, 3_723_000, False),
    "a time of day becomes a timestamp": (US, TIME_US, 3_723_000, False),
    "a date becomes a timestamp": (MS, DATE, DAY, False),
    "a date becomes a time of day": (TIME_MS, DATE, DAY, False),
    "a time of day becomes a date": (DATE, TIME_MS, 3_723_000, False),
    "a number becomes a timestamp": (MS, "long", WHEN, False),
    "a smaller number becomes a timestamp": (MS, "int", DAY, False),
    "a number becomes a date": (DATE, "int", DAY, False),
    "bytes become a decimal": (decimal(6, 2), "bytes", PRICE, False),
    "text becomes a decimal": (decimal(6, 2), "string", "abc", False),
    "text becomes a UUID": (UUID, "string", "abc", False),
    "a fixed becomes a duration": (fixed_as(12, "duration"), fixed(12), b"\x01\0\0\0" * 3, False),
    "a timestamp is a number": ("long", MS, WHEN, True),
    "a date is a larger number": ("double", DATE, DAY, True),
    "a UUID is text": ("string", UUID, NAME, True),
    "a decimal is bytes": ("bytes", decimal(6, 2), PRICE, True),
    "the same decimal": (decimal(6, 2, doc="new"), decimal(6, 2), PRICE, True),
    "a decimal without a scale has the scale 0": (decimal(6, 0), decimal(6), PRICE, True),
    "two names that Avro does not define": (logical("long", "metres"), logical("long", "feet"), DAY, True),
    "a date that is text is only text": (logical("string", "date"), "string", "today", True),
    "a decimal without a precision is only bytes": (logical("bytes", "decimal"), "bytes", PRICE, True),
}
