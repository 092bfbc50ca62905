"""What the cluster knows of a group: who has what, how far behind it is, its timeouts.

In:  a cluster, a group's name, topics. Out: `assignment(…)` and `lag(…)`, which change nothing; `clocks(…)`, which sets.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.kafka import reading, words
from kqlib.kafka.reading import described
from kqlib.workshop.groups.values import Assignment, Lag, Part

if TYPE_CHECKING:
    from kqlib.kafka import Kafka


LIMITS = "Limits are the brokers' own; a lab on its own cluster (unset KQ_BOOTSTRAP) allows a session of 1 s, a heartbeat of 0.1 s"


def assignment(cluster: Kafka, group: str, *topics: str) -> Assignment:
    """Who has which partitions of these topics, as the cluster sees it. A member that has just crashed is still there."""
    parts = partitions(cluster, group, topics)
    members = described(cluster, group)
    ids = Counter(member.client_id for member in members)
    called = [member.client_id if ids[member.client_id] == 1 else member.member_id for member in members]
    held = {name: member.assignment for name, member in zip(called, members, strict=True)}
    return Assignment({name: sorted({*has} & {*parts}) for name, has in held.items()}, parts, group)


def lag(cluster: Kafka, group: str, *topics: str) -> Lag:
    """LAG of each partition = log end − committed offset (or the log's beginning, if that is higher)."""
    parts = partitions(cluster, group, topics)
    there = reading.bounds(cluster, *dict.fromkeys(topics), isolation_level="read_uncommitted")
    done = {
        (topic, number): offset
        for topic in dict.fromkeys(topics)
        for number, offset in reading.committed(cluster, group, topic, [n for t, n in parts if t == topic]).items()
    }
    return Lag({part: max(0, end - max(done.get(part, 0), low)) for part, (low, end) in there.items()})


def partitions(cluster: Kafka, group: str, topics: tuple[str, ...]) -> list[Part]:
    """All partitions of these topics, in order. Wrong arguments are refused here."""
    check_group(group)
    if not topics:
        raise NotAllowed(f"of which topic? As in lag(cluster, {group!r}, 'football')")
    return [(topic, number) for topic in dict.fromkeys(topics) for number in cluster.partitions(topic)]


def clocks(cluster: Kafka, group: str, session: float | None = None, heartbeat: float | None = None) -> None:
    """Set a KIP-848 group's timeouts, in seconds. The cluster keeps them with the group; a client cannot choose them."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    check_group(group)
    settings = {"session.timeout.ms": session, "heartbeat.interval.ms": heartbeat}
    for what, seconds in settings.items():
        check_seconds(what.partition(".")[0], seconds)
    entries = [
        ConfigEntry(f"consumer.{key}", str(int(seconds * 1000)), incremental_operation=AlterConfigOpType.SET)
        for key, seconds in settings.items()
        if seconds is not None
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    try:
        cluster.admin.incremental_alter_configs([resource], request_timeout=10)[resource].result(15)
    except KafkaException as error:
        raise NotAllowed(f"the clocks of group '{group}' were not set: {words(error)}. {LIMITS}") from None


def check_group(name: object) -> None:
    """A group's name is a string with something in it."""
    if not isinstance(name, str) or not name:
        raise NotAllowed(f"a group has a name, as in 'scores', not {name!r}")


def check_seconds(what: str, value: object) -> None:
    """A number above 0, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf):
        raise NotAllowed(f"{what} is a number above 0, or None, not {value!r}")
