"""The rule of the audit as a table of cases, run in SQLite; wrong arguments; depth and age over time."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing, nullcontext
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.command.pipeline import audits
from kqlib.errors import NotAllowed
from kqlib.spark import health
from kqlib.spark.audit import FAULTS, OPEN, VERDICTS, AuditRequest, audit, case, column
from kqlib.spark.watch import Round, watch

COLUMNS = ("results", "dead", "again", "theirs", "marked", "state", "attempts", "unseen")
CASES: dict[str, tuple[Any, ...]] = {
    # what happened: results, dead, again, theirs, marked, state, attempts, unseen, verdict
    "done as it should be": (1, 0, 0, 0, 0, "done", None, 0, "once"),
    "done since the ledger was read": (1, 0, 0, 0, 0, "open", 1, 0, "once"),
    "put, done, all since the ledger was read": (1, 0, 0, 0, 0, "waiting", None, 0, "once"),
    "done, then purged with the rest": (1, 0, 0, 0, 1, "done", None, 0, "once"),
    "two results": (2, 0, 0, 0, 0, "done", None, 0, "doubled"),
    "a result and a dead letter": (1, 1, 0, 0, 0, "done", None, 0, "doubled"),
    "buried twice": (0, 2, 0, 0, 0, "done", None, 0, "doubled"),
    "put back twice": (0, 1, 2, 0, 0, "done", None, 0, "doubled"),
    "two results, and open again": (2, 0, 0, 0, 0, "open", 3, 0, "doubled"),
    "buried": (0, 1, 0, 0, 0, "done", None, 0, "dead"),
    "buried since the ledger was read": (0, 1, 0, 0, 0, "open", 5, 0, "dead"),
    "buried and put back": (0, 1, 1, 0, 0, "done", None, 0, "redriven"),
    "buried, then purged with the rest": (0, 1, 0, 0, 1, "done", None, 0, "dead"),
    "purged": (0, 0, 0, 0, 1, "done", None, 0, "purged"),
    "purged, and its owner does not know it yet": (0, 0, 0, 0, 1, "open", 1, 0, "purged"),
    "handed out": (0, 0, 0, 0, 0, "open", 1, 0, "in flight"),
    "handed out often": (0, 0, 0, 0, 0, "open", 15, 0, "in flight"),
    "passed over": (0, 0, 0, 0, 0, "open", 0, 0, "waiting"),
    "nobody has looked": (0, 0, 0, 0, 0, "waiting", None, 0, "waiting"),
    "acked, and nothing to show for it": (0, 0, 0, 0, 0, "done", None, 0, "missing"),
    "put back by another site": (0, 0, 0, 1, 0, "done", None, 0, "another site's"),
    "put back by another site, not passed yet": (0, 0, 0, 1, 0, "waiting", None, 0, "another site's"),
    "done, and its result is older than the log": (0, 0, 0, 0, 0, "done", None, 1, "removed"),
    "old, and its result is there": (1, 0, 0, 0, 0, "done", None, 1, "once"),
    "old, and dead": (0, 1, 0, 0, 0, "done", None, 1, "dead"),
    "old, and open": (0, 0, 0, 0, 0, "open", 1, 1, "in flight"),
    "old, and purged": (0, 0, 0, 0, 1, "done", None, 1, "purged"),
    "put back, and its letter is gone": (0, 0, 1, 0, 0, "done", None, 0, "redriven"),
    "put back and done, and its letter is gone": (1, 0, 1, 0, 0, "done", None, 0, "doubled"),
}
TWO: dict[str, tuple[Any, ...]] = {
    "both outputs": (2, 0, 0, 0, 0, "done", None, 0, "once"),
    "both, since the ledger was read": (2, 0, 0, 0, 0, "open", 1, 0, "once"),
    "one of two": (1, 0, 0, 0, 0, "done", None, 0, "missing"),
    "one of two, the other one may have been removed": (1, 0, 0, 0, 0, "done", None, 1, "removed"),
    "one of two, so far": (1, 0, 0, 0, 0, "open", 1, 0, "in flight"),
    "three of two": (3, 0, 0, 0, 0, "done", None, 0, "doubled"),
    "one of two, and dead": (1, 1, 0, 0, 0, "done", None, 0, "doubled"),
    "dead": (0, 1, 0, 0, 0, "done", None, 0, "dead"),
}


@pytest.mark.parametrize(
    ("outputs", "row"),
    [(1, row) for row in CASES.values()] + [(2, row) for row in TWO.values()],
    ids=[*CASES, *(f"two outputs: {name}" for name in TWO)],
)
def test_an_item_gets_its_verdict(outputs: int, row: tuple[Any, ...]) -> None:
    *values, expected = row
    with closing(sqlite3.connect(":memory:")) as database:
        columns = ", ".join(f"? AS {name}" for name in COLUMNS)
        found = database.execute(f"SELECT {case(outputs)} FROM (SELECT {columns})", values).fetchone()[0]
    assert found == expected


def test_every_verdict_has_a_case_and_a_column() -> None:
    assert {row[-1] for row in CASES.values()} == set(VERDICTS)
    assert column("another site's") == "another_sites"
    assert set(FAULTS) | set(OPEN) < set(VERDICTS)


WRONG = {
    "a queue that is no text": ({"queue": 3}, "queue is a name, not 3"),
    "a site without a name": ({"site": ""}, "a site's name is text of 1 to 200"),
    "results without a name": ({"results": None}, "results is a name, not None"),
    "results in the queue": ({"results": "football"}, "results are in a topic of their own, not in 'football'"),
    "results among the dead": ({"results": "football.dead"}, "results are in a topic of their own"),
    "no header": ({"of": ""}, "of is a name, not ''"),
    "no output at all": ({"outputs": 0}, "outputs is a whole number, at least 1, not 0"),
    "a bucket in numbers": ({"bucket": 60}, "bucket is a time in words, like '10 minutes' or '1 hour', not 60"),
    "a bucket of nothing": ({"bucket": "0 hours"}, "bucket is a time in words"),
    "a bucket of months": ({"bucket": "1 month"}, "bucket is a time in words"),
    "a time without a zone": ({"since": "yesterday"}, "since is 'earliest', 'latest', a datetime"),
    "a time that is a place": ({"since": "latest"}, "since is a datetime with its zone, not 'latest'"),
}
RIGHT: dict[str, Any] = {"queue": "football", "site": "eu", "results": "football.results"}


@pytest.mark.parametrize("wrong, says", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named_before_anything_is_asked(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(says)):
        audit(None, None, **(RIGHT | wrong))  # type: ignore[arg-type]


def test_a_watch_refuses_the_state_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"form": 0}')
    with pytest.raises(NotAllowed, match="was written by another version of kqlib"):
        watch(None, None, **RIGHT, state=tmp_path)  # type: ignore[arg-type]


def test_a_round_says_how_all_items_stand() -> None:
    looked = Round(3, 1_200, {"once": 4}, {"missing": 1, "once": 1_000})
    assert repr(looked) == "round 3: 1,200 offsets · 1,000 once, 1 missing" and not looked.right
    assert repr(Round(1, 0, {}, {})) == "round 1: 0 offsets · no items" and Round(1, 0, {}, {"once": 1}).right


def test_the_command_says_what_removed_means() -> None:
    counts = {"once": 2, "removed": 3, "missing": 0}
    nothing = SimpleNamespace(collect=list)
    found = SimpleNamespace(asked=AuditRequest(**RIGHT), counts=counts, gone=0, health=nothing, ids=lambda verdict: [])
    why = "retention or compaction may have removed their results before the audit, so it is unknown whether they were done"
    assert audits._report(found).splitlines()[-1] == f"  removed                   3  {why}"


def test_the_command_says_times_of_utc_wherever_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        here = datetime.fromtimestamp(0)  # as PySpark gives it
        row = {"bucket": here, "put": 1, "ended": 1, "depth": 0, "oldest": None, "p50": None}
        frame = SimpleNamespace(collect=lambda: [SimpleNamespace(asDict=lambda: row)])
        asked, rows = AuditRequest(**RIGHT), SimpleNamespace(collect=lambda: [row])
        found = SimpleNamespace(asked=asked, counts={}, gone=0, health=rows)
        assert audits._report(found).splitlines()[-1] == "  1970-01-01 00:00 UTC · 1 put · 1 ended · 0 open"
        assert audits._plain(frame)[0]["bucket"] == "1970-01-01T00:00:00+00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("begun", [True, False])
def test_a_site_that_has_done_nothing_is_named_since_its_name_may_be_mistyped(
    begun: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing, asked = SimpleNamespace(collect=list), AuditRequest(**RIGHT)
    found = SimpleNamespace(asked=asked, counts={}, gone=0, health=nothing, begun=begun, right=True)
    monkeypatch.setattr("kqlib.spark.session", lambda cluster: None)
    monkeypatch.setattr("kqlib.spark.audit", lambda *_, **how: nullcontext(found))
    typed: Any = SimpleNamespace(**vars(asked), since=None, to=None, json=False)
    assert audits._audit_once(typed, None) == 0  # type: ignore[arg-type]
    says = "kq: site 'eu' has no state of 'football': it has done nothing yet, or its name is another one\n"
    assert capsys.readouterr().err == ("" if begun else says)


P, B = health.Pair, health.Bucket
TIMELINES: dict[str, tuple[list[health.Pair], list[health.Bucket]]] = {
    "nothing": ([], []),
    "put and done in one bucket": ([P(0, 0, 5, 1.0)], [B(0, 5, 5, 0, None)]),
    "put and never done": ([P(0, None, 2, 3.0)], [B(0, 2, 0, 2, 7.0)]),
    "done two buckets later": (
        [P(0, 20, 3, 4.0), P(10, 10, 1, 12.0), P(20, 20, 1, 20.0)],
        [B(0, 3, 0, 3, 6.0), B(10, 1, 1, 3, 16.0), B(20, 1, 4, 0, None)],
    ),
    "an old one stays while newer ones come and go": (
        [P(0, None, 1, 1.0), P(10, 20, 4, 11.0), P(20, 20, 2, 22.0)],
        [B(0, 1, 0, 1, 9.0), B(10, 4, 0, 5, 19.0), B(20, 2, 6, 1, 24.0)],
    ),
    "what was purged or lost is put and never open": ([P(0, None, 7, 1.0, counts=False)], [B(0, 7, 0, 0, None)]),
    "a clock that is behind": ([P(10, 0, 1, 11.0)], [B(0, 0, 1, 0, None), B(10, 1, 0, 0, None)]),
}


@pytest.mark.parametrize("pairs, buckets", TIMELINES.values(), ids=TIMELINES.keys())
def test_depth_and_age_are_those_at_a_buckets_end(pairs: list[Any], buckets: list[Any]) -> None:
    assert health.timeline(pairs, 10, now=25.0) == buckets
    assert health.timeline(reversed(pairs), 10, now=25.0) == buckets


def test_a_bucket_is_a_number_of_seconds() -> None:
    cases = {"1 second": 1, "10 minutes": 600, "1 hour": 3600, "2 days": 172_800, "1 week": 604_800}
    assert {bucket: health.length(bucket) for bucket in cases} == cases
    for bucket in cases:
        AuditRequest(**RIGHT, bucket=bucket)
