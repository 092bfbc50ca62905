"""Trying promises on a real Kafka, side by side: a topic for each trial, a process for each worker.

In:  factories by name, and pairs of a queue and a promise. Out: a `Verdict` for each pair.
Most trials share one broker. Those in which a leader must die share three brokers: all of them wait for each other, and it dies once.
Those in which all brokers stand still run last on the one broker: they wait for each other, and it stops for a while, once.
"""

from __future__ import annotations

import inspect
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.kafka import reading
from kqlib.kafka.writing import settled
from kqlib.runtime.patience import PATIENCE
from kqlib.text import cut
from kqlib.topic_rules import QUEUES, QueueTopic, Topic
from kqlib.workshop.children import Children
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.promises.adapter import RemoteQueue
from kqlib.workshop.promises.scenario import Scenario
from kqlib.workshop.promises.values import Broken, NotOffered, Promise, Refused, Verdict

AT_ONCE = 12  # trials side by side on one broker: with 32, other programs' brokers on two cores did not answer for 15 s
# milliseconds until a silent worker is given up. A group that asks for nothing has 45 s.
SESSION = min(45_000, int(2000 * PATIENCE))
OUTAGE = 1.5 * SESSION / 1000  # seconds: every member of a group is out of it afterwards
CLOCKS = {"group.consumer.session.timeout.ms": SESSION, "group.consumer.heartbeat.interval.ms": 300}
# after an outage the controller counts the broker in as before
STAYS = {"broker.session.timeout.ms": 9000 + 2 * SESSION}
ANSWER = 20.0 * PATIENCE  # seconds for one answer of the cluster
LONGEST = 85  # characters of what an error says
LEADER = 1  # the broker that leads every topic on the three
MODULES = ("kqlib.queue.site", "kqlib.workshop.promises.adapter")  # what a worker needs, beside its factory's own

Factory = Callable[..., Any]
Pair = tuple[str, Promise]  # a queue's name, and a promise to try on it
Verdicts = dict[tuple[str, str], Verdict]


def score(factories: Mapping[str, Factory], pairs: Sequence[Pair], step: Callable[[], object]) -> Verdicts:
    """Try each of these queues on its promise. step: called after each."""
    calm, outage, leader = ([pair for pair in pairs if pair[1].fault == fault] for fault in ("", "outage", "leader"))
    modules = dict.fromkeys([*MODULES, *(home for factory in factories.values() for home in homes(factory))])
    with Children(modules=modules) as children, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(_on_cluster, 1, children, factories, [calm, outage], step)] if calm or outage else []
        both += [pool.submit(_on_cluster, 3, children, factories, [leader], step)] if leader else []
        try:
            return {place: verdict for each in both for place, verdict in each.result().items()}
        except BaseException:  # Ctrl-C in a cell: a trial that waits for a worker hears that it is gone
            children.close()
            raise


def homes(factory: Factory) -> list[str]:
    """The modules of kqlib in which a factory and what it inherits from are defined."""
    kind = factory if isinstance(factory, type) else type(factory)
    return [each.__module__ for each in kind.__mro__ if each.__module__.startswith("kqlib.")]


def _on_cluster(
    brokers: int,
    children: Children,
    factories: Mapping[str, Factory],
    phases: Sequence[Sequence[Pair]],
    step: Callable[[], object],
) -> Verdicts:
    """Trials on a cluster of their own, one phase after the other. The trials of a fault meet, so all of them run at once."""
    numbers = {queue: number for number, queue in enumerate(factories, 1)}

    def topic(queue: str, promise: Promise) -> str:
        return f"q{numbers[queue]}-{re.sub('[^a-z]+', '-', promise.name)}"

    with Cluster(brokers, config=CLOCKS if brokers > 1 else CLOCKS | STAYS) as cluster, ExitStack() as servers:
        queues = dict.fromkeys(queue for pairs in phases for queue, _ in pairs)
        for serving in dict.fromkeys(getattr(factories[queue], "serving", None) for queue in queues):
            if serving:
                servers.enter_context(serving(cluster))
        _create(cluster, [topic(*pair) for pairs in phases for pair in pairs])
        found: Verdicts = {}
        for pairs in phases:
            fault = Fault(len(pairs))

            def tried(pair: Pair, fault: Fault = fault) -> Verdict:
                queue, promise = pair
                with closing(KafkaWorld(topic(*pair), factories[queue], cluster, children, fault)) as world:
                    verdict = judge(promise, Scenario(world))
                step()
                return verdict

            slow_first = sorted(pairs, key=lambda pair: not pair[1].slow)
            with ThreadPoolExecutor(len(pairs) if pairs and pairs[0][1].fault else AT_ONCE) as pool:
                verdicts = list(pool.map(tried, slow_first))
            found |= {(queue, promise.name): v for (queue, promise), v in zip(slow_first, verdicts, strict=True)}
        return found


def judge(promise: Promise, scenario: Scenario) -> Verdict:
    """Run a promise's check: kept, broken or not offered."""
    deliveries = scenario.history.deliveries
    try:
        promise.check(scenario)
    except NotOffered as missing:
        return Verdict(None, 0, f"no {missing.verb}")
    except Broken as broken:
        return Verdict(False, promise.trials, broken.seen, *deliveries(broken.item), scenario.answered)
    except Refused as trouble:
        if trouble.kind == NotAllowed.__name__:  # it has the verb, and says why it cannot
            return Verdict(None, 0, cut(trouble.why, LONGEST))
        return Verdict(False, promise.trials, cut(f"raised {trouble}", LONGEST), *deliveries(), scenario.answered)
    return Verdict(True, promise.trials, "", *deliveries())


class KafkaWorld:
    """A queue's topic on a real cluster. A worker is a process."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def __init__(self, topic: str, factory: Factory, cluster: Cluster, children: Children, fault: Fault) -> None:
        self._topic, self._factory, self._cluster, self._children = topic, factory, cluster, children
        self._fault, self._processes = fault, list[RemoteQueue]()

    def recreate(self) -> None:
        """Delete the queue's topic and create it again."""
        self._delete(self._topic)
        self._cluster.wait_until_gone(self._topic, ANSWER)
        _create(self._cluster, [self._topic], dead=False)

    def kill_leader(self) -> None:
        """Kill the broker that leads, once for all trials that want it."""
        self._fault.happen(self._cluster.broker(LEADER).kill)

    def outage(self) -> None:
        """All brokers stand still, once for all trials that want it.

        They are not restarted: a plain client may then have lost its cluster for good, or not (librdkafka issue 5301).
        """

        def stand_still() -> None:
            broker = self._cluster.broker(LEADER).pause()
            time.sleep(OUTAGE)
            broker.resume()

        self._fault.happen(stand_still)

    def lose_dead(self) -> None:
        """Delete the topic of the queue's dead letters."""
        self._delete(f"{self._topic}.dead")

    def close(self) -> None:
        """End its workers."""
        self._fault.leave()
        for process in self._processes:
            process.kill()

    def _delete(self, topic: str) -> None:
        settled(self._cluster.admin.delete_topics([topic], operation_timeout=ANSWER), "deleted", ANSWER)

    def process(self, **options: Any) -> RemoteQueue:
        """A new process with the queue. Options that the factory does not take are left out."""
        known = inspect.signature(self._factory).parameters
        taken = {word: value for word, value in options.items() if word in known}
        self._processes.append(RemoteQueue(self._children, self._factory, self._cluster, self._topic, **taken))
        return self._processes[-1]


class Fault:
    """What breaks once for several trials: when each of them wants it or is over."""

    def __init__(self, trials: int) -> None:
        self._trials = trials
        self._waiting, self._over, self._change = 0, False, threading.Condition()

    def happen(self, break_it: Callable[[], object]) -> None:
        """Return when it has happened."""
        with self._change:
            self._waiting += 1
            self._change.notify_all()
            self._change.wait_for(lambda: self._over or self._waiting >= self._trials)
            if not self._over:
                break_it()
                self._over = True
            self._change.notify_all()

    def leave(self) -> None:
        """A trial is over. The others need not wait for it."""
        with self._change:
            self._trials -= 1
            self._change.notify_all()


def _create(cluster: Cluster, names: Sequence[str], dead: bool = True) -> None:
    """Create the queues' topics as a plan does, with their dead letters. Broker 1 leads each. Return when they can be used."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import NewTopic, OffsetSpec

    queue, replicas = QueueTopic(partitions=1), {"replica_assignment": [cluster.running]}
    plan: dict[str, Topic] = dict.fromkeys(names, queue.topic)
    if dead:
        plan |= {f"{name}.dead": queue.dead for name in names} | {QUEUES: Topic(1, compact=True)}
    made = [NewTopic(name, 1, config=topic.settings, **replicas) for name, topic in plan.items()]
    settled(cluster.admin.create_topics(made, operation_timeout=ANSWER), "created", ANSWER)
    cluster.wait_for_topic(list(plan)[-1], 1, ANSWER)

    def served() -> None:  # a leader is named a moment before it serves
        cluster.admin.list_topics(timeout=5)  # else the client knows the leaders of topics that were deleted
        latest = {TopicPartition(name, 0): OffsetSpec.latest() for name in plan}
        for answer in cluster.admin.list_offsets(latest, request_timeout=5).values():
            answer.result(ANSWER)

    reading.patient(served, ANSWER)
    reading.committed(cluster, reading.LOOKER, names[0], [0])  # the groups' coordinator is there, too
