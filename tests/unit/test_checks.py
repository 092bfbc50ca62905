"""What a reader sees when an answer is tried, what is remembered of it, and what code looks like when it is shown."""

import collections
import functools
import json
import linecache
import signal
import subprocess
import sys
import threading
import time
from datetime import date
from decimal import Decimal

import confluent_kafka
import pytest

import kqlib.checks
from kqlib import checks, places
from kqlib.checks import Case, Exercise, Tried, check, hint, progress, same, shown, solution, source
from kqlib.errors import NotAllowed

TOPICS = '''
"""Answers to 01."""

from __future__ import annotations

from dataclasses import dataclass

from kqlib.checks import Case, Exercise, Tried


def partition(key, n):
    """The length of a key, as a hash."""
    return len(key) % n


def first_letter(key, n):
    return ord(key[0]) % n


ONE = Exercise(
    id="01.1",
    ask="Which of n partitions does a key go to?",
    cases=[
        Case(("ARS-CHE", 6), 1, "a key always goes to the same partition"),
        Case(("ARS-CHE", 2), 1, "the number of partitions matters"),
        Case(("", 4), 0, "an empty key is a key"),
        Case(("", 3), 0, "an empty key is a key"),
    ],
    hints=("Count first.", "len(key), then %."),
    solution=partition,
    wrong=(first_letter,),
)


@dataclass
class Log:
    """Records in a row."""

    records: list[str]

    def put(self, record):
        self.records.append(record)


def tried(answer):
    yield Tried("looking at it", isinstance(answer, type), True)
    log = answer([])
    log.put("a")
    yield Tried("putting one record", len(log.records), 1)
    log.put("b")
    yield Tried("putting another", log.records, ["a", "b"])


TWO = Exercise(id="01.2", ask="Write a log.", probe=tried, hints=("A list.",), solution=Log)


def sort_all(values):
    return sorted(values)


TEN = Exercise(id="01.10", ask="Sort a copy.", cases=[Case(([3, 1, 2],), [1, 2, 3])], solution=sort_all)
'''

REPLICAS = """
from kqlib.checks import Case, Exercise

THREE = Exercise(id="02.1", ask="Say yes.", cases=[Case((), True)], solution=lambda: True)
"""

ALL = "01.1, 01.2, 01.10, 02.1"
MORE = 'more: kq.hint("01.1", 2), kq.solution("01.1")'


@pytest.fixture(autouse=True)
def repo(monkeypatch, tmp_path):
    """A checkout with two files of exercises, and a machine on which nothing was passed yet."""
    folder = tmp_path / "repo" / "notebooks" / "solutions"
    folder.mkdir(parents=True)
    (folder / "01_topics.py").write_text(TOPICS)
    (folder / "02_partitions_and_replicas.py").write_text(REPLICAS)
    monkeypatch.setattr(places, "repo", lambda: tmp_path / "repo")
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "state"))
    return folder


def tell(answer, expected, *args, seconds=20.0):
    """The first line about an answer to an exercise with one case."""
    return tell_all(answer, Case(args, expected), seconds=seconds)


def tell_all(answer, *cases, seconds=20.0):
    exercise = Exercise(id="01.1", ask="Do it.", cases=cases, solution=len, seconds=seconds)
    return checks._try(exercise, answer)[1]


# --- the texts ------------------------------------------------------------------------------------------------------


def stub(key, n): ...


def right(key, n):
    print("prints are allowed")
    return len(key) % n


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


@pytest.mark.parametrize("which", ["01.1", "01.2", "01.10", "02.1"])
def test_each_solution_passes_and_each_typical_wrong_answer_does_not(which):
    exercise = checks.find(which)
    assert check(which, exercise.solution).passed
    assert not any(check(which, answer).passed for answer in exercise.wrong)


def raises(error):
    """An answer that raises."""

    def answer(*_):
        raise error

    return answer


def recursive(n):
    return recursive(n + 1)


class Quiet:
    """A value whose repr tells its address."""


QUIET = Quiet()


class Loud:
    """A value that cannot be shown."""

    def __str__(self):
        raise RuntimeError("no")

    def __repr__(self):
        raise RuntimeError("no")


WANTS = 'kq.check wants the function itself, as in kq.check("01.1", answer); this is'


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda key: 1, ""),
        (lambda *keys: 1, ""),
        (functools.partial(lambda n, key: 1, 6), ""),
        (lambda: 1, "the check calls answer('x'), and yours is answer()"),
        (lambda key, n: 1, "the check calls answer('x'), and yours is answer(key, n)"),
        (
            lambda a, b, c=QUIET: 1,
            "the check calls answer('x'), and yours is answer(a, b, c=<test_checks.Quiet object>)",
        ),
        (raises(NotImplementedError("later")), "answer('x') is still to be written"),
        (raises(ZeroDivisionError("by zero")), "answer('x') raised ZeroDivisionError: by zero"),
        (raises(KeyError("ARS")), "answer('x') raised KeyError: 'ARS'"),
        (raises(ValueError()), "answer('x') raised ValueError"),
        (raises(ValueError("one\n  two")), "answer('x') raised ValueError: one two"),
        (raises(ValueError("é" * 310)), f"answer('x') raised ValueError: {'é' * 300}… 10 more characters"),
        (raises(ValueError(Quiet())), "answer('x') raised ValueError: <test_checks.Quiet object>"),
        (raises(ValueError(Loud())), "answer('x') raised ValueError: <ValueError whose str raised RuntimeError>"),
        (raises(SystemExit(1)), "answer('x') raised SystemExit: 1"),
        (raises(KeyboardInterrupt()), "answer('x') raised KeyboardInterrupt"),
        (3, f"{WANTS} 3 (int)"),
        (None, f"{WANTS} None (NoneType)"),
    ],
)
def test_an_answer_that_raises_or_cannot_be_called_gets_one_helpful_line(answer, text):
    assert tell(answer, 1, "x") == text


@pytest.mark.parametrize(
    ("got", "expected", "text"),
    [
        (None, 3, "answer() gave None, expected 3"),
        (1, True, "answer() gave 1 (int), expected True (bool)"),
        (True, 1, "answer() gave True (bool), expected 1 (int)"),
        ("3", 3, "answer() gave '3' (str), expected 3 (int)"),
        (3.0, 3, "answer() gave 3.0 (float), expected 3 (int)"),
        (b"a", "a", "answer() gave b'a' (bytes), expected 'a' (str)"),
        ({1}, [1], "answer() gave {1} (set), expected [1] (list)"),
        ((1, 2), [2, 1], "answer() gave (1, 2), expected [2, 1]"),
        ([1, True], [1, 1], "answer() gave [1, True], expected [1, 1]"),
        ((n for n in [1]), [1], "answer() gave <generator object <genexpr>> (generator), expected [1] (list)"),
        (Quiet(), 1, "answer() gave <test_checks.Quiet object> (Quiet), expected 1 (int)"),
        (Loud(), 1, "answer() gave <Loud whose repr raised RuntimeError> (Loud), expected 1 (int)"),
        ([*range(99), 7], [*range(100)], "; at position 99: 7, not 99"),
        ([*range(99)], [*range(100)], "; 99 long, not 100"),
        ("a" * 99 + "b", "a" * 100, "; at position 99: 'b', not 'a'"),
        ({n: n for n in range(99)}, {n: n for n in range(100)}, "; the key 99 is missing"),
        ({n: n for n in range(100)}, {n: n for n in range(99)}, "; the key 99 is too much"),
        ({n: n // 99 for n in range(100)}, dict.fromkeys(range(100), 0), "; at key 99: 1, not 0"),
    ],
)
def test_a_wrong_value_is_shown_beside_the_right_one_and_their_types_where_they_differ(got, expected, text):
    told = tell(lambda: got, expected)
    assert told == text if text.startswith("answer") else told.endswith(text)


def test_where_two_values_part_is_only_told_when_their_texts_are_cut():
    assert tell(lambda: [1, 2], [1, 3]) == "answer() gave [1, 2], expected [1, 3]"


@pytest.mark.parametrize(
    ("got", "expected", "right"),
    [
        ((1, 2), [1, 2], True),
        ([(1, [2])], ([1, (2,)],), True),
        ({"a": (1,)}, {"a": [1]}, True),
        (0.1 + 0.2, 0.3, True),
        (1, 1.0, True),
        (frozenset("a"), {"a"}, True),
        (collections.Counter("aa"), {"a": 2}, True),
        (10**12 + 1, 10**12, False),  # offsets are compared exactly
        (0.31, 0.3, False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": True}, {"a": 1}, False),
        (Decimal("3"), 3, True),
        (None, 0, False),
        (None, None, True),
    ],
)
def test_what_counts_as_the_same(got, expected, right):
    assert same(got, expected) is right


def test_numbers_of_numpy_are_numbers_and_its_arrays_no_lists():
    numpy = pytest.importorskip("numpy")
    assert same(numpy.int64(3), 3)
    assert same(numpy.float32(0.5), 0.5)
    assert same(numpy.bool_(True), True)
    assert not same(numpy.int64(1), True)
    assert not same(numpy.array([1, 2]), [1, 2])


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 70, repr("a" * 70)),
        ("a" * 1100, f"{'a' * 70!r}… 1,030 more characters"),
        (b"a" * 72, f"{b'a' * 70!r}… 2 more bytes"),
        ([], "[]"),
        ((), "()"),
        ((1,), "(1,)"),
        (set(), "set()"),
        ({"b", "a", "c"}, "{'a', 'b', 'c'}"),
        (frozenset("ba"), "frozenset({'a', 'b'})"),
        ({"b": {2, 1}, "a": ()}, "{'b': {1, 2}, 'a': ()}"),
        (
            list(range(1000, 3000)),
            "[1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, … 1,988 more]",
        ),
        (["a" * 100], f"[{'a' * 62!r}… 38 more characters]"),
        (LOOP, "[[[[[[[…]]]]]]]"),
        (Quiet(), "<test_checks.Quiet object>"),
        ([Quiet()], "[<test_checks.Quiet object>]"),
        (Quiet().__init__, "<method-wrapper '__init__' of Quiet object>"),
        (Case(("x" * 99,), 1), f"Case(args=('{'x' * 58}… 65 more characters"),
        ("0x7f12345678ab", "'0x7f12345678ab'"),  # a reader's own text stays
    ],
)
def test_a_value_is_shown_the_same_each_time_and_what_is_left_out_is_counted(value, text):
    assert shown(value) == text


def test_an_address_without_its_at_goes_too_and_a_short_hex_number_stays():
    assert tell(raises(ValueError("lock 0x7f12345678ab, seed 0x9747b28c")), 1) == (
        "answer() raised ValueError: lock 0x…, seed 0x9747b28c"
    )


def append(values):
    values.append(1)
    return values


@pytest.mark.parametrize(
    ("answer", "args", "became"),
    [
        (lambda values: values.sort(), ([3, 1],), "answer([3, 1]) changed what it was given: [3, 1] became [1, 3]"),
        (append, ([],), "answer([]) changed what it was given: [] became [1]"),
        (lambda a, b: b.clear(), (1, {2: 3}), "answer(1, {2: 3}) changed what it was given: {2: 3} became {}"),
    ],
)
def test_an_answer_that_changes_its_arguments_is_told_so_and_the_case_keeps_them(answer, args, became):
    case = Case(args, 1)
    for _ in range(2):
        assert tell_all(answer, case) == f"{became}. Leave it as it is and return a new one"


def test_values_without_an_equality_are_not_taken_for_changed():
    assert tell(lambda quiet: 1, 1, Quiet()) == ""


# --- time -----------------------------------------------------------------------------------------------------------


def spin(_):
    while True:
        pass


def sleep_long(_):
    time.sleep(6)  # one wait in compiled code: nothing can end it


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (spin, "answer('x') was not done after 0.2 s and was stopped. Is there a loop that never ends?"),
        (
            sleep_long,
            "answer('x') was not done after 0.2 s and cannot be stopped: restart the kernel before you go on",
        ),
    ],
)
def test_an_answer_that_never_returns_costs_its_time_limit_and_not_the_notebook(answer, text):
    began = time.monotonic()
    assert tell(answer, 1, "x", seconds=0.2) == text
    assert time.monotonic() - began < 5


def lasts(beats):
    """Whether somebody still adds to a list, half a second later at the latest."""
    for _ in range(10):
        before = len(beats)
        time.sleep(0.05)
        if len(beats) == before:
            return False
    return True


def test_a_loop_that_never_ends_is_gone_afterwards():
    beats = []

    def beat(_):
        while True:
            beats.append(1)
            time.sleep(0.001)

    tell(beat, 1, "x", seconds=0.1)
    assert beats
    assert not lasts(beats)


def test_the_stop_button_ends_the_answer_too():
    beats = []

    def stopped(_):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # what Jupyter sends
        while True:
            beats.append(1)
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        tell(stopped, 1, "x")
    assert not lasts(beats)


def test_a_probe_that_waits_for_ever_says_so_itself():
    def waits(answer):
        answer()
        yield Tried("x", spin(0), 1)

    exercise = Exercise(id="01.1", ask="", probe=waits, solution=len, seconds=0.2)
    assert checks._try(exercise, lambda: 1)[1].startswith("the check was not done after 0.2 s and was stopped")


# --- probes ---------------------------------------------------------------------------------------------------------


def probe_of(*steps):
    """An exercise whose probe does one thing."""

    def probe(answer):
        for step in steps:
            yield step(answer)

    return Exercise(id="01.1", ask="", probe=probe, solution=len)


def test_a_probe_says_in_its_own_words_what_it_tried():
    assert check("01.2", checks.find("01.2").solution).text == "✓ 01.2: 3 of 3\nWrite a log."

    class Forgets:
        def __init__(self, records):
            self.records = ["a"]

        def put(self, record):
            pass

    assert check("01.2", Forgets).text.startswith("✗ not yet: putting another gave ['a'], expected ['a', 'b']\n")


@pytest.mark.parametrize(
    ("step", "answer", "text"),
    [
        (
            lambda answer: Tried("t", answer(1).x, 1),
            lambda n: None,
            "answer(1) gave None, and the check could not go on: ",
        ),
        (
            lambda answer: Tried("t", answer(n=1), 1),
            raises(ValueError("x")),
            "the check calls answer(n=1), and yours is ",
        ),
        (lambda answer: Tried("t", answer(1), 1), raises(ValueError("x")), "answer(1) raised ValueError: x"),
        (lambda answer: 1 / 0, lambda: 1, "the check could not go on: ZeroDivisionError: division by zero"),
    ],
)
def test_a_probe_that_stumbles_over_an_answer_tells_what_the_answer_did(step, answer, text):
    assert checks._try(probe_of(step), answer)[1].startswith(text)


def test_a_probe_may_expect_an_exception_and_goes_on_when_it_comes():
    def refuses(answer):
        with pytest.raises(ValueError, match="name"):
            answer("bad name")
        return Tried("a bad name", "refused", "refused")

    held, trouble = checks._try(probe_of(refuses), raises(ValueError("bad name")))
    assert (len(held), trouble) == (1, "")


def test_a_probe_that_tries_nothing_passes_nobody():
    assert checks._try(probe_of(), len) == ([], "the check tried nothing")


# --- hints, solutions, what does not exist --------------------------------------------------------------------------


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


def test_a_broken_file_of_another_notebook_does_not_stop_a_check(repo):
    (repo / "01_topics.py").write_text("1 / 0")
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
def test_an_author_hears_of_an_id_used_twice_or_in_the_wrong_file(repo, old, new):
    (repo / "01_topics.py").write_text(TOPICS.replace(old, new))
    with pytest.raises(NotAllowed, match="is there twice or belongs to another notebook's file"):
        check("01.1", right)


# --- progress -------------------------------------------------------------------------------------------------------


def remembered():
    return json.loads((places.state() / "progress.json").read_text())


def test_a_pass_is_remembered_with_its_first_day_and_a_later_failure_does_not_unlearn(monkeypatch):
    assert check("01.1", right).passed
    assert remembered() == {"passed": {"01.1": date.today().isoformat()}}
    later = type("later", (date,), {"today": lambda: date(2099, 1, 1)})
    monkeypatch.setattr(checks, "date", later)
    assert not check("01.1", stub).passed
    assert check("01.1", right).passed
    assert check("02.1", lambda: True).passed
    assert remembered() == {"passed": {"01.1": date.today().isoformat(), "02.1": "2099-01-01"}}


def test_a_failed_check_leaves_no_trace():
    check("01.1", stub)
    assert not (places.state() / "progress.json").exists()


def test_progress_is_a_table_by_notebook_without_names_or_days():
    check("01.1", right)
    check("02.1", lambda: True)
    assert repr(progress()) == (
        "notebook                    passed\n"
        "01-topics                   1/3\n"
        "02-partitions-and-replicas  1/1 ✓\n"
        "all                         2/4"
    )


def test_progress_without_any_exercise_claims_nothing(repo):
    for path in repo.iterdir():
        path.unlink()
    assert repr(progress()).split() == ["notebook", "passed", "all", "0/0"]


def test_several_peoples_files_become_one_table_with_a_column_a_person(monkeypatch, tmp_path):
    day = date.today().isoformat()
    for user, passes in {
        "ana": [("01.1", right), ("02.1", lambda: True)],
        "ben": [],
        "cy": [("02.1", lambda: True)],
    }.items():
        monkeypatch.setenv("KQ_STATE", str(tmp_path / f"state-{user}"))
        monkeypatch.setattr("getpass.getuser", lambda user=user: user)
        for which, answer in passes:
            check(which, answer)
        (tmp_path / f"{user}.json").write_text(progress().as_json())
    assert json.loads((tmp_path / "ana.json").read_text()) == {
        "people": [{"user": "ana", "passed": {"01.1": day, "02.1": day}}]
    }
    merged = progress(files=[tmp_path / "ana.json", str(tmp_path / "ben.json")])
    table = (
        "notebook                    ana    ben\n"
        "01-topics                   1/3    0/3\n"
        "02-partitions-and-replicas  1/1 ✓  0/1\n"
        "all                         2/4    0/4"
    )
    assert repr(merged) == table
    (tmp_path / "both.json").write_text(merged.as_json())  # what was merged merges again
    assert repr(progress(files=[tmp_path / "both.json"])) == table
    assert repr(progress(files=[tmp_path / "both.json", tmp_path / "cy.json"])).split("\n")[0].split()[1:] == [
        "ana",
        "ben",
        "cy",
    ]


def test_two_people_of_one_name_stay_two_columns(tmp_path):
    for stem in ("ana", "ben"):
        (tmp_path / f"{stem}.json").write_text('{"people": [{"user": "jov\\nyan", "passed": {}}]}')
    header = repr(progress(files=[tmp_path / "ana.json", tmp_path / "ben.json"])).split("\n")[0]
    assert header == "notebook                    jov yan (ana)  jov yan (ben)"


BROKEN = ["", "{", "[]", "[" * 100_000, '{"passed": []}', '{"passed": {"01.1": 3}}', "null", b"\xff\xfe"]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_file_that_is_no_progress_is_named_and_nothing_is_merged(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(
        NotAllowed, match=r"^x\.json is not what `kq progress --json` prints \(\w+\); nothing was merged"
    ):
        progress(files=[tmp_path / "x.json"])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotAllowed, match=r"^none\.json is not what .* \(FileNotFoundError\)"):
        progress(files=[tmp_path / "none.json"])


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_corrupt_memory_is_set_aside_with_a_notice_and_never_breaks_a_check(text):
    broken = text if isinstance(text, bytes) else text.encode()
    note = "note: progress.json could not be read; it is now progress.broken-{}.json, and a new one begins"
    for n in (1, 2):
        (places.state() / "progress.json").write_bytes(broken)
        verdict = check("01.1", right)
        assert verdict.passed
        assert verdict.text.splitlines()[2:] == [note.format(n)]
        assert (places.state() / f"progress.broken-{n}.json").read_bytes() == broken
        assert list(remembered()["passed"]) == ["01.1"]
    (places.state() / "progress.json").write_bytes(broken)
    assert repr(progress()).splitlines()[-1] == note.format(3)
    assert repr(progress()).splitlines()[-1] == "all                         0/4"


def test_a_state_that_cannot_be_written_costs_a_line_and_not_the_check(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "file"))
    assert check("01.1", right).text.splitlines()[2:] == ["note: this pass could not be remembered (File exists)"]
    assert repr(progress()).splitlines()[-1] == "note: what was passed before could not be read (File exists)"


def test_a_user_without_a_name_is_unnamed(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert json.loads(progress().as_json()) == {"people": [{"user": "unnamed", "passed": {}}]}


def test_two_processes_that_pass_at_once_forget_nothing(tmp_path):
    code = """if True:
        import sys, time
        from kqlib import checks
        read = checks._passed
        checks._passed = lambda: (read(), time.sleep(0.01))[0]  # long enough for the other one to come in between
        for n in range(20):
            assert checks._remember(f"{sys.argv[1]}.{n}") == []
    """
    both = [subprocess.Popen([sys.executable, "-c", code, notebook]) for notebook in ("01", "02")]
    assert [process.wait(20) for process in both] == [0, 0]
    assert len(remembered()["passed"]) == 40
    assert sorted(path.name for path in places.state().iterdir()) == ["progress.json", "progress.lock"]


# --- source ---------------------------------------------------------------------------------------------------------


def plain(key):
    return key


@functools.wraps(plain)
def wrapping(*args):
    return plain(*args)


@functools.lru_cache
def cached(key):
    return key


class Room:
    def method(self):
        return 1

    @property
    def size(self):
        return 2

    @functools.cached_property
    def once(self):
        return 3

    @classmethod
    def make(cls):
        return cls()

    @staticmethod
    def fixed():
        return 4


PLAIN = "# test_checks.py · plain\ndef plain(key):\n    return key"


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (plain, PLAIN),
        (wrapping, PLAIN),
        (functools.partial(plain, 1), PLAIN),
        (cached, "# test_checks.py · cached\n@functools.lru_cache\ndef cached(key):\n    return key"),
        (Room.method, "# test_checks.py · Room.method\ndef method(self):\n    return 1"),
        (Room().method, "# test_checks.py · Room.method\ndef method(self):\n    return 1"),
        (Room.size, "# test_checks.py · Room.size\n@property\ndef size(self):\n    return 2"),
        (Room.once, "# test_checks.py · Room.once\n@functools.cached_property\ndef once(self):\n    return 3"),
        (Room.make, "# test_checks.py · Room.make\n@classmethod\ndef make(cls):\n    return cls()"),
        (Room.fixed, "# test_checks.py · Room.fixed\n@staticmethod\ndef fixed():\n    return 4"),
        (Quiet, '# test_checks.py · Quiet\nclass Quiet:\n    """A value whose repr tells its address."""'),
    ],
)
def test_source_shows_a_definition_below_a_line_that_says_where_it_lives(obj, text):
    assert repr(source(obj)) == text


@pytest.mark.parametrize(
    ("obj", "header"),
    [
        (source, "# kqlib/checks.py · source"),
        (kqlib.checks, "# kqlib/checks.py"),
        (kqlib.checks.Said.__repr__, "# kqlib/checks.py · Said.__repr__"),
        (confluent_kafka.ThrottleEvent, "# confluent_kafka/__init__.py · ThrottleEvent"),
        (json, "# json/__init__.py"),
    ],
)
def test_the_header_names_module_and_name_and_no_directory_of_this_machine(obj, header):
    first, second = repr(source(obj)).split("\n")[:2]
    assert first == header
    assert second


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (
            confluent_kafka.Producer,
            "Producer has no Python source to show: it is compiled, built in or made on the fly. ",
        ),
        (len, "len has no Python source to show: "),
        (sys, "sys has no Python source to show: "),
        (str.join, "str.join has no Python source to show: "),
        (eval("lambda: 1"), "<lambda> has no Python source to show: "),
        (Case.__init__, "Case.__init__ has no Python source to show: "),
        (type("Made", (), {}), "Made has no Python source to show: "),
        (3, "kq.source shows functions, classes, methods, properties and modules; this is 3."),
        (
            Quiet(),
            "kq.source shows functions, classes, methods, properties and modules; this is <test_checks.Quiet object>.",
        ),
    ],
)
def test_what_has_no_python_source_says_so(obj, why):
    with pytest.raises(NotAllowed) as caught:
        source(obj)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("code", "fence"), [("def f(): ...", "```"), ('def f():\n    """```py```"""', "````"), ("'`'", "```")]
)
def test_source_is_a_fenced_block_where_markdown_is_shown(code, fence):
    assert checks.Source(code)._repr_markdown_() == f"{fence}python\n{code}\n{fence}"


def test_a_function_and_a_class_from_a_notebook_cell_are_shown_too(monkeypatch):
    """A cell's text is in linecache under a made-up name, and in the notebook's list of cells."""
    new = "@dataclasses.dataclass\nclass Small:\n    n: int"
    function = "def twice(n):\n    return 2 * n"
    cells = ["class Small:\n    old = 1", f"import dataclasses\n\n\n{new}\n\n\nx = 1", "%matplotlib inline", function]
    names = {"__name__": "__main__"}
    for n, cell in enumerate(cells):
        if not cell.startswith("%"):
            linecache.cache[f"<cell {n}>"] = (len(cell), None, cell.splitlines(True), f"<cell {n}>")
            exec(compile(cell, f"<cell {n}>", "exec"), names)
    monkeypatch.setattr(sys.modules["__main__"], "In", cells, raising=False)
    assert repr(source(names["twice"])) == f"# this notebook · twice\n{function}"
    assert repr(source(names["Small"])) == f"# this notebook · Small\n{new}"
