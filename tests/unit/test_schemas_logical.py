"""Logical types: a reader that names one reads values of the same one, at every place; others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from kqlib.schemas import check, compare, explain
from kqlib.workshop import decoding
from kqlib.workshop.decoding import trial
from tests.unit.schema_examples import (
    DATE,
    LOGICAL,
    MS,
    US,
    UUID,
    array,
    decimal,
    field,
    fixed_as,
    inner,
    one,
    record,
    table,
)


@pytest.mark.parametrize(("reader", "writer", "value", "fits"), LOGICAL.values(), ids=LOGICAL)
def test_a_logical_type_is_read_as_it_was_written_or_refused(reader: Any, writer: Any, value: Any, fits: bool) -> None:
    assert [(reason.rule, reason.path) for reason in compare(one(reader), one(writer))] == (
        [] if fits else [("other logical type", "a")]
    )
    assert bool(trial(one(reader), one(writer))) == fits
    assert bool(check("FULL", one(writer), [(1, one(writer))]))  # it may always follow itself


PLACES: dict[str, tuple[Any, str]] = {
    "a union": (lambda kind: one(["null", kind]), "a"),
    "an array": (lambda kind: one(array(kind)), "a[]"),
    "a map": (lambda kind: one(table(kind)), "a{}"),
    "a record": (lambda kind: one(inner(field("p", kind))), "a.p"),
    "a union in a record in a map in an array": (
        lambda kind: one(array(table(inner(field("p", ["null", kind]))))),
        "a[]{}.p",
    ),
    "a record that holds itself": (lambda kind: record(field("v", kind), field("next", ["null", "R"])), "v"),
    "no record at all": (lambda kind: kind, ""),
}


@pytest.mark.parametrize("pair", [(US, MS), (decimal(6, 3), decimal(6, 2)), (DATE, "int")], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_logical_type_is_compared_inside(place: str, pair: tuple[Any, Any]) -> None:
    wrap, path = PLACES[place]
    reader, writer = map(wrap, pair)
    assert [(reason.rule, reason.path) for reason in compare(reader, writer)] == [("other logical type", path)]
    assert not trial(reader, writer)


@pytest.mark.parametrize(
    ("reader", "writer", "broken"),
    [
        (["null", MS], MS, []),
        (["null", US], MS, ["other logical type"]),
        (MS, ["null", MS], ["lost branch"]),
        ([MS, DATE], DATE, []),  # not the first branch that fits: the one that is the same
        (["null", "long"], MS, []),
        (["null", MS], ["null", "long"], ["other logical type"]),
        (["null", UUID], ["null", "bytes"], ["not text"]),
    ],
    ids=str,
)
def test_a_branch_of_a_union_finds_its_own_logical_type(reader: Any, writer: Any, broken: list[str]) -> None:
    assert [reason.rule for reason in compare(one(reader), one(writer))] == broken


@pytest.mark.parametrize(
    ("reader", "writer", "sentence"),
    [
        (US, MS, "a timestamp-millis would be read as a timestamp-micros"),
        (MS, "long", "a plain long would be read as a timestamp-millis"),
        (decimal(6, 3), decimal(6, 2), "a decimal(6, 2) would be read as a decimal(6, 3)"),
        (decimal(6, 3), fixed_as(3, "decimal", precision=6, scale=3), None),
    ],
)
def test_the_reason_names_both_types(reader: Any, writer: Any, sentence: str | None) -> None:
    reason_text = "fixed 'X' cannot become bytes (rule: other type)"
    if sentence:
        reason_text = f"{sentence}, and its value may change (rule: other logical type)"
    assert [str(reason) for reason in compare(one(reader), one(writer))] == [f"at 'a': {reason_text}"]


def test_explain_names_a_logical_type_that_the_reader_leaves_out() -> None:
    assert explain(one("long"), one(MS)) == ("'a' becomes long without timestamp-millis",)
    assert explain(one("long"), one(DATE)) == ("'a' becomes long without date",)
    assert explain(one(MS), one(MS)) == ()


def test_the_matrix_shows_javas_verdict_where_it_is_another() -> None:
    found = decoding.matrix({"ms": one(MS), "us": one(US), "text": one("string")})
    assert repr(found) == (
        "3 of 9 pairs read\n"
        "reader  writer ms                         writer us                         writer text\n"
        "ms      ✓                                 *✗ other logical type · Java: ✓*  *✗ other type*\n"
        "us      *✗ other logical type · Java: ✓*  ✓                                 *✗ other type*\n"
        "text    *✗ other type*                    *✗ other type*                    ✓\n"
        "ms cannot read us at 'a': a timestamp-micros would be read as a timestamp-millis, "
        "and its value may change (rule: other logical type); Java's Avro accepts it\n"
        "ms cannot read text at 'a': string cannot become long (rule: other type)\n"
        "us cannot read ms at 'a': a timestamp-millis would be read as a timestamp-micros, "
        "and its value may change (rule: other logical type); Java's Avro accepts it\n"
        "us cannot read text at 'a': string cannot become long (rule: other type)\n"
        "text cannot read ms at 'a': long cannot become string (rule: other type)\n"
        "text cannot read us at 'a': long cannot become string (rule: other type)"
    )
    assert found.draw().svg.count(">Java: ✓<") == 2
