"""docs/crash.md: its workers are short and name what they use, and its figures are the stored ones."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from examples.crash import page
from kqlib.runtime import jars

WORKERS = sorted(each.stem for each in page.HERE.glob("*.py") if each.stem != "page")


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_is_short_and_names_its_library_its_promise_and_its_command(name: str) -> None:
    text = (page.HERE / f"{name}.py").read_text(encoding="utf-8")
    head = ast.get_docstring(ast.parse(text)) or ""
    library, form, promises = page.facts(name)
    assert len(text.splitlines()) <= 60 and len(head.splitlines()) <= 6
    assert form and promises and f"Again: python -m examples.crash.page {name}" in head
    assert library == "kqlib" or library in pinned(library.partition("==")[0])


def pinned(library: str) -> list[str]:
    """What the lock of this library's environment pins, as `name==version`."""
    if library == "kafka-streams":
        return ["{}=={}".format(*jar.coordinates.split(":")[1:]) for jar in jars.locked("streams")]
    lock = page.HERE.parents[1] / "requirements.lock" if library in page.OURS else page.requirements(library)
    return [line.split(" ")[0].replace("[avro]", "") for line in lock.read_text(encoding="utf-8").splitlines()]


def test_the_page_lists_every_worker_with_the_stored_figures() -> None:
    figures = json.loads((page.DOCS / "crash.json").read_text(encoding="utf-8"))
    assert sorted(page.ORDER) == WORKERS
    assert set(figures) <= set(WORKERS)
    assert all(f"[{name}](" in page.page(figures) for name in WORKERS)
    assert (page.DOCS / "crash.md").read_text(encoding="utf-8") == page.page(figures)
    assert {name: found["library"] for name, found in figures.items()} == {
        name: page.facts(name)[0] for name in figures
    }


def test_a_point_that_no_run_reached_is_not_counted_as_tried() -> None:
    figures = json.loads((page.DOCS / "crash.json").read_text(encoding="utf-8"))
    found = figures["transactions"] | {"points": 56, "not_reached": 14, "left_out": 0}
    assert "| transactions | 42 of 56 | " in page.page({"transactions": found})


def test_the_requirements_are_pinned_whole() -> None:
    for file in Path(page.HERE / "requirements").glob("*.txt"):
        assert all("==" in line for line in file.read_text(encoding="utf-8").splitlines()), file


def test_a_worker_that_was_not_measured_is_listed_with_the_reason() -> None:
    text = page.page({"pyrallel": {"library": "pyrallel-consumer==1.0.0", "failed": "there is no Python 3.12"}})
    assert "not measured: there is no Python 3.12" in text


def test_the_page_names_the_documentation_that_was_read_for_each_worker() -> None:
    workers = {names: names.split(", ") for names in page.DOCUMENTATION}
    assert sorted(name for names in workers.values() for name in names) == WORKERS
    rows = page.page({}).partition(page.READ)[2].splitlines()
    for names, pages in page.DOCUMENTATION.items():
        assert all(f"| {page.facts(name)[0]} | {names} | {pages} |" in rows for name in workers[names]), names
