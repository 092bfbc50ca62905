"""An evening of two sports, for the steps of notebook 15: its rows, the accidents of its feed, its topics, and the truth.

In:  a cluster. Out: rows of a season that is played now, new topics, what topics hold, and the standings counted in Python.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kqlib.topic_rules import QUEUES
from kqlib.topics import Plan, existing
from kqlib.virtual.outbox import Outbox
from kqlib.workshop import snapshot
from kqlib.workshop.games import seasons

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.schemas import Registry

SPORTS = ("football", "basketball")
SUBJECT = "events-value"  # the events of both sports have one schema


_numbers = itertools.count()


def unused(what: str) -> str:
    """A name that nothing has: a site keeps the terms of its queues."""
    return f"{what}-{next(_numbers)}"


class Row(NamedTuple):
    """One row of the feed: its number is unique in its league."""

    league: str
    number: int
    game: str
    data: bytes


TABLE = "CREATE TABLE IF NOT EXISTS feed (league, number, PRIMARY KEY (league, number))"


class Dies(Outbox):
    """An outbox whose process dies at the fifth job."""

    left = 4

    def add(self, *job: Any, **how: Any) -> str:
        """Note a job."""
        if not self.left:
            raise MemoryError
        self.left -= 1
        return super().add(*job, **how)


class DiesAfter:
    """A queue whose mover dies once it has put the jobs."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def put_many(self, items: Any) -> None:
        """Put them all, and die."""
        self.queue.put_many(items)
        raise MemoryError


def evening(rows: int, sport: str, corrections: float = 0.03) -> list[seasons.SeasonEvent]:
    """The first rows of a season that is played now."""
    now = int(time.time() * 1000)
    season = seasons.rows(rows, sport=sport, versions=(4,), corrections=corrections)
    return [row._replace(at=now) for row in season]


def of_games(rows: Iterable[seasons.SeasonEvent], number: int) -> list[seasons.SeasonEvent]:
    """The first games of a sport alone."""
    kept = list(rows)
    games = list(dict.fromkeys((row.round, row.game) for row in kept))[:number]
    return [row for row in kept if (row.round, row.game) in games]


def anew(cluster: Kafka, plan: Plan) -> None:
    """The topics of a plan, new and empty."""
    there = existing(cluster, [name for name in plan.all if name != QUEUES])
    admin = cluster.admin  # held while it works: a temporary one may never answer
    for future in admin.delete_topics(list(there)).values() if there else ():
        future.result(60)
    for name in there:
        cluster.wait_until_gone(name)
    plan.apply(cluster, quiet=True)


def records(cluster: Kafka, topic: str) -> list[Any]:
    """All records of a topic, partition by partition."""
    return [record for part in snapshot.records(cluster, topic).values() for record in part]


def latest(cluster: Kafka, registry: Registry, topic: str) -> dict[str, Any]:
    """The last value of each key."""
    codec = registry.codec()
    return {record.key().decode(): codec.decode(record.value()) for record in records(cluster, topic)}


def truth(rows: Iterable[seasons.SeasonEvent]) -> dict[str, tuple[int, int, str]]:
    """Points, goals and results of each team, counted in Python: each event once, however often it is there."""
    once = {(row.league, row.number): row for row in rows}.values()
    scores: Counter[tuple[str, int, str, str]] = Counter()
    for row in once:
        scores[row.league, row.round, row.game, row.team] += row.points
    points = Counter({team: 0 for row in once for team in row.game.split("-")})
    goals, results = points.copy(), dict.fromkeys(points, "")
    for league, number, game in sorted({(row.league, row.round, row.game) for row in once if row.kind == "final"}):
        teams = game.split("-")
        for mine, theirs in (teams, teams[::-1]):
            scored, against = (scores[league, number, game, team] for team in (mine, theirs))
            letter = "W" if scored > against else "D" if scored == against else "L"
            points[mine] += {"W": 3 if league == "football" else 2, "D": 1, "L": 0}[letter]
            goals[mine] += scored
            results[mine] += letter
    return {team: (points[team], goals[team], results[team]) for team in points}
