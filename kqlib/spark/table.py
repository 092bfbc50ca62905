"""Standings from events: one transformation, for a batch and for a stream.

In:  decoded rows of a season (`value`, and `timestamp`: when the broker got the record).
Out: `games`: a row for each game with the facts that count; `fold`: more facts into them; `table`: each team's place;
`windows`: each team's points in windows of event time.

    table(games(good))  ==  table(fold(games(first half), games(second half)))        in any order, and with any row twice

It holds because the facts of a game are a set, and their sum does not depend on their order or on how often they came. So a stream may
work a batch again after a crash, a message may come twice, and a correction may come before its goal.

A row is late if the broker got it more than so many seconds after the event: `came_late`, the one rule for games, windows and joins.
That is a fact of the row and not of a reader's clock, so batch and stream agree. Late rows do not count; the column `late` has their
number. If the same event comes in time as well, it is not late: a late row that is put back with the time of its event leaves no
trace (`aside.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.queue.arguments import seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE = 3600.0  # seconds
MOST = 30 * 24 * 3600.0
KEY = ("league", "round", "game")
FACT = "number: long, side: string, points: int, final: boolean, late: boolean"
GAMES = f"league string, round int, game string, told array<struct<{FACT}>>"
COUNTS = ("played", "won", "drawn", "lost", "scored", "against", "difference", "points", "late")
COLUMNS = ("league", "team", "place", *COUNTS, "results")
TEAMS = f"league string, team string, {', '.join(f'{name} int' for name in ('place', *COUNTS))}, results string"
NEEDED = {"number", "league", "game", "round", "team", "kind", "points", "at"}


def games(good: DataFrame) -> DataFrame:
    """A row for each game, with its facts, each once."""
    return whole(facts(good, LATE))


def fold(before: DataFrame, more: DataFrame) -> DataFrame:
    """Both together: a game's facts from either side, each once."""
    return whole(before.unionByName(more))


def whole(parts: DataFrame) -> DataFrame:
    """A row a game, out of as many rows of it as there are."""
    from pyspark.sql import functions as f

    told = f.expr("array_sort(array_distinct(flatten(collect_list(told)))) AS told")
    return _plain(parts.groupBy(*KEY).agg(told))


def facts(good: DataFrame, late: float) -> DataFrame:
    """A row for each event: its game, and its one fact. A card is one as well: it may come late, and in time after all."""
    is_late = came_late(late)
    _check(good)
    names = (f"value.{name}" for name in sorted(NEEDED))
    return good.selectExpr(*names, f"{is_late} AS late").selectExpr(*KEY, f"array({_FACT}) AS told")


def came_late(late: float, value: str = "value") -> str:
    """The SQL condition for a late row."""
    if isinstance(late, bool) or not isinstance(late, int | float) or not late >= 0:
        raise NotAllowed(f"late is a number of seconds from 0, not {late!r}")
    return f"double(timestamp) - double({value}.at) > double('{late}')"


def windows(good: DataFrame, every: float = 900.0, *, late: float = LATE) -> DataFrame:
    """Each team's points in windows of so many seconds of event time: `window` (start, end), `league`, `team`, `points`, `late`.

    A correction counts in the window of its own time. Each event counts once, and a late one is only counted, as in the standings: put
    back with the time of its event, it leaves no trace. A window is never closed, so it is never wrong for an event that comes later.
    """
    from pyspark.sql import functions as f

    _check(good)
    span = f.window("at", f"{seconds('every', every, 1, MOST)} seconds")
    scoring = good.where("value.kind IN ('goal', 'correction')").selectExpr("value.*", f"{came_late(late)} AS _late")
    events = scoring.groupBy(span, "league", "team", "number").agg(
        f.expr("max(points) AS points"), f.expr("bool_and(_late) AS _late")
    )
    points = f.expr("coalesce(sum(points) FILTER (WHERE NOT _late), 0) AS points")
    return events.groupBy("window", "league", "team").agg(points, f.expr("count_if(_late) AS late"))


def late_rows(rows: DataFrame) -> DataFrame:
    """Late rows of a stream for `put_aside`: as they came, but with the time of their event, which is then in time."""
    after = "concat(bigint(double(timestamp) - double(_kq.value.at)), ' s after its event') AS why"
    return rows.selectExpr("* EXCEPT (_kq, timestamp)", "_kq.value.at AS timestamp", "'late' AS cause", after)


def table(played: DataFrame) -> DataFrame:
    """A row for each team, from finished games. `results` has a letter for each game by round: W, D or L."""
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


# SQL text and not columns: these frames are made for each batch, and a column is some ten calls from Python to the JVM.
_LETTERS = (("W", "won"), ("D", "drawn"), ("L", "lost"))
_PLACE = "row_number() OVER (PARTITION BY league ORDER BY points DESC, difference DESC, scored DESC, team)"
_FACT = (
    "struct(bigint(number) AS number, if(team = split(game, '-')[0], 'home', 'away') AS side, "
    "int(if(kind IN ('goal', 'correction'), points, 0)) AS points, kind = 'final' AS final, late)"
)


def _sides(played: DataFrame) -> DataFrame:
    """A row for each team of a game; `result` is null until the game is finished."""
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
    """How many events of this side came late only. An event that was in time, and sent again hours later, is not late."""
    late = f"filter(told, fact -> fact.late AND fact.side = '{side}')"
    in_time = "filter(told, fact -> NOT fact.late)"
    return f"size(array_except(transform({late}, fact -> fact.number), transform({in_time}, fact -> fact.number)))"


def _plain(played: DataFrame) -> DataFrame:
    """Without Spark's marks of columns that cannot be null, so that frames of both origins have one schema."""
    return played.selectExpr("league", "int(round) AS round", "game", "told")


def _check(good: DataFrame) -> None:
    columns = getattr(good, "columns", ())
    if "value" not in columns or "timestamp" not in columns:
        raise NotAllowed("games(good) needs decoded rows with `value` and `timestamp`, as decode(…).good has them")
    has = {field.name for field in getattr(good.schema["value"].dataType, "fields", ())}
    if lacking := sorted(NEEDED - has):
        raise NotAllowed(f"these are no events of a season: `value` has no {lacking[0]}")
