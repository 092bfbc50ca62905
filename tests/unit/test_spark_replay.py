"""Wrong arguments of a replay, and its table of counts."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kqlib.command import pipeline
from kqlib.command.pipeline.replay import WITH, function
from kqlib.errors import NotAllowed
from kqlib.spark.replay import Replayed, _checked, _run, repair, replay


class Frame:
    """As much of a frame as is looked at."""

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)


WRONG = {
    "into itself": (
        lambda: replay(None, None, "games", "games"),
        "a replay of 'games' into itself would put everything twice",
    ),
    "a time after the end": (
        lambda: replay(
            None, None, "games", "again", start=datetime(2026, 5, 2, tzinfo=UTC), end=datetime(2026, 5, 1, tzinfo=UTC)
        ),
        "the start, 2026-05-02 00:00:00+00:00, is after the end, 2026-05-01 00:00:00+00:00",
    ),
    "an offset after the end": (
        lambda: replay(None, None, "games", "again", start={0: 5, 1: 5}, end={0: 5, 1: 4}),
        "the start, {0: 5, 1: 5}, is after the end, {0: 5, 1: 4}",
    ),
    "a run without a name": (lambda: _run(""), "a run's name is text of 1 to 100 printable ASCII characters, not ''"),
    "a run that is a number": (lambda: _run(3), "a run's name is text"),
    "a transform that gives nothing": (
        lambda: _checked(None),
        "a transform takes a frame and returns one, not NoneType",
    ),
    "a frame without a value": (
        lambda: _checked(Frame("key", "game")),
        "a frame with key, value and timestamp; this one has key, game",
    ),
    "a frame without columns": (lambda: _checked(Frame()), "this one has nothing"),
    "no queue": (
        lambda: repair("football", bytes),
        "repair needs a queue of a site, as in site.queue('football'), not str",
    ),
    "a time that is none": (
        lambda: pipeline._time("yesterday"),
        "a time looks like 2026-05-01T00:00Z, not 'yesterday'",
    ),
    "a place that is none": (
        lambda: pipeline._place("0:1,"),
        "a place is earliest, latest, a time or offsets like 0:120,1:98, not '0:1,'",
    ),
    "a function without a file": (
        lambda: function("fix", WITH),
        "--with names a file and a function in it",
    ),
    "a file that is not there": (lambda: function("no.py:fix", WITH), "not 'no.py:fix'"),
}


@pytest.mark.parametrize("call, says", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named_before_anything_is_asked(call: Any, says: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(says)):
        call()


def test_a_place_is_typed_as_a_word_a_time_or_offsets() -> None:
    cases = {
        "earliest": "earliest",
        "0:120,1:98": {0: 120, 1: 98},
        "2026-05-01": datetime(2026, 5, 1, tzinfo=UTC),
        "2026-05-01T10:00+00:00": datetime(2026, 5, 1, 10, tzinfo=UTC),
    }
    assert {text: pipeline._place(text) for text in cases} == cases


def test_a_function_comes_out_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mend.py").write_text("def fix(item):\n    return b'mended'\nnot_one = 3\n")
    assert function(f"{tmp_path}/mend.py:fix", WITH)(None) == b"mended"
    with pytest.raises(NotAllowed, match=r"mend.py has no function 'not_one'"):
        function(f"{tmp_path}/mend.py:not_one", WITH)


def test_a_replay_shows_its_counts_by_partition() -> None:
    assert repr(Replayed("r", True, {0: 1_200, 1: 3}, {0: 1_199, 1: 3})).splitlines() == [
        "partition   read  would be written",
        "        0  1,200             1,199",
        "        1      3                 3",
        "      all  1,203             1,202",
    ]
    assert "left" in repr(Replayed("r", False, {0: 2}, {0: 1}, {0: 1})).splitlines()[0]
    assert repr(Replayed("r", False, {}, {})).splitlines()[-1] == "      all     0        0"
