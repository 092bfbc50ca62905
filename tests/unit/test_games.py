"""The example: a match day that is the same everywhere, with a hot game and customers of two sizes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import pairwise

import pytest

from kqlib import games, places
from kqlib.errors import NotAllowed
from kqlib.schemas import Registry

VERSIONS = "the schema of games has the versions 1, 2, 3, 4; 'no-default' and 'other-type' were refused"


@pytest.mark.parametrize("sport", games.SPORTS)
@pytest.mark.parametrize("n", [0, 1, 7, 100, 1000])
def test_there_are_as_many_events_as_asked_for(n: int, sport: str) -> None:
    assert len(games.events(n, sport=sport)) == n


# Made once, on Python 3.11: what another Python or another machine gives is compared with it.
@pytest.mark.parametrize(
    ("sport", "seed", "digest"),
    [("football", 7, "40a3fba179629624"), ("football", 8, "9b43980431a2af7d"), ("basketball", 7, "1b66cb876e15f5e6")],
)
def test_a_seed_gives_the_same_day_on_every_machine(sport: str, seed: int, digest: str) -> None:
    said = json.dumps([list(vars(event).values()) for event in games.events(1000, seed, sport)])
    assert hashlib.sha256(said.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("sport", games.SPORTS)
def test_a_game_begins_with_its_kick_off_and_ends_with_its_final(sport: str) -> None:
    events = games.events(3000, sport=sport)
    for name in games.SPORTS[sport].games:
        told = [event for event in events if event.game == name]
        assert (told[0].kind, told[-1].kind) == ("kick-off", "final")
        assert all(a.minute <= b.minute for a, b in pairwise(told))
        assert {event.team for event in told} <= {told[0].home, told[0].away}
        assert f"{told[0].home}-{told[0].away}" == name


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
    assert {name for name, _ in customers[:3]} == set(games.BIG)
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
        (lambda: games.events(1.5), "n is a whole number from 0, not 1.5"),
        (lambda: games.events(True), "n is a whole number from 0, not True"),
        (lambda: games.events("9"), "n is a whole number from 0, not '9'"),
        (lambda: games.events(1, seed=-7), "seed is a whole number from 0, not -7"),
        (lambda: games.events(1, seed="x"), "seed is a whole number from 0, not 'x'"),
        (lambda: games.events(1, sport="chess"), "sport is 'football' or 'basketball', not 'chess'"),
        (lambda: games.schema(5), f"{VERSIONS}; not 5"),
        (lambda: games.schema(True), f"{VERSIONS}; not True"),
        (lambda: games.values([], "v1"), f"{VERSIONS}; not 'v1'"),
        (lambda: games.values([], []), f"{VERSIONS}; not []"),
    ],
)
def test_what_is_wrong_is_said(call, sentence: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        call()
    assert str(caught.value) == sentence


def test_without_a_checkout_it_says_where_the_schemas_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "repo", lambda: None)
    with pytest.raises(NotAllowed, match=r"in data/games-v1\.avsc … v4\.avsc of kqlib's checkout"):
        games.schema(1)
