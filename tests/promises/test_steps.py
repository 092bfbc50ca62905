"""The steps of notebook 08 on a real broker: no crash loses an item. Which row each step turns is a table of the notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from kqlib.workshop.crash import Report
from tests.notebooks.page import REPO


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize("number", range(1, 7))
def test_a_step_loses_nothing_at_any_request(number: int, kq_crash: Callable[..., Report]) -> None:
    report = kq_crash([sys.executable, str(REPO / f"notebooks/steps/08_{number}.py")], 3, allow=["doubled", "order"])
    assert (report.clean, report.lost) == (True, 0), str(report)
