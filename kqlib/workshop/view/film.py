"""A film: a recorded run, one picture after another, with a sentence for each.

In:  the name of a file in notebooks/films, or what such a file holds: a title, and frames with a sentence (`text`) and pictures as
     plain values: {"cluster": title, "brokers": […], "partitions": […]}, {"log": title, "lanes": […]} or
     {"group": title, "members": […], "slots": […]}.
Out: `film("leader-killed")`. JupyterLab shows a slider and two buttons, which the keyboard moves. Every other renderer gets the first
     frame as a still; its text has the sentences of all frames.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.text import near
from kqlib.workshop.view.cluster import Broker, Partition, cluster
from kqlib.workshop.view.group import Member, Slot, group
from kqlib.workshop.view.lane import Lane, Record
from kqlib.workshop.view.log import log
from kqlib.workshop.view.picture import Picture
from kqlib.workshop.view.svg import escape

VIEW = "application/vnd.jupyter.widget-view+json"


class Film:
    """A recorded run; `.frame(3)` has the pictures of the third frame."""

    def __init__(self, recording: Mapping[str, Any]) -> None:
        self.title: str = recording["title"]
        self.frames: list[Mapping[str, Any]] = list(recording["frames"])

    def frame(self, number: int) -> list[Picture]:
        """The pictures of a frame, counted from 1."""
        return [_picture(each) for each in self.frames[number - 1]["pictures"]]

    def words(self, number: int) -> str:
        """A frame's sentence as HTML."""
        words = f"{number} of {len(self.frames)} · {self.frames[number - 1]['text']}"
        return f'<p role="status" style="line-height:1.4">{escape(words)}</p>'

    def pictures(self, number: int) -> str:
        """A frame's pictures as HTML; on a narrow screen they can be scrolled."""
        pictures = [each._repr_mimebundle_()["text/html"] for each in self.frame(number)]
        return "".join(f'<div style="overflow-x:auto">{each}</div>' for each in pictures)

    def __repr__(self) -> str:
        sentences = [f"{number}  {each['text']}" for number, each in enumerate(self.frames, 1)]
        return "\n".join([f"film: {self.title}", *sentences, *(each.text for each in self.frame(1))])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        still = f"<p><b>{escape(self.title)}</b></p>{self.words(1)}{self.pictures(1)}"
        bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": still}
        with suppress(ImportError):  # ipywidgets
            bundle[VIEW] = self._widget()._repr_mimebundle_()[VIEW]
        return bundle

    def _widget(self) -> Any:
        import ipywidgets as widgets

        words, pictures = widgets.HTML(self.words(1)), widgets.HTML(self.pictures(1))
        slider = widgets.IntSlider(1, 1, len(self.frames), description="frame")

        def show(change: Any) -> None:
            words.value = self.words(change["new"])
            pictures.value = self.pictures(change["new"])

        slider.observe(show, names="value")
        buttons = []
        for word, step in (("back", -1), ("next", 1)):
            button = widgets.Button(description=word, layout=widgets.Layout(width="80px"))
            button.on_click(lambda _, step=step: setattr(slider, "value", slider.value + step))
            buttons.append(button)
        controls = widgets.HBox([slider, *buttons], layout=widgets.Layout(flex_flow="row wrap"))
        return widgets.VBox([widgets.HTML(f"<b>{escape(self.title)}</b>"), controls, words, pictures])


def film(recording: str | Mapping[str, Any]) -> Film:
    """Step through a recorded run: `kq.view.film("leader-killed")`."""
    return Film(_read(recording) if isinstance(recording, str) else recording)


def _read(name: str) -> Mapping[str, Any]:
    repo = places.repo()
    there = {path.stem: path for path in (repo / "notebooks" / "films").glob("*.json")} if repo else {}
    if name not in there:
        names = ", ".join(sorted(there)) or "none"
        raise NotAllowed(f"there is no film {name!r} in notebooks/films{near(name, there)}; there are: {names}")
    found: Mapping[str, Any] = json.loads(there[name].read_text(encoding="utf-8"))
    return found


def _picture(values: Mapping[str, Any]) -> Picture:
    """A picture from plain values, as they were read from JSON."""
    if "log" in values:
        lanes = [Lane(**{**lane, "records": [Record(**each) for each in lane["records"]]}) for lane in values["lanes"]]
        return log(lanes, title=values["log"])
    if "group" in values:
        members = [Member(**each) for each in values["members"]]
        return group(members, [Slot(**each) for each in values["slots"]], title=values["group"])
    partitions = [
        Partition(**{**each, "ends": {int(n): end for n, end in each["ends"].items()}} if each.get("ends") else each)
        for each in values["partitions"]
    ]
    return cluster([Broker(**each) for each in values["brokers"]], partitions, title=values["cluster"])
