"""Words for people: a number with its noun, a key as it reads, text that fits on one line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

Key = bytes | str | None
Metric = tuple[str, dict[str, str], float]  # its name, its labels, its value
PREFIX = "kqlib_"  # of a metric's name

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


def as_metrics(rows: Iterable[Metric], texts: Mapping[str, str]) -> str:
    """Rows in Prometheus' text format, those of one name together, each name with its text."""
    lines, found = [], list(rows)
    for name, text in texts.items():
        these = [(labels, value) for metric, labels, value in found if metric == name]
        if these:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]
        for labels, value in these:
            named = ",".join(f'{label}="{_escaped(words)}"' for label, words in labels.items())
            lines.append(f"{PREFIX}{name}{{{named}}} {+value!r}" if named else f"{PREFIX}{name} {+value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
