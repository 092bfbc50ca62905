"""A live queue to play with: workers are added, stalled, woken and killed by a button, and floor and top move. All of it is real.

In:  a lab (or a cluster). Out: `queue(lab)`: a Playground over the pictures of `view.log` and `view.deliveries`.
It begins with six items and no worker. A worker is a process: claim, two seconds of work, ack; an item X fails and is tried
again four seconds later, three times in all. What happens by itself (a session ends, a delay is over) is drawn when it does.

What a cell shows comes from Kafka: records, the committed state, the dead letters. Only the workers know which of them holds an
item, and which items wait for a second try: that comes from their deliveries.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from kqlib.errors import KqError, NotAllowed
from kqlib.queue import Put, Site, look, state
from kqlib.queue.dead import DEAD
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop import snapshot, view
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.play.scene import OwningScene, cluster_of
from kqlib.workshop.view.deliveries import Delivery, deliveries
from kqlib.workshop.view.lane import State
from kqlib.workshop.view.letters import letters
from kqlib.workshop.view.picture import Picture

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.queue.ledger import Ledger
    from kqlib.workshop.children import Children
    from kqlib.workshop.lab import Lab
    from kqlib.workshop.promises.adapter import Claim, RemoteQueue

NAME = "queue-playground"
PARTITIONS = 2
GAMES = ("ARS-CHE", "MUN-TOT", "MCI-LIV", "EVE-WHU", "NEW-AVL", "WOL-BOU")  # murmur2 deals them out in turn
LETTERS = letters(GAMES)
BAD = "X"  # the key of an item that fails
WORKERS = ("ann", "ben", "cem")  # with two partitions one too many, to be seen waiting
SESSION, LEASE, ATTEMPTS = 3.0, 30.0, 3
WORK, AGAIN = 2.0, 4.0  # seconds: an item's work, and until a failed one is due
TAKE = 0.3  # seconds that a claim waits for something
SHOWN = 5  # deliveries beside each other that leave space for their words


def queue(where: Lab | Kafka) -> Playground:
    """Add workers, stall and kill them, and see what becomes of the queue: `kq.play.queue(lab)`."""
    scene = _QueueScene(where)
    controls = {"who": dropdown("who", WORKERS), "see": dropdown("see", ["now", "deliveries"])}
    return scene.watch(Playground("queue", scene.draw, controls, scene.actions))


@dataclass
class LiveDelivery:
    """A delivery: a worker has an item, or had it."""

    worker: str
    item: str  # its data, which no other item has
    attempt: int
    begin: float
    until: float | None = None
    end: str = "open"
    due: float = 0.0  # when a released item is ready again, as long as its worker lives

    def over(self, how: str) -> None:
        """It has ended, unless it had before."""
        if self.until is None:
            self.until, self.end = time.monotonic(), how
            self.due = self.until + AGAIN if how == "release" else 0.0


class Worker:
    """One worker: a process that has the queue, and a thread here that lets it claim, work and ack, again and again."""

    def __init__(self, name: str, remote: RemoteQueue, held: list[LiveDelivery]) -> None:
        self.name, self.remote, self.held = name, remote, held
        self.state = "works"
        self._awake, self._over, self._calling = threading.Event(), threading.Event(), threading.Lock()
        self._awake.set()
        threading.Thread(target=self._live, name=f"worker {name}", daemon=True).start()

    def stall(self) -> None:
        """Stop its time: SIGSTOP, between two calls."""
        self._awake.clear()
        with self._calling:
            self.remote.pause()
        self.state = "stalled"

    def wake(self) -> None:
        """It goes on, and does not know that it was stopped."""
        self.remote.resume()
        self.state = "works"
        self._awake.set()

    def kill(self) -> None:
        """SIGKILL, whatever it does."""
        self.state = "killed"
        self._over.set()
        self.remote.kill()
        for one in [*self.held]:
            if one.worker == self.name:
                one.over("killed")
                one.due = 0.0
        self._awake.set()

    def _live(self) -> None:
        from kqlib.workshop.promises.values import Broken, Refused

        with suppress(Broken, OSError):  # its process is gone
            while not self._over.is_set():
                try:
                    got = self._call("claim", wait=TAKE)
                except Refused:  # Kafka is away, or its partition; asked again
                    self._over.wait(TAKE)
                    continue
                if got is not None:
                    self._work(got)

    def _work(self, got: Claim) -> None:
        from kqlib.workshop.promises.values import Refused

        one = LiveDelivery(self.name, got.data, got.attempt or 1, time.monotonic())
        self.held.append(one)
        self._over.wait(WORK)  # this is the work
        fails = got.data.startswith(BAD)
        try:
            if fails:
                self._call("release", got.number, delay=AGAIN)
            else:
                self._call("ack", got.number)
        except Refused:
            one.over("refused")
        else:
            one.over("release" if fails else "ack")

    def _call(self, verb: str, *args: Any, **how: Any) -> Any:
        """One call, as soon as its time goes on."""
        while True:
            self._awake.wait()
            with self._calling:
                if self._awake.is_set():
                    return self.remote.call(verb, *args, **how)


class _QueueScene(OwningScene):
    """The queue behind the picture, and what its buttons do."""

    def __init__(self, where: Lab | Kafka) -> None:
        super().__init__(NAME, cluster_of(where, "queue"))
        self.topic, self.name = _own_topic(where, self.cluster)
        self.how: dict[str, Any] = {"lease": LEASE, "max_attempts": ATTEMPTS}
        self.session = SESSION if self.cluster.embedded else None
        self.site = Site(self.cluster, self.name, self.session)  # it puts and looks, and never claims
        self.queue = self.site.queue(self.topic, **self.how)
        self.held, self.workers = list[LiveDelivery](), dict[str, Worker]()
        self._children: Children | None = None
        self.owned.enter_context(suppress(KqError))
        self.owned.enter_context(self.site)
        self._numbers, self._run = count(1), secrets.token_hex(4)
        self._records: dict[int, list[Any]] = {}
        self._buried: set[tuple[int, int]] = set()  # partition and offset of items that are dead letters
        self.put(*GAMES)
        self.actions = {
            "add": self.button(self.add),
            "stall": self.button(lambda who: self._worker(who, "works").stall()),
            "wake": self.button(lambda who: self._worker(who, "stalled").wake()),
            "kill": self.button(lambda who: self._worker(who, "works", "stalled").kill()),
            "put 6 items": self.button(lambda who: self.put(*GAMES)),
            "put one that fails": self.button(lambda who: self.put(BAD)),
        }

    def put(self, *keys: str) -> None:
        """Items with these keys; each one's data is its own."""
        data = [f"{key} {self._run} {next(self._numbers)}" for key in keys]
        self.queue.put_many([Put(each.encode(), key.encode()) for each, key in zip(data, keys, strict=True)])

    def add(self, who: str) -> None:
        """A new worker, a process of its own."""
        from kqlib.workshop.children import Children
        from kqlib.workshop.promises.adapter import RemoteQueue

        if who in self.workers and self.workers[who].state != "killed":
            raise NotAllowed(f"'{who}' works already; add another one, or kill it first")
        if self._children is None:
            self._children = self.owned.enter_context(Children(modules=["kqlib.queue.site"]))
        site, session, how = self.name, self.session, self.how

        def make(cluster: Kafka, topic: str) -> Any:
            from kqlib.queue import Site

            return Site(cluster, site, session).queue(topic, **how)

        self.workers[who] = Worker(who, RemoteQueue(self._children, make, self.cluster, self.topic), self.held)

    def draw(self, who: str, see: str) -> Picture:
        """The queue as it is now, or the last deliveries."""
        if see == "deliveries":
            return deliveries(ticks(recent(self.held)), title=f"{self.topic}, lately")
        return self.now()

    def now(self) -> Picture:
        """Both partitions: what is committed, and which worker has what."""
        self.check_open()
        seen = {number: each for number, (each, _) in look.seen(self.site, self.topic).items()}
        self._read({number: each.end for number, each in seen.items()})
        ledgers = {number: state.ledger_from(each, "earliest", self.topic) for number, each in seen.items()}
        self._find_buried(ledgers)
        lanes = []
        for number, each in seen.items():
            ledger, cells = ledgers[number], []
            for record in self._records.get(number, []):
                at, item = record.offset(), record.value().decode()
                if at < each.end:
                    kind, note = placed(at, item, ledger, self.held, (number, at) in self._buried)
                    cells.append(view.Record(at, record.key(), kind, note, ledger.attempts(at) or 1))
            lanes.append(view.Lane(number, cells, each.low, each.end, floor=ledger.floor, read=ledger.top))
        states = [f"{name} {worker.state}" for name, worker in self.workers.items()]
        return view.log(lanes, title=", ".join(states) or "nobody works", letters=LETTERS)

    def look(self) -> object:
        """What the picture depends on."""
        return self.now().text, len(self.held)

    def _read(self, ends: Mapping[int, int]) -> None:
        """The records, when there are more than before."""
        if any(len(self._records.get(number, [])) < end for number, end in ends.items()):
            self._records = dict(snapshot.records(self.cluster, self.topic))

    def _find_buried(self, ledgers: Mapping[int, Ledger]) -> None:
        """Look into the dead letters when an item has ended that no worker acked."""
        acked = {one.item for one in self.held if one.end == "ack"}
        ended = set()
        for number, ledger in ledgers.items():
            for record in self._records.get(number, []):
                over = record.offset() < ledger.top and ledger.attempts(record.offset()) is None
                if over and record.value().decode() not in acked:
                    ended.add((number, record.offset()))
        if ended - self._buried:
            dead = snapshot.records(self.cluster, self.topic + DEAD).values()
            origins = [dict(letter.headers() or ()).get("kq-origin", b"") for found in dead for letter in found]
            ids = [origin.decode().split("/") for origin in origins if origin]
            self._buried = {(int(number), int(offset)) for _, number, offset in ids}

    def _worker(self, who: str, *states: str) -> Worker:
        """This worker, if it is in one of these states."""
        worker = self.workers.get(who)
        if worker is None or worker.state == "killed":
            raise NotAllowed(f"'{who}' is not there: add it first")
        if worker.state not in states:
            stalled = "is not stalled" if states == ("stalled",) else "is stalled: wake it first"
            raise NotAllowed(f"'{who}' {stalled}")
        return worker


def placed(at: int, item: str, ledger: Ledger, held: Sequence[LiveDelivery], buried: bool) -> tuple[State, str]:
    """An item's state by what is committed, and a note: its worker, or how often it was tried."""
    if at >= ledger.top:
        return "waiting", ""
    tried = ledger.attempts(at)
    if tried is None:
        return ("dead" if buried else "done"), ""
    last = next((one for one in reversed(held) if one.item == item), None)
    if last is not None and last.until is None:
        return "claimed", last.worker
    if last is not None and time.monotonic() < last.due:
        return "due", ""
    return "waiting", f"×{tried}" if tried else ""


def recent(held: Sequence[LiveDelivery]) -> list[LiveDelivery]:
    """The last deliveries. The last refused one stays: a reader has to look for it after others have come."""
    last = list(held[-SHOWN:])
    refused = [each for each in held[:-SHOWN] if each.end == "refused"][-1:]
    if not refused or any(each.end == "refused" for each in last):
        return last
    return [*refused, *last[1:]]


def ticks(held: Sequence[LiveDelivery]) -> list[Delivery]:
    """Deliveries in the order of what happened, not in seconds: each has space for its words."""
    moments = {(one.begin, 0) for one in held} | {(one.until, 1) for one in held if one.until is not None}
    tick = {moment: 2 * at for at, moment in enumerate(sorted(moments), 1)}
    last = 2 * len(tick) + 2
    found = []
    for one in held:
        until = last if one.until is None else tick[one.until, 1]
        key = one.item.partition(" ")[0]
        letter = LETTERS.get(key.encode(), key)
        found.append(Delivery(one.worker, one.attempt, tick[one.begin, 0], until, one.end, letter))
    return found


def _own_topic(where: Any, cluster: Kafka) -> tuple[str, str]:
    """A topic and a site of its own."""
    if where is cluster:
        Plan({NAME: QueueTopic(partitions=PARTITIONS)}).apply(cluster, quiet=True)
        return NAME, NAME
    where.topic(NAME + DEAD, PARTITIONS)
    return where.topic(NAME, PARTITIONS), where.group(NAME)
