"""The crash table in words and drawn: each number is there, and nothing hostile or missing breaks it."""

from __future__ import annotations

import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from kqlib.workshop.view.crash import crash
from kqlib.workshop.view.picture import WIDE
from tests.unit.view_examples import HOSTILE, SVG

ORDERS, CRASHES = ["at-most-once", "at-least-once"], ["write", "commit"]
COUNTS = {
    ("at-most-once", "write"): (0, 10, 0),
    ("at-most-once", "commit"): (1, 9, 0),
    ("at-least-once", "write"): (0, 9, 1),
    ("at-least-once", "commit"): (0, 10, 0),
}
TABLE = crash(ORDERS, CRASHES, COUNTS)


def drawn(picture: Any, kind: str = "text") -> list[ElementTree.Element]:
    """Elements of an SVG, by their name."""
    return list(ElementTree.fromstring(picture.svg).iter(f"{SVG}{kind}"))


def bars(picture: Any) -> dict[str, list[float]]:
    """The heights of its bars, by what they count."""
    found: dict[str, list[float]] = {}
    for each in drawn(picture, "rect"):
        if each.get("class") in {"lost", "once", "doubled"}:
            found.setdefault(each.get("class", ""), []).append(float(each.get("height", "0")))
    return found


def test_the_example_of_the_room_comes_out_word_for_word() -> None:
    promised = (sys.modules["kqlib.workshop.view.crash"].__doc__ or "").split("twin:\n\n")[1].split("\n\n")[0]
    assert TABLE.text == "\n".join(line.removeprefix("    ") for line in promised.splitlines())


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((0, 10, 0), "once 10"),
        ((10, 0, 0), "lost 10"),
        ((1, 2, 3), "lost 1, once 2, doubled 3"),
        ((0, 0, 0), "no items"),
        (None, "not run"),
    ],
)
def test_a_cell_says_what_is_not_zero(counts: tuple[int, int, int] | None, words: str) -> None:
    picture = crash(["order"], ["read"], {("order", "read"): counts} if counts else {})
    assert picture.text.splitlines()[-1] == f"order  {words}"


@pytest.mark.parametrize(
    ("picture", "sentence"),
    [
        (TABLE, "crash table · 2 orders, 2 crash points · items lost in 1 cell, doubled in 1"),
        (crash([], [], {}), "crash table · 0 orders, 0 crash points"),
        (crash(["a"], ["b"], {}, "mine"), "mine · 1 order, 1 crash point · 1 not run yet"),
        (
            crash(["a"], ["b", "c"], {("a", "b"): (2, 0, 0)}),
            "crash table · 1 order, 2 crash points · items lost in 1 cell, doubled in 0 · 1 not run yet",
        ),
    ],
)
def test_the_first_line_counts_the_cells(picture: Any, sentence: str) -> None:
    assert picture.title == picture.text.splitlines()[0] == sentence


def test_the_chosen_cell_is_pointed_at_in_words_and_in_the_drawing() -> None:
    picture = crash(ORDERS, CRASHES, COUNTS, chosen=("at-most-once", "commit"))
    assert "[lost 1, once 9]" in picture.text
    assert [each.get("class") for each in drawn(picture, "rect")].count("cell chosen") == 1
    assert "chosen" not in "".join(each.get("class") or "" for each in drawn(TABLE, "rect"))


def test_a_bar_is_as_long_as_its_number_and_zero_has_none() -> None:
    found = bars(TABLE)
    assert [len(found[word]) for word in ("lost", "once", "doubled")] == [1, 4, 1]
    assert len(set(found["once"])) == 2
    assert max(found["once"]) > min(found["once"]) > found["lost"][0] == found["doubled"][0] > 0


def test_each_bar_has_its_word_and_its_number_so_that_colour_is_not_needed() -> None:
    said = [each.text for each in drawn(TABLE)]
    assert [said.count(word) for word in ("lost", "once", "doubled", "10", "9", "1", "0")] == [4, 4, 4, 2, 2, 2, 6]


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_hostile_names_are_shown_and_do_no_harm(hostile: str) -> None:
    picture = crash([hostile], [hostile], {(hostile, hostile): (1, 10**12, 0)}, hostile)
    assert float(ElementTree.fromstring(picture.svg).get("width", "999")) <= WIDE
    assert len(picture.text.splitlines()) == 3
    assert picture.svg.encode()


@pytest.mark.parametrize("n", [1, 3, 12])
def test_everything_stays_inside_whatever_the_number_of_crash_points(n: int) -> None:
    points = [f"point {number}" for number in range(n)]
    picture = crash(
        ["an order with a very long name"], points, {("an order with a very long name", "point 0"): (1, 9, 0)}
    )
    wide = float(ElementTree.fromstring(picture.svg).get("width", "0"))
    assert wide <= WIDE
    for each in drawn(picture, "rect"):
        assert float(each.get("x", "0")) + float(each.get("width", "0")) <= wide
        assert float(each.get("width", "0")) > 0
