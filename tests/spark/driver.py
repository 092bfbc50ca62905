"""A driver to be killed: `python -m tests.spark.driver ADDRESS GAMES OUT HOME`. It says 'ready' and a line for each batch."""

from __future__ import annotations

import sys

from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.spark import session, standings


def main(address: str, games: str, out: str, home: str) -> None:
    cluster = Kafka(address)
    spark = session(cluster)
    running = standings(
        spark, cluster, games, out, registry=Registry(cluster=cluster), home=home, late=LATE, maxOffsetsPerTrigger=ROWS
    )
    print("ready", flush=True)
    running.wait()


LATE, ROWS = 3600.0, 300

if __name__ == "__main__":
    main(*sys.argv[1:])
