"""What every part of a run adds to pytest: a limit for each test, no silent skip, and a line for the run's table.

In:  KQ_TIMES, a file; without it no line is written. KQ_NIGHTLY: run the long proofs too.
Out: one JSON line for each test. Of a test that is over its limit the name, every thread's stack and the end of each broker's log
are printed. Then it fails, and the other tests still run. Where Python cannot raise that, the process ends, and with it the part.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest

from tests.patience import PATIENCE

LIMIT = 90.0  # seconds, × patience; `@pytest.mark.limit(200)` for a test that does more
CELL = 150.0  # for a notebook's cell: nbval's own limit of 120 s comes first
GRACE = 30.0  # seconds, × patience, until the process ends in which a test does not end at its limit
TAIL = 4_000  # characters of a broker's log
STDERR = os.dup(2)  # before pytest captures it

MAY_SKIP = {  # in CI every other skip is a failure
    "tests/notebooks/test_languages.py": "Go and Node are no part of this project",
    "tests/promises/test_virtual_languages.py": "the same",
}


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, and the signals that end a test or its processes."""
    signal.signal(signal.SIGALRM, _fail)
    # a shell's background job ignores Ctrl-C, and so would every process that a test starts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "limit(seconds): how long this test may take, × patience")
    config.addinivalue_line("markers", "nightly: a proof that takes over 20 s; `make nightly` runs it (KQ_NIGHTLY)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the night runs."""
    if not os.environ.get("KQ_NIGHTLY"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def pytest_report_header() -> str:
    """One line at the start of each part."""
    return f"patience: {PATIENCE:g}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End this test when it is over its limit."""
    marker = item.get_closest_marker("limit")
    seconds = (marker.args[0] if marker else CELL if _is_cell(item) else LIMIT) * PATIENCE
    timer = threading.Timer(seconds, _end, [item.nodeid, seconds])
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(
        seconds + GRACE * PATIENCE, exit=True, file=STDERR
    )  # where no Python thread can run
    try:
        return (yield)
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def _is_cell(item: pytest.Item) -> bool:
    return type(item).__module__ == "nbval.plugin"


def _end(name: str, seconds: float) -> None:
    os.write(STDERR, f"\n{name} is over its limit of {seconds:.0f} s (patience {PATIENCE:g})\n".encode())
    faulthandler.dump_traceback(file=STDERR)
    os.write(STDERR, "\n".join(_logs()).encode())
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGALRM)


def _fail(*_: object) -> None:
    pytest.fail("it is over its limit: see where each thread was, in the output of this part")


def _logs() -> list[str]:
    """The end of the log of every broker that this process has started."""
    module = sys.modules.get("kqlib.workshop.cluster.embedded")
    clusters = [each for each in gc.get_objects() if isinstance(each, module.Cluster)] if module else []
    brokers = [broker for each in clusters for broker in each._brokers.values()]
    return [f"--- {each}\n{each.log.read_text(errors='replace')[-TAIL:]}" for each in brokers if each.log.exists()]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI a file that is skipped as a whole is a failure too."""
    report = yield
    _no_skip(report)
    return report


def _no_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI a skip is a failure, unless its file is listed."""
    listed = report.nodeid.split("::")[0] in MAY_SKIP
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") and not listed:
        report.outcome = "failed"
        report.longrepr = f"skipped, and in CI that is a failure: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skip is a failure, unless it is listed; a failure says how patient the run was."""
    report = yield
    if hasattr(report, "wasxfail") and _is_cell(item):  # nbval expects nothing of the cells after a timeout
        report.outcome, report.longrepr = "failed", f"not run: {report.wasxfail}"
        del report.wasxfail
    _no_skip(report)
    if report.failed:
        report.sections.append(
            (
                "patience",
                f"{PATIENCE:g}: how many times longer this run waits than a quiet machine with one part at a time",
            )
        )
    return report


class Times:
    """Writes a line for each test; the controller's part, not a worker's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.open: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what set-up, call and teardown took."""
        line = self.open.setdefault(report.nodeid, {"test": report.nodeid, "seconds": 0.0, "outcome": "passed"})
        line["seconds"] += report.duration
        if report.outcome != "passed":
            line["outcome"] = report.outcome
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            line["why"] = f"line {crash.lineno}: {crash.message}" if crash else report.longreprtext
        if report.when in ("teardown", "???"):  # ???: its worker crashed, and nothing follows
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(self.open.pop(report.nodeid)) + "\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where the lines go."""
    path = os.environ.get("KQ_TIMES")
    if path and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Times(path))
