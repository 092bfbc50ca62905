"""KQ_PATIENCE: a number is taken, anything else is said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kqlib.runtime.patience import asked


def test_a_number_is_the_factor() -> None:
    assert [asked(text) for text in ("1", "2.5", "100")] == [1.0, 2.5, 100.0]


@pytest.mark.parametrize("text", ["", "x", "0", "0.5", "101", "nan", "inf", "-3"])
def test_what_cannot_be_a_factor_is_said_and_counts_as_one(text: str) -> None:
    with pytest.warns(UserWarning, match=f"KQ_PATIENCE is a number from 1 to 100, not '{text}'; it counts as 1"):
        assert asked(text) == 1.0


def test_every_limit_that_a_busy_machine_may_need_longer_for_is_multiplied() -> None:
    code = "from kqlib.workshop import doctor, groups; print(doctor.machine.GONE, groups.process.LEAVE, groups.process.GIVE_UP)"
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "KQ_PATIENCE": factor},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for factor in ("1", "3")
    ]
    assert [float(text) for text in said[1]] == [3 * float(text) for text in said[0]]
