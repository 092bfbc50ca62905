"""KQ_PATIENCE: a number is taken, anything else is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Message

from kqlib.errors import NotInTime
from kqlib.runtime.patience import PATIENCE, asked, wait_for
from kqlib.workshop.doctor import machine
from kqlib.workshop.groups import process


def test_a_number_is_the_factor() -> None:
    assert [asked(text) for text in ("1", "2.5", "100")] == [1.0, 2.5, 100.0]


@pytest.mark.parametrize("text", ["", "x", "0", "0.5", "101", "nan", "inf", "-3"])
def test_what_cannot_be_a_factor_is_reported_and_counts_as_one(text: str) -> None:
    with pytest.warns(UserWarning, match=f"KQ_PATIENCE is a number from 1 to 100, not '{text}'; it counts as 1"):
        assert asked(text) == 1.0


def test_every_limit_that_a_busy_machine_may_need_longer_for_is_multiplied() -> None:
    code = "from kqlib.workshop import doctor, groups; print(doctor.machine.GONE, groups.process.LEAVE)"
    env = {**os.environ, "KQ_PATIENCE": "3"}
    answer = subprocess.check_output([sys.executable, "-c", code], env=env, text=True).split()
    expected = [3 * each / PATIENCE for each in (machine.GONE, process.LEAVE)]
    assert [float(text) for text in answer] == pytest.approx(expected)


def test_a_state_is_waited_for_and_what_it_gave_comes_back() -> None:
    seen = iter([0, OSError(2, "not there"), None, "here"])

    def condition() -> object:
        found = next(seen)
        if isinstance(found, OSError):
            raise found
        return found

    assert wait_for(condition, 30, "it", not_yet=(OSError,)) == "here"
    with pytest.raises(NotInTime, match=r"^Waited 0 s for a leader; it did not happen. Last seen: \[\]$"):
        wait_for(list, 0.0, "a leader")
    with pytest.raises(NotInTime, match=r"Last seen: No such file or directory$"):
        wait_for(Path("/no/such/file").stat, 0, "a file", not_yet=(OSError,), last=lambda: "never")
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: 1 / 0, 30, "nothing", not_yet=(OSError,))


def test_a_message_without_a_value_is_what_was_waited_for() -> None:
    tombstone = Message(topic="games", value=None)
    assert not tombstone, "it is false for Python, and no reason to go on waiting"
    assert wait_for(lambda: tombstone, 0, "a message") is tombstone
