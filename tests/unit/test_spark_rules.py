"""Wrong rules are named before a stream starts. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.spark.rules import Rule, Rules, unknown

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"name": " "}, "a rule has a name and a condition in SQL, not ' ' and 'score >= 0'"),
    ({"that": 3}, "a rule has a name and a condition in SQL, not 'score' and 3"),
    ({"then": "drop"}, "rule 'score': then is keep, quarantine, stop, not 'drop'"),
    ({"above": 1}, "rule 'score': above is a part from 0 to below 1, not 1"),
    ({"above": 0.1}, "rule 'score': above goes with then = 'stop', not with 'quarantine'"),
    ({"within": 0}, "rule 'score': within is a number of seconds from 1 to 86400, not 0"),
)


@pytest.mark.parametrize(("how", "says"), WRONG)
def test_a_wrong_rule_is_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises(NotAllowed) as error:
        Rule(**{"name": "score", "that": "score >= 0"} | how)
    assert str(error.value) == says


def test_rules_have_names_of_their_own_and_one_value_that_comes_once() -> None:
    score, once, again = Rule("score", "score >= 0"), Rule("once", "id", within=60), Rule("again", "at", within=60)
    for rules in ([score, score], [once, again]):
        with pytest.raises(NotAllowed, match="each rule has another name, and one rule at most has `within`"):
            Rules(rules, "checkpoint")
    assert Rules([score, once], "checkpoint").once == once


NAMES: tuple[tuple[str, list[str]], ...] = (
    ("points >= 0 AND Home <> away", []),
    ("pionts >= 0 OR hom <> away AND pionts < 9", ["pionts", "hom"]),
    ("""home <> 'nobody''s' AND away <> "it\\"s out" """, []),
    ("`the home` IS NULL", ["the home"]),
    ("length(trim (home)) < 1e3 AND goal.by IS NOT NULL", ["goal"]),
    ("at > current_date - INTERVAL 3 DAYS AND CAST(points AS bigint) BETWEEN 0 AND 9L", []),
    ("minute < 90 OR at > TIMESTAMP '2026-05-01' + INTERVAL '1' DAY OR away IN ('a', 'b')", ["minute"]),
    ("forall(events, e -> e.minute > 0)", []),
)


@pytest.mark.parametrize(("that", "names"), NAMES)
def test_a_name_that_is_no_field_is_found_without_spark(that: str, names: list[str]) -> None:
    assert unknown(that, ["points", "home", "away", "at"]) == names
