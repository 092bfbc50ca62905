"""Seeded storms on one group: members join, leave, are killed and stopped, several at once. Then every live member owns its share.

In:  a cluster, a kind of member, a seed. Out: how long after the last blow every live member owned its share.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Self

from confluent_kafka import KafkaException, Producer

from kqlib.kafka import Kafka
from kqlib.queue.broker_settings import set_session_timeout
from kqlib.topics import Plan, QueueTopic
from kqlib.virtual.names import topics
from tests.faults import storm_member
from tests.patience import WAIT

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.promises.queue_worker", "tests.faults.storm_member"])  # the same list as there

SESSION = 2.0  # seconds; with one, heartbeats through a starved broker come too late all the time
PROMISED = 5.0  # seconds after the last blow and a session until every live member owns its share
PARTITIONS = 4
MOST = 4  # members at once
BLOWS = {"join": 3, "leave": 2, "kill": 2, "stop": 3, "blink": 1}  # how often each comes


@dataclass(eq=False)
class Member:
    """A process of the storm, as it is seen from outside."""

    name: str
    process: Any
    pipe: Connection
    until: float = 0.0  # stopped until then
    ready: bool = False

    def look(self, seconds: float = 2.0) -> dict[str, Any] | None:
        """What it says that it owns; None: no answer."""
        while self.pipe.poll():
            self.pipe.recv()  # an older answer
        self.pipe.send("look")
        return self.pipe.recv() if self.pipe.poll(seconds) else None

    def started(self, seconds: float = 30.0) -> None:
        """Return when it has begun to join; what was asked of it before is answered later."""
        if not self.ready:
            assert self.pipe.poll(seconds) and self.pipe.recv() == "ready", f"{self.name} did not start"
            self.ready = True

    def signal(self, number: int) -> None:
        """SIGSTOP, SIGCONT, SIGKILL."""
        os.kill(self.process.pid, number)


@dataclass
class Storm:
    """One storm: `with Storm(cluster, "node", seed) as storm: storm.blow(); storm.calm()`."""

    cluster: Kafka
    kind: str
    seed: int
    blows: int = 8
    session: float = SESSION
    members: list[Member] = field(default_factory=list)
    gone: list[Member] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    born: int = 0
    trouble: str = ""  # what was wrong when it was last looked

    def __post_init__(self) -> None:
        self.dice = random.Random(f"{self.kind} {self.seed}")
        self.topic = f"storm-{self.kind}-{self.seed}-{random.randrange(1 << 24):06x}"
        self.group = f"kq-virtual-{self.topic}" if self.kind == "node" else self.topic

    def __enter__(self) -> Self:
        # First: a broker that knows the topics has applied it.
        set_session_timeout(self.cluster, self.group, self.session)
        plan = topics(self.topic, PARTITIONS)
        if self.kind == "site":
            plan = {self.topic: QueueTopic(partitions=PARTITIONS)}
        Plan(plan).apply(self.cluster, quiet=True)
        if self.kind == "site":
            producer = Producer(self.cluster.client())
            for n in range(400):
                producer.produce(self.topic, b"%d" % n, b"%d" % n)
            producer.flush(WAIT)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.members + self.gone:
            each.process.kill()
            each.pipe.close()
        for each in self.members + self.gone:
            each.process.join(WAIT)
        names = list(topics(self.topic, PARTITIONS)) if self.kind == "node" else [self.topic, f"{self.topic}.dead"]
        for future in self.cluster.admin.delete_topics(names).values():
            future.result(WAIT)

    # --- blows ---

    def blow(self) -> None:
        """Everything that the seed says, and what was stopped goes on."""
        self.join()
        for _ in range(self.blows):
            names = [name for name, often in BLOWS.items() for _ in range(often)]
            for _ in range(self.dice.choice((1, 1, 2))):  # several at once
                self._blow(self.dice.choice(names))
            self._pass(self.dice.choice((0.0, 0.05, 0.3, self.dice.uniform(0, 1.5))))
        while self._stopped():
            self._pass(0.05)
        if not self.members:
            self.join()
        self.story.append("calm")

    def _blow(self, name: str) -> None:
        able = [each for each in self.members if not each.until]
        if name == "join" or not able:
            if len(self.members) < MOST:
                self.join()
        else:
            getattr(self, name)(self.dice.choice(able))

    def join(self) -> Member:
        """One more."""
        self.born += 1
        name = f"m{self.born}"
        slow = self.dice.choice((0.0, 0.0, 0.5, 1.5))
        self.story.append(f"{name} joins{f', slow by {slow} s' if slow else ''}")
        here, there = FORKS.Pipe()
        words = {
            "kind": self.kind,
            "bootstrap": self.cluster.bootstrap,
            "topic": self.topic,
            "name": name,
            "slow": slow,
        }
        process = FORKS.Process(target=storm_member.run, args=(there,), kwargs=words, daemon=True)
        process.start()
        there.close()
        self.members.append(Member(name, process, here))
        return self.members[-1]

    def leave(self, member: Member) -> None:
        """One goes in good order; nobody waits for it."""
        self.story.append(f"{member.name} leaves")
        self._remove(member)
        member.pipe.send("leave")

    def kill(self, member: Member) -> None:
        """SIGKILL."""
        self.story.append(f"{member.name} is killed")
        self._remove(member)
        member.signal(signal.SIGKILL)

    def _remove(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)

    def stop(self, member: Member, least: float = 1.1, most: float = 1.6) -> None:
        """SIGSTOP for longer than its session."""
        seconds = self.session * self.dice.uniform(least, most)
        self.story.append(f"{member.name} is stopped for {seconds:.1f} s")
        member.signal(signal.SIGSTOP)
        member.until = time.monotonic() + seconds

    def blink(self, member: Member) -> None:
        """SIGSTOP for less than its session."""
        self.stop(member, 0.1, 0.8)

    def _stopped(self) -> list[Member]:
        return [each for each in self.members if each.until]

    def _pass(self, seconds: float) -> None:
        """Time passes, and those that were stopped go on when theirs is over."""
        end = time.monotonic() + seconds
        while True:
            for each in self._stopped():
                if time.monotonic() >= each.until:
                    each.signal(signal.SIGCONT)
                    each.until = 0.0
                    self.story.append(f"{each.name} goes on")
            if time.monotonic() >= end:
                return
            time.sleep(0.01)

    # --- what must hold afterwards ---

    def calm(self, within: Callable[..., float], seconds: float = PROMISED) -> float:
        """Wait until every live member owns its share; how long it took since all of them had begun to join."""
        for each in self.members:
            each.started()
        try:
            return within(self.session + seconds, self._right)
        except AssertionError as late:
            asked = ("--describe", "--group", self.group, "--members", "--verbose")
            epochs = self.cluster.kafka("consumer-groups", *asked, timeout=WAIT)
            why = f"{self.kind} {self.seed}: {late}: {self.trouble}; {self.story}; the coordinator:\n{epochs}"
            raise AssertionError(why) from None

    def _right(self) -> bool:
        self.trouble = self.wrong()
        return not self.trouble

    def wrong(self) -> str:
        """What is not as it must be; '': every live member owns its share, and all of them agree with the coordinator."""
        seen = {each.name: each.look() for each in self.members}
        mine = {each["client"]: each["owned"] for each in seen.values() if each}
        maps = {each["client"]: each["map"] for each in seen.values() if each}
        counts = sorted(map(len, mine.values()))
        all_ = sorted(number for owned in mine.values() for number in owned)
        fair = counts and counts[-1] - counts[0] <= 1
        if len(mine) != len(self.members) or all_ != list(range(PARTITIONS)) or not fair or mine != maps:
            return f"the members say {seen}"
        dealt = (
            self.dealt()
        )  # asked last: this call can end the process while there is no coordinator (librdkafka 5040)
        return "" if dealt == mine else f"the members say {mine}, the coordinator {dealt}"

    def dealt(self) -> dict[str, list[int]]:
        """Client -> partitions, as the coordinator says."""
        asked = self.cluster.admin.describe_consumer_groups([self.group], request_timeout=WAIT)
        try:
            found = asked[self.group].result(WAIT + 1)
        except KafkaException as error:
            return {error.args[0].name(): []}
        return {
            each.client_id: sorted(part.partition for part in each.assignment.topic_partitions)
            for each in found.members
        }


def storms(
    cluster: Kafka, kind: str, seeds: Iterable[int], within: Callable[..., float], *, at_once: int, blows: int = 8
) -> list[float]:
    """Storms, some at once; how many seconds each took until every live member owned its share."""

    def storm(seed: int) -> float:
        with Storm(cluster, kind, seed, blows) as storm:
            storm.blow()
            return storm.calm(within)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(storm, seeds))
