"""What tests share: processes that carry this test's mark, Pythons to be ended in every way, and waiting for a state."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE


def pytest_configure(config: pytest.Config) -> None:
    """Limits and markers also where pytest is started by hand; `python -m tests` names the plugin itself."""
    if not config.pluginmanager.has_plugin("tests.plugin"):
        config.pluginmanager.import_plugin("tests.plugin")


class Marked:
    """The processes that this test started, at any depth: their environment carries its mark."""

    name = "KQ_TEST_MARK"

    def __init__(self, mark: str) -> None:
        self.mark, self.env = mark, {self.name: mark}
        self.since = time.time() - 10.0  # an older process cannot carry it, and reading all environments is slow

    def alive(self, word: str = "") -> list[psutil.Process]:
        """Those that still run; with a word, those with it in their command line. A zombie does not run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.create_time() < self.since:
                    continue
                if process.environ().get(self.name) == self.mark and process.pid != psutil.Process().pid:
                    line = " ".join(process.cmdline())
                    if word in line and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Marked]:
    """Put a mark into the environment; whatever still carries it after the test is ended."""
    marks = Marked(uuid.uuid4().hex)
    monkeypatch.setenv(marks.name, marks.mark)
    yield marks
    for process in marks.alive():
        with suppress(psutil.NoSuchProcess):  # it was about to end
            process.kill()


@pytest.fixture
def python(tmp_path: Path, marked: Marked) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python that runs these lines, as a notebook's kernel would; its temporary files and its directory are this test's."""
    started: list[subprocess.Popen[str]] = []

    def run(*lines: str) -> subprocess.Popen[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        where = {"env": {**os.environ, "TMPDIR": str(tmp_path)}, "cwd": tmp_path, "start_new_session": True}
        started.append(subprocess.Popen([sys.executable, "-c", "\n".join(lines)], text=True, **pipes, **where))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()  # not read to its end: a child that lives on may hold it


@pytest.fixture(scope="session")
def within() -> Callable[..., float]:
    """Wait until something is true and return how many seconds it took; it fails after `seconds` × patience."""

    def wait(seconds: float, condition: Callable[[], object], why: str = "") -> float:
        start, limit = time.monotonic(), seconds * PATIENCE
        while not condition():
            assert time.monotonic() - start < limit, why or f"it did not happen within {limit:g} s"
            time.sleep(0.02)
        return time.monotonic() - start

    return wait
