"""Each exercise tells its three kinds of answer apart: none yet, the typical wrong ones, the solution.

A probe starts its own cluster, as it does for a reader; nothing here needs one beside it.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from kqlib.workshop import checks
from kqlib.workshop.checks import Exercise
from kqlib.workshop.copies import SOLVED
from tests.notebooks.gate import notebooks
from tests.notebooks.page import REPO, Page

FILES = sorted((REPO / "notebooks" / "solutions").glob("[0-9][0-9]_*.py"))
EXERCISES = [exercise for path in FILES for exercise in checks.load(path)]  # the later ones do more: they begin first


def not_yet(*given: object, **named: object) -> None:
    """What a notebook's stub does: nothing."""


@pytest.fixture(autouse=True)
def progress_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass is remembered: not among the passes of the person who runs the tests."""
    monkeypatch.setenv("KQ_STATE", str(tmp_path))


@pytest.fixture(scope="module", autouse=True)
def no_session_left() -> Iterator[None]:
    """A check that asks Spark starts a session, as for a reader whose notebook has none yet; it ends with the last exercise."""
    yield
    if "kqlib.spark" in sys.modules:
        sys.modules["kqlib.spark"].close()
    with warnings.catch_warnings():  # the last of Py4J's forgotten sockets
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


# Each answer takes seconds: so many wrong ones are tried here, and all of them at night. 09.3 is scored by three promises, and
# tests/unit/test_promises.py has a wrong queue for each promise.
SLOW = {"04.3": 1, "09.3": 0, "10.3": 1, "11.3": 1}
SPARK = [each for each in EXERCISES if each.id.startswith("12.")]  # tests/spark/test_exercises.py tries them
NIGHTLY = {
    "02.3",  # three brokers for each answer; by day the notebook's own cell asks without one
    "06.3",  # kq crash, a minute; tests/promises/test_crash.py has the cut for the day
    *(f"15.{number}" for number in range(1, 7)),  # notebook 15 is stored solved: by day it tries each solution itself
}
ALL = [
    *(
        pytest.param(each, len(each.wrong), id=each.id)
        for each in EXERCISES[::-1]
        if each.id not in SLOW.keys() | NIGHTLY and each not in SPARK
    ),
    *(pytest.param(each, SLOW[each.id], id=each.id) for each in EXERCISES if each.id in SLOW),
    *(
        pytest.param(each, len(each.wrong), id=f"{each.id}-all", marks=[pytest.mark.nightly, pytest.mark.limit(300)])
        for each in EXERCISES
        if each.id in SLOW.keys() | NIGHTLY
    ),
]


@pytest.mark.parametrize(("exercise", "many"), ALL)
def test_no_answer_and_wrong_answers_are_refused_and_the_solution_passes(exercise: Exercise, many: int) -> None:
    tried(exercise, many)


def tried(exercise: Exercise, many: int) -> None:
    assert exercise.wrong, "a check that no typical mistake was tried on"
    assert exercise.hints, "a reader who is stuck has nowhere to go"
    for answer in (not_yet, *exercise.wrong[:many]):
        verdict = checks.check(exercise.id, answer)
        assert not verdict.passed, f"{exercise.id} accepts {answer.__name__}"
        assert verdict.text.startswith("✗ not yet: ")
        assert "the check could not go on" not in verdict.text, verdict.text
        if exercise.task:  # with an answer the hint is for that answer, without one nothing is given away
            assert ("\ntask: " in verdict.text) == (answer is not_yet), verdict.text
            assert (f"hint: {exercise.hints[0]}" in verdict.text) == (answer is not_yet), verdict.text
    verdict = checks.check(exercise.id, exercise.solution)
    assert verdict.passed, verdict.text
    assert verdict.text.startswith(f"✓ {exercise.id}: ")


def test_a_step_that_is_stored_solved_is_the_solution_of_its_exercise() -> None:
    solved = {
        which: functions(cell.source)
        for path in notebooks()
        for cell in Page(path, nbformat.v4.reads(path.read_text(encoding="utf-8"))).code
        if SOLVED in cell.tags
        for which in re.findall(r'kq\.check\("([^"]+)"', cell.source)
    }
    assert solved == {which: functions(checks.solution(which).text) for which in solved}
    assert len(solved) == 6


def functions(code: str) -> list[str]:
    """The functions of a cell or of a file."""
    return [ast.unparse(node) for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]


def test_each_exercise_is_asked_in_its_notebook_and_each_question_has_its_exercise() -> None:
    asked = {
        which
        for path in notebooks()
        for which in re.findall(r"kq\.check\(\\?[\"']([^\"'\\]+)", path.read_text(encoding="utf-8"))
    }
    assert asked == {exercise.id for exercise in EXERCISES}
