"""A night of accidents for the system that notebook 15 builds: `night(cluster, steps, seed=7)`.

In:  a cluster with a wire, the functions of the notebook (`Steps`), a seed. Out: `Report`: what was lost and doubled, what was
late, how long after each accident work went on, and whether the standings equal the truth.

The system is one feeder, two workers of the sports, a node of virtual queues and a worker of the small games. Each is a process, and
they reach the brokers through the wire. Between the chunks of the feed an accident happens; the seed draws their order, the games and
the process or broker that is hit. A chunk that was sent to a feeder that died is sent again. The first chunks of football bring a
small game each. The accidents hit small games too, but for the burst, the poison game and the schema; and their node is never killed.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import httpx
from confluent_kafka import KafkaException

from kqlib.errors import KqError, NotAllowed, NotInTime, Unreachable
from kqlib.kafka.cluster import Kafka
from kqlib.queue import Queue, Site
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.schemas import Registry
from kqlib.virtual.client import Client
from kqlib.virtual.names import DEAD
from kqlib.virtual.node import Node
from kqlib.virtual.outbox import Outbox
from kqlib.workshop.checks.trial import is_stub
from kqlib.workshop.children import ChildEnded, Children, Fork
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import SeasonEvent
from kqlib.workshop.promises.scenario import listed
from kqlib.workshop.two_sports import SPORTS, SUBJECT, TABLE, Dies, Row, anew, latest, of_games, records, truth

T = TypeVar("T")
CHUNK = 8  # rows of the feed at once; twenty times as many in a burst
LONGEST = 240.0 * PATIENCE  # seconds until a feeder has stored a chunk, and until all is worked on
SITE = "scores"
LOOK = 0.5  # seconds between two looks: each reads a whole topic, or looks through both queues
# seconds until the other worker gets a killed one's partitions; a night waits a minute
SESSION = min(3.0 * PATIENCE, 30.0)
LEASE = PATIENCE  # the same for an item of a small game
SMALL = 20  # games with a queue of their own; more than the accidents take
KICK_OFF, FINAL = 0, 1  # the rows of a small game
DONE = "CREATE TABLE done (game, number)"  # what was done of the small games
AWAY = (KafkaException, Unreachable)  # a broker does not answer now
HOURS = 2 * 3_600_000  # how late a late event is, in milliseconds


@dataclass(frozen=True)
class Steps:
    """The functions that a reader writes."""

    plan: Callable[..., Any]
    reader: Callable[..., Any]
    store: Callable[..., Any]
    work: Callable[..., Any]
    small_games: Callable[..., Any]
    pipeline: Callable[..., Any]


@dataclass
class Report:
    """What a night did to the system."""

    accidents: list[str] = field(default_factory=list)
    recovered: dict[str, float] = field(default_factory=dict)  # seconds from an accident until work went on
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    dead: int = 0
    late: int = 0
    differ: list[str] | None = None  # teams whose row is not the truth; None: the standings were not compared

    def __repr__(self) -> str:
        verdict = "were not compared"
        if self.differ is not None:
            verdict = f"differ from the truth for {len(self.differ)} teams" if self.differ else "equal the truth"
        return (
            f"{len(self.accidents)} accidents, {self.rows:,} rows: {self.lost} lost, {self.doubled} doubled, {self.dead} dead, "
            f"{self.late} late; the standings {verdict}"
        )


def feeder(line: Connection, where: tuple[str, Any], url: str, steps: Steps, folder: Path) -> None:
    """A process: it stores each chunk that it gets, and moves the jobs to their queues."""
    with (
        closing(sqlite3.connect(folder / "feed.db", timeout=30)) as db,
        Site(Kafka(*where), "feed") as site,
        Client(url) as client,
    ):
        outbox = Outbox(db)

        def queue(name: str) -> Any:
            return site.queue(name, max_attempts=None) if name in SPORTS else client.queue(name)

        while (job := line.recv()) is not None:
            rows, dies = job
            steps.store(db, Dies(db) if dies else outbox, rows)
            while outbox.waiting():
                with suppress(KqError):  # no broker now: the jobs wait
                    outbox.move(queue)
            line.send(len(rows))


def worker(line: Connection, where: tuple[str, Any], steps: Steps) -> None:
    """A process: it works on both sports in turn, until something is sent."""
    cluster = Kafka(*where)
    read = steps.reader(Registry(cluster=cluster), SUBJECT)

    def handle(item: Any) -> bytes | None:
        (value,) = wait_for(lambda: (read(item.data),), LONGEST, "the registry", not_yet=AWAY)
        return str(value["team"]).encode() if value["kind"] == "goal" else None

    with Site(cluster, SITE) as site:
        while not line.poll(LOOK):
            for sport in SPORTS:
                with suppress(KqError):  # no broker now
                    steps.work(site, sport, handle)
    line.send("ended")


def node(line: Connection, where: tuple[str, Any]) -> None:
    """A process: it answers for the queues of the small games."""
    with Node(Kafka(*where), "small") as this:
        line.send(this.url)
        line.recv()


class QuickClient(Client):
    """A client whose leases are short: the items of a killed worker come back soon."""

    def queue(self, name: str, consumer: str = "default", **how: Any) -> Any:
        """A queue."""
        return super().queue(name, consumer, **{"lease": LEASE, **how})


def small_worker(line: Connection, url: str, steps: Steps, folder: Path) -> None:
    """A process: it works on each small game that has a queue, until something is sent. `hang_file(folder)` makes it hang."""

    def handle(name: str, item: Any) -> bool:
        with suppress(FileNotFoundError):
            hang_file(folder).unlink()
            time.sleep(LONGEST)  # until it is killed
        number = int(item.data)
        with closing(sqlite3.connect(folder / "done.db", timeout=30)) as db:
            inbox = Outbox(db)
            with db:
                if inbox.first(item):  # a lease may end before the ack: then the item comes again
                    db.execute("INSERT INTO done VALUES (?, ?)", (name, number))
        return number == FINAL

    with QuickClient(url) as client:
        while not line.poll(LOOK):
            with suppress(KqError, httpx.HTTPError):  # no node now
                steps.small_games(client, small_queues(client), handle)
    line.send("ended")


def hang_file(folder: Path) -> Path:
    """A file. While it is there, the handler of the next small game's item deletes it and hangs."""
    return folder / "hangs"


def small_queues(client: Client) -> list[str]:
    """The small games that have a queue."""
    return [name for name in client.queues() if not name.endswith(DEAD)]


class Night:
    """One night."""

    def __init__(self, cluster: Cluster, steps: Steps, seed: int, children: Children, folder: Path) -> None:
        self.cluster, self.steps, self.children = cluster, steps, children
        self.chance = Random(seed)
        self.report = Report()
        self.where, self.folder = (cluster.wire.bootstrap, None), folder
        for file, table in (("feed.db", TABLE), ("done.db", DONE)):
            with closing(sqlite3.connect(folder / file)) as db:
                db.execute(table)
        self.registry = Registry(cluster=cluster)
        # more rows than the accidents take
        self.football = iter(of_games(seasons.rows(1_000, seed=seed, sport="football", versions=(3, 4)), 36))
        self.basketball = iter(of_games(seasons.rows(600, seed=seed, sport="basketball"), 2))
        self.playing = [self.football]  # basketball comes by accident
        self.sent: list[SeasonEvent] = []
        self.small: list[Row] = []  # the rows of small games that were sent
        self.size = CHUNK
        self.dies = False  # at the next chunk
        anew(cluster, steps.plan(1))
        Site(cluster, SITE, session=SESSION).close()  # it is set for the whole group
        self.node = children.fork(node, self.where)
        self.url = self.node.receive(LONGEST)
        self.feeder = self._feeder()
        self.workers = [self._worker(at) for at in range(3)]  # the last one has the small games

    def _feeder(self) -> Fork:
        return self.children.fork(feeder, self.where, self.url, self.steps, self.folder)

    def _worker(self, at: int) -> Fork:
        if at < len(SPORTS):
            return self.children.fork(worker, self.where, self.steps)
        return self.children.fork(small_worker, self.url, self.steps, self.folder)

    # --- accidents ---

    def broker_killed(self) -> None:
        """A broker is killed, and comes back."""
        number = self.chance.choice(self.cluster.running)
        self.cluster.broker(number).kill()
        self.cluster.broker(number).start()

    def deployment(self) -> None:
        """All workers end, one after the other, and others come."""
        for at, old in enumerate(self.workers):
            old.send("end")
            old.receive(LONGEST)
            self.workers[at] = self._worker(at)

    def worker_killed(self) -> None:
        """A worker of each kind is killed, and others come."""
        hang_file(self.folder).touch()
        self.store(self.small_game())
        wait_for(self.hung, LONGEST, "a worker to hold an item of a small game", not_yet=AWAY)
        for at in (self.chance.randrange(2), 2):
            self.workers[at].kill()
            self.workers[at] = self._worker(at)

    def hung(self) -> bool:
        """Does the worker of the small games hang, with an item in work?"""
        self.done()
        return not hang_file(self.folder).exists()

    def feeder_dies(self) -> None:
        """The feeder dies in the middle of a chunk, and the feed sends that chunk again."""
        self.dies = True

    def wire_cut(self) -> None:
        """Nothing reaches the brokers for a moment."""
        self.cluster.wire.cut()
        time.sleep(1)
        self.cluster.wire.heal()

    def burst(self) -> None:
        """The next chunk is twenty times as large."""
        self.size = 20 * CHUNK

    def poison(self) -> None:
        """A game with events that no one can read."""
        game = self.chance.choice(self.sent).game.encode()
        seasons.produce(self.cluster, "football", [(game, b"rubbish", -1)] * 2)

    def schema_early(self) -> None:
        """Basketball comes, with a newer version of the schema than the one that the workers read."""
        self.playing.append(self.basketball)

    ACCIDENTS = (broker_killed, deployment, worker_killed, feeder_dies, wire_cut, burst, poison, schema_early)

    # --- the feed ---

    def run(self) -> None:
        """Chunk by chunk, with the accidents between them."""
        for accident in self.chance.sample(self.ACCIDENTS, len(self.ACCIDENTS)):
            self.next_chunks()
            name = str(accident.__doc__).rstrip(".")
            begun = time.monotonic()
            accident(self)
            before = self.asked(self.done)  # what was done while the accident itself waited does not count
            self.report.accidents.append(name)
            self.next_chunks()
            self.goes_on(before, name)
            self.report.recovered[name] = time.monotonic() - begun
        while self.next_chunks():
            pass

    def next_chunks(self) -> bool:
        """Send the next chunk of each sport. Were there rows?"""
        return sum(self.feed(sport) for sport in self.playing) > 0

    def feed(self, rows: Iterator[SeasonEvent]) -> bool:
        """Send the next chunk, again and again until a feeder has stored it. Were there rows?"""
        now = int(time.time() * 1000)
        chunk = [row._replace(at=now) for _, row in zip(range(self.size), rows, strict=False)]
        if chunk and self.chance.random() < 0.3:
            chunk[0] = chunk[0]._replace(at=now - HOURS)
            self.report.late += 1
        self.size = CHUNK
        self.sent += chunk
        made = self.asked(lambda: list(seasons.messages(chunk, self.registry, SUBJECT)))
        job = [
            Row(row.league, row.number, row.game, data or b"") for row, (_, data, _) in zip(chunk, made, strict=True)
        ]
        self.store(job + self.small_game() if chunk and rows is self.football else job)
        return bool(chunk)

    def small_game(self) -> list[Row]:
        """The rows of the next small game; none if all have been played. Its queue has its name."""
        if len(self.small) >= 2 * SMALL:
            return []
        name = f"small-{len(self.small) // 2}"
        rows = [Row(name, number, name, b"%d" % number) for number in (KICK_OFF, FINAL)]
        self.small += rows
        return rows

    def store(self, job: list[Row]) -> None:
        """Send rows, again and again until a feeder has stored them."""
        while job:
            dies, self.dies = self.dies, False
            self.feeder.send((job, dies))
            try:
                self.feeder.receive(LONGEST)
                break
            except NotInTime:
                self.done()  # the error of a worker or of the node says why
                raise
            except ChildEnded:
                if not dies:  # it failed by itself
                    raise
            self.feeder = self._feeder()

    def goes_on(self, before: int, name: str) -> None:
        """Wait until more events are worked on than before."""
        wait_for(lambda: self.done() > before, LONGEST, f"work to go on after: {name}", not_yet=AWAY)

    def asked(self, ask: Callable[[], T]) -> T:
        """The answer. A broker that has just come back may not have it yet."""
        return wait_for(lambda: (ask(),), LONGEST, "the brokers to answer", not_yet=AWAY)[0]

    def done(self) -> int:
        """How many events were worked on. `ChildEnded` with the error of a worker or of the node if it failed."""
        for each in (*self.workers, self.node):
            with suppress(NotInTime):
                each.receive(0)
        return len(records(self.cluster, "events"))

    def empty(self, queues: list[Queue], client: Client) -> bool:
        """Is all worked on?"""
        self.done()
        small = (client.queue(name, "scores").depth() for name in {row.league for row in self.small})
        return not any(queue.depth() for queue in queues) and not any(small)

    def end(self, spark: Any, home: str) -> Report:
        """Wait until all is worked on, and judge."""
        with Site(self.cluster, SITE) as site, Client(self.url) as client:
            queues = [site.queue(sport) for sport in SPORTS]
            wait_for(lambda: self.empty(queues, client), LONGEST, "all queues to be empty", not_yet=AWAY)
        for each in self.workers:
            each.send("end")
            each.receive(LONGEST)
        self.feeder.send(None)
        self.node.send("end")
        report, read = self.report, self.steps.reader(self.registry, SUBJECT)
        values = [read(event.value()) for event in self.asked(lambda: records(self.cluster, "events"))]
        found = Counter((value["league"], value["number"]) for value in values)
        with closing(sqlite3.connect(self.folder / "done.db")) as db:
            found.update(db.execute("SELECT game, number FROM done"))
        asked = {(row.league, row.number) for row in self.sent} | {row[:2] for row in self.small}
        report.rows, report.lost = len(asked), len(asked - found.keys())
        report.dead = len(records(self.cluster, "football.dead"))
        report.doubled = sum(number > 1 for number in found.values())
        if spark is not None:
            self.steps.pipeline(spark, self.cluster, self.registry, home)
            rows = latest(self.cluster, self.registry, "standings").items()
            counted = {team: (row["points"], row["scored"], row["results"]) for team, row in rows}
            true = truth(self.sent)
            report.differ = sorted(team for team in true.keys() | counted if true.get(team) != counted.get(team))
        return report


def night(cluster: Cluster, steps: Steps, seed: int = 7, spark: Any = None) -> Report:
    """Run the system through one night. spark: a session for the standings; without one they are not compared."""
    if missing := [name for name, step in vars(steps).items() if is_stub(step)]:
        raise NotAllowed(f"the night runs the whole system, and {listed(missing)} has no code yet")
    modules = ["kqlib.virtual.outbox", "kqlib.queue", "kqlib.schemas", __name__]
    with tempfile.TemporaryDirectory() as folder, Children(modules=modules) as children:
        this = Night(cluster, steps, seed, children, Path(folder))
        this.run()
        return this.end(spark, folder)
