"""What each picture says beside the rules of all pictures: numbers, signs, lines and bars."""

import html.parser
import random
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.spark.audit import VERDICTS
from kqlib.workshop.promises.values import Verdict
from kqlib.workshop.view import (
    Block,
    Column,
    Delivery,
    Ladder,
    Member,
    Row,
    Slot,
    cluster,
    crash,
    curve,
    deliveries,
    grid,
    group,
    matrix,
    record,
    timeline,
)
from kqlib.workshop.view.cluster import Broker, Partition
from kqlib.workshop.view.deliveries import ENDS
from kqlib.workshop.view.grid import KINDS
from kqlib.workshop.view.matrix import drawn
from tests.unit.view_examples import (
    AUTO,
    BACK,
    COSTS,
    CRASHES,
    EXAMPLES,
    GALLERY,
    HOSTILE,
    ITEMS,
    LEASES,
    PAIRS,
    ROWS,
    SVG,
    TIMES,
    Pair,
    words,
)


def elements(shown, name, kind=""):
    """Elements of an SVG, by name and the begin of their class."""
    found = ElementTree.fromstring(shown.svg).iter(f"{SVG}{name}")
    return [each for each in found if (each.get("class") or "").startswith(kind)]


def numbers(shown, name, kind, attribute):
    """One attribute of each of these elements."""
    return [float(each.get(attribute)) for each in elements(shown, name, kind)]


SENTENCES = {
    "no crashes": (GALLERY["no crashes"], "crash table · 0 orders, 0 crash points"),
    "not run": (crash(["a"], ["b"], {}, "mine"), "mine · 1 order, 1 crash point · 1 not run yet"),
    "run in part": (
        crash(["a"], ["b", "c"], {("a", "b"): (2, 0, 0)}),
        "crash table · 1 order, 2 crash points · items lost in 1 cell, doubled in 0 · 1 not run yet",
    ),
    "no items": (grid([]), "audit · 0 partitions · 0 items"),
    "without lag": (group([Member("ann")], [Slot("p0")]), "group · 1 member, 1 idle · 1 partition"),
    "many": (GALLERY["hundreds"], f"{'x' * 99}… · 100 members · 200 partitions · lag {10**15 + 19893:,}"),
    "nothing happened": (timeline([], []), "group over time · 0 members · 0 changes"),
    "no lines": (GALLERY["no lines"], "curve · 0 lines, 0 steps"),
}


@pytest.mark.parametrize(("shown", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_the_first_line_counts(shown, sentence):
    assert shown.title == shown.text.splitlines()[0] == sentence


# --- crash table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((1, 2, 3), "lost 1, once 2, doubled 3"), ((0, 0, 0), "no items"), (None, "not run")],
)
def test_a_cell_of_the_crash_table_says_what_is_not_zero(counts, expected):
    shown = crash(["order"], ["read"], {("order", "read"): counts} if counts else {})
    assert shown.text.splitlines()[-1] == f"order  {expected}"


def test_the_chosen_cell_is_pointed_at_in_words_and_in_the_drawing():
    shown = crash(["at-most-once"], ["write", "commit"], CRASHES, chosen=("at-most-once", "commit"))
    assert "[lost 1, once 9]" in shown.text
    assert len(elements(shown, "rect", "cell chosen")) == 1
    assert not elements(EXAMPLES["crash"], "rect", "cell chosen")


# --- curve -------------------------------------------------------------------------------------------------------------


def places(shown, at=-1):
    """Where a line goes; the first one is drawn last."""
    points = elements(shown, "polyline")[at].get("points").split()
    return [tuple(map(float, each.split(","))) for each in points]


def test_the_scale_has_round_numbers_and_holds_every_value():
    for values in ([0], [1, 2], [-3, 4], [0, 99], [123456, 7], [0.1, 0.4], [5e9]):
        shown = curve({"a": values})
        high = float(ElementTree.fromstring(shown.svg).get("height"))
        assert all(0 < y < high for _, y in places(shown)), values
    scale = [each.text for each in elements(curve({"a": [0, 99]}), "text") if each.get("text-anchor") == "end"]
    assert scale == ["0", "50", "100"]


@pytest.mark.parametrize(
    ("steps", "ticks"),
    [
        (1, "1"),
        (12, "1 2 3 4 5 6 7 8 9 10 11 12"),
        (13, "1 2 4 6 8 10 12 13"),
        (100, "1 10 20 30 40 50 60 70 80 90 100"),
    ],
)
def test_of_many_steps_a_dozen_are_shown_and_the_last_one_always(steps, ticks):
    head, line = curve({"a": range(1, steps + 1)}).text.splitlines()[1:3]
    assert head.split() == ["step", *ticks.split()]
    assert line.split() == ["a", *ticks.split()]


def test_what_happened_is_a_bar_at_its_step_and_outside_of_the_picture_it_is_left_out():
    shown = curve({"a": [1, 2, 3]}, events={2: "killed", 9: "never"})
    assert numbers(shown, "line", "event", "x1") == pytest.approx([places(shown)[1][0]], abs=0.1)
    assert shown.text.splitlines()[-1] == "step 2: killed"
    assert "never" not in shown.svg


def test_lines_may_have_different_lengths():
    assert [line.split() for line in GALLERY["lines of different lengths"].text.splitlines()[-2:]] == [
        ["b", "4"],
        ["c"],
    ]


def test_four_grey_lines_differ_and_each_name_has_a_sample_of_its_line():
    shown = curve({name: [1, 2] for name in "abcde"})
    lines, samples = (
        [(each.get("class"), each.get("stroke-dasharray")) for each in elements(shown, kind)]
        for kind in ("polyline", "path")
    )
    assert len(set(lines)) == 5 and set(samples) == set(lines)


# --- deliveries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "sign"), ENDS.items())
def test_each_end_of_a_delivery_has_a_sign_and_a_word(end, sign):
    shown = deliveries([Delivery("w1", 12, 0, 1, end)])
    assert shown.text.splitlines()[1] == f"w1  ¹² {sign} {end}"
    assert end in words(shown)


def test_a_restart_and_a_release_have_signs_of_their_own():
    restart, release = (
        {each.get("d") for each in elements(deliveries([Delivery("w", 1, 0, 1, end)]), "path")}
        for end in ("restart", "release")
    )
    assert restart and release and restart.isdisjoint(release)


def test_two_deliveries_at_once_are_two_lines_of_a_row():
    shown = deliveries([Delivery("w", 1, 0, 9, "open"), Delivery("w", 1, 5, 9), Delivery("w", 2, 9, 10)])
    heights = [float(each.get("y")) for each in elements(shown, "rect") if each.get("class") == "held"]
    assert len(set(heights)) == 2 and heights[0] == heights[1] != heights[2]  # line by line
    assert words(shown).count("w") == 1


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda: Delivery("w", 1, 0, 1, "lost"),
            "a delivery ends in ack, release, expired, killed, refused, open, restart, wrong, missing, not",
        ),
        (lambda: Delivery("w", 1, 2, 1), r"a delivery cannot end \(1\) before it begins \(2\)"),
        (lambda: grid([(0, 0, "lost")]), "'lost' is no verdict; there are once, doubled, missing"),
    ],
)
def test_what_cannot_be_is_refused(make, expected):
    with pytest.raises(ValueError, match=expected):
        make()


# --- audit grid --------------------------------------------------------------------------------------------------------


def test_the_order_of_the_items_does_not_matter():
    assert grid(random.Random(3).sample(ITEMS, len(ITEMS)), "football") == EXAMPLES["grid"]


def test_there_is_a_word_and_a_cell_for_each_verdict_of_the_audit():
    assert set(KINDS) == set(VERDICTS)
    shown = grid((0, offset, verdict) for offset, verdict in enumerate(VERDICTS))
    assert len(elements(shown, "rect", "cell")) == 2 * len(VERDICTS)  # each once, and once to say what it means
    assert set(words(shown)) >= {f"1 {verdict}" for verdict in VERDICTS}


def test_what_is_wrong_has_a_number_beside_its_colour():
    signs = [each.text for each in elements(EXAMPLES["grid"], "text", "bold") if each.text in {"0", "2"}]
    assert sorted(signs) == ["0", "0", "0", "2", "2"]  # two missing, one doubled, and what the signs mean
    assert len(elements(EXAMPLES["grid"], "rect", "cell missing")) == 3


def test_an_offset_without_an_item_has_no_cell_and_ends_a_run():
    shown = grid([(0, 3, "once"), (0, 4, "once"), (0, 6, "once")])
    assert shown.text.splitlines()[1] == "p0  once 3…4 · once 6"
    first, second, third, _ = numbers(shown, "rect", "cell", "x")
    assert third - second == 2 * (second - first)


def test_many_items_take_more_lines_and_very_many_are_counted():
    shown = GALLERY["thousand items"]
    assert len(elements(shown, "rect", "cell")) == 12 * 32 + 1
    assert f"… {1000 - 12 * 32} more" in words(shown)
    assert shown.text.splitlines()[1] == "p0  once 0…999"
    line = grid((0, offset, ("once", "doubled")[offset % 2]) for offset in range(100)).text.splitlines()[1]
    assert line.endswith("· once 38 · doubled 39 · … 60 more")


# --- group and map -----------------------------------------------------------------------------------------------------


def test_a_group_in_words():
    assert GALLERY["a group"].text.splitlines() == [
        "scores · 5 members, 2 idle, 2 busy · 4 partitions · lag 3,197",
        "ann       p0 (lag 120)",
        "ben       p1 (lag 3,000), busy",
        "member    p2",
        "idle one  idle",
        "member    idle, busy",
        "nobody    p3 (lag 77)",
    ]


def test_on_the_map_a_line_goes_from_each_queue_to_its_partition_and_from_there_to_its_node():
    assert len(elements(EXAMPLES["owners"], "line", "hold")) == 3 + 2
    shown = GALLERY["nobody has one"]
    assert shown.text.splitlines()[-1] == "INT-MIL  p1  nobody"
    assert len(elements(shown, "line", "hold")) == 3 + 1
    assert len(elements(shown, "rect", "box idle")) == 2  # the partition, and the node without one


def test_of_too_many_boxes_the_first_and_the_last_are_shown():
    lines = GALLERY["hundreds"].text.splitlines()
    assert lines[-2:] == ["… 80 more members in between", "… 180 more partitions in between"]
    assert len(elements(GALLERY["hundreds"], "line", "hold")) == 10  # p0 to p9; the last ten belong to nobody
    lines = GALLERY["hundreds of nodes"].text.splitlines()
    assert (lines[1].split(), lines[20].split()) == (["q0", "p0", "n0"], ["q199", "p49", "nobody"])
    assert lines[21] == "… 180 more queues in between"


# --- timeline ----------------------------------------------------------------------------------------------------------


def test_blocks_of_one_member_never_lie_over_each_other():
    crowd = [Block(first, last) for first in range(4) for last in range(first, 4)]
    shown = timeline([Column(), Column("x"), Column(), Column("y")], [Row("ann", crowd)])
    bars = sorted(zip(*(numbers(shown, "rect", "held", name) for name in ("y", "x", "width")), strict=True))
    assert len(bars) == len(crowd) + 1  # and what the sign means
    assert all(y != below or x + wide <= begin for (y, x, wide), (below, begin, _) in pairwise(bars))


def test_what_a_busy_member_holds_and_what_a_dead_one_held_is_shown_without_colour():
    shown = GALLERY["a timeline"]
    assert len(elements(shown, "rect", "waits")) == 2 + 1
    assert ".waits{fill:none" in shown.svg
    assert {"held by a busy member", "crashed", "a partition"} <= set(words(shown))
    assert not {"held by a busy member", "crashed"} & set(words(timeline(TIMES, ROWS[1:])))


# --- record ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wide"),
    [(b"v", "200"), (b"v" * 29, "200"), (b"v" * 40, "268"), (b"v" * 56, "367.2"), (b"\xff" * 10**7, "436.2")],
    ids=["short", "as short as a box is", "longer", "as long as is shown", "cut by the page"],
)
def test_the_boxes_of_a_record_are_as_wide_as_its_longest_content_and_the_page_allow(value, wide):
    shown = record(value)
    assert {each.get("width") for each in elements(shown, "rect", "part")} == {wide}
    assert float(ElementTree.fromstring(shown.svg).get("width")) <= 640


# --- matrix ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "lines"),
    [
        ([], ["0 of 0 pairs read", "reader", "(no rows)"]),
        (
            [Pair("a", "b"), Pair("c", "d", "other type", java="✓")],
            [
                "1 of 2 pairs read",
                "reader  writer b  writer d",
                "a       ✓         –",
                "c       –         *✗ other type · Java: ✓*",
            ],
        ),
        ([Pair("a\nb", "<c>")], ["1 of 1 pairs read", "reader  writer <c>", "a\\nb    ✓"]),
    ],
    ids=["no pairs", "pairs that are not there", "hostile names"],
)
def test_a_matrix_in_words(pairs, lines):
    assert matrix(pairs).text.splitlines() == lines


def test_the_picture_of_a_matrix_says_the_rule_and_has_the_tables_twin():
    shown = GALLERY["matrix"]
    assert shown.text == f"schemas · {matrix(PAIRS).text}"
    assert [len(elements(shown, "rect", kind)) for kind in ("cell no", "cell")] == [1, 4]
    assert words(shown).count("no default") == 1
    with pytest.raises(ValueError, match="at most 10 writers, not 11: show the table"):
        drawn([Pair(str(r), str(w)) for r in range(11) for w in range(11)])


# --- ladder ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rungs", "line"),
    [
        (AUTO, "released comes back  ✗ 1 never came"),
        ({"a": {BACK: Verdict(None, 0, "no release")}}, "released comes back  – no release"),
        (AUTO | LEASES | {"again": LEASES["leases"]}, "released comes back  ✗                *✓ 3*       ✓ 3"),
        (AUTO | {"b": {"extend": Verdict(True, 3)}}, "extend                                *✓ 3*"),
        (AUTO | {"b": {}}, "costs                0 commits"),
        ({}, "kept of 0 promises"),
    ],
)
def test_a_line_of_a_ladder_says_what_there_is(rungs, line):
    assert line in Ladder(rungs, COSTS).text.splitlines()


class Balanced(html.parser.HTMLParser):
    """Every tag that opens closes, in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, name, attributes):
        self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name


WORDS = st.sampled_from([*HOSTILE, "plain"])
STEPS = st.builds(Verdict, st.sampled_from([True, False, None]), st.integers(0, 99), WORDS)
RUNGS = st.dictionaries(WORDS, st.dictionaries(WORDS, STEPS, max_size=4), max_size=4)
PAID = st.dictionaries(WORDS, st.dictionaries(WORDS, WORDS, max_size=2), max_size=4)


@settings(max_examples=40, deadline=None)
@given(RUNGS, PAID)
def test_any_ladder_is_well_formed_and_nothing_hostile_gets_through(rungs, costs):
    shown, page = Ladder(rungs, costs), Balanced()
    page.feed(shown.html)
    assert page.open == []
    assert "<script" not in shown.html
    assert len(shown.text.split("\n")) == 1 + (len(shown.rows) or 1)


def test_what_is_committed_is_a_mark_in_each_copy_that_has_it_and_a_word_at_the_leader() -> None:
    shown = GALLERY["what is committed"]
    assert "★p0=11 epoch 0, committed 1" in shown.text
    assert shown.svg.count("class='committed'") == 2 * 4  # three copies and the legend, above and below their words
    [p0] = [Partition("careful", 0, 2, [1, 2], [2], ends={1: 11, 2: 12}, committed=12)]
    shown = cluster([Broker(1, alive=False), Broker(2)], [p0])
    assert shown.svg.count("class='committed'") == 2 * 2  # no mark on the copy that is out of the ISR
