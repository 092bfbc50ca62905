"""The rungs on paper: each fits on a screen, says what it costs, and the ladder has them in their order."""

import inspect

import pytest

from kqlib.workshop import ladder
from kqlib.workshop.ladder import LADDER, LEDGER

SCREEN = 75


@pytest.mark.parametrize("name", LADDER)
def test_a_rung_fits_on_a_screen(name):
    assert len(inspect.getsource(LADDER[name]).splitlines()) <= SCREEN


@pytest.mark.parametrize("name", LADDER)
def test_a_rung_knows_what_it_costs(name):
    costs = LADDER[name].costs
    lines, commits = costs["lines · commits an item"].split(" · ")
    assert 10 < int(lines) < 120
    assert commits[0] in "01"
    assert costs["gives up"]


def test_the_lines_of_the_rung_below_count_too():
    def lines(name):
        return int(LADDER[name].costs["lines · commits an item"].split(" · ")[0])

    assert lines("deleted list") > lines("save offset") + 30


class Example:
    """A docstring is no line."""

    here = 1

    def verb(self):
        """Nor is this."""
        # nor this
        return self.here


def test_lines_are_lines_of_code():
    assert ladder._lines(Example) == 6  # a docstring leaves a pass


def test_the_real_one_says_that_it_is_longer():
    lines = LEDGER.costs["lines · commits an item"].split(" · ")[0]
    assert int(lines.removeprefix("≈ ").replace(",", "")) >= 500
