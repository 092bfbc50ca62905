"""Frames, progress and ledgers without Spark and without a broker."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest

from kqlib.errors import KqError, NotAllowed
from kqlib.queue import notes, state
from kqlib.queue.incidents import Seen
from kqlib.queue.ledger import Ledger
from kqlib.spark import frames, progress, queue_state
from kqlib.spark.stream import explained

MONDAY = datetime(2026, 5, 4, tzinfo=UTC)

WRONG = {
    "a place that is a number": (lambda: frames.place("start", 3), "start is 'earliest', 'latest', a datetime or"),
    "a place that is another word": (lambda: frames.place("end", "now"), "not 'now'"),
    "a place that is a bool": (lambda: frames.place("start", {0: True}), "not {0: True}"),
    "an offset below zero": (lambda: frames.place("start", {0: -1}), "not {0: -1}"),
    "no offsets": (lambda: frames.place("start", {}), "not {}"),
    "a time without a zone": (lambda: frames.place("start", datetime(2026, 5, 4)), "a time with its zone, as in"),
    "a topic that is no text": (
        lambda: frames.items(None, None, 3),
        "a topic is named by text, as in 'football', not 3",
    ),
    "a topic without a name": (lambda: frames.items(None, None, ""), "a topic is named by text"),
    "a stream with an end": (
        lambda: frames.items(None, None, "football", stream=True, end=MONDAY),
        "a stream has no end",
    ),
    "a partition too many": (
        lambda: frames.offsets(None, "football", {0: 5, 1: 5}, {0: 0}, {0: 9}),
        "'football' has the partitions 0: say an offset for each of them",
    ),
    "an offset that retention has deleted": (
        lambda: frames.offsets(None, "football", {0: 5}, {0: 7}, {0: 9}),
        "begins at offset 7 and you ask for 5: retention has deleted 2 records. Ask from 7 or 'earliest'",
    ),
    "an offset behind the end": (
        lambda: frames.offsets(None, "football", {0: 10}, {0: 7}, {0: 9}),
        "ends at offset 9 and you ask for 10",
    ),
    "following nothing": (lambda: progress.follow(3, None, "lag"), "follow needs a streaming query that runs, not int"),
}


@pytest.mark.parametrize("call, says", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named_before_anything_is_asked(call: Any, says: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(says)):
        call()


def test_a_time_before_1970_is_that_of_the_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(state, "_offsets", lambda cluster, partitions, spec, seconds: asked.append(spec._value) or {})
    for moment in (-0.001, -3e8, 2.5):  # Kafka takes −1 ms for 'latest'
        state.since(None, [("t", 0)], moment)  # type: ignore[arg-type]
    assert asked == [0, 0, 2500]


def test_places_become_offsets() -> None:
    lows, ends = {0: 3, 1: 0}, {0: 9, 1: 0}
    assert frames.offsets(None, "t", "earliest", lows, ends) == lows  # type: ignore[arg-type]
    assert frames.offsets(None, "t", "latest", lows, ends) == ends  # type: ignore[arg-type]
    assert frames.offsets(None, "t", {0: 3, 1: 0}, lows, ends) == {0: 3, 1: 0}  # type: ignore[arg-type]


# --- the ledger -----------------------------------------------------------------------------------------------------------


def part(low: int, end: int, claimed: int, acked: list[int], mark: int = 0) -> queue_state.PartitionState:
    """A partition of which `claimed` were handed out and these acked."""
    ledger = Ledger(0, 0, 1, "id")
    ledger.claim(range(claimed))
    ledger.ack(acked)
    return queue_state.PartitionState(Seen("id", low, end, ledger.floor, ledger.text()), ledger, mark)


def test_a_partition_says_what_is_open_and_how_deep_it_is() -> None:
    assert part(0, 10, 4, [0, 2]).open == [(1, 1), (3, 1)]
    cases = {(0, 10, 4, 0): 10, (3, 10, 4, 0): 7, (0, 10, 4, 6): 4, (12, 12, 4, 0): 0, (0, 3, 4, 0): 4}
    for (low, end, claimed, mark), depth in cases.items():
        assert part(low, end, claimed, [], mark).depth == depth, (low, end, claimed, mark)


def test_what_left_the_log_too_soon_is_counted() -> None:
    cases = {(0, 4, 0): 0, (3, 4, 0): 2, (12, 4, 0): 11, (12, 4, 10): 2, (3, 4, 3): 0}  # low, claimed, mark; 1 is done
    assert {case: part(case[0], 12, case[1], [1], case[2]).gone for case in cases} == cases

    def plain(committed: int | None) -> int:
        return queue_state.PartitionState(Seen("id", 7, 9, committed, ""), Ledger(7, 7)).gone

    assert (plain(None), plain(3), plain(9)) == (0, 4, 0)


def test_of_two_purge_marks_the_farther_counts_and_only_for_the_same_topic() -> None:
    old, new, other = {"topic": "a", "offset": 9}, {"topic": "a", "offset": 5}, {"topic": "b", "offset": 2}
    cases = [(old, new, old), (new, old, old), (None, new, new), (old, other, other), (old, None, None)]
    assert [notes.merged(one, two) for one, two, _ in cases] == [farther for *_, farther in cases]


# --- progress -------------------------------------------------------------------------------------------------------------


def batch(number: int, rows: int, read: dict[str, int], latest: dict[str, int] | None) -> dict[str, Any]:
    """What Spark says of a batch."""
    source = {"endOffset": {"games": read}, "latestOffset": {"games": latest} if latest else None}
    return {"batchId": number, "numInputRows": rows, "processedRowsPerSecond": 1234.5, "sources": [source]}


def test_progress_is_batch_rows_rate_and_lag() -> None:
    reports = [
        batch(6, 100, {"0": 50, "1": 50}, {"0": 50, "1": 50}),
        batch(7, 3_000, {"0": 90, "1": 60}, {"0": 100, "1": 1_170}),
    ]
    now = progress.Progress.read(reports)
    lags = {"games/0": 10, "games/1": 1_110}
    assert now == progress.Progress(7, 3_000, 1234.5, 1_120, 3_100, lags=lags)
    assert repr(now) == "batch 7 · 3,000 rows · 1,234 rows/s · lag 1,120 records"
    assert repr(progress.Progress.read([])) == "no batch yet"
    idle = batch(8, 0, {"0": 90, "1": 60}, {"0": 100, "1": 61})  # nothing to do, or not yet
    lags = {"games/0": 10, "games/1": 1}
    assert progress.Progress.read([*reports, idle]) == progress.Progress(7, 3_000, 1234.5, 11, 3_100, lags=lags)
    assert progress.ends(reports[-1]) == {"games": {0: 90, 1: 60}}


def test_offsets_are_read_however_spark_writes_them() -> None:
    as_text = {"sources": [{"endOffset": str({"games": {"0": 5}}), "latestOffset": "None"}]}
    as_json = {"sources": [{"endOffset": json.dumps({"games": {"0": 5}}), "latestOffset": None}]}
    a_rate = {"sources": [{"endOffset": 17, "latestOffset": 20}]}
    assert (
        progress.ends(as_text) == progress.ends(as_json) == {"games": {0: 5}}
        and progress.ends(a_rate) == {}
        and progress.lags(a_rate) == {}
    )


def test_a_terminal_has_one_line_and_a_file_a_line_a_change() -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    for out, expected in (
        (Terminal(), "\rgames: batch 10\rgames: batch 9 \n"),
        (StringIO(), "games: batch 10\ngames: batch 9\n"),
    ):
        line = progress.ProgressLine("games", out)
        for text in ("batch 10", "batch 10", "batch 9"):
            line.update(text, {"rows": 1})
        line.end({"rows": 1})
        assert out.getvalue() == expected


def test_a_notebook_has_one_output_and_its_last_state_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython
    import IPython.display

    class ZMQInteractiveShell:
        """What a notebook runs in."""

    seen: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            seen.append(data["text/plain"])

    monkeypatch.setattr(IPython, "get_ipython", ZMQInteractiveShell)
    monkeypatch.setattr(IPython.display, "display", lambda data, raw, display_id: Handle())
    line = progress.ProgressLine("games")
    line.update("batch 3 · 1,234 rows/s", {"rows": 30, "lag": 7})
    line.update("batch 4 · 2,345 rows/s", {"rows": 40, "lag": 0})
    line.end({"rows": 40, "lag": 0})
    assert seen == ["games · rows 30 · lag 7", "games · rows 40 · lag 0", "games · rows 40 · lag 0"]


EXPLAINED = {
    "retention": (
        "[KAFKA_DATA_LOSS.START_OFFSET_DOES_NOT_MATCH] Some data may have been lost",
        "retention deleted them",
    ),
    "reset": (
        "Query [id = 1] terminated\nSome data may have been lost because x",
        "Spark says: Some data may have been lost",
    ),
    "anything else": ("\nat a\nthe sink is full\nat b", "Spark ended the query: the sink is full"),
    "nothing": ("", "Spark ended the query: no reason"),
}


@pytest.mark.parametrize("reports, says", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_an_error_of_spark_becomes_a_sentence(reports: str, says: str) -> None:
    assert says in str(explained(RuntimeError(reports)))


def test_an_error_of_kqlib_stays_what_it_is() -> None:
    ours = KqError("no")
    assert explained(ours) is ours
