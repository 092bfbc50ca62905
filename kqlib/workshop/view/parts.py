"""Bytes taken apart: each part with its bytes, its name and its meaning.

In:  parts in their order: bytes, name, meaning. Out: `parts(them, title="a message") -> Picture`. Its twin:

    a message · 2 parts, 5 bytes
    00           magic byte  always 0
    00 00 00 01  schema id   1
"""

from __future__ import annotations

from collections.abc import Iterable

from kqlib.text import count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned, ends
from kqlib.workshop.view.svg import NORMAL, box, fit, text, width

HIGH, GAP = 62, 6  # a part, and the space between two
LONGEST = 12  # bytes of a part that are shown
MOST = 200  # pixels of a name or a meaning
STYLE = ".part{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.5}.mono{font-family:ui-monospace,monospace}"


def parts(them: Iterable[tuple[bytes, str, str]], title: str = "bytes") -> Picture:
    """The picture of bytes, part by part, in as many rows as they need."""
    every = [(bytes(data), name, str(meaning)) for data, name, meaning in them]
    drawn, hidden = ends(every, "part")
    canvas = Canvas(title, f"{count(len(every), 'part')}, {count(sum(len(data) for data, _, _ in every), 'byte')}")
    x = float(EDGE)
    for data, name, meaning in drawn:
        words = [_hex(data), fit(name, NORMAL, MOST, bold=True), fit(meaning, NORMAL, MOST)]
        # a monospaced character is 0.6 em wide
        wide = max(0.62 * NORMAL * len(words[0]), width(words[1], NORMAL, bold=True), width(words[2], NORMAL)) + 16
        if x > EDGE and x + wide > WIDE - EDGE:
            x, canvas.y = EDGE, canvas.y + HIGH + GAP
        canvas.add(box(x, canvas.y, wide, HIGH, "part"), right=x + wide)
        for at, (line, kind) in enumerate(zip(words, ("mono", "bold", ""), strict=True)):
            canvas.add(text(x + wide / 2, canvas.y + 18 + 17 * at, line, kind=kind, anchor="middle"))
        x += wide + GAP
    canvas.y += HIGH + 4
    lines = aligned([(_hex(data), name, meaning) for data, name, meaning in drawn]) if drawn else ["(nothing)"]
    middle = len(lines) // 2 if hidden else len(lines)
    return canvas.picture([*lines[:middle], *hidden, *lines[middle:]], STYLE)


def _hex(data: bytes) -> str:
    """The bytes in hexadecimal, and how many are left out."""
    more = len(data) - LONGEST
    return data[:LONGEST].hex(" ") + (f" … {more} more" if more > 0 else "") or "(none)"
