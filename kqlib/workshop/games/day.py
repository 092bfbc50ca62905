"""The example that runs through the notebooks: a match day of football or basketball, as events that are sent to broadcasters.

In:  how many events, a sport. Out: `Event`s in the order in which they happen, the same on every machine; and the same as plain
     values for the four versions of their schema (data/games-v1.avsc … v4.avsc).

What happens in a game is sent to the customers that ordered its feed. Nearly every customer ordered one game of the day, the derby
(a hot key); three customers are big, forty are small. A day has about a hundred happenings in football and five
hundred in basketball: fewer events than it takes are a day with fewer games.
Only `Random.random` is used: the one method that Python promises never to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from random import Random
from typing import Any, TypeVar

from kqlib.errors import NotAllowed
from kqlib.runtime import places

T = TypeVar("T")


@dataclass(frozen=True)
class Event:
    """Something that happened in a game, for one customer; of a kick-off and a final the team is the home team."""

    league: str  # "football" or "basketball"
    game: str  # "ARS-CHE": home, then away
    home: str
    away: str
    team: str  # who scored, or got the card
    kind: str  # "kick-off", "goal", "card" (football only) or "final"
    minute: int
    points: int  # what a goal counts: 1 in football, 1 to 3 in basketball; else 0
    customer: str  # the broadcaster that ordered the feed


@dataclass(frozen=True)
class Sport:
    """What a day of it is like; the first game is the derby."""

    games: tuple[str, ...]
    minutes: int
    goals: int  # in an ordinary game, on average
    cards: int
    worth: tuple[int, ...]  # what a goal may count


FOOTBALL = "ARS-CHE MCI-LIV MUN-TOT NEW-AVL EVE-WHU BHA-CRY FUL-BRE WOL-BOU NFO-LEE SUN-BUR"
BASKETBALL = "LAL-BOS NYK-BKN GSW-LAC CHI-MIL MIA-ORL DAL-HOU DEN-PHX PHI-TOR SAC-POR UTA-MEM"
SPORTS = {
    "football": Sport(tuple(FOOTBALL.split()), 90, 3, 4, (1,)),
    "basketball": Sport(tuple(BASKETBALL.split()), 48, 40, 0, (2, 2, 2, 3, 1)),
}
BIG = ("channel-one", "sport-world", "big-screen")  # half of all that is sent: they have many stations
SMALL = tuple(f"radio-{number:02}" for number in range(1, 41))
DERBY = 6  # its audience, where an ordinary game's is 1
FEW = 2  # what happens is sent so often at least, on average: with fewer events, fewer games are played
SEED = 7
VERSIONS = (1, 2, 3, 4)
REFUSED = ("no-default", "other-type")  # proposed after version 4, and refused by a level


def events(n: int, sport: str = "football") -> list[Event]:
    """A match day in n events: `events(1000)`, `events(50, sport="basketball")`."""
    _whole("n", n)
    if sport not in SPORTS:
        raise NotAllowed(f"sport is {' or '.join(map(repr, SPORTS))}, not {sport!r}")
    random = Random(SEED)
    day = _day(random, sport, n)
    return [_sent(random, each) for each, times in zip(day, _times(day, sport, n), strict=True) for _ in range(times)]


def schema(version: int | str) -> str:
    """An event's Avro schema, as its file has it: `schema(1)` to `schema(4)`, or one that was refused: `schema("no-default")`."""
    _version(version)
    return _file("games" if version in VERSIONS else "refused", version)


def _file(family: str, version: int | str) -> str:
    """The text of a schema's file."""
    repo = places.repo()
    if repo is None:
        raise NotAllowed("the schemas are in data/games-v1.avsc … v4.avsc of kqlib's checkout, which is not here")
    name = f"v{version}" if isinstance(version, int) else version
    return (repo / "data" / f"{family}-{name}.avsc").read_text(encoding="utf-8")


def values(those: Iterable[Event], version: int | str) -> list[dict[str, Any]]:
    """Events as a producer of that version writes them: plain values for its schema, numbered from 0."""
    _version(version)
    return [_value(number, event, version) for number, event in enumerate(those)]


def _value(number: int, event: Event, version: int | str) -> dict[str, Any]:
    step = VERSIONS[-1] if isinstance(version, str) else version  # what was refused was to follow the last
    value: dict[str, Any] = {
        "number": number,
        "league": event.league if event.league == "football" or step >= 4 else "other",
        "game": event.game,
        "team": event.team,
        "kind": event.kind,
        "minute" if step >= 3 else "min": f"{event.minute}'" if version == "other-type" else event.minute,
        "points": event.points,
    }
    if step >= 2:
        value["customer"] = event.customer
    if step >= 4:
        value["player"] = f"{event.team} {number % 11 + 1}" if event.kind in {"goal", "card"} else None
    if version == "no-default":
        value["stadium"] = f"{event.home} Park"
    return value


def _version(version: Any) -> None:
    if isinstance(version, bool) or version not in (*VERSIONS, *REFUSED):
        kept, refused = ", ".join(map(str, VERSIONS)), " and ".join(map(repr, REFUSED))
        raise NotAllowed(f"the schema of games has the versions {kept}; {refused} were refused; not {version!r}")


def _whole(what: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise NotAllowed(f"{what} is a whole number from 0, not {value!r}")


def _day(random: Random, sport: str, n: int) -> list[Event]:
    """The events of the day, by the minute: the derby and as many other games as n events allow."""
    happened: list[Event] = []
    for number, game in enumerate(SPORTS[sport].games):
        more = _game(random, sport, game, 1 if number else 2)
        if happened and (len(happened) + len(more)) * FEW > n:
            break
        happened += more
    return sorted(happened, key=lambda event: event.minute)[:n]  # stable: each game stays in its own order


def _game(random: Random, sport: str, game: str, times: int) -> list[Event]:
    """A game from kick-off to final, for no customer yet, with so many times the usual goals and cards."""
    rules, (home, away) = SPORTS[sport], game.split("-")
    kinds = ["goal"] * _around(random, rules.goals * times) + ["card"] * _around(random, rules.cards * times)
    happened = []
    for minute, kind in sorted((1 + int(random.random() * (rules.minutes - 1)), kind) for kind in kinds):
        team = _one(random, (home, home, home, away, away))  # at home one does more
        points = _one(random, rules.worth) if kind == "goal" else 0
        happened.append(Event(sport, game, home, away, team, kind, minute, points, ""))
    first = Event(sport, game, home, away, home, "kick-off", 0, 0, "")
    return [first, *happened, replace(first, kind="final", minute=rules.minutes)]


def _times(day: Sequence[Event], sport: str, n: int) -> list[int]:
    """How often each is sent: once at least, the rest by audience, n in all."""
    audience = [DERBY if event.game == SPORTS[sport].games[0] else 1 for event in day]
    spare = n - len(day)
    given = [spare * seen // sum(audience) for seen in accumulate(audience)]
    return [1 + upto - before for before, upto in pairwise([0, *given])]


def _sent(random: Random, event: Event) -> Event:
    return replace(event, customer=_one(random, BIG if random.random() < 0.5 else SMALL))


def _around(random: Random, mean: int) -> int:
    """A whole number near the mean: half of it at least, half more at most."""
    return round(mean * (0.5 + random.random()))


def _one(random: Random, things: Sequence[T]) -> T:
    return things[int(random.random() * len(things))]
