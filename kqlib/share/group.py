"""A share group's settings: they are kept in the cluster, one set a group. The last writer wins.

In:  what a queue was made with. Out: what the group has now. Through the admin API, so that no member need know.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from kqlib.errors import NotAllowed
from kqlib.kafka.cluster import Kafka, lacks
from kqlib.kafka.reading import patient
from kqlib.queue.answers import as_ours, first
from kqlib.queue.broker_settings import alter_group
from kqlib.queue.rights import Right

ASK = "Ask your administrator to grant it"
LOCK, LIMIT = "share.record.lock.duration.ms", "share.delivery.count.limit"
T = TypeVar("T")
ALWAYS = {
    "share.auto.offset.reset": "earliest",  # the default, latest, skips what was put before the first start
    "share.isolation.level": "read_committed",  # the default gives items of aborted transactions as well
}
QUICK = {  # a member has its partitions with its second heartbeat: after 5 s by default
    "share.heartbeat.interval.ms": "500",
    "share.assignment.interval.ms": "0",
}
CANNOT = {  # settings of ours that a ShareConsumer refuses
    "allow.auto.create.topics",
    "auto.offset.reset",
    "enable.auto.commit",
    "group.protocol",
    "isolation.level",
    "partitioner",
}


@dataclass(frozen=True)
class Terms:
    """What the group has: seconds of a lock, and deliveries until a record is archived."""

    lease: float
    max_attempts: int


def agree(cluster: Kafka, group: str, lease: float | None, max_attempts: int | None) -> Terms:
    """Set what was asked for and is not set yet. Returns what the group has now. If all of it is set, no right to set it is needed."""
    asked = dict(ALWAYS)
    if lease is not None:
        asked[LOCK] = str(round(lease * 1000))
    if max_attempts is not None:
        asked[LIMIT] = str(max_attempts)
    has = _answer(cluster, Right("DESCRIBE_CONFIGS", "group", group), ASK, lambda: _now(cluster, group))
    if other := {name: value for name, value in asked.items() if has.get(name) != value}:
        _answer(
            cluster,
            Right("ALTER_CONFIGS", "group", group),
            _deploy(group, other),
            lambda: alter_group(cluster, group, other),
        )
    for name, value in QUICK.items():
        if has.get(name) != value:
            # without it joining takes longer: the broker's minimum is higher, or this user lacks the right
            with suppress(KafkaException):
                alter_group(cluster, group, {name: value})
    has |= other
    return Terms(int(has[LOCK]) / 1000, int(has[LIMIT]))


def _deploy(group: str, values: dict[str, str]) -> str:
    settings = ",".join(f"{name}={value}" for name, value in values.items())
    how = f"kq kafka configs --alter --entity-type groups --entity-name {group} --add-config {settings}"
    return f"It is needed to set {settings}. Your administrator can set it once: `{how}`"


def not_allowed(cluster: Kafka, right: Right, then: str) -> NotAllowed:
    """The error for a right that is missing, as a queue says it. `kq doctor --rights` does not look at share groups."""
    return NotAllowed(f"{lacks(cluster, right)}. {then}")


def _answer(cluster: Kafka, right: Right, remedy: str, ask: Callable[[], T]) -> T:
    """The answer, or Kafka's no as a sentence. right: which this takes."""
    try:
        return ask()
    except KafkaException as error:
        cause = first(error)
    if cause.code() == KafkaError.INVALID_CONFIG:
        why = (
            f"the cluster refuses a setting of share group '{right.name}': {cause.str()}. Leave it out, or stay within"
        )
        raise NotAllowed(why)
    no_right = not_allowed(cluster, right, f"Nothing was changed. {remedy}")
    raise as_ours(cause, cluster.bootstrap, "set up the share group", "Nothing was changed.", lacks=no_right)


def _now(cluster: Kafka, group: str) -> dict[str, str]:
    resource, admin = ConfigResource(ResourceType.GROUP, group), cluster.admin
    found = patient(lambda: admin.describe_configs([resource], request_timeout=10)[resource].result(11), 10)
    return {name: entry.value for name, entry in found.items()}
