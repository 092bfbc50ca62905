"""Pictures of keys on partitions: what their twins say, and that they are well drawn whatever the keys are."""

import re

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.workshop.view.keys import Placed, Placing, keys
from kqlib.workshop.view.letters import PALETTE
from tests.unit.test_view_drawn import assert_well_drawn
from tests.unit.view_examples import GAMES, HOSTILE, HOSTILE_KEYS, MOVED, words


def placing(sizes, name="murmur2", partitions=4):
    """Keys dealt to partitions in turn, from their numbers of records."""
    return Placing(
        name, partitions, [Placed(GAMES[n % 5] + str(n // 5 or ""), n % 4, size) for n, size in enumerate(sizes)]
    )


HOT = placing([500, 40, 30, 20, 10, 3, 2, 1])
GALLERY = {
    "two clients": keys(MOVED, "football"),
    "hot": keys([HOT], "hot", mark="LIV-MCI"),
    "hot, moved": keys([HOT, placing([500, 40, 30, 20, 10, 3, 2, 1], "after", 7)], "hot"),
    "no placing": keys([]),
    "no partition": keys([Placing("none", 0, [])]),
    "no keys": keys([Placing("", 3, [])]),
    "null key": keys([Placing("sticky", 2, [Placed(None, 1, 7), Placed("A", 0)])]),
    "many keys": keys([placing([1] * 400)]),
    "small and pointed at": keys([placing([10**6, 1, 1, 1])], mark=GAMES[3]),
    "hundred partitions": keys([Placing("murmur2", 100, [Placed(f"key-{n}", n, n % 7) for n in range(100)])] * 2),
    "hostile": keys([Placing(word, 3, [Placed(key, 2) for key in HOSTILE_KEYS]) for word in HOSTILE], HOSTILE[1] * 50),
    "letters of before": keys([placing([1] * 5)], letters=dict.fromkeys(GAMES, "WMWM")),
}


@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_of_keys_is_well_drawn(name):
    assert_well_drawn(GALLERY[name])


def test_a_hot_key_is_long_and_small_keys_share_a_block():
    assert GALLERY["hot"].text == (
        "hot · 8 keys · 606 records · the fullest has 84%, even is 25%\n"
        "murmur2 · 4 partitions\n"
        "p0  510 records  A(500) 1 other key(10)\n"
        "p1  43 records   *B*(40) 1 other key(3)\n"
        "p2  32 records   C(30) 1 other key(2)\n"
        "p3  21 records   D(20) 1 other key\n"
        "A ARS-CHE · B LIV-MCI · C TOT-EVE · D NEW-AVL"
    )


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (GALLERY["no keys"], "3 partitions"),
        (GALLERY["no keys"], "p0  0 records  empty"),
        (GALLERY["null key"], "p1  7 records  ·(7)"),
        (GALLERY["many keys"], "p0  100 records  100 other keys"),
        (GALLERY["small and pointed at"], "p3  1 record           *B*"),
        (GALLERY["hundred partitions"], f"… 80 more partitions with {sum(n % 7 for n in range(10, 90))} records"),
        (keys([placing([1])] * 2), "keys · 1 key · none of them elsewhere"),
        (keys([Placing("a\nb", 1, [])], "x\u202ey"), r"x\u202ey · 0 keys"),
        (keys([Placing("a\nb", 1, [])]), r"a\nb · 1 partition"),
    ],
)
def test_a_line_says_what_there_is(shown, line):
    assert line in shown.text.splitlines()


def test_the_eight_colours_come_with_letters_and_the_ninth_key_gets_the_first_with_a_dashed_edge():
    nine = [Placed(letter, n % 2) for n, letter in enumerate("ABCDEFGHI")]
    svg = keys([Placing("", 2, nine)]).svg
    found = re.findall(r"style='fill:(#\w+)([^']*)'/><text[^>]*>(\w)<", svg)
    fills = {letter: (colour, edge) for colour, edge, letter in found}
    assert {colour for colour, _ in fills.values()} == set(PALETTE)
    assert fills["A"][0] == fills["I"][0]
    assert len(set(fills.values())) == 9  # the ninth has a dashed edge


def test_a_key_keeps_its_letter_and_colour_from_an_earlier_picture():
    shown = keys(
        [Placing("", 1, [Placed("LAL-BOS", 0), Placed("ARS-CHE", 0)])], letters={"ARS-CHE": "A", "MCI-LIV": "B"}
    )
    assert shown.text.splitlines()[2] == "p0  2 records  C A"
    assert f"style='fill:{PALETTE[0]}'/><text x" in shown.svg.split(">A</text>")[0].rsplit("<g", 1)[1]


def test_what_stays_is_faint_and_what_is_elsewhere_says_from_where():
    svg = keys(MOVED).svg
    assert svg.count("fill-opacity:.25") == 1  # B
    assert svg.count("←p0</text>") == 2
    assert "←p1: on p1 in the first · faint: in the same place" in words(keys(MOVED))
    assert "←" not in "".join(words(keys(MOVED[:1])))


def test_a_null_key_is_never_elsewhere_and_a_key_without_records_has_no_letter():
    shown = keys(
        [Placing("", 1, [Placed(None, 0), Placed("A", 0)]), Placing("", 2, [Placed(None, 1), Placed("A", 1, 0)])]
    )
    assert shown.text.splitlines()[-1] == "p1  1 record   · A(0)←p0"
    assert "←p0" not in "".join(words(shown)) and "1 of them elsewhere" in shown.title


def test_of_too_many_keys_the_one_to_point_at_has_a_letter_all_the_same():
    shown = keys([placing([1] * 40)], mark=GAMES[4] + "7")
    assert shown.text.splitlines()[5] == "p3  10 records  D H L P T *X* 4 other keys"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Placing("", 3, [Placed("A", 3)]), "there is no p3 among 3 partitions"),
        (lambda: Placing("", 1, [Placed("A", -1)]), "there is no p-1 among 1 partition"),
        (lambda: Placed("A", 0, -1), "-1 is not a number of records"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make()


A_KEY = st.none() | st.sampled_from([*"AB", *GAMES]) | st.binary(max_size=3)


@st.composite
def placings(draw):
    """Keys anywhere, with few or many records."""
    n = draw(st.sampled_from([1, 2, 7, 30]))
    some = draw(
        st.lists(st.tuples(A_KEY, st.integers(0, n - 1), st.sampled_from([0, 1, 1, 5, 900, 10**6])), max_size=30)
    )
    return Placing("by hand", n, [Placed(*one) for one in some])


@settings(max_examples=25, deadline=None)
@given(st.lists(placings(), max_size=2), A_KEY)
def test_any_picture_of_keys_is_well_drawn_and_counts_every_record(any_placings, mark):
    shown = keys(any_placings, mark=mark)
    assert_well_drawn(shown)
    counted = [
        int(n.replace(",", "")) for n in re.findall(r"(?:^p\d+ +|with )([\d,]+) record", shown.text, re.MULTILINE)
    ]
    assert sum(counted) == sum(one.records for placing in any_placings for one in placing.placed)
