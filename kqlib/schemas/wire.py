"""Values as bytes, with the id of their schema in front: Confluent's wire format, which every client of a registry speaks.

    byte 0      the magic byte, 0
    byte 1-4    the schema's id, most significant byte first
    byte 5-     the value in Avro, which holds no names and no types: only the schema tells what the bytes mean

In:  a registry, a subject, a schema. Out: `Codec`: `encode(value)`, `decode(bytes)`; `split(bytes)`: the five bytes taken apart.

The bytes are those of confluent_kafka's AvroSerializer (tests compare them). That one takes twice as long as fastavro alone and its
counterpart four times, so fastavro is called directly here. Whatever is wrong with bytes has a name: `CorruptPayload`,
`UnknownSchema`, `IncompatibleSchema`; a value that does not fit its schema is `BadPayload`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol

from kqlib.errors import BadPayload, CorruptPayload, IncompatibleSchema, NotAllowed
from kqlib.schemas import fits, form, rules

MAGIC = 0
HEAD = struct.Struct(">bI")
unpack = HEAD.unpack_from
SHALLOW = 500  # bytes: a level takes one at least


@dataclass(frozen=True)
class Message:
    """A message taken apart: the magic byte, the id of the writer's schema, the value's bytes."""

    magic: int
    id: int
    body: bytes


def split(data: bytes) -> Message:
    """The five bytes and the rest; `CorruptPayload` says what it is instead."""
    _check_head(data)
    magic, number = unpack(data)
    return Message(magic, number, bytes(data[HEAD.size :]))


class Schemas(Protocol):
    """What a codec asks a registry."""

    def register(self, subject: str, schema: Any) -> int: ...
    def latest(self, subject: str) -> Any: ...
    def schema(self, number: int) -> str: ...


class Codec:
    """One subject's values to bytes and back: `codec = registry.codec("football-value", schema)`.

    With a schema: it is registered, values are written with it, and whatever version was written is read into it.
    With a subject alone: its latest version. With neither: it reads only, each value as it was written.
    """

    def __init__(self, registry: Schemas, subject: str | None = None, schema: Any = None) -> None:
        from fastavro import schemaless_reader, schemaless_writer

        self.registry, self.subject = registry, subject
        self._write, self._plain_read = schemaless_writer, schemaless_reader
        # by id: how its values are read, the writer's schema, and ours where it is another
        self._writers: dict[int, tuple[Callable[..., Any], Any, Any]] = {}
        self._fits: Callable[[Any], bool] = _nothing
        self._parsed, self._head = None, b""
        self.id: int | None = None
        self.schema: str | None = None
        if subject is None:
            if schema is not None:
                raise NotAllowed("a schema is registered under a subject: registry.codec('football-value', schema)")
            return
        self.id = registry.latest(subject).id if schema is None else registry.register(subject, schema)
        self.schema = form.canonical(registry.schema(self.id) if schema is None else schema)
        self._parsed, self._head = form.parsed(self.schema), HEAD.pack(MAGIC, self.id)
        self._fits = fits.quick(self._parsed)
        if self._parsed == "bytes":
            self._write = _write_bare

    def encode(self, value: Any) -> bytes | None:
        """The value as bytes; None stays None (a tombstone has no schema). `BadPayload` names the field that does not fit.

        A field that is missing takes its default; one that has none is refused, and so is a field that the schema does not know.
        """
        if value is None:
            return None
        why = ""
        try:
            if self._fits(value) or not (why := fits.misfit(self._parsed, value)):
                buffer = BytesIO()
                self._write(buffer, self._parsed, value, strict_allow_default=True)
                return self._head + buffer.getvalue()
        except Exception as error:  # what fastavro raises depends on the type that it met
            why = str(error)
        raise self._misfit(value, why)

    def decode(self, data: bytes | None) -> Any:
        """The value in these bytes; None stays None. `CorruptPayload`, `UnknownSchema`, `IncompatibleSchema` say what is wrong."""
        if data is None:
            return None
        try:
            magic, number = unpack(data)
        except (struct.error, TypeError):  # too short, or not bytes
            magic = number = -1
        if magic != MAGIC:
            _check_head(data)
        read, writer, reader = self._writers.get(number) or self._known(number)
        buffer = BytesIO(data)
        buffer.seek(HEAD.size)
        try:
            value = read(buffer, writer, reader)
        except Exception as error:  # random bytes make fastavro raise nearly anything
            raise self._broken(number, data, error) from None
        if left := len(data) - buffer.tell():
            raise CorruptPayload(
                f"{_count(left, 'byte')} left over after a value of schema {number}: these are not its bytes"
            )
        return value

    def __repr__(self) -> str:
        return f"Codec({self.subject!r}, schema {self.id})" if self.subject else "Codec(reads only)"

    def _known(self, number: int) -> tuple[Callable[..., Any], Any, Any]:
        """How this id's values are read; the registry is asked once."""
        text = form.canonical(self.registry.schema(number))  # a registry elsewhere may write it in its own way
        writer, ours = form.parsed(text), self.schema
        if ours and (wrong := [each for each in rules.compare(ours, text) if each.rule == rules.LOGICAL]):
            raise self._cannot_read(number, wrong[0])  # fastavro would read on, and Java another value
        read = _read_bare if writer == "bytes" else _read_deep if fits.holds_itself(writer) else self._plain_read
        self._writers[number] = read, writer, form.parsed(ours) if ours and ours != text else None
        return self._writers[number]

    def _misfit(self, value: Any, why: str) -> BadPayload | NotAllowed:
        if self.id is None:
            return NotAllowed(
                "this codec reads only: give it a subject to write, registry.codec('football-value', schema)"
            )
        try:
            words = fits.misfit(self._parsed, value) or why
        except RecursionError:
            words = "it is nested too deeply"
        return BadPayload(f"this value does not fit schema {self.id} of '{self.subject}': {words}. Nothing was written")

    def _broken(self, number: int, data: bytes, error: Exception) -> CorruptPayload | IncompatibleSchema:
        """Whose fault is it? The reader's, if the writer's own schema makes sense of the bytes; else theirs."""
        read, writer, reader = self._writers[number]
        text = self.registry.schema(number)
        if reader is not None and _reads(read, writer, data):
            reasons = rules.compare(self.schema, text)
            if not reasons:
                return IncompatibleSchema(f"schema {self.id} cannot read what schema {number} wrote: {error}")
            return self._cannot_read(number, reasons[0])
        ends = isinstance(error, EOFError)
        what = "they end in the middle of a value" if ends else f"they are no value ({type(error).__name__}: {error})"
        said = f"{_count(len(data), 'byte')} that say they are of schema {number} ({form.name(text)})"
        return CorruptPayload(f"{said}: {what}")

    def _cannot_read(self, number: int, reason: rules.Reason) -> IncompatibleSchema:
        said = f"schema {self.id} cannot read what schema {number} wrote {reason}"
        return IncompatibleSchema(said, path=reason.path, rule=reason.rule)


def _read_deep(buffer: BytesIO, writer: Any, reader: Any = None) -> Any:
    """For a type that holds itself: a few thousand bytes can be a few thousand levels, where fastavro's compiled reader runs into the
    end of the stack and takes the process along. Its Python reader stops in time."""
    from fastavro import _read_py, schemaless_reader

    read = schemaless_reader if len(buffer.getbuffer()) <= SHALLOW else _read_py.schemaless_reader
    return read(buffer, writer, reader)


def _reads(read: Callable[..., Any], writer: Any, data: bytes) -> bool:
    """Do these bytes make sense to whoever wrote them?"""
    buffer = BytesIO(data)
    buffer.seek(HEAD.size)
    try:
        read(buffer, writer)
    except Exception:
        return False
    return buffer.tell() == len(data)


def _write_bare(buffer: BytesIO, _: Any, value: bytes, **how: Any) -> None:
    """A schema that is bytes and nothing else: Confluent's clients leave out Avro's length before them."""
    buffer.write(value)


def _read_bare(buffer: BytesIO, writer: Any, reader: Any = None) -> Any:
    """What `_write_bare` wrote; for a reader of another schema the length is put back first."""
    from fastavro import schemaless_reader, schemaless_writer

    if reader is None:
        return buffer.read()
    whole = BytesIO()
    schemaless_writer(whole, writer, buffer.read())
    whole.seek(0)
    return schemaless_reader(whole, writer, reader)


def _nothing(_: Any) -> bool:
    """No value fits no schema."""
    raise TypeError("no schema")


def _check_head(data: Any) -> None:
    """Five bytes, of which the first is 0; else what it is."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise NotAllowed(f"a message is bytes, not {type(data).__name__}")
    if len(data) >= HEAD.size and data[0] == MAGIC:
        return
    if not data:
        raise CorruptPayload("0 bytes: a message has five bytes of head before its value")
    if bytes(data).lstrip()[:1] in {b"{", b"["}:
        raise CorruptPayload(f"this is JSON, not Avro: it begins with {bytes(data[:20])!r}. Its producer uses no codec")
    if data[0] != MAGIC:
        raise CorruptPayload(f"the first byte is {data[0]}, not {MAGIC}: not written by a client of a schema registry")
    raise CorruptPayload(f"{_count(len(data), 'byte')}: a message has five bytes of head before its value")


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
