"""A record taken apart: key, value, timestamp, headers.

In:  what a client gives: bytes (or None), the timestamp's type, headers.
Out: `record(value, key, …) -> Picture`. Its twin:

    a record · football, partition 0, offset 41
    key        ARS-CHE                  7 bytes
    value      {"home": 1, "away": 0}  22 bytes
    timestamp  CreateTime, present
    headers    kind = goal              8 bytes

A time differs from run to run, and what is stored must not: of the timestamp only its type is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from kqlib.text import as_bytes, clean, count, cut
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned, columns
from kqlib.workshop.view.svg import BIG, NORMAL, box, text, width

Content = bytes | str | None
Headers = Sequence[tuple[str, Content]]

LONGEST, LONGEST_HEADER = 56, 30  # columns of a content that are shown
LONGEST_NAME, LONGEST_TOPIC = 20, 32  # of a header, a topic
MOST_HEADERS = 6
TIMESTAMPS = ("not available", "CreateTime", "LogAppendTime")  # by confluent_kafka's numbers
LEFT, HIGH, GAP = 86, 24, 6  # where the boxes begin, their height, and the space between them
STYLE = (
    ".part{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.5}"
    ".null{fill:none;stroke-dasharray:3 2;stroke-opacity:.7}.mono{font-family:ui-monospace,monospace}"
)


Part = tuple[str, str, str, bool]  # its name, what it holds, its size, whether it holds something


def record(
    value: Content,
    key: Content = None,
    *,
    timestamp: tuple[int, int] = (0, 0),
    headers: Headers | None = (),
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
) -> Picture:
    """The picture of one record. `timestamp` and `headers` may be just what a confluent_kafka Message gives."""
    parts = [
        _content("key", key, "null: no key"),
        _content("value", value, "null: a tombstone"),
        _timestamp(timestamp),
        *_headers(headers or ()),
    ]
    where = [cut(clean(topic), LONGEST_TOPIC)] if topic is not None else []
    where += [f"{word} {n}" for word, n in (("partition", partition), ("offset", offset)) if n is not None]
    canvas = Canvas("a record", ", ".join(where))
    sizes = max(width(size, NORMAL) for _, _, size, _ in parts)
    longest = max(columns(words) for _, words, _, _ in parts)
    most = WIDE - 2 * EDGE - LEFT - sizes - 10
    space = min(max(0.62 * NORMAL * longest + 20, 200), most)  # a monospaced character is 0.6 em wide
    right = EDGE + LEFT + space + 10 + sizes
    for name, words, size, there in parts:
        y = canvas.y + 16
        canvas.add(text(EDGE, y, name, BIG, "bold") if name else "")
        canvas.add(box(EDGE + LEFT, canvas.y, space, HIGH, "part" if there else "part null"))
        canvas.add(text(EDGE + LEFT + 9, y, words, kind="mono" if there else "mono faint"))
        canvas.add(text(right, y, size, kind="faint", anchor="end") if size else "", right=right)
        canvas.y += HIGH + GAP
    return canvas.picture(aligned([part[:3] for part in parts], right=[2]), STYLE)


def _content(name: str, content: Content, null: str) -> Part:
    """The key or the value; null says what that means."""
    data = as_bytes(content)
    return (name, null, "", False) if data is None else (name, _spelled(data, LONGEST), count(len(data), "byte"), True)


def _timestamp(timestamp: tuple[int, int]) -> Part:
    """Its type and that it is there, never the time."""
    kind = TIMESTAMPS[timestamp[0]]
    there = timestamp[0] > 0
    return "timestamp", f"{kind}, present" if there else kind, "", there


def _headers(headers: Headers) -> list[Part]:
    """One part a header; the first one carries the name of them all."""
    if not headers:
        return [("headers", "none", "", False)]
    parts: list[Part] = []
    for header, content in headers[:MOST_HEADERS]:
        data = as_bytes(content)
        words = "null" if data is None else _spelled(data, LONGEST_HEADER)
        # a header's size counts its name: it travels with every record
        size = len(as_bytes(header) or b"") + len(data or b"")
        name = "" if parts else "headers"
        parts.append((name, f"{cut(clean(header), LONGEST_NAME)} = {words}", count(size, "byte"), True))
    hidden = len(headers) - len(parts)
    return [*parts, ("", f"… {count(hidden, 'more header')}", "", False)] if hidden else parts


def _spelled(data: bytes, longest: int) -> str:
    """Bytes as text if they are text, else byte by byte; and how many are left out."""
    shown = _start_of_text(data, longest)
    if shown is None:
        used = min(len(data), longest // 3 - 2)
        shown = data[:used].hex(" ")
    else:
        shown, used = clean(shown), len(shown.encode())
    hidden = len(data) - used
    return (f"{shown} … {count(hidden, 'more byte')}" if hidden else shown) or "(empty)"


def _start_of_text(data: bytes, longest: int) -> str | None:
    """As much of a text as fits; None if it is not one."""
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        return None
    if any(not c.isprintable() and c not in "\n\r\t" and ord(c) < 128 for c in whole):
        return None
    if columns(clean(whole)) <= longest:
        return whole
    space, shown = longest - 20, ""  # the rest is for '… 940 more bytes'
    while columns(clean(shown + whole[len(shown)])) <= space:
        shown += whole[len(shown)]
    return shown
