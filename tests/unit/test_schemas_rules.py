"""Which schema may follow which: each rule alone, compared with what decoding really does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings

from kqlib.errors import NotAllowed
from kqlib.schemas import LEVELS, canonical, check, compare, explain, sources
from kqlib.workshop import decoding
from kqlib.workshop.decoding import trial
from tests.unit.schema_examples import P, array, enum, field, fixed, inner, one, record, records, table

SEEN = settings(max_examples=60, deadline=None, database=None, derandomize=True)
R_AS_OLD = record(field("a", "int"), name="New", namespace="n", aliases=["Old"])

# what, reader, writer, the rules that are broken and where
CASES: dict[str, tuple[Any, Any, list[tuple[str, str]]]] = {
    "the same": (one("int"), one("int"), []),
    "fields in another order": (
        record(field("b", "int"), field("a", "int")),
        record(field("a", "int"), field("b", "int")),
        [],
    ),
    "a field that the reader does not know": (record(), one("int"), []),
    "a field that the writer does not know": (one("int"), record(), [("no default", "a")]),
    "…with a default": (one("int", default=0), record(), []),
    "…with the default null": (one(["null", "int"], default=None), record(), []),
    "an enum's own default is no default of the field": (one(enum("x", default="x")), record(), [("no default", "a")]),
    "an alias finds the old name": (record(field("b", "int", aliases=["a"])), one("int"), []),
    "the old reader does not find the new name": (
        one("int"),
        record(field("b", "int", aliases=["a"])),
        [("no default", "a")],
    ),
    "two aliases, both written": (
        record(field("b", "int", aliases=["a", "c"])),
        record(field("a", "int"), field("c", "int")),
        [("two sources", "b")],
    ),
    "the name and its alias, both written": (
        record(field("b", "int", aliases=["a"], default=0)),
        record(field("b", "int"), field("a", "int")),
        [("two sources", "b")],
    ),
    "one written field for two": (
        record(field("a", "int"), field("b", "int", aliases=["a"])),
        one("int"),
        [("no default", "b")],
    ),
    "int to long": (one("long"), one("int"), []),
    "long to float": (one("float"), one("long"), []),
    "long to int": (one("int"), one("long"), [("other type", "a")]),
    "int to string": (one("string"), one("int"), [("other type", "a")]),
    "string to bytes": (one("bytes"), one("string"), []),
    "bytes to string": (one("string"), one("bytes"), [("not text", "a")]),
    "a fixed of another size": (one(fixed(2)), one(fixed(3)), [("other size", "a")]),
    "a fixed of another name": (one(fixed(2, "Y")), one(fixed(2)), [("other name", "a")]),
    "one symbol more than the reader knows": (one(enum("x")), one(enum("x", "y")), [("lost symbol", "a")]),
    "…and the reader has a default": (one(enum("x", default="x")), one(enum("x", "y")), []),
    "one symbol less": (one(enum("x", "y")), one(enum("x")), []),
    "an enum of another name": (one(enum("x", name="F")), one(enum("x")), [("other name", "a")]),
    "…with an alias": (one(enum("x", name="F", aliases=["E"])), one(enum("x")), []),
    "an enum becomes text": (one("string"), one(enum("x")), [("other type", "a")]),
    "a type becomes optional": (one(["null", "int"]), one("int"), []),
    "an optional becomes certain": (one("int"), one(["null", "int"]), [("lost branch", "a")]),
    "a branch is gone": (one(["null", "int"]), one(["null", "string", "int"]), [("lost branch", "a")]),
    "branches in another order": (one(["int", "null"]), one(["null", "int"]), []),
    "the first branch that fits is taken": (one(["string", "bytes"]), one("bytes"), [("not text", "a")]),
    "a record in a union lacks a field": (
        one(["null", inner(P, field("z", "int"))]),
        one(["null", inner(P)]),
        [("no default", "a.z")],
    ),
    "items grow": (one(array("long")), one(array("int")), []),
    "items shrink": (one(array("int")), one(array("long")), [("other type", "a[]")]),
    "items in a union shrink": (one(["null", array("int")]), one(["null", array("long")]), [("lost branch", "a")]),
    "values of a map": (one(table(enum("x"))), one(table(enum("x", "y"))), [("lost symbol", "a{}")]),
    "a record inside": (one(inner(field("q", "int"))), one(inner(P)), [("no default", "a.q")]),
    "a type used twice is wrong twice": (
        record(field("a", enum("x")), field("b", "E")),
        record(field("a", enum("x", "y")), field("b", "E")),
        [("lost symbol", "a"), ("lost symbol", "b")],
    ),
    "a record that holds itself": (
        record(field("v", "long"), field("next", ["null", "R"])),
        record(field("v", "int"), field("next", ["null", "R"])),
        [],
    ),
    "…and differs": (
        record(field("v", "string"), field("next", ["null", "R"])),
        record(field("v", "int"), field("next", ["null", "R"])),
        [("other type", "v")],
    ),
    "a record of another name": (record(name="S"), record(), [("other name", "")]),
    "the same name in another namespace": (record(namespace="x"), record(namespace="y"), []),
    "an alias without a namespace is in the reader's own": (
        R_AS_OLD,
        record(field("a", "int"), name="Old", namespace="n"),
        [],
    ),
    "a date is a number": (one("long"), one({"type": "int", "logicalType": "date"}), []),
    "a number is no date": (one({"type": "int", "logicalType": "date"}), one("int"), [("other logical type", "a")]),
    "not a record at all": ("string", "int", [("other type", "")]),
}


@pytest.mark.parametrize(("reader", "writer", "broken"), CASES.values(), ids=CASES)
def test_a_reader_meets_a_writer_and_decoding_says_the_same(
    reader: Any, writer: Any, broken: list[tuple[str, str]]
) -> None:
    assert [(reason.rule, reason.path) for reason in compare(reader, writer)] == broken
    assert bool(trial(reader, writer)) == (not broken)


@SEEN
@given(records(), records())
def test_no_verdict_differs_from_what_decoding_does(reader: Any, writer: Any) -> None:
    reasons = compare(reader, writer)
    assume(all(reason.rule != "two sources" for reason in reasons))  # sometimes it is read, from the wrong field
    assert bool(trial(reader, writer)) == (not reasons)


@pytest.mark.parametrize(
    ("reader", "writer", "sentence"),
    [
        (one("int"), record(), "at 'a': the writer has no such field, and it has no default (rule: no default)"),
        (
            one(enum("x")),
            one(enum("x", "y")),
            "at 'a': the enum has no 'y', and no default for what it does not know (rule: lost symbol)",
        ),
        (
            one("int"),
            one(["null", "int"]),
            "at 'a': the value may be null, and the reader takes int (rule: lost branch)",
        ),
        (one(fixed(2)), one(fixed(3)), "at 'a': 3 bytes do not fit 2 (rule: other size)"),
        (
            record(name="S"),
            record(),
            "as a whole: record 'R' is not record 'S', and no alias says so (rule: other name)",
        ),
        (one("string"), one("bytes"), "at 'a': bytes that are no UTF-8 cannot become a string (rule: not text)"),
    ],
)
def test_a_reason_is_a_sentence_with_the_place_and_the_rule(reader: Any, writer: Any, sentence: str) -> None:
    assert [str(reason) for reason in compare(reader, writer)] == [sentence]


@pytest.mark.parametrize(
    ("reader", "writer", "texts"),
    [
        (one("int"), one("int"), ()),
        (one("long", default=1), record(), ("'a' gets its default",)),
        (record(field("b", "long", aliases=["a"])), one("int"), ("'b' comes from 'a', becomes long",)),
        (record(), one("int"), ("'a' is dropped",)),
        (one(enum("x", default="x")), one(enum("x", "y")), ("'a' is 'x' for 'y'",)),
        ("long", "int", ()),
    ],
)
def test_explain_says_what_happens_to_each_field(reader: Any, writer: Any, texts: tuple[str, ...]) -> None:
    assert explain(reader, writer) == texts


def test_each_field_of_a_reader_names_its_source() -> None:
    reader = record(field("b", "int", aliases=["a"]), field("c", "int", default=0))
    assert sources(reader, one("int")) == {"b": "a", "c": None}


# --- levels ------------------------------------------------------------------------------------------------------------

V1, V2, V3 = (
    record(),
    one("int", default=0),
    one("int"),
)  # each may follow the one before; the third cannot read the first
CHAIN = [(1, V1), (2, V2)]


@pytest.mark.parametrize(
    ("level", "schema", "earlier", "allowed", "against"),
    [
        ("NONE", one("int"), [(1, one("string"))], True, ()),
        ("BACKWARD", V3, CHAIN, True, (2,)),
        ("BACKWARD_TRANSITIVE", V3, CHAIN, False, (1, 2)),
        ("FORWARD", V1, [(1, V3), (2, V2)], True, (2,)),
        ("FORWARD_TRANSITIVE", V1, [(1, V3), (2, V2)], False, (1, 2)),
        ("FULL", V2, [(1, V1)], True, (1,)),
        ("FULL", V3, [(1, V1)], False, (1,)),
        ("FULL", V1, [(1, V3)], False, (1,)),
        ("FULL_TRANSITIVE", V2, [(1, V3), (2, V1)], True, (1, 2)),
        ("BACKWARD", V3, [], True, ()),
        ("backward", V3, [(1, V1)], False, (1,)),
    ],
)
def test_a_level_compares_with_the_last_version_or_with_all(
    level: str, schema: Any, earlier: list[tuple[int, Any]], allowed: bool, against: tuple[int, ...]
) -> None:
    verdict = check(level, schema, earlier)
    assert (bool(verdict), verdict.against) == (allowed, against)


def test_a_verdict_says_what_it_compared_and_why_it_refuses() -> None:
    assert repr(check("BACKWARD", V3, CHAIN)) == "✓ BACKWARD allows it (compared with version 2)"
    assert repr(check("FULL", V3)) == "✓ FULL allows it (nothing to compare with)"
    assert repr(check("FULL_TRANSITIVE", V3, CHAIN)) == (
        "✗ FULL_TRANSITIVE refuses it\n"
        "  the new schema cannot read version 1 at 'a': the writer has no such field, and it has no default (rule: no default)"
    )
    assert repr(check("FORWARD", V1, [(4, V3)])) == (
        "✗ FORWARD refuses it\n"
        "  version 4 cannot read the new schema at 'a': the writer has no such field, and it has no default (rule: no default)"
    )


def test_the_decision_table() -> None:
    backward, forward = ("BACKWARD", "the readers"), ("FORWARD", "the writers")
    assert [(level.name, level.first) for level in LEVELS.values()][1:4] == [
        backward,
        forward,
        ("FULL", "either side"),
    ]


# --- one form for a schema, and what is none ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        one("int"),
        json.dumps(one("int")),
        json.dumps(one("int"), indent=4),
        {"name": "R", "fields": [{"type": {"type": "int"}, "name": "a"}], "type": "record"},
    ],
)
def test_the_same_schema_is_the_same_text_however_it_is_written(written: Any) -> None:
    assert canonical(written) == '{"name":"R","type":"record","fields":[{"name":"a","type":"int"}]}'


def test_a_default_is_a_value_and_stays_as_it_is() -> None:
    schema = one(table("int"), default={"type": 1, "name": 2})
    assert '"default":{"type":1,"name":2}' in canonical(schema)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, "a schema is Avro's JSON, as text or as a dict, not NoneType"),
        ("{", "this is no Avro schema: it is no JSON"),
        ("[" * 100_000, "this is no Avro schema: it is no JSON"),
        ('"nope"', "this is no Avro schema: it has no type 'nope'"),
        ({}, "this is no Avro schema: 'type' is missing"),
        ({"type": "record", "name": "R"}, "this is no Avro schema: "),
        (record(name="a-b"), "this is no Avro schema: a-b is not a valid Avro name"),
        (record({"name": "a"}), "this is no Avro schema: Record field 'a' is missing 'type'"),
        (record(field("a", "int"), field("a", "int")), "this is no Avro schema: Field name a already in use"),
        (one("int", doc="\ud800"), "this is no Avro schema: 'utf-8' codec can't encode character '\\ud800'"),
        (one("int", default="x"), "this is no Avro schema: Default value <x> must match schema type: int"),
        (enum("x", "x"), "this is no Avro schema: All symbols in an enum must be unique"),
        (["int", "int"], "this is no Avro schema: int type already in Union"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(wrong: Any, words: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        canonical(wrong)
    assert str(caught.value).startswith(words)


# --- trials and the matrix ---------------------------------------------------------------------------------------------


def test_samples_reach_every_symbol_and_every_branch() -> None:
    schema = record(field("a", enum("x", "y", "z")), field("b", ["null", "string", array("int")]))
    values = list(decoding.samples(schema))
    assert {value["a"] for value in values} == {"x", "y", "z"}
    assert {type(value["b"]).__name__ for value in values} == {"NoneType", "str", "list"}


def test_a_record_that_holds_itself_has_samples_too() -> None:
    assert 0 < len(list(decoding.samples(record(field("next", ["null", "R"]), field("many", array("R")))))) <= 64


def test_some_values_may_arrive_where_not_all_do() -> None:
    some = trial(one("int"), one(["null", "int"]))
    assert (bool(some), some.rule, 0 < some.read < some.tried) == (False, "lost branch", True)


def test_the_matrix_has_a_sentence_for_each_pair_and_shows_itself() -> None:
    found = decoding.matrix({"v1": V1, "v3": V3})
    assert [(each.reader, each.writer, bool(each), each.why) for each in found] == [
        ("v1", "v1", True, "v1 reads v1"),
        ("v1", "v3", True, "v1 reads v3: 'a' is dropped"),
        (
            "v3",
            "v1",
            False,
            "v3 cannot read v1 at 'a': the writer has no such field, and it has no default (rule: no default)",
        ),
        ("v3", "v3", True, "v3 reads v3"),
    ]
    assert repr(found).startswith("3 of 4 pairs read\n")
    assert found._repr_mimebundle_()["text/html"].count("title=") == 4
    assert found.draw("mine").title == "mine · 3 of 4 pairs read"


@pytest.mark.parametrize("wrong", [{}, [V1], None])
def test_a_matrix_needs_schemas_by_name(wrong: Any) -> None:
    with pytest.raises(NotAllowed, match="needs schemas by name"):
        decoding.matrix(wrong)
