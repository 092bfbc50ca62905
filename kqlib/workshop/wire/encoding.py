"""Fields and bytes of Kafka's messages: a `Message` reads and writes one kind in one version.

In:  fields, as Kafka's definitions have them. Out: a dict of a message's bytes, and bytes of a dict. A message that was cut off is
read as far as it goes.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FIXED = {
    name: struct.Struct(f">{code}")
    for name, code in {
        "bool": "?",
        "int8": "b",
        "int16": "h",
        "uint16": "H",
        "int32": "i",
        "uint32": "I",
        "int64": "q",
        "float64": "d",
        "uuid": "16s",
    }.items()
}
Values = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """One field of a message in one version."""

    name: str
    type: str  # of its elements, if it is an array
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    fields: tuple[Field, ...] = ()  # of a structure

    def blank(self) -> Any:
        """Its value where nothing else is known."""
        if self.array or self.default == "null":
            return None if self.default == "null" else []
        if self.fields:
            return {each.name: each.blank() for each in self.fields}
        if self.type in FIXED:
            zero = bytes(16) if self.type == "uuid" else 0
            return zero if self.default in (None, "") else _number(self.default)
        return self.default or "" if self.type == "string" else b""


@dataclass(frozen=True)
class Message:
    """A request or an answer of one kind in one version."""

    name: str
    flexible: bool
    fields: tuple[Field, ...]

    def blank(self) -> Values:
        """A message whose fields have their defaults."""
        return {each.name: each.blank() for each in self.fields}

    def read(self, data: bytes, at: int = 0) -> Values:
        """The fields in these bytes, as many as there are."""
        found: Values = {}
        with contextlib.suppress(IndexError, struct.error, EOFError):
            _Reader(data, at, self.flexible).structure(self.fields, found)
        return found

    def write(self, values: Values) -> bytes:
        """The bytes of these fields; those that are missing have their defaults."""
        out = _Writer(self.flexible)
        out.structure(self.fields, self.blank() | values)
        return bytes(out.bytes)


def _number(text: Any) -> Any:
    """A default as JSON has it: a number, 'true', or '0x7fffffff'."""
    if isinstance(text, str):
        return text == "true" if text in ("true", "false") else float(text) if "." in text else int(text, 0)
    return text


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def after_tags(data: bytes, at: int) -> int:
    """Where the tagged fields end that begin here."""
    try:
        count, at = varint(data, at)
        for _ in range(count):
            _, at = varint(data, at)
            size, at = varint(data, at)
            at += size
    except IndexError:
        return len(data)
    return at


class _Reader:
    def __init__(self, data: bytes, at: int, flexible: bool) -> None:
        self.data, self.at, self.flexible = data, at, flexible

    def structure(self, fields: Sequence[Field], into: Values) -> None:
        """Fill in what there is: where the bytes end, the rest stays out."""
        for each in fields:
            if each.tag is None:
                self.value(each, into)
        if self.flexible:
            tagged = {each.tag: each for each in fields if each.tag is not None}
            into |= {each.name: each.blank() for each in tagged.values()}
            for _ in range(self.varint()):
                tag, end = self.varint(), self.varint() + self.at
                if tag in tagged:
                    self.value(tagged[tag], into)
                self.at = end

    def value(self, of: Field, into: Values) -> None:
        if not of.array:
            self.single(of, lambda value: into.__setitem__(of.name, value))
            return
        count = self.length("array")
        items: list[Any] | None = None if count < 0 else []
        into[of.name] = items
        for _ in range(count):
            assert items is not None
            self.single(of, items.append)

    def single(self, of: Field, keep: Callable[[Any], object]) -> None:
        """One value; it is kept before it is complete."""
        if of.fields:
            if of.nullable and not of.array and self.fixed("int8") < 0:
                keep(None)
                return
            inner: Values = {}
            keep(inner)
            self.structure(of.fields, inner)
        elif of.type in FIXED:
            keep(self.fixed(of.type))
        else:
            size = self.length(of.type)
            value = self.data[self.at : self.at + size] if size >= 0 else None
            keep(value.decode(errors="replace") if of.type == "string" and value is not None else value)
            self.at += max(0, size)
            if self.at > len(self.data):
                raise EOFError

    def fixed(self, kind: str) -> Any:
        found = FIXED[kind].unpack_from(self.data, self.at)[0]
        self.at += FIXED[kind].size
        return found

    def length(self, kind: str) -> int:
        if self.flexible:
            return self.varint() - 1
        size: int = self.fixed("int16" if kind == "string" else "int32")
        return size

    def varint(self) -> int:
        value, self.at = varint(self.data, self.at)
        return value


class _Writer:
    def __init__(self, flexible: bool) -> None:
        self.bytes, self.flexible = bytearray(), flexible

    def structure(self, fields: Sequence[Field], values: Values) -> None:
        tagged = []
        for each in fields:
            value = values.get(each.name, each.blank())
            if each.tag is None:
                self.value(each, value)
            elif value != each.blank():
                tagged.append((each, value))
        if self.flexible:
            self.varint(len(tagged))
            for each, value in sorted(tagged, key=lambda pair: pair[0].tag or 0):
                inner = _Writer(True)
                inner.value(each, value)
                self.varint(each.tag or 0)
                self.varint(len(inner.bytes))
                self.bytes += inner.bytes

    def value(self, of: Field, value: Any) -> None:
        if not of.array:
            self.single(of, value)
            return
        self.length("array", -1 if value is None else len(value))
        for each in value or ():
            self.single(of, each)

    def single(self, of: Field, value: Any) -> None:
        if of.fields:
            if of.nullable and not of.array:
                self.bytes += FIXED["int8"].pack(-1 if value is None else 1)
            if value is not None:
                self.structure(of.fields, value)
        elif of.type in FIXED:
            self.bytes += FIXED[of.type].pack(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            self.length(of.type, -1 if data is None else len(data))
            self.bytes += data or b""

    def length(self, kind: str, size: int) -> None:
        if self.flexible:
            self.varint(size + 1)
        else:
            self.bytes += FIXED["int16" if kind == "string" else "int32"].pack(size)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.bytes.append(value & 0x7F | 0x80)
            value >>= 7
        self.bytes.append(value)
