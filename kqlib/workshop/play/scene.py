"""What live playgrounds share: real processes behind the picture, drawn again when something happens by itself."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kqlib.errors import KqError, NotAllowed
from kqlib.workshop.play.playground import Playground

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

LOOK = 0.5  # seconds between two looks


class Scene:
    """What is behind a live picture. A button and the regular look take turns."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.play: Callable[[], Playground | None] = lambda: None

    def seen(self) -> object:
        """What the picture depends on."""
        raise NotImplementedError

    def do(self, act: Callable[[Any], object], who: Any) -> None:
        """What a button does."""
        act(who)

    def button(self, act: Callable[[Any], object]) -> Callable[..., None]:
        """An action for a button."""

        def pressed(who: Any, **_: object) -> None:
            with self.turn:
                self.do(act, who)

        return pressed

    def show(self) -> None:
        """Draw again, if the playground is still there."""
        if (play := self.play()) is not None:
            play.refresh()

    def watch(self, play: Playground) -> Playground:
        """Draw again when something has happened by itself, as long as this playground is used."""
        self.play = weakref.ref(play)
        threading.Thread(target=_look, args=(weakref.ref(self), self.play), daemon=True).start()
        return play


def _look(scene: weakref.ref[Scene], play: weakref.ref[Playground]) -> None:
    """Look regularly. The thread ends with the playground, with the scene or with its cluster."""
    last: object = None
    while True:
        time.sleep(LOOK)  # here time is the point: how often to look
        here, shown = scene(), play()
        if here is None or shown is None:
            return
        if here.turn.acquire(blocking=False):
            try:
                if (seen := here.seen()) != last and last is not None:
                    shown.refresh(by_itself=True)
                last = seen
            except KqError:  # closed, or not reachable
                return
            finally:
                here.turn.release()
        del here, shown


def cluster_of(where: Any, name: str) -> Kafka:
    """The cluster of a lab, or the cluster itself."""
    cluster: Any = getattr(where, "cluster", where)
    if not hasattr(cluster, "bootstrap"):
        raise NotAllowed(f"this wants a lab or a cluster, as in kq.play.{name}(lab), not {type(where).__name__}")
    cluster._check_open()
    return cluster
