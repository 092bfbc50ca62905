"""A reader's copies of the notebooks, in my/: without outputs, so that no answer is seen before it is run.

In:  the notebooks of the checkout, and what the reader made of their copies. Out: `make` adds missing copies; `update` brings a newer
edition into them. An update compares three texts of each cell, which its id names: the edition that was copied (kept in my/.edition),
the reader's and the new edition's. A cell that both changed is kept twice, with a note between them.
A cell with the tag `solved` has the solution of a step; in a copy its functions are empty, for the reader to write.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kqlib.runtime import places
from kqlib.text import count

Cell = dict[str, Any]
SOLVED = "solved"
NOTE = "**The new edition changed the cell above, and so did you.** Yours is above, the new one below: delete one, and this note."


def folder(repo: Path) -> Path:
    """Where the copies are; beside notebooks/, so that links hold."""
    return repo / "my"


def make(repo: Path) -> list[str]:
    """Copy each notebook that has no copy yet. Returns the names of copies that are older than their notebook."""
    old = []
    for notebook in _notebooks(repo):
        copy, base = _places(repo, notebook)
        edition = _without_outputs(notebook)
        if not copy.exists():
            _write(base, edition)
            _write(copy, edition)
        elif not base.exists() or _read(base) != edition:
            old.append(notebook.stem)
    return old


def update(repo: Path) -> list[str]:
    """Bring the edition of notebooks/ into the copies. Returns a sentence for each copy that changed or was left alone."""
    done = []
    for name in make(repo):
        copy, base = _places(repo, repo / "notebooks" / f"{name}.ipynb")
        edition = _without_outputs(repo / "notebooks" / f"{name}.ipynb")
        try:
            mine, before = _read(copy), _read(base)
            cells, twice = merge(_by_id(before), _by_id(mine), _by_id(edition))
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"{type(error).__name__}: no notebook, or its cells have no ids"
            done.append(f"my/{name}.ipynb is left as it is ({why}). Rename it, and `kq lab` makes a new copy.")
            continue
        kept = copy.with_name(f"{name}.before-update.ipynb")
        _write(kept, mine)
        _write(copy, {**edition, "cells": cells})
        _write(base, edition)
        sentence = f"my/{name}.ipynb has the new edition, with your own cells (as it was before: {kept.name})."
        if twice:
            sentence += f" {count(len(twice), 'cell')} changed on both sides: both are kept, with a note between them."
        done.append(sentence)
    return done


def merge(base: dict[str, Cell], mine: dict[str, Cell], edition: dict[str, Cell]) -> tuple[list[Cell], list[str]]:
    """The cells of a copy after an update, and the ids of those that both sides changed."""
    merged: list[Cell] = []
    twice = []
    for name, new in edition.items():
        old, own = base.get(name), mine.get(name)
        if own is None:
            if old is None or not _same(old, new):  # new, or deleted here and changed there
                merged.append(new)
        elif _same(own, new) or (old is not None and _same(old, new)):
            merged.append(own)
        elif old is not None and _same(old, own):
            merged.append(new)
        else:
            twice.append(name)
            note = {"cell_type": "markdown", "id": _unused("note", name, mine), "metadata": {}, "source": NOTE}
            merged += [own, note, {**new, "id": _unused("new", name, mine)}]
    return _with_own(merged, base, mine, edition), twice


def _with_own(merged: list[Cell], base: dict[str, Cell], mine: dict[str, Cell], edition: dict[str, Cell]) -> list[Cell]:
    """Add the reader's own cells, each behind the cell that it followed; and cells that the edition dropped, if changed here."""
    before: str | None = None
    for name, own in mine.items():
        dropped = name in base and _same(base[name], own)
        if name not in edition and not dropped:
            at = next((n for n, cell in enumerate(merged, 1) if cell["id"] == before), 0)
            merged.insert(at, own)
        if any(cell["id"] == name for cell in merged):
            before = name
    return merged


def _unused(word: str, name: str, mine: dict[str, Cell]) -> str:
    """An id that no cell of the copy has: an earlier update may have left both cells there."""
    ids = (f"{word}{n}-{name}"[:64] for n in itertools.count(1))
    return next(each for each in ids if each not in mine)


def _same(one: Cell, other: Cell) -> bool:
    """Is the text the same, whatever was run?"""
    return (one["cell_type"], _text(one)) == (other["cell_type"], _text(other))


def _text(cell: Cell) -> str:
    return "".join(cell["source"]).rstrip()


def _by_id(notebook: dict[str, Any]) -> dict[str, Cell]:
    return {cell["id"]: cell for cell in notebook["cells"]}


def _notebooks(repo: Path) -> Iterator[Path]:
    yield from sorted((repo / "notebooks").glob("[0-9][0-9]-*.ipynb"))


def _places(repo: Path, notebook: Path) -> tuple[Path, Path]:
    """A notebook's copy, and the edition from which it was made."""
    return folder(repo) / notebook.name, folder(repo) / ".edition" / notebook.name


def _without_outputs(notebook: Path) -> dict[str, Any]:
    found = _read(notebook)
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
        if SOLVED in cell["metadata"].get("tags", []):
            cell["source"] = emptied("".join(cell["source"])).splitlines(keepends=True)
    return found


def emptied(code: str) -> str:
    """The same code, without the bodies of its functions; their docstrings stay."""
    lines = code.splitlines()
    for node in reversed(ast.parse(code).body):
        if isinstance(node, ast.FunctionDef):
            first = node.body[ast.get_docstring(node) is not None]
            lines[first.lineno - 1 : node.end_lineno] = ["    ...  # your turn"]
    return "\n".join(lines)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _write(path: Path, notebook: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    places.write_atomic(path, json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
