"""The example: a match day that is the same everywhere, with a hot game and customers of two sizes."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from itertools import pairwise

import pytest

from kqlib.command import games as command
from kqlib.errors import KqError, NotAllowed
from kqlib.runtime import places
from kqlib.schemas import Registry
from kqlib.workshop import games
from kqlib.workshop.games import day, seasons

VERSIONS = "the schema of games has the versions 1, 2, 3, 4; 'no-default' and 'other-type' were refused"


@pytest.mark.parametrize("sport", games.SPORTS)
@pytest.mark.parametrize("n", [0, 1, 7, 100, 1000])
def test_there_are_as_many_events_as_asked_for(n: int, sport: str) -> None:
    assert len(games.events(n, sport=sport)) == n


# Made once, on Python 3.11: what another Python or another machine gives is compared with it.
@pytest.mark.parametrize(("sport", "digest"), [("football", "40a3fba179629624"), ("basketball", "1b66cb876e15f5e6")])
def test_the_day_is_the_same_on_every_machine(sport: str, digest: str) -> None:
    dumped = json.dumps([list(vars(event).values()) for event in games.events(1000, sport)])
    assert hashlib.sha256(dumped.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("sport", games.SPORTS)
def test_a_game_begins_with_its_kick_off_and_ends_with_its_final(sport: str) -> None:
    events = games.events(3000, sport=sport)
    for name in games.SPORTS[sport].games:
        of_game = [event for event in events if event.game == name]
        assert (of_game[0].kind, of_game[-1].kind) == ("kick-off", "final")
        assert all(a.minute <= b.minute for a, b in pairwise(of_game))
        assert {event.team for event in of_game} <= {of_game[0].home, of_game[0].away}
        assert f"{of_game[0].home}-{of_game[0].away}" == name


@pytest.mark.parametrize(("sport", "worth"), [("football", {0, 1}), ("basketball", {0, 1, 2, 3})])
def test_only_goals_count(sport: str, worth: set[int]) -> None:
    events = games.events(3000, sport=sport)
    assert {event.points for event in events} == worth
    assert {event.kind for event in events if event.points} == {"goal"}


@pytest.mark.parametrize("sport", games.SPORTS)
def test_the_derby_is_a_hot_game_and_three_customers_are_big(sport: str) -> None:
    events = games.events(5000, sport=sport)
    (derby, most), (_, next_most) = Counter(event.game for event in events).most_common(2)
    assert derby == games.SPORTS[sport].games[0]
    assert most > 3 * next_most
    customers = Counter(event.customer for event in events).most_common()
    assert {name for name, _ in customers[:3]} == set(day.BIG)
    assert customers[2][1] > 5 * customers[3][1]
    assert len(customers) == 43


def test_few_events_are_a_day_with_few_games() -> None:
    assert [len({event.game for event in games.events(n)}) for n in (20, 100, 1000)] == [1, 4, 10]


@pytest.mark.parametrize("version", [*games.VERSIONS, *games.REFUSED])
def test_each_versions_values_fit_its_schema_and_come_back(version: int | str) -> None:
    codec = Registry("NONE").codec("games", games.schema(version))
    events = games.events(50) + games.events(50, sport="basketball")
    for value in games.values(events, version):
        assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: games.events(-1), "n is a whole number from 0, not -1"),
        (lambda: games.events(True), "n is a whole number from 0, not True"),
        (lambda: games.events("9"), "n is a whole number from 0, not '9'"),
        (lambda: games.events(1, sport="chess"), "sport is 'football' or 'basketball', not 'chess'"),
        (lambda: games.schema(5), f"{VERSIONS}; not 5"),
        (lambda: games.schema(True), f"{VERSIONS}; not True"),
        (lambda: games.values([], "v1"), f"{VERSIONS}; not 'v1'"),
        (lambda: games.values([], []), f"{VERSIONS}; not []"),
        (lambda: games.season(1, seed=1.5), "seed is a whole number from 0, not 1.5"),
        (lambda: games.season(1, sport="chess"), "sport is 'football' or 'basketball', or None for both, not 'chess'"),
        (lambda: games.season(1, late=2), "late is a part from 0 to 1, not 2"),
        (lambda: games.season(1, doubled=-0.1), "doubled is a part from 0 to 1, not -0.1"),
        (lambda: games.season(1, broken="x"), "broken is a part from 0 to 1, not 'x'"),
        (lambda: games.season(1, corrections=True), "corrections is a part from 0 to 1, not True"),
        (lambda: games.season(1, versions=()), "versions are some of 1, 2, 3, 4, not ()"),
        (lambda: games.season(1, versions=(5,)), "versions are some of 1, 2, 3, 4, not (5,)"),
    ],
)
def test_what_is_wrong_is_reported(call, sentence: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        call()
    assert str(caught.value) == sentence


def test_without_a_checkout_it_says_where_the_schemas_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "repo", lambda: None)
    with pytest.raises(NotAllowed, match=r"in data/games-v1\.avsc … v4\.avsc of kqlib's checkout"):
        games.schema(1)


# --- seasons ------------------------------------------------------------------------------------------------------------

GOES_WRONG = {"late": 0.02, "doubled": 0.03, "broken": 0.02}


@pytest.mark.parametrize("more", [{}, GOES_WRONG], ids=["all well", "much goes wrong"])
@pytest.mark.parametrize("n", [0, 1, 500, 5000])
def test_a_season_has_as_many_rows_as_asked_for(n: int, more: dict[str, float]) -> None:
    assert sum(1 for _ in games.season(n, **more)) == n


# Made once, on Python 3.11, as above.
@pytest.mark.parametrize(
    ("sport", "digest"),
    [(None, "d7a5e2ee83b6fdd8"), ("football", "5d9d4a10f6f3634a"), ("basketball", "4286ae6c1eb9378a")],
)
def test_a_seed_gives_the_same_season_on_every_machine(sport: str | None, digest: str) -> None:
    dumped = json.dumps(list(games.season(2000, sport=sport, **GOES_WRONG)))
    assert hashlib.sha256(dumped.encode()).hexdigest()[:16] == digest


def test_another_seed_gives_another_season() -> None:
    assert list(games.season(100, seed=8)) != list(games.season(100))


def test_rows_come_in_the_order_in_which_they_are_sent_and_after_they_happened() -> None:
    rows = list(games.season(20_000, **GOES_WRONG))
    assert all(a.sent <= b.sent for a, b in pairwise(rows))
    assert all(row.at < row.sent for row in rows)
    assert any(row.sent - row.at > 2 * 3_600_000 for row in rows)


@pytest.mark.parametrize("sport", games.SPORTS)
def test_everybody_plays_everybody_at_home_and_away(sport: str) -> None:
    rounds = [seasons._fixtures(sport, number) for number in range(38)]
    assert all(len({team for game in played for team in game.split("-")}) == 20 for played in rounds)
    assert len({game for played in rounds for game in played}) == 380


def test_a_number_is_unique_in_its_league_but_for_what_is_sent_twice() -> None:
    plain = Counter((row.league, row.number) for row in games.season(5000))
    assert set(plain.values()) == {1}
    doubled = Counter((row.league, row.number) for row in games.season(5000, doubled=0.1))
    assert sum(times - 1 for times in doubled.values()) == pytest.approx(450, rel=0.3)


def test_a_correction_takes_back_the_points_of_the_goal_that_it_names() -> None:
    rows = {(row.league, row.number): row for row in games.season(20_000, corrections=0.2)}
    corrections = [row for row in rows.values() if row.kind == "correction"]
    assert len(corrections) > 1000
    for row in corrections:
        goal = rows[row.league, row.corrects]
        assert (goal.kind, goal.game, goal.team, goal.points) == ("goal", row.game, row.team, -row.points)


def test_football_moves_from_version_to_version_and_basketball_is_written_by_the_last() -> None:
    rows = list(games.season(20_000))
    football = [row.version for row in sorted(rows, key=lambda row: row.at) if row.league == "football"]
    assert football == sorted(football)
    assert set(football) == {1, 2, 3, 4}
    assert {row.version for row in rows if row.league == "basketball"} == {4}
    assert {row.version for row in games.season(500, sport="football", versions=(2,))} == {2}


def test_a_season_as_messages_is_read_back_whatever_version_wrote_it() -> None:
    registry, rows = Registry(), list(games.season(3000))
    messages = list(seasons.messages(rows, registry, "games-value"))
    codec = registry.codec("games-value", seasons.schema(4))
    for row, (key, data, sent) in zip(rows, messages, strict=True):
        value = codec.decode(data)
        assert (key.decode(), sent) == (row.game, row.sent)
        assert (value["number"], value["minute"], value["points"]) == (row.number, row.minute, row.points)
        assert round(value["at"].timestamp() * 1000) == row.at
    assert registry.versions("games-value") == [1, 2, 3, 4]


def test_broken_rows_come_on_top_and_cannot_be_read() -> None:
    registry, rows = Registry(), list(games.season(4000, broken=0.05))
    codec = None
    for row, (_, data, _) in zip(rows, seasons.messages(rows, registry, "s"), strict=True):
        codec = codec or registry.codec("s")
        if row.damage == "null":
            assert data is None
        elif row.damage:
            with pytest.raises(KqError):
                codec.decode(data)
    assert {row.damage for row in rows} == {"", *seasons.DAMAGES}
    whole = {(row.league, row.number) for row in rows if not row.damage}
    assert (
        len({(row.league, row.number) for row in rows if row.damage} - whole) < 5
    )  # some whole ones are still to come


def test_the_sample_is_what_its_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    words = ["show", "--rows", "60", "--sport", "football", "--late", "0.05", "--doubled", "0.05", "--broken", "0.05"]
    assert command.run(parser.parse_args(words)) == 0
    repo = places.repo()
    assert repo and capsys.readouterr().out == (repo / "data" / "season-60.jsonl").read_text()
