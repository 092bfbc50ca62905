"""Schemas to try things on, and a way to make many: used by the tests of kqlib.schemas."""

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
