"""What commands say: items in few words for people, the same as JSON for programs.

In:  items, rows, bytes, seconds. Out: text. Answers go to stdout, notices (`tell`) to stderr, so that pipes read answers only.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kqlib.text import cut, plain

if TYPE_CHECKING:
    from kqlib.queue import Item

NARROWEST = 8  # characters that stay of a column


def tell(text: str) -> None:
    """A notice."""
    print(text, file=sys.stderr, flush=True)


def item(found: Item) -> dict[str, Any]:
    """An item as JSON has it."""
    headers = {name: plain(value) for name, value in found.headers.items()}
    created = found.created.isoformat(timespec="milliseconds")
    attempt = {"attempt": found.attempt} if found.lease else {}
    return {"id": found.id, **attempt, "key": found.key, "created": created, "headers": headers, "data": found.data}


def room() -> int:
    """Columns of the terminal that answers go to; a pipe takes any."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def table(rows: Sequence[Sequence[Any]], columns: Sequence[str], title: str = "") -> str:
    """Rows for people. On a terminal the longest words are cut until a row fits, but not the first column's; a pipe gets all."""
    wide = [max(len(str(each)) for each in column) for column in zip(columns, *rows, strict=True)]
    least = [wide[0], *(max(NARROWEST, len(name)) for name in columns[1:])]
    while sum(wide) + 2 * (len(wide) - 1) > room():
        longer = [at for at, most in enumerate(wide) if most > least[at]]
        if not longer:
            break
        wide[max(longer, key=wide.__getitem__)] -= 1
    rows = [
        [cut(one, most) if isinstance(one, str) else one for one, most in zip(row, wide, strict=True)] for row in rows
    ]
    from kqlib.workshop.view import Table

    return Table(rows, columns, title).text


def short(data: bytes | None, most: int = 48) -> str:
    """A payload, a key or a header on one line of a terminal: cut, and nothing that would move the cursor."""
    if data is None:
        return "–"
    seen = data[: most * 4].decode(errors="backslashreplace")
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in seen)
    return line if len(line) <= most and len(data) <= most * 4 else f"{line[: most - 1]}…"


def headers(found: dict[str, bytes | None], most: int = 40) -> str:
    """Headers on one line."""
    return short(", ".join(f"{name}={short(value, 24)}" for name, value in found.items()).encode(), most)
