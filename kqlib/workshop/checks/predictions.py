"""A guess before the answer, and later the answer beside it.

In:  `predict("02.acks", "none", "some", "all ten")` before an experiment, `predicted("02.acks", "some")` with its result after it,
     `predicted()` at the notebook's end.
Out: buttons in Jupyter, a text wherever there are no widgets. Nothing waits for a guess. The text without a guess is the same on
     every run, since notebooks store it. Guesses are kept with the exercises that were passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.text import near
from kqlib.workshop import memory
from kqlib.workshop.checks.code import Text
from kqlib.workshop.view.svg import escape
from kqlib.workshop.view.table import Table

VIEW = "application/vnd.jupyter.widget-view+json"
# Buttons as wide as their words, which wrap on a narrow screen.
STYLE = (
    "<style>.kq-guess .widget-toggle-buttons{width:auto}.kq-guess .widget-toggle-button{width:auto;min-width:60px;max-width:100%;"
    "height:auto;min-height:28px;line-height:20px;padding:3px 10px;white-space:normal;text-align:left}</style>"
)
_questions: dict[str, Prediction] = {}  # this kernel's, in the order in which they were asked


class Prediction:
    """A question with its choices; `.choose(2)` is the second button."""

    def __init__(self, which: str, choices: tuple[str, ...]) -> None:
        self.which, self.choices = which, choices
        self.result: str | None = None
        self.notes, self._offered = list[str](), False
        self._live: list[Any] = []  # buttons that are shown

    @property
    def guess(self) -> str | None:
        """What was chosen, now or in an earlier session."""
        found = memory.read()[0].guesses.get(self.which)
        return found if found in self.choices or not self.choices else None

    def choose(self, choice: str | int) -> Prediction:
        """Choose by number, from 1, or by the text. A guess can be changed until the result is there."""
        if isinstance(choice, int) and 1 <= choice <= len(self.choices):
            choice = self.choices[choice - 1]
        if choice not in self.choices:
            there = ", ".join(f"{n} {text}" for n, text in enumerate(self.choices, 1))
            raise NotAllowed(
                f"prediction {self.which} has no choice {choice!r}{near(str(choice), self.choices)}; it has {there}"
            )
        if self.result is None or self.guess is None:
            self.notes = memory.change(lambda done: done.guesses.update({self.which: str(choice)}))
        return self

    def close(self, result: str) -> None:
        """The result is there: the guess stays as it is. One that is none of the choices does not replace one that is."""
        if self.result not in self.choices or result in self.choices:
            self.result = result
        for buttons in self._live:
            buttons.disabled = self.guess is not None

    def __repr__(self) -> str:
        if self.guess:
            return "\n".join([f"your guess: {self.guess}", *self.notes])
        choices = [f"[{n}] {text}" for n, text in enumerate(self.choices, 1)]
        line = "  ".join(["What do you expect?", *choices])
        asked = line if len(line) <= 100 else "\n".join(["What do you expect?", *choices])
        return "\n".join([asked, "(no buttons? write kq.predict(…).choose(1), or another number)", *self.notes])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self), **_view(lambda: [self.buttons("What do you expect?")])}

    def buttons(self, question: str, then: Callable[[], object] = lambda: None) -> Any:
        """The question and its buttons as a widget; `then` is called after a choice."""
        import ipywidgets as widgets

        note = widgets.HTML()
        buttons = widgets.ToggleButtons(options=self.choices, value=self.guess)
        box = widgets.VBox([widgets.HTML(STYLE + escape(question)), buttons, note])
        box.add_class("kq-guess")

        def chosen(change: Any) -> None:
            if change["new"] is not None:
                self.choose(change["new"])
                noted = "Noted. Run the next cell to see." if self.result is None else "Noted."
                note.value = f'<span role="status">{escape(" ".join(self.notes) or noted)}</span>'
                then()

        buttons.observe(chosen, names="value")
        self._live.append(buttons)
        return box


class Predictions:
    """Guesses beside results. In Jupyter, a question without a guess is asked here once."""

    def __init__(self, questions: list[Prediction]) -> None:
        self.questions = questions

    def _table(self, hidden: tuple[Prediction, ...] = ()) -> Table:
        rows = []
        for each in self.questions:
            right = each.guess == each.result if each.guess and each.result else None
            result = "choose first" if each in hidden and not each.guess else each.result
            rows.append([each.which, each.guess, result, right])
        return Table(rows, ["prediction", "your guess", "result", "as expected"])

    def __repr__(self) -> str:
        return repr(self._table())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        missing = tuple(each for each in self.questions if not each.guess and not each._offered)
        for each in missing:
            each._offered = True
        live = _view(lambda: self._ask(missing)) if missing else {}
        return {**self._table()._repr_mimebundle_(), **live}

    def _ask(self, missing: tuple[Prediction, ...]) -> list[Any]:
        import ipywidgets as widgets

        shown = widgets.HTML(self._table(missing).html)
        boxes = list[Any]()
        for each in missing:

            def then(at: int = len(boxes)) -> None:
                shown.value = self._table(missing).html
                boxes[at].layout.display = "none"

            boxes.append(each.buttons(f"{each.which}: what did you expect?", then))
        return [*boxes, shown]


def predict(which: str, *choices: object) -> Prediction:
    """Ask for a guess before the answer: `kq.predict("02.acks", "none", "some", "all ten")`. Nothing waits for it."""
    if not re.fullmatch(r"\d\d\.[a-z][a-z0-9-]*", which):
        raise NotAllowed(f"a prediction's id is notebook.word, as in '02.acks', not {which!r}")
    texts = tuple(map(str, choices))
    if len(set(texts)) < 2 or len(set(texts)) < len(texts):
        raise NotAllowed(f"prediction {which} needs two choices or more, all different")
    _questions[which] = Prediction(which, texts)
    return _questions[which]


def predicted(which: str | None = None, result: object = None) -> Text | Predictions:
    """The guess beside the result: `kq.predicted("02.acks", "some")`, and all of this notebook's: `kq.predicted()`."""
    if which is None:
        return Predictions(list(_questions.values()))
    question = _questions.get(which) or Prediction(which, ())  # its cell was not run
    if result is not None:
        question.close(str(result))
    guess, known = question.guess, question.result
    sign = "" if guess is None or known is None else " ✓" if guess == known else " ✗"
    stray = " (none of the choices)" if known and question.choices and known not in question.choices else ""
    if result is not None and str(result) != known:  # a cell that was run again, after another experiment
        stray = f" ({result} is none of the choices)"
    return Text(f"your guess: {guess or '–'}{sign} · result: {known or 'not seen yet'}{stray}")


def _view(make: Callable[[], list[Any]]) -> dict[str, Any]:
    """Widgets for Jupyter; nothing where they are not installed."""
    try:
        import ipywidgets as widgets
    except ImportError:
        return {}
    view: Any = widgets.VBox(make())._repr_mimebundle_()
    return {VIEW: view[VIEW]} if VIEW in (view or {}) else {}
