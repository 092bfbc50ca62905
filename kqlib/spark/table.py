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
    from pyspark.sql import DataFrame

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

    told = f.expr("array_sort(array_distinct(flatten(collect_list(told)))) AS told")
    return _plain(parts.groupBy(*KEY).agg(told))


def facts(good: DataFrame, late: float = LATE) -> DataFrame:
    """A row an event that counts: its game, and the one fact that it tells."""
    _check(good, late)
    names = (f"value.{name}" for name in sorted(NEEDED))
    rows = good.selectExpr(*names, f"{came_late(late)} AS late")
    return rows.where("kind IN ('goal', 'correction', 'final') OR late").selectExpr(*KEY, f"array({_FACT}) AS told")


def came_late(late: float, value: str = "value") -> str:
    """The condition, in SQL, that a row is late."""
    return f"double(timestamp) - double({value}.at) > double('{late}')"


def table(played: DataFrame) -> DataFrame:
    """Who stands where, a row a team: of finished games; `results` has a letter for each, W, D or L, by round."""
    from pyspark.sql import functions as f

    finished = "FILTER (WHERE result IS NOT NULL)"
    teams = _sides(played).groupBy("league", "team")
    counted = teams.agg(
        f.expr("count(result) AS played"),
        *(f.expr(f"count(*) FILTER (WHERE result = '{letter}') AS {name}") for letter, name in _LETTERS),
        *(f.expr(f"coalesce(sum({name}) {finished}, 0) AS {name}") for name in ("scored", "against")),
        f.expr("sum(late) AS late"),
        f.expr(f"array_sort(collect_list(struct(round, game, result)) {finished}) AS every"),
    ).selectExpr(
        "*",
        "scored - against AS difference",
        "if(league = 'football', 3, 2) * won + drawn AS points",
        "array_join(transform(every, each -> each.result), '') AS results",
    )
    ints = (f"int({name}) AS {name}" for name in COUNTS)
    return counted.selectExpr("league", "team", f"int({_PLACE}) AS place", *ints, "results")


# Text, and not columns: these frames are made for each batch of a stream, and a column is some ten calls from Python to the JVM.
_LETTERS = (("W", "won"), ("D", "drawn"), ("L", "lost"))
_PLACE = "row_number() OVER (PARTITION BY league ORDER BY points DESC, difference DESC, scored DESC, team)"
_FACT = (
    "struct(bigint(number) AS number, if(team = split(game, '-')[0], 'home', 'away') AS side, int(points) AS points, "
    "kind = 'final' AS final, late)"
)


def _sides(played: DataFrame) -> DataFrame:
    """Each game twice, as each of the two teams sees it; `result` is null while it is not finished."""
    halves = f"explode(array({_half('home', 'away', 0)}, {_half('away', 'home', 1)})) AS half"
    return played.selectExpr(*KEY, halves).select(*KEY, "half.*")


def _half(mine: str, theirs: str, place: int) -> str:
    scored, against = _score(mine), _score(theirs)
    letter = f"CASE WHEN {scored} > {against} THEN 'W' WHEN {scored} = {against} THEN 'D' ELSE 'L' END"
    result = f"if(exists(told, fact -> fact.final AND NOT fact.late), {letter}, NULL)"
    return (
        f"struct(split(game, '-')[{place}] AS team, {scored} AS scored, {against} AS against, {result} AS result, "
        f"{_late(mine)} AS late)"
    )


def _score(side: str) -> str:
    counts = f"filter(told, fact -> fact.side = '{side}' AND NOT fact.late)"
    return f"aggregate({counts}, 0, (total, fact) -> total + fact.points)"


def _late(side: str) -> str:
    """How many of this side's events came late and only late: one that was sent again hours later was in time."""
    late = f"filter(told, fact -> fact.late AND fact.side = '{side}')"
    in_time = "filter(told, fact -> NOT fact.late)"
    return f"size(array_except(transform({late}, fact -> fact.number), transform({in_time}, fact -> fact.number)))"


def _plain(played: DataFrame) -> DataFrame:
    """Spark marks what cannot be null; frames of either origin shall be alike."""
    return played.selectExpr("league", "int(round) AS round", "game", "told")


def _check(good: DataFrame, late: float) -> None:
    if isinstance(late, bool) or not isinstance(late, int | float) or late < 0:
        raise NotAllowed(f"late is a number of seconds from 0, not {late!r}")
    columns = getattr(good, "columns", ())
    if "value" not in columns or "timestamp" not in columns:
        raise NotAllowed("games(good) needs decoded rows with `value` and `timestamp`, as decode(…).good has them")
    has = {field.name for field in getattr(good.schema["value"].dataType, "fields", ())}
    if lacking := sorted(NEEDED - has):
        raise NotAllowed(f"these are no events of a season: `value` has no {lacking[0]}")
