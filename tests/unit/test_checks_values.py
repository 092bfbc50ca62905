"""Which values count as right, and how a value is shown."""

import collections
from decimal import Decimal

import pytest

from kqlib.workshop.checks import Case
from kqlib.workshop.checks.values import same, shown
from tests.unit.checks_examples import Quiet


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
        (Case(("x" * 99,), 1), f"Case(args=('{'x' * 58}… 65 more characters"),
        ("0x7f12345678ab", "'0x7f12345678ab'"),  # a reader's own text stays
    ],
)
def test_a_value_is_shown_the_same_each_time_and_what_is_left_out_is_counted(value, text):
    assert shown(value) == text
