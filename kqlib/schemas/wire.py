"""Values as bytes after the id of their schema: Confluent's wire format, which all clients of schema registries use.

    byte 0      the magic byte, 0
    byte 1-4    the schema's id, most significant byte first
    byte 5-     the value in Avro, without names and types: only the schema tells what the bytes mean

In:  a registry, a subject, a schema.
Out: `Codec` with `encode(value)` and `decode(bytes)`; `split(bytes)`: the head and the value's bytes.

The bytes are those of confluent_kafka's AvroSerializer (tests compare them). AvroSerializer takes twice as long as fastavro alone and
AvroDeserializer four times, so fastavro is called directly. Wrong bytes raise `CorruptPayload`, `UnknownSchema` or
`IncompatibleSchema`; a value that does not fit its schema raises `BadPayload`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, Protocol

from kqlib.errors import BadPayload, CorruptPayload, IncompatibleSchema, NotAllowed
from kqlib.schemas import fits, form, rules
from kqlib.text import count

MAGIC = 0
HEAD = struct.Struct(">bI")
unpack = HEAD.unpack_from
SHALLOW = 500  # bytes: a level takes one at least


@dataclass(frozen=True)
class Message:
    """The parts of a message: the magic byte, the id of the writer's schema, the value's bytes."""

    magic: int
    id: int
    body: bytes


def split(data: bytes) -> Message:
    """The parts of a message; `CorruptPayload` if it is none."""
    _check_head(data)
    magic, number = unpack(data)
    return Message(magic, number, bytes(data[HEAD.size :]))


class Schemas(Protocol):
    """What a codec needs of a registry."""

    def register(self, subject: str, schema: Any) -> int: ...
    def latest(self, subject: str) -> Any: ...
    def schema(self, number: int) -> str: ...


class Codec:
    """A subject's values as bytes and back: `codec = registry.codec("football-value", schema)`.

    With a schema: it is registered, values are written with it, and every version is read into it.
    With a subject only: its latest version is used. Without both: it only reads, each value with the schema that wrote it.
    """

    def __init__(self, registry: Schemas, subject: str | None = None, schema: Any = None) -> None:
        from fastavro import schemaless_reader, schemaless_writer

        self.registry, self.subject = registry, subject
        self._write, self._plain_read = schemaless_writer, schemaless_reader
        # by id: the function that reads, the writer's schema, and ours if it is another one
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
                f"{count(left, 'byte')} left over after a value of schema {number}: these are not its bytes",
                cause="trailing bytes",
            )
        return value

    def __repr__(self) -> str:
        return f"Codec({self.subject!r}, schema {self.id})" if self.subject else "Codec(reads only)"

    def _known(self, number: int) -> tuple[Callable[..., Any], Any, Any]:
        """How values of this id are read; the registry is asked once."""
        text = form.canonical(self.registry.schema(number))  # a registry server may write it in another form
        writer, ours = form.parsed(text), self.schema
        if ours and (wrong := [each for each in rules.compare(ours, text) if each.rule == rules.LOGICAL]):
            raise self._cannot_read(number, wrong[0])  # fastavro and Java would read different values
        read = _read_bare if writer == "bytes" else _read_deep if fits.holds_itself(writer) else self._plain_read
        reader = form.parsed(ours) if ours and ours != text else None
        fields = [field for each in fits.named(reader).values() for field in each.get("fields", ())]
        if any(isinstance(field.get("default"), dict | list) for field in fields):
            read = partial(_read_own, read)
        self._writers[number] = read, writer, reader
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
        """If the writer's own schema reads the bytes, the reader's schema is wrong; else the bytes are."""
        read, writer, reader = self._writers[number]
        text = self.registry.schema(number)
        if reader is not None and _reads(read, writer, data):
            reasons = rules.compare(self.schema, text)
            if not reasons:
                return IncompatibleSchema(f"schema {self.id} cannot read what schema {number} wrote: {error}")
            return self._cannot_read(number, reasons[0])
        of = f"{count(len(data), 'byte')} that say they are of schema {number} ({form.name(text)})"
        if isinstance(error, EOFError) or (isinstance(error, IndexError) and "string index" in str(error)):
            return CorruptPayload(f"{of}: they end in the middle of a value", cause="truncated")
        return CorruptPayload(f"{of}: they are no value ({type(error).__name__}: {error})", cause="broken")

    def _cannot_read(self, number: int, reason: rules.Reason) -> IncompatibleSchema:
        why = f"schema {self.id} cannot read what schema {number} wrote {reason}"
        return IncompatibleSchema(why, path=reason.path, rule=reason.rule)


def _read_deep(buffer: BytesIO, writer: Any, reader: Any = None) -> Any:
    """Read a type that holds itself. A few thousand bytes can be a few thousand levels, and fastavro's compiled reader then overflows
    the stack and ends the process. Its Python reader raises RecursionError."""
    from fastavro import _read_py, schemaless_reader

    read = schemaless_reader if len(buffer.getbuffer()) <= SHALLOW else _read_py.schemaless_reader
    return read(buffer, writer, reader)


def _read_own(read: Callable[..., Any], buffer: BytesIO, writer: Any, reader: Any = None) -> Any:
    """Copy what was read: fastavro gives every value the same list or dict as a default, and a program may change it."""
    return deepcopy(read(buffer, writer, reader))


def _reads(read: Callable[..., Any], writer: Any, data: bytes) -> bool:
    """Does the writer's own schema read these bytes?"""
    buffer = BytesIO(data)
    buffer.seek(HEAD.size)
    try:
        read(buffer, writer)
    except Exception:
        return False
    return buffer.tell() == len(data)


def _write_bare(buffer: BytesIO, _: Any, value: bytes, **how: Any) -> None:
    """Write a value whose whole schema is "bytes": Confluent's clients leave out Avro's length before it."""
    buffer.write(value)


def _read_bare(buffer: BytesIO, writer: Any, reader: Any = None) -> Any:
    """Read what `_write_bare` wrote. For a reader with another schema the length is put back first."""
    from fastavro import schemaless_reader, schemaless_writer

    if reader is None:
        return buffer.read()
    whole = BytesIO()
    schemaless_writer(whole, writer, buffer.read())
    whole.seek(0)
    return schemaless_reader(whole, writer, reader)


def _nothing(_: Any) -> bool:
    """A codec without a schema writes nothing."""
    raise TypeError("no schema")


def _check_head(data: Any) -> None:
    """Raise an error unless the data begin with a head."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise NotAllowed(f"a message is bytes, not {type(data).__name__}")
    if len(data) >= HEAD.size and data[0] == MAGIC:
        return
    if len(data) >= HEAD.size:
        why = f"the first byte is {data[0]}, not {MAGIC}: not written by a client of a schema registry"
        if bytes(data).lstrip()[:1] in {b"{", b"["}:
            why = f"this is JSON, not Avro: it begins with {bytes(data[:20])!r}. Its producer uses no codec"
        raise CorruptPayload(why, cause="magic")
    raise CorruptPayload(
        f"{count(len(data), 'byte')}: a message has five bytes of head before its value", cause="short"
    )
