"""What Kafka answers, as an error of ours: what happened, what is safe, what to do. And which rights this user has.

In:  a KafkaError. Out: a KqError to raise.
`Unreachable` means that no broker answered. A missing right and a refused record have their own sentences.
With a topic or a group Kafka says what this user may do there. It does not say that of transactional ids: only a transaction that
begins shows it (`may_begin`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from shlex import quote
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kqlib.errors import KqError, NotAllowed, NotNow, TopicMissing, Unreachable
from kqlib.kafka.clients import Producer
from kqlib.kafka.cluster import Kafka, lacks, user
from kqlib.kafka.reading import patient
from kqlib.queue.dead import DEAD
from kqlib.queue.rights import BEGIN, IN_TABLE, READ_GROUP, Right, needed
from kqlib.topic_rules import QUEUES

RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE}
REFUSED = {  # a broker looked at what was sent and does not take it: it is not stored, and a second try changes nothing
    *(KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_REQUIRED_ACKS),
    *(KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_EXCEPTION, KafkaError.UNSUPPORTED_COMPRESSION_TYPE),
    *(KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, KafkaError.INVALID_CONFIG),
} | TOO_LARGE
GIVE_UP = {
    KafkaError.OFFSET_METADATA_TOO_LARGE,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.GROUP_MAX_SIZE_REACHED,
} | RIGHTS
SECONDS = 2.0  # for an answer; without one nothing is known, and the verb itself will say what is wrong
NOT_SEEN = {  # how it says that one may not even look. A group whose members read a topic that one may not see is not shown either
    "topic": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "group": KafkaError.GROUP_AUTHORIZATION_FAILED,
}
_SILENT = logging.getLogger("kqlib.queue.answers")  # librdkafka prints what is fatal, unless a logger takes it


def not_allowed(right: Right, cluster: Kafka, safe: str, queue: str = "", site: str = "") -> NotAllowed:
    """The error for a right that is missing. queue, site: for the command that it names, if the right is not about them.

    The command knows only the rights of the table; what `gc` or `Site(session=…)` needs stands on the page.
    """
    queue = queue or (right.name if right.kind == "topic" and right.name != QUEUES else "QUEUE")
    site = site or (right.name if right.kind == "group" else "SITE")
    advice = f"kq doctor --rights {queue.removesuffix(DEAD)} --site {quote(site)} shows what else is lacking"
    if (right.operation, right.kind) not in IN_TABLE:
        advice = "docs/rights.md names all that this needs"
    return NotAllowed(f"{lacks(cluster, right)}. {safe} Ask your administrator to grant it; {advice}")


def as_ours(
    error: KafkaError, address: str, doing: str, safe: str, topic: str = "", *, lacks: NotAllowed | None = None
) -> KqError:
    """The error to raise for one of Kafka's. lacks: that error, if Kafka complains about a right."""
    words = error.str().rstrip(".")
    if error.code() in NO_TOPIC and topic:
        return TopicMissing(topic=topic)
    if error.code() in RIGHTS and lacks:
        return lacks
    if error.code() in REFUSED | RIGHTS:
        return NotAllowed(f"Kafka refused to {doing} ({words}). {safe}".rstrip("."))
    kind = NotNow if error.code() > 0 else Unreachable  # the others are the client's own: no answer came
    return kind(address=address, why=f"{words} (asked to {doing}). {safe}".rstrip("."))


def refused(
    error: KafkaError, cluster: Kafka, doing: str, right: Right, safe: str, *, topic: str = "", **whose: str
) -> KqError:
    """The same, for what needs this right on this cluster. whose: `queue` and `site`, as `not_allowed` takes them."""
    lacks = not_allowed(right, cluster, safe, **whose)
    return as_ours(error, cluster.bootstrap, doing, safe, topic, lacks=lacks)


def is_refused(error: KafkaError) -> bool:
    """Is it certain that nothing was stored?"""
    return error.code() in REFUSED | RIGHTS | NO_TOPIC


def first(error: Any) -> KafkaError:
    """The KafkaError inside a KafkaException."""
    return error.args[0]


def fatal(error: Any) -> bool:
    """Is the client that raised or reported this dead for good?

    A consumer reports it once: as a message without a topic, with the code _FATAL, whose own `fatal()` is False.
    """
    cause = error.args[0] if isinstance(error, KafkaException) else error
    return isinstance(cause, KafkaError) and (cause.fatal() or cause.code() == KafkaError._FATAL)


# --- rights ---------------------------------------------------------------------------------------------------------------


def granted(cluster: Kafka, rights: Iterable[Right]) -> dict[Right, bool | None]:
    """Has this user each of these? None: not known."""
    rights, asks = list(rights), {"topic": _topic, "group": _group}
    found: dict[tuple[str, str], set[str] | None] = {}
    with suppress(TimeoutError):  # nobody answers: the rest is not asked
        for kind, name in dict.fromkeys((right.kind, right.name) for right in rights if right.kind in asks):
            found[kind, name] = _operations(partial(asks[kind], cluster, name), NOT_SEEN[kind])
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
    """The error for a topic that is not there. Kafka does not say whether it is missing or this user may not see it."""
    if granted(cluster, [see := Right("DESCRIBE", "topic", topic)])[see] is not False:
        return TopicMissing(topic=topic)
    return NotAllowed(
        f"Topic '{topic}' does not exist, or {user(cluster)} may not see it: Kafka does not tell which. Nothing was changed. "
        f"Look at its name; if that is right, ask your administrator to plan the topic or to grant READ or WRITE on it"
    )


def may_begin(cluster: Kafka, site: str) -> bool | None:
    """May this user begin the site's transactions? Asked with an id of its own, which disturbs no process of the site."""
    settings = cluster.client(transactional_id=f"kq-{site}-rights", logger=_SILENT)
    try:
        Producer(settings).init_transactions(SECONDS)
    except KafkaException as error:
        return False if first(error).code() in RIGHTS else None
    return True


def _topic(cluster: Kafka, name: str) -> Any:
    how: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": SECONDS}
    found = cluster.admin.describe_topics(TopicCollection([name]), **how)[name].result(SECONDS)
    return [each.name for each in found.authorized_operations or ()]


def _group(cluster: Kafka, name: str) -> Any:
    return patient(lambda: cluster.describe_group(name, SECONDS, operations=True).operations or (), SECONDS)


def _operations(ask: Callable[[], Any], refused: int) -> set[str] | None:
    """What may be done there; None: Kafka did not tell."""
    try:
        return set(ask()) or None
    except KafkaException as error:
        if first(error).code() < 0:  # the client's own: no answer
            raise TimeoutError from None
        return set() if first(error).code() == refused else None
