"""A group to play with: members join, get busy, leave and die by a button, and partitions and lag move. All of it is real.

In:  a lab (or a cluster). Out: `group(lab)`: a Playground over the pictures of `view.group` and `view.timeline`.
It begins with one member, who has all four partitions. What happens by itself (a session ends, lag goes down) is drawn when it does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka.writing import write
from kqlib.runtime.patience import PATIENCE
from kqlib.topics import Plan, Topic
from kqlib.workshop.groups import Group
from kqlib.workshop.groups.group import NAMES
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.play.scene import Scene, cluster_of
from kqlib.workshop.view.picture import Picture

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.workshop.lab import Lab

NAME = "playground"
PARTITIONS, MEMBERS = 4, 6
SESSION, BUSY = 3.0, 15.0  # seconds: a dead member's partitions, and a busy one's, soon move
STORED = 10.0 * PATIENCE  # seconds until records that were put are stored
PACE, BURST = 150, 1000  # records a second that a member works on; records at a press
CHANGES = 4  # changes that are read at a glance


def group(where: Lab | Kafka) -> Playground:
    """Let members join, keep them busy, kill them: `kq.play.group(lab)`."""
    scene = _GroupScene(where)
    controls = {"who": dropdown("who", NAMES[:MEMBERS], "ben"), "see": dropdown("see", ["now", "over time"])}
    return scene.watch(Playground("group", scene.draw, controls, scene.actions))


class _GroupScene(Scene):
    """The group behind the picture, and what its buttons do."""

    def __init__(self, where: Lab | Kafka) -> None:
        super().__init__()
        cluster = cluster_of(where, "group")
        if cluster is where:
            Plan({NAME: Topic(PARTITIONS)}).apply(cluster, quiet=True)
            self.topic = NAME
        else:
            self.topic = where.topic(NAME, PARTITIONS)  # type: ignore[union-attr]
        self.group = Group(where, NAME, self.topic, session=SESSION, max_poll=BUSY, pace=PACE)
        self.group.join("ann")
        self.actions = {
            "join": self.button(lambda who: self.group.join(who, wait=False)),
            "leave": self.button(lambda who: self.group.leave(who, wait=False)),
            "pause": self.button(self.group.pause),
            "resume": self.button(lambda who: self.group.resume(who, wait=False)),
            "crash": self.button(lambda who: self.group.crash(who, wait=False)),
            f"put {BURST} records": self.button(lambda who: self.put()),
        }

    def draw(self, who: str, see: str) -> Picture:
        """The group as it is now, or over time."""
        if see == "over time":
            return self.group.timeline().last(CHANGES).draw()
        return self.group.draw(names=True)

    def put(self) -> None:
        """Records, the same number for each partition."""
        records = ({"topic": self.topic, "value": b"goal", "partition": n % PARTITIONS} for n in range(BURST))
        if why := write(self.group.cluster, records, STORED):
            raise NotAllowed(f"the records could not be stored: {why}")

    def do(self, act: Callable[[str], object], who: str) -> None:
        """What a button does is shown at once, and again when the group has settled."""
        act(who)
        self.show()
        with suppress(NotInTime):  # a busy member lets the others wait: that is to be seen
            self.group.settle(2 * SESSION)

    def seen(self) -> object:
        """What the picture depends on; a change that happened by itself ends here as well."""
        with suppress(NotInTime):
            self.group.settle(0)
        assignment = self.group.assignment()
        return sorted(assignment.held.items()), assignment.busy, self.group.lag().sizes
