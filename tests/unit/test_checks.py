"""What a reader sees who asks for a check, a hint or a solution, and what an author sees whose exercise is malformed."""

import pytest

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop.checks import Case, Exercise, check, hint, solution
from tests.unit.checks_examples import TOPICS, right, stub

pytestmark = pytest.mark.usefixtures("solutions")

MORE = 'more: kq.hint("01.1", 2), kq.solution("01.1")'


def test_a_passed_check_says_how_many_held_and_what_they_prove(capsys):
    verdict = check("01.1", right)
    assert verdict.passed
    assert bool(verdict) is True
    assert repr(verdict) == str(verdict) == verdict.text
    assert verdict.text == (
        "✓ 01.1: 4 of 4\n"
        "a key always goes to the same partition; the number of partitions matters; an empty key is a key"
    )
    assert capsys.readouterr().out == "prints are allowed\n" * 4


def test_cases_without_a_reason_prove_what_was_asked():
    assert check("02.1", lambda: True).text == "✓ 02.1: 1 of 1\nSay yes."


def test_a_failed_check_says_what_it_tried_what_came_out_and_a_hint():
    verdict = check("01.1", stub)
    assert not verdict.passed
    assert bool(verdict) is False
    why = "(a key always goes to the same partition)"
    assert verdict.text == f"✗ not yet: answer('ARS-CHE', 6) gave None, expected 1 {why}\nhint: Count first.\n{MORE}"


def test_a_failed_check_promises_no_hint_that_is_not_there():
    assert check("01.2", lambda _: None).text.splitlines()[1:] == ["hint: A list.", 'more: kq.solution("01.2")']
    assert check("02.1", lambda: None).text.splitlines()[1:] == ['more: kq.solution("02.1")']


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (("01.1",), f"hint 1 of 2: Count first.\n{MORE}"),
        (("01.1", 2), 'hint 2 of 2: len(key), then %.\nmore: kq.solution("01.1")'),
        (("01.1", 3), 'There is no hint 3: 01.1 has 2.\nmore: kq.solution("01.1")'),
        (("01.1", 0), 'There is no hint 0: 01.1 has 2.\nmore: kq.solution("01.1")'),
        (("02.1",), 'There is no hint 1: 02.1 has 0.\nmore: kq.solution("02.1")'),
    ],
)
def test_a_hint_says_where_to_go_next(asked, text):
    assert repr(hint(*asked)) == text


def test_a_solution_is_shown_as_it_stands_in_its_file():
    assert solution("01.1").text == (
        "# notebooks/solutions/01_topics.py · partition\n"
        "def partition(key, n):\n"
        '    """The length of a key, as a hash."""\n'
        "    return len(key) % n"
    )
    header, *lines = solution("01.2").text.splitlines()
    assert header == "# notebooks/solutions/01_topics.py · Log"
    assert (lines[0], lines[-1]) == ("@dataclass", "        self.records.append(record)")


# --- finding an exercise ---

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


def slowest_of_all(ends):
    """The copy that is out of sync does not count."""
    return min(ends)


HINTED = Exercise(
    id="01.1",
    ask="the largest",
    task="return the largest number",
    cases=[
        Case(([1, 2],), 2),
        Case(([3, 3],), 3, hint="Two may be equal."),
        Case(([],), 0, hint="What if it is empty?"),
    ],
    hints=("Look at all of them.",),
    solution=lambda ends: max(ends, default=0),
    wrong=(slowest_of_all,),
)


def unwritten(ends): ...


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            stub,
            [
                "✗ not yet: answer has no code yet",
                "task: return the largest number",
                "hint: Look at all of them.",
            ],
        ),
        (
            lambda ends: {}.get(ends[0]),
            ["✗ not yet: answer([1, 2]) gave None, expected 2", "hint: Look at all of them."],
        ),
        (min, ["✗ not yet: answer([1, 2]) gave 1, expected 2", f"hint: {slowest_of_all.__doc__}"]),
        (lambda ends: sum({*ends}) - 1, ["✗ not yet: answer([3, 3]) gave 2, expected 3", "hint: Two may be equal."]),
    ],
)
def test_a_hint_follows_the_case_that_failed_and_no_value_is_shown_before_there_is_an_answer(
    answer, lines, monkeypatch
):
    monkeypatch.setattr("kqlib.workshop.checks.find", lambda which: HINTED)
    assert check("01.1", answer).text.splitlines()[:-1] == lines
