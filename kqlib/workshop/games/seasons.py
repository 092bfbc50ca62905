"""Seasons of football and basketball as any number of events: what the data pipeline works on.

In:  how many rows, a seed, and how much goes wrong: late, doubled, broken. Out: `SeasonEvent`s in the order in which they are sent,
     the same for a seed on every machine; `messages`: the same as records, in four versions of their schema (data/season-v1.avsc …).

Each league has twenty teams. Each plays each other at home and away; then a new season begins. A round begins every four hours; its
ten games go on at the same time. Each event has a number, unique in its league; a correction ("no goal!") is a row of its own that
takes the points back. Events are sent some seconds after they happened, late ones hours after. Only events that wait are in memory.
Only `Random.random` is used: the one method that Python promises never to change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kqlib.errors import NotAllowed, NotInTime
from kqlib.schemas.wire import HEAD
from kqlib.workshop.games import day

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.schemas import Registry

FOR_EVER = {"retention.ms": "-1"}  # the games lie in the past: Kafka would delete them at once
SENT = 120.0  # seconds for the last records
FIRST = 946_728_000_000  # 2000-01-01 12:00 UTC, in milliseconds: twenty-five years of rounds lie in the past
APART = 4 * 3_600_000
MINUTE = 60_000
SOON, LATE = 5_000, 24 * 3_600_000  # how long after it happened an event is sent at most: usually, and a late one
LATE_FROM = 2 * 3_600_000
DAMAGES = ("null", "short", "magic", "unknown id", "truncated", "trailing bytes")
NOBODY = 999_999_999  # an id that no registry gives


# milliseconds after the kick-off, league, game, place in it, kind, team, minute, points, the place of the goal that is taken back
Play = tuple[int, str, str, int, str, str, int, int, int]


class SeasonEvent(NamedTuple):
    """One row on its way: what happened, when, and when it is sent (milliseconds since 1970)."""

    number: int  # unique in its league
    league: str
    game: str  # "ARS-CHE": home, then away; with its round it is played once
    round: int
    team: str
    kind: str  # "kick-off", "goal", "card" (football), "correction", "final"
    minute: int
    points: int  # of a goal; negative in a correction
    at: int
    corrects: int  # the number of the goal that a correction takes back; else -1
    sent: int
    version: int
    damage: str  # "" or what is wrong with its bytes


def rows(
    n: int,
    seed: int = 7,
    sport: str | None = None,
    *,
    late: float = 0.0,
    corrections: float = 0.03,
    doubled: float = 0.0,
    broken: float = 0.0,
    versions: Sequence[int] = day.VERSIONS,
) -> Iterator[SeasonEvent]:
    """So many rows of a season: `rows(1000)`, `rows(50, sport="basketball", late=0.01, doubled=0.01, broken=0.001)`.

    late, doubled: the part of events that is sent hours late, and twice; broken: so many rows of rubbish come on top, n in all.
    versions: who writes football changes from one to the next over time; basketball is written by version 4 alone.
    """
    _check(n, seed, sport, versions, late=late, corrections=corrections, doubled=doubled, broken=broken)
    return _as_sent(n, Random(seed), sport, (late, corrections, doubled, broken), tuple(versions))


def _as_sent(
    n: int, random: Random, sport: str | None, shares: tuple[float, float, float, float], versions: tuple[int, ...]
) -> Iterator[SeasonEvent]:
    late, corrections, doubled, broken = shares
    waiting: list[tuple[int, int, SeasonEvent]] = []  # by when they are sent
    ticket, draw, given = count(), random.random, 0
    for event in _happened(random, sport, corrections, n, versions):
        while waiting and waiting[0][0] < event.at:  # whatever is still to happen is sent after this
            if given == n:
                return
            given += 1
            yield heapq.heappop(waiting)[2]
        sent = event.at + LATE_FROM + int(draw() * (LATE - LATE_FROM)) if draw() < late else event.sent
        rows = [event._replace(sent=sent)]
        if doubled and draw() < doubled:
            rows.append(event._replace(sent=sent + 1 + int(draw() * SOON)))
        if broken and draw() < broken:
            rows.append(event._replace(sent=sent, damage=DAMAGES[int(draw() * len(DAMAGES))]))
        for row in rows:
            heapq.heappush(waiting, (row.sent, next(ticket), row))


def _happened(
    random: Random, sport: str | None, corrections: float, n: int, versions: tuple[int, ...]
) -> Iterator[SeasonEvent]:
    """What happens, round by round, in the order of its minutes, written by the version of its time."""
    sports, made, draw = [sport] if sport else list(day.SPORTS), 0, random.random
    numbers = {each: count(1) for each in sports}
    for number in count():
        version = versions[min(made * len(versions) // max(n, 1), len(versions) - 1)]
        plays = [
            play
            for each in sports
            for game in _fixtures(each, number)
            for play in _game(random, each, game, corrections)
        ]
        taken: dict[tuple[str, int], int] = {}  # a correction names the goal by its place in the game
        start = FIRST + number * APART
        for after, league, game, place, kind, team, minute, points, goal in sorted(plays):
            own = taken[game, place] = next(numbers[league])
            corrects, at = taken[game, goal] if goal >= 0 else -1, start + after
            writes = version if league == "football" else 4
            sent = at + 1 + int(draw() * SOON)
            yield SeasonEvent(own, league, game, number + 1, team, kind, minute, points, at, corrects, sent, writes, "")
        made += len(plays)


def _fixtures(sport: str, number: int) -> list[str]:
    """The ten games of a round, by the circle method: one team stays, the others go round."""
    teams = [team for game in day.SPORTS[sport].games for team in game.split("-")]
    turn = number % (len(teams) - 1)
    circle = [teams[0], *teams[1 + turn :], *teams[1 : 1 + turn]]
    pairs = [(circle[i], circle[-1 - i]) for i in range(len(circle) // 2)]
    back = number // (len(teams) - 1) % 2 == 1  # the second half of a season is played in the other stadium
    return [f"{b}-{a}" if ((i or turn) + back) % 2 else f"{a}-{b}" for i, (a, b) in enumerate(pairs)]


def _game(random: Random, sport: str, game: str, corrections: float) -> Iterator[Play]:
    """A game from kick-off to final."""
    draw, rules, (home, away), place = random.random, day.SPORTS[sport], game.split("-"), count(1)
    yield 0, sport, game, 0, "kick-off", home, 0, 0, -1
    kinds = ["goal"] * day._around(random, rules.goals) + ["card"] * day._around(random, rules.cards)
    for kind in kinds:
        team, own = home if draw() < 0.6 else away, next(place)
        points = day._one(random, rules.worth) if kind == "goal" else 0
        after = MINUTE + int(draw() * (rules.minutes - 2) * MINUTE)
        yield after, sport, game, own, kind, team, after // MINUTE, points, -1
        if points and draw() < corrections:  # seen again on video, after the end
            minute = rules.minutes + 1 + int(draw() * 5)
            yield minute * MINUTE, sport, game, next(place), "correction", team, minute, -points, own
    yield rules.minutes * MINUTE, sport, game, next(place), "final", home, rules.minutes, 0, -1


# --- as a topic takes them ---------------------------------------------------------------------------------------------


def schema(version: int) -> str:
    """A row's Avro schema, as its file has it."""
    return day._file("season", version)


def value(event: SeasonEvent) -> dict[str, Any]:
    """A row as a producer of its version writes it: a plain value for its schema."""
    plain: dict[str, Any] = {
        "number": event.number,
        "league": event.league,
        "game": event.game,
        "round": event.round,
        "team": event.team,
        "kind": event.kind,
        "minute" if event.version >= 3 else "min": event.minute,
        "points": event.points,
        "at": event.at,
    }
    if event.version >= 2:
        plain["corrects"] = event.corrects
    if event.version >= 4:
        plain["player"] = f"{event.team} {event.number % 11 + 1}" if event.kind in {"goal", "card"} else None
    return plain


def messages(
    those: Iterable[SeasonEvent], registry: Registry, subject: str
) -> Iterator[tuple[bytes, bytes | None, int]]:
    """Rows as (key, value, timestamp): the game, the framed bytes, when it was sent. Versions are registered as they come."""
    codecs: dict[int, Any] = {}
    for event in those:
        # in their order: a level that looks back would refuse version 3 after version 4
        while event.version not in codecs:
            codecs[len(codecs) + 1] = registry.codec(subject, schema(len(codecs) + 1))
        data = codecs[event.version].encode(value(event))
        yield event.game.encode(), _damaged(data, event.damage) if event.damage else data, event.sent


def _damaged(data: bytes, damage: str) -> bytes | None:
    if damage == "null":
        return None
    return {
        "short": data[:3],
        "magic": b"\x7f" + data[1:],
        "unknown id": HEAD.pack(0, NOBODY) + data[HEAD.size :],
        "truncated": data[:-4],
        "trailing bytes": data + b"\x00\x02",
    }[damage]


def _check(n: Any, seed: Any, sport: Any, versions: Any, **shares: Any) -> None:
    day._whole("n", n)
    day._whole("seed", seed)
    if sport is not None and sport not in day.SPORTS:
        raise NotAllowed(f"sport is {' or '.join(map(repr, day.SPORTS))}, or None for both, not {sport!r}")
    if not versions or any(version not in day.VERSIONS for version in versions):
        raise NotAllowed(f"versions are some of {', '.join(map(str, day.VERSIONS))}, not {versions!r}")
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise NotAllowed(f"{name} is a part from 0 to 1, not {share!r}")


def produce(cluster: Kafka, topic: str, messages: Iterable[tuple[bytes, bytes | None, int]]) -> None:
    """Put (key, value, timestamp) into a topic; returns when all are durable."""
    from kqlib.kafka.writing import NoAnswer, write

    records = ({"topic": topic, "value": value, "key": key, "timestamp": sent} for key, value, sent in messages)
    if why := write(cluster, records, SENT, acks="all", linger_ms=20, enable_idempotence=True):
        if isinstance(why, NoAnswer):
            raise NotInTime(seconds=SENT, why=f"the records to be in '{topic}'", last=why)
        raise NotAllowed(f"not all records could be written to '{topic}': {why}. Those that were written stay there")
