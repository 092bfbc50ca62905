"""Brokers to play with: kill, pause and cut them off by a button, and see what acks and min ISR keep. All of it is real.

In:  an embedded lab, best of three brokers with `wire="all"`. Out: `brokers(lab)`: a Playground over the picture of `view.cluster`.
It begins with an empty topic, whose one partition is led by broker 1. What happens by itself (a broker counts as dead, a leader is
chosen, a replica leaves the ISR) is drawn when it does. A broker that is cut off reaches clients, and no other broker.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop import snapshot, view
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.play.scene import Scene, cluster_of
from kqlib.workshop.view.picture import Picture

if TYPE_CHECKING:
    from kqlib.workshop.lab import Lab

NAME, COUNT = "play-brokers", 10  # of the topic; records at a press
ANSWER = 2.0  # seconds until a broker that does not answer is passed over
LATE = 60_000  # milliseconds until a record that is not acknowledged has failed


def brokers(lab: Lab) -> Playground:
    """Kill, pause and cut off brokers while you send: `kq.play.brokers(lab)`."""
    cluster: Any = cluster_of(lab, "brokers")
    if not cluster.embedded:
        raise NotAllowed("this kills brokers, so it needs a cluster of its own: unset KQ_BOOTSTRAP")
    for each in cluster._brokers.values():
        each.start()
    ids = cluster.brokers
    controls = {
        "who": dropdown("broker", ids),
        "acks": dropdown("acks", ["1", "all"], "all"),
        "min_isr": dropdown("min ISR", range(1, len(ids) + 1), min(2, len(ids))),
    }
    scene = _BrokersScene(lab, controls)
    return scene.watch(Playground("brokers", scene.draw, controls, scene.actions))


class _BrokersScene(Scene):
    """The brokers behind the picture, and what its buttons do."""

    def __init__(self, lab: Lab, controls: dict[str, Any]) -> None:
        from kqlib.kafka.clients import Producer

        super().__init__()
        self.cluster: Any = lab.cluster
        self.ids, self.controls, self.least = controls["who"].options, controls, controls["min_isr"].value
        self.topic, self.cut = lab.topic(NAME, config={"min.insync.replicas": self.least}), set[int]()
        self.sent = self.acked = self.failed = 0
        settings: dict[str, dict[str, Any]] = {"1": {"acks": "1"}, "all": {"acks": "all", "enable_idempotence": True}}
        self.producers = {
            acks: Producer(self.cluster.client(message_timeout_ms=LATE, **how)) for acks, how in settings.items()
        }
        self.parts: list[view.Partition] = []
        self.actions = {
            f"send {COUNT} records": self.button(lambda who: self.send()),
            "kill": self.button(lambda who: self.cluster.broker(who).kill()),
            "pause": self.button(lambda who: self.cluster.broker(who).pause()),
            "cut off": self.button(lambda who: self.cables(self.cut | {who})),
            "bring back": self.button(self.bring_back),
        }

        wait_for(self.settled, 20 * PATIENCE, "the replicas of a new topic")

    def settled(self) -> bool:
        """Are all replicas in sync, and does the leader say so?"""
        self.look()
        return any(len(each.isr) == len(self.ids) and each.committed is not None for each in self.parts)

    def draw(self, **_: object) -> Picture:
        """The brokers as they are now, and what became of the records."""
        self.look()
        states = {number: self.cluster.broker(number).state for number in self.ids}
        notes = dict.fromkeys(self.cut, "cut off") | {at: state for at, state in states.items() if state == "paused"}
        waiting = self.sent - self.acked - self.failed
        words = f"{self.sent} sent, {self.acked} acknowledged, {self.failed} failed, {waiting} on the way"
        brokers = [view.Broker(at, state != "stopped", note=notes.get(at, "")) for at, state in states.items()]
        dead = {each.id for each in brokers if not each.alive}
        parts = [replace(each, leader=None) if each.leader in dead else each for each in self.parts]
        return view.cluster(brokers, parts, title=words)

    def send(self) -> None:
        """Records with the acks and the min ISR of the controls."""
        if self.least != self.controls["min_isr"].value:
            self.configure(self.controls["min_isr"].value)
        producer = self.producers[self.controls["acks"].value]

        def delivered(error: object, _: object) -> None:
            self.acked, self.failed = self.acked + (error is None), self.failed + (error is not None)

        for number in range(COUNT):
            producer.produce(self.topic, b"goal %d" % number, on_delivery=delivered)
        self.sent += COUNT
        producer.flush(1)

    def configure(self, least: int) -> None:
        """Another min.insync.replicas."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entry = ConfigEntry("min.insync.replicas", str(least), incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])

        def configured() -> bool:
            changing = self.cluster.admin.incremental_alter_configs([topic], request_timeout=ANSWER)
            changing[topic].result(2 * ANSWER)
            return True

        # a paused broker does not answer, and the client may ask another one next time
        wait_for(configured, 20 * PATIENCE, "another min.insync.replicas", not_yet=(KafkaException,))
        self.least = least

    def cables(self, cut: set[int]) -> None:
        """Just these brokers reach no other one."""
        if len(self.cluster.wires) < 3:
            raise NotAllowed('there is no wire between these brokers: take kq.lab("play", brokers=3, wire="all")')
        self.cut = cut
        for wire in (self.cluster.wire.brokers, self.cluster.wire.controllers):
            wire.heal()
            for number in cut:
                wire.cut(number)
                for other in {*self.ids} - cut:
                    wire.cut(other, pid=self.cluster.broker(number).pid)

    def bring_back(self, who: int) -> None:
        """Whatever was done to it."""
        if who in self.cut:
            self.cables(self.cut - {who})
        self.cluster.broker(who).start()

    def look(self) -> None:
        """Ask one broker, and for choice one of the larger side: a broker that is cut off still believes in what it last knew."""
        from confluent_kafka import KafkaException, TopicPartition

        from kqlib.kafka.clients import Consumer

        for producer in self.producers.values():
            producer.poll(0)
        running = self.cluster.running
        for number in sorted(running, key=lambda each: each in self.cut)[:2]:
            address = f"127.0.0.1:{self.cluster.broker(number).node.port}"
            with (
                suppress(KafkaException, LookupError),  # no answer, or a broker that does not know the topic yet
                closing(Consumer(self.cluster.client(group_id=NAME, bootstrap_servers=address))) as asks,
            ):
                found = asks.list_topics(timeout=ANSWER).topics[self.topic].partitions[0]
                end = None
                if found.leader in running:
                    with suppress(KafkaException):
                        _, end = asks.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=ANSWER)
                copies = snapshot.copies(self.cluster, self.topic)
                replicas, in_sync = sorted(found.replicas), sorted(found.isrs)
                self.parts = [
                    view.Partition(self.topic, 0, found.leader, replicas, in_sync, ends=copies, committed=end)
                ]
                return

    def seen(self) -> object:
        """What the picture depends on."""
        self.cluster._check_open()
        return self.draw().text
