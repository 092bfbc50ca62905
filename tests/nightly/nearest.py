"""A pytest plugin: files run in the order in which the command names them, and the test that runs is written into a file.

In:  KQ_NIGHTLY_TEST, the file. Out: with `-x` it names the test that failed, or that ran when the process ended.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NAME = Path(os.environ["KQ_NIGHTLY_TEST"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As named, whatever else sorts them."""
    order = {Path(config.invocation_params.dir, name.partition("::")[0]): n for n, name in enumerate(config.args)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported."""
    if report.failed:
        NAME.write_text(report.nodeid, encoding="utf-8")


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    NAME.write_text(nodeid, encoding="utf-8")
