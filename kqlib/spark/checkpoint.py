"""Which cluster and which topics a checkpoint belongs to. Spark's own files name topics only, and offsets mean nothing elsewhere.

In:  a directory, a cluster, topics. Out: the path of the checkpoint, or `NotAllowed`.

    home/stream.json    {"cluster": its id, "topics": {"games": its id, …}}: written before the checkpoint, and never changed
    home/checkpoint/    Spark's own
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed
from kqlib.queue import state
from kqlib.spark.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kqlib.kafka import Kafka

FILE = "stream.json"
ANEW = (
    "Nothing was read or written. To begin anew, name an empty directory and an output topic that is empty: the stream then reads "
    "the log from its start"
)


def path(home: Any) -> str:
    """Where Spark's checkpoint is."""
    if not isinstance(home, str) or not home.strip():
        raise NotAllowed(f"home is a directory for the checkpoint and the snapshot, not {home!r}")
    return f"{home}/checkpoint"


def identity(cluster: Kafka, *topics: str) -> dict[str, Any]:
    """The ids of a cluster and of topics: they differ where only the names are the same."""
    ids = {topic: found[0] for topic, found in state.topic_ids(cluster, list(topics)).items()}
    return {"cluster": cluster.describe().cluster_id, "topics": ids}


def name(cluster: Kafka, *topics: str) -> str:
    """A directory name made of topic ids. A recreated topic has another id, so it gets another directory."""
    return "-".join(identity(cluster, *topics)["topics"].values())


def claim(spark: SparkSession, home: str, cluster: Kafka, *topics: str) -> str:
    """The checkpoint in `home`, which is for these topics of this cluster; one of others is refused. The first call notes which."""
    checkpoint, files, ours = path(home), Files(spark, home), identity(cluster, *topics)
    noted = files.read(FILE)
    if noted is None and not files.sizes("checkpoint") and not files.sizes("current"):
        files.write(FILE, json.dumps(ours))
    elif noted is None:
        raise NotAllowed(f"{home} holds a checkpoint, and no {FILE} that says which cluster it belongs to. {ANEW}")
    elif why := _differs(noted, ours):
        raise NotAllowed(f"{home} holds the checkpoint of {why}, so its offsets cannot be used here. {ANEW}")
    return checkpoint


def _differs(noted: str, ours: dict[str, Any]) -> str:
    """What is another one than it was; "" if nothing is."""
    try:
        theirs = json.loads(noted)
        cluster, topics = theirs["cluster"], dict(theirs["topics"])
    except (ValueError, TypeError, KeyError):
        return f"an unknown cluster, because {FILE} cannot be read"
    if cluster != ours["cluster"]:
        return f"another cluster ({cluster}, and this one is {ours['cluster']})"
    if set(topics) != set(ours["topics"]):
        return f"other topics ({', '.join(sorted(topics))})"
    anew = [f"'{name}'" for name, number in ours["topics"].items() if topics[name] != number]
    return f"{' and '.join(anew)} before it was deleted and made again" if anew else ""
