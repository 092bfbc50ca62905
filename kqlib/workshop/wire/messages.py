"""Kafka's own message definitions, read from the jar of its clients: a request or an answer becomes a dict, and a dict its bytes.

In:  the jar: common/message/*.json, and the class with the error codes. Out: `Messages`: names of kinds and errors, and a `Message`
for each kind in each version, which reads and writes.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kqlib.workshop.wire.encoding import Field, Message, Values, after_tags

HEAD = struct.Struct(">ihhih")  # length, kind, version, correlation id, length of the client id
ANSWER = struct.Struct(">ii")  # length, correlation id
PLAIN_HEAD = "ApiVersions"  # its answer has the old head in every version: the client does not know the versions yet


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

    def listed_errors(self, kind: str, version: int) -> list[str]:
        """The errors that the definition of an answer lists in its comments for this version. Few definitions do."""
        text = self.texts.get(f"{kind}Response", "")
        found = re.findall(r"^\s*// - ([A-Z_]+) \(version (\d+)\+\)", text, re.MULTILINE)
        return list(dict.fromkeys(name for name, since in found if version >= int(since)))

    def read_request(self, frame: bytes) -> Values:
        """The fields of a request. frame: all its bytes, with length and head."""
        _, number, version, _, size = HEAD.unpack_from(frame)
        known = self.request(self.kinds[number], version)
        at = HEAD.size + max(0, size)
        return known.read(frame, after_tags(frame, at) if known.flexible else at)

    def read_answer(self, kind: str, version: int, frame: bytes) -> Values:
        """The fields of an answer. frame: all its bytes."""
        known = self.answer(kind, version)
        tagged = known.flexible and kind != PLAIN_HEAD
        return known.read(frame, after_tags(frame, ANSWER.size) if tagged else ANSWER.size)

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

    def error_answer(self, kind: str, version: int, frame: bytes, code: int) -> bytes:
        """An error answer to a request that the broker never gets, with the request's topics and partitions."""
        asked = self.request(kind, version)
        values = self.answer(kind, version).blank()
        _mirror(asked.fields, self.read_request(frame), self.answer(kind, version).fields, values)
        return self._set_error(kind, version, HEAD.unpack_from(frame)[3], values, code)

    def with_error(self, kind: str, version: int, frame: bytes, code: int) -> bytes:
        """The broker's answer with an error code instead of its own."""
        return self._set_error(
            kind, version, ANSWER.unpack_from(frame)[1], self.read_answer(kind, version, frame), code
        )

    def _set_error(self, kind: str, version: int, correlation: int, values: Values, code: int) -> bytes:
        places = list(error_places(values))
        # The innermost places, but in OffsetFetch the outermost: there the error is the group's.
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


class BrokerConnection:
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

    def close(self) -> None:
        """Close the connection."""
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
