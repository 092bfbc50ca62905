"""Processes of this machine: which one has the other end of a connection, and whether one runs, is stopped or is gone.

In:  ports, process ids. Out: process ids, states, where the system tells them (Linux).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

STOPPED, GONE = ("T", "t"), ("X", "Z", "x")  # states of a process


def process_of(port: int, ours: int, likely: set[int]) -> int | None:
    """The process that has the other end of a connection. likely: look there first."""
    ends = re.compile(rf":{port:04X} [0-9A-F]+:{ours:04X} (.+)")
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # Java's connections are in the second
        with suppress(OSError):
            if found := ends.search(Path(table).read_text()):
                name = f"socket:[{found[1].split()[6]}]"
                return next((pid for pid in _processes(likely) if name in _files(pid)), None)
    return None


def _processes(likely: set[int]) -> Iterator[int]:
    """The processes of this machine, the newest first."""
    yield from likely
    with suppress(OSError):
        yield from sorted((int(each) for each in os.listdir("/proc") if each.isdigit()), reverse=True)


def _files(pid: int) -> Iterator[str]:
    """What a process has open."""
    with suppress(OSError):
        for each in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(each.path)


def process_state(pid: int) -> str:
    """A process's state. Where the system does not tell it, it counts as stopped, and `release` lets it go on."""
    if sys.platform != "linux":
        return STOPPED[0]
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return GONE[0]
