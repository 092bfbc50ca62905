"""Processes that a measurement starts: a function of the bench runs in each, with the cluster's address, and its answers come back.

In:  a function by name, its arguments. Out: what it returns, and a word in between (`tell`). Each is a fresh Python, as a worker's is.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil

SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 120.0


class Process:
    """One of them. `hear` returns its next answer, `stop` asks it to end."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._here, there = SPAWN.Pipe()
        where = work.__module__, work.__qualname__
        self.child = SPAWN.Process(target=_run, args=(there, *where, arguments), daemon=True)
        self.child.start()
        there.close()

    def hear(self, seconds: float = PATIENCE) -> Any:
        """The next answer."""
        if not self._here.poll(seconds):
            raise RuntimeError(f"no answer within {seconds:g} s")
        return self._here.recv()

    def cpu(self) -> float:
        """Seconds of CPU until now."""
        times = psutil.Process(self.child.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        """Ask it to end; its result is the next answer."""
        self._here.send(None)

    def end(self) -> None:
        """Wait until it has ended."""
        self.child.join(PATIENCE)
        self.child.kill()


class Caller:
    """The other end, in the process: `tell` answers, `stopped` says whether it is asked to end."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._over = False

    def tell(self, value: Any) -> None:
        """Send an answer."""
        self._line.send(value)

    def stopped(self) -> bool:
        """Was it asked to end?"""
        self._over = self._over or self._line.poll()
        return self._over

    def wait(self) -> None:
        """Wait until it is asked to end."""
        self._over = self._over or self._line.recv() is None


def _run(line: Connection, module: str, name: str, arguments: Any) -> None:
    caller = Caller(line)
    caller.tell(getattr(importlib.import_module(module), name)(caller, *arguments))
