"""Standings from events: one transformation, for a batch and for a stream.

In:  decoded rows of a season (`value`, and `timestamp`: when the broker got them). Out: `games`: a row a game with the facts that
     count; `fold`: more facts into them; `table`: who stands where.

    table(games(good))  ==  table(fold(games(first half), games(second half)))        in any order, and with any row twice

That holds because a game's facts are a set, and a sum of a set does not care how often or in which order its members were told. So a
stream may work a batch again after a crash, a message may come twice, a correction may come before its goal.

A row is late when the broker got it more than so many seconds after it happened: a fact of the row, which no clock of a reader
changes; so batch and stream agree. Late rows do not count in a game; each team's are counted apart (`late`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE = 3600.0  # seconds
KEY = ("league", "round", "game")
FACT = "number: long, side: string, points: int, final: boolean, late: boolean"
GAMES = f"league string, round int, game string, told array<struct<{FACT}>>"
COUNTS = ("played", "won", "drawn", "lost", "scored", "against", "difference", "points", "late")
COLUMNS = ("league", "team", "place", *COUNTS, "results")
TEAMS = f"league string, team string, {', '.join(f'{name} int' for name in ('place', *COUNTS))}, results string"
NEEDED = {"number", "league", "game", "round", "team", "kind", "points", "at"}


def games(good: DataFrame, late: float = LATE) -> DataFrame:
    """A row a game, with the facts that were told of it, each once."""
    return whole(facts(good, late))


def fold(before: DataFrame, more: DataFrame) -> DataFrame:
    """Both together: a game's facts from either side, each once."""
    return whole(before.unionByName(more))


def whole(parts: DataFrame) -> DataFrame:
    """A row a game, out of as many rows of it as there are."""
    from pyspark.sql import functions as f

    told = f.array_sort(f.array_distinct(f.flatten(f.collect_list("told")))).alias("told")
    return _plain(parts.groupBy(*KEY).agg(told))


def facts(good: DataFrame, late: float = LATE) -> DataFrame:
    """A row an event that counts: its game, and the one fact that it tells."""
    from pyspark.sql import functions as f

    _check(good, late)
    seconds = f.col("timestamp").cast("double") - f.col("value.at").cast("double")
    rows = good.select(*(f.col(f"value.{name}").alias(name) for name in sorted(NEEDED)), (seconds > late).alias("late"))
    counts = f.col("kind").isin("goal", "correction", "final") | f.col("late")
    side = f.when(f.col("team") == f.split("game", "-")[0], "home").otherwise("away")
    plain = {"number": f.col("number").cast("long"), "side": side, "points": f.col("points").cast("int")}
    ended = f.col("kind") == "final"
    fact = f.struct(*(each.alias(name) for name, each in plain.items()), ended.alias("final"), "late")
    return rows.where(counts).select(*KEY, f.array(fact).alias("told"))


def table(played: DataFrame) -> DataFrame:
    """Who stands where, a row a team: of finished games; `results` has a letter for each, W, D or L, by round."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    win = f.when(f.col("league") == "football", 3).otherwise(2)
    teams = (
        _sides(played)
        .groupBy("league", "team")
        .agg(
            f.count("result").alias("played"),
            *(f.count(f.when(f.col("result") == letter, 1)).alias(name) for letter, name in _LETTERS),
            *(
                f.coalesce(f.sum(f.when(f.col("result").isNotNull(), f.col(name))), f.lit(0)).alias(name)
                for name in _SCORES
            ),
            f.sum("late").alias("late"),
            f.array_sort(
                f.collect_list(f.when(f.col("result").isNotNull(), f.struct("round", "game", "result")))
            ).alias("_all"),
        )
    )
    letters = f.array_join(f.transform("_all", lambda each: each.result), "")
    order = Window.partitionBy("league").orderBy(f.desc("points"), f.desc("difference"), f.desc("scored"), "team")
    counted = (
        teams.withColumn("difference", f.col("scored") - f.col("against"))
        .withColumn("points", win * f.col("won") + f.col("drawn"))
        .withColumn("place", f.row_number().over(order))
        .withColumn("results", letters)
    )
    ints = [f.col(name).cast("int").alias(name) for name in ("place", *COUNTS)]
    return counted.select("league", "team", *ints, "results")


_LETTERS = (("W", "won"), ("D", "drawn"), ("L", "lost"))
_SCORES = ("scored", "against")


def _sides(played: DataFrame) -> DataFrame:
    """Each game twice, as each of the two teams sees it; `result` is null while it is not finished."""
    from pyspark.sql import functions as f

    halves = []
    for mine, theirs, place in (("home", "away", 0), ("away", "home", 1)):
        scored, against = _score(mine), _score(theirs)
        letter = f.when(scored > against, "W").when(scored == against, "D").otherwise("L")
        ended = f.exists("told", lambda fact: fact.final & ~fact.late)
        names = f.split("game", "-")[place].alias("team"), scored.alias("scored"), against.alias("against")
        halves.append(f.struct(*names, f.when(ended, letter).alias("result"), _late(mine).alias("late")))
    return played.select("league", "round", "game", f.explode(f.array(*halves)).alias("half")).select(*KEY, "half.*")


def _score(side: str) -> Column:
    from pyspark.sql import functions as f

    counts = f.filter("told", lambda fact: (fact.side == side) & ~fact.late)
    return f.aggregate(counts, f.lit(0), lambda total, fact: total + fact.points)


def _late(side: str) -> Column:
    """How many of this side's events came late and only late: one that was sent again hours later was in time."""
    from pyspark.sql import functions as f

    late = f.filter("told", lambda fact: fact.late & (fact.side == side))
    in_time = f.filter("told", lambda fact: ~fact.late)
    return f.size(
        f.array_except(f.transform(late, lambda fact: fact.number), f.transform(in_time, lambda fact: fact.number))
    )


def _plain(played: DataFrame) -> DataFrame:
    """Spark marks what cannot be null; frames of either origin shall be alike."""
    from pyspark.sql import functions as f

    return played.select("league", f.col("round").cast("int").alias("round"), "game", "told")


def _check(good: DataFrame, late: float) -> None:
    if isinstance(late, bool) or not isinstance(late, int | float) or late < 0:
        raise NotAllowed(f"late is a number of seconds from 0, not {late!r}")
    columns = getattr(good, "columns", ())
    if "value" not in columns or "timestamp" not in columns:
        raise NotAllowed("games(good) needs decoded rows with `value` and `timestamp`, as decode(…).good has them")
    has = {field.name for field in getattr(good.schema["value"].dataType, "fields", ())}
    if lacking := sorted(NEEDED - has):
        raise NotAllowed(f"these are no events of a season: `value` has no {lacking[0]}")
