"""The data pipeline: Spark on Kafka, exact across crashes, from a laptop to a cluster.

    spark = kq.spark.session(cluster)                                # Kafka and Avro wired, quiet; KQ_SPARK_MASTER names a cluster
    items = kq.spark.items(spark, cluster, "football")               # a topic as a frame
    kq.spark.decode(items, registry, "football-value").good          # its values, whatever version wrote them

Modules:

    session, jvm                          one session in a process
    frames                                Kafka as frames
    decode, stream, progress              values; a stream that takes up new schemas; how far it is
    rules                                 what a value has to meet
    table, standings, snapshot            standings from events; as a stream; its directory
    pipeline_file, plan, running          a stream as one file; where it would go on; the process that runs it
    backfill                              standings counted anew beside the stream, compared and switched
    joins                                 two streams by time; an event and the version at its time
    queue_state, audit, health, watch     was every item done exactly once? once, over time, again and again
    replay, aside                         old records written again, dead letters repaired; late and bad rows put aside and back
"""

# ruff: noqa: E402

from kqlib.extras import check as _needs

_needs("spark", "spark", "pyspark")

from kqlib.spark.aside import put_back
from kqlib.spark.audit import Audit, audit
from kqlib.spark.backfill import Compared, backfill
from kqlib.spark.decode import Decoded, decode
from kqlib.spark.frames import items, ledger, letters, registry, sink, source
from kqlib.spark.joins import as_of, near
from kqlib.spark.progress import Progress, follow, seen, show
from kqlib.spark.replay import Replayed, repair, replay
from kqlib.spark.rules import Rule
from kqlib.spark.session import ROCKSDB, close, session
from kqlib.spark.standings import form, standings
from kqlib.spark.stream import Running, stream
from kqlib.spark.table import table
from kqlib.spark.watch import Round, Watch, watch

__all__ = [
    "ROCKSDB",
    "Audit",
    "Compared",
    "Decoded",
    "Progress",
    "Replayed",
    "Round",
    "Rule",
    "Running",
    "Watch",
    "as_of",
    "audit",
    "backfill",
    "close",
    "decode",
    "follow",
    "form",
    "items",
    "ledger",
    "letters",
    "near",
    "put_back",
    "registry",
    "repair",
    "replay",
    "seen",
    "session",
    "show",
    "sink",
    "source",
    "standings",
    "stream",
    "table",
    "watch",
]
