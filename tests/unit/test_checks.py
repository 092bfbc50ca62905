"""What a reader sees who asks for a check, a hint or a solution, and what an author sees whose exercise is malformed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop.checks import Case, Exercise, check, hint, load, solution
from tests.notebooks.page import REPO
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


def last(ends):
    return sorted(ends)[len(ends) - 1]


def eighth(ends):
    return ends[7]


def not_begun(ends):
    if not ends:
        raise NotImplementedError
    return max(ends)


@pytest.mark.parametrize(
    ("answer", "hinted"),
    [
        (last, "What if it is empty?"),
        (eighth, "Look at all of them."),  # its case has no hint
        (not_begun, "Look at all of them."),
    ],
)
def test_an_answer_that_raises_gets_the_hint_of_its_case_too(answer, hinted, monkeypatch):
    monkeypatch.setattr("kqlib.workshop.checks.find", lambda which: HINTED)
    assert check("01.1", answer).text.splitlines()[1] == f"hint: {hinted}"


def right_lists_without_a_limit(due, sent, done, part):
    return sorted(end - begin for begin, end in zip(due, done, strict=True))[int(len(due) * part)]


@pytest.mark.parametrize(
    ("which", "answer", "hinted"),
    [
        ("14.1", right_lists_without_a_limit, "int(4 * 1) is no index of four."),
        (
            "14.1",
            lambda due, sent, done, part: right_lists_without_a_limit(sent, sent, done, part),
            "You measure since",
        ),
        ("14.3", lambda items, handler: (5, 1), "One process may be away"),
        ("14.3", lambda items, handler: (3, 2), "Threads that work all the time never catch up"),
        ("14.3", lambda items, handler: 5, "Threads that work all the time never catch up"),
    ],
)
def test_notebook_14_gives_the_hint_of_what_is_wrong(which, answer, hinted, monkeypatch):
    [exercise] = [each for each in load(REPO / "notebooks/solutions/14_how_fast.py") if each.id == which]
    monkeypatch.setattr("kqlib.workshop.checks.find", lambda which: exercise)
    assert check(which, answer).text.splitlines()[1].startswith(f"hint: {hinted}")


def test_a_log_with_too_many_batches_is_refused_with_their_number(monkeypatch):
    [exercise] = [each for each in load(REPO / "notebooks/solutions/14_how_fast.py") if each.id == "14.2"]
    names = exercise.probe.__globals__
    node = SimpleNamespace(node=SimpleNamespace(data=Path()))
    cluster = SimpleNamespace(client=dict, broker=lambda number: node)
    stored = [SimpleNamespace(value=lambda item=item: item) for item in names["ITEMS"]]
    fakes = {"kafka": lambda: cluster, "new_topic": lambda cluster: "t", "batches": lambda file: 200}
    fakes["Producer"] = lambda settings: SimpleNamespace(list_topics=lambda topic, timeout: None)
    fakes["reading"] = SimpleNamespace(records=lambda cluster, topic: [stored])
    for name, fake in fakes.items():
        monkeypatch.setitem(names, name, fake)
    tried = list(exercise.probe(lambda *args: None))
    assert [(each.got, each.expected) for each in tried] == [(1_000, 1_000), (200, 100)]
