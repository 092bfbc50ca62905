"""`kq queue` for a test: a queue of its own, a site, commands in this process, in another one, or at a terminal.

In:  a cluster. Out: `Desk`, called with what is typed; `Terminal`, into which a test types.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.command import main as cli
from kqlib.kafka import Kafka
from kqlib.queue import gc
from tests.patience import WAIT

KQ = [sys.executable, "-m", "kqlib", "queue"]
REPO = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    """What a command printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its answer for programs."""
        return json.loads(self.out)


@dataclass
class Desk:
    """`kq queue` for one queue of a test's own, as its site."""

    cluster: Kafka
    name: str
    site: str
    capsys: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    started: list[subprocess.Popen[Any]] = field(
        default_factory=list
    )  # ended after the test, also after one that failed

    def __call__(self, word: str, *rest: str, typed: bytes = b"", on: str = "") -> Ran:
        """`kq queue WORD QUEUE REST…`, in this process."""
        self.patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(typed), isatty=lambda: False))
        self.capsys.readouterr()
        named = [] if word in {"list", "story"} else [on or self.name]
        code = cli.main(["queue", word, *named, *rest])
        return Ran(code, *self.capsys.readouterr())

    def no_tool(self) -> None:
        """From now on no share group is looked for: Kafka's tool for that is a JVM of two seconds for each `gc`."""
        self.patch.setattr(gc, "_sharing", lambda *_: set())

    def start(self, word: str, *rest: str, **pipes: Any) -> subprocess.Popen[str]:
        """The same in a process of its own."""
        self.started.append(subprocess.Popen([*KQ, word, self.name, *rest], cwd=REPO, text=True, **pipes))
        return self.started[-1]

    def depth(self) -> int:
        """How much is in it."""
        found: int = self("depth", "--json").json["depth"]
        return found


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, desk: Desk, *rest: str) -> None:
        self.keys, theirs = pty.openpty()

        def own() -> None:
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)  # Ctrl-C is a signal only from the terminal that one has

        self.process = subprocess.Popen(
            [*KQ, "claim", desk.name, *rest],
            cwd=REPO,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=own,  # noqa: PLW1509 - nothing else runs in that child
        )
        desk.started.append(self.process)
        os.close(theirs)
        self.seen = ""

    def wait_for(self, words: str) -> None:
        """Read until these words are seen."""
        deadline = time.monotonic() + WAIT
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.keys], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.keys, 4096).decode()
                except OSError:  # it has ended
                    assert words in self.seen, self.seen

    def type(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def end(self) -> int:
        """Its exit code."""
        code = self.process.wait(WAIT)
        os.close(self.keys)
        return code


def noticed(process: subprocess.Popen[Any]) -> bool:
    """Has this process been given every signal that was sent to it? One that stands still has not, and two of a kind become one."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return not any(pending)


def turns(process: subprocess.Popen[Any]) -> int:
    """How often its main thread has waited for something, and gone on: Python hears a signal when that thread goes on."""
    lines = Path(f"/proc/{process.pid}/task/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))


def received(process: subprocess.Popen[Any], within: Callable[..., float]) -> None:
    """Return when the main thread of this process, which looks around every few milliseconds, has received its signals."""
    within(10, lambda: noticed(process), "the signal is still waiting")
    before = turns(process)
    within(10, lambda: turns(process) > before + 20, "its main thread does not go on")
