"""What the fault runs measured, a line each, after the last one."""

from __future__ import annotations

import pytest

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines to be printed at the end."""
    return request.config.stash.setdefault(FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print them."""
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)
