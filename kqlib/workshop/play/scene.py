"""What live playgrounds share: real processes behind the picture, drawn again when something happens by itself."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, KqError, NotAllowed
from kqlib.kafka import forks
from kqlib.workshop.play.playground import Playground

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

LOOK = 0.5  # seconds between two looks
_open: weakref.WeakValueDictionary[tuple[str, str], OwningScene] = weakref.WeakValueDictionary()


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


class OwningScene(Scene):
    """A scene with processes and clients of its own. They end with the playground or its cluster, or when its cell runs again."""

    def __init__(self, name: str, cluster: Kafka) -> None:
        super().__init__()
        if before := _open.pop((name, cluster.bootstrap), None):
            before.close()
        _open[name, cluster.bootstrap] = self
        self.cluster, self.owned = cluster, ExitStack()
        self._finish = weakref.finalize(self, forks.only_here(self.owned.close))

    def look(self) -> object:
        """What the picture depends on, while the playground is open."""
        raise NotImplementedError

    def seen(self) -> object:
        """What the picture depends on."""
        try:
            self.check_open()
            return self.look()
        except (Closed, RuntimeError):  # RuntimeError is how a client says that it is closed
            self._finish()
            raise Closed(thing="playground") from None

    def do(self, act: Callable[[Any], object], who: Any) -> None:
        """What a button does."""
        self.check_open()
        act(who)

    def check_open(self) -> None:
        """`Closed` if the playground or its cluster has ended."""
        self.cluster._check_open()
        if not self._finish.alive:
            raise Closed(thing="playground")

    def close(self) -> None:
        """What it owns ends; calling it twice does no harm."""
        with self.turn:
            self._finish()


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
                if (seen := here.seen()) != last and shown.refresh(by_itself=True):
                    last = seen
            except Closed:
                return
            except KqError:  # no answer for now
                pass
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
