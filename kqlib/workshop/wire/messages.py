"""Kafka's own message definitions, read from the jar of its clients: a request or an answer becomes a dict, and a dict its bytes.

In:  the jar: common/message/*.json, and the class with the error codes. Out: `Messages`: names of kinds and errors, and a `Message`
for each kind in each version, which reads and writes. A request that was cut off is read as far as it goes.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
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
HEAD = struct.Struct(">ihhih")  # length, kind, version, correlation id, length of the client id
ANSWER = struct.Struct(">ii")  # length, correlation id
PLAIN_HEAD = "ApiVersions"  # its answer has the old head in every version: the client does not know the versions yet
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


@dataclass
class Messages:
    """All definitions of one jar."""

    jar: Path
    _made: dict[tuple[str, int], Message] = field(default_factory=dict)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each definition by its name: ProduceRequest."""
        with zipfile.ZipFile(self.jar) as jar:
            paths = [Path(each) for each in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", each)]
            return {path.stem: jar.read(path.as_posix()).decode() for path in paths}

    @cached_property
    def kinds(self) -> dict[int, str]:
        """The kinds of requests by their numbers: 0 is Produce."""
        found = {}
        for name, text in self.texts.items():
            number = re.search(r'^\s*"apiKey": (\d+)', text, re.MULTILINE)
            if number and name.endswith("Request"):
                found[int(number[1])] = name.removesuffix("Request")
        return found

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The numbers of the kinds by their names."""
        return {name: number for number, name in self.kinds.items()}

    @cached_property
    def errors(self) -> dict[int, str]:
        """Kafka's names of error codes: its enumeration begins at -1, and the class file names its values in their order."""
        with zipfile.ZipFile(self.jar) as jar:
            text = jar.read("org/apache/kafka/common/protocol/Errors.class")
        found = []
        for match in re.finditer(rb"\x01\x00([\x03-\x40])([A-Z][A-Z_0-9]+)", text):
            name = text[match.start(2) : match.start(2) + match[1][0]].decode("latin-1")
            found += [name] if re.fullmatch(r"[A-Z][A-Z_0-9]+", name) else []
        return dict(enumerate(found[: found.index("CODE_TO_ERROR")], -1))

    def request(self, kind: str, version: int) -> Message:
        """The definition of a request."""
        return self._message(f"{kind}Request", version)

    def answer(self, kind: str, version: int) -> Message:
        """The definition of an answer."""
        return self._message(f"{kind}Response", version)

    def newest(self, kind: str) -> int:
        """The newest version of a kind."""
        return _span(self._json(f"{kind}Request")["validVersions"])[1]

    def read_request(self, frame: bytes) -> Values:
        """The fields of a request as it crossed, with its length and its head."""
        _, number, version, _, size = HEAD.unpack_from(frame)
        known = self.request(self.kinds[number], version)
        at = HEAD.size + max(0, size)
        return known.read(frame, _after_tags(frame, at) if known.flexible else at)

    def read_answer(self, kind: str, version: int, frame: bytes) -> Values:
        """The fields of an answer as it crossed."""
        known = self.answer(kind, version)
        tagged = known.flexible and kind != PLAIN_HEAD
        return known.read(frame, _after_tags(frame, ANSWER.size) if tagged else ANSWER.size)

    def write_request(self, kind: str, version: int, correlation: int, client: str, values: Values) -> bytes:
        """A whole request."""
        known, name = self.request(kind, version), client.encode()
        body = name + bytes(known.flexible) + known.write(values)
        head = HEAD.pack(HEAD.size - 4 + len(body), self.numbers[kind], version, correlation, len(name))
        return head + body

    def write_answer(self, kind: str, version: int, correlation: int, values: Values) -> bytes:
        """A whole answer."""
        known = self.answer(kind, version)
        body = bytes(known.flexible and kind != PLAIN_HEAD) + known.write(values)
        return ANSWER.pack(4 + len(body), correlation) + body

    def refused(self, kind: str, version: int, frame: bytes, code: int) -> bytes:
        """The answer with an error to a request that the broker never gets: its topics and partitions are the request's."""
        asked = self.request(kind, version)
        values = self.answer(kind, version).blank()
        _mirror(asked.fields, self.read_request(frame), self.answer(kind, version).fields, values)
        return self._with_error(kind, version, HEAD.unpack_from(frame)[3], values, code)

    def spoilt(self, kind: str, version: int, frame: bytes, code: int) -> bytes:
        """The broker's answer with an error code instead of its own."""
        return self._with_error(
            kind, version, ANSWER.unpack_from(frame)[1], self.read_answer(kind, version, frame), code
        )

    def _with_error(self, kind: str, version: int, correlation: int, values: Values, code: int) -> bytes:
        places = list(error_places(values))
        # The innermost places; a group's or a coordinator's error in OffsetFetch belongs to the group.
        deepest = min(depth for depth, *_ in places) if kind == "OffsetFetch" else max(depth for depth, *_ in places)
        for depth, where, name in places:
            where[name] = code if depth == deepest else where[name]
        return self.write_answer(kind, version, correlation, values)

    def _message(self, name: str, version: int) -> Message:
        if (name, version) not in self._made:
            text = self._json(name)
            low, high = _span(text["validVersions"])
            if not low <= version <= high:
                raise KeyError(f"{name} has no version {version}")
            shared = {each["name"]: each["fields"] for each in text.get("commonStructs", ())}
            flexible = _within(version, text["flexibleVersions"])
            self._made[name, version] = Message(name, flexible, tuple(_fields(text["fields"], version, shared)))
        return self._made[name, version]

    def _json(self, name: str) -> Values:
        found: Values = json.loads(re.sub(r"^\s*//.*$", "", self.texts[name], flags=re.MULTILINE))
        return found


class Peer:
    """A connection of our own to a broker: one request, then its answer."""

    def __init__(self, messages: Messages, port: int, timeout: float = 10) -> None:
        self.messages, self._sent = messages, 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout)

    def ask(self, kind: str, version: int, values: Values) -> Values:
        """The answer to a request."""
        self._sent += 1
        self._socket.sendall(self.messages.write_request(kind, version, self._sent, "kq-wire", values))
        head = self._take(4)
        return self.messages.read_answer(kind, version, head + self._take(int.from_bytes(head, "big")))

    def _take(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise ConnectionError("the broker closed the connection")
            found += more
        return found

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def error_places(values: Any, depth: int = 0) -> Iterator[tuple[int, Values, str]]:
    """Where a message has error codes: how deep, in which structure, under which name."""
    if isinstance(values, dict):
        yield from ((depth, values, name) for name in values if name.endswith("ErrorCode"))
        for each in values.values():
            yield from error_places(each, depth + 1)
    elif isinstance(values, list):
        for each in values:
            yield from error_places(each, depth)


# --- definitions -------------------------------------------------------------------------------------------------------


def _fields(texts: Sequence[Values], version: int, shared: dict[str, Any]) -> Iterator[Field]:
    """The fields that this version has."""
    for text in texts:
        if not _within(version, text["versions"]):
            continue
        kind = text["type"].removeprefix("[]")
        inner = text.get("fields") or shared.get(kind, ())
        tagged = "tag" in text and _within(version, text["taggedVersions"])
        yield Field(
            text["name"],
            kind,
            text["type"].startswith("[]"),
            _within(version, text.get("nullableVersions", "none")),
            text["tag"] if tagged else None,
            text.get("default"),
            tuple(_fields(inner, version, shared)),
        )


def _span(versions: str) -> tuple[int, int]:
    """'3-13', '2+', '1' or 'none' as two numbers."""
    low, dash, high = versions.replace("+", "-32767").partition("-")
    return (1, 0) if versions == "none" else (int(low), int(high if dash else low))


def _within(version: int, versions: str) -> bool:
    low, high = _span(versions)
    return low <= version <= high


def _number(text: Any) -> Any:
    """A default as JSON has it: a number, 'true', or '0x7fffffff'."""
    if isinstance(text, str):
        return text == "true" if text in ("true", "false") else float(text) if "." in text else int(text, 0)
    return text


def _mirror(asked: Sequence[Field], request: Values, answers: Sequence[Field], values: Values) -> None:
    """Give an answer an entry for each entry of its request. Both have their arrays in the same order."""
    lists = (each for each in asked if each.array)
    for each in answers:
        if not (each.array and _has_error(each.fields)):
            continue
        theirs = next(lists, None)
        for entry in request.get(theirs.name) or () if theirs else ():
            made: Values = {inner.name: inner.blank() for inner in each.fields}
            if not isinstance(entry, dict):
                made[each.fields[0].name] = entry
            else:
                number = entry.get("Partition", entry.get("PartitionIndex"))
                made |= {name: value for name, value in entry.items() if name in made and not isinstance(value, list)}
                made |= {"PartitionIndex": number} if "PartitionIndex" in made and number is not None else {}
                assert theirs is not None
                _mirror(theirs.fields, entry, each.fields, made)
            values[each.name].append(made)


def _has_error(fields: Sequence[Field]) -> bool:
    """Is there an error code in these fields, or in fields of theirs?"""
    return any(each.name.endswith("ErrorCode") or _has_error(each.fields) for each in fields)


# --- bytes -------------------------------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _after_tags(data: bytes, at: int) -> int:
    """Where the tagged fields end that begin here."""
    try:
        count, at = _varint(data, at)
        for _ in range(count):
            _, at = _varint(data, at)
            size, at = _varint(data, at)
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
        value, self.at = _varint(self.data, self.at)
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
