"""An exercise as its author writes it, and finding one.

In:  the files `notebooks/solutions/NN_name.py` of the checkout, read anew each time. Out: their `Exercise` values;
`NotAllowed` tells an author what is malformed and a reader which exercises there are.

    EX = Exercise(id="01.1", ask="How many topics?", cases=[Case((["a", "b"],), 2)], hints=("…",), solution=len)
"""

from __future__ import annotations

import itertools
import re
import runpy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.workshop.checks.values import shown


@dataclass(frozen=True)
class Case:
    """One call of the answer: its arguments (a tuple of plain values), what it should return, and what that proves.

    hint: for a reader whose answer fails here.
    """

    args: tuple[Any, ...]
    expected: Any
    why: str = ""
    hint: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.args, tuple):
            raise NotAllowed(f"A Case's arguments are a tuple, as in Case(({shown(self.args)},), …).")


@dataclass(frozen=True)
class Tried:
    """One thing that a probe tried, as in Tried("writing 10 records with answer", got=0, expected=10)."""

    what: str
    got: Any
    expected: Any
    why: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A question that checks its answer: by cases, or by a probe that takes the answer and yields what it tried.

    ask: the rule, shown when the answer passed. task: what to do, shown as long as there is no answer.
    wrong: typical mistakes; the docstring of each is the hint for an answer that gives the same.
    seconds: how long a check may take on a quiet machine; KQ_PATIENCE multiplies it.
    """

    id: str
    ask: str
    task: str = ""
    cases: Sequence[Case] = ()
    probe: Callable[[Any], Iterable[Tried]] | None = None
    hints: tuple[str, ...] = ()
    solution: Callable[..., Any]
    wrong: tuple[Callable[..., Any], ...] = ()
    seconds: float = 20

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d\d\.\d+", self.id):
            raise NotAllowed(f"An exercise's id is notebook.number, as in '01.2', not {self.id!r}.")
        if bool(self.cases) == bool(self.probe):
            raise NotAllowed(f"Exercise {self.id} has cases or a probe: one of the two.")


def load(path: Path) -> tuple[Exercise, ...]:
    """The exercises that one solutions file holds, in the order of their numbers."""
    # Read anew each time: an author sees each change at once. The module's name is what `source` shows.
    names = runpy.run_path(str(path), run_name=f"notebooks.solutions.{path.stem}")
    found = [value for value in names.values() if isinstance(value, Exercise)]
    ids = [exercise.id for exercise in found]
    if wrong := [which for which in ids if ids.count(which) > 1 or which[:2] != path.name[:2]]:
        raise NotAllowed(f"{path.name}: exercise {wrong[0]} is there twice or belongs to another notebook's file.")
    return tuple(sorted(found, key=lambda exercise: int(exercise.id[3:])))


def find(which: str) -> Exercise:
    """The exercise of this id; NotAllowed lists those that exist."""
    # Another notebook's broken file is no matter.
    mine = [path for path in solution_files() if path.name[:2] == str(which)[:2]]
    for exercise in itertools.chain.from_iterable(map(load, mine)):
        if exercise.id == which:
            return exercise
    there = ", ".join(exercise.id for path in solution_files() for exercise in load(path))
    raise NotAllowed(f"There is no exercise {shown(which)}. There are: {there or 'none'}.")


def solution_files() -> list[Path]:
    """The files that hold exercises, in the order of the notebooks."""
    if (repo := places.repo()) is None:
        raise NotAllowed("The exercises are in notebooks/solutions of the checkout: start Jupyter or kq inside of it.")
    return sorted((repo / "notebooks" / "solutions").glob("[0-9][0-9]_*.py"))
