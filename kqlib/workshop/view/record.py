"""A record taken apart: key, value, timestamp, headers.

In:  what a client hands over: bytes (or None), the timestamp's type, headers.
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
from dataclasses import dataclass

from kqlib.text import clean, count, cut
from kqlib.workshop.view.picture import (
    BIG,
    EDGE,
    NORMAL,
    WIDE,
    Picture,
    columns,
    headline,
    pad,
    sheet,
    tag,
    text,
    width,
)

Content = bytes | str | None
Headers = Sequence[tuple[str, Content]]

LONGEST, LONGEST_HEADER = 56, 30  # columns of a content that are shown
LONGEST_NAME, LONGEST_TOPIC, LONGEST_TITLE = 20, 32, 40  # of a header, a topic, a picture
MOST_HEADERS = 6
TIMESTAMPS = ("not available", "CreateTime", "LogAppendTime")  # by confluent_kafka's numbers
LEFT, HIGH, GAP = 86, 24, 6  # where the boxes begin, their height, and the space between them
STYLE = (
    ".part{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.5}"
    ".null{fill:none;stroke-dasharray:3 2;stroke-opacity:.7}.mono{font-family:ui-monospace,monospace}"
)


def record(
    value: Content,
    key: Content = None,
    *,
    timestamp: tuple[int, int] | str | None = None,
    headers: Headers | None = (),
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    title: str = "a record",
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
    title, address = cut(clean(title), LONGEST_TITLE), ", ".join(where)
    sentence = " · ".join(filter(None, [title, address]))
    return Picture(_draw(parts, title, address, sentence), "\n".join([sentence, *_twin(parts)]), sentence)


@dataclass(frozen=True)
class _Part:
    """One part of a record: what it is called, what it holds, how large it is. `there`: it holds something."""

    name: str
    words: str
    size: int | None
    there: bool = True

    @property
    def bytes(self) -> str:
        """'7 bytes'."""
        return "" if self.size is None else count(self.size, "byte")


# --- the words ---------------------------------------------------------------------------------------------------------


def _content(name: str, content: Content, null: str, longest: int = LONGEST) -> _Part:
    """The key or the value; null says what that means."""
    if content is None:
        return _Part(name, null, None, there=False)
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return _Part(name, _spelled(data, longest), len(data))


def _timestamp(timestamp: tuple[int, int] | str | None) -> _Part:
    """Its type and that it is there, never the time."""
    given = TIMESTAMPS[timestamp[0]] if isinstance(timestamp, tuple) else timestamp or TIMESTAMPS[0]
    if given not in TIMESTAMPS:
        raise ValueError(f"{given!r} is not a type of a timestamp: {', '.join(TIMESTAMPS[1:])}")
    there = given != TIMESTAMPS[0]
    return _Part("timestamp", f"{given}, present" if there else given, None, there)


def _headers(headers: Headers) -> list[_Part]:
    """One part a header; the first one carries the name of them all."""
    if not headers:
        return [_Part("headers", "none", None, there=False)]
    parts = []
    for place, (header, content) in enumerate(headers[:MOST_HEADERS]):
        part = _content("headers" if place == 0 else "", content, "null", LONGEST_HEADER)
        name = cut(clean(header), LONGEST_NAME)
        # a header's size counts its name: it travels with every record
        size = len(header.encode("utf-8", "surrogatepass")) + (part.size or 0)
        parts.append(_Part(part.name, f"{name} = {part.words}", size))
    hidden = len(headers) - len(parts)
    return [*parts, _Part("", f"… {count(hidden, 'more header')}", None, there=False)] if hidden else parts


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
    room, shown = longest - 20, ""  # the rest is for '… 940 more bytes'
    while columns(clean(shown + whole[len(shown)])) <= room:
        shown += whole[len(shown)]
    return shown


def _twin(parts: Sequence[_Part]) -> list[str]:
    """A line a part, sizes at the right."""
    wide = max(columns(part.words) for part in parts)
    sizes = max(len(part.bytes) for part in parts)
    lines = [(pad(part.name, 9), pad(part.words, wide), pad(part.bytes, sizes, right=True)) for part in parts]
    return ["  ".join(line).rstrip() for line in lines]


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(parts: Sequence[_Part], title: str, address: str, sentence: str) -> str:
    """The SVG: a box a part, its name left, its size right."""
    sizes = max(width(part.bytes, NORMAL) for part in parts)
    room = max(0.62 * NORMAL * columns(part.words) for part in parts) + 20  # a monospaced character is 0.6 em wide
    room = min(max(room, 200), WIDE - 2 * EDGE - LEFT - sizes - 10)
    right = EDGE + LEFT + room + 10 + sizes
    drawn, y = [headline(title, address)], 28.0
    for part in parts:
        kind = "part" if part.there else "part null"
        drawn.append(text(EDGE, y + 16, part.name, BIG, "bold") if part.name else "")
        drawn.append(tag("rect", x=EDGE + LEFT, y=y, width=room, height=HIGH, rx=4, class_=kind))
        drawn.append(text(EDGE + LEFT + 9, y + 16, part.words, kind="mono" if part.there else "mono faint"))
        drawn.append(text(right, y + 16, part.bytes, kind="faint", anchor="end") if part.bytes else "")
        y += HIGH + GAP
    right = max(right, EDGE + width(title, BIG, bold=True) + width(f" · {address}", BIG))
    return sheet(right + EDGE, y + 2, sentence, [part for part in drawn if part], STYLE)
