"""Which test files are near a module: by imports alone, nothing is run.

In:  the sources of kqlib and of the tests. Out: how many imports lie between a test file and a module.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path

COMMAND = ("kq", "kqlib")  # a test that has one of these in quotes runs the command line


def name_of(path: Path, root: Path) -> str:
    """A file's module: kqlib/queue/__init__.py is kqlib.queue."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def graph(root: Path) -> dict[str, set[str]]:
    """Each module of kqlib and of the tests with those that it imports, inside functions too; a module's name in quotes counts."""
    files = {name_of(path, root): path for top in ("kqlib", "tests") for path in sorted((root / top).rglob("*.py"))}
    return {name: imported(name, path, files) - {name} for name, path in files.items()}


def imported(name: str, path: Path, known: Iterable[str]) -> set[str]:
    """The modules among those known that this file names."""
    package, found = name if path.name == "__init__.py" else name.rpartition(".")[0], set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value, f"{package}.{node.value}"}  # opened when it is asked for, as in kqlib/__init__.py
            if node.value in COMMAND:
                found.add("kqlib.__main__")
    return found & set(known)


def distances(imports: dict[str, set[str]], module: str) -> dict[str, int]:
    """How many imports lead to this module from each one that leads to it."""
    users: dict[str, set[str]] = {name: set() for name in imports}
    for name, used in imports.items():
        for each in used:
            users[each].add(name)
    found, waiting = {module: 0}, deque([module])
    while waiting:
        here = waiting.popleft()
        for user in users.get(here, set()) - found.keys():
            found[user] = found[here] + 1
            waiting.append(user)
    return found


def nearest(imports: dict[str, set[str]], module: str, root: Path, *folders: str) -> list[str]:
    """The test files of these folders that lead to the module: those with its words in their name first, then by distance."""
    far, own = distances(imports, module), words(module)
    files = [path for folder in folders for path in (root / folder).rglob("test_*.py")]
    near = [(-len(own & words(name)), far[name], path) for path in files if (name := name_of(path, root)) in far]
    return [str(path.relative_to(root)) for *_, path in sorted(near)]


def words(name: str) -> set[str]:
    """The words of a module's name; tests of the command line have `cli` in their names."""
    return set(re.split(r"[._]", name.replace("kqlib.command", "cli"))) - {"kqlib", "tests", "test"}
