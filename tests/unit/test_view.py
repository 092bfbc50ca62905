"""Pictures in words: what a text twin says, and that it counts honestly."""

import sys

import pytest

from kqlib.workshop.view import Broker, Cell, Lane, Partition, Record, Table, cluster, letters, log, record
from tests.unit.view_examples import EXAMPLES, GALLERY, TABLES, plain, records, words


@pytest.mark.parametrize("name", [*EXAMPLES, *TABLES])
def test_a_docstring_shows_its_twin(name):
    module = sys.modules[f"kqlib.workshop.view.{'group' if name == 'owners' else name}"]
    blocks = [block for block in module.__doc__.split("\n\n") if block.startswith("    ")]
    shown = [line.removeprefix("    ") for line in blocks[1 if name == "owners" else 0].rstrip().splitlines()]
    assert (EXAMPLES | TABLES)[name].text.splitlines() == shown


# --- the log in words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lane", "line"),
    [
        (Lane(0, floor=0, read=0), "p0  empty |floor·read·end"),
        (Lane(0, low=7, end=7, floor=7), "p0  ░0…6 |low·floor·end"),
        (Lane(0, records("A B"), low=0, end=2, floor=1, read=2), "p0  A0 |floor B1 |read·end"),
        (Lane(0, [Record(3)]), "p0  ░0…2 ·3 |end"),
        (Lane(0, records("A B", 5), low=5, start=3), "p0  ░3 ░4 |low A5 B6 |end"),
        (Lane(0, records("A B", 5), low=5, start=5), "p0  A5 B6 |end"),
        (Lane(0, records("A B", 5), low=5, start=9), "p0  A5 B6 |end"),
        (Lane(0, records("A B", 5), low=5, floor=2), "p0  ░0 ░1 |floor ░2…4 |low A5 B6 |end"),
        (Lane(0, records("A", 5), low=5, floor=4), "p0  ░0…3 |floor ░4 |low A5 |end"),
        (Lane(0, records("A"), end=2), "p0  A0 ░1 |end"),
        (Lane(0, records("A B C"), end=1), "p0  A0 B1 C2 |end"),  # asked for the end, then more came
        (Lane(0, [Record(0, "A", "claimed", attempt=12)]), "p0  A¹²0 |end"),
        (Lane(0, [Record(0, "A", note="v2"), Record(1, "A", "done", note="a\nb")]), r"p0  A0(v2) A✓1(a\nb) |end"),
        (Lane(0, [Record(0, state="gone", note="marker")]), "p0  ░0(marker) |end"),
    ],
)
def test_a_lane_reads_from_left_to_right(lane, line):
    assert log([lane]).text.splitlines()[1] == line


@pytest.mark.parametrize(
    ("lanes", "counts"),
    [
        ([], "0 partitions · 0 records"),
        ([Lane(0, plain(1))], "1 partition · 1 record"),
        ([Lane(n, plain(2)) for n in range(4)], "4 partitions · 2 + 2 + 2 + 2 records"),
        ([Lane(n, plain(2)) for n in range(5)], "5 partitions · 10 records"),
        ([Lane(0, records("A ░"))], "1 partition · 2 records"),
        ([Lane(0, records("A✓ B✕ ░"))], "1 partition · 3 records · 0 not done"),
        ([Lane(0, records("A✓ B◷ C¹ D"))], "1 partition · 4 records · 3 not done"),
        ([Lane(0, plain(2, 5), low=5)], "1 partition · 2 records"),  # offsets that nobody listed are not records
    ],
)
def test_the_headline_counts_what_there_is(lanes, counts):
    shown = log(lanes, "t")
    assert shown.text.splitlines()[0] == shown.title == f"t · {counts}"


@pytest.mark.parametrize(
    ("n", "marks", "middle"),
    [
        (40, {}, "A10"),
        (41, {}, "… 21 more"),
        (980, {}, "… 960 more"),
        (980, {"floor": 512, "read": 700}, "… 502 more |floor … 188 more |read … 270 more"),
        (980, {"floor": 10, "read": 970}, "|floor … 960 more |read"),
        (980, {"floor": 500, "read": 500}, "… 490 more |floor·read … 470 more"),
    ],
)
def test_of_more_than_forty_records_ten_are_shown_at_each_end(n, marks, middle):
    line = log([Lane(0, plain(n), end=n, **marks)]).text.splitlines()[1]
    assert f" E9 {middle} " in line
    assert line.endswith(f"E{n - 1} |end") or n == 41


def test_of_more_than_twentyfour_partitions_ten_are_shown_at_each_end():
    lines = log([Lane(n, plain(n)) for n in range(30)]).text.splitlines()
    assert lines[11] == f"… 10 more partitions with {sum(range(10, 20))} records"
    assert [line.split()[0] for line in lines[1:-1]] == [
        *(f"p{n}" for n in range(10)),
        "…",
        *(f"p{n}" for n in range(20, 30)),
    ]
    assert [log([Lane(p) for p in range(n)]).text.count("empty") for n in (24, 25)] == [24, 20]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: Record(0, "A", "lost"), "'lost' is not a state"),
        (lambda: Lane(3, [Record(1), Record(1)]), "partition 3 has two records at one offset"),
        (lambda: Table([[1]], ["a", "b"]), "1 cells under 2 columns"),
    ],
)
def test_what_cannot_be_is_refused(wrong, why):
    with pytest.raises(ValueError, match=why):
        wrong()


def test_records_are_counted_and_holes_are_not_where_a_lane_is_cut():
    lane = Lane(0, [Record(2 * n, "A") for n in range(50)], end=99, floor=51)
    cut = "A16 ░17 A18 … 16 more |floor … 14 more A80 ░81"
    assert f" {cut} " in log([lane]).text
    assert {"… 16 more", "… 14 more"} <= set(words(log([lane])))


def test_a_title_that_has_no_space_for_its_counts_is_whole_and_they_are_below_it():
    shown = GALLERY["brokers with notes under a long title"]
    title, counts = shown.title.split(" · ", 1)
    assert [word for word in words(shown) if word in (title, counts)] == [title, counts]


def test_a_title_is_cut_where_it_is_too_long():
    assert log([], "x" * 101).title.startswith("x" * 99 + "… · ")
    assert cluster([], [], "x" * 101).title.startswith("x" * 99 + "… · ")


# --- keys as letters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "known", "found"),
    [
        (["LIV", "ARS", "LIV"], {}, {b"LIV": "A", b"ARS": "B"}),
        (["X", "ARS", None, "é"], {}, {b"X": "X", b"ARS": "A", "é".encode(): "é"}),
        (["ARS", "A"], {}, {b"ARS": "B", b"A": "A"}),  # a key that is a letter goes before one that needs one
        (["1", "", " ", "░"], {}, {b"1": "A", b"": "B", b" ": "C", "░".encode(): "D"}),
        ([b"\xff", "ARS", b"ARS"], {}, {b"\xff": "A", b"ARS": "B"}),
        (["LIV", "ARS"], {"ARS": "A"}, {b"ARS": "A", b"LIV": "B"}),
        (["A", "LIV"], {"ARS": "A"}, {b"ARS": "A", b"A": "B", b"LIV": "C"}),
        (["LIV"], {b"ARS": "C"}, {b"ARS": "C", b"LIV": "A"}),
    ],
)
def test_a_key_gets_a_letter_and_keeps_it(keys, known, found):
    assert letters(keys, known) == found


def test_after_z_comes_aa():
    given_out = list(letters([f"key-{n}" for n in range(703)]).values())
    assert [given_out[n] for n in (0, 25, 26, 27, 701, 702)] == ["A", "Z", "AA", "AB", "ZZ", "AAA"]
    assert len(set(given_out)) == 703


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["ARS-CHE", "LIV-MCI", "ARS-CHE"], "A ARS-CHE · B LIV-MCI"),
        (["X", "ARS-CHE"], "A ARS-CHE"),
        ([b"\xff\n", ""], r"A \xff\n · B (empty)"),
        (["x" * 99], "A " + "x" * 23 + "…"),
        ([f"k{n}" for n in range(26)], " · ".join([*(f"{chr(65 + n)} k{n}" for n in range(24)), "… 2 more keys"])),
    ],
)
def test_the_last_line_explains_the_letters(keys, line):
    lane = Lane(0, [Record(offset, key) for offset, key in enumerate(keys)])
    assert log([lane]).text.splitlines()[-1] == line
    assert line.split(" · ")[0] in " ".join(words(log([lane])))


# --- the others in words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brokers", "partitions", "lines"),
    [
        ([], [], ["c · 0 brokers · 0 partitions"]),
        ([Broker(1)], [], ["c · 1 broker · 0 partitions", "broker 1  no replica"]),
        ([Broker(1, note="paused")], [], ["c · 1 broker · 0 partitions", "broker 1 paused  no replica"]),
        (
            [Broker(1)],
            [Partition("b", 0, 1, [1], [1], epoch=0), Partition("a", 1, 1, [1], [1])],
            ["c · 1 broker · 2 partitions", "broker 1  ★a-1 · ★b-0 epoch 0"],
        ),
        (
            [Broker(1)],
            [Partition("t", n, None, [1], []) for n in range(10)],
            [
                "c · 1 broker · 10 partitions, 10 without a leader",
                "broker 1  " + " · ".join(f"p{n} out of ISR" for n in range(10)),
                "no leader, so nobody can write or read: p0, p1, p2, p3, p4, p5, p6, p7, 2 more",
            ],
        ),
        (
            [Broker(1)],
            [Partition("t", n, 1, [1], [1]) for n in range(25)],
            [
                "c · 1 broker · 25 partitions",
                "broker 1  " + " · ".join(f"★p{n}" for n in [*range(10), *range(15, 25)]),
                "… 5 more partitions in between",
            ],
        ),
    ],
)
def test_a_cluster_says_who_holds_leads_and_lags(brokers, partitions, lines):
    assert cluster(brokers, partitions, "c").text.splitlines() == lines


@pytest.mark.parametrize(
    ("given_", "line"),
    [
        ({"value": None}, "value      null: a tombstone"),
        ({"value": b""}, "value      (empty)        0 bytes"),
        ({"value": "é"}, "value      é              2 bytes"),
        ({"value": b"\x00\x00\x00\x00\x2a"}, "value      00 00 00 00 2a  5 bytes"),
        ({"value": "a\nb"}, r"value      a\nb           3 bytes"),
        ({"value": "x" * 1000}, f"value      {'x' * 36} … 964 more bytes  1,000 bytes"),
        ({"value": b"\xff" * 17}, f"value      {'ff ' * 16}… 1 more byte  17 bytes"),
        ({"value": "日" * 100}, f"value      {'日' * 18} … 246 more bytes  300 bytes"),
        ({"value": b"", "key": None}, "key        null: no key"),
        ({"value": b"", "timestamp": (2, 1700000000000)}, "timestamp  LogAppendTime, present"),
        ({"value": b"", "timestamp": (0, 0)}, "timestamp  not available"),
        ({"value": b"", "headers": [("a", None), ("b", "1")]}, "           b = 1          2 bytes"),
        ({"value": b"", "headers": [("a", b"")] * 9}, "           … 3 more headers"),
    ],
)
def test_a_record_says_what_it_is_made_of(given_, line):
    assert line in record(**given_).text.splitlines()


def test_a_picture_of_a_record_never_holds_a_time():
    one, two = (record(b"v", "k", timestamp=(1, at)) for at in (1700000000000, 1800000000000))
    assert one == two


def test_a_table_is_aligned_and_gives_its_reasons():
    table = Table(
        [["order", True, 1.25], ["日本", Cell(False, "3 lost"), 10], ["x", Cell(None, strong=True), 0]],
        ["p", "ours", "n"],
    )
    assert repr(table).splitlines() == [
        "p      ours    n",
        "order  ✓     1.2",
        "日本   ✗      10",
        "x      *–*     0",
        "日本, ours: 3 lost",
    ]
    assert Table([[True], [False]], ["kept"]).text == "kept\n✓\n✗"  # a yes is not a number
    assert "(no rows)" in Table([], ["a"]).text
    assert 'title="3 lost"' in table.html
    assert "font-weight:600" in table.html.splitlines()[-3]
