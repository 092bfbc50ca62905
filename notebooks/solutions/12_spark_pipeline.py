"""The exercises of 12-spark-pipeline: an aggregation over facts, the duplicate that an audit finds, and where a stream goes on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

import kqlib as kq
from kqlib.workshop.checks import Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic

SECONDS = 120  # where no session runs yet, the first check starts one
EVENTS = (
    "league string, round int, game string, team string, number long, kind string, points int, at long, stored long"
)
ITEMS, RESULTS = "topic string, partition int, offset long", "item string, by string"

# a league a trap: (league, round, game, team, number, kind, points, at, stored)
SEASON: list[tuple[Any, ...]] = [
    ("football", 1, "ARS-CHE", "ARS", 1, "goal", 1, 0, 1),
    ("football", 1, "ARS-CHE", "CHE", 2, "goal", 1, 60, 61),
    ("football", 1, "ARS-CHE", "CHE", 2, "goal", 1, 60, 64),
    ("hockey", 1, "NYR-BOS", "NYR", 11, "goal", 1, 0, 1),
    ("hockey", 1, "NYR-BOS", "NYR", 12, "goal", 1, 60, 61),
    ("hockey", 1, "NYR-BOS", "NYR", 13, "correction", -1, 90, 91),
    ("handball", 1, "KIE-FLE", "KIE", 21, "goal", 1, 0, 1),
    ("handball", 20, "KIE-FLE", "KIE", 22, "goal", 1, 999_000, 999_001),
    ("basketball", 1, "LAL-BOS", "LAL", 1, "goal", 3, 0, 1),
    ("basketball", 1, "LAL-BOS", "LAL", 2, "goal", 2, 60, 61),
    ("basketball", 1, "LAL-BOS", "BOS", 3, "goal", 2, 90, 91),
    ("rugby", 1, "TOU-LEI", "TOU", 31, "goal", 5, 0, 3600),
    ("rugby", 1, "TOU-LEI", "TOU", 32, "goal", 5, 60, 3661),
]
BEST = (  # league, the most points of one team in one game, what its rows are like, a hint
    (
        "football",
        1,
        "a goal each, and the second one was sent twice",
        "The two rows differ in `stored` only. Is that a part of the fact?",
    ),
    ("hockey", 1, "two goals, of which one is taken back", "A correction has −1 point. Which kinds do you add up?"),
    (
        "handball",
        1,
        "the same game in two rounds, a goal in each",
        "A game is played again in another round: what names one game?",
    ),
    ("basketball", 5, "its numbers begin at 1, as football's do", "A number is unique in its league only."),
    (
        "rugby",
        5,
        "one of two goals came 3,601 seconds late",
        "stored − at > 3600: that row does not count. 3600 itself is in time.",
    ),
)


def highest(events: Any) -> Any:
    from pyspark.sql import functions as f

    in_time = events.where("stored - at <= 3600 AND kind IN ('goal', 'correction')")
    facts = in_time.dropDuplicates(["league", "number"])
    scores = facts.groupBy("league", "round", "game", "team").agg(f.sum("points").alias("points"))
    return scores.groupBy("league").agg(f.max("points").alias("best"))


def sent_twice(events: Any) -> Any:
    from pyspark.sql import functions as f

    in_time = events.where("stored - at <= 3600")
    scores = in_time.groupBy("league", "round", "game", "team").agg(f.sum("points").alias("points"))
    return scores.groupBy("league").agg(f.max("points").alias("best"))


def different_rows(events: Any) -> Any:
    return sent_twice(events.distinct())


def late_ones_too(events: Any) -> Any:
    return highest(events.withColumn("stored", events["at"]))


def goals_alone(events: Any) -> Any:
    return highest(events.where("kind = 'goal'"))


def without_the_round(events: Any) -> Any:
    from pyspark.sql import functions as f

    facts = events.where("stored - at <= 3600").dropDuplicates(["league", "number"])
    scores = facts.groupBy("league", "game", "team").agg(f.sum("points").alias("points"))
    return scores.groupBy("league").agg(f.max("points").alias("best"))


def numbers_of_all_leagues(events: Any) -> Any:
    return highest(events.orderBy("league").dropDuplicates(["number"]))


def aggregation(answer: Callable[..., Any]) -> Iterator[Tried]:
    """A small season of five leagues as a static frame, in the session that runs."""
    got = answer(kq.spark.session().createDataFrame(SEASON, EVENTS))
    columns = "Return a frame with exactly two columns: league and best."
    yield Tried("the columns of your frame", sorted(getattr(got, "columns", [])), ["best", "league"], hint=columns)
    found = {row["league"]: row["best"] for row in got.collect()}
    for league, best, sentence, hint in BEST:
        yield Tried(f"the best of {league}", found.get(league), best, sentence, hint)
    leagues = sorted(league for league, *_ in BEST)
    yield Tried("the leagues", sorted(found), leagues, "a row for each league", "A row for each league, and no other.")


HIGHEST = Exercise(
    id="12.1",
    ask="the most points of one team in one game, for each league, from facts and not from messages",
    task="return a frame with the columns league and best: the most points that one team made in one game",
    probe=aggregation,
    hints=(
        "Two aggregations, one on the other: the points of each team in each game, then the largest of each league. What is one "
        "game? And what is one event?",
        "Leave out the late rows, then events.dropDuplicates(['league', 'number']) leaves each fact once. Group by league, round, "
        "game and team and sum the points; then group by league and take f.max(…).alias('best').",
    ),
    solution=highest,
    wrong=(sent_twice, different_rows, late_ones_too, goals_alone, without_the_round, numbers_of_all_leagues),
    seconds=SECONDS,
)

QUEUE = [("football", *place) for place in ((0, 7), (0, 8), (0, 9), (0, 10), (1, 2), (1, 3))]
WRITTEN = [
    ("football/1/2", "eu"),
    ("football/0/10", "eu"),
    ("football/0/9", "eu"),
    ("football/1/2", "eu"),
    ("football/0/10", "eu"),
    ("football/0/9", "eu"),
    ("football/0/8", "eu"),
    ("football/1/3", "eu"),
    ("football/1/3", "us"),
    ("basketball/0/0", "eu"),
    ("basketball/0/0", "eu"),
]
TWICE = ["football/0/9", "football/0/10", "football/1/2"]
TRAPS = (  # an id, whether it is doubled, what is the matter with it, a hint
    (
        "football/0/9",
        True,
        "two results of this site",
        "Its two results are of this site: count the results of each item.",
    ),
    (
        "football/0/7",
        False,
        "no result at all: that is another fault",
        "It has no result at all. That is missing, and not doubled.",
    ),
    ("football/0/8", False, "done once", "One result is right. Look for more than one."),
    (
        "football/1/3",
        False,
        "two sites did it, once each",
        "Each site does each item once. Count the results of one site.",
    ),
    (
        "basketball/0/0",
        False,
        "an item of another queue",
        "The topic has results of other queues too. Join with the items.",
    ),
)


def doubled(items: Any, results: Any, site: str) -> list[str]:
    from pyspark.sql import functions as f

    more = results.where(f.col("by") == site).groupBy("item").count().where("count > 1")
    named = items.withColumn("item", f.concat_ws("/", "topic", "partition", "offset"))
    found = named.join(more, "item").orderBy("partition", "offset")
    return [row["item"] for row in found.collect()]


def of_every_site(items: Any, results: Any, site: str) -> list[str]:
    from pyspark.sql import functions as f

    return doubled(items, results.withColumn("by", f.lit(site)), site)


def without_the_items(items: Any, results: Any, site: str) -> list[str]:
    more = results.where(results["by"] == site).groupBy("item").count().where("count > 1")
    return sorted(row["item"] for row in more.collect())


def as_text(items: Any, results: Any, site: str) -> list[str]:
    return sorted(doubled(items, results, site))


def missing_ones_too(items: Any, results: Any, site: str) -> list[str]:
    from pyspark.sql import functions as f

    named = items.withColumn("item", f.concat_ws("/", "topic", "partition", "offset"))
    counts = results.where(f.col("by") == site).groupBy("item").count()
    found = named.join(counts, "item", "left").where("count IS NULL OR count > 1").orderBy("partition", "offset")
    return [row["item"] for row in found.collect()]


def audit(answer: Callable[..., Any]) -> Iterator[Tried]:
    """A small queue as static frames, in the session that runs."""
    spark = kq.spark.session()
    got = answer(spark.createDataFrame(QUEUE, ITEMS), spark.createDataFrame(WRITTEN, RESULTS), "eu")
    kind = "Collect the ids: [row['item'] for row in frame.collect()]."
    yield Tried("the kind of what you return", type(got).__name__, "list", "a plain list of ids", kind)
    for item, bad, sentence, hint in TRAPS:
        yield Tried(f"whether '{item}' is in your list", item in got, bad, sentence, hint)
    order = "Order by partition and offset as numbers: 9 comes before 10."
    yield Tried("your list", got, TWICE, "by partition and offset", order)


DOUBLED = Exercise(
    id="12.2",
    ask="the ids of this queue's items that the site has written more than once, by partition and offset",
    task="return a list with the ids of this queue's items that `site` has written more than once",
    probe=audit,
    hints=(
        "Count the results for each item first. Which of them do not belong here at all? And which comes first, offset 9 or 10?",
        "results.where(f.col('by') == site).groupBy('item').count().where('count > 1'), then join that to items, whose id is "
        "f.concat_ws('/', 'topic', 'partition', 'offset'), and order by partition and offset: as numbers, not as text.",
    ),
    solution=doubled,
    wrong=(of_every_site, without_the_items, as_text, missing_ones_too),
    seconds=SECONDS,
)


def goes_on(checkpoint: str, topic: str, consumer: Any) -> tuple[int, int]:
    folder = Path(checkpoint)
    done = max((int(file.name) for file in (folder / "commits").glob("*") if file.name.isdigit()), default=-1)
    read: dict[str, int] = {}
    if done >= 0:
        read = json.loads((folder / "offsets" / str(done)).read_text().splitlines()[-1])[topic]
    left = 0
    for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
        left += end - max(low, read.get(str(number), low))
    return done + 1, left


def begun_is_done(checkpoint: str, topic: str, consumer: Any) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("offsets", "commits"):
            (Path(folder) / name).symlink_to(Path(checkpoint) / "offsets")
        return goes_on(folder, topic, consumer)


def names_as_text(checkpoint: str, topic: str, consumer: Any) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        names = sorted(file.name for file in (Path(checkpoint) / "commits").glob("*") if file.name.isdigit())
        (Path(folder) / "commits").mkdir()
        for name in names[-1:]:
            (Path(folder) / "commits" / name).touch()
        (Path(folder) / "offsets").symlink_to(Path(checkpoint) / "offsets")
        return goes_on(folder, topic, consumer)


class FromZero:
    """A consumer for which each log begins at 0."""

    def __init__(self, consumer: Any) -> None:
        self.list_topics = consumer.list_topics
        self._consumer = consumer

    def get_watermark_offsets(self, part: TopicPartition, timeout: float) -> tuple[int, int]:
        return 0, self._consumer.get_watermark_offsets(part, timeout=timeout)[1]


def from_zero(checkpoint: str, topic: str, consumer: Any) -> tuple[int, int]:
    return goes_on(checkpoint, topic, FromZero(consumer))


def deleted_rows_too(checkpoint: str, topic: str, consumer: Any) -> tuple[int, int]:
    folder = Path(checkpoint)
    batch, left = goes_on(checkpoint, topic, consumer)
    if batch:
        read = json.loads((folder / "offsets" / str(batch - 1)).read_text().splitlines()[-1])[topic]
        for number, at in read.items():
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, int(number)), timeout=10)
            left += max(0, low - at)
    return batch, left


def partitions_of_the_file(checkpoint: str, topic: str, consumer: Any) -> tuple[int, int]:
    folder = Path(checkpoint)
    done = max((int(file.name) for file in (folder / "commits").glob("*") if file.name.isdigit()), default=-1)
    if done < 0:
        return goes_on(checkpoint, topic, consumer)
    read = json.loads((folder / "offsets" / str(done)).read_text().splitlines()[-1])[topic]
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, int(number)), timeout=10)[1] for number in read
    }
    return done + 1, sum(ends[number] - read[number] for number in read)


class Left(NamedTuple):
    """A topic and the checkpoint that a stream left: records by partition, the log's first offset, the batches; a hint."""

    story: str
    records: tuple[int, ...]
    low: int
    offsets: dict[int, tuple[int, ...]]
    done: tuple[int, ...]
    batch: int
    rows: int
    hint: str


STREAMS = [
    Left(
        "two batches are done", (10, 8), 0, {0: (4, 4), 1: (8, 6)}, (0, 1), 2, 4, "offsets/1 says up to where it read."
    ),
    Left(
        "killed in batch 2",
        (10, 8),
        0,
        {0: (4, 4), 1: (8, 6), 2: (10, 8)},
        (0, 1),
        2,
        4,
        "Batch 2 was begun and has no file in commits: it comes again.",
    ),
    Left(
        "after eleven batches",
        (12,),
        0,
        {number: (number + 1,) for number in range(11)},
        tuple(range(11)),
        11,
        1,
        "10 comes after 9: batches are numbers. And not each file in there is a batch.",
    ),
    Left(
        "killed in its first batch",
        (10,),
        3,
        {0: (10,)},
        (),
        0,
        7,
        "No batch is done, so it begins where the log begins. That is not always offset 0.",
    ),
    Left(
        "the topic grew",
        (6, 5),
        0,
        {0: (4,)},
        (0,),
        1,
        7,
        "The new partition is not in the file. Ask Kafka for the topic's partitions.",
    ),
    Left(
        "retention has passed its checkpoint",
        (10, 8),
        6,
        {0: (4, 6)},
        (0,),
        1,
        6,
        "It read up to offset 4 of partition 0, and the log begins at 6 now. A row that is deleted is not in the topic any more.",
    ),
]


def written(folder: Path, topic: str, left: Left) -> None:
    """The files as Spark writes them."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
        (folder / name / ".7.tmp").touch()  # a file that is being written
    for number, offsets in left.offsets.items():
        line = json.dumps({topic: {str(partition): at for partition, at in enumerate(offsets)}})
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')
    for number in left.done:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def streams(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Ask the answer about streams that stopped in different places."""
    cluster = kafka()
    producer, consumer = Producer(cluster.client()), Consumer(cluster.client(group_id="check"))
    try:
        for left in STREAMS:
            topic = new_topic(cluster, len(left.records))
            for partition, many in enumerate(left.records):
                for _ in range(many):
                    producer.produce(topic, b"row", partition=partition)
            producer.flush(20)
            if left.low:
                place = TopicPartition(topic, 0, left.low)
                cluster.admin.delete_records([place])[place].result(20)
            with tempfile.TemporaryDirectory() as folder:
                written(Path(folder), topic, left)
                got = answer(folder, topic, consumer)
            yield Tried(left.story, got, (left.batch, left.rows), "the batch, and the rows", left.hint)
    finally:
        consumer.close()


PLACE = Exercise(
    id="12.3",
    ask="after the last batch with a file in commits; what is not in its offsets begins where the log begins",
    task="return the number of the next batch, and how many rows of the topic are not done",
    probe=streams,
    hints=(
        "The last batch that is done has the highest number in `commits`. The last line of its file in `offsets` is JSON.",
        "read = json.loads(last line)[topic]; for each partition of consumer.list_topics(topic): end − max(low, read), or end − "
        "low where the file does not name it. consumer.get_watermark_offsets(TopicPartition(topic, n)) gives low and end.",
    ),
    solution=goes_on,
    wrong=(begun_is_done, names_as_text, from_zero, partitions_of_the_file, deleted_rows_too),
    seconds=60,
)
