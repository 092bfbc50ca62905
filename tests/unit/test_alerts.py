"""Alert rules and the dashboard name only metrics and labels that kqlib prints, and each alarm of the how-to has a rule."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from kqlib.command import metrics
from kqlib.text import PREFIX
from kqlib.virtual import outbox

ROOT = Path(__file__).parents[2]
STREAM = {"stream", "source", "target"}
OF_KIND = {"queue": {"queue", "site"}, "site": {"site"}, "pipeline": STREAM, "outbox": set[str]()}
OWN = {
    "pipeline_lag_records": STREAM | {"partition"},
    "pipeline_aside_records": STREAM | {"topic"},
    "pipeline_broken_rows": STREAM | {"rule", "schema", "version"},
}
LABELS = {PREFIX + name: OWN.get(name, OF_KIND[name.partition("_")[0]]) for name in {**metrics.HELP, **outbox.METRICS}}
"""Of each metric. Where metrics are printed, test_metrics and test_spark_seen compare."""

PROMQL = {"sum", "by", "on", "and", "absent", "deriv"}
CLAUSE = re.compile(r"\b(by|on) ?\((.*?)\)")
SHOWN = re.compile(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}")


def unknown(expr: str, text: str = "") -> set[str]:
    """What an expression, or the text that shows it, names and kqlib does not print: metrics and labels."""
    bare = re.findall(r"\b[a-z]\w*", re.sub(r"\{.*?\}", "", CLAUSE.sub(r"\1", expr)))
    named = [name for name in bare if name in LABELS]
    wrong = {name for name in bare if name not in LABELS.keys() | PROMQL}
    for name, labels in re.findall(r"(\w+)\{(.*?)\}", expr):
        wrong |= {*re.findall(r"(\w+) ?[=!]", labels)} - LABELS.get(name, set())
    kept = {word: {*re.findall(r"\w+", labels)} for word, labels in CLAUSE.findall(expr)}
    wrong |= {label for labels in kept.values() for label in labels if any(label not in LABELS[name] for name in named)}
    return wrong | {*SHOWN.findall(text)} - (kept.get("by") or LABELS[named[0]] if named else set())


def test_each_rule_names_numbers_that_are_printed_and_each_alarm_of_the_how_to_has_one() -> None:
    (group,) = yaml.safe_load((ROOT / "examples/recipes/alerts.yml").read_text(encoding="utf-8"))["groups"]
    assert [unknown(rule["expr"], rule["annotations"]["summary"]) for rule in group["rules"]] == [set()] * 8
    page = (ROOT / "docs/how-to/run-in-production.md").read_text(encoding="utf-8")
    alarms = set(re.findall(rf"^\| `({PREFIX}\w+)`", page, re.MULTILINE))
    assert alarms and alarms <= {word for rule in group["rules"] for word in re.findall(r"\w+", rule["expr"])}
    assert {rule["labels"]["severity"] for rule in group["rules"]} == {"page", "ticket"}


def test_each_panel_of_the_dashboard_names_numbers_that_are_printed_and_covers_no_other() -> None:
    board = json.loads((ROOT / "examples/recipes/dashboard.json").read_text(encoding="utf-8"))
    asked = [each for panel in board["panels"] for each in panel["targets"]]
    assert {each["expr"]: found for each in asked if (found := unknown(each["expr"], each["legendFormat"]))} == {}
    (choice,) = [each["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", choice).groups()  # type: ignore[union-attr]
    assert label in LABELS[metric]
    cells = [
        (column, row)
        for x, y, w, h in ((panel["gridPos"][side] for side in "xywh") for panel in board["panels"])
        for column in range(x, x + w)
        for row in range(y, y + h)
    ]
    assert len(cells) == len(set(cells)) and max(column for column, _ in cells) < 24  # Grafana's columns
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_what_kqlib_does_not_print_is_found() -> None:
    for expr, text, wrong in (
        ("kqlib_queue_item > 0", "", {"kqlib_queue_item"}),
        ("queue_items", "", {"queue_items"}),
        ('kqlib_queue_items{stream=~"$stream"}', "", {"stream"}),
        ("kqlib_queue_items and on (queue) kqlib_site_members == 0", "", {"queue"}),
        ("sum by (site) (kqlib_pipeline_lag_records)", "{{site}}", {"site"}),
        ("sum by (stream) (kqlib_pipeline_lag_records)", "{{partition}}", {"partition"}),
        ("kqlib_site_members", "{{queue}} of {{site}}", {"queue"}),
        ("absent(kqlib_queue_lost_items)", "{{ $labels.topic }}: {{ $value }}", {"topic"}),
    ):
        assert unknown(expr, text) == wrong, expr
