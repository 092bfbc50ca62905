"""The Kafka on which a check runs an answer.

In:  how many brokers. Out: `kafka(3)`, the cluster of an open lab with so many, else one that lives as long as this process;
`new_topic(cluster, 4)`, an empty topic of a name that nobody has.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kqlib.workshop.cluster import Cluster

_numbers = itertools.count()


def kafka(brokers: int = 1) -> Cluster:
    """A cluster of this process with so many brokers, all of them running."""
    from kqlib.workshop.lab import open_clusters

    found = next((each for each in open_clusters() if len(each._brokers) == brokers), None) or _own(brokers)
    for number in range(1, brokers + 1):
        found.broker(number).start()
    return found


@functools.cache
def _own(brokers: int) -> Cluster:
    from kqlib.workshop.cluster import Cluster

    return Cluster(brokers)


def new_topic(cluster: Cluster, partitions: int = 1, **config: object) -> str:
    """Create a topic and return its name. Names of settings are written with _ for the dots."""
    from confluent_kafka.admin import NewTopic

    name = f"check-{next(_numbers)}"
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    cluster.admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(10)
    cluster.wait_for_topic(name, partitions)
    return name
