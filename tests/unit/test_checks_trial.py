"""What one line says about an answer: what it gave or raised, that it took too long, what a probe found."""

import collections
import functools
import signal
import threading
import time
from decimal import Decimal

import pytest

from kqlib.workshop.checks import Case, Exercise, Tried, check, find
from kqlib.workshop.checks.trial import outcome
from kqlib.workshop.checks.values import same, shown
from tests.patience import PATIENCE
from tests.unit.checks_examples import Quiet

pytestmark = pytest.mark.usefixtures("solutions")

LIMIT = 0.2  # seconds that an answer has on a quiet machine


def tell(answer, expected, *args, seconds=20.0):
    """The first line about an answer to an exercise with one case."""
    return tell_all(answer, Case(args, expected), seconds=seconds)


def tell_all(answer, *cases, seconds=20.0):
    exercise = Exercise(id="01.1", ask="Do it.", cases=cases, solution=len, seconds=seconds)
    return outcome(exercise, answer)[1]


# --- what it gave or raised -----------------------------------------------------------------------------------------


def raises(error):
    """An answer that raises."""

    def answer(*_):
        raise error

    return answer


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
        (functools.partial(lambda n, key: 1, 6), ""),
        (lambda key, n: 1, "the check calls answer('x'), and yours is answer(key, n)"),
        (
            lambda a, b, c=QUIET: 1,
            "the check calls answer('x'), and yours is answer(a, b, c=<tests.unit.checks_examples.Quiet object>)",
        ),
        (raises(NotImplementedError("later")), "answer('x') is still to be written"),
        (raises(KeyError("ARS")), "answer('x') raised KeyError: 'ARS'"),
        (raises(ValueError()), "answer('x') raised ValueError"),
        (raises(ValueError("one\n  two")), "answer('x') raised ValueError: one two"),
        (raises(ValueError("é" * 310)), f"answer('x') raised ValueError: {'é' * 300}… 10 more characters"),
        (raises(ValueError(Quiet())), "answer('x') raised ValueError: <tests.unit.checks_examples.Quiet object>"),
        (raises(ValueError(Loud())), "answer('x') raised ValueError: <ValueError whose str raised RuntimeError>"),
        (raises(SystemExit(1)), "answer('x') raised SystemExit: 1"),
        (raises(KeyboardInterrupt()), "answer('x') raised KeyboardInterrupt"),
        (3, f"{WANTS} 3 (int)"),
    ],
)
def test_an_answer_that_raises_or_cannot_be_called_gets_one_helpful_line(answer, text):
    where = ", in line 2: raise error" if " raised " in text else ""
    assert tell(answer, 1, "x") == text + where


@pytest.mark.parametrize(
    ("got", "expected", "text"),
    [
        (None, 3, "answer() gave None, expected 3"),
        (True, 1, "answer() gave True (bool), expected 1 (int)"),
        ("3", 3, "answer() gave '3' (str), expected 3 (int)"),
        (3.0, 3, "answer() gave 3.0 (float), expected 3 (int)"),
        ({1}, [1], "answer() gave the right values in the wrong form (a set, not a list): {1}"),
        ((1, 2), [2, 1], "answer() gave the right values in the wrong order: (1, 2)"),
        ((n for n in [1]), [1], "answer() gave <generator object <genexpr>> (generator), expected [1] (list)"),
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
    found = tell(lambda: got, expected)
    assert found == text if text.startswith("answer") else found.endswith(text)


def test_an_address_without_its_at_goes_too_and_a_short_hex_number_stays():
    assert tell(raises(ValueError("lock 0x7f12345678ab, seed 0x9747b28c")), 1) == (
        "answer() raised ValueError: lock 0x…, seed 0x9747b28c, in line 2: raise error"
    )


def append(values):
    values.append(1)
    return values


@pytest.mark.parametrize(
    ("answer", "args", "became"),
    [
        (lambda values: values.sort(), ([3, 1],), "answer([3, 1]) changed what it was given: [3, 1] became [1, 3]"),
        (append, ([],), "answer([]) changed what it was given: [] became [1]"),
    ],
)
def test_an_answer_that_changes_its_arguments_notices_and_the_case_keeps_them(answer, args, became):
    case = Case(args, 1)
    for _ in range(2):
        assert tell_all(answer, case) == f"{became}. Leave it as it is and return a new one"


def test_values_without_an_equality_are_not_taken_for_changed():
    assert tell(lambda quiet: 1, 1, Quiet()) == ""


# --- time -----------------------------------------------------------------------------------------------------------


def spin(_):
    while True:
        pass


awake = threading.Event()


def sleep_long(_):
    awake.wait()  # one wait in compiled code: nothing can end it


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            spin,
            f"answer('x') was not done after {LIMIT * PATIENCE:g} s and was stopped. Is there a loop that never ends?",
        ),
        (
            sleep_long,
            f"answer('x') was not done after {LIMIT * PATIENCE:g} s and cannot be stopped: restart the kernel before you go on",
        ),
    ],
)
def test_an_answer_that_never_returns_costs_its_time_limit_and_not_the_notebook(answer, text):
    awake.clear()
    began = time.monotonic()
    assert tell(answer, 1, "x", seconds=LIMIT) == text
    assert time.monotonic() - began < 5 * PATIENCE
    awake.set()


def lasts(beats):
    """Whether a thread still adds to a list, half a second later at the latest."""
    for _ in range(10):
        before = len(beats)
        time.sleep(0.05)
        if len(beats) == before:
            return False
    return True


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

    exercise = Exercise(id="01.1", ask="", probe=waits, solution=len, seconds=LIMIT)
    assert outcome(exercise, lambda: 1)[1].startswith(
        f"the check was not done after {LIMIT * PATIENCE:g} s and was stopped"
    )


# --- probes ---------------------------------------------------------------------------------------------------------


def probe_of(*steps):
    """An exercise whose probe does one thing."""

    def probe(answer):
        for step in steps:
            yield step(answer)

    return Exercise(id="01.1", ask="", probe=probe, solution=len)


def test_a_probe_says_in_its_own_words_what_it_tried():
    assert check("01.2", find("01.2").solution).text == "✓ 01.2: 3 of 3\nWrite a log."

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
    assert outcome(probe_of(step), answer)[1].startswith(text)


def test_a_probe_may_expect_an_exception_and_goes_on_when_it_comes():
    def refuses(answer):
        with pytest.raises(ValueError, match="name"):
            answer("bad name")
        return Tried("a bad name", "refused", "refused")

    held, trouble, *_ = outcome(probe_of(refuses), raises(ValueError("bad name")))
    assert (len(held), trouble) == (1, "")


def test_a_probe_that_tries_nothing_passes_nobody():
    assert outcome(probe_of(), len)[:2] == ([], "the check tried nothing")


# --- values ---------------------------------------------------------------------------------------------------------


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
        (Quiet(), "<tests.unit.checks_examples.Quiet object>"),
        ([Quiet()], "[<tests.unit.checks_examples.Quiet object>]"),
        (Quiet().__init__, "<method-wrapper '__init__' of Quiet object>"),
        (Case(("x" * 99,), 1), f"Case(args=('{'x' * 58}… 74 more characters"),
        ("0x7f12345678ab", "'0x7f12345678ab'"),  # a reader's own text stays
    ],
)
def test_a_value_is_shown_the_same_each_time_and_what_is_left_out_is_counted(value, text):
    assert shown(value) == text
