"""No ratio of a notebook leaves its band on a busy machine: its measuring cells, run three times beside two busy loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks import bands


def run(ratio: float, words: str, printed: str = "") -> dict[str, object]:
    """What one run found."""
    return {"ratios": {"time: lz4": (ratio, words)}, "printed": {"cell": printed}, "seconds": {"cell": 2.0}}


def test_the_report_has_the_smallest_and_the_largest_ratio_and_what_left_its_band() -> None:
    lines, wrong = bands.report([run(0.8, "between 1/2 and 2 ×"), run(1.5, "between 1/2 and 2 ×")])
    assert "0.8 to       1.5  between 1/2 and 2 ×  time: lz4" in lines
    assert "2 runs of 2 to 2 s; at most, in s: cell 2.0" in lines
    assert wrong == []
    _, wrong = bands.report([run(3, "3 ×, not between 1/2 and 2 ×", "3"), run(1, "between 1/2 and 2 ×", "1")])
    assert wrong == ["time: lz4: 3 ×, not between 1/2 and 2 ×", "cell cell prints 2 texts:\n1\n3"]


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize("path", bands.measured(), ids=lambda path: path.name)
def test_no_ratio_leaves_its_band_beside_two_busy_loops(path: Path) -> None:
    lines, wrong = bands.report(bands.runs(path, 3, loops=2))
    assert not wrong, "\n".join([*wrong, lines])
