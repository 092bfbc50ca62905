"""What commands print: items and tables for people, the same as JSON for programs.

In:  items, rows, bytes. Out: text. Answers go to stdout, notices (`tell`) to stderr, so that pipes read answers only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kqlib.text import as_json, clean, cut, plain

if TYPE_CHECKING:
    from kqlib.queue import Item

# What takes away or replaces something that is there is only described, with exit status 1, until --yes does it.
YES: dict[str, Any] = {"action": "store_true", "help": "do it; without it, print what would be done"}
NOT_DONE = "Nothing was done: add --yes."


def tell(text: str) -> None:
    """A notice."""
    print(text, file=sys.stderr, flush=True)


def answer(args: argparse.Namespace, value: Any, text: object) -> None:
    """Print an answer: `value` as JSON for programs (--json), `text` for people."""
    print(as_json(value) if args.json else text)


def item(found: Item) -> dict[str, Any]:
    """An item as JSON has it."""
    headers = {name: plain(value) for name, value in found.headers.items()}
    created = found.created.isoformat(timespec="milliseconds")
    attempt = {"attempt": found.attempt} if found.lease else {}
    return {"id": found.id, **attempt, "key": found.key, "created": created, "headers": headers, "data": found.data}


def table(rows: Sequence[Sequence[Any]], columns: Sequence[str], title: str = "") -> str:
    """Rows for people."""
    from kqlib.workshop.view import Table

    return Table(rows, columns, title).text


def short(data: bytes | None, most: int = 48) -> str:
    """A payload, a key or a header on one line of a terminal: cut, and nothing that would move the cursor."""
    if data is None:
        return "–"
    return cut(clean(data[: (most + 1) * 4].decode(errors="backslashreplace")), most)


def headers(found: dict[str, bytes | None], most: int = 40) -> str:
    """Headers on one line."""
    return short(", ".join(f"{name}={short(value, 24)}" for name, value in found.items()).encode(), most)
