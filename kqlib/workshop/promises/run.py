"""Trying promises on a real Kafka, side by side: a topic for each trial, a process for each worker.

In:  factories by name, and promises. Out: a `Verdict` for each pair.
Most trials share one broker. Those in which a leader must die share three of their own: all of them meet there, and it dies once.
Those in which all brokers stand still run last on the one broker: they meet there, and it stops for a while, once.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import Kafka, words
from kqlib.kafka.reading import LOOKER
from kqlib.runtime.patience import PATIENCE
from kqlib.text import cut
from kqlib.topic_rules import QUEUES, QueueTopic, Topic
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.promises.nursery import Far, Nursery
from kqlib.workshop.promises.stage import Stage
from kqlib.workshop.promises.values import Broken, NotOffered, Promise, Refused, Verdict

AT_ONCE = 12  # trials side by side on one broker: they mostly wait
# milliseconds until a worker that says nothing is given up; a group's own wish is 45 s where nobody says
SESSION = min(45_000, int(2000 * PATIENCE))
OUTAGE = 1.5 * SESSION / 1000  # seconds: every member of a group is out of it afterwards
CLOCKS = {"group.consumer.session.timeout.ms": SESSION, "group.consumer.heartbeat.interval.ms": 300}
# after an outage the controller counts the broker in as before
STAYS = {"broker.session.timeout.ms": 9000 + 2 * SESSION}
ANSWER = 20.0 * PATIENCE  # seconds for one answer of the cluster
LONGEST = 85  # of what an error says
LEADER = 1  # the broker that leads every topic on the three

Factory = Callable[..., Any]
Serving = Callable[[Kafka], AbstractContextManager[Any]]  # what must run beside the trials on a cluster


@dataclass(frozen=True)
class Trial:
    """One promise, tried on one queue: its topic, and the factory as it travels."""

    queue: str
    promise: Promise
    topic: str
    factory: bytes
    wishes: frozenset[str]  # the keyword arguments that the factory takes


def score(
    factories: Mapping[str, tuple[bytes, frozenset[str]]],
    pairs: Sequence[tuple[str, Promise]],
    serving: Sequence[Serving] = (),
    modules: Iterable[str] = (),
) -> dict[tuple[str, str], Verdict]:
    """Each of these queues on its promise. modules: what the factories need, imported once for all workers."""
    places = {queue: place for place, queue in enumerate(factories, 1)}
    trials = [
        Trial(queue, promise, f"q{places[queue]}-{re.sub('[^a-z]+', '-', promise.name)}", *factories[queue])
        for queue, promise in pairs
    ]
    with Nursery(modules) as nursery:
        return _on_both(trials, nursery, serving)


def _on_both(trials: Sequence[Trial], nursery: Nursery, serving: Sequence[Serving]) -> dict[tuple[str, str], Verdict]:
    """The trials on one broker and those on three, both at the same time."""
    groups = [[each for each in trials if each.promise.brokers == brokers] for brokers in (1, 3)]
    with ThreadPoolExecutor(2) as pool:
        wanted = [(brokers, group) for brokers, group in zip((1, 3), groups, strict=True) if group]
        both = [pool.submit(_on_one, brokers, group, nursery, serving) for brokers, group in wanted]
        try:
            return {place: verdict for each in both for place, verdict in each.result().items()}
        except BaseException:  # Ctrl-C in a cell: whoever waits for a worker hears that it is gone
            nursery.close()
            raise


def _on_one(
    brokers: int, trials: Sequence[Trial], nursery: Nursery, serving: Sequence[Serving]
) -> dict[tuple[str, str], Verdict]:
    """Trials on a cluster of their own."""
    trials = sorted(trials, key=lambda each: (each.promise.outage, not each.promise.slow))
    with Cluster(brokers, config=CLOCKS if brokers > 1 else CLOCKS | STAYS) as cluster, ExitStack() as servers:
        for each in serving:
            servers.enter_context(each(cluster))
        _create(cluster, [each.topic for each in trials], brokers)
        verdicts: list[Future[Verdict]] = []
        for meet, some in groupby(trials, key=lambda each: brokers > 1 or each.promise.outage):
            together = list(some)
            death = Death(cluster, len(together), together[0].promise.outage)
            with ThreadPoolExecutor(len(together) if meet else AT_ONCE) as pool:
                verdicts += [pool.submit(_try, each, cluster, nursery, death) for each in together]
        return {(each.queue, each.promise.name): one.result() for each, one in zip(trials, verdicts, strict=True)}


def _try(trial: Trial, cluster: Kafka, nursery: Nursery, death: Death) -> Verdict:
    """One check, and what came of it."""
    stage = KafkaStage(trial, cluster, nursery, death)
    try:
        return judge(trial.promise, stage)
    finally:
        death.leave(stage)
        for far in stage.far:
            far.kill()


def judge(promise: Promise, stage: Stage) -> Verdict:
    """Run a promise's check on a stage: kept, broken or not offered."""
    try:
        promise.check(stage)
    except NotOffered as missing:
        return Verdict(None, 0, f"no {missing.verb}")
    except Broken as broken:
        return Verdict(False, promise.trials, broken.seen, *stage.deliveries(broken.item), stage.answered)
    except Refused as trouble:
        if trouble.kind == NotAllowed.__name__:  # it has the verb, and says why it cannot
            return Verdict(None, 0, cut(trouble.why, LONGEST))
        return Verdict(False, promise.trials, cut(f"raised {trouble}", LONGEST), *stage.deliveries(), stage.answered)
    return Verdict(True, promise.trials, "", *stage.deliveries())


class KafkaStage(Stage):
    """A stage on a real cluster: a worker is a process."""

    def __init__(self, trial: Trial, cluster: Kafka, nursery: Nursery, death: Death) -> None:
        super().__init__()
        self.far: list[Far] = []
        self._trial, self._cluster, self._nursery, self._death = trial, cluster, nursery, death

    def recreate(self) -> None:
        """Delete the queue's topic and create it again."""
        _done(self._cluster.admin.delete_topics([self._trial.topic], operation_timeout=ANSWER))
        _create(self._cluster, [self._trial.topic], 1, again=True)

    def kill_leader(self) -> None:
        """The broker that leads dies, once for all trials that want it."""
        self._death.meet(self)

    def outage(self) -> None:
        """All brokers stand still, once for all trials that want it."""
        self._death.meet(self)

    def lose_dead(self) -> None:
        """Delete the topic of the queue's dead letters."""
        _done(self._cluster.admin.delete_topics([f"{self._trial.topic}.dead"], operation_timeout=ANSWER))

    def now(self) -> float:
        """Seconds, from anywhere."""
        return time.monotonic()

    def _hands(self, wishes: dict[str, Any]) -> Far:
        taken = {word: value for word, value in wishes.items() if word in self._trial.wishes}
        self.far.append(self._nursery.worker(self._trial.factory, self._cluster, self._trial.topic, taken))
        return self.far[-1]

    def _pass(self, seconds: float) -> None:
        time.sleep(seconds)


class Death:
    """The end of a broker, once for all trials that want it: they meet, and when each is there or has left, it dies.

    outage: it is the only broker, stands still and goes on. After a restart a plain client may have lost its cluster for good, or not
    (librdkafka 5301), and no verdict would stay.
    """

    def __init__(self, cluster: Cluster, trials: int, outage: bool) -> None:
        self._cluster, self._open, self._outage = cluster, trials, outage
        self._there: set[Stage] = set()
        self._change = threading.Condition()
        self._dead = False

    def meet(self, stage: Stage) -> None:
        """Return when the broker is dead."""
        with self._change:
            self._there.add(stage)
            self._change.notify_all()
            while not self._dead and len(self._there) < self._open:
                self._change.wait()
            if not self._dead:
                leader = self._cluster.broker(LEADER)
                if self._outage:
                    leader.pause()
                    time.sleep(OUTAGE)
                    leader.resume()
                else:
                    leader.kill()
                self._dead = True
            self._change.notify_all()

    def leave(self, stage: Stage) -> None:
        """This trial is over: nobody need wait for it."""
        with self._change:
            if stage not in self._there:
                self._open -= 1
            self._change.notify_all()


def _create(cluster: Kafka, names: Sequence[str], brokers: int, again: bool = False) -> None:
    """The queues' topics as a plan makes them, with their dead letters; broker 1 leads each."""
    from confluent_kafka.admin import NewTopic

    queue, replicas = QueueTopic(partitions=1), {"replica_assignment": [list(range(1, brokers + 1))]}
    plan: dict[str, Topic] = dict.fromkeys(names, queue.topic)
    if not again:
        plan |= {f"{name}.dead": queue.dead for name in names} | {QUEUES: Topic(1, compact=True)}
    made = [NewTopic(name, 1, config=topic.settings, **replicas) for name, topic in plan.items()]
    _done(cluster.admin.create_topics(made, operation_timeout=ANSWER))
    from kqlib.kafka.clients import Consumer

    with closing(Consumer(cluster.client(group_id=LOOKER, group_protocol="classic"))) as looks:
        deadline = time.monotonic() + ANSWER
        while why := _unready(cluster, looks, list(plan)):
            if time.monotonic() > deadline:
                raise NotInTime(seconds=ANSWER, why="the new topics to answer", last=why)
            time.sleep(0.05)


def _unready(cluster: Kafka, looks: Any, names: Sequence[str]) -> str:
    """Why these topics, or the groups, do not answer yet: a leader is named a moment before it serves."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    with suppress(KafkaException):  # or the client goes on asking by what it knew of a topic that was deleted
        cluster.admin.list_topics(timeout=5)
    latest = {TopicPartition(name, 0): OffsetSpec.latest() for name in names}
    asked = cluster.admin.list_offsets(latest, request_timeout=5)
    complaints = [words(error) for future in asked.values() if (error := future.exception(ANSWER))]
    try:  # not by the AdminClient: its call for this ends the process when the coordinator is away (librdkafka 5040)
        looks.committed([TopicPartition(names[0], 0)], ANSWER)
    except KafkaException as error:
        complaints.append(words(error))
    return complaints[0] if complaints else ""


def _done(futures: Mapping[str, Any]) -> None:
    """Wait for what the AdminClient was asked for."""
    from confluent_kafka import KafkaException

    for name, future in futures.items():
        try:
            future.result(ANSWER)
        except KafkaException as error:
            raise NotAllowed(f"'{name}': {words(error)}") from None
