"""What labs made on somebody's own cluster, remembered there in the topic `kq.labs`, so that the next run can clean up.

In:  a cluster, a lab's name, this user. Out: `Traces`: names to make (`full`), remember, list and forget.
A name is remembered before it is made: a lab that is killed in between leaves a name too many, never a topic too many.
Only what stands here is ever deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import re
import zlib
from typing import IO, TYPE_CHECKING

from kqlib import places, snapshot
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
    plain = re.sub(r"[^a-zA-Z0-9-]+", "-", name)
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"  # anna.m and anna-m are two people


class Traces:
    """The topics and groups that one user's runs of one lab have made on a shared cluster."""

    def __init__(self, cluster: Kafka, lab: str) -> None:
        self.cluster, self.prefix = cluster, f"{lab}.{user()}."
        self._alone = _alone(cluster, lab)
        try:
            _ensure(cluster)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Another process may have this lab now."""
        self._alone.close()

    def full(self, name: str) -> str:
        """The name that this lab's `name` has on a cluster with other people's topics."""
        return self.prefix + name

    def known(self, kind: str) -> list[str]:
        """The full names of this kind that are still to be cleaned up."""
        found: set[str] = set()
        for message in snapshot.records(self.cluster, TOPIC)[0]:
            with contextlib.suppress(ValueError, TypeError, AttributeError):  # somebody else's line
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

        said: list[str | None] = []  # words, for a KafkaError cannot be compared with None (confluent-kafka 2.16)
        producer = Producer(
            self.cluster.client(acks="all")
        )  # not idempotent: that costs 0.5 s, and a line twice is one line
        producer.produce(
            TOPIC,
            value,
            json.dumps([kind, name]).encode(),
            on_delivery=lambda error, _: said.append(None if error is None else error.str()),
        )
        producer.flush(15)
        if said != [None]:
            why = said[0] if said else "no answer in 15 s"
            raise NotAllowed(f"'{name}' could not be noted in '{TOPIC}': {why}. So nothing was made or removed")


def _alone(cluster: Kafka, lab: str) -> IO[str]:
    """One process at a time on this machine has this lab on this cluster: two would delete each other's topics."""
    held = places.state() / "labs" / f"{lab}.{cluster.describe().cluster_id}"
    held.parent.mkdir(exist_ok=True)
    handle = held.open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise NotAllowed(
            f"lab '{lab}' is open in another process of yours on this cluster, and two would delete each other's topics. "
            "Shut that kernel down, or unset KQ_BOOTSTRAP for a cluster of this notebook's own"
        ) from None
    return handle


def _ensure(cluster: Kafka) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    if TOPIC in cluster.admin.list_topics(timeout=10).topics:
        return
    asked = cluster.admin.create_topics([NewTopic(TOPIC, 1, config={"cleanup.policy": "compact"})])
    try:
        asked[TOPIC].result(15)
        cluster.wait_for_topic(TOPIC, 1)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise NotAllowed(
                f"a lab on your own cluster notes what it makes in the topic '{TOPIC}', and that could not be created: "
                f"{error.args[0].str()}. Ask whoever deploys, or unset KQ_BOOTSTRAP for an embedded cluster"
            ) from None
