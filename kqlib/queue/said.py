"""What Kafka says as an error of ours: what happened, what is safe, what to do.

In:  a KafkaError. Out: a KqError to raise; `patient` asks again while a leader or a coordinator is on the move.
`Unreachable` is for what no broker answered. A right that is missing and a record that was refused have their own sentences.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from shlex import quote
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kqlib.errors import KqError, NotAllowed, NotNow, TopicMissing, Unreachable
from kqlib.kafka.cluster import Kafka, lacks
from kqlib.kafka.reading import MOVING
from kqlib.queue.dead import DEAD
from kqlib.queue.rights import IN_TABLE, Right
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


def not_allowed(right: Right, cluster: Kafka, safe: str, queue: str = "", site: str = "") -> NotAllowed:
    """The error for a right that is missing. queue, site: for the command that it names, if the right is not about them.

    The command knows only the rights of the table; what `gc` or `Site(session=…)` needs stands on the page.
    """
    queue = queue or (right.name if right.kind == "topic" and right.name != QUEUES else "QUEUE")
    site = site or (right.name if right.kind == "group" else "SITE")
    advice = f"kq doctor --rights {queue.removesuffix(DEAD)} --site {quote(site)} shows what else is lacking"
    if (right.operation, right.kind) not in IN_TABLE:
        advice = "docs/rights.md names all that this needs"
    return NotAllowed(f"{lacks(cluster, right)}. {safe} Ask whoever deploys to grant it; {advice}")


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
    said = error.args[0] if isinstance(error, KafkaException) else error
    return isinstance(said, KafkaError) and (said.fatal() or said.code() == KafkaError._FATAL)


def patient(ask: Callable[[], Any], seconds: float, dead: Callable[[], bool] | None = None) -> Any:
    """The answer, asked for again while whoever has it is on the move.

    dead: judges the client that was asked, which also learns who leads now. If it was dead, its successor is asked too.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if first(error).name() not in MOVING:
                raise
            replaced = dead is not None and dead()
            if time.monotonic() > deadline and not replaced:
                raise
        time.sleep(0.05)
