"""The rules for Prometheus: every number that they name is one that kqlib prints, and every alarm of the how-to has a rule."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from kqlib.command import metrics
from kqlib.text import PREFIX
from kqlib.virtual import outbox

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(rf"{PREFIX}\w+")


def test_each_rule_names_numbers_that_are_printed_and_each_alarm_of_the_how_to_has_one() -> None:
    (group,) = yaml.safe_load((ROOT / "examples/recipes/alerts.yml").read_text(encoding="utf-8"))["groups"]
    named = {name for rule in group["rules"] for name in NUMBER.findall(rule["expr"])}
    assert named <= {PREFIX + name for name in {**metrics.HELP, **outbox.METRICS}}
    page = (ROOT / "docs/how-to/run-in-production.md").read_text(encoding="utf-8")
    alarms = set(re.findall(rf"^\| `({PREFIX}\w+)`", page, re.MULTILINE))
    assert alarms and alarms <= named
    assert {rule["labels"]["severity"] for rule in group["rules"]} == {"page", "ticket"}
