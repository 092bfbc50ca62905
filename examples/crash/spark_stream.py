"""pyspark==4.1.3: structured streaming from Kafka to Kafka, with a checkpoint.

Promises: at least once for the Kafka sink; the checkpoint holds the offsets, no group is committed.
Again: python -m examples.crash.page spark_stream
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql.functions import udf

import kqlib as kq

spark = kq.spark.session()


@udf("string")
def work(value: str) -> str:
    time.sleep(0.001)
    return f"done {value}"


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
address = os.environ["KQ_BOOTSTRAP"]
checkpoint = Path(tempfile.gettempdir()) / os.environ["KQ_GROUP"]  # the same after a restart
items = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", address)
    .option("subscribe", os.environ["KQ_TOPIC"])
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 1)
    .load()
)
query = (
    items.select("key", work(items.value.cast("string")).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", address)
    .option("topic", os.environ["KQ_RESULTS"])
    .option("checkpointLocation", str(checkpoint))
    .start()
)
query.awaitTermination()
