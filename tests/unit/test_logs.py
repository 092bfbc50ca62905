"""Structured logs: each line of kqlib's log that says something about a queue says it in fields too, for any formatter.

In:  the sources of kqlib. Out: the calls of a logger without `extra`; the fields' names, which docs/how-to/run-in-production.md lists.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {"info", "warning", "error", "exception", "log"}
TAKEN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}  # logging refuses these


@cache
def calls() -> list[tuple[str, ast.Call, ast.Module]]:
    """Every call of a module's logger whose text has a place for a value."""
    found: list[tuple[str, ast.Call, ast.Module]] = []
    for path in sorted(ROOT.glob("kqlib/**/*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if "getLogger" in text else "")
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of = node.func.value
            if isinstance(of, ast.Name) and of.id == "log" and node.func.attr in LEVELS and len(node.args) > 1:
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", node, tree))
    return found


def test_each_line_of_the_log_has_fields() -> None:
    found = calls()
    assert len(found) > 25
    assert [where for where, call, _ in found if "extra" not in {each.arg for each in call.keywords}] == []


def test_the_how_to_lists_every_field_and_logging_takes_them_all() -> None:
    given = [each.value for _, call, _ in calls() for each in call.keywords if each.arg == "extra"]
    trees = {id(tree): tree for _, _, tree in calls()}.values()
    dicts = [each for each in given if isinstance(each, ast.Dict)] + [each for tree in trees for each in _named(tree)]
    used = {ast.literal_eval(key) for each in dicts for key in each.keys if key is not None}
    page = (ROOT / "docs" / "how-to" / "run-in-production.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page.partition("## Logs")[2], re.MULTILINE))
    assert used == listed and used.isdisjoint(TAKEN)


def _named(tree: ast.Module) -> Iterator[ast.Dict]:
    """The dictionaries that are called `fields`, or that a function `_fields` returns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            if any(isinstance(each, ast.Name) and each.id == "fields" for each in node.targets):
                yield node.value
        elif isinstance(node, ast.FunctionDef) and node.name == "_fields":
            yield from (
                each.value for each in node.body if isinstance(each, ast.Return) and isinstance(each.value, ast.Dict)
            )
