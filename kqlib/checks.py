"""Exercises that check themselves, what was passed so far, and library code to look at.

In: the `Exercise` values in `notebooks/solutions/NN_name.py` (question, cases, hints, wrong answers and solution of one
exercise stand together) and a reader's function. Out: texts that are the same on every run, since notebooks store them.

    EX = Exercise(id="01.1", ask="How many topics?", cases=[Case((["a", "b"],), 2)], hints=("…",), solution=len)
    check("01.1", answer) · hint("01.1", 2) · solution("01.1") · progress() · source(check)

A pass is remembered in progress.json below `places.state()`, as {"passed": {"01.1": "2026-11-21"}}.
An answer runs in a thread of its own, so that one that never returns costs its time limit and not the notebook.
"""

from __future__ import annotations

import ast
import copy
import ctypes
import fcntl
import functools
import getpass
import inspect
import itertools
import json
import linecache
import math
import os
import re
import runpy
import sys
import textwrap
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from kqlib import places
from kqlib.errors import NotAllowed

# --- an exercise, as its author writes it ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One call of the answer: its arguments (a tuple of plain values), what it should return, and what that proves."""

    args: tuple[Any, ...]
    expected: Any
    why: str = ""

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


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A question that checks its answer: by cases, or by a probe that takes the answer and yields what it tried."""

    id: str
    ask: str
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
    mine = [path for path in _files() if path.name[:2] == str(which)[:2]]  # another notebook's broken file is no matter
    for exercise in itertools.chain.from_iterable(map(load, mine)):
        if exercise.id == which:
            return exercise
    there = ", ".join(exercise.id for path in _files() for exercise in load(path))
    raise NotAllowed(f"There is no exercise {shown(which)}. There are: {there or 'none'}.")


def _files() -> list[Path]:
    if (repo := places.repo()) is None:
        raise NotAllowed("The exercises are in notebooks/solutions of the checkout: start Jupyter or kq inside of it.")
    return sorted((repo / "notebooks" / "solutions").glob("[0-9][0-9]_*.py"))


# --- what a reader calls --------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Said:
    """A text to read in a notebook: its repr is the text itself."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class Verdict(Said):
    """What a check found; true when the answer passed."""

    passed: bool

    def __bool__(self) -> bool:
        return self.passed


def check(which: str, answer: Callable[..., Any]) -> Verdict:
    """Try an answer: `kq.check("01.1", answer)`. Says what was tried, what came out and a hint; remembers a pass."""
    exercise = find(which)
    held, trouble = _try(exercise, answer)
    if trouble:
        hints = [f"hint: {exercise.hints[0]}"] if exercise.hints else []
        return Verdict("\n".join([f"✗ not yet: {trouble}", *hints, _more(exercise, 2)]), passed=False)
    proven = "; ".join(dict.fromkeys(tried.why for tried in held if tried.why)) or exercise.ask
    note = _remember(which)
    return Verdict("\n".join([f"✓ {which}: {len(held)} of {len(held)}", proven, *note]), passed=True)


def hint(which: str, number: int = 1) -> Said:
    """A nudge, the first or a later one: `kq.hint("01.1", 2)`."""
    exercise = find(which)
    if 1 <= number <= len(exercise.hints):
        nudge = f"hint {number} of {len(exercise.hints)}: {exercise.hints[number - 1]}"
        return Said(f"{nudge}\n{_more(exercise, number + 1)}")
    return Said(f"There is no hint {number}: {which} has {len(exercise.hints)}.\nmore: {_solution(which)}")


def solution(which: str) -> Source:
    """One way to solve it, as code: `kq.solution("01.1")`."""
    return source(find(which).solution)


def _more(exercise: Exercise, number: int) -> str:
    """The last line of a failed check and of a hint: where to go from here."""
    nudge = f'kq.hint("{exercise.id}", {number}), ' if number <= len(exercise.hints) else ""
    return f"more: {nudge}{_solution(exercise.id)}"


def _solution(which: str) -> str:
    return f'kq.solution("{which}")'


# --- trying an answer -----------------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """The answer's last call: what it was, how it ended ("" while it runs), and the exception that it raised."""

    call: str = ""
    end: str = ""
    raised: BaseException | None = None


class _FaultError(Exception):
    """What is wrong with an answer, as a sentence."""


def _try(exercise: Exercise, answer: Any) -> tuple[list[Tried], str]:
    """What held, and a sentence about the first thing that did not ("" when everything did)."""
    if not callable(answer):
        here = f'kq.check("{exercise.id}", answer)'
        return [], f"kq.check wants the function itself, as in {here}; this is {shown(answer)} ({_kind(answer)})"
    held: list[Tried] = []
    seen = _Seen()
    probe = exercise.probe or functools.partial(_cases, exercise.cases)

    def trouble() -> str:
        try:
            # A class stays itself, so that a probe can subclass or pickle it.
            for tried in probe(answer if isinstance(answer, type) else _watched(answer, seen)):
                if not same(tried.got, tried.expected):
                    return _unlike(tried)
                held.append(tried)
        except _FaultError as fault:
            return str(fault)
        except BaseException as error:  # an answer may call sys.exit(); it must not end the thread in silence
            return _failed(seen, error)
        return "" if held else "the check tried nothing"

    return held, _within(exercise.seconds, trouble, seen)


def _cases(cases: Sequence[Case], answer: Callable[..., Any]) -> Iterator[Tried]:
    """The probe of an exercise that is told by cases."""
    for case in cases:
        given = copy.deepcopy(case.args)
        comparable = given == case.args  # values without == differ from their own copy
        got = answer(*given)
        if comparable and given != case.args:
            old, new = next((old, new) for old, new in zip(case.args, given, strict=True) if old != new)
            became = f"{shown(old)} became {shown(new)}"
            raise _FaultError(
                f"{_call(case.args)} changed what it was given: {became}. Leave it as it is and return a new one"
            )
        yield Tried(_call(case.args), got, case.expected, case.why)


def _watched(answer: Callable[..., Any], seen: _Seen) -> Callable[..., Any]:
    """The answer, noting each of its calls."""

    @functools.wraps(answer)
    def call(*args: Any, **named: Any) -> Any:
        seen.call, seen.end, seen.raised = _call(args, named), "", None
        _fits(answer, args, named, seen.call)
        try:
            got = answer(*args, **named)
        except BaseException as error:
            seen.end, seen.raised = f"raised {_error(error)}", error
            raise
        seen.end = f"gave {shown(got)}"
        return got

    return call


def _fits(answer: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], call: str) -> None:
    try:
        signature = inspect.signature(answer)
    except (TypeError, ValueError):  # compiled functions need not have one
        return
    try:
        signature.bind(*args, **named)
    except TypeError:
        raise _FaultError(f"the check calls {call}, and yours is answer{_clean(str, signature)}") from None


def _failed(seen: _Seen, error: BaseException) -> str:
    if error is seen.raised:
        return f"{seen.call} {'is still to be written' if isinstance(error, NotImplementedError) else seen.end}"
    before = f"{seen.call} {seen.end}, and " if seen.end else ""  # the answer returned; then its probe failed
    return f"{before}the check could not go on: {_error(error)}"


def _within(seconds: float, work: Callable[[], str], seen: _Seen) -> str:
    """What the work returns, or a sentence that it took too long."""
    out: list[str] = []
    done = threading.Event()  # not thread.join(): interrupted, it takes a running thread for an ended one (Python 3.11)

    def run() -> None:
        try:
            out.append(work())
        finally:
            done.set()

    thread = threading.Thread(target=run, name="kq.check", daemon=True)
    late = ""
    try:
        thread.start()
        done.wait(seconds)
    finally:  # also when the stop button raised KeyboardInterrupt here
        if not done.is_set():
            late = seen.call if seen.call and not seen.end else "the check"
            _end(thread)
    if not late:
        return out[0]
    if done.wait(1):
        return f"{late} was not done after {seconds:g} s and was stopped. Is there a loop that never ends?"
    return f"{late} was not done after {seconds:g} s and cannot be stopped: restart the kernel before you go on"


def _end(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread: that ends a loop in Python, not a wait in compiled code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))


# --- comparing and showing values -----------------------------------------------------------------------------------


def same(got: Any, expected: Any) -> bool:
    """Whether a value counts as right: a tuple may be a list, but True is not 1, '3' is not 3, and 3.0 is not 3."""
    got = got.item() if getattr(got, "shape", None) == () else got  # numpy's own numbers are numbers
    if isinstance(got, bool) or isinstance(expected, bool) or (isinstance(got, float) and isinstance(expected, int)):
        return type(got) is type(expected) and got == expected
    if isinstance(expected, float):
        return isinstance(got, int | float) and math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(got, list | tuple) and isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(got, dict) and isinstance(expected, dict):
        return got.keys() == expected.keys() and all(same(got[key], expected[key]) for key in expected)
    with suppress(Exception):  # an array answers == with an array: then it is not what was expected
        return bool(got == expected)
    return False


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def shown(value: Any, room: int = 70) -> str:
    """A value as a text that is the same on every run and fits; what is left out is counted."""
    if isinstance(value, str | bytes):
        kept = value[:room]
        unit = "characters" if isinstance(value, str) else "bytes"
        return repr(value) if kept == value else f"{kept!r}… {len(value) - room:,} more {unit}"
    if type(value) in _BRACKETS:
        return _shown_items(value, room)
    text = _clean(repr, value)
    return text if len(text) <= room else f"{text[:room]}… {len(text) - room:,} more characters"


def _shown_items(value: Any, room: int) -> str:
    """A list, tuple, set or dict: as many items as fit, and how many more there are."""
    if room < 16:
        return "…"  # nested too deep, or in itself
    if isinstance(value, dict):
        texts: Iterable[str] = (f"{shown(key, room - 8)}: {shown(item, room - 8)}" for key, item in value.items())
    else:
        texts = (shown(item, room - 8) for item in value)
    if isinstance(value, set | frozenset):
        texts = sorted(texts)  # a set of strings has another order in every process
    parts: list[str] = []
    for text in texts:
        if parts and len(", ".join(parts)) + len(text) > room:
            parts.append(f"… {len(value) - len(parts):,} more")
            break
        parts.append(text)
    left, right = _BRACKETS[type(value)]
    inside = ", ".join(parts) + ("," if type(value) is tuple and len(value) == 1 else "")
    return f"{left}{inside}{right}" if value else repr(value)


def _unlike(tried: Tried) -> str:
    """What was tried, what came out, what should have, and why that matters."""
    got, expected, kinds = shown(tried.got), shown(tried.expected), {type(tried.got), type(tried.expected)}
    if tried.got is not None and len(kinds) > 1 and not kinds <= {list, tuple}:
        got, expected = f"{got} ({_kind(tried.got)})", f"{expected} ({_kind(tried.expected)})"
    where = _parting(tried.got, tried.expected) if "…" in got + expected else ""
    why = f" ({tried.why})" if tried.why else ""
    return f"{tried.what} gave {got}, expected {expected}{where}{why}"


def _parting(got: Any, expected: Any) -> str:
    """Where two long values part: their shortened texts may look alike."""
    if isinstance(got, dict) and isinstance(expected, dict):
        for key in [key for key in (*expected, *got) if key not in got or key not in expected]:
            return f"; the key {shown(key)} is {'too much' if key in got else 'missing'}"
        key = next(key for key in expected if not same(got[key], expected[key]))
        return f"; at key {shown(key)}: {shown(got[key])}, not {shown(expected[key])}"
    if not isinstance(got, list | tuple | str | bytes) or not isinstance(expected, list | tuple | str | bytes):
        return ""
    for at, (mine, theirs) in enumerate(zip(got, expected, strict=False)):
        if not same(mine, theirs):
            return f"; at position {at:,}: {shown(mine)}, not {shown(theirs)}"
    return f"; {len(got):,} long, not {len(expected):,}"


def _call(args: tuple[Any, ...], named: Mapping[str, Any] = types.MappingProxyType({})) -> str:
    return f"answer({', '.join([*map(shown, args), *(f'{name}={shown(value)}' for name, value in named.items())])})"


def _error(error: BaseException) -> str:
    text = _clean(str, error)
    cut = text if len(text) <= 300 else f"{text[:300]}… {len(text) - 300:,} more characters"
    return type(error).__name__ + (f": {cut}" if cut else "")


def _kind(value: Any) -> str:
    return type(value).__name__


def _clean(make: Callable[[Any], str], value: Any) -> str:
    """A value's repr or str on one line and without addresses, which change with every run."""
    try:
        text = make(value)
    except Exception as error:
        return f"<{_kind(value)} whose {make.__name__} raised {_kind(error)}>"
    return " ".join(re.sub(r"0x[0-9a-fA-F]{9,}", "0x…", re.sub(r" at 0x[0-9a-fA-F]+", "", text)).split())


# --- who is where ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Progress:
    """Who passed which exercises, as a table by notebook."""

    exercises: dict[str, tuple[str, ...]]  # '01-topics': ('01.1', '01.2')
    people: tuple[tuple[str, dict[str, str]], ...]  # ('ana', {'01.1': the day she passed it})
    alone: bool = True  # this machine's user, whose name no stored notebook should show
    note: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = [("notebook", *(("passed",) if self.alone else (name for name, _ in self.people)))]
        for notebook, ids in [*self.exercises.items(), ("all", tuple(itertools.chain(*self.exercises.values())))]:
            done = [sum(which in passed for which in ids) for _, passed in self.people]
            rows.append((notebook, *(f"{n}/{len(ids)}{' ✓' if 0 < n == len(ids) else ''}" for n in done)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, *self.note])

    def as_json(self) -> str:
        """The same as JSON: what `kq progress --json` prints and `progress(files=[…])` reads."""
        people = [{"user": name, "passed": dict(sorted(passed.items()))} for name, passed in self.people]
        return json.dumps({"people": people}, indent=1, ensure_ascii=False)


def progress(files: Iterable[str | Path] | None = None) -> Progress:
    """What was passed on this machine, by notebook; or in several people's JSON files, a column a person."""
    exercises = {path.stem.replace("_", "-"): tuple(exercise.id for exercise in load(path)) for path in _files()}
    if files is not None:
        return Progress(exercises, _people(map(Path, files)), alone=False)
    try:
        with _locked():
            passed, note = _passed()
    except OSError as error:
        passed, note = {}, [f"note: what was passed before could not be read ({error.strerror})"]
    return Progress(exercises, ((_user(), passed),), note=tuple(note))


def _people(files: Iterable[Path]) -> tuple[tuple[str, dict[str, str]], ...]:
    found: list[tuple[str, Path, dict[str, str]]] = []
    for path in files:
        try:
            for person in json.loads(path.read_text(encoding="utf-8"))["people"]:
                found.append((" ".join(str(person["user"]).split()), path, _days(person["passed"])))
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            why = f"{path.name} is not what `kq progress --json` prints ({_kind(error)})"
            raise NotAllowed(f"{why}; nothing was merged.") from None
    names = Counter(name for name, _, _ in found)  # in containers everybody is called the same
    return tuple((name if names[name] == 1 else f"{name} ({path.stem})", passed) for name, path, passed in found)


def _remember(which: str) -> list[str]:
    """Note a pass, with the day of the first one; a list with a notice when that went wrong, since it must not fail."""
    try:
        with _locked():
            passed, note = _passed()
            if which not in passed:
                text = json.dumps({"passed": passed | {which: date.today().isoformat()}}, indent=1)
                places.write_atomic(places.state() / "progress.json", text + "\n")
        return note
    except OSError as error:
        return [f"note: this pass could not be remembered ({error.strerror})"]


def _passed() -> tuple[dict[str, str], list[str]]:
    """What was passed on this machine; a file that cannot be read is kept under another name, and a notice says so."""
    path = places.state() / "progress.json"
    try:
        return _days(json.loads(path.read_text(encoding="utf-8"))["passed"]), []
    except FileNotFoundError:
        return {}, []
    except (ValueError, TypeError, KeyError, RecursionError):
        aside = next(to for n in itertools.count(1) if not (to := path.with_name(f"progress.broken-{n}.json")).exists())
        os.replace(path, aside)
        return {}, [f"note: progress.json could not be read; it is now {aside.name}, and a new one begins"]


def _days(passed: Any) -> dict[str, str]:
    if not isinstance(passed, dict) or not all(isinstance(day, str) for day in passed.values()):
        raise ValueError("not a table of days by exercise")
    return passed


@contextmanager
def _locked() -> Iterator[None]:
    """One process at a time: several notebooks may pass a check at once."""
    with open(places.state() / "progress.lock", "a") as lock:  # closing it unlocks
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unnamed"


# --- code to look at ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Source(Said):
    """Code: plain text in a terminal, highlighted wherever markdown is."""

    def _repr_markdown_(self) -> str:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", self.text)), default=0))
        return f"{fence}python\n{self.text}\n{fence}"


def source(obj: Any) -> Source:
    """The code of a function, class, method, property or module, as it is on this machine."""
    bare = _bare(obj)
    name = getattr(bare, "__qualname__", None) or getattr(bare, "__name__", None)
    if not isinstance(name, str):
        raise NotAllowed(f"kq.source shows functions, classes, methods, properties and modules; this is {shown(obj)}.")
    try:
        text = inspect.getsource(bare)
    except (OSError, TypeError):
        text = _class_text(bare) if isinstance(bare, type) else ""
        if not text:
            why = "it is compiled, built in or made on the fly"
            raise NotAllowed(f"{name} has no Python source to show: {why}. help({name}) tells about it.") from None
    return Source(f"# {_whereabouts(bare, name)}\n{textwrap.dedent(text).strip()}")


def _bare(obj: Any) -> Any:
    """What a property or partial holds; `inspect` itself looks through methods and decorators."""
    if isinstance(obj, property):
        return obj.fget
    return obj.func if isinstance(obj, functools.cached_property | functools.partial) else obj


def _whereabouts(bare: Any, name: str) -> str:
    """'kqlib/topics.py · check_name': by the module's name, since a path would tell about this machine."""
    module = bare.__name__ if inspect.ismodule(bare) else bare.__module__
    if module == "__main__":
        return f"this notebook · {name}"
    package = hasattr(sys.modules.get(module), "__path__")
    file = module.replace(".", "/") + ("/__init__.py" if package else ".py")
    return file if inspect.ismodule(bare) else f"{file} · {name}"


def _class_text(bare: type) -> str:
    """A class's text from where inspect does not look: the file of its methods, or the notebook's cells; else ''."""
    files = [member.__code__.co_filename for member in vars(bare).values() if inspect.isfunction(member)]
    cells = getattr(sys.modules["__main__"], "In", []) if bare.__module__ == "__main__" else []
    for text in ["".join(linecache.getlines(file)) for file in files] + cells[::-1]:
        with suppress(SyntaxError):  # a cell with a %magic
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef) and node.name == bare.__name__:
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return ""
