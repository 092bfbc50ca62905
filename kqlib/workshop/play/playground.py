"""A playground: a picture with controls under it, to try in JupyterLab what a notebook has just shown.

In:  how to draw, the controls (ipywidgets) and actions (a button's label -> what it does); drawing and actions get the values of the
     controls by name.
Out: `Playground`, one object. JupyterLab shows it live; every other renderer, a terminal and nbval get the picture as it is now.

Drawing is immediate: every change of a control draws again. An action may take its time (real members, real crashes): it runs in
a thread of its own with all controls locked, since widgets receive nothing while their own callback runs. Buttons are not locked:
a browser drops a click on one that is locked between the mouse's down and up; a button that is pressed meanwhile runs next.
"""

from __future__ import annotations

import html
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ipywidgets as widgets

from kqlib.errors import KqError, NotAllowed
from kqlib.kafka import forks
from kqlib.workshop.view.film import VIEW
from kqlib.workshop.view.picture import Picture
from kqlib.workshop.view.table import Table


def dropdown(name: str, options: Iterable[Any], value: Any = None, **more: Any) -> widgets.Dropdown:
    """A control to pick one of these; the first one at the beginning, unless another is given."""
    every = list(options)
    return widgets.Dropdown(options=every, value=every[0] if value is None else value, description=name, **more)


class Playground:
    """A picture that its controls redraw. `.set(name=value)` and `.press("action")` do what the mouse does."""

    def __init__(
        self,
        name: str,
        draw: Callable[..., Picture | Table],
        controls: Mapping[str, Any],
        actions: Mapping[str, Callable[..., object]] | None = None,
    ) -> None:
        self.name, self.controls = name, dict(controls)
        self._draw, self._actions = draw, dict(actions or {})
        self._process = os.getpid()
        self._pressed: list[str] = []  # the action that runs, and those that wait for it, in turn
        self._turn = threading.Condition()
        self.picture = draw(**self.values)
        self._image, self._words, self._note = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._buttons = {label: widgets.Button(description=label) for label in self._actions}
        for control in self.controls.values():
            control.observe(lambda _: self.refresh(), names="value")
        for label, button in self._buttons.items():
            button.on_click(lambda _, label=label: self._act(label))
        row = widgets.Layout(flex_flow="row wrap")
        spell = widgets.ToggleButton(description="in words")  # an Accordion cannot be opened from the keyboard
        spell.observe(lambda change: self._spell(change["new"]), names="value")
        self._spell(False)
        inputs = [*self.controls.values(), *self._buttons.values()]
        self.widget = widgets.VBox([widgets.HBox(inputs, layout=row), self._note, self._image, spell, self._words])
        self._show()

    @property
    def values(self) -> dict[str, Any]:
        """What the controls say now."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values: Any) -> Playground:
        """Move controls: `.set(partitions=6)`."""
        for name, value in values.items():
            if name not in self.controls:
                raise NotAllowed(f"'{self.name}' has no control {name!r}; it has {', '.join(self.controls) or 'none'}")
            try:
                self.controls[name].value = value
            except Exception as error:  # traitlets has its own words for each kind of control
                raise NotAllowed(f"{name} cannot be {value!r}: {error}") from None
        return self

    def press(self, label: str) -> Playground:
        """Press a button and wait until it is done: `.press("crash")`."""
        if label not in self._actions:
            raise NotAllowed(f"'{self.name}' has no button {label!r}; it has {', '.join(self._actions) or 'none'}")
        forks.check(self._process, f"playground '{self.name}'")  # a thread of the parent may have held its locks
        if done := self._act(label):
            done.join()
        return self

    def refresh(self, by_itself: bool = False) -> bool:
        """Draw again; from any thread. by_itself: nobody moved a control, so the note stays as it is."""
        try:
            self.picture = self._draw(**self.values)
        except Exception as error:  # a reader types anything: the sentence is shown, the last picture stays
            if not by_itself:
                self._say(error)
            return False
        if not by_itself:
            self._note.value = ""
        self._show()
        return True

    @property
    def note(self) -> str:
        """What it says above the picture: an action under way, or what went wrong."""
        return str(self._note.value)

    def _act(self, label: str) -> threading.Thread | None:
        """Have it done when its turn comes; None if it waits for its turn already: twice in a row is once."""
        with self._turn:
            if label in self._pressed:
                return None
            self._pressed.append(label)
        done = threading.Thread(target=self._do, args=(label,), daemon=True)
        done.start()
        return done

    def _do(self, label: str) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._pressed[0] == label)
        self._lock(True)
        self._note.value = f"<i>{html.escape(label)} …</i>"
        try:
            self._actions[label](**self.values)
            self.refresh()
        except Exception as error:
            self.refresh()  # what it did before it failed is to be seen as well
            self._say(error)
        finally:
            self._lock(False)
            with self._turn:
                self._pressed.remove(label)
                self._turn.notify_all()

    def _spell(self, shown: bool) -> None:
        """Show the picture's words below it, or not."""
        self._words.layout.display = "" if shown else "none"

    def _lock(self, locked: bool) -> None:
        for control in self.controls.values():
            control.disabled = locked

    def _say(self, error: Exception) -> None:
        words = str(error) if isinstance(error, KqError) else f"{type(error).__name__}: {error}"
        self._note.value = f'<b role="alert">{html.escape(words)}</b>'

    def _show(self) -> None:
        shown = self.picture._repr_mimebundle_()["text/html"]
        self._image.value = f'<div style="line-height:normal">{shown}</div>'  # a widget's own lines are 28 pixels high
        self._words.value = f"<pre>{html.escape(self.picture.text)}</pre>"

    def __repr__(self) -> str:
        settings = [f"{name}: {value}" for name, value in self.values.items()]
        buttons = [f"[{label}]" for label in self._actions]
        return "\n".join([self.picture.text, " · ".join([f"playground '{self.name}'", *settings, *buttons])])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Live where widgets are known; else the picture, with the same twin."""
        bundle: dict[str, Any] = {**self.picture._repr_mimebundle_(), "text/plain": repr(self)}
        bundle[VIEW] = self.widget._repr_mimebundle_()[VIEW]
        return bundle
