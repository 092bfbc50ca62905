"""The exercises of notebook 12 tell their answers apart, in the session of these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.test_solutions import SPARK, tried


@pytest.mark.parametrize("many", [1, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.limit(300)])])
def test_the_exercises_of_spark_tell_answers_apart(
    spark: Any, many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a pass is remembered: not among those of the person who runs the tests
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    for exercise in SPARK:
        tried(exercise, many)
