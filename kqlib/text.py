"""Words for people: a number with its noun, a key as it reads, text that fits on one line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

Key = bytes | str | None

LONGEST_NAME = 24


def count(n: int, noun: str, nouns: str | None = None) -> str:
    """'1 record', '2,000 records'."""
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def clean(words: str) -> str:
    """Words on one line: what does not print (newlines, controls, marks that turn the direction) becomes visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in words)


def cut(words: str, length: int) -> str:
    """At most so many characters, the last one '…' where something is missing."""
    return words if len(words) <= length else words[: length - 1] + "…"


def as_bytes(key: Key) -> bytes | None:
    """A key as Kafka has it, so that "A" and b"A" are the same key."""
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key


def spelled(key: Key) -> str:
    """A key as a person reads it, whatever bytes it is made of."""
    if key is None:
        return "no key"
    readable = clean((as_bytes(key) or b"").decode("utf-8", "backslashreplace"))
    return cut(readable, LONGEST_NAME) or "(empty)"


def near(word: str, known: Iterable[str], most: int = 1) -> str:
    """The end of a sentence about a mistyped word: '; did you mean topic?'. Empty if no known word is like it."""
    import difflib  # rarely needed

    found = difflib.get_close_matches(word, list(known), most)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def how_long(seconds: float) -> str:
    """A time in the largest unit that says something."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def words(error: BaseException) -> str:
    """What an error says. A client's error comes without its class and code, one of the system without its number."""
    inner = error.args[0] if error.args else error
    if hasattr(inner, "str"):
        return str(inner.str())
    return str(getattr(error, "strerror", None) or inner) or type(error).__name__


def as_json(value: Any) -> str:
    """A value for programs: text stays readable, bytes that are no text are {"base64": …}."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain)


def plain(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
