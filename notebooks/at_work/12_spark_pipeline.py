"""A stream on Spark, on kqlib: the rows of a topic become Parquet, and rows that are bad go into another topic.

Promise, as its test shows: each row is in exactly one of two places, however often the driver dies. Good rows are in
KQ_HOME/rows/batch=N, one directory a batch. A batch that comes again replaces its directory. Bad rows (not decoded, or they break a
rule) are in KQ_RESULTS with their bytes and their cause. A batch that comes again writes them again, under the same key, the row's id.

KQ_BOOTSTRAP, KQ_TOPIC and KQ_RESULTS say where. KQ_HOME is the directory for checkpoint and Parquet. KQ_REGISTRY is the address of a
schema registry (default: the cluster's own topic kq.schemas). Readers of the Parquet leave out a batch without a file in
checkpoint/commits. SIGTERM ends it; the batch in hand comes again at the next start.
Exit status: 0 ended by SIGTERM, 1 the stream cannot go on.
"""

import logging
import os
import signal
import sys
import threading
from typing import Any

import kqlib as kq
from kqlib.spark.aside import put_aside
from kqlib.spark.frames import read
from kqlib.spark.running import alone
from kqlib.spark.snapshot import claim

TOPIC, BAD, HOME = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"], os.environ["KQ_HOME"]
REGISTRY = os.environ.get("KQ_REGISTRY")
LARGEST = 200_000  # rows of a batch, so that the start after a long pause is not one batch of a day
RULES = [
    kq.spark.Rule("two teams", "game LIKE '%-%'"),
    kq.spark.Rule("points", "abs(points) < 10", then="stop", above=0.01),  # more than one of a hundred: a mistake
]
log = logging.getLogger("stream")


def run(cluster: Any, stopping: threading.Event) -> None:
    """Run the stream until it is to stop."""
    spark = kq.spark.session(cluster)
    registry = kq.schemas.Registry(url=REGISTRY) if REGISTRY else kq.schemas.Registry(cluster=cluster)
    checkpoint = claim(spark, HOME, cluster, TOPIC, BAD)  # refuses another topic's directory

    def each(good: Any, bad: Any, number: int) -> None:
        """One batch, perhaps once more: everything that is written here replaces, or has the same key."""
        good.select("id", "timestamp", "value").write.mode("overwrite").parquet(f"{HOME}/rows/batch={number}")
        put_aside(bad, cluster, BAD)

    rows = read(spark, cluster, TOPIC, stream=True, maxOffsetsPerTrigger=LARGEST)
    rows = rows.selectExpr("*", "concat_ws('/', topic, partition, offset) AS id")
    running = kq.spark.stream(rows, registry, f"{TOPIC}-value", each, checkpoint, rules=RULES)
    while not stopping.is_set() and not running.wait(0.5):  # raises what ended the stream
        pass
    running.stop()
    log.info("%s", running.counted)
    for (rule, schema), count in sorted(running.broke.items()):
        log.warning("rule '%s': %d rows of schema %d broke it", rule, count, schema)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        with kq.connect() as cluster, alone(HOME):
            run(cluster, stopping)
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    finally:
        kq.spark.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
