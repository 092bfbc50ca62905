"""What another process sees of a stream: how fast it is, its state, its lag. No broker, no Spark."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.command.metrics import HELP, exposed
from kqlib.command.pipeline import looks, streams
from kqlib.kafka import reading
from kqlib.spark import running, snapshot
from kqlib.spark.progress import Broke, Progress, seen
from kqlib.spark.stream import Counted
from kqlib.text import PREFIX
from tests.unit.test_alerts import LABELS

REPORT: Any = {
    "batchId": 7,
    "numInputRows": 300,
    "processedRowsPerSecond": 600.0,
    "durationMs": {"triggerExecution": 500},
    "eventTime": {"watermark": "2026-05-01T12:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 4, "memoryUsedBytes": 1_000}, {"numRowsTotal": 1, "memoryUsedBytes": 24}],
    "sources": [{"endOffset": {"games": {"0": 5, "1": 3}}, "latestOffset": {"games": {"0": 12, "1": 3}}}],
}
NOW = Progress(
    7,
    300,
    600.0,
    7,
    300,
    Counted(300, 299, 1),
    0.5,
    {"games/0": 7, "games/1": 0},
    REPORT["eventTime"]["watermark"],
    state_rows=15,
    state_bytes=1_124,
    restarts=2,
    broke=[Broke("points", 7, 2, 40), Broke("points", 9, None, 1)],
)


def test_one_look_at_a_stream_has_its_speed_its_state_and_its_lag() -> None:
    query = SimpleNamespace(recentProgress=[REPORT])
    state, broke = (lambda batch: (batch + 3, 100)), {("points", 9): 1, ("points", 7): 40}
    counted = SimpleNamespace(
        query=query, counted=NOW.counted, restarts=2, state=state, broke=broke, version={7: 2}.get
    )
    assert seen(counted) == NOW
    assert repr(NOW.broke[0]) == "rule 'points': 40 rows of schema 7 (version 2) broke it"
    assert NOW.details == (
        "0.50 s a batch · state 15 rows, 1,124 bytes · watermark 2026-05-01T12:00:00.000Z · restarts 2"
    )
    assert Progress.noted(asdict(NOW)) == NOW and Progress.noted(None) == Progress()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The directory of a stream from games to table, whose process noted `NOW`."""
    monkeypatch.setattr(reading, "bounds", lambda _, topic: {(topic, 0): (0, 5), (topic, 1): (1, 3)})
    monkeypatch.setattr(snapshot, "identity", lambda *_: {"topics": {}})
    home = str(tmp_path / "home")
    with running.alone(home):
        running.note(home, stream="standings", source="games", target="table", aside=["bad"], progress=asdict(NOW))
    return home


def metrics(home: str) -> dict[str, float]:
    """The gauges, by their names and what differs in their labels."""
    labels = '{stream="standings",source="games",target="table"'
    lines = [line for line in exposed(list(looks.gauges(None, home))).splitlines() if not line.startswith("#")]  # type: ignore[arg-type]
    assert all(labels in line for line in lines)
    assert all({*re.findall(r'(\w+)="', line)} == LABELS[line.partition("{")[0]] for line in lines)
    short = [line.removeprefix(PREFIX + "pipeline_").replace(labels, "").strip("}").split("} ") for line in lines]
    return {name.lstrip(","): float(value) for name, value in short}


def test_the_gauges_of_a_stream_that_runs_and_of_one_that_has_ended(home: str) -> None:
    ended = {
        "running": 0,
        'lag_records,partition="0"': 5,
        'lag_records,partition="1"': 2,
        'aside_records,topic="bad"': 7,
        "restarts": 2,
        'broken_rows,rule="points",schema="7",version="2"': 40,
        'broken_rows,rule="points",schema="9",version=""': 1,
    }
    assert metrics(home) == ended
    with running.alone(home):
        assert metrics(home) == ended | {
            "running": 1,
            "rows_per_second": 600,
            "batch_seconds": 0.5,
            "state_rows": 15,
            "state_bytes": 1_124,
            "watermark_seconds": 1_777_636_800,
        }
    assert {name for name in HELP if name.startswith("pipeline_")} == {
        f"pipeline_{name.partition(',')[0]}" for name in (*ended, "rows_per_second", "batch_seconds", "state_rows")
    } | {"pipeline_state_bytes", "pipeline_watermark_seconds"}


def test_a_stream_is_watched_until_it_ends(
    home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster: Any = SimpleNamespace(partitions=lambda _: {})
    args: Any = SimpleNamespace(
        stream="standings", source="games", target="table", home=home, quarantine="bad", json=False, watch=True
    )
    with ExitStack() as stack:
        stack.enter_context(running.alone(home))
        batch = asdict(Progress(8, 5))
        seconds = iter([lambda: None, lambda: running.note(home, progress=batch), stack.close])
        monkeypatch.setattr("time.sleep", lambda _: next(seconds)())
        assert looks.status(args, cluster) == 0
    first, second, last = capsys.readouterr().out.split("games -> table: ")[1:]  # what did not change was printed once
    assert first.startswith("process ") and "last seen: batch 7 · 300 rows · 600 rows/s" in first
    assert "last seen: batch 8 · 5 rows" in second and second.endswith("bad: 7 records\n")
    assert last.startswith("does not run\n")
    args.watch = False
    assert looks.status(args, cluster) == 1


def test_a_directory_in_which_no_stream_has_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not list(looks.gauges(None, str(tmp_path)))  # type: ignore[arg-type]
    assert capsys.readouterr().err == f"kq: no stream has run in {tmp_path}\n"


def test_a_start_counts_as_a_restart_if_the_directory_has_run_before(home: str) -> None:
    args = SimpleNamespace(word="standings", source="games", target="table", quarantine=None, late="late")
    for before in (2, 3):
        note = streams._noting(args, home)  # type: ignore[arg-type]
        assert Progress.noted(running.noted(home)["progress"]) == Progress(restarts=before + 1)
    note(Progress(batch=1, restarts=1))  # a new schema
    noted = running.noted(home)
    assert (noted["progress"]["restarts"], noted["aside"]) == (5, ["late"])
