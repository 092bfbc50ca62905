"""What this user may do, asked of the cluster: Kafka tells, with a topic or a group, what the one who asks may do there.

In:  a cluster, rights. Out: for each, whether this user has it; the error that names one that is missing.
Kafka does not tell this of transactional ids: only a transaction that is begun shows it (`may_begin`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kqlib.errors import KqError, NotAllowed, TopicMissing
from kqlib.kafka.clients import Producer
from kqlib.kafka.cluster import Kafka, user
from kqlib.queue.rights import BEGIN, READ_GROUP, Right, needed
from kqlib.queue.said import RIGHTS, first, not_allowed, patient

SECONDS = 2.0  # for an answer; without one nothing is known, and the verb itself will say what is wrong
REFUSED = {  # how it says that one may not even look. A group whose members read a topic that one may not see is not shown either
    "topic": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "group": KafkaError.GROUP_AUTHORIZATION_FAILED,
}
_SILENT = logging.getLogger("kqlib.queue.granted")  # librdkafka prints what is fatal, unless a logger takes it


def granted(cluster: Kafka, rights: Iterable[Right], seconds: float = SECONDS) -> dict[Right, bool | None]:
    """Has this user each of these? None: not known."""
    rights, asks = list(rights), {"topic": _topic, "group": _group}
    found: dict[tuple[str, str], set[str] | None] = {}
    with suppress(TimeoutError):  # nobody answers: the rest is not asked
        for kind, name in dict.fromkeys((right.kind, right.name) for right in rights if right.kind in asks):
            found[kind, name] = _operations(partial(asks[kind], cluster, name, seconds), REFUSED[kind])
    has = {right: found.get((right.kind, right.name)) for right in rights}
    return {right: None if some is None else right.operation in some for right, some in has.items()}


def check(cluster: Kafka, verb: str, queue: str, site: str, safe: str, *, group: bool) -> None:
    """Raise `NotAllowed` if this user lacks a right that the verb needs. group: ask about those of the group too."""
    rights = [right for right in needed(verb, queue, site) if group or right.kind != "group"]
    for right, has in granted(cluster, rights).items():
        if has is False:
            raise not_allowed(right, cluster, safe, queue, site)


def ending_lacks(cluster: Kafka, site: str, topics: set[str], code: int) -> Right:
    """The right for want of which Kafka refused a transaction into these topics with this code."""
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return BEGIN.of("", site)
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return READ_GROUP.of("", site)
    rights = [Right("WRITE", "topic", topic) for topic in sorted(topics)]
    has = granted(cluster, rights) if len(rights) > 1 else {}
    return next((right for right in rights if has.get(right) is False), rights[0])


def not_there(cluster: Kafka, topic: str) -> KqError:
    """The error for a topic that is not to be seen. Who may not see it is not told by Kafka whether it exists."""
    if granted(cluster, [see := Right("DESCRIBE", "topic", topic)])[see] is not False:
        return TopicMissing(topic=topic)
    return NotAllowed(
        f"Topic '{topic}' does not exist, or {user(cluster)} may not see it: Kafka does not tell which. Nothing was changed. "
        f"Look at its name; if that is right, ask whoever deploys to plan the topic or to grant READ or WRITE on it"
    )


def may_begin(cluster: Kafka, site: str, seconds: float = SECONDS) -> bool | None:
    """May this user begin the site's transactions? Asked with an id of its own, which disturbs no process of the site."""
    settings = cluster.client(transactional_id=f"kq-{site}-rights", logger=_SILENT)
    try:
        Producer(settings).init_transactions(seconds)
    except KafkaException as error:
        return False if first(error).code() in RIGHTS else None
    return True


def _topic(cluster: Kafka, name: str, seconds: float) -> Any:
    how: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": seconds}
    return cluster.admin.describe_topics(TopicCollection([name]), **how)[name].result(seconds)


def _group(cluster: Kafka, name: str, seconds: float) -> Any:
    # not given up before its answer comes: that ends the process (librdkafka 4605)
    how: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": 30}
    return patient(lambda: cluster.admin.describe_consumer_groups([name], **how)[name].result(seconds), seconds)


def _operations(ask: Callable[[], Any], refused: int) -> set[str] | None:
    """What may be done there; None: Kafka did not tell."""
    try:
        return {each.name for each in ask().authorized_operations or ()} or None
    except KafkaException as error:
        if first(error).code() < 0:  # the client's own: no answer
            raise TimeoutError from None
        return set() if first(error).code() == refused else None
