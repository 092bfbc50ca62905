"""The system of a game: a feed with an outbox, a queue, two sites with two workers each, and an audit that counts.

In:  a cluster of three brokers, `Children`. Out: `System`: programs to start, stop, kill and pause; what was put and what is done.

    feed        writes a row and its job in one transaction of a database, and the newest score into the topic `scores`
    mover       moves the jobs from the database to the queue `football`
    eu-1 eu-2   the workers of site eu. Each appends the number of every item that it has done to a file
    us-1 us-2   the same of site us
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from kqlib.errors import KqError, NotAllowed, NotInTime
from kqlib.kafka.cluster import Kafka
from kqlib.queue import Retry, Site
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.topics import Plan, QueueTopic, Topic
from kqlib.virtual.outbox import Outbox
from kqlib.workshop.children import ChildEnded, Children, Fork
from kqlib.workshop.cluster import Cluster

QUEUE, SCORES, ARCHIVE = "football", "scores", "archive"
SITES = ("eu", "us")
PROGRAMS = ("feed", "mover", *(f"{site}-{number}" for site in SITES for number in (1, 2)))
DAY = 86_400_000  # milliseconds
PLAN = Plan(
    {
        QUEUE: QueueTopic(partitions=3, config={"min.insync.replicas": 2}),
        SCORES: Topic(compact=True, config={"delete.retention.ms": DAY}),
        ARCHIVE: Topic(replicas=2),
    }
)
# A follower fetches little at once: else a throttle of 1 kB a second would let 1 MB pass every ten seconds.
BROKERS = {"replica.fetch.max.bytes": 20_000}
EVERY = 0.2  # seconds from one row of the feed to the next
GAMES = 12
SESSION = 6.0  # seconds until a worker that hangs has lost its partitions
STOPS = 20.0 * PATIENCE
RECORD, RECORDS = b"." * 10_000, 300  # the archive: 3 MB
AWAY = (KafkaException, KqError, TimeoutError)  # a broker, or a topic, is not there now


@dataclass(frozen=True)
class Counts:
    """The audit: how many items were put, wait in the outbox or are aside there; what each site has not done."""

    put: int
    waiting: int
    aside: int
    missing: dict[str, int]
    doubled: int


# --- the programs -----------------------------------------------------------------------------------------------------


def feed(line: Connection, address: str, folder: str, name: str) -> None:
    """Rows and their jobs, until something is sent."""
    producer = Producer(Kafka(address).client(client_id=name))
    with closing(database(folder)) as db:
        outbox = Outbox(db)
        while not line.poll(EVERY):
            with db:
                number = db.execute("INSERT INTO put VALUES (NULL)").lastrowid or 0
                game = f"game-{number % GAMES}"
                outbox.add(QUEUE, json.dumps({"number": number, "game": game}).encode(), game.encode())
            with suppress(BufferError):  # the brokers have been away for long
                producer.produce(SCORES, None if number % 50 == 0 else str(number), game)
            producer.poll(0)


def mover(line: Connection, address: str, folder: str, name: str) -> None:
    """Jobs from the outbox to their queue, until something is sent. At its start those that are aside get another chance."""
    with closing(database(folder)) as db, Site(Kafka(address, {"client.id": name}), "feed") as site:
        outbox = Outbox(db)
        outbox.back()
        while not line.poll(EVERY):
            with suppress(*AWAY):
                outbox.move(lambda queue: site.queue(queue, max_attempts=None))


def worker(line: Connection, address: str, folder: str, name: str) -> None:
    """Work on items, until something is sent."""
    done = os.open(Path(folder) / f"{name}.done", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def handle(item: Any) -> None:
        number = json.loads(item.data)["number"]
        time.sleep(0.01)
        os.write(done, b"%d\n" % number)

    with Site(Kafka(address, {"client.id": name}), name.partition("-")[0]) as site:
        while not line.poll(EVERY):
            with suppress(*AWAY):
                site.queue(QUEUE).work(handle, threads=2, retry=Retry.fixed(0.2), until=line.poll)


def program(line: Connection, address: str, folder: str, name: str) -> None:
    """One of the programs. Its log is NAME.log."""
    log = Path(folder) / f"{name}.log"
    logging.basicConfig(filename=log, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        {"feed": feed, "mover": mover}.get(name, worker)(line, address, folder, name)
    except Exception:
        logging.exception("%s ended", name)
        raise


def database(folder: str) -> sqlite3.Connection:
    """The database of the feed and the mover."""
    db = sqlite3.connect(Path(folder) / "feed.db", timeout=30, check_same_thread=False)  # the clock and a command count
    db.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing by that
    return db


# --- the system -------------------------------------------------------------------------------------------------------


class System:
    """All of it, running."""

    def __init__(self, cluster: Cluster, children: Children) -> None:
        self.cluster, self._children = cluster, children
        self.folder = children.home
        self.plan = self.folder / "plan.toml"
        PLAN.write(self.plan)
        PLAN.apply(cluster, quiet=True)
        self._db = database(str(self.folder))
        self._db.execute("CREATE TABLE put (number INTEGER PRIMARY KEY)")
        self._outbox = Outbox(self._db)
        self.archive(RECORDS)
        self.sites = {name: Site(cluster, name, session=SESSION) for name in SITES}  # to look: they never claim
        for site in self.sites.values():
            site.queue(QUEUE).dead.depth()  # from now on the site is known to use its dead letters: they can be purged
        self.producers = list[Producer]()  # of transactions that stay open
        self.programs: dict[str, Fork] = {}
        for name in PROGRAMS:
            self.start(name)

    def archive(self, records: int) -> None:
        """Write so many records into the archive, each in a request of its own."""
        producer = Producer(self.cluster.client(batch_size=len(RECORD)))
        for _ in range(records):
            producer.produce(ARCHIVE, RECORD)
        producer.flush(5)

    def start(self, name: str) -> None:
        """Start a program."""
        self.programs[name] = self._children.fork(program, self.cluster.bootstrap, str(self.folder), name)

    def stop(self, name: str) -> None:
        """End a program in good order. Return when it is gone."""
        with suppress(ChildEnded):
            self.programs[name].send("end")
        try:
            wait_for(lambda: not self.running(name), STOPS, f"{name} to end")
        except NotInTime:
            self.programs[name].kill()

    def restart(self, name: str) -> None:
        """Kill a program or a broker if it runs, and start it."""
        if name in self.programs:
            self.programs[name].kill()
            self.start(name)
        elif name in self.services:
            self.cluster.broker(int(name.removeprefix("broker-"))).kill().start()
        else:
            raise NotAllowed(f"there is no program {name!r}; choose from {', '.join(self.services)}")

    @property
    def services(self) -> list[str]:
        """What runs, by name."""
        return [*(f"broker-{number}" for number in self.cluster._brokers), *PROGRAMS]

    def running(self, name: str) -> bool:
        """Is there a process? One that hangs counts as running."""
        if name not in self.programs:
            return self.cluster.broker(int(name.removeprefix("broker-"))).alive
        try:
            self.programs[name].receive(0)
        except ChildEnded:
            return False
        except NotInTime:
            return True
        return False

    def log(self, name: str) -> Path:
        """The file with the log of a program."""
        if name in self.programs:
            return self.folder / f"{name}.log"
        return self.cluster.broker(int(name.removeprefix("broker-"))).log

    # --- the audit ---

    def counts(self) -> Counts:
        """The audit now."""
        put = self._db.execute("SELECT COUNT(*) FROM put").fetchone()[0]
        done = {site: Counter(self._done(site)) for site in SITES}
        missing = {site: put - len(found) for site, found in done.items()}
        doubled = sum(times > 1 for found in done.values() for times in found.values())
        return Counts(put, self._outbox.waiting(), len(self._outbox.aside()), missing, doubled)

    def _done(self, site: str) -> Iterator[int]:
        """The numbers of the items that a site has done."""
        for file in self.folder.glob(f"{site}-*.done"):
            yield from map(int, file.read_text().split())

    def close(self) -> None:
        """Close what this process has opened. The programs end with their `Children`."""
        for site in self.sites.values():
            site.close()
        self._db.close()
