"""The system of a game: a feed with an outbox, a queue, two sites with two workers each, virtual queues, standings, and
an audit that counts.

In:  a cluster of three brokers, `Children`. Out: `System`: programs to start, stop, kill and pause; what was put and what is done.

    feed        writes a row and its job in one transaction of a database, and the newest score into the topic `scores`
    mover       moves the jobs from the database to the queue `football`
    eu-1 eu-2   the workers of site eu. Each appends the number of every item that it has done to a file
    us-1 us-2   the same of site us
    alerts      a site of its own: puts each item into the virtual queue of its game
    node        has the virtual queues, and answers over https
    standings   claims from the virtual queues, and keeps the count of each game in the compacted topic `standings`
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from kqlib import virtual
from kqlib.errors import KqError, NotAllowed, NotInTime
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.writing import write
from kqlib.queue import Retry, Site
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.topics import Plan, QueueTopic, Topic
from kqlib.virtual.outbox import Outbox
from kqlib.workshop.children import ChildEnded, Children, Fork
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.cluster.node import HOST, free_ports
from kqlib.workshop.cluster.secure import certify

QUEUE, SCORES, ARCHIVE, GAME_QUEUES, STANDINGS = "football", "scores", "archive", "games", "standings"
SITES = ("eu", "us")
COUNTED = (*SITES, STANDINGS)
PROGRAMS = ("feed", "mover", *(f"{site}-{number}" for site in SITES for number in (1, 2)), "alerts", "node", STANDINGS)
DAY = 86_400_000  # milliseconds
PLAN = Plan(
    {
        QUEUE: QueueTopic(partitions=3, config={"min.insync.replicas": 2}),
        SCORES: Topic(compact=True, config={"delete.retention.ms": DAY}),
        ARCHIVE: Topic(replicas=2),
        STANDINGS: Topic(compact=True),
        **virtual.topics(GAME_QUEUES, partitions=3),
    }
)
# A follower fetches little at once: else a throttle of 1 kB a second would let 1 MB pass every ten seconds.
BROKERS = {"replica.fetch.max.bytes": 20_000}
EVERY = 0.2  # seconds from one row of the feed to the next
GAMES = 12
SESSION = 6.0  # seconds until a worker that hangs has lost its partitions
STOPS = 20.0 * PATIENCE
ANSWER = 3.0 * PATIENCE  # seconds for one answer of the node
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


def alerts(line: Connection, address: str, folder: str, name: str) -> None:
    """Each item into the virtual queue of its game, until something is sent."""

    def put(item: Any) -> None:
        client.queue(item.key.decode()).put(item.data)

    with game_queues(folder) as client, Site(Kafka(address, {"client.id": name}), name) as site:
        while not line.poll(EVERY):
            with suppress(*AWAY):
                queue = site.queue(QUEUE, max_attempts=None)
                queue.work(put, threads=16, retry=Retry.fixed(1), until=line.poll)


def node(line: Connection, address: str, folder: str, name: str) -> None:
    """Serve the virtual queues, until something is sent. The certificate is read at the start."""
    url, pem = Path(folder, "node.url").read_text(), f"{folder}/tls/node.pem"
    logging.info("%s, certificate %s; the authority's newest one is renewed.pem beside it", url, pem)
    how = {"port": int(url.rpartition(":")[2]), "tls": (pem, pem), "session": SESSION}
    with virtual.Node(Kafka(address, {"client.id": name}), GAME_QUEUES, **how):
        while not line.poll(EVERY):
            pass


def standings(line: Connection, address: str, folder: str, name: str) -> None:
    """Count the items of each game, until something is sent. An item that comes twice is counted once."""
    producer, done = Producer(Kafka(address).client(client_id=name)), Path(folder, f"{name}.done")
    done.touch()
    seen = set(map(int, done.read_text().split()))
    with game_queues(folder) as client, done.open("a") as file:
        while not line.poll(EVERY):
            for at in range(GAMES):
                with suppress(*AWAY):
                    queue = client.queue(f"game-{at}", name, max_attempts=0)
                    if not (items := queue.claim_many(100)):
                        continue
                    new = {number for item in items if (number := number_of(item.data)) is not None} - seen
                    seen |= new
                    file.writelines(f"{number}\n" for number in new)
                    file.flush()
                    producer.produce(STANDINGS, str(sum(number % GAMES == at for number in seen)), f"game-{at}")
                    if not producer.flush(ANSWER):
                        queue.ack_many(items)


def game_queues(folder: str) -> virtual.Client:
    """A client of the node."""
    url, ca = Path(folder, "node.url").read_text(), f"{folder}/tls/ca.pem"
    return virtual.Client(url, ca=ca, patience=ANSWER)


def number_of(data: bytes | None) -> int | None:
    """The number of an item's row; None if it cannot be read."""
    with suppress(ValueError, TypeError, KeyError):
        return int(json.loads(data or b"")["number"])
    return None


def program(line: Connection, address: str, folder: str, name: str) -> None:
    """One of the programs. Its log is NAME.log."""
    log = Path(folder) / f"{name}.log"
    logging.basicConfig(filename=log, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else each request is a line
    try:
        own = {"feed": feed, "mover": mover, "alerts": alerts, "node": node, STANDINGS: standings}
        own.get(name, worker)(line, address, folder, name)
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
        self.tls, [self._port] = self.folder / "tls", free_ports(1)
        self.tls.mkdir(mode=0o700)
        certify(self.tls, node=365, renewed=365, expired=-0.5)
        self.expired = (self.tls / "expired.pem").read_bytes()  # a fault puts it in place
        (self.tls / "expired.pem").unlink()
        (self.folder / "node.url").write_text(f"https://{HOST}:{self._port}")
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
        write(self.cluster, [{"topic": ARCHIVE, "value": RECORD}] * records, 5, batch_size=len(RECORD))

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

    def node_answers(self) -> bool:
        """Does the node answer, with a certificate that is valid now?"""
        context = ssl.create_default_context(cafile=self.tls / "ca.pem")
        try:
            with socket.create_connection((HOST, self._port), ANSWER) as line:
                context.wrap_socket(line, server_hostname=HOST).close()
        except OSError:
            return False
        return True

    def log(self, name: str) -> Path:
        """The file with the log of a program."""
        if name in self.programs:
            return self.folder / f"{name}.log"
        return self.cluster.broker(int(name.removeprefix("broker-"))).log

    # --- the audit ---

    def counts(self) -> Counts:
        """The audit now."""
        put = self._db.execute("SELECT COUNT(*) FROM put").fetchone()[0]
        done = {site: Counter(self._done(site)) for site in COUNTED}
        missing = {site: put - len(found) for site, found in done.items()}
        doubled = sum(times > 1 for found in done.values() for times in found.values())
        return Counts(put, self._outbox.waiting(), len(self._outbox.aside()), missing, doubled)

    def lost(self, most: int = 10) -> list[str]:
        """The first items that a site has not done, by name."""
        put = [number for (number,) in self._db.execute("SELECT rowid FROM put ORDER BY 1")]
        left = [
            (site, number) for site in COUNTED for done in [{*self._done(site)}] for number in put if number not in done
        ]
        return [f"{site}: item {number} of game-{number % GAMES}" for site, number in left[:most]]

    def _done(self, site: str) -> Iterator[int]:
        """The numbers of the items that a site has done."""
        for file in self.folder.glob(f"{site}*.done"):
            yield from map(int, file.read_text().split())

    def close(self) -> None:
        """Close what this process has opened. The programs end with their `Children`."""
        for site in self.sites.values():
            site.close()
        self._db.close()
