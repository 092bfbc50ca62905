"""The exercises of 02-partitions-and-replicas: what is committed, what a setting survives, and an alarm."""

from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from kqlib.kafka.cluster import Kafka
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka


def high_watermark(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    if len(isr) < min_isr:
        return mark
    return min(ends[broker] for broker in isr)


def every_copy(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    """You take the slowest of all copies. A copy that is not in the ISR does not count."""
    return min(ends.values())


def leader_alone(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    """You take the longest copy, the leader's. Every replica of the ISR must have the record."""
    return max(ends.values())


def no_minimum(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    """The ISR is smaller than the minimum here. Look at row 4 of the table in section 8."""
    return min(ends[broker] for broker in isr)


def nothing_below_minimum(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    """Below the minimum the high watermark does not go back to 0. It stays where it was."""
    return min(ends[broker] for broker in isr) if len(isr) >= min_isr else 0


COMMITTED = Exercise(
    id="02.1",
    ask="committed is what every replica of the ISR has, as long as the ISR is large enough",
    task="return the new high watermark",
    cases=[
        Case(({1: 14, 2: 12, 3: 9}, [1, 2, 3], 2, 9), 9, "the slowest copy in sync decides"),
        Case(({1: 14, 2: 12, 3: 9}, [1, 2], 2, 9), 12, "a copy that is out of sync does not count"),
        Case(({1: 14, 2: 12, 3: 9}, [1], 2, 12), 12, "below the minimum the high watermark stands still"),
        Case(({1: 14, 2: 12, 3: 9}, [1], 1, 12), 14, "with a minimum of 1 the leader alone can commit"),
        Case(({1: 11, 2: 1, 3: 1}, [1, 2, 3], 1, 1), 1, "ten records that no follower has are not committed"),
        Case(({1: 10, 3: 10}, [1, 3], 3, 0), 0, "acknowledged with acks=1, and not shown to consumers"),
    ],
    hints=(
        "Which copies count? Not all of them, and not the leader alone: those in the ISR. The slowest of them decides.",
        "First compare the size of the ISR with min_isr. If it is smaller, the mark stays where it is.",
    ),
    solution=high_watermark,
    wrong=(every_copy, leader_alone, no_minimum, nothing_below_minimum),
)


def survives(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    if acks == "all":
        return min_isr - 1, replicas - min_isr
    return 0, replicas - 1


def as_many_as_copies(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    """'r − 1 brokers can fail' is the claim that section 8 corrects. For how many copies does an acknowledgement stand?"""
    return replicas - 1, replicas - min_isr


def whatever_acks(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    """acks=1 waits for one copy only, and does not ask for the minimum."""
    return min_isr - 1, replicas - min_isr


def the_other_way_round(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    """Your two numbers are swapped: first lost for good, then down."""
    lost, down = survives(acks, replicas, min_isr)
    return down, lost


SURVIVES = Exercise(
    id="02.2",
    ask="with acks=all, lost and down add up to the number of replicas less one",
    task="return two numbers: lost for good, down",
    cases=[
        Case(("all", 3, 2), (1, 1), "three copies, at least two: one may be lost, one may be down"),
        Case(("all", 3, 1), (0, 2), "with the default minimum an acknowledgement may stand for one copy"),
        Case(("all", 3, 3), (2, 0), "at least three of three stops at the first dead broker"),
        Case(("all", 5, 3), (2, 2), "five copies, at least three: two and two"),
        Case(
            (1, 3, 2), (0, 2), "acks=1 asks for no minimum: it writes on, and each acknowledgement stands for one copy"
        ),
    ],
    hints=(
        "With acks=all an acknowledgement stands for at least min_isr copies. How many of those may go, so that one is left?",
        "acks=1 waits for the leader's own log and nothing else: what is sure then? And acks=1 is never refused for a small ISR.",
    ),
    solution=survives,
    wrong=(as_many_as_copies, whatever_acks, the_other_way_round),
)


def refusing(admin: Any, topics: list) -> list:
    described = admin.describe_topics(TopicCollection(topics))
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    configs = admin.describe_configs(list(resources.values()))
    found = []
    for topic in topics:
        least = int(configs[resources[topic]].result(10)["min.insync.replicas"].value)
        partitions = described[topic].result(10).partitions
        if any(len(partition.isr) < least for partition in partitions):
            found.append(topic)
    return sorted(found)


def _sizes(admin: Any, topics: list) -> dict:
    """Of each topic: its replicas, the size of its ISR, its minimum."""
    described = admin.describe_topics(TopicCollection(topics))
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    configs = admin.describe_configs(list(resources.values()))
    found = {}
    for topic in topics:
        [partition] = described[topic].result(10).partitions
        least = int(configs[resources[topic]].result(10)["min.insync.replicas"].value)
        found[topic] = (len(partition.replicas), len(partition.isr), least)
    return found


def counts_replicas(admin: Any, topics: list) -> list:
    return sorted(topic for topic, (all_, _, least) in _sizes(admin, topics).items() if all_ < least)


def any_missing_copy(admin: Any, topics: list) -> list:
    return sorted(topic for topic, (all_, in_sync, _) in _sizes(admin, topics).items() if in_sync < all_)


def at_the_minimum(admin: Any, topics: list) -> list:
    return sorted(topic for topic, (_, in_sync, least) in _sizes(admin, topics).items() if in_sync <= least)


TOPICS = {  # its replicas, its minimum
    "alarm-both": ([1, 2, 3], 2),
    "alarm-single": ([1], 1),
    "alarm-strict": ([1, 2, 3], 3),
    "alarm-two": ([2, 3], 2),
    "alarm-default": ([1, 3], 1),
}
ALARM_HINTS = {
    (): "You find none. Look at partition.isr, not at partition.replicas: broker 3 is dead.",
    (
        "alarm-both",
        "alarm-default",
        "alarm-strict",
        "alarm-two",
    ): "A missing copy is no alarm as long as the minimum is met.",
    tuple(sorted(TOPICS)): "An ISR that is just as large as the minimum is enough.",
}


def alarm(answer: Callable[[Any, list], list]) -> Iterator[Tried]:
    """Five topics on three brokers, of which broker 3 is dead; then a record to each, with acks=all."""
    cluster = kafka(3)
    admin = cluster.admin
    _create(cluster)
    cluster.broker(3).stop()
    try:
        _wait_until_out(cluster)
        got = answer(admin, sorted(TOPICS))
        refused = sorted(topic for topic in TOPICS if not _writes(cluster, topic))
    finally:
        cluster.broker(3).start()
    known = tuple(got) if isinstance(got, list) else None
    hint = ALARM_HINTS.get(known, "Compare the size of a partition's ISR with the topic's min.insync.replicas.")
    yield Tried("answer(admin, topics)", got, refused, "just these refuse a record with acks=all", hint)


def _create(cluster: Kafka) -> None:
    there = cluster.admin.list_topics(timeout=10).topics
    new = [
        NewTopic(name, 1, replica_assignment=[brokers], config={"min.insync.replicas": str(least)})
        for name, (brokers, least) in TOPICS.items()
        if name not in there
    ]
    for future in (cluster.admin.create_topics(new) if new else {}).values():
        future.result(15)
    for name in TOPICS:
        cluster.wait_for_topic(name, 1)


def _wait_until_out(cluster: Kafka) -> None:
    """Wait until broker 3 is in no ISR, and every partition has a leader."""
    from kqlib.runtime.patience import PATIENCE, wait_for

    def out() -> bool:
        parts = [cluster.partitions(topic)[0] for topic in TOPICS]
        return all(3 not in part.isrs and part.leader in (1, 2) for part in parts)

    wait_for(out, 30 * PATIENCE, "broker 3 to leave every ISR")


def _writes(cluster: Kafka, topic: str) -> bool:
    """Is a record to this topic acknowledged, with acks=all?"""
    errors = []
    producer = Producer(cluster.client(acks="all", retries=0))
    producer.produce(topic, b"?", on_delivery=lambda error, _: errors.append(error))
    producer.flush(15)
    return errors[0] is None  # KafkaError == None sets an exception that nobody raises


ALARM = Exercise(
    id="02.3",
    ask="a leader refuses acks=all when its ISR is smaller than min.insync.replicas",
    task="return the sorted list of the topics whose leader refuses a record with acks=all",
    probe=alarm,
    hints=(
        "Two facts decide for each partition: how large its ISR is, and the topic's min.insync.replicas.",
        "len(partition.isr) < int(configs[resource].result(10)['min.insync.replicas'].value)",
    ),
    solution=refusing,
    wrong=(counts_replicas, any_missing_copy, at_the_minimum),
    seconds=90,
)
