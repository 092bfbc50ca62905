"""Why a row could not be decoded: the name of the cause, and a sentence. Pure, and run where the row is: on an executor.

In:  a row's bytes, the schemas that were expected by id, what the registry said of other ids. Out: (cause, sentence).

Spark's decoder gives no reasons, and this reader (fastavro) takes many times as long: so it sees the quarantined rows only.
"""

from __future__ import annotations

from collections.abc import Mapping

from kqlib.errors import CorruptPayload, IncompatibleSchema, UnknownSchema
from kqlib.schemas.wire import HEAD, MAGIC, Codec

CAUSES = {
    "null": "no bytes at all",
    "short": "fewer than the five bytes of the head",
    "magic": "the first byte is not 0: not written by a client of a schema registry",
    "unknown id": "the registry has no schema of that id",
    "wrong schema": "a schema of another subject",
    "new schema": "registered after this frame was made: decode it again",
    "truncated": "the bytes end in the middle of a value",
    "trailing bytes": "bytes are left over after the value",
    "not read": "a value that this reader's schema has no place for",
    "broken": "the bytes are no value of their schema",
}


class Expected:
    """A registry of what was known when the plan was made, for the codec: it travels to the executors as two dicts."""

    def __init__(self, writers: Mapping[int, str], others: Mapping[int, str]) -> None:
        self._writers, self._others = dict(writers), dict(others)

    def schema(self, number: int) -> str:
        """The schema of that id."""
        if number not in self._writers:
            raise UnknownSchema(self._others.get(number, f"schema {number} is none of those that were expected here"))
        return self._writers[number]


def named(data: bytes | None, writers: Mapping[int, str], others: Mapping[int, str], reader: str) -> tuple[str, str]:
    """The cause and its sentence; `others`: of ids that are not expected, what the registry said."""
    if data is None:
        return "null", f"null: {CAUSES['null']}"
    data = bytes(data)
    if len(data) < HEAD.size:
        return "short", f"{len(data)} byte{'s' * (len(data) != 1)}: {CAUSES['short']}"
    magic, number = HEAD.unpack_from(data)
    if magic != MAGIC:
        return "magic", f"the first byte is {data[0]}, not {MAGIC}: not written by a client of a schema registry"
    if number not in writers:
        cause, _, why = others.get(number, "unknown id: ").partition(": ")
        return cause, why or f"schema {number} is none of those that are expected here"
    return _body(data, writers, others, reader)


def _body(data: bytes, writers: Mapping[int, str], others: Mapping[int, str], reader: str) -> tuple[str, str]:
    codec = Codec(Expected(writers, others))  # type: ignore[arg-type]
    codec.schema = reader
    try:
        codec.decode(data)
    except IncompatibleSchema as error:
        return "not read", str(error)
    except CorruptPayload as error:
        said = str(error)
        if "left over" in said:
            return "trailing bytes", said
        ends = "end in the middle" in said or "IndexError: string index" in said  # fastavro's words inside a number
        return ("truncated" if ends else "broken"), said
    except Exception as error:  # a schema that nobody can decode with
        return "broken", f"{type(error).__name__}: {error}"
    return "not read", "fastavro reads this value and Spark does not"
