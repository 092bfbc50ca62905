"""Readers down, writers across: the table, the picture, and the twin that says the same."""

from __future__ import annotations

import pytest

from kqlib.workshop.view.matrix import Pair, drawn, matrix

NO = "v1 cannot read v2 at 'min': the writer has no such field, and it has no default (rule: no default)"
PAIRS = [Pair("v1", "v1", "", "v1 reads v1"), Pair("v1", "v2", "no default", NO)]
PAIRS += [Pair("v2", "v1", "", "v2 reads v1: 'customer' gets its default"), Pair("v2", "v2", "", "v2 reads v2")]
TWIN = f"""\
reader  writer v1  writer v2
v1      ✓          *✗ no default*
v2      ✓          ✓
{NO}
v2 reads v1: 'customer' gets its default"""


def test_the_twin_is_the_table_and_the_sentences_that_say_more_than_the_mark() -> None:
    assert matrix(PAIRS).text == f"3 of 4 pairs read\n{TWIN}"
    assert drawn(PAIRS).text == f"who reads whom · 3 of 4 pairs read\n{TWIN}"


def test_each_cell_of_the_table_has_its_sentence_as_a_tooltip() -> None:
    html = matrix(PAIRS).html
    assert html.count("title=") == 4
    assert 'title="v2 reads v1: &#x27;customer&#x27; gets its default"' in html


def test_the_picture_says_the_rule_where_it_cannot_be_read() -> None:
    svg = drawn(PAIRS, "schemas").svg
    assert "<title>schemas · 3 of 4 pairs read</title>" in svg
    assert svg.count(">no default<") == 1
    assert svg.count("class='cell no'") == 1
    assert svg.count("class='cell'") == 3


@pytest.mark.parametrize(
    ("pairs", "lines"),
    [
        ([], ["0 of 0 pairs read", "reader", "(no rows)"]),
        (
            [Pair("a", "b"), Pair("c", "d", "other type")],
            ["1 of 2 pairs read", "reader  writer b  writer d", "a       ✓         –"],
        ),
        ([Pair("a\nb", "<c>")], ["1 of 1 pairs read", "reader  writer <c>", "a\\nb    ✓"]),
    ],
    ids=["no pairs", "pairs that are not there", "hostile names"],
)
def test_whatever_comes_is_drawn(pairs: list[Pair], lines: list[str]) -> None:
    assert matrix(pairs).text.splitlines()[: len(lines)] == lines
    assert "<c>" not in drawn(pairs).svg


def test_a_matrix_never_gets_wider_than_a_picture_may() -> None:
    names = [f"a schema with a long name {n}" for n in range(10)]
    svg = drawn([Pair(r, w, "lost branch") for r in names for w in names]).svg
    assert "width='640'" in svg


def test_more_than_ten_writers_are_for_the_table() -> None:
    names = [str(n) for n in range(11)]
    with pytest.raises(ValueError, match="room for 10 writers, not 11: show the table"):
        drawn([Pair(r, w) for r in names for w in names])
