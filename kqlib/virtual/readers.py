"""Consumers in no group, which read states, lines and single records.

In: a cluster, what for. Out: a Consumer of what is committed, which also says where a log ends.
"""

from __future__ import annotations

from typing import Any

from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import LOOKER


def reader(cluster: Kafka, what: str, **more: Any) -> Any:
    """A Consumer, to be assigned by whoever reads."""
    how = {"fetch_wait_max_ms": 50, "fetch_queue_backoff_ms": 5, "enable_partition_eof": True, **more}
    settings = {"group_id": LOOKER, "group_protocol": "classic", "isolation_level": "read_committed"}
    return Consumer(cluster.client(**settings, **how))
