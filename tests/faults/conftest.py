"""What the fault runs measured, a line each, after the last one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


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
