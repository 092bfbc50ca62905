"""Pictures are well drawn, stored readably, legible without colour, and nothing hostile gets through."""

import html.parser
import itertools
import random
import re
from dataclasses import replace
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.workshop.view import Cell, Lane, Record, Table, log, svg, wire
from kqlib.workshop.view.lane import STATES
from kqlib.workshop.view.letters import DEEP, PALETTE
from tests.unit.view_examples import FOOTBALL, GALLERY, GAMES, HOSTILE, SVG, Call, boxes, words


def apart(a, b):
    """Do two boxes not touch?"""
    return a[2] <= b[0] + 0.5 or b[2] <= a[0] + 0.5 or a[3] <= b[1] + 0.5 or b[3] <= a[1] + 0.5


def assert_marks_stand_below_their_bars(root, wide):
    """Each mark's word is at most ten pixels beside its bar, unless the picture ends there."""
    marks = [element for element in root if element.get("class") in ("bar", "bar committed", "mark")]
    for bar, word in zip(marks[::2], marks[1::2], strict=True):
        half = svg.width(word.text, 10) / 2
        at_edge = float(word.get("x")) - half < 9 or float(word.get("x")) + half > wide - 9
        assert abs(float(bar.get("x1")) - float(word.get("x"))) <= 10.1 or at_edge, word.text


def assert_cells_hold_their_words(root):
    """No letter and no note is wider than its cell."""
    for cell in root.iter(f"{SVG}g"):
        space = [float(box.get("width")) for box in cell.findall(f"{SVG}rect") if cell.get("class") in STATES]
        for word in cell.findall(f"{SVG}text") if space else []:
            big = word.get("class", "").startswith("big")
            size = 12 if big else 10
            assert svg.width(word.text, size, bold=big) <= space[0], word.text


def assert_well_drawn(shown):
    """Well-formed, at most 640 wide, nothing below 10 px, no word outside and none over another."""
    root = ElementTree.fromstring(shown.svg)
    wide, high = int(root.get("width")), int(root.get("height"))
    assert wide <= 640
    above = int(root.get("viewBox").split()[1])  # -16 where the headline has two lines
    assert (root.get("viewBox"), root.get("role")) == (f"0 {above} {wide} {high}", "img")
    assert root[0].tag == f"{SVG}title"
    assert root[0].text == shown.title
    assert_marks_stand_below_their_bars(root, wide)
    assert_cells_hold_their_words(root)
    sizes = [float(size) for size in re.findall(r"font-size[:=]'?([\d.]+)", shown.svg)]
    assert min(sizes) >= 10
    assert "scale(" not in shown.svg
    assert not re.search(r"\d\.\d\d", re.sub("<style>.*</style>|<text.*?</text>|<title>.*</title>", "", shown.svg))
    found = [(shown_words, box) for shown_words, _, box in boxes(shown)]
    for shown_words, (left, top, right, bottom) in found:
        assert min(left, top - above, wide + 0.5 - right, high + above - bottom) >= 0, shown_words
    found.sort(key=lambda words: words[1][1])
    for place, (one, a) in enumerate(found):
        for two, b in itertools.takewhile(lambda words, bottom=a[3]: words[1][1] < bottom, found[place + 1 :]):
            assert apart(a, b), (one, two)


@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_is_well_formed_fits_and_no_words_touch(name):
    assert_well_drawn(GALLERY[name])


@pytest.mark.parametrize("name", ["log", "hostile", "no lanes"])
def test_a_notebook_stores_one_image_that_is_just_the_svg(name):
    class Tags(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.found = []

        def handle_starttag(self, tag, attrs):
            self.found.append((tag, dict(attrs)))

        def handle_data(self, data):
            raise AssertionError(data)

    shown = GALLERY[name]
    bundle = shown._repr_mimebundle_(include=None, exclude=None)
    assert list(bundle) == ["text/plain", "text/html"]
    assert bundle["text/plain"] == repr(shown) == shown.text
    tags = Tags()
    tags.feed(bundle["text/html"])
    tags.close()
    [(tag, attributes)] = tags.found
    assert (tag, set(attributes)) == ("img", {"style", "alt", "src"})
    assert attributes["style"] == "max-width:none"  # it never shrinks
    assert attributes["alt"] == shown.title
    assert unquote(attributes["src"]) == f"data:image/svg+xml,{shown.svg}"
    assert not set('<>"#&') & set(bundle["text/html"].split('src="')[1].removesuffix('">'))


def test_what_is_stored_stays_readable():
    stored = GALLERY["log"]._repr_mimebundle_()["text/html"]
    assert "%3Ctext x='8' y='16' class='big'%3E" in stored  # blanks, quotes and slashes are not encoded
    assert stored.count("\n") > 40  # one element a line


def test_a_request_that_did_not_arrive_says_why_whole_and_its_cross_is_beside_the_words():
    why = "NOT_ENOUGH_REPLICAS, error before"
    shown = wire([Call("sender", 1, "Produce", 1, "retried/0 ×1, acks=all", accident="error before", error=why[:19])])
    [left] = [box[0] for shown_words, _, box in boxes(shown) if shown_words == why]
    [cross] = re.findall(r"d='M([\d.]+) [\d.]+l8 8", shown.svg)
    assert float(cross) + 8 <= left


@pytest.mark.parametrize("name", [name for name in GALLERY if "hostile" in name or name == "named links"])
def test_hostile_words_stay_words(name):
    shown = GALLERY[name]
    assert not {element.tag for element in ElementTree.fromstring(shown.svg).iter()} & {f"{SVG}script", f"{SVG}b"}
    assert all(c.isprintable() or c == "\n" for c in shown.text)
    assert shown.text.splitlines()[0] == shown.title


def test_hostile_words_stay_words_in_a_table():
    table = Table([[word, Cell(word, word)] for word in HOSTILE], [HOSTILE[0], HOSTILE[1]], HOSTILE[0])
    assert "<script" not in table.html
    assert ElementTree.fromstring(table.html).tag == "table"


def test_equal_values_give_equal_bytes():
    shuffled = [replace(lane, records=random.Random(1).sample(lane.records, len(lane.records))) for lane in FOOTBALL]
    assert log(shuffled, "football") == GALLERY["log"]


def luminance(colour):
    """How bright a colour is to the eye, 0 to 1 (WCAG)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        ("#222222", "#ffffff"),
        ("#eeeeee", "#111111"),
        ("#ffffff", svg.BLUE),
        ("#ffffff", svg.RED),
        *(("#ffffff" if colour in DEEP else "#111111", colour) for colour in PALETTE),
    ],
)
def test_letters_stand_out_from_their_ground(ink, ground):
    bright, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_no_state_is_reported_by_colour_alone():
    alone = {}
    for state in STATES:
        shown = log([Lane(0, [Record(0, "A", state)])])
        cell = re.search(rf"<g class='{state}'.*</g>", shown.svg)[0]
        alone[state] = re.sub(r"class='\w+'", "", cell)
    assert len(set(alone.values())) == len(STATES)
    assert ".due rect{stroke-dasharray:" in shown.svg


# --- any lane at all ---------------------------------------------------------------------------------------------------

MORE = r"… (\d+) more(?! key)"
KEYS = st.none() | st.sampled_from(["A", "B", *GAMES]) | st.binary(max_size=3)


@st.composite
def lanes(draw):
    """A lane with holes and marks anywhere, short or long."""
    first = draw(st.sampled_from([0, 3, 95, 1234567]))
    n = draw(st.sampled_from([0, 1, 3, 17, 40, 41, 60]))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 3, 50]), min_size=n, max_size=n))
    offsets = list(itertools.accumulate(gaps, initial=first))[1:]
    kept = [Record(at, draw(KEYS), draw(st.sampled_from(STATES)), attempt=draw(st.integers(1, 15))) for at in offsets]
    last = offsets[-1] + 1 if offsets else first
    mark = st.none() | st.integers(max(0, first - 3), last + 3)
    low, end = draw(st.sampled_from([0, first])), last + draw(st.integers(0, 3))
    start = draw(st.sampled_from([0, low]))
    return Lane(draw(st.integers(0, 2000)), kept, low, end, draw(mark), draw(mark), start)


@settings(max_examples=30, deadline=None)
@given(st.lists(lanes(), max_size=2), st.sampled_from(["state", "key"]))
def test_any_picture_is_honest_and_well_drawn(any_lanes, colour):
    shown = log(any_lanes, colour=colour)
    assert_well_drawn(shown)
    lines = shown.text.splitlines()[1 : 1 + len(any_lanes)]
    for lane, line in zip(any_lanes, lines, strict=True):
        more = sum(int(n) for n in re.findall(MORE, line))
        shown_words = [
            word for word in re.sub(MORE, "", line).split()[1:] if not word.startswith("|") and "…" not in word
        ]
        offsets = {int(re.search(r"\d+$", word)[0]) for word in shown_words if word != "empty"}
        assert len(offsets & {record.offset for record in lane.records}) + more == len(lane.records)
    assert sorted(re.findall(MORE, " ".join(lines))) == sorted(re.findall(MORE, " ".join(words(shown))))


def test_words_are_as_wide_in_each_python() -> None:
    """`sum` is more exact since Python 3.12, and a stored picture would differ there by a tenth of a pixel."""
    assert svg.width("a broker that holds 150 ms", 1) == 14.710000000000003
