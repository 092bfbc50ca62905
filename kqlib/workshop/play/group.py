"""A group to play with: members join, get busy, leave and die by a button, and partitions and lag move. All of it is real.

In:  a lab (or a cluster). Out: `group(lab)`: a Playground over the pictures of `view.group` and `view.timeline`.
It begins with one member, who has all four partitions. What happens by itself (a session ends, lag comes down) is drawn when it does.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kqlib.errors import KqError, NotAllowed, NotInTime
from kqlib.topics import Plan, Topic
from kqlib.workshop.groups import Group
from kqlib.workshop.groups.group import NAMES
from kqlib.workshop.play.playground import Playground
from kqlib.workshop.view.picture import Picture

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.workshop.lab import Lab

NAME = "playground"
PARTITIONS, MEMBERS = 4, 6
SESSION, BUSY = 3.0, 15.0  # seconds: a dead member's partitions, and a busy one's, soon move
PACE, BURST = 150, 1000  # records a second that a member works on; records at a press
LOOK = 0.5  # seconds between two looks
SHORT_OF_BREATH = 4  # changes that are read at a glance


def group(where: Lab | Kafka) -> Playground:
    """Let members join, keep them busy, kill them: `kq.play.group(lab)`."""
    import ipywidgets as widgets

    scene = _Scene(where)
    who = widgets.Dropdown(options=list(NAMES[:MEMBERS]), value="ben", description="who")
    see = widgets.Dropdown(options=["now", "over time"], description="see")
    play = Playground("group", scene.draw, {"who": who, "see": see}, scene.actions)
    scene.watch(play)
    return play


class _Scene:
    """The group behind the picture, and what its buttons do."""

    def __init__(self, where: Lab | Kafka) -> None:
        self.topic = _topic(where)
        self.group = Group(where, NAME, self.topic, session=SESSION, max_poll=BUSY, pace=PACE)
        self.alone = threading.Lock()  # a button and the look now and then: one at a time
        self.show: Callable[[], None] = lambda: None
        self.group.join("ann")
        self.actions = {
            "join": self._then(lambda who: self.group.join(who, wait=False)),
            "leave": self._then(lambda who: self.group.leave(who, wait=False)),
            "pause": self._then(self.group.pause),
            "resume": self._then(lambda who: self.group.resume(who, wait=False)),
            "crash": self._then(lambda who: self.group.crash(who, wait=False)),
            f"put {BURST} records": self._then(lambda who: self.put()),
        }

    def draw(self, who: str, see: str) -> Picture:
        """The group as it is now, or what became of it."""
        if see == "over time":
            return self.group.timeline().last(SHORT_OF_BREATH).draw()
        return self.group.draw(names=True)

    def put(self) -> None:
        """Records, the same number for each partition."""
        from kqlib.kafka.clients import Producer

        producer = Producer(self.group.cluster.client())
        for number in range(BURST):
            producer.produce(self.topic, b"goal", partition=number % PARTITIONS)
        producer.flush(10)

    def watch(self, play: Playground) -> None:
        """Draw again when something has happened by itself, as long as anybody has this playground."""
        self.show = _weakly(play)
        threading.Thread(target=_look, args=(weakref.ref(self), weakref.ref(play)), daemon=True).start()

    def _then(self, act: Callable[[str], object]) -> Callable[..., None]:
        """An action for a button: what it does is shown at once, and again when the group has settled."""

        def pressed(who: str, see: str) -> None:
            with self.alone:
                act(who)
                self.show()
                with suppress(NotInTime):  # a busy member lets the others wait: that is to be seen
                    self.group.settle(2 * SESSION)

        return pressed

    def _seen(self) -> object:
        """What a picture depends on; a change that nobody asked for ends here as well."""
        with suppress(NotInTime):
            self.group.settle(0)
        assignment = self.group.assignment()
        return sorted(assignment.held.items()), assignment.busy, self.group.lag().sizes


def _topic(where: Lab | Kafka) -> str:
    """A topic of its own."""
    if hasattr(where, "topic"):
        return where.topic(NAME, PARTITIONS)
    if not hasattr(where, "bootstrap"):
        raise NotAllowed(f"this wants a lab or a cluster, as in kq.play.group(lab), not {type(where).__name__}")
    Plan({NAME: Topic(PARTITIONS)}).apply(where, quiet=True)
    return NAME


def _weakly(play: Playground) -> Callable[[], None]:
    """Draw it, if it is still there."""
    known = weakref.ref(play)

    def show() -> None:
        if (there := known()) is not None:
            there.refresh()

    return show


def _look(scene: weakref.ref[_Scene], play: weakref.ref[Playground]) -> None:
    """Look now and then; the end of the playground, of the group or of its cluster is the end of this thread too."""
    last: object = None
    while True:
        time.sleep(LOOK)  # here time is the point: how often to look
        here, shown = scene(), play()
        if here is None or shown is None:
            return
        if here.alone.acquire(blocking=False):
            try:
                if (seen := here._seen()) != last and last is not None:
                    shown.refresh()
                last = seen
            except KqError:  # closed, or out of reach
                return
            finally:
                here.alone.release()
        del here, shown
