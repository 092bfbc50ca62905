"""The commands of `kq` that have a room of their own: `kq queue …`, `kq games …`; the short ones stand in `kqlib/command/main.py`.

In:  a module a command, NAME.py or NAME/, listed in `ROOMS`. Its docstring's first line is what `kq --help` says of it;
     `arguments(parser)` says what can be typed, `run(args)` does it and returns 0 (well), 1 (a plain no) or 2 (an error).
Out: the same for all of them: mistyped words are named with a near one, errors are one line, `--json` is for programs.
A module imports its rooms inside its functions, so that `kq --help` stays instant.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Protocol, cast

ROOMS = ("games", "queue", "virtual", "pipeline", "metrics")


class Command(Protocol):
    """A module of this package, as `kq` uses it."""

    __name__: str
    __doc__: str | None

    def arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def rooms() -> dict[str, Command]:
    """Every command with a room of its own, by its name, in the order of `kq --help`."""
    return {name: cast(Command, import_module(f"{__name__}.{name}")) for name in ROOMS}


def near(word: str, words: Iterable[str]) -> str:
    """The end of a sentence about a mistyped word: which one was meant."""
    found = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean {found[0]}?" if found else ""
