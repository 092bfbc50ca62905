"""A live queue to play with: workers are added, stalled, woken and killed by a button, and floor and top move. All of it is real.

In:  a lab (or a cluster). Out: `queue(lab)`: a Playground over the pictures of `view.log` and `view.deliveries`.
It begins with six items and nobody who works. A worker is a process: claim, two seconds of work, ack; an item X fails and is tried
again four seconds later, three times in all. What happens by itself (a session ends, a delay is over) is drawn when it does.

What a cell says comes from Kafka: records, the committed state, the dead letters. Only who holds an item, and which of them wait for
a second try, is known to the workers alone; they are asked.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, KqError, NotAllowed, Unreachable
from kqlib.kafka import forks
from kqlib.queue import Put, Site, look, state
from kqlib.queue.dead import DEAD
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop import snapshot, view
from kqlib.workshop.play.group import _look, _weakly
from kqlib.workshop.play.playground import Playground
from kqlib.workshop.view.deliveries import Delivery, deliveries
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
SHOWN = 5  # deliveries beside each other that leave room for their words
_open: weakref.WeakValueDictionary[tuple[str, str], _Scene] = weakref.WeakValueDictionary()


def queue(where: Lab | Kafka) -> Playground:
    """Add workers, stall and kill them, and see what the queue makes of it: `kq.play.queue(lab)`."""
    import ipywidgets as widgets

    scene = _Scene(where)
    who = widgets.Dropdown(options=list(WORKERS), description="who")
    see = widgets.Dropdown(options=["now", "deliveries"], description="see")
    play = Playground("queue", scene.draw, {"who": who, "see": see}, scene.actions)
    scene.show = _weakly(play)
    threading.Thread(target=_look, args=(weakref.ref(scene), weakref.ref(play)), daemon=True).start()
    return play


@dataclass
class Held:
    """A delivery: a worker has an item, or had it."""

    worker: str
    item: str  # its data, which no other item has
    attempt: int
    begin: float
    until: float | None = None
    end: str = "open"


@dataclass
class Book:
    """What the workers have told, written by their threads."""

    held: list[Held] = field(default_factory=list)
    due: dict[str, tuple[str, float]] = field(default_factory=dict)  # item -> who remembers it, until when
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, worker: str, item: str, attempt: int) -> Held:
        """A worker has got an item."""
        one = Held(worker, item, attempt, time.monotonic())
        with self.lock:
            self.due.pop(item, None)
            self.held.append(one)
        return one

    def end(self, one: Held, how: str) -> None:
        """It has let go of it."""
        with self.lock:
            if one.until is None:
                one.until, one.end = time.monotonic(), how
            if how == "release":
                self.due[one.item] = one.worker, one.until + AGAIN

    def dead(self, worker: str) -> None:
        """A worker was killed, and with it what it knew: its leases, its delays."""
        for one in [one for one in self.held if one.worker == worker and one.until is None]:
            self.end(one, "killed")
        with self.lock:
            self.due = {item: known for item, known in self.due.items() if known[0] != worker}

    def holder(self, item: str) -> Held | None:
        """Who got it last and has not let go."""
        with self.lock:
            return next((one for one in reversed(self.held) if one.item == item and one.until is None), None)

    def waits(self, item: str) -> bool:
        """Is it due later?"""
        with self.lock:
            return self.due.get(item, ("", 0.0))[1] > time.monotonic()


class Worker:
    """One worker: a process that has the queue, and a thread here that has it claim, work and ack, again and again."""

    def __init__(self, name: str, far: RemoteQueue, book: Book) -> None:
        self.name, self.far, self.book = name, far, book
        self.state = "works"
        self._awake, self._over, self._calling = threading.Event(), threading.Event(), threading.Lock()
        self._awake.set()
        threading.Thread(target=self._live, name=f"worker {name}", daemon=True).start()

    def stall(self) -> None:
        """Stop its time: SIGSTOP, between two calls."""
        self._awake.clear()
        with self._calling:
            self.far.pause()
        self.state = "stalled"

    def wake(self) -> None:
        """It goes on, and does not know that it was away."""
        self.far.resume()
        self.state = "works"
        self._awake.set()

    def kill(self) -> None:
        """SIGKILL, whatever it does."""
        self.state = "killed"
        self._over.set()
        self.far.kill()
        self.book.dead(self.name)
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

        one, fails = self.book.begin(self.name, got.data, got.attempt or 1), got.data.startswith(BAD)
        self._over.wait(WORK)  # this is the work
        try:
            if fails:
                self._call("release", got.number, delay=AGAIN)
            else:
                self._call("ack", got.number)
        except Refused:
            self.book.end(one, "refused")
        else:
            self.book.end(one, "release" if fails else "ack")

    def _call(self, verb: str, *args: Any, **how: Any) -> Any:
        """One call, as soon as its time goes on."""
        while True:
            self._awake.wait()
            with self._calling:
                if self._awake.is_set():
                    return self.far.call(verb, *args, **how)


class _Scene:
    """The queue behind the picture, and what its buttons do."""

    def __init__(self, where: Lab | Kafka) -> None:
        self.cluster = _cluster(where)
        if before := _open.pop((self.cluster.bootstrap, NAME), None):
            before.close()  # a cell run twice
        self.topic, self.name = _place(where)
        _open[self.cluster.bootstrap, NAME] = self
        self.how: dict[str, Any] = {"lease": LEASE, "max_attempts": ATTEMPTS}
        self.session = SESSION if self.cluster.embedded else None
        self.site = Site(self.cluster, self.name, self.session)  # it puts and looks, and never claims
        self.queue = self.site.queue(self.topic, **self.how)
        self.book, self.workers, self.alone = Book(), dict[str, Worker](), threading.Lock()
        self.show: Callable[[], None] = lambda: None
        self._children: list[Children] = []
        self._finish = weakref.finalize(self, forks.only_here(_end), self._children, self.site)
        self._numbers, self._run = count(1), secrets.token_hex(4)
        self._records: dict[int, list[Any]] = {}
        self._letters: set[str] = set()  # ids of the dead
        self.put(*GAMES)
        self.actions = {
            "add": self._then(self.add),
            "stall": self._then(lambda who: self._one(who, "works").stall()),
            "wake": self._then(lambda who: self._one(who, "stalled").wake()),
            "kill": self._then(lambda who: self._one(who, "works", "stalled").kill()),
            "put 6 items": self._then(lambda who: self.put(*GAMES)),
            "put one that fails": self._then(lambda who: self.put(BAD)),
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
        if not self._children:
            self._children.append(Children(modules=["kqlib.queue.site"]))
        site, session, how = self.name, self.session, self.how

        def make(cluster: Kafka, topic: str) -> Any:
            from kqlib.queue import Site

            return Site(cluster, site, session).queue(topic, **how)

        far = RemoteQueue(self._children[0], make, self.cluster, self.topic)
        self.workers[who] = Worker(who, far, self.book)

    def draw(self, who: str, see: str) -> Picture:
        """The queue as it is now, or who has had what."""
        if see == "deliveries":
            with self.book.lock:
                last = self.book.held[-SHOWN:]
            return deliveries(ticks(last), title=f"{self.topic}, lately")
        return self.now()

    def now(self) -> Picture:
        """Both partitions: what is committed, and who has what."""
        self._check_open()
        seen, lanes = look.seen(self.site, self.topic), []
        self._read({number: each.end for number, (each, _) in seen.items()})
        for number, (each, _) in seen.items():
            ledger = state.ledger_from(each, "earliest", self.topic)
            records = [record for record in self._records.get(number, []) if record.offset() < each.end]
            self._bury(number, ledger, [record.offset() for record in records])
            cells = [self._cell(record, f"{self.topic}/{number}", ledger) for record in records]
            lanes.append(view.Lane(number, cells, each.low, each.end, floor=ledger.floor, read=ledger.top))
        said = [f"{name} {worker.state}" for name, worker in self.workers.items()]
        return view.log(lanes, title=", ".join(said) or "nobody works", letters=LETTERS)

    def close(self) -> None:
        """Every worker ends; calling it twice does no harm."""
        with self.alone:
            self._finish()

    def _check_open(self) -> None:
        self.cluster._check_open()
        if not self._finish.alive:
            raise Closed(thing="playground")

    def _cell(self, record: Any, place: str, ledger: Ledger) -> view.Record:
        """A record by what is committed of it, and by who says to have it."""
        at, item = record.offset(), record.value().decode()
        tried = ledger.attempts(at)
        kind, note = placed(at, ledger, f"{place}/{at}" in self._letters)
        if kind == "open":
            holder = self.book.holder(item)
            kind = "claimed" if holder else "due" if self.book.waits(item) else "waiting"
            note = holder.worker if holder else f"×{tried}" if tried and kind == "waiting" else ""
        return view.Record(at, record.key(), kind, note, tried or 1)  # type: ignore[arg-type]

    def _read(self, ends: Mapping[int, int]) -> None:
        """The records, when there are more than before."""
        if any(len(self._records.get(number, [])) < end for number, end in ends.items()):
            self._records = dict(snapshot.records(self.cluster, self.topic))

    def _bury(self, number: int, ledger: Ledger, offsets: Sequence[int]) -> None:
        """Look into the dead letters when something has ended that nobody says to have acked."""
        with self.book.lock:
            good = {one.item for one in self.book.held if one.end == "ack"}
        items = {record.offset(): record.value().decode() for record in self._records.get(number, [])}
        ended = [at for at in offsets if at < ledger.top and ledger.attempts(at) is None and items[at] not in good]
        if any(f"{self.topic}/{number}/{at}" not in self._letters for at in ended):
            found = snapshot.records(self.cluster, self.topic + DEAD).values()
            headers = [dict(letter.headers() or ()) for letters in found for letter in letters]
            self._letters = {(each.get("kq-origin") or b"").decode() for each in headers}

    def _one(self, who: str, *states: str) -> Worker:
        """This worker, if it is in one of these states."""
        worker = self.workers.get(who)
        if worker is None or worker.state == "killed":
            raise NotAllowed(f"'{who}' is not there: add it first")
        if worker.state not in states:
            raise NotAllowed(
                f"'{who}' is not stalled" if states == ("stalled",) else f"'{who}' is stalled: wake it first"
            )
        return worker

    def _then(self, act: Callable[[str], object]) -> Callable[..., None]:
        """An action for a button."""

        def pressed(who: str, see: str) -> None:
            with self.alone:
                self._check_open()
                act(who)

        return pressed

    def _seen(self) -> object:
        """What a picture depends on."""
        try:
            return self.now().text, len(self.book.held)
        except Unreachable:  # for now; looked for again
            return None
        except (Closed, RuntimeError):  # a client's word for closed; `alone` is held by who looks
            self._finish()
            raise Closed(thing="playground") from None


def placed(at: int, ledger: Ledger, dead: bool) -> tuple[str, str]:
    """What the committed state says of an offset: waiting, open, done, dead."""
    if at >= ledger.top:
        return "waiting", ""
    if ledger.attempts(at) is not None:
        return "open", ""
    return ("dead" if dead else "done"), ""


def ticks(held: Sequence[Held]) -> list[Delivery]:
    """Deliveries in the order of what happened, not in seconds: each has room for its words."""
    moments = sorted({(one.begin, 0) for one in held} | {(one.until, 1) for one in held if one.until is not None})
    at, tick = dict[tuple[float, int], int](), 0
    for moment in moments:
        tick += 2
        at[moment] = tick
    last = tick + 2
    found = []
    for one in held:
        until = last if one.until is None else at[one.until, 1]
        found.append(Delivery(one.worker, one.attempt, at[one.begin, 0], until, one.end, _letter(one.item)))
    return found


def _letter(item: str) -> str:
    """The letter of an item's key, by its data."""
    key = item.partition(" ")[0]
    return LETTERS.get(key.encode(), key)


def _cluster(where: Any) -> Kafka:
    cluster = getattr(where, "cluster", where)
    if not hasattr(cluster, "bootstrap"):
        raise NotAllowed(f"this wants a lab or a cluster, as in kq.play.queue(lab), not {type(where).__name__}")
    cluster._check_open()
    return cluster


def _place(where: Any) -> tuple[str, str]:
    """A topic and a site of its own."""
    if hasattr(where, "topic"):
        topic, _ = where.topic(NAME, PARTITIONS), where.topic(NAME + DEAD, PARTITIONS)
        return topic, where.group(NAME)
    Plan({NAME: QueueTopic(partitions=PARTITIONS)}).apply(where, quiet=True)
    return NAME, NAME


def _end(children: list[Children], site: Site) -> None:
    for each in children:
        each.close()
    with suppress(KqError):
        site.close()
