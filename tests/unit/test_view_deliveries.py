"""The deliveries of one item in words and drawn: rows are workers, blocks are attempts, and each end has its sign."""

from __future__ import annotations

import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from kqlib.workshop.view.deliveries import ENDS, Delivery, deliveries
from kqlib.workshop.view.picture import WIDE
from tests.unit.view_examples import HOSTILE, SVG

LIVES = [
    Delivery("first life", 1, 0, 3, "killed", "read, work, write"),
    Delivery("second life", 2, 4, 8, "ack", "read, work, write, commit"),
]


def drawn(picture: Any, kind: str) -> list[ElementTree.Element]:
    """Elements of an SVG, by their name."""
    return list(ElementTree.fromstring(picture.svg).iter(f"{SVG}{kind}"))


def test_the_example_of_the_room_comes_out_word_for_word() -> None:
    promised = (sys.modules["kqlib.workshop.view.deliveries"].__doc__ or "").split("twin:\n\n")[1].split("\n\n")[0]
    assert deliveries(LIVES, "INT-MIL").text == "\n".join(line.removeprefix("    ") for line in promised.splitlines())


@pytest.mark.parametrize(("end", "sign"), ENDS.items())
def test_each_end_has_a_sign_and_a_word(end: str, sign: str) -> None:
    picture = deliveries([Delivery("w1", 12, 0, 1, end)])
    assert picture.text.splitlines()[1] == f"w1  ¹² {sign} {end}"
    assert end in [each.text for each in drawn(picture, "text")]


def test_a_worker_that_had_it_twice_has_one_row_and_time_goes_to_the_right() -> None:
    mine = [Delivery("w1", 3, 5, 6), Delivery("w2", 2, 3, 4, "release"), Delivery("w1", 1, 0, 2, "expired", "work")]
    picture = deliveries(mine, "C")
    assert picture.text.splitlines() == [
        "C · 3 deliveries, 2 workers",
        "w1  ¹work ⏱ expired · ³ ✓ ack",
        "w2  ² ↩ release",
    ]
    blocks = [each for each in drawn(picture, "rect") if each.get("class") == "held"]
    xs = [float(each.get("x", "0")) for each in blocks]
    assert xs[0] < xs[2] < xs[1]  # drawn row by row
    assert len({each.get("y") for each in blocks}) == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Delivery("w", 1, 0, 1, "lost"),
            "a delivery ends in ack, release, expired, killed, refused, open, not",
        ),
        (lambda: Delivery("w", 1, 2, 1), r"a delivery cannot end \(1\) before it begins \(2\)"),
    ],
)
def test_a_delivery_that_cannot_be_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "them", [[], [Delivery("w", 1, 5, 5)], *([Delivery(bad, 1, 0, 1, "ack", bad)] for bad in HOSTILE)]
)
def test_whatever_comes_it_is_drawn_inside_the_page(them: list[Delivery]) -> None:
    picture = deliveries(them, them[0].did if them else "")
    wide = float(ElementTree.fromstring(picture.svg).get("width", "999"))
    assert wide <= WIDE
    assert len(picture.text.splitlines()) == 1 + len({each.worker for each in them})
    for each in drawn(picture, "rect"):
        assert float(each.get("x", "0")) + float(each.get("width", "0")) <= wide
