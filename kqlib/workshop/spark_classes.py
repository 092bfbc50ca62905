"""Records Spark's classes once: `python -m kqlib.workshop.spark_classes`, which `make venv` calls.

With the archive a session starts with half of the work.

In:  nothing. Out: the archive in the cache (`runtime/archive.py`), unless it is there. A small pipeline is recorded: games in Kafka
become standings in Kafka and Parquet, so that a first query of any kind finds its classes.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from kqlib.errors import in_a_sentence
from kqlib.runtime import archive, jars
from kqlib.schemas import Registry
from kqlib.spark import close, items, session, standings
from kqlib.spark.jvm import archived
from kqlib.topics import Plan, Topic
from kqlib.workshop import games
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce

TIMEOUT = 300.0  # seconds to write the archive at the JVM's end; it takes five


def record(options: list[str], place: Path) -> None:
    """Run the pipeline; the options let its JVM keep the classes that it loaded at its end."""
    with Cluster() as cluster:
        Plan({"games": Topic(2, config=FOR_EVER), "table": Topic(1, compact=True)}).apply(cluster, quiet=True)
        registry = Registry(cluster=cluster)
        produce(cluster, "games", seasons.messages(games.season(500, broken=0.01), registry, "games-value"))
        spark = session(cluster, config={"spark.driver.extraJavaOptions": shlex.join(options)})
        items(spark, cluster, "games").groupBy("partition").count().collect()
        standings(spark, cluster, "games", "table", registry=registry, home=str(place / "home"), once=True).wait()
        sys.modules["kqlib.spark.session"]._now.jvm.leave(TIMEOUT)
        close()


if __name__ == "__main__":
    os.environ.pop("KQ_SPARK_MASTER", None)  # it is the driver on this machine whose classes these are
    with in_a_sentence():
        key, whose = archived(jars.fetch("spark"))
        archive.make(key, record, whose)
