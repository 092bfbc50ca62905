"""Finding an exercise, and what its author hears when it is malformed."""

import pytest

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop.checks import Case, Exercise, check, hint, solution
from tests.unit.checks_examples import TOPICS, right

pytestmark = pytest.mark.usefixtures("solutions")

ALL = "01.1, 01.2, 01.10, 02.1"


@pytest.mark.parametrize("ask", [lambda which: check(which, len), hint, solution])
@pytest.mark.parametrize("which", ["01.9", "77.1", 1.1, ""])
def test_an_unknown_exercise_lists_those_that_exist(ask, which):
    with pytest.raises(NotAllowed) as caught:
        ask(which)
    assert str(caught.value) == f"There is no exercise {which!r}. There are: {ALL}."


def test_outside_of_a_checkout_it_says_where_the_exercises_are(monkeypatch):
    monkeypatch.setattr(places, "repo", lambda: None)
    with pytest.raises(NotAllowed, match="start Jupyter or kq inside of it"):
        check("01.1", right)


def test_a_broken_file_of_another_notebook_does_not_stop_a_check(solutions):
    (solutions / "01_topics.py").write_text("1 / 0")
    assert check("02.1", lambda: True).passed


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": "1.1"}, "An exercise's id is notebook.number, as in '01.2', not '1.1'."),
        ({"cases": ()}, "Exercise 01.1 has cases or a probe: one of the two."),
        ({"probe": len}, "Exercise 01.1 has cases or a probe: one of the two."),
    ],
)
def test_an_author_hears_of_a_malformed_exercise(changes, why):
    with pytest.raises(NotAllowed) as caught:
        Exercise(**{"id": "01.1", "ask": "", "cases": [Case((), 1)], "solution": len, **changes})
    assert str(caught.value) == why


def test_an_author_hears_of_arguments_that_are_no_tuple():
    with pytest.raises(NotAllowed, match=r"are a tuple, as in Case\(\('ARS',\), …\)"):
        Case("ARS", 1)


@pytest.mark.parametrize(("old", "new"), [('"01.10"', '"01.1"'), ('"01.10"', '"03.1"')])
def test_an_author_hears_of_an_id_used_twice_or_in_the_wrong_file(solutions, old, new):
    (solutions / "01_topics.py").write_text(TOPICS.replace(old, new))
    with pytest.raises(NotAllowed, match="is there twice or belongs to another notebook's file"):
        check("01.1", right)
