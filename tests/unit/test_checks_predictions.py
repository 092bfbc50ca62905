"""A guess before the answer: texts that notebooks store, buttons, what is kept, and when a guess can no longer change."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import ipywidgets as widgets
import nbformat
import pytest

from kqlib.errors import NotAllowed
from kqlib.workshop import memory, minutes
from kqlib.workshop.checks import predict, predicted, predictions
from kqlib.workshop.checks.predictions import VIEW, Predictions
from tests.notebooks.gate import notebooks
from tests.notebooks.page import Page
from tests.notebooks.shape import computed

pytestmark = pytest.mark.usefixtures("solutions")
CHOICES = ("none", "some", "all ten")
ASKED = "What do you expect?  [1] none  [2] some  [3] all ten\n(no buttons? write kq.predict(…).choose(1), or another number)"


@pytest.fixture(autouse=True)
def another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "_questions", {})


def test_without_a_guess_the_texts_are_the_same_on_every_run() -> None:
    for _ in range(2):
        assert repr(predict("02.acks", *CHOICES)) == ASKED
        for _ in range(2):
            assert repr(predicted("02.acks", "all ten")) == "your guess: – · result: all ten"
            table = repr(predicted()).splitlines()
            assert [line.split() for line in table] == [
                ["prediction", "your", "guess", "result", "as", "expected"],
                ["02.acks", "–", "all", "ten", "–"],
            ]


def test_a_guess_is_kept_and_can_change_until_its_result_is_there() -> None:
    asked = predict("02.acks", *CHOICES)
    assert repr(asked.choose("none").choose(2)) == "your guess: some"
    assert memory.read()[0].guesses == {"02.acks": "some"}
    assert repr(predicted("02.acks")) == "your guess: some · result: not seen yet"
    assert repr(predicted("02.acks", "all ten")) == "your guess: some ✗ · result: all ten"
    assert repr(asked.choose("all ten")) == "your guess: some"
    again = predict("02.acks", *CHOICES)  # the notebook from its top, perhaps another day
    assert repr(again) == "your guess: some"
    assert repr(again.choose(3)) == "your guess: all ten"
    assert repr(predicted("02.acks", "all ten")) == "your guess: all ten ✓ · result: all ten"
    assert repr(predict("02.acks", "yes", "no")).startswith("What do you expect?")  # a newer edition has other choices


def test_a_result_is_a_number_as_well_and_one_that_is_no_choice_is_named() -> None:
    predict("02.count", 0, 10).choose("10")
    assert repr(predicted("02.count", 7)) == "your guess: 10 ✗ · result: 7 (none of the choices)"
    assert repr(predicted("02.count", 10)) == "your guess: 10 ✓ · result: 10"


def test_a_result_that_is_none_of_the_choices_does_not_replace_one_that_is() -> None:
    predict("02.count", 0, 10).choose("10")
    predicted("02.count", 7)
    assert repr(predicted()).splitlines()[1].split() == ["02.count", "10", "7", "✗"]
    predicted("02.count", 10)
    again = repr(predicted("02.count", "half"))  # its cell runs again, after another experiment has set the name
    assert again == "your guess: 10 ✓ · result: 10 (half is none of the choices)"
    assert repr(predicted("02.count")) == "your guess: 10 ✓ · result: 10"
    assert repr(predicted()).splitlines()[1].split() == ["02.count", "10", "10", "✓"]
    assert repr(predicted("02.count", 0)) == "your guess: 10 ✗ · result: 0"


def test_a_result_without_its_question_stops_nothing() -> None:
    predict("02.count", 0, 10).choose(2)
    predictions._questions.clear()
    assert repr(predicted("02.count", 10)) == "your guess: 10 ✓ · result: 10"
    assert repr(predicted()).endswith("(no rows)")


@pytest.mark.parametrize(
    ("which", "choices", "words"),
    [
        ("acks", CHOICES, "a prediction's id is notebook.word, as in '02.acks', not 'acks'"),
        ("02.1", CHOICES, "a prediction's id is"),
        ("02.acks", ("one",), "needs two choices or more"),
        ("02.acks", ("1", 1), "all different"),
    ],
)
def test_a_wrong_question_is_refused(which: str, choices: tuple[object, ...], words: str) -> None:
    with pytest.raises(NotAllowed, match=words):
        predict(which, *choices)


@pytest.mark.parametrize("choice", [0, 4, "nome"])
def test_a_choice_that_is_not_there_is_refused_with_those_that_are(choice: str | int) -> None:
    with pytest.raises(NotAllowed, match="1 none, 2 some, 3 all ten"):
        predict("02.acks", *CHOICES).choose(choice)


def buttons(box: Any) -> Any:
    """The buttons in a box."""
    return next(child for child in box.children if isinstance(child, widgets.ToggleButtons))


def test_buttons_note_the_guess_and_are_locked_by_the_result() -> None:
    asked = predict("02.acks", *CHOICES)
    assert VIEW in asked._repr_mimebundle_()
    box = asked.buttons("What do you expect?")
    assert buttons(box).value is None
    buttons(box).value = "some"
    assert memory.read()[0].guesses == {"02.acks": "some"}
    assert "Noted." in box.children[-1].value
    assert not buttons(box).disabled
    predicted("02.acks", "all ten")
    assert buttons(box).disabled


def test_the_result_leaves_buttons_open_where_no_guess_was_made() -> None:
    box = predict("02.acks", *CHOICES).buttons("?")
    predicted("02.acks", "all ten")
    assert not buttons(box).disabled
    buttons(box).value = "none"
    assert memory.read()[0].guesses == {"02.acks": "none"}


def test_a_missing_guess_is_asked_for_once_at_the_end_and_its_result_is_hidden_until_then() -> None:
    predict("02.acks", *CHOICES)
    predict("02.kill", "yes", "no").choose("no")
    predicted("02.acks", "all ten")
    end = predicted()
    assert isinstance(end, Predictions)
    asked, table = end._ask((end.questions[0],))
    assert "choose first" in table.value
    assert "all ten" not in table.value
    buttons(asked).value = "some"
    assert "all ten" in table.value
    assert asked.layout.display == "none"
    predictions._questions.clear()
    memory.change(lambda done: done.guesses.clear())
    predict("02.acks", *CHOICES)
    assert VIEW in predicted()._repr_mimebundle_()  # type: ignore[union-attr]
    assert VIEW not in predicted()._repr_mimebundle_()  # type: ignore[union-attr]


def test_without_widgets_there_is_the_text() -> None:
    code = """if True:
        import sys
        sys.modules["ipywidgets"] = None
        import kqlib as kq
        assert list(kq.predict("02.acks", "a", "b")._repr_mimebundle_()) == ["text/plain"]
        assert "text/html" in kq.predicted()._repr_mimebundle_()
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_minutes_are_counted_between_cells_and_a_break_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(minutes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    add = minutes.counter(lambda: "02")
    for now[0] in (60.0, 90.0, 90.0 + minutes.BREAK, 150.0 + minutes.BREAK):
        add(None)
    assert memory.read()[0].minutes == {"02": 2.5}


def test_a_lab_in_a_kernel_counts_its_notebooks_minutes_and_a_script_counts_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: list[tuple[str, Any]] = []
    events = SimpleNamespace(register=lambda *each: registered.append(each))
    monkeypatch.setattr(minutes, "_counted", [])
    for shell in (None, SimpleNamespace(events=events)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        minutes.count("02-partitions-and-replicas")
        minutes.count("mine")
    minutes.count("03-keys")
    [(event, add)] = registered
    monkeypatch.setattr(minutes, "BREAK", 1e9)
    add(None)
    assert (event, list(memory.read()[0].minutes)) == ("post_run_cell", ["03"])


def test_every_result_beside_a_guess_is_computed_from_what_the_reader_saw() -> None:
    pages = [Page(path, nbformat.v4.reads(path.read_text(encoding="utf-8"))) for path in notebooks()]
    assert [(page.path.name, what) for page in pages for _, what, _ in computed(page)] == []
