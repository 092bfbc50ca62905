"""What decoding and standings cost on Spark, each next to what it is measured against, in the same run.

In: nothing. Out: `measured()`: one round, {what: a time or a ratio}. `python -m bench spark` prints it, with the targets.

    decode          cached frames, nothing else in the way: in the JVM, and by a pandas UDF around fastavro. kqlib always
                    notices trailing bytes; "unchecked" is Spark's own decoder by hand, which neither does so nor keeps broken rows
    count           Kafka → count by key → Kafka, of bytes as they are and of decoded values; the same topic. Of 0.2 M rows, where
                    planning and the readers' start weigh as much as the rows, and of 2 M (below), which is what the target means
    standings       Kafka → standings → Kafka and Parquet, a stream from its start to its end: the JVM's first one, of one batch, and
                    then one of five such batches
    row             from produce to the row in `each`, and to the snapshot of standings, one row at a time; and what of that is
                    not the batch's work: Spark asks for offsets, makes a plan and notes both
    cores           Kafka → decode → count → Kafka again, on one core and on two, of 0.2 M rows and of 2 M; and on one executor and on
                    two, processes of their own with a core each
    a day           24 hours of events go through standings, 144 batches of ten minutes; the driver's memory each eight hours
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.schemas.form import canonical, parsed
from kqlib.schemas.wire import HEAD, MAGIC
from kqlib.spark import close, decode, session, sink, source, standings, stream
from kqlib.topics import Plan, Topic
from kqlib.workshop import games
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce

WELL = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}  # as at work: with the compiler for what runs long
ROWS, TIMES = 200_000, 10  # the large topic has each row so many times
LONG = 5  # the longer season's batches
STEP = 6_000  # milliseconds between two events of a day
BATCH = 600_000 // STEP
TAKES = 5  # the first of each kind are compilation
SINGLES = 25


def measured() -> dict[str, float]:
    """One round."""
    with Cluster() as cluster:
        plan = {name: Topic(2, config=FOR_EVER) for name in ("games", "long", "many")}
        plan |= {"single": Topic(1, config=FOR_EVER), "day": Topic(1, config=FOR_EVER), "counts": Topic(2)}
        plan |= {name: Topic(2, compact=True) for name in ("table", "again", "latest", "daily")}
        Plan(plan).apply(cluster, quiet=True)
        registry = Registry(cluster=cluster)
        registry.register("single-value", seasons.schema(1))
        for topic, times in (("games", 1), ("long", LONG)):
            events = games.season(ROWS * times, late=0.01, doubled=0.01)
            produce(cluster, topic, seasons.messages(events, registry, f"{topic}-value"))
        home = tempfile.mkdtemp(prefix="kqlib-bench-")
        try:
            return _measured(cluster, registry, home) | _scaled(cluster, registry)
        finally:
            close()
            shutil.rmtree(home, ignore_errors=True)


def _measured(cluster: Kafka, registry: Registry, home: str) -> dict[str, float]:
    start = time.monotonic()
    spark = session(cluster, config={"spark.driver.memory": "900m", **WELL})
    ready = time.monotonic()
    read = spark.read.format("kafka").options(**source(cluster, "games")).load()
    read.count()
    first = time.monotonic()
    found = {"session, s": ready - start, "first query, s (≤ 6)": first - ready, "both, s of CPU": cpu()}
    found |= _decoding(spark, read, registry)
    found |= _counting(cluster, read, registry)
    common: dict[str, Any] = {"registry": registry, "once": True, "maxOffsetsPerTrigger": ROWS}
    for topic, table, times in (("games", "table", 1), ("long", "again", LONG)):
        start = time.monotonic()
        standings(spark, cluster, topic, table, home=f"{home}/{table}", **common).wait()
        found[f"standings, {ROWS * times / 1e6:g} M rows, k rows/s a core"] = _rate(time.monotonic() - start) * times
    for what, most, measure in (("stateless", 0.15, _stateless), ("standings", 0.4, _stateful)):
        row, around = measure(spark, cluster, registry, f"{home}/{what}")
        found[f"produce to row, {what} p50, s (≤ {most})"] = row
        found[f"of it Spark's steps around a batch, {what}, s"] = around
    found["driver, MB (≤ 1200)"] = _memory()
    return found | _day(spark, cluster, registry, f"{home}/day")


def _day(spark: Any, cluster: Kafka, registry: Registry, home: str) -> dict[str, float]:
    """What the driver takes each eight hours of a day of events."""
    found: dict[str, float] = {}
    hours, each = 24, 3_600_000 // STEP
    times = (seasons.FIRST + number * STEP for number in range(hours * each))
    events = [one._replace(at=at, sent=at) for one, at in zip(games.season(hours * each), times, strict=False)]
    how: dict[str, Any] = {"registry": registry, "home": home, "once": True, "maxOffsetsPerTrigger": BATCH}
    for hour in range(0, hours, 8):
        produce(cluster, "day", seasons.messages(events[hour * each : (hour + 8) * each], registry, "day-value"))
        standings(spark, cluster, "day", "daily", **how).wait()
        found[f"driver after {hour + 8} h of events, MB"] = _memory()
    return found


def _decoding(spark: Any, read: Any, registry: Registry) -> dict[str, float]:
    cached = read.select("value").repartition(2).persist()
    cached.count()
    ours = decode(cached, registry, "games-value").good.select("value.*")
    frames = {"ours": ours, "bare": _unchecked(cached, registry)}
    frames["pandas"] = cached.mapInPandas(_in_pandas(registry), ours.schema)
    took = _took({name: partial(_drained, frame) for name, frame in frames.items()})
    cached.unpersist()
    return {
        "decode, k rows/s a core": _rate(took["ours"].seconds),
        "decode unchecked, k rows/s a core": _rate(took["bare"].seconds),
        "decode, pandas and fastavro, k rows/s a core": _rate(took["pandas"].seconds),
        "decode ÷ pandas, trailing bytes noticed (≥ 5)": took["pandas"].seconds / took["ours"].seconds,
        "decode unchecked ÷ pandas": took["pandas"].seconds / took["bare"].seconds,
    }


def _unchecked(cached: Any, registry: Registry) -> Any:
    """A branch for each version, and whatever Spark's decoder makes of the bytes."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    ids = registry.ids("games-value")
    how = {"mode": "PERMISSIVE", "avroSchema": registry.schema(max(ids))}
    value = f.lit(None)
    for number in ids:
        mine = f.substring("value", 1, HEAD.size) == f.lit(HEAD.pack(MAGIC, number))
        value = f.when(
            mine, from_avro(f.expr(f"substring(value, {HEAD.size + 1})"), registry.schema(number), how)
        ).otherwise(value)
    return cached.select(value.alias("value")).select("value.*")


def _in_pandas(registry: Registry) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What one would write without `kq.spark.decode`: a pandas UDF that calls fastavro for each row."""
    writers = {number: canonical(registry.schema(number)) for number in registry.ids("games-value")}
    reader = writers[max(writers)]

    def decoded(frames: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd
        from fastavro import schemaless_reader

        for frame in frames:
            rows = []
            for data in frame["value"]:
                writer = parsed(writers[int.from_bytes(data[1:5], "big")])
                rows.append(schemaless_reader(BytesIO(data[5:]), writer, parsed(reader)))
            yield pd.DataFrame(rows)

    return decoded


def _counting(cluster: Kafka, read: Any, registry: Registry) -> dict[str, float]:
    took = _took(
        {
            "bytes": partial(_write_counts, cluster, _raw(read)),
            "values": partial(_write_counts, cluster, _counted(read, registry)),
        }
    )
    return {
        "Kafka → count → Kafka, bytes, k rows/s a core": _rate(took["bytes"].seconds),
        "Kafka → decode → count → Kafka, k rows/s a core": _rate(took["values"].seconds),
        "Kafka → decode → count → Kafka, k rows a second of CPU": ROWS / took["values"].cpu / 1000,
        "decoded ÷ bytes": took["bytes"].seconds / took["values"].seconds,
    }


def _raw(read: Any) -> Any:
    """The same count of bytes."""
    from pyspark.sql import functions as f

    return read.groupBy("key").agg(f.count("*").alias("n"))


def _counted(read: Any, registry: Registry) -> Any:
    """Something of every value, by game: whole values, not their length."""
    from pyspark.sql import functions as f

    value = f.sum(f.length("value.kind") + f.col("value.points") + f.col("value.round"))
    return decode(read, registry, "games-value").good.groupBy(f.col("value.game").alias("key")).agg(value.alias("n"))


def _write_counts(cluster: Kafka, frame: Any) -> None:
    """A count of each key, into Kafka."""
    text = frame.selectExpr("cast(key as binary) as key", "cast(cast(n as string) as binary) as value")
    text.write.format("kafka").options(**sink(cluster, "counts")).save()


def _scaled(cluster: Kafka, registry: Registry) -> dict[str, float]:
    """The same work on one core and on two, of few rows and of many, in one process and in executors."""
    found: dict[str, float] = {}
    _many(cluster, session().read.format("kafka").options(**source(cluster, "games")).load())
    for kind, master in (("core", "local[{}]"), ("executor", "local-cluster[{},1,700]")):
        found |= _on(cluster, registry, kind, master)
    return found


def _on(cluster: Kafka, registry: Registry, kind: str, master: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for cores in (1, 2):
        close()
        os.environ["KQ_SPARK_MASTER"] = master.format(cores)
        spark = session(cluster, config=WELL)
        for topic, times in (("games", 1), ("many", TIMES)):
            read = spark.read.format("kafka").options(**source(cluster, topic)).load()
            works = {"values": partial(_write_counts, cluster, _counted(read, registry))}
            works |= {"bytes": partial(_write_counts, cluster, _raw(read))} if times > 1 else {}
            took = _took(works, 3)
            what = f"{ROWS * times / 1e6:g} M rows, {cores} {kind}{'s' * (cores > 1)}"
            found[f"{what}, k rows/s a core"] = ROWS * times / took["values"].seconds / cores / 1000
            if times > 1:
                found[f"{what}, decoded ÷ bytes (≥ 0.7)"] = took["bytes"].seconds / took["values"].seconds
    del os.environ["KQ_SPARK_MASTER"]
    return found


def _many(cluster: Kafka, read: Any) -> None:
    """Every row of the games so many times."""
    rows = read.selectExpr("key", "value", f"explode(sequence(1, {TIMES}))").select("key", "value")
    rows.write.format("kafka").options(**sink(cluster, "many")).save()


def _stateless(spark: Any, cluster: Kafka, registry: Registry, home: str) -> tuple[float, float]:
    """From produce to the row in `each`."""
    seen: list[int] = []

    def each(good: Any, bad: Any, batch: int) -> None:
        seen.append(good.count())

    read = spark.readStream.format("kafka").options(**source(cluster, "single", startingOffsets="earliest")).load()
    return _singles(cluster, registry, stream(read, registry, "single-value", each, home), lambda: len(seen))


def _stateful(spark: Any, cluster: Kafka, registry: Registry, home: str) -> tuple[float, float]:
    """From produce to the snapshot that counts it; Kafka has it then, too."""
    running = standings(spark, cluster, "single", "latest", registry=registry, home=home)
    whole = Path(home, "current")  # a file for each batch that is whole
    return _singles(
        cluster, registry, running, lambda: max((1 + int(each.name) for each in whole.glob("[0-9]*")), default=0)
    )


def _singles(cluster: Kafka, registry: Registry, running: Any, batches: Callable[[], int]) -> tuple[float, float]:
    """The median of some, one at a time; and of a batch's time without its work: offsets asked for and noted, the plan made."""
    from confluent_kafka import Producer

    producer, took = Producer(cluster.client(linger_ms=0)), []
    for key, data, _ in seasons.messages(games.season(SINGLES), registry, "single-value"):
        before, start = batches(), time.monotonic()
        producer.produce("single", data, key)
        producer.flush(10)
        while batches() == before and running.active:
            time.sleep(0.005)
        took.append(time.monotonic() - start)
        time.sleep(0.1)  # the batch's end reaches the checkpoint
    steps = [each["durationMs"] for each in running.query.recentProgress if each["numInputRows"]]
    running.stop()
    around = [each["triggerExecution"] - each["addBatch"] for each in steps]
    return statistics.median(took[5:]), statistics.median(around[5:]) / 1000


def _drained(frame: Any) -> None:
    """Every column of every row is made, and thrown away."""
    frame.write.format("noop").mode("overwrite").save()


class Took(NamedTuple):
    """What one kind of work took at best: seconds by the clock, and of all cores together."""

    seconds: float
    cpu: float


def _took(works: dict[str, Callable[[], None]], takes: int = TAKES) -> dict[str, Took]:
    """The best of some; in turn, so that a noisy neighbour disturbs all of them alike."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(takes):
        for name, work in works.items():
            start, before = time.monotonic(), cpu()
            work()
            took[name].append((time.monotonic() - start, cpu() - before))
    return {name: Took(*map(min, zip(*each, strict=True))) for name, each in took.items()}


def _processes() -> list[Any]:
    """Spark's JVM, and the Python workers that it has."""
    import psutil

    every = psutil.Process().children(recursive=True)
    return [
        each for each in every if any("SparkSubmit" in " ".join(one.cmdline()) for one in (each, *each.parents()[:3]))
    ]


def cpu() -> float:
    """Seconds that Spark has used until now, of all cores together."""
    return sum(sum(each.cpu_times()[:4]) for each in _processes())


def _rate(seconds: float) -> float:
    return ROWS / seconds / 1000 / _cores()


def _cores() -> int:
    from kqlib.spark import session as now

    return int(now().sparkContext.defaultParallelism)


def _memory() -> float:
    """Of the driver's JVM, in MB."""
    return sum(each.memory_info().rss for each in _processes() if "SparkSubmit" in " ".join(each.cmdline())) / 2**20
