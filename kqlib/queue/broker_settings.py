"""Settings that the brokers keep for topics and groups: read, and changed for a group.

In:  a cluster, names. Out: a topic's settings, the size of a record that it takes; a group's session timeout, set.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kqlib.errors import NotAllowed
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import patient
from kqlib.queue.answers import first, refused
from kqlib.queue.clients import judge
from kqlib.queue.rights import Right
from kqlib.topic_rules import RECORD_BYTES

HEARTBEAT = 5000  # milliseconds; brokers refuse more than 15 s unless they are set otherwise


def topic_settings(cluster: Kafka, topics: list[str], seconds: float = 10.0) -> dict[str, dict[str, str]]:
    """The settings of each of these topics. A topic that this user may not look at is left out."""
    asked, found = [ConfigResource(ResourceType.TOPIC, name) for name in topics], dict[str, dict[str, str]]()
    admin = cluster.admin  # held while it works
    for resource, future in admin.describe_configs(asked, request_timeout=seconds).items():
        with suppress(KafkaException, TimeoutError):
            found[resource.name] = {key: entry.value or "" for key, entry in future.result(seconds + 1).items()}
    return found


def record_limits(cluster: Kafka, topics: list[str], seconds: float = 10.0) -> dict[str, int]:
    """The bytes of a record that each topic takes; Kafka's default where this user may not look."""
    found = topic_settings(cluster, topics, seconds)
    return {name: int(found.get(name, {}).get("max.message.bytes") or RECORD_BYTES) for name in topics}


def set_session_timeout(cluster: Kafka, group: str, session: float) -> None:
    """Set the session and the heartbeat of a group: a third of the session, but no longer than Kafka's default."""
    milliseconds = int(session * 1000)
    beat = min(milliseconds // 3, HEARTBEAT)
    clocks = {"consumer.session.timeout.ms": milliseconds, "consumer.heartbeat.interval.ms": beat}
    try:
        alter_group(cluster, group, clocks)
        with suppress(KafkaException):  # a broker before 4.3 does not know it; a quick restart waits for it there
            alter_group(cluster, group, {"consumer.assignment.interval.ms": 0})
    except KafkaException as error:
        if first(error).code() == KafkaError.INVALID_CONFIG:
            raise NotAllowed(
                f"session={session:g} is refused by the cluster: {first(error).str()}. Use session=None"
            ) from None
        doing, right = "set the group's session", Right("ALTER_CONFIGS", "group", group)
        raise refused(first(error), cluster, doing, right, "Nothing was changed.") from None


def alter_group(cluster: Kafka, group: str, values: Mapping[str, Any]) -> None:
    """Change settings of a group."""
    how = {"incremental_operation": AlterConfigOpType.SET}
    entries = [ConfigEntry(name, str(value), **how) for name, value in values.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)

    def ask() -> None:
        admin = cluster.admin  # held while it works
        admin.incremental_alter_configs([resource], request_timeout=5)[resource].result(6)

    patient(ask, 10, partial(judge, cluster))
