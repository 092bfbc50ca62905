"""The audit grid in words and drawn: each item has its cell, each verdict its sign, and nothing breaks it."""

from __future__ import annotations

import random
import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from kqlib.spark.verdict import VERDICTS
from kqlib.workshop.view.grid import KINDS, grid
from kqlib.workshop.view.picture import WIDE
from tests.unit.view_examples import HOSTILE, SVG

LANES = {0: "once once once missing once", 1: "once missing doubled once"}
ITEMS = [(number, offset, verdict) for number, lane in LANES.items() for offset, verdict in enumerate(lane.split())]
FOOTBALL = grid(ITEMS, "football")


def drawn(picture: Any, kind: str) -> list[ElementTree.Element]:
    """Elements of an SVG, by their name."""
    return list(ElementTree.fromstring(picture.svg).iter(f"{SVG}{kind}"))


def cells(picture: Any, kind: str = "") -> list[ElementTree.Element]:
    """Its cells, of one kind or all."""
    return [each for each in drawn(picture, "rect") if (each.get("class") or "").startswith(f"cell {kind}")]


def test_the_example_of_the_room_comes_out_word_for_word() -> None:
    promised = (sys.modules["kqlib.workshop.view.grid"].__doc__ or "").split("twin:\n\n")[1].split("\n\n")[0]
    assert FOOTBALL.text == "\n".join(line.removeprefix("    ") for line in promised.splitlines())
    assert FOOTBALL.title == FOOTBALL.text.splitlines()[0]


def test_the_order_of_the_items_is_of_no_matter() -> None:
    mixed = random.Random(3).sample(ITEMS, len(ITEMS))
    assert grid(mixed, "football").svg == FOOTBALL.svg


def test_there_is_a_word_and_a_cell_for_each_verdict_of_the_audit() -> None:
    assert set(KINDS) == set(VERDICTS)
    picture = grid((0, offset, verdict) for offset, verdict in enumerate(VERDICTS))
    assert len(cells(picture)) == 2 * len(VERDICTS)  # each once, and once to say what it means
    assert {each.text for each in drawn(picture, "text")} >= {f"1 {verdict}" for verdict in VERDICTS}


def test_what_is_wrong_has_a_number_beside_its_colour() -> None:
    signs = [each.text for each in drawn(FOOTBALL, "text") if each.get("class") == "bold" and each.text in {"0", "2"}]
    assert sorted(signs) == ["0", "0", "0", "2", "2"]  # two missing, one doubled, and what the signs mean
    assert len(cells(FOOTBALL, "missing")) == 3 and len(cells(FOOTBALL, "doubled")) == 2


def test_an_offset_without_an_item_has_no_cell_and_ends_a_run() -> None:
    picture = grid([(0, 3, "once"), (0, 4, "once"), (0, 6, "once")])
    assert picture.text.splitlines()[1] == "p0  once 3…4 · once 6"
    xs = [float(each.get("x", "0")) for each in cells(picture)][:3]
    assert xs[2] - xs[1] == 2 * (xs[1] - xs[0])


def test_many_items_take_more_lines_and_very_many_are_counted() -> None:
    picture = grid((0, offset, "once") for offset in range(1000))
    assert len(cells(picture)) == 12 * 32 + 1 and f"… {1000 - 12 * 32} more" in picture.svg
    assert picture.text == "audit · 1 partition · 1,000 items · 1,000 once\np0  once 0…999"
    assert float(ElementTree.fromstring(picture.svg).get("width", "999")) <= WIDE


def test_of_very_many_pieces_the_twin_tells_the_first_forty() -> None:
    line = grid((0, offset, ("once", "doubled")[offset % 2]) for offset in range(100)).text.splitlines()[1]
    assert line.endswith("· once 38 · doubled 39 · … 60 more")


def test_nothing_to_audit_is_a_picture_too() -> None:
    assert grid([]).text == "audit · 0 partitions · 0 items"


def test_a_word_that_is_no_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="'lost' is no verdict; there are once, doubled, missing"):
        grid([(0, 0, "lost")])


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_hostile_names_are_shown_and_do_no_harm(hostile: str) -> None:
    picture = grid(ITEMS, hostile)
    assert float(ElementTree.fromstring(picture.svg).get("width", "999")) <= WIDE
    assert len(picture.text.splitlines()) == 3
    assert picture.svg.encode()
