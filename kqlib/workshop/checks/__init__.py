"""Exercises that check themselves, what was passed so far, and library code to look at.

In:  the `Exercise` values in `notebooks/solutions/NN_name.py` (question, cases, hints, wrong answers and solution of one
exercise stand together) and a reader's function. Out: texts that are the same on every run, since notebooks store them.

    check("01.1", answer) · hint("01.1", 2) · solution("01.1") · predict("02.acks", "none", "some") · predicted()
    progress() · source(check)

`exercise.py` is what an author writes, `trial.py` calls an answer, `values.py` compares and shows what it gave,
`broker.py` is the Kafka that answers run against, `code.py` shows code. `predictions.py` asks for a guess, and `progress_table.py`
shows what was done. Here is what a reader calls.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kqlib.workshop.checks.code import Source, Text, source as source
from kqlib.workshop.checks.exercise import (
    Case as Case,
    Exercise as Exercise,
    Tried as Tried,
    find as find,
    load as load,
)
from kqlib.workshop.checks.predictions import predict as predict, predicted as predicted
from kqlib.workshop.checks.progress_table import progress as progress, remember
from kqlib.workshop.checks.trial import Trial, outcome
from kqlib.workshop.checks.values import same


@dataclass(frozen=True, repr=False)
class Verdict(Text):
    """What a check found; true when the answer passed."""

    passed: bool

    def __bool__(self) -> bool:
        return self.passed


def check(which: str, answer: Callable[..., Any]) -> Verdict:
    """Try an answer: `kq.check("01.1", answer)`. Says what was tried, what came out and a hint; remembers a pass."""
    exercise = find(which)
    trial = outcome(exercise, answer)
    if trial.trouble:
        return Verdict("\n".join(_not_yet(exercise, trial)), passed=False)
    held = trial.held
    proven = "; ".join(dict.fromkeys(tried.why for tried in held if tried.why)) or exercise.ask
    note = remember(which)
    return Verdict("\n".join([f"✓ {which}: {len(held)} of {len(held)}", proven, *note]), passed=True)


def _not_yet(exercise: Exercise, trial: Trial) -> list[str]:
    """What a failed check says: without an answer the task and a first hint, else what failed and a hint for that."""
    hints = list(exercise.hints[:1])
    lines = [f"✗ not yet: {trial.trouble}"]
    if trial.empty:
        lines.append(f"task: {exercise.task}")
    else:
        hints = _hint_for(exercise, trial) or hints
    return [*lines, *(f"hint: {each}" for each in hints), _more(exercise, 2)]


def _hint_for(exercise: Exercise, trial: Trial) -> list[str]:
    """The hint of the typical mistake that gives the same as this answer, else that of the case."""
    if trial.failed is None:
        return []
    tried = [*trial.held, trial.failed]
    raised = isinstance(trial.failed.got, BaseException)  # no mistake gives that
    for mistake in exercise.wrong if exercise.cases and not raised else ():
        given = [copy.deepcopy(case.args) for case in exercise.cases[: len(tried)]]
        if mistake.__doc__ and all(same(mistake(*args), one.got) for args, one in zip(given, tried, strict=True)):
            return [mistake.__doc__]
    return [trial.failed.hint] if trial.failed.hint else []


def hint(which: str, number: int = 1) -> Text:
    """A nudge, the first or a later one: `kq.hint("01.1", 2)`."""
    exercise = find(which)
    if 1 <= number <= len(exercise.hints):
        nudge = f"hint {number} of {len(exercise.hints)}: {exercise.hints[number - 1]}"
        return Text(f"{nudge}\n{_more(exercise, number + 1)}")
    return Text(f"There is no hint {number}: {which} has {len(exercise.hints)}.\nmore: {_solution(which)}")


def solution(which: str) -> Source:
    """One way to solve it, as code: `kq.solution("01.1")`."""
    return source(find(which).solution)


def _more(exercise: Exercise, number: int) -> str:
    """The last line of a failed check and of a hint: where to go from here."""
    nudge = f'kq.hint("{exercise.id}", {number}), ' if number <= len(exercise.hints) else ""
    return f"more: {nudge}{_solution(exercise.id)}"


def _solution(which: str) -> str:
    return f'kq.solution("{which}")'
