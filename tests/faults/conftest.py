"""What the fault runs measured, a line each, after the last one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests take minutes: their limit is just below the hour that `tests.nightly.parts` gives to each."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.limit(3_500))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines to be printed at the end: they go with the test's report, for it may run in another process."""
    lines: list[str] = []
    yield lines
    request.node.user_properties += [("figure", line) for line in lines]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print them."""
    for report in (report for some in terminalreporter.stats.values() for report in some):
        if getattr(report, "when", "") == "teardown":
            for name, line in report.user_properties:
                if name == "figure":
                    terminalreporter.write_line(line)
