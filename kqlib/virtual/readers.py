"""Consumers in no group, which read states, lines and single records; and clients that have lost their cluster.

In:  a cluster, what for. Out: a Consumer of what is committed, which also says where a log ends; does a client hear anybody.
A client that was once told of no broker at all never comes back (librdkafka 5301), and brokers that wake together say just that:
so a node asks its clients now and then, and takes others when they hear nobody while a new one does.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException

from kqlib.broker.kafka import Kafka


def reader(cluster: Kafka, what: str, **more: Any) -> Any:
    """A Consumer, to be assigned by whoever reads."""
    how = {"fetch_wait_max_ms": 50, "fetch_queue_backoff_ms": 5, "enable_partition_eof": True, **more}
    settings = {"group_id": f"kqlib-virtual-{what}", "group_protocol": "classic", "isolation_level": "read_committed"}
    return Consumer(cluster.client(**settings, **how))


def hears(client: Any, topic: str, seconds: float) -> bool:
    """Does it know a broker that answers? Asked on the thread that may close it."""
    try:
        client.list_topics(topic, timeout=seconds)
    except KafkaException:
        return False
    return True


def leave(client: Any) -> None:
    """Close it, and do not wait: what has lost its cluster may take for ever."""

    def close() -> None:
        with suppress(KafkaException, RuntimeError):
            client.close()

    threading.Thread(target=close, name="kq-virtual-left", daemon=True).start()
