"""KQ_PATIENCE: a number is taken, anything else is said."""

from __future__ import annotations

import pytest

from kqlib.patience import asked


def test_a_number_is_the_factor() -> None:
    assert [asked(text) for text in ("1", "2.5", "100")] == [1.0, 2.5, 100.0]


@pytest.mark.parametrize("text", ["", "x", "0", "0.5", "101", "nan", "inf", "-3"])
def test_what_cannot_be_a_factor_is_said_and_counts_as_one(text: str) -> None:
    with pytest.warns(UserWarning, match=f"KQ_PATIENCE is a number from 1 to 100, not '{text}'; it counts as 1"):
        assert asked(text) == 1.0
