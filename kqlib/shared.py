"""What labs made on somebody's own cluster, remembered there in the topic `kq.labs`, so that the next run can clean up.

In:  a cluster, a lab's name, this user. Out: `Traces`: names to make (`full`), remember, list and forget.
A name is remembered before it is made: a lab that is killed in between leaves a name too many, never a topic too many.
Only what stands here is ever deleted.
"""

from __future__ import annotations

import getpass
import json
import re
from typing import TYPE_CHECKING

from kqlib import snapshot
from kqlib.errors import NotAllowed

if TYPE_CHECKING:
    from kqlib.broker import Kafka

TOPIC = "kq.labs"
KINDS = ("topic", "group")


def user() -> str:
    """Who runs this lab, in letters that a topic's name may have."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without an entry
        name = "somebody"
    return re.sub(r"[^a-zA-Z0-9-]+", "-", name)


class Traces:
    """The topics and groups that one user's runs of one lab have made on a shared cluster."""

    def __init__(self, cluster: Kafka, lab: str) -> None:
        self.cluster, self.prefix = cluster, f"{lab}.{user()}."
        _ensure(cluster)

    def full(self, name: str) -> str:
        """The name that this lab's `name` has on a cluster with other people's topics."""
        return self.prefix + name

    def known(self, kind: str) -> list[str]:
        """The full names of this kind that are still to be cleaned up."""
        found: set[str] = set()
        for message in snapshot.records(self.cluster, TOPIC)[0]:
            said_kind, name = json.loads(message.key())
            if said_kind == kind and name.startswith(self.prefix):
                (found.add if message.value() is not None else found.discard)(name)
        return sorted(found)

    def remember(self, kind: str, name: str) -> None:
        """Durable when it returns."""
        self._write(kind, name, b"1")

    def forget(self, kind: str, name: str) -> None:
        """It is gone; compaction may drop its line."""
        self._write(kind, name, None)

    def _write(self, kind: str, name: str, value: bytes | None) -> None:
        from confluent_kafka import Producer

        producer = Producer(self.cluster.client(acks="all", enable_idempotence=True))
        producer.produce(TOPIC, value, json.dumps([kind, name]).encode())
        if producer.flush(15):
            raise NotAllowed(f"'{name}' could not be noted in '{TOPIC}', so it was not made")


def _ensure(cluster: Kafka) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    if TOPIC in cluster.admin.list_topics(timeout=10).topics:
        return
    asked = cluster.admin.create_topics([NewTopic(TOPIC, 1, config={"cleanup.policy": "compact"})])
    try:
        asked[TOPIC].result(15)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise NotAllowed(
                f"a lab on your own cluster notes what it makes in the topic '{TOPIC}', and that could not be created: "
                f"{error.args[0].str()}. Ask whoever deploys, or unset KQ_BOOTSTRAP for an embedded cluster"
            ) from None
