"""Frames into Kafka: rows as framed Avro under a key, and quarantined rows with their story.

In:  a frame, a cluster, a topic. Out: records; written again they are the same, so that a batch may be worked twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kqlib.schemas.wire import HEAD, MAGIC
from kqlib.spark.session import sink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kqlib.kafka import Kafka


def avro(columns: Any, schema: str, number: int) -> Column:
    """These columns as one value in Confluent's wire format."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import to_avro

    head = f.lit(HEAD.pack(MAGIC, number))
    return f.concat(head, to_avro(f.struct(*columns), schema))


def put(frame: DataFrame, cluster: Kafka, topic: str, batch: int | None = None) -> None:
    """Write `key`, `value` and, if there are any, `headers`; the batch's number goes into a header."""
    headers = "headers" if "headers" in frame.columns else "cast(array() AS array<struct<key: string, value: binary>>)"
    if batch is not None:
        headers = f"concat({headers}, array(struct('kq-batch' AS key, binary('{batch}') AS value)))"
    out = frame.selectExpr("key", "value", f"{headers} AS headers")
    out.write.format("kafka").options(**sink(cluster, topic)).save()


def quarantine(bad: DataFrame, cluster: Kafka, topic: str, batch: int | None = None) -> None:
    """Rows that could not be decoded, as they were; key and headers say where they lay and what is wrong with them."""
    from pyspark.sql import functions as f

    where = f.concat_ws("/", "topic", "partition", "offset").cast("binary")
    told = {"kq-cause": f.col("cause"), "kq-why": f.col("why"), "kq-schema": f.col("schema_id").cast("string")}
    headers = [f.struct(f.lit(name).alias("key"), each.cast("binary").alias("value")) for name, each in told.items()]
    put(bad.select(where.alias("key"), "value", f.array(*headers).alias("headers")), cluster, topic, batch)
