"""Nodes of virtual queues to play with: start, pause and kill them while you put, claim and ack. All of it is real.

In:  a lab. Out: `virtual(lab)`: a Playground over the picture of `view.owners`.
It begins with node A, which owns all three partitions; each node is a process. The headline says which nodes the client asked, and
what each answered: 409 means that another node owns the queue. What happens by itself (partitions move) is drawn when it does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed
from kqlib.kafka import reading
from kqlib.keys import partition
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop import view
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.play.scene import OwningScene, cluster_of
from kqlib.workshop.view.picture import Picture

if TYPE_CHECKING:
    from kqlib.virtual.queue import VirtualQueue
    from kqlib.workshop.children import Fork
    from kqlib.workshop.lab import Lab

NAME, PARTITIONS, NODES = "play-virtual", 3, "ABC"
GAMES = ("ARS-CHE", "LIV-MUN", "INT-MIL", "BAR-RMA")  # murmur2: p0, p1, p2, p0
SESSION, LEASE = 3.0, 60.0  # seconds until a dead node's partitions move; of a claimed item
START, TRIES = 30.0 * PATIENCE, 20.0 * PATIENCE  # seconds until a node answers; until a request is given up
CHANGES = {  # a button: the states of a node in which it can be pressed, and the one that follows
    "start": (("off", "killed"), "running"),
    "leave": (("running",), "off"),
    "pause": (("running",), "paused"),
    "resume": (("paused",), "running"),
    "kill": (("running", "paused"), "killed"),
}


def virtual(lab: Lab) -> Playground:
    """Start, pause and kill nodes while you put, claim and ack: `kq.play.virtual(lab)`."""
    scene = _NodesScene(lab)
    return scene.watch(Playground("virtual", scene.draw, scene.controls, scene.actions))


class _NodesScene(OwningScene):
    """The nodes behind the picture, and what its buttons do."""

    def __init__(self, lab: Lab) -> None:
        from kqlib.virtual import Client, topics
        from kqlib.virtual.ownership import PartitionMap
        from kqlib.workshop.children import Children

        super().__init__(NAME, cluster_of(lab, "virtual"))
        plan = topics(NAME, PARTITIONS).items()
        self.topic, _, self.map_topic = [lab.topic(name, each.partitions, config=each.settings) for name, each in plan]
        self.map, self.states = PartitionMap(self.topic, PARTITIONS), dict.fromkeys(NODES, "off")
        self.nodes: dict[str, Fork] = {}
        self.names: dict[str, str] = {}  # of nodes, by address
        self.seeds: list[str] = []  # the nodes' addresses; the client's own list, so it learns of later nodes
        self.controls = {"who": dropdown("node", NODES), "queue": dropdown("queue", GAMES)}
        self.children = self.owned.enter_context(Children(modules=["kqlib.virtual.node"]))
        self.change("start", "A")
        client = self.owned.enter_context(Client(self.seeds, patience=TRIES))
        self.seeds = client._seeds
        self.queues = {game: client.queue(game, lease=LEASE) for game in GAMES}
        self.left, self.held = dict.fromkeys(GAMES, 0), {game: list[Any]() for game in GAMES}
        self.verb, self.result, self.asked = "no request yet", "", _asked(client, self.names)
        self.actions = {act: self.button(partial(self.change, act)) for act in CHANGES}
        self.actions |= {each.__name__: self.request(each) for each in (self.put, self.claim, self.ack)}
        wait_for(lambda: len(self.owners()) == PARTITIONS, START, "node A to own all partitions")

    def change(self, act: str, who: str) -> None:
        """Start a node as a process of its own, let it leave in good order, pause, resume or kill it."""
        from kqlib.workshop.children import ChildEnded
        from kqlib.workshop.promises.virtual import serve

        states, after = CHANGES[act]
        if self.states[who] not in states:
            raise NotAllowed(f"node {who} is {self.states[who]}; {act} is for a node that is {' or '.join(states)}")
        if act == "start":
            where = (self.cluster.bootstrap, self.cluster._own)
            self.nodes[who] = self.children.fork(serve, where, self.topic, SESSION)
            self.seeds.append(self.nodes[who].receive(START))
            self.names[self.seeds[-1]] = who
        elif act == "leave":
            self.nodes[who].send("leave")
            with suppress(ChildEnded):
                self.nodes[who].receive(START)
        else:
            getattr(self.nodes[who], act)()
        self.states[who] = after

    def request(self, verb: Callable[[VirtualQueue], str | None]) -> Callable[..., None]:
        """An action for a button. It takes no turn: while it waits for a node, the picture goes on."""

        def pressed(queue: str, **_: object) -> None:
            self.check_open()
            self.asked.clear()
            self.verb, self.result = f"{verb.__name__} {queue}", ""
            self.result = verb(self.queues[queue]) or ""
            self.left[queue] = self.queues[queue].depth()

        return pressed

    def put(self, queue: VirtualQueue) -> None:
        """An item."""
        queue.put(b"goal")

    def claim(self, queue: VirtualQueue) -> str:
        """The next item; it is out until it is acked."""
        item = queue.claim(wait=1)
        self.held[queue.name] += [item] if item else []
        return f", attempt {item.attempt}" if item else ", no item"

    def ack(self, queue: VirtualQueue) -> None:
        """The oldest item that is out, even if its lease is over."""
        if not self.held[queue.name]:
            raise NotAllowed(f"no item of {queue.name} is out: claim one first")
        queue.ack(self.held[queue.name].pop(0))

    def owners(self) -> dict[int, str]:
        """Partition -> its node, as the topic of the map has it."""
        for message in reading.read(self.cluster, {(self.map_topic, 0): self.map.version + 1}):
            self.map.update(message.offset(), message.key(), message.value())
        return {number: self.names.get(owner.url, "?") for number, owner in self.map.owners.items()}

    def draw(self, **_: object) -> Picture:
        """The way to each queue as it is now, and which nodes the last request went to."""
        owners, queues, nodes = sorted(self.owners().items()), dict[str, int](), dict[str, list[int]]()
        for game, held in self.held.items():
            out = f" ({len(held)} out)" if held else ""
            queues[f"{game} {self.left[game]}{out}"] = partition(game.encode(), PARTITIONS)
        for name, state in self.states.items():
            words = f"node {name}" if state == "running" else f"node {name}, {state}"
            nodes[words] = [number for number, owner in owners if owner == name]
        runs = [(" ".join(each), len([*same])) for each, same in groupby(self.asked)]
        trail = " → ".join(f"{each} ×{times}" if times > 1 else each for each, times in runs)
        return view.owners(queues, nodes, title=f"{self.verb}{trail and ': '}{trail}{self.result}")

    def look(self) -> object:
        """What the picture depends on."""
        return self.draw().text


def _asked(client: Any, names: dict[str, str]) -> list[list[str]]:
    """The nodes that this client asks, each with its answer: a list that grows."""
    asked: list[list[str]] = []

    def asks(request: Any) -> None:
        if not request.url.path.endswith(("/map", "/depth")):
            asked.append([names[f"{request.url.scheme}://{request.url.netloc.decode()}"], "no answer"])

    def answers(response: Any) -> None:
        if not response.url.path.endswith(("/map", "/depth")):
            asked[-1][1] = str(response.status_code)

    client._http.event_hooks = {"request": [asks], "response": [answers]}
    return asked
