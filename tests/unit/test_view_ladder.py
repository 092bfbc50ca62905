"""The ladder as a table: what its twin says, what is bold, and that nothing hostile gets through."""

import html.parser
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqlib.workshop.view import ladder as room
from kqlib.workshop.view.ladder import Ladder, Rung, Step
from kqlib.workshop.view.picture import columns
from tests.unit.view_examples import HOSTILE

FIRST, BACK = "first in, first out", "released comes back"
AUTO = Rung("auto-commit", {FIRST: Step(True, 10), BACK: Step(False, 3, "1 never came")}, {"costs": "0 commits"})
LEASES = Rung("leases", {FIRST: Step(True, 10), BACK: Step(True, 3)}, {"costs": "1 commit"})
BOTH = Ladder([AUTO, LEASES])


def test_the_example_of_the_docstring_comes_out_word_for_word():
    shown = room.__doc__.split("\n\n")[2]
    assert BOTH.text.splitlines() == [line.removeprefix("    ") for line in shown.splitlines()]


@pytest.mark.parametrize(
    ("rungs", "line"),
    [
        ([AUTO], "released comes back  ✗ 1 never came"),
        ([Rung("a", {BACK: Step(None, 0, "no release")})], "released comes back  – no release"),
        ([Rung("a", {BACK: Step(True)})], "released comes back  ✓"),
        ([LEASES, AUTO], "released comes back  ✓ 3         ✗"),
        ([AUTO, LEASES, LEASES], "released comes back  ✗                *✓ 3*       ✓ 3"),
        ([AUTO, Rung("b", {"extend": Step(True, 3)})], "extend                                *✓ 3*"),
        ([AUTO, Rung("b", {})], "costs                0 commits"),
        ([], "kept of 0 promises"),
    ],
)
def test_a_line_says_what_there_is(rungs, line):
    assert line in Ladder(rungs).text.splitlines()


def test_what_a_rung_newly_keeps_is_bold_and_nothing_else_is():
    bold = [re.sub("<.*?>", "", cell) for cell in BOTH.html.split("<td") if "font-weight:600" in cell]
    assert [cell.partition(">")[2].strip() for cell in bold] == ["✓ 3"]


def test_what_was_seen_is_a_tooltip_and_opens_under_its_sign():
    assert re.search('title="1 never came"><details><summary[^>]*>✗</summary>1 never came</details>', BOTH.html)
    assert BOTH.reasons == "released comes back, auto-commit: 1 never came"
    assert "<details>" not in Ladder([AUTO]).html
    assert 'title="1 never came">✗ 1 never came<' in Ladder([AUTO]).html


def test_half_of_the_promises_and_all_costs_of_a_full_ladder_fit_into_an_output():
    """Notebook 09 shows them in two halves."""
    from kqlib.workshop.ladder import LADDER
    from kqlib.workshop.promises import PROMISES

    longest = sorted(PROMISES, key=len)[len(PROMISES) // 2 :]
    steps = dict.fromkeys(longest, Step(True, 40))
    costs = {name: each.costs for name, each in LADDER.items()} | {"the ledger": {"gives up": "19 of 20 words"}}
    lines = Ladder([Rung(name, steps, cost) for name, cost in costs.items()]).text.splitlines()
    assert len(lines) <= 25
    assert max(map(columns, lines)) <= 120


class Balanced(html.parser.HTMLParser):
    """Every tag that opens closes, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, name, attributes):
        self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text += data


WORDS = st.sampled_from([*HOSTILE, "plain"])
STEPS = st.builds(Step, st.sampled_from([True, False, None]), st.integers(0, 99), WORDS)
RUNGS = st.builds(Rung, WORDS, st.dictionaries(WORDS, STEPS, max_size=4), st.dictionaries(WORDS, WORDS, max_size=2))


@settings(max_examples=40, deadline=None)
@given(st.lists(RUNGS, max_size=4))
def test_any_ladder_is_well_formed_and_nothing_hostile_gets_through(rungs):
    shown, page = Ladder(rungs), Balanced()
    page.feed(shown.html)
    assert page.open == []
    assert "<script" not in shown.html
    assert len(shown.text.split("\n")) == 1 + len(shown.promises) + len(shown.costs)
    assert set(shown._repr_mimebundle_()) == {"text/plain", "text/html"}
