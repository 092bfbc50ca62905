"""What was done so far, as a table: exercises passed, predictions made, minutes. For one reader or for a team.

In:  what this machine remembers, or the files that `kq progress --json` made. Out: a `Progress`.
"""

from __future__ import annotations

import getpass
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from kqlib.errors import NotAllowed
from kqlib.workshop import memory
from kqlib.workshop.checks.exercise import load, solution_files
from kqlib.workshop.memory import Memory
from kqlib.workshop.replay import replaying
from kqlib.workshop.view.picture import aligned

PREDICT = re.compile(r"""\bkq\.predict\(\s*["'](\d\d\.[^"']+)["']""")


@dataclass(frozen=True)
class Lesson:
    """What a notebook asks: the ids of its exercises and of its predictions."""

    number: str
    exercises: tuple[str, ...]
    predictions: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Progress:
    """Who did what, as a table by notebook."""

    lessons: dict[str, Lesson]  # by the name of the exercises' file
    people: tuple[tuple[str, Memory], ...]
    alone: bool = True  # this machine's user, whose name no stored notebook should show
    note: tuple[str, ...] = ()

    def __repr__(self) -> str:
        columns = ["exercises", "predictions", "minutes"] if self.alone else [name for name, _ in self.people]
        rows = [["notebook", *columns]]
        parts = {name: [lesson] for name, lesson in self.lessons.items()} | {"all": list(self.lessons.values())}
        for notebook, lessons in parts.items():
            done = [_done(lessons, each) for _, each in self.people]
            rows.append([notebook, *(done[0] if self.alone else [" · ".join(filter(None, shares)) for shares in done])])
        return "\n".join([*aligned(rows), *self.note])

    def as_json(self) -> str:
        """The same as JSON: what `kq progress --json` prints and `progress(files=[…])` reads."""
        people = [{"user": name, **each.as_dict()} for name, each in self.people]
        return json.dumps({"people": people}, indent=1, ensure_ascii=False)


def _done(lessons: list[Lesson], done: Memory) -> list[str]:
    """How many exercises and predictions of these notebooks, and in how many minutes; '' where there are none."""
    exercises = [which for lesson in lessons for which in lesson.exercises]
    predictions = [which for lesson in lessons for which in lesson.predictions]
    minutes = round(sum(done.minutes.get(lesson.number, 0) for lesson in lessons))
    guessed = _share(predictions, done.guesses) if predictions else ""
    return [_share(exercises, done.passed), guessed, f"{minutes} min" if minutes else ""]


def _share(ids: list[str], done: Iterable[str]) -> str:
    count = len(set(ids) & set(done))
    return f"{count}/{len(ids)}{' ✓' if 0 < count == len(ids) else ''}"


def progress(files: Iterable[str | Path] | None = None) -> Progress:
    """What was done on this machine, by notebook; or in several people's JSON files, or folders of them: a column a person."""
    lessons = {path.stem.replace("_", "-"): _lesson(path) for path in solution_files()}
    if files is not None:
        return Progress(lessons, _people(_json_files(map(Path, files))), alone=False)
    done, note = memory.read()
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = "unnamed"
    return Progress(lessons, ((user, done),), note=tuple(note))


def _lesson(solutions: Path) -> Lesson:
    """What is asked in the notebook that has this file of exercises."""
    number = solutions.name[:2]
    exercises = tuple(each.id for each in load(solutions))
    predictions: list[str] = []
    for notebook in solutions.parent.parent.glob(f"{number}-*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        predictions += PREDICT.findall(code)
    return Lesson(number, exercises, tuple(dict.fromkeys(predictions)))


def _json_files(given: Iterable[Path]) -> Iterator[Path]:
    """The files; of a folder, its JSON files."""
    for path in given:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob("*.json"))
        if not inside:
            raise NotAllowed(f"{path.name} has no *.json: put there what each person's `kq progress --json` prints")
        yield from inside


def _people(files: Iterable[Path]) -> tuple[tuple[str, Memory], ...]:
    """The people of these files; two of one name (in containers all have one) get their file's name as well."""
    found: list[tuple[str, str, Memory]] = []
    for path in files:
        try:
            for person in json.loads(path.read_text(encoding="utf-8"))["people"]:
                found.append((" ".join(str(person["user"]).split()), path.stem, memory.parsed(person)))
        except (OSError, AttributeError, *memory.BROKEN) as error:
            because = getattr(error, "strerror", None) or type(error).__name__
            why = f"{path.name} is not what `kq progress --json` prints ({because})"
            raise NotAllowed(f"{why}; nothing was merged.") from None
    names = Counter(name for name, _, _ in found)
    return tuple((name if names[name] == 1 else f"{name} ({stem})", done) for name, stem, done in found)


def remember(which: str) -> list[str]:
    """Note a pass, with the day of the first one. Returns a notice if that failed. A replay runs our answers: it notes none."""
    if replaying:
        return []
    return memory.change(lambda done: done.passed.setdefault(which, date.today().isoformat()))
