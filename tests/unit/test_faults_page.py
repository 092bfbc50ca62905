"""docs/faults.md: it is made of the stored figures, and each case says what happens in it."""

from __future__ import annotations

import json

import pytest

from tests.faults import page
from tests.faults.cases import CASES, Case

FIGURES = json.loads((page.DOCS / "faults.json").read_text(encoding="utf-8"))


def test_the_page_is_made_of_the_stored_figures() -> None:
    assert (page.DOCS / "faults.md").read_text(encoding="utf-8") == page.page(FIGURES)
    if found := FIGURES.get(page.SOAK):
        assert (page.DOCS / "soak.svg").read_text(encoding="utf-8") == page.picture(found).svg


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_says_what_happens_and_its_last_figures_are_clean(case: Case) -> None:
    assert page.what_happens(case).endswith(".")
    if found := FIGURES.get(case.name):
        assert (found["lost"], found["shared"], found["twice"]) == (0, 0, 0)


def test_the_judge_finds_out_what_loses_items() -> None:
    assert (found := FIGURES.get(page.BROKEN.name)) is None or found["lost"] > 0


def test_the_order_is_shown_only_of_a_run_that_judged_it() -> None:
    case = next(case for case in CASES if case.name == "leader and coordinator SIGKILL")
    run = {"put": 1, "histories": 1, "seeds": [7], "pause": 1.0, "takeover": 0.0, "misordered": 3, "day": "today"}
    at = page.HEAD.index("order") + 1
    assert [page.row(case, run | how).split(" | ")[at - 1] for how in ({}, {"order": "key"})] == ["–", "3"]


def test_each_case_has_figures_of_its_own() -> None:
    keys = [page.key_of(case) for case in (*CASES, page.BROKEN, *page.PLANTED)]
    assert len(keys) == len(set(keys))
