"""The data pipeline: Spark on Kafka, exact across crashes, from a laptop to a cluster.

    spark = kq.spark.session(cluster)                                # Kafka and Avro wired, quiet; KQ_SPARK_MASTER names a cluster
    items = kq.spark.items(spark, cluster, "football")               # a topic as a frame
    kq.spark.decode(items, registry, "football-value").good          # its values, whatever version wrote them

Modules:

    session, jvm                          one session in a process
    frames                                Kafka as frames
    decode, stream, progress              values; a stream that takes up new schemas; how far it is
    rules                                 what a value has to meet
    table, standings, snapshot            standings and windows of time from events; as a stream; its directory
    pipeline_file, plan, running          a stream as one file; where it would go on; the process that runs it
    backfill                              standings counted anew beside the stream, compared and switched
    joins                                 two streams by time; an event and the version at its time
    queue_state, audit, health, watch     was every item done exactly once? once, over time, again and again
    replay, aside                         old records written again, dead letters repaired; late and bad rows put aside and back
"""

# ruff: noqa: E402

from kqlib.extras import check as _needs

_needs("spark", "spark", "pyspark")

from kqlib.spark.aside import put_back as put_back
from kqlib.spark.audit import Audit as Audit, audit as audit
from kqlib.spark.backfill import Compared as Compared, backfill as backfill
from kqlib.spark.decode import Decoded as Decoded, decode as decode
from kqlib.spark.frames import (
    items as items,
    ledger as ledger,
    letters as letters,
    registry as registry,
    sink as sink,
    source as source,
)
from kqlib.spark.joins import as_of as as_of, near as near
from kqlib.spark.progress import Progress as Progress, follow as follow, seen as seen, show as show
from kqlib.spark.replay import Replayed as Replayed, repair as repair, replay as replay
from kqlib.spark.rules import Rule as Rule
from kqlib.spark.session import ROCKSDB as ROCKSDB, close as close, session as session
from kqlib.spark.standings import form as form, standings as standings
from kqlib.spark.stream import Running as Running, stream as stream
from kqlib.spark.table import table as table, windows as windows
from kqlib.spark.watch import Round as Round, Watch as Watch, watch as watch
