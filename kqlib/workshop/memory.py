"""What a reader did so far, remembered on this machine: exercises passed, guesses, minutes.

In:  a change to make. Out: progress.json below `places.state()`, as {"passed": {"01.1": "2026-11-21"}, "guesses": {"02.acks": "some"},
"minutes": {"02": 41.5}}; an empty part is left out. A check must not fail because of its memory: what goes wrong becomes a notice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from kqlib.runtime import places

BROKEN = (ValueError, TypeError, KeyError, RecursionError)  # what reading a file that is no progress raises


@dataclass
class Memory:
    """Exercises with the day of the first pass, guesses by prediction, minutes by the notebook's number."""

    passed: dict[str, str] = field(default_factory=dict)
    guesses: dict[str, str] = field(default_factory=dict)
    minutes: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """What is written to a file."""
        parts: dict[str, dict[str, Any]] = {"guesses": self.guesses, "minutes": self.minutes}
        sorted_parts = {name: dict(sorted(part.items())) for name, part in parts.items() if part}
        return {"passed": dict(sorted(self.passed.items())), **sorted_parts}


def parsed(found: Any) -> Memory:
    """A memory as it was read from a file; one of `BROKEN` if it is none."""
    parts = (found["passed"], found.get("guesses", {}), found.get("minutes", {}))
    for part, kind in zip(parts, (str, str, int | float), strict=True):
        if not isinstance(part, dict) or not all(isinstance(value, kind) for value in part.values()):
            raise ValueError("not a table of days, guesses or minutes")
    return Memory(*parts)


def read() -> tuple[Memory, list[str]]:
    """What is remembered, and a notice if it could not be read."""
    try:
        with _locked():
            return _read()
    except OSError as error:
        return Memory(), [f"note: what was done before could not be read ({error.strerror})"]


def change(edit: Callable[[Memory], object]) -> list[str]:
    """Change what is remembered. Returns a notice if that failed."""
    try:
        with _locked():
            memory, note = _read()
            before = json.dumps(memory.as_dict())
            edit(memory)
            if json.dumps(memory.as_dict()) != before:
                text = json.dumps(memory.as_dict(), indent=1, ensure_ascii=False)
                places.write_atomic(places.state() / "progress.json", text + "\n")
        return note
    except OSError as error:
        return [f"note: this could not be remembered ({error.strerror})"]


def _read() -> tuple[Memory, list[str]]:
    """What the file holds; one that cannot be read is kept under another name, and a notice says so."""
    path = places.state() / "progress.json"
    try:
        return parsed(json.loads(path.read_text(encoding="utf-8"))), []
    except FileNotFoundError:
        return Memory(), []
    except BROKEN:
        os.replace(path, path.with_name("progress.broken.json"))
        return Memory(), ["note: progress.json could not be read; it is now progress.broken.json, and a new one begins"]


def _locked() -> IO[str]:
    """One process at a time: several notebooks may pass a check at once."""
    return places.locked(places.state() / "progress.lock")
