"""The steps of notebook 08: each is a small difference, and what a reader typed into their file is never lost."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import pytest

import kqlib as kq
from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop import steps
from tests.notebooks.page import REPO

FOLDER = REPO / "notebooks" / "steps"
MOST = 25  # lines that a step adds


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A reader's copy runs here: the file beside it."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "steps").symlink_to(FOLDER)
    (tmp_path / "my").mkdir()
    monkeypatch.setattr(places, "repo", lambda: tmp_path)
    monkeypatch.chdir(tmp_path / "my")
    return tmp_path / "my" / "08_program.py"


@pytest.mark.parametrize("which", [f"08.{number}" for number in range(2, 7)])
def test_a_step_adds_at_most_25_lines_of_code(which: str) -> None:
    added = [line for line in kq.diff(which).text.splitlines() if line.startswith("+") and line[1:].strip()]
    assert 5 <= len(added) <= MOST


def test_a_step_is_taken_and_the_next_one_replaces_it(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kq.take("08.1").Ledger(3, 3, {}).text() == ""
    module = kq.take("08.2")
    assert module.Ledger(3, 4, {3: 1}).text() == "[4, [[3, 1]]]"
    assert copy.read_text() == (FOLDER / "08_2.py").read_text()
    assert capsys.readouterr().out.splitlines()[1] == "08_program.py: step 2 of 6, 111 lines"
    assert "def claim(self, offset):" in kq.source(module.Ledger).text


def test_its_classes_travel_to_other_processes_with_their_code() -> None:
    assert b"waiting" in cloudpickle.dumps(kq.take("08.1").Queue)


def test_a_file_of_the_readers_own_is_used_and_not_replaced(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kq.take("08.1")
    copy.write_text("mine = 1\n")
    assert kq.take("08.2").mine == 1
    assert "08_program.py is your own" in capsys.readouterr().out
    kq.take("08.2", replace=True)
    assert copy.read_text() == (FOLDER / "08_2.py").read_text()
    assert copy.with_suffix(".before.py").read_text() == "mine = 1\n"


def test_what_was_typed_as_it_stands_in_the_step_is_the_step(copy: Path) -> None:
    kq.take("08.1")
    copy.write_text((FOLDER / "08_2.py").read_text().rstrip())
    kq.take("08.3")
    assert copy.read_text() == (FOLDER / "08_3.py").read_text()


def test_a_notebook_that_is_no_readers_copy_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "state"))
    assert kq.take("08.2").Ledger(3, 3, {}).text() == "[3, []]"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: steps.diff("08.1"), "there is no step before '08.1'; there are 08.1, 08.2"),
        (lambda: steps.take("08.9"), "there is no step '08.9'; there are 08.1, 08.2"),
        (lambda: steps.take("77"), "there is no step '77'; there are none"),
    ],
)
def test_a_step_that_is_not_there_is_named_with_those_that_are(call: object, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        call()  # type: ignore[operator]
