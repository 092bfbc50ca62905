"""A look at a cluster, for a person on duty and for a monitor: which partitions cannot be written or read, and why.

    KAFKA_BOOTSTRAP=… python 13_operations.py [TOPIC…]      # all topics, if none is named

Promise: it changes nothing. Exit status 0: every partition takes records with acks=all. 1: one or more do not, and each has a line.
2: the cluster does not answer. A partition that has lost a copy and still takes records is a warning, and no reason for status 1.
It needs the right to DESCRIBE topics and the cluster, and DESCRIBE_CONFIGS for topics.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from confluent_kafka import KafkaException, TopicCollection, TopicPartitionInfo
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

ANSWER = 15  # seconds for one answer
AT_ONCE = 500  # topics in one question


def settings() -> dict[str, object]:
    """For a cluster with logins, add security.protocol, sasl.mechanisms, sasl.username and sasl.password here."""
    return {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "log_level": 2}


def least_in_sync(admin: AdminClient, topics: Sequence[str]) -> dict[str, int]:
    """The min.insync.replicas of each topic."""
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    asked = admin.describe_configs(list(resources.values()), request_timeout=ANSWER)
    return {
        topic: int(asked[resource].result(2 * ANSWER)["min.insync.replicas"].value)
        for topic, resource in resources.items()
    }


def judged(partition: TopicPartitionInfo, least: int) -> tuple[str, bool]:
    """What is to say of a partition, or "", and can it be written?"""
    in_sync, replicas = len(partition.isr), len(partition.replicas)
    missing = sorted({node.id for node in partition.replicas} - {node.id for node in partition.isr})
    if partition.leader is None or partition.leader.id < 0:
        return f"no leader: nobody can read or write. Its replicas: {[node.id for node in partition.replicas]}", False
    if in_sync < least:
        return f"{in_sync} in sync, {least} needed: acks=all is refused. Out of sync: {missing}", False
    if in_sync < replicas:
        return f"{in_sync} of {replicas} in sync: it still takes records. Out of sync: {missing}", True
    return "", True


def look(admin: AdminClient, topics: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """A line for each partition of which something is to say, and whether it can be written."""
    described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER)
    least = least_in_sync(admin, topics)
    for topic in topics:
        for partition in described[topic].result(2 * ANSWER).partitions:
            words, works = judged(partition, least[topic])
            if words:
                yield f"{topic}-{partition.id}: {words}", works


def parts(topics: Sequence[str]) -> Iterable[Sequence[str]]:
    """The topics in parts, since a large cluster has thousands."""
    return (topics[at : at + AT_ONCE] for at in range(0, len(topics), AT_ONCE))


def main(asked: Sequence[str]) -> int:
    """Look once, print what is to say."""
    admin = AdminClient(settings())
    try:
        topics = sorted(asked or admin.list_topics(timeout=ANSWER).topics)
        found = [line for part in parts(topics) for line in look(admin, part)]
    except (KafkaException, TimeoutError) as error:
        print(f"no answer: {error}", file=sys.stderr)
        return 2
    for words, works in found:
        print("warning" if works else "ERROR", words)
    broken = sum(not works for _, works in found)
    print(f"{len(topics)} topics, {broken} partitions that cannot be written, {len(found) - broken} warnings")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
