"""What was passed so far: remembered on this machine, shown as a table.

In:  the id of an exercise that was passed; for a table of several people, the files that `kq progress --json` made.
Out: an entry in progress.json below `places.state()`, as {"passed": {"01.1": "2026-11-21"}}; a `Progress`.
A check must not fail because of its memory: what goes wrong here becomes a notice.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop.checks.exercise import load, solution_files
from kqlib.workshop.view.picture import aligned

BROKEN = (ValueError, TypeError, KeyError, RecursionError)  # what reading a file that is no progress raises
Days = dict[str, str]  # {'01.1': the day of the first pass}


@dataclass(frozen=True, repr=False)
class Progress:
    """Who passed which exercises, as a table by notebook."""

    exercises: dict[str, tuple[str, ...]]  # '01-topics': ('01.1', '01.2')
    people: tuple[tuple[str, Days], ...]
    alone: bool = True  # this machine's user, whose name no stored notebook should show
    note: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = [["notebook", *(["passed"] if self.alone else [name for name, _ in self.people])]]
        every = tuple(which for ids in self.exercises.values() for which in ids)
        for notebook, ids in [*self.exercises.items(), ("all", every)]:
            done = [sum(which in passed for which in ids) for _, passed in self.people]
            rows.append([notebook, *(f"{n}/{len(ids)}{' ✓' if 0 < n == len(ids) else ''}" for n in done)])
        return "\n".join([*aligned(rows), *self.note])

    def as_json(self) -> str:
        """The same as JSON: what `kq progress --json` prints and `progress(files=[…])` reads."""
        people = [{"user": name, "passed": dict(sorted(passed.items()))} for name, passed in self.people]
        return json.dumps({"people": people}, indent=1, ensure_ascii=False)


def progress(files: Iterable[str | Path] | None = None) -> Progress:
    """What was passed on this machine, by notebook; or in several people's JSON files, a column a person."""
    exercises = {path.stem.replace("_", "-"): tuple(each.id for each in load(path)) for path in solution_files()}
    if files is not None:
        return Progress(exercises, _people(map(Path, files)), alone=False)
    try:
        with _locked():
            passed, note = _passed()
    except OSError as error:
        passed, note = {}, [f"note: what was passed before could not be read ({error.strerror})"]
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = "unnamed"
    return Progress(exercises, ((user, passed),), note=tuple(note))


def _people(files: Iterable[Path]) -> tuple[tuple[str, Days], ...]:
    """The people of these files; two of one name (in containers all have one) get their file's name as well."""
    found: list[tuple[str, str, Days]] = []
    for path in files:
        try:
            for person in json.loads(path.read_text(encoding="utf-8"))["people"]:
                found.append((" ".join(str(person["user"]).split()), path.stem, _days(person["passed"])))
        except (OSError, *BROKEN) as error:
            why = f"{path.name} is not what `kq progress --json` prints ({type(error).__name__})"
            raise NotAllowed(f"{why}; nothing was merged.") from None
    names = Counter(name for name, _, _ in found)
    return tuple((name if names[name] == 1 else f"{name} ({stem})", passed) for name, stem, passed in found)


def remember(which: str) -> list[str]:
    """Note a pass, with the day of the first one. Returns a notice if that failed."""
    try:
        with _locked():
            passed, note = _passed()
            if which not in passed:
                text = json.dumps({"passed": passed | {which: date.today().isoformat()}}, indent=1)
                places.write_atomic(places.state() / "progress.json", text + "\n")
        return note
    except OSError as error:
        return [f"note: this pass could not be remembered ({error.strerror})"]


def _passed() -> tuple[Days, list[str]]:
    """What was passed on this machine; a file that cannot be read is kept under another name, and a notice says so."""
    path = places.state() / "progress.json"
    try:
        return _days(json.loads(path.read_text(encoding="utf-8"))["passed"]), []
    except FileNotFoundError:
        return {}, []
    except BROKEN:
        os.replace(path, path.with_name("progress.broken.json"))
        return {}, ["note: progress.json could not be read; it is now progress.broken.json, and a new one begins"]


def _days(passed: Any) -> Days:
    """Days by exercise, as they were read from a file."""
    if not isinstance(passed, dict) or not all(isinstance(day, str) for day in passed.values()):
        raise ValueError("not a table of days by exercise")
    return passed


@contextmanager
def _locked() -> Iterator[None]:
    """One process at a time: several notebooks may pass a check at once."""
    with open(places.state() / "progress.lock", "a") as lock:  # closing it unlocks
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
