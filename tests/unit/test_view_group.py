"""Groups and timelines are well drawn, say the same in words, and mind any number of anything."""

import re

import pytest

from kqlib.workshop.view.group import Member, Slot, group
from kqlib.workshop.view.timeline import Block, Column, Row, timeline
from tests.unit.test_view_drawn import assert_well_drawn
from tests.unit.view_examples import HOSTILE, words

FOUR = [Slot(f"p{n}", lag) for n, lag in enumerate((120, 3000, 0, 77))]
EVERY = [
    Member("ann", ["p0"]),
    Member("ben", ["p1"], busy=True),
    Member("", ["p2"]),
    Member("idle one"),
    Member("", [], busy=True),
]
TIMES = [
    Column("ann, ben join"),
    Column(),
    Column("cem joins", "4 of 6"),
    Column(),
    Column("ann crashes", "2 of 6"),
    Column(),
]
ROWS = [
    Row("ann", [Block(1, 1), Block(1, 3), Block(1, 3)], frozenset({1, 2, 3}), frozenset({3}), frozenset({4})),
    Row("ben", [Block(1, 1), Block(1, 5), Block(1, 5), Block(5, 5)], frozenset({1, 2, 3, 4, 5})),
    Row("cem", [Block(3, 5), Block(3, 5)], frozenset({3, 4, 5})),
    Row("dia", [], frozenset({3, 4, 5})),
]
GALLERY = {
    "a group": group(EVERY, FOUR, "scores"),
    "nobody": group([], FOUR, "scores"),
    "no partitions": group(EVERY[3:], []),
    "nothing at all": group([], []),
    "nobody asked for lags": group([Member("ann", ["p0"])], [Slot("p0")]),
    "no lag": group([Member("ann", ["p0"])], [Slot("p0", 0)]),
    "hundreds": group(
        [Member(f"m{n}", [f"p{n}"]) for n in range(100)],
        [Slot(f"p{n}", 10**15 if n == 7 else n) for n in range(200)],
        "x" * 300,
    ),
    "all on one": group([Member("ann", [f"p{n}" for n in range(24)])], [Slot(f"p{n}", n) for n in range(24)]),
    "huge lags": group([], [Slot("p0", 10**15), Slot("p1", 1)]),
    "long names and huge lags": group([Member("m" * 99, ["t" * 99])], [Slot("t" * 99, 10**15)], "x" * 99),
    "hostile": group([Member(word, [word], True) for word in HOSTILE], [Slot(word, 7) for word in HOSTILE], HOSTILE[0]),
    "a timeline": timeline(TIMES, ROWS, "scores"),
    "no time": timeline([], ROWS[3:]),
    "no rows": timeline(TIMES, []),
    "many changes": timeline([Column(f"m{n} joins" * (n % 2), f"{n} of 9" * (n % 2)) for n in range(40)], ROWS),
    "many partitions": timeline(TIMES, [Row("ann", [Block(1, 3)] * 30, frozenset({1})), *ROWS]),
    "hostile times": timeline(
        [Column(word, "1 of 2") for word in HOSTILE], [Row(word) for word in HOSTILE], HOSTILE[1]
    ),
}


@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_is_well_formed_fits_and_no_words_touch(name) -> None:
    assert_well_drawn(GALLERY[name])


@pytest.mark.parametrize("name", GALLERY)
def test_hostile_words_stay_words(name) -> None:
    assert all(c.isprintable() or c == "\n" for c in GALLERY[name].text)
    assert GALLERY[name].text.splitlines()[0] == GALLERY[name].title


def test_a_group_in_words() -> None:
    assert GALLERY["a group"].text.splitlines() == [
        "scores · 5 members, 2 idle, 2 busy · 4 partitions · lag 3,197",
        "ann       p0 (lag 120)",
        "ben       p1 (lag 3,000), busy",
        "member    p2",
        "idle one  idle",
        "member    idle, busy",
        "nobody    p3 (lag 77)",
    ]


COUNTS = {
    "one alone": (group([Member("ann", ["p0"])], [Slot("p0", 1)]), "group · 1 member · 1 partition · lag 1"),
    "without lag": (group([Member("ann")], [Slot("p0")]), "group · 1 member, 1 idle · 1 partition"),
    "nobody": (GALLERY["nobody"], "scores · 0 members · 4 partitions · lag 3,197"),
    "many": (GALLERY["hundreds"], f"{'x' * 99}… · 100 members · 200 partitions · lag {10**15 + 19893:,}"),
    "a timeline": (GALLERY["a timeline"], "scores over time · 4 members · 3 changes"),
    "nothing happened": (timeline([], []), "group over time · 0 members · 0 changes"),
}


@pytest.mark.parametrize(("shown", "sentence"), COUNTS.values(), ids=COUNTS)
def test_the_first_line_counts(shown, sentence) -> None:
    assert shown.title == sentence


def test_a_line_goes_from_each_partition_to_the_member_that_has_it_and_to_nobody_else() -> None:
    assert GALLERY["a group"].svg.count("class='hold'") == 3
    assert words(GALLERY["a group"]).count("nobody") == 1
    assert words(GALLERY["a group"]).count("idle") == 1  # a busy one says busy
    assert GALLERY["a group"].svg.count("class='box idle'") == 2


def test_bars_are_as_long_as_lags_are_large() -> None:
    bars = [float(wide) for wide in re.findall(r"width='([\d.]+)' height='12'", GALLERY["a group"].svg)]
    assert bars == [7.2, 180, 4.6]  # none for a partition that is not behind


def test_of_too_many_the_first_and_the_last_are_shown() -> None:
    lines = GALLERY["hundreds"].text.splitlines()
    assert lines[-2:] == ["… 80 more members in between", "… 180 more partitions in between"]
    assert GALLERY["hundreds"].svg.count("class='hold'") == 10  # p0 to p9; the last ten are nobody's


def test_a_timeline_in_words() -> None:
    assert GALLERY["a timeline"].text.splitlines()[1:] == [
        "             ann, ben join       cem joins      ann crashes",
        "ann                         ■■■  ■■·        □□  ✕",
        "ben                         ■■■  ■■·        ■■  ■■           ■■■",
        "cem                                         ■■  ■■           ■■",
        "dia                                         –                –",
        "stood still                      4 of 6         2 of 6",
    ]


def test_of_many_changes_the_last_ones_are_shown_from_a_state_on() -> None:
    columns = [Column(f"m{n} joins" * (n % 2), f"{n} of 99" * (n % 2)) for n in range(41)]
    blocks = [Block(0, 40), Block(0, 20), Block(30, 30)]
    shown = timeline(columns, [Row("ann", blocks, frozenset(range(41)), crashed=frozenset({31}))])
    lines = shown.text.splitlines()
    assert (lines[0], lines[-1]) == ("group over time · 1 member · 20 changes", "… 14 earlier changes")
    assert lines[1].split()[::2] == ["m29", "m31", "m33", "m35", "m37", "m39"]
    assert lines[2].split() == ["ann", "■", "■", "■■", "✕", *"■" * 9]
    assert "… 14 earlier changes" in words(shown)


def test_blocks_of_one_member_never_lie_over_each_other() -> None:
    crowd = [Block(first, last) for first in range(4) for last in range(first, 4)]
    shown = timeline([Column(), Column("x"), Column(), Column("y")], [Row("ann", crowd)])
    drawn = re.findall(r"<rect x='([\d.]+)' y='([\d.]+)' width='([\d.]+)' height='7' rx='2' class='held'/>", shown.svg)
    bars = [tuple(map(float, bar)) for bar in drawn][: len(crowd)]
    assert len(bars) == len(crowd)
    for at, (x, y, wide) in enumerate(bars):
        assert not [
            other for other in bars[at + 1 :] if other[1] == y and other[0] < x + wide and x < other[0] + other[2]
        ]


def test_what_a_busy_member_holds_and_what_a_dead_one_held_is_told_without_colour() -> None:
    svg = GALLERY["a timeline"].svg
    assert svg.count("class='waits'") == 2 + 1 and ".waits{fill:none" in svg and "stroke-dasharray" in svg
    assert {"held by a busy member", "crashed", "a partition"} <= set(words(GALLERY["a timeline"]))
    calm = timeline(TIMES, ROWS[1:])
    assert "crashed" not in words(calm) and "held by a busy member" not in words(calm)
