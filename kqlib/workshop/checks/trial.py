"""An answer on trial: it is called as its exercise says, within its time.

In:  an `Exercise` and a reader's function. Out: what held, and one sentence about the first thing that did not.
An answer runs in a thread of its own, so that one that never returns costs its time limit and not the notebook.
"""

from __future__ import annotations

import copy
import ctypes
import dis
import functools
import inspect
import threading
import traceback
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.checks.exercise import Case, Exercise, Tried
from kqlib.workshop.checks.values import clean, same, shown

STUB = {"LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}  # what a function without a statement does


@dataclass
class _Seen:
    """The answer's last call: what it was, how it ended ("" while it runs), the exception that it raised, its case's hint."""

    call: str = ""
    end: str = ""
    raised: BaseException | None = None
    hint: str = ""


class Trial(NamedTuple):
    """What held, a sentence about the first thing that did not ("" when everything did), and that thing."""

    held: list[Tried]
    trouble: str
    failed: Tried | None = None
    empty: bool = False  # the function has no statement: there is no answer yet


class _FaultError(Exception):
    """What is wrong with an answer, as a sentence."""


def outcome(exercise: Exercise, answer: Any) -> Trial:
    """Try an answer."""
    if not callable(answer):
        here = f'kq.check("{exercise.id}", answer)'
        got = f"{shown(answer)} ({type(answer).__name__})"
        return Trial([], f"kq.check wants the function itself, as in {here}; this is {got}")
    if exercise.task and is_stub(answer):
        return Trial([], "answer has no code yet", empty=True)
    held: list[Tried] = []
    failed: list[Tried] = []
    seen = _Seen()
    probe = exercise.probe or functools.partial(_cases, exercise.cases, seen)

    def trouble() -> str:
        try:
            # A class stays itself, so that a probe can subclass or pickle it.
            for tried in probe(answer if isinstance(answer, type) else _watched(answer, seen)):
                if not same(tried.got, tried.expected):
                    failed.append(tried)
                    return _unlike(tried)
                held.append(tried)
        except _FaultError as fault:
            return str(fault)
        except BaseException as error:  # an answer may call sys.exit(); it must not end the thread in silence
            if seen.hint and error is seen.raised and not isinstance(error, NotImplementedError):
                failed.append(Tried(seen.call, error, None, hint=seen.hint))
            return _failed(seen, error)
        return "" if held else "the check tried nothing"

    found = _within(exercise.seconds * PATIENCE, trouble, seen)
    return Trial(held, found, failed[0] if failed else None)


def is_stub(answer: Callable[..., Any]) -> bool:
    """Has the function no statement?"""
    code = getattr(answer, "__code__", None)
    if code is None:
        return False
    steps = [each for each in dis.get_instructions(code) if each.opname != "RESUME"]
    return all(each.opname in STUB and each.argval is None for each in steps)


def _cases(cases: Sequence[Case], seen: _Seen, answer: Callable[..., Any]) -> Iterator[Tried]:
    """The probe of an exercise with cases."""
    for case in cases:
        seen.hint = case.hint
        given = copy.deepcopy(case.args)
        comparable = given == case.args  # values without == differ from their own copy
        got = answer(*given)
        if comparable and given != case.args:
            old, new = next((old, new) for old, new in zip(case.args, given, strict=True) if old != new)
            became = f"{shown(old)} became {shown(new)}"
            raise _FaultError(
                f"{_call(case.args)} changed what it was given: {became}. Leave it as it is and return a new one"
            )
        yield Tried(_call(case.args), got, case.expected, case.why, case.hint)


def _watched(answer: Callable[..., Any], seen: _Seen) -> Callable[..., Any]:
    """The answer, noting each of its calls."""

    @functools.wraps(answer)
    def call(*args: Any, **named: Any) -> Any:
        seen.call, seen.end, seen.raised = _call(args, named), "", None
        _fits(answer, args, named, seen.call)
        try:
            got = answer(*args, **named)
        except BaseException as error:
            seen.end, seen.raised = f"raised {_error(error)}{_line(answer, error)}", error
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
        raise _FaultError(f"the check calls {call}, and yours is answer{clean(str, signature)}") from None


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
    if done.wait(PATIENCE):
        return f"{late} was not done after {seconds:g} s and was stopped. Is there a loop that never ends?"
    return f"{late} was not done after {seconds:g} s and cannot be stopped: restart the kernel before you go on"


def _end(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread: that ends a loop in Python, not a wait in compiled code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))


# --- what a trial says ----------------------------------------------------------------------------------------------


def _unlike(tried: Tried) -> str:
    """What was tried, what came out, what should have, and why that matters."""
    if form := _form(tried.got, tried.expected):
        return f"{tried.what} gave the right values in the wrong {form}: {shown(tried.got)}"
    got, expected, kinds = shown(tried.got), shown(tried.expected), {type(tried.got), type(tried.expected)}
    if tried.got is not None and len(kinds) > 1 and not kinds <= {list, tuple}:
        got, expected = f"{got} ({type(tried.got).__name__})", f"{expected} ({type(tried.expected).__name__})"
    where = _parting(tried.got, tried.expected) if "…" in got + expected else ""
    why = f" ({tried.why})" if tried.why else ""
    return f"{tried.what} gave {got}, expected {expected}{where}{why}"


def _form(got: Any, expected: Any) -> str:
    """'form (a set, not a list)' or 'order', if only that is wrong; else ''."""
    if not isinstance(expected, list | tuple) or isinstance(got, str | bytes | dict) or not isinstance(got, Collection):
        return ""
    if sorted(map(shown, got)) != sorted(map(shown, expected)):
        return ""
    known = isinstance(got, list | tuple)
    return "order" if known else f"form (a {type(got).__name__}, not a {type(expected).__name__})"


def _line(answer: Callable[..., Any], error: BaseException) -> str:
    """', in line 3: return ends[0]': the last line of the answer's own code that the error came through."""
    code = getattr(answer, "__code__", None)
    if code is None:
        return ""
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == code.co_filename]
    if not found or not found[-1].line:
        return ""
    return f", in line {(found[-1].lineno or 0) - code.co_firstlineno + 1}: {found[-1].line}"


def _parting(got: Any, expected: Any) -> str:
    """Where two long values part: their shortened texts may look alike."""
    if isinstance(got, dict) and isinstance(expected, dict):
        key = next(
            key
            for key in (*expected, *got)
            if key not in got or key not in expected or not same(got[key], expected[key])
        )
        if key in got and key in expected:
            return f"; at key {shown(key)}: {shown(got[key])}, not {shown(expected[key])}"
        return f"; the key {shown(key)} is {'too much' if key in got else 'missing'}"
    if not isinstance(got, list | tuple | str | bytes) or not isinstance(expected, list | tuple | str | bytes):
        return ""
    for at, (mine, theirs) in enumerate(zip(got, expected, strict=False)):
        if not same(mine, theirs):
            return f"; at position {at:,}: {shown(mine)}, not {shown(theirs)}"
    return f"; {len(got):,} long, not {len(expected):,}"


def _call(args: tuple[Any, ...], named: Mapping[str, Any] = types.MappingProxyType({})) -> str:
    return f"answer({', '.join([*map(shown, args), *(f'{name}={shown(value)}' for name, value in named.items())])})"


def _error(error: BaseException) -> str:
    text = clean(str, error)
    cut = text if len(text) <= 300 else f"{text[:300]}… {len(text) - 300:,} more characters"
    return type(error).__name__ + (f": {cut}" if cut else "")
