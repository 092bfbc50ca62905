"""One run of a command under `kq crash`: topics of its own, an accident, its lives until the work is done, and the verdict.

In:  a cluster with a wire for this run alone, a command, the points of its accidents. Out: a `Run`.
A run is over when the command exits with 0, or a second after the group's commits have reached the topic's end. It is also over when
nothing but polls has crossed for some seconds, or when no result has come for half a minute. Then the command gets SIGTERM, and its
shutdown is a part of the run.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kqlib.errors import Closed, NotAllowed
from kqlib.kafka import reading
from kqlib.kafka.writing import settled, write
from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.children import START, Children, Command
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.crash.leaving import tidy
from kqlib.workshop.crash.verdict import Id, Judge, Pair, Verdict, judged, last_number, make_items
from kqlib.workshop.wire.control import Wire
from kqlib.workshop.wire.crossing import POLLS, Crossing
from kqlib.workshop.wire.messages import BrokerConnection

FETCHES = ("Fetch", "ShareFetch")
LIVES = 6  # a command that was restarted so often does not end
LOOK = 0.05
ENDS = 10.0 * PATIENCE  # seconds from SIGTERM to the end
AFTER_END = 1.0  # seconds after the group's commits are at the topic's end
FIRST = 60.0 * PATIENCE  # seconds until a command asks for records
BUSY = 30.0 * PATIENCE  # seconds without a new result, for a command whose other requests never end
# Seconds until a client has gone on after an accident: librdkafka waits 60 s for an answer (socket.timeout.ms), Java 30 s
# (request.timeout.ms), and both up to 10 s before they connect again.
GOES_ON = {"drop-answer": 65.0, "cut": 15.0, "error": 15.0}
RAW = "read_uncommitted"
ACCIDENTS = ("kill", "stop", "drop-answer", "cut", "error")
WORDS = {"kill": "killed", "stop": "stopped", "drop-answer": "answer dropped", "cut": "connection closed"}


@dataclass(frozen=True)
class Point:
    """Where an accident happens: the nth request of a kind in a run, before it reaches the broker or after it was done."""

    api: str
    nth: int
    when: str
    error: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.api, str(self.nth), self.when, self.error)))

    @classmethod
    def read(cls, text: str) -> Point:
        """A point as it was printed."""
        api, nth, when, error = (*text.split(":"), "", "", "")[:4]
        if not nth.isdigit() or int(nth) < 1 or when not in ("before", "after") or text.count(":") > 3:
            raise NotAllowed(f"a point is written like Produce:2:after, not {text!r}")
        return cls(api, int(nth), when, error)


@dataclass(frozen=True)
class Setup:
    """What is the same in all runs."""

    command: Sequence[str]
    items: int = 4
    accident: str = "kill"
    quiet: float = 3.0
    pause: float = 20.0
    takeover: bool = False  # a second worker starts while the first is stopped
    patient: bool = False
    of: Id = last_number
    judge: Judge | None = None


@dataclass(frozen=True)
class Life:
    """From a start of the command to its end."""

    ended: str  # killed, exit, commits, quiet
    code: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One run and what came of it."""

    topic: str
    points: tuple[Point, ...]
    verdict: Verdict
    lives: tuple[Life, ...]
    reached: bool  # did every accident happen?
    seconds: float
    recovery: float | None  # seconds from the first death to the next result's request
    crossed: tuple[Crossing, ...] = field(repr=False)
    output: str = field(repr=False, default="")
    ids: frozenset[tuple[str, str]] = frozenset()  # groups and transactional ids that were used
    died: bool = False  # at an accident that a worker can survive

    @property
    def work(self) -> list[Crossing]:
        """The crossings that are no polls."""
        return [each for each in self.crossed if not each.poll]

    @property
    def counts(self) -> Counter[str]:
        """How many requests of each kind."""
        return Counter(each.api for each in self.crossed)

    def wrong(self, allowed: Iterable[str] = ()) -> list[str]:
        """The kinds of what went wrong."""
        return self.verdict.wrong(allowed) + ["died"] * (self.died and "died" not in allowed)

    @property
    def failed(self) -> str:
        """Why this run says nothing, if so: the command did not end well."""
        last = self.lives[-1]
        if last.ended == "exit" and last.code:
            often = f" {len(self.lives)} times, at last" if len(self.lives) > 1 else ""
            return f"the command ended{often} with exit status {last.code}"
        if self.points and not self.reached and self.verdict.lost:
            return f"{self.verdict} although the accident did not happen: was the run over too early (--quiet)?"
        return ""


class Runner:
    """It runs a command on one wire, one run after the other."""

    def __init__(self, cluster: Cluster, wire: Wire, children: Children, setup: Setup, prefix: str) -> None:
        self.wire, self._setup, self._cluster, self._children = wire, setup, cluster, children
        self._prefix = prefix  # of topics, groups and transactional ids
        self._stopped = threading.Event()
        self._topic = set[str | bytes]()  # of the items
        port = int(cluster.bootstrap.split(",")[0].rpartition(":")[2])
        self._broker = BrokerConnection(wire.messages, port)

    def run(self, name: str, points: Sequence[Point] = ()) -> Run:
        """Run the command from a fresh start, with these accidents."""
        name = f"{self._prefix}-{name}"
        begun = time.monotonic()
        items = make_items(self._setup.items)
        self._make(name, items)
        self.wire.heal()
        self.wire.clear()
        log = self._children.home / f"{name}.log"
        for point in points:
            self._arm(point)
        lives: list[Life] = []
        while len(lives) < (LIVES if points else 1):  # without an accident nothing starts it again
            life = self._live(name, log)
            done = [] if self._setup.patient else tidy(self.wire.seen(), self._broker)
            lives.append(replace(life, notes=(*life.notes, *done)))
            if life.ended in ("commits", "quiet") or (life.ended == "exit" and not life.code):
                break
        reached = self.wire.wait(0)
        self.wire.heal()
        crossed = _numbered(self.wire.seen())
        return Run(
            name,
            tuple(points),
            judged(items, self._results(name), self._setup.of, self._setup.judge),
            tuple(lives),
            reached,
            time.monotonic() - begun,
            _recovery(crossed),
            tuple(crossed),
            log.read_text(errors="replace") if log.exists() else "",
            _ids(crossed),
            self._setup.accident != "kill" and not self._setup.takeover and len(lives) > 1,
        )

    def stop(self) -> None:
        """Let the run that is on end at once, without a verdict."""
        self._stopped.set()

    def close(self) -> None:
        """Close the connection to the broker."""
        self._broker.close()

    def _make(self, name: str, items: Sequence[Pair]) -> None:
        """The two topics, and the items in the first."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import NewTopic

        admin = self._cluster.admin
        settled(admin.create_topics([NewTopic(name, 1), NewTopic(f"{name}-results", 1)]), "created", 30)
        records = ({"topic": name, "key": key, "value": value} for key, value in items)
        if why := write(self._cluster, records, 30, linger_ms=0):
            raise NotAllowed(f"the items of a run could not be stored: {why}")
        id_ = str(admin.describe_topics(TopicCollection([name]))[name].result(30).topic_id)
        self._topic = {name, urlsafe_b64decode(f"{id_}==")}  # as old requests name it, and as new ones do

    def _arm(self, point: Point) -> None:
        """The rule of one accident. A process group is killed as a whole; its number comes with its start."""
        accident, api, nth, when = self._setup.accident, point.api, point.nth, point.when
        if accident == "error":
            self.wire.error(api, point.error, nth, when)
        elif accident == "cut":
            self.wire.disconnect(api, nth, when)
        elif accident == "drop-answer":
            self.wire.drop(api, nth)
        else:
            self.wire.kill_group(api, nth, when, "KILL" if accident == "kill" else "STOP")

    def _live(self, name: str, log: Path) -> Life:
        """Start the command and watch it until its end."""
        running = [self._start(name, log)]
        self.wire.set_group(running[0].started(START))
        try:
            return self._watch(running, name, log)
        finally:
            for each in running:
                each.kill()

    def _start(self, name: str, log: Path, label: str = "") -> Command:
        """Start the command. It finds its work in the environment."""
        names = {"TOPIC": name, "RESULTS": f"{name}-results", "GROUP": name, "TXN": name}
        env = {
            **os.environ,
            **{f"KQ_{key}": value for key, value in names.items()},
            "KQ_BOOTSTRAP": self.wire.bootstrap,
        }
        env.pop("KQ_KAFKA_CONFIG", None)
        return self._children.run(name + label, self._setup.command, log, env)

    def _watch(self, running: list[Command], name: str, log: Path) -> Life:
        """Until the command ends, or has nothing left to do. A client that has no partition yet fetches nothing: it is waited for."""
        child = running[0]
        counts, met = self.wire.state()
        work, fetched, accidents, reads = _work(counts), _fetched(counts), met, False
        since = max((each.at for each in self.wire.seen()), default=-1.0)
        worked, at_end = time.monotonic(), 0.0  # when work crossed last, when the commits were seen at the end
        results, grown, looked = -1, worked, worked  # the end of the results, when it moved, when it was asked for
        quiet, goes_on = self._setup.quiet * PATIENCE, GOES_ON.get(self._setup.accident, 0)
        while alive := [each for each in running if each.alive]:
            alive[0].wait(LOOK)
            if self._stopped.is_set():
                raise Closed(thing="run")
            now = time.monotonic()
            counts, met = self.wire.state()
            if _work(counts) != work:
                work, worked = _work(counts), now
            if not reads and _fetched(counts) > fetched:
                fetched, reads = _fetched(counts), self._reads(since)
            if reads and not at_end and self._committed(name) >= self._setup.items:
                at_end = now
            if now - looked > BUSY / 10:
                ((_, end),) = reading.bounds(self._cluster, f"{name}-results", isolation_level=RAW).values()
                looked = now
                results, grown = end, now if end != results else grown
            first, patient = 0 if reads else FIRST, goes_on if met > accidents else 0
            if met > accidents and self._setup.accident == "stop":
                accidents = met
                if self._setup.takeover:
                    running.append(self._start(name, log, " beside"))
                self._stopped.wait(self._setup.pause)
                child.signal(signal.SIGCONT)
                worked = grown = time.monotonic()
            elif at_end and now - at_end > AFTER_END:
                return self._end(running, "commits")
            elif now - worked > max(quiet, first, patient) or now - grown > max(BUSY, first, patient):
                return self._end(running, "quiet")
        code = child.wait(0)
        killed = code == -signal.SIGKILL and self.wire.state()[1] > accidents
        return Life("killed" if killed else "exit", code)

    def _reads(self, since: float) -> bool:
        """Has a client asked for items? A helper of the worker, such as a registry of schemas, asks for other topics' records."""
        asked = (each.request for each in self.wire.seen() if each.at > since and each.api in FETCHES)
        topics = [topic for request in asked for topic in request.get("Topics") or ()]
        return any(self._topic & {topic.get("Topic"), topic.get("TopicId")} for topic in topics)

    def _end(self, running: Sequence[Command], why: str) -> Life:
        """End a command whose work is done."""
        for each in running:
            each.signal(signal.SIGTERM)
        code, *_ = [each.wait(ENDS) for each in running]
        if code is None:
            return Life(why, None, (f"it did not end within {ENDS:g} s of SIGTERM",))
        return Life("killed" if code == -signal.SIGKILL else why, code)  # at a request of its shutdown

    def _committed(self, group: str) -> int:
        """The group's committed offset; -1 without one."""
        asked = {"GroupId": group, "Topics": [{"Name": group, "PartitionIndexes": [0]}]}
        answer = self._broker.ask("OffsetFetch", 7, asked)
        parts = [part for topic in answer.get("Topics") or () for part in topic["Partitions"]]
        return max((part["CommittedOffset"] for part in parts), default=-1)

    def _results(self, name: str) -> list[Pair]:
        """What is committed in the results' topic."""
        topic = f"{name}-results"
        ends = {at: end for at, (_, end) in reading.bounds(self._cluster, topic, isolation_level=RAW).items()}
        patience = FIRST + reading.TIMEOUT if self._setup.patient else reading.TIMEOUT  # for an open transaction
        found = reading.read(self._cluster, dict.fromkeys(ends, 0), ends, patience)
        return [(message.key(), message.value()) for message in found]


def _work(counts: Mapping[str, int]) -> int:
    """How many requests were no polls. An idle member of a share group asks for records for ever, so ShareFetch counts as one here."""
    return sum(number for api, number in counts.items() if api not in (*POLLS, "ShareFetch"))


def _fetched(counts: Mapping[str, int]) -> int:
    """How often a client asked for records."""
    return sum(counts.get(api, 0) for api in FETCHES)


def _numbered(crossed: Sequence[Crossing]) -> list[Crossing]:
    """Each request with its number in the whole run, over all connections and lives."""
    counts: Counter[str] = Counter()
    made = []
    for each in crossed:
        counts[each.api] += 1
        made.append(replace(each, nth=counts[each.api]))
    return made


def _recovery(crossed: Sequence[Crossing]) -> float | None:
    """Seconds from the accident to the next Produce."""
    accident = next((each.at for each in crossed if each.accident), None)
    if accident is None:
        return None
    return next((each.at - accident for each in crossed if each.at > accident and each.api == "Produce"), None)


def _ids(crossed: Sequence[Crossing]) -> frozenset[tuple[str, str]]:
    """The groups and transactional ids in these requests."""
    found = set()
    for each in crossed:
        for key in ("GroupId", "TransactionalId"):
            if name := each.request.get(key):
                found.add((key, name))
    return frozenset(found)
