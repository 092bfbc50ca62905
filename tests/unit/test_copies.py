"""A reader's copies of the notebooks, and how a newer edition comes into them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kqlib.workshop import copies
from kqlib.workshop.copies import NOTE
from tests.unit.cli.conftest import run

Texts = dict[str, str]


def cells(texts: Texts, **more: Any) -> list[dict[str, Any]]:
    kind = {"cell_type": "code", "metadata": {"tags": ["step:a"]}, **more}
    return [{**kind, "id": name, "source": [text]} for name, text in texts.items()]


def store(path: Path, texts: Texts, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": cells(texts, **more), "nbformat": 4}))


def stored(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.fixture
def edition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one notebook, which was run."""
    monkeypatch.setattr("kqlib.runtime.places.repo", lambda: tmp_path)
    notebook = tmp_path / "notebooks" / "03-keys.ipynb"
    store(notebook, {"a": "1 + 1", "b": "2 + 2"}, outputs=[{"data": "4"}], execution_count=1)
    return notebook


def test_a_copy_has_the_cells_and_no_output_and_the_notebook_stays_as_it_is(edition: Path, tmp_path: Path) -> None:
    before = edition.read_bytes()
    assert copies.make(tmp_path) == []
    mine = tmp_path / "my" / "03-keys.ipynb"
    assert stored(mine)["cells"] == cells({"a": "1 + 1", "b": "2 + 2"}, outputs=[], execution_count=None)
    assert edition.read_bytes() == before
    store(mine, {"a": "mine"})
    assert copies.make(tmp_path) == []
    assert stored(mine)["cells"] == cells({"a": "mine"})


def merged(base: Texts, mine: Texts, new: Texts) -> tuple[Texts, list[str]]:
    by_id = [{cell["id"]: cell for cell in cells(texts)} for texts in (base, mine, new)]
    found, twice = copies.merge(by_id[0], by_id[1], by_id[2])
    return {cell["id"]: "".join(cell["source"]) for cell in found}, twice


AB = {"a": "1", "b": "2"}
MERGED = {
    "nothing changed": (AB, AB, AB, AB),
    "the edition changed a cell": (AB, AB, {"a": "1", "b": "3"}, {"a": "1", "b": "3"}),
    "I changed a cell": (AB, {"a": "1", "b": "mine"}, AB, {"a": "1", "b": "mine"}),
    "both changed it alike": (AB, {"a": "1", "b": "3"}, {"a": "1", "b": "3"}, {"a": "1", "b": "3"}),
    "the edition has a new cell": (AB, AB, {"a": "1", "c": "x", "b": "2"}, {"a": "1", "c": "x", "b": "2"}),
    "the edition dropped a cell": (AB, AB, {"b": "2"}, {"b": "2"}),
    "the edition dropped what I changed": (AB, {"a": "1", "b": "mine"}, {"a": "1"}, {"a": "1", "b": "mine"}),
    "I deleted a cell": (AB, {"b": "2"}, AB, {"b": "2"}),
    "I deleted what the edition changed": (AB, {"b": "2"}, {"a": "9", "b": "2"}, {"a": "9", "b": "2"}),
    "I wrote cells of my own": (
        AB,
        {"x": "me", "a": "1", "y": "me too", "z": "me", "b": "2"},
        {"b": "2", "a": "9", "c": "new"},
        {"x": "me", "b": "2", "a": "9", "y": "me too", "z": "me", "c": "new"},
    ),
    "I moved a cell": (AB, {"b": "2", "a": "1"}, {"a": "1", "b": "3"}, {"a": "1", "b": "3"}),
}


@pytest.mark.parametrize("name", MERGED)
def test_an_update_keeps_what_each_side_did(name: str) -> None:
    base, mine, new, expected = MERGED[name]
    found, twice = merged(base, mine, new)
    assert (list(found.items()), twice) == (list(expected.items()), [])


def test_a_copy_of_a_solved_step_has_an_empty_function(edition: Path, tmp_path: Path) -> None:
    lines = [
        "import sqlite3",
        "",
        "",
        "def store(db, rows):",
        '    """All, or none."""',
        "    with db:",
        "        pass",
    ]
    check = ["", "", 'kq.check("03.1", store)']
    store(edition, {"a": "\n".join([*lines, *check])}, metadata={"tags": ["solved"]})
    copies.make(tmp_path)
    [cell] = stored(tmp_path / "my" / "03-keys.ipynb")["cells"]
    assert "".join(cell["source"]) == "\n".join([*lines[:5], "    ...  # your turn", *check])
    assert copies.make(tmp_path) == []


def test_a_cell_that_both_changed_is_kept_twice_with_a_note_and_again_at_the_next_update() -> None:
    found, twice = merged(AB, {"a": "mine", "b": "2"}, {"a": "new", "b": "2"})
    assert twice == ["a"]
    assert found == {"a": "mine", "note1-a": NOTE, "new1-a": "new", "b": "2"}
    again, twice = merged({"a": "new", "b": "2"}, found, {"a": "newer", "b": "2"})
    assert twice == ["a"]
    assert sorted(again) == ["a", "b", "new1-a", "new2-a", "note1-a", "note2-a"]
    assert (again["a"], again["new1-a"], again["new2-a"]) == ("mine", "new", "newer")


def test_kq_lab_update_says_what_it_did_and_keeps_what_was_there(
    edition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies.make(tmp_path)
    mine = tmp_path / "my" / "03-keys.ipynb"
    store(mine, {"a": "mine", "b": "2 + 2", "c": "my notes"}, outputs=["kept"])
    assert run("lab", "--update") == 1
    assert capsys.readouterr().out == "Your copies in my/ have this edition already.\n"
    store(edition, {"a": "1 + 2", "b": "2 + 3"}, outputs=[])
    assert copies.make(tmp_path) == ["03-keys"]
    assert run("lab", "--update") == 0
    printed = capsys.readouterr().out
    assert (
        "my/03-keys.ipynb has the new edition, with your own cells (as it was before: 03-keys.before-update.ipynb)"
        in printed
    )
    assert "1 cell changed on both sides: both are kept, with a note between them" in printed
    texts = ["".join(cell["source"]) for cell in stored(mine)["cells"]]
    assert texts == ["mine", NOTE, "1 + 2", "2 + 3", "my notes"]
    assert stored(mine)["cells"][0]["outputs"] == ["kept"]
    assert len(stored(tmp_path / "my" / "03-keys.before-update.ipynb")["cells"]) == 3
    assert run("lab", "--update") == 1


@pytest.mark.parametrize("text", ["", "{}", '{"cells": [{"cell_type": "code", "source": []}]}'])
def test_a_copy_that_cannot_be_compared_is_left_alone(
    text: str, edition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies.make(tmp_path)
    store(edition, {"a": "1 + 2"})
    mine = tmp_path / "my" / "03-keys.ipynb"
    mine.write_text(text)
    assert run("lab", "--update") == 0
    assert "my/03-keys.ipynb is left as it is" in capsys.readouterr().out
    assert mine.read_text() == text
