"""Curves in words and drawn: the numbers are there, in their places, and nothing hostile or missing breaks it."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from kqlib.workshop.view.curve import curve
from kqlib.workshop.view.picture import WIDE
from tests.unit.view_examples import HOSTILE, SVG

POINTS = curve(
    {"ARS": [3, 4, 7, 7], "CHE": [0, 3, 4, 7]}, "points after each round", step="round", events={3: "cup final"}
)


def drawn(picture: Any, kind: str) -> list[ElementTree.Element]:
    """Elements of an SVG, by their name."""
    return list(ElementTree.fromstring(picture.svg).iter(f"{SVG}{kind}"))


def places(picture: Any, at: int = -1) -> list[tuple[float, float]]:
    """Where a line goes; the first one is drawn last."""
    points = drawn(picture, "polyline")[at].get("points", "").split()
    return [(float(x), float(y)) for x, y in (each.split(",") for each in points)]


def test_the_example_of_the_room_comes_out_word_for_word() -> None:
    promised = (sys.modules["kqlib.workshop.view.curve"].__doc__ or "").split("twin:\n\n")[1].split("\n\n")[0]
    assert POINTS.text == "\n".join(line.removeprefix("    ") for line in promised.splitlines())
    assert POINTS.title == POINTS.text.splitlines()[0]


def test_a_line_rises_with_its_numbers_and_goes_to_the_right() -> None:
    found = places(POINTS)
    assert [x for x, _ in found] == sorted(x for x, _ in found) and len(found) == 4
    ys = [y for _, y in found]
    assert ys[0] > ys[1] > ys[2] == ys[3]
    assert places(POINTS, 0)[-1] == found[-1]  # both end at 7


def test_the_scale_has_round_numbers_and_holds_every_value() -> None:
    for values in ([0], [1, 2], [-3, 4], [0, 99], [123456, 7], [0.1, 0.4], [5e9]):
        picture = curve({"a": values})
        high = float(ElementTree.fromstring(picture.svg).get("height", "0"))
        assert all(0 < y < high for _, y in places(picture)), values
    scale = [each.text for each in drawn(curve({"a": [0, 99]}), "text") if each.get("text-anchor") == "end"]
    assert scale == ["0", "50", "100"]


@pytest.mark.parametrize(
    ("steps", "ticks"),
    [
        (1, "1"),
        (4, "1 2 3 4"),
        (12, "1 2 3 4 5 6 7 8 9 10 11 12"),
        (13, "1 2 4 6 8 10 12 13"),
        (38, "1 5 10 15 20 25 30 35 38"),
        (100, "1 10 20 30 40 50 60 70 80 90 100"),
    ],
)
def test_of_many_steps_a_dozen_are_told_and_the_last_one_always(steps: int, ticks: str) -> None:
    head, line = curve({"a": range(1, steps + 1)}).text.splitlines()[1:3]
    assert head.split() == ["step", *ticks.split()] and line.split() == ["a", *ticks.split()]


def test_names_that_end_side_by_side_do_not_touch() -> None:
    picture = curve({name: [1, 5] for name in "abcd"})
    ys = sorted(float(each.get("y", "0")) for each in drawn(picture, "text") if each.text in set("abcd"))
    assert len(ys) == 4 and all(b - a >= 10 for a, b in pairwise(ys))


def test_what_happened_is_a_bar_at_its_step_and_outside_of_the_picture_it_is_left_out() -> None:
    picture = curve({"a": [1, 2, 3]}, events={2: "killed", 9: "never"})
    (bar,) = [each for each in drawn(picture, "line") if each.get("class") == "event"]
    assert float(bar.get("x1", "0")) == pytest.approx(places(picture)[1][0], abs=0.1)
    assert picture.text.splitlines()[-1] == "step 2: killed" and "never" not in picture.svg


def test_lines_of_different_length_and_no_lines_at_all_are_drawn() -> None:
    assert curve({"a": [1, 2, 3], "b": [4]}).text.splitlines()[-1].split() == ["b", "4"]
    for nothing in ({}, {"a": []}):
        assert curve(nothing).text.startswith(f"curve · {len(nothing)} line")  # type: ignore[arg-type]


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_hostile_names_are_shown_and_do_no_harm(hostile: str) -> None:
    picture = curve({hostile: [1, 2]}, hostile, step=hostile, events={1: hostile, 2: hostile})
    assert float(ElementTree.fromstring(picture.svg).get("width", "999")) <= WIDE
    assert len(picture.text.splitlines()) == 5
    assert picture.svg.encode()
