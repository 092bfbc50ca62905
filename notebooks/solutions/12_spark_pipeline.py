"""The exercises of 12-spark-pipeline: an aggregation over facts, and the duplicate that an audit finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kqlib as kq
from kqlib.workshop.checks import Exercise, Tried

SECONDS = 120  # where no session runs yet, the first check starts one
EVENTS = "league string, round int, game string, team string, number long, kind string, points int"
ITEMS, RESULTS = "topic string, partition int, offset long", "item string, by string"

# a league a trap: (league, round, game, team, number, kind, points)
SEASON: list[tuple[Any, ...]] = [
    ("football", 1, "ARS-CHE", "ARS", 1, "goal", 1),
    ("football", 1, "ARS-CHE", "CHE", 2, "goal", 1),
    ("football", 1, "ARS-CHE", "CHE", 2, "goal", 1),
    ("hockey", 1, "NYR-BOS", "NYR", 11, "goal", 1),
    ("hockey", 1, "NYR-BOS", "NYR", 12, "goal", 1),
    ("hockey", 1, "NYR-BOS", "NYR", 13, "correction", -1),
    ("handball", 1, "KIE-FLE", "KIE", 21, "goal", 1),
    ("handball", 20, "KIE-FLE", "KIE", 22, "goal", 1),
    ("basketball", 1, "LAL-BOS", "LAL", 1, "goal", 3),
    ("basketball", 1, "LAL-BOS", "LAL", 2, "goal", 2),
    ("basketball", 1, "LAL-BOS", "BOS", 3, "goal", 2),
]
BEST = (  # league, the most points of one team in one game, what its rows are like
    ("football", 1, "a goal each, and the second one is told twice"),
    ("hockey", 1, "two goals, of which one is taken back"),
    ("handball", 1, "the same game in two rounds, a goal in each"),
    ("basketball", 5, "its numbers begin at 1, as football's do"),
)


def highest(events: Any) -> Any:
    from pyspark.sql import functions as f

    facts = events.where("kind IN ('goal', 'correction')").distinct()
    scores = facts.groupBy("league", "round", "game", "team").agg(f.sum("points").alias("points"))
    return scores.groupBy("league").agg(f.max("points").alias("best"))


def told_twice(events: Any) -> Any:
    from pyspark.sql import functions as f

    scores = events.groupBy("league", "round", "game", "team").agg(f.sum("points").alias("points"))
    return scores.groupBy("league").agg(f.max("points").alias("best"))


def goals_alone(events: Any) -> Any:
    return highest(events.where("kind = 'goal'"))


def without_the_round(events: Any) -> Any:
    from pyspark.sql import functions as f

    scores = events.distinct().groupBy("league", "game", "team").agg(f.sum("points").alias("points"))
    return scores.groupBy("league").agg(f.max("points").alias("best"))


def numbers_of_all_leagues(events: Any) -> Any:
    return highest(events.orderBy("league").dropDuplicates(["number"]))


def aggregation(answer: Callable[..., Any]) -> Iterator[Tried]:
    """A small season of four leagues as a static frame, in the session that runs."""
    got = answer(kq.spark.session().createDataFrame(SEASON, EVENTS))
    yield Tried("the columns of your frame", sorted(getattr(got, "columns", [])), ["best", "league"])
    found = {row["league"]: row["best"] for row in got.collect()}
    for league, best, sentence in BEST:
        yield Tried(f"the best of {league}", found.get(league), best, sentence)
    yield Tried("the leagues", sorted(found), sorted(league for league, _, _ in BEST), "a row for each league")


HIGHEST = Exercise(
    id="12.1",
    ask="the most points of one team in one game, for each league, from facts and not from messages",
    probe=aggregation,
    hints=(
        "Two aggregations, one on the other: the points of each team in each game, then the largest of each league. What is one "
        "game? And what is one event?",
        "events.where(…).distinct() leaves each fact once. Group by league, round, game and team and sum the points; then group by "
        "league and take f.max(…).alias('best').",
    ),
    solution=highest,
    wrong=(told_twice, goals_alone, without_the_round, numbers_of_all_leagues),
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
TRAPS = (  # an id, whether it is doubled, what is the matter with it
    ("football/0/9", True, "two results of this site"),
    ("football/0/7", False, "no result at all: that is another fault"),
    ("football/0/8", False, "done once"),
    ("football/1/3", False, "two sites did it, once each, as they should"),
    ("basketball/0/0", False, "an item of another queue, whose results are in the same topic"),
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
    yield Tried("the kind of what you return", type(got).__name__, "list", "a plain list of ids")
    for item, bad, sentence in TRAPS:
        yield Tried(f"whether '{item}' is in your list", item in got, bad, sentence)
    yield Tried("your list", got, TWICE, "by partition and offset, as numbers: 9 comes before 10")


DOUBLED = Exercise(
    id="12.2",
    ask="the ids of this queue's items that the site has written more than once, by partition and offset",
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
