"""The standings in plain Python, without Spark and without the code that is tested."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from kqlib.spark.table import LATE
from kqlib.workshop.games.seasons import SeasonEvent


def by_hand(events: Iterable[SeasonEvent]) -> list[tuple[Any, ...]]:
    """Who stands where, a row a team, by league and place."""
    in_time: dict[tuple[str, int], SeasonEvent] = {}
    late: dict[tuple[str, int], SeasonEvent] = {}
    for row in events:
        (late if row.sent - row.at > LATE * 1000 else in_time)[row.league, row.number] = row
    scores: dict[tuple[str, int, str], Counter[str]] = defaultdict(Counter)
    finished, teams, too_late = set(), set(), Counter[tuple[str, str]]()
    for row in in_time.values():
        game = row.league, row.round, row.game
        scores[game][row.team] += row.points
        if row.kind == "final":
            finished.add(game)
        teams |= {(row.league, team) for team in row.game.split("-")}
    for key, row in late.items():
        teams |= {(row.league, team) for team in row.game.split("-")}
        too_late[row.league, row.team] += key not in in_time
    table: dict[tuple[str, str], list[Any]] = {team: [0, 0, 0, 0, 0, 0, ""] for team in teams}
    for league, number, game in sorted(finished, key=lambda each: each[1]):
        home, away = game.split("-")
        for mine, theirs in ((home, away), (away, home)):
            scored, against = scores[league, number, game][mine], scores[league, number, game][theirs]
            letter = "W" if scored > against else "D" if scored == against else "L"
            row = table[league, mine]
            row[0] += 1
            row["WDL".index(letter) + 1] += 1
            row[4] += scored
            row[5] += against
            row[6] += letter
    found = []
    for (league, team), (all_, won, drawn, lost, scored, against, letters) in table.items():
        points = (3 if league == "football" else 2) * won + drawn
        found.append([league, team, all_, won, drawn, lost, scored, against, scored - against, points])
        found[-1] += [too_late[league, team], letters]
    found.sort(key=lambda each: (each[0], -each[9], -each[8], -each[6], each[1]))
    places: Counter[str] = Counter()
    done = []
    for each in found:
        places[each[0]] += 1
        done.append((*each[:2], places[each[0]], *each[2:]))
    return done


def windows_by_hand(events: Iterable[SeasonEvent]) -> list[tuple[Any, ...]]:
    """The points of each team in each quarter of an hour of event time: its begin in ms, league, team, points, late rows."""
    every, in_time = dict[tuple[Any, ...], int](), set[tuple[Any, ...]]()
    for row in events:
        if row.kind in {"goal", "correction"}:
            event = row.at // 900_000 * 900_000, row.league, row.team, row.number
            every[event] = row.points
            in_time |= {event} if row.sent - row.at <= LATE * 1000 else set()
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for event, points in every.items():
        found[event[:3]][0] += points * (event in in_time)
        found[event[:3]][1] += event not in in_time
    return sorted((*window, *counts) for window, counts in found.items())
