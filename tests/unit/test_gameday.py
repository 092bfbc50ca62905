"""The rules of a game day: which faults a seed hides, when a fault counts as repaired, and the grade. No broker."""

from __future__ import annotations

import logging
import re
import socket
import sqlite3
import threading
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kqlib.errors import NotAllowed
from kqlib.workshop.gameday import game as games, holder, system
from kqlib.workshop.gameday.faults import FAULTS, Fault, Made
from kqlib.workshop.gameday.game import MOST, Game, draw
from kqlib.workshop.gameday.grade import Entry, Report
from kqlib.workshop.gameday.system import COUNTED, GAMES, Counts, System, database
from tests.faults.gameday import FAULTS_EACH, MINUTES, SEEDS

MINUTE = 60.0


# --- which faults come ------------------------------------------------------------------------------------------------


def test_a_seed_always_hides_the_same_faults_at_the_same_moments() -> None:
    assert draw(7, 3, 30) == draw(7, 3, 30)
    assert len({tuple(draw(seed, 3, 30)) for seed in range(50)}) == 50


def test_every_fault_is_drawn_and_no_two_of_a_game_touch_the_same_part() -> None:
    seen: Counter[str] = Counter()
    for seed in range(300):
        hidden = draw(seed, MOST, 10)
        assert len({FAULTS[each.name].touches for each in hidden}) == MOST
        seen.update(each.name for each in hidden)
    assert seen.keys() == FAULTS.keys() and len(FAULTS) >= 14


def test_faults_come_one_after_the_other_and_leave_time_for_the_last_one() -> None:
    for seed in range(100):
        moments = [each.at for each in draw(seed, 3, 30)]
        assert moments == sorted(moments)
        assert moments[0] > 1 * MINUTE and moments[-1] < 20 * MINUTE


@pytest.mark.parametrize(("faults", "minutes"), [(0, 30), (MOST + 1, 30), (3, 0), (3, -1), (3, float("nan"))])
def test_what_cannot_be_played_is_refused(faults: int, minutes: float) -> None:
    with pytest.raises(NotAllowed, match=r"--faults|--minutes"):
        draw(7, faults, minutes)


def test_a_hung_worker_is_shown_by_the_members_without_it() -> None:
    paused: list[str] = []
    names = ["eu-1", "eu-2", "us-1", "us-2"]
    programs = {name: SimpleNamespace(pause=partial(paused.append, name)) for name in names}
    system: Any = SimpleNamespace(programs=programs)
    [proof] = FAULTS["worker-hangs"].make(system, Random(7)).proof
    [hangs] = paused
    other = f"{hangs[:3]}{3 - int(hangs[3])}"
    head = "GROUP  CONSUMER-ID  HOST        CLIENT-ID  #PARTITIONS\n"
    row = "x      HlZ+GFxw     /127.0.0.1  {}       3\n"
    status = "".join(f"{name}      running  log /logs/{name}.log\n" for name in names)
    for shown in (head + row.format(other), status + head + row.format(other)):
        assert re.search(proof, shown, re.IGNORECASE)
    for shown in (status, head, head + row.format(hangs), head + row.format(other) + row.format(hangs)):
        assert not re.search(proof, shown, re.IGNORECASE)


def test_every_fault_says_its_cause_its_trace_and_its_repair() -> None:
    for name, each in FAULTS.items():
        assert each.cause.endswith(".") and "kq " in each.trace + each.repair, name
        assert each.trace and each.repair and each.name == name


def test_the_games_of_a_night_have_every_fault() -> None:
    assert {each.name for seed in SEEDS for each in draw(seed, FAULTS_EACH, MINUTES)} == FAULTS.keys()


# --- the grade --------------------------------------------------------------------------------------------------------


def entry(**how: Any) -> Entry:
    return Entry("quota", **({"made": 60.0} | how))


@pytest.mark.parametrize(
    ("how", "points"),
    [
        ({}, 0),
        ({"found": 120.0}, 30),
        ({"found": 120.0, "proven": True}, 50),
        ({"repaired": 60.0}, 50),
        ({"found": 70.0, "proven": True, "repaired": 60.0}, 100),
        ({"found": 70.0, "proven": True, "repaired": 360.0}, 90),
        ({"repaired": 5000.0}, 30),
    ],
)
def test_points_are_for_cause_evidence_repair_and_quickness(how: dict[str, Any], points: int) -> None:
    assert entry(**how).points(600) == points


def test_wrong_answers_and_lost_items_cost_points_of_the_score() -> None:
    whole = entry(found=70.0, proven=True, repaired=60.0)
    assert Report(7, 600, [whole]).score == 100
    assert Report(7, 600, [whole, entry()]).score == 50
    players = [entry(by="Ben"), whole, entry(by="Ann"), entry(by="Ben")]
    assert Report(7, 600, players).result == "25 of 100 points; Ann found 1; Ben found 2"
    assert Report(7, 600, [whole], wrong=["quota", "full-disk"], lost=3).score == 87
    assert Report(7, 600, [whole], lost=1000).score == 80
    assert Report(7, 600, [entry()], wrong=["quota"]).score == 0
    assert Report(7, 600, []).score is None


def test_the_debrief_says_what_happened_over_time() -> None:
    samples = [{"eu": 1, "us": 2}, {"eu": 40, "us": 2}, {"eu": 3, "us": 2}]
    report = Report(7, 90, [entry(made=31.0, found=50.0, repaired=70.0)], ["full-disk"], 99, 1, 2, samples, 30.0)
    named = replace(report, names=["us: item 41 of game-1"])
    assert "1 lost (us: item 41 of game-1), 2 doubled" in str(named)
    assert "9 lost (us: item 41 of game-1, …), 2 doubled" in replace(named, lost=9).audit
    text = str(report)
    assert "Game day, seed 7: 65 of 100 points" in text
    assert "99 items put for each site; 1 lost, 2 doubled; wrong answers: full-disk" in text
    assert f"quota: {FAULTS['quota'].cause}" in text and "look 2: quota" in text and "look 3: ✓ quota" in text
    assert "40" in report.picture.text and report.picture.text in text
    assert "<img" in report.page and "look 3: ✓ quota" in report.page
    assert report.plain()["score"] == report.score
    assert report.plain()["entries"][0]["points"] == report.entries[0].points(90)


def test_lost_items_are_named_by_site_and_game(tmp_path: Path) -> None:
    played: Any = object.__new__(System)
    played.folder, played._db = tmp_path, database(str(tmp_path))
    played._db.execute("CREATE TABLE put (number INTEGER PRIMARY KEY)")
    played._db.executemany("INSERT INTO put VALUES (?)", [(number,) for number in range(1, 5)])
    for site in COUNTED:
        (tmp_path / f"{site}.done").write_text("1\n2\n3\n4\n")
    assert played.lost() == []
    (tmp_path / f"{COUNTED[0]}.done").write_text("1\n1\n3\n")
    first, second = (f"{COUNTED[0]}: item {number} of game-{number % GAMES}" for number in (2, 4))
    assert (played.lost(), played.lost(most=1)) == ([first, second], [first])
    played._db.close()


# --- a game, with a clock and a system of the test's own ------------------------------------------------------------------


def fails(error: Exception) -> None:
    raise error


class Played:
    """A game of 600 seconds with one fault, on a clock that stands. It can be made while `possible`, and is away when `repaired`."""

    def __init__(self) -> None:
        self.now, self.possible, self.repaired = 0.0, True, False
        system: Any = SimpleNamespace(counts=lambda: Counts(5, 0, 0, {"eu": 0, "us": 0}, 0), stop=lambda name: None)
        self.game = Game(system, 7, 1, 10, lambda: self.now)

    def make(self, system: Any, chance: Random) -> Made:
        if not self.possible:
            raise NotAllowed("not now")
        return Made((r"rate=\d+", "mover"), lambda: self.repaired)

    def turn(self, after: float | None = None) -> None:
        """A turn so much later; without a time, when the first fault is due."""
        self.now = self.game.to_come[0].at if after is None else self.now + after
        self.game.turn()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    """There are two faults, and the game has the first one."""

    def make(system: Any, chance: Random) -> Made:
        return made.make(system, chance)

    one = {"quota": Fault("quota", "A quota.", "kq status", "remove it", "mover", make)}
    monkeypatch.setattr(games, "FAULTS", one)
    made = Played()
    two = one | {"full-disk": Fault("full-disk", "A disk.", "kq status", "clean it", "mover", make)}
    monkeypatch.setattr(games, "FAULTS", two)
    return made


def test_a_fault_that_cannot_be_made_now_is_tried_again(played: Played) -> None:
    played.possible = False
    played.turn()
    assert not played.game.entries
    played.possible = True
    played.turn(games.AGAIN)
    assert played.game.entries["quota"].made == played.now and not played.game.to_come


def test_a_fault_that_cannot_be_made_keeps_no_other_one_away(played: Played) -> None:
    played.game.to_come.append(games.Hidden("full-disk", played.game.to_come[0].at + 1))
    played.possible = False
    played.turn()
    played.possible = True
    played.turn(1)
    assert list(played.game.entries) == ["full-disk"]


def test_a_fault_is_repaired_only_after_it_was_in_force(played: Played) -> None:
    played.repaired = True
    played.turn()
    played.turn(0)
    assert played.game.entries["quota"].repaired is None
    played.repaired = False
    played.turn(0)
    played.repaired = True
    played.turn(games.CHECK)
    assert played.game.entries["quota"].repaired == played.now


def test_evidence_counts_if_it_has_all_that_only_the_trace_shows(played: Played) -> None:
    played.turn()
    found, game = played.game.entries["quota"], played.game
    game.answer("quota", "it is the mover", "Ann")
    assert found.found == played.now and not found.proven
    played.now += 60
    game.answer("quota", "Quota for 'mover': rate=150", "Ben")
    assert found.found == played.now - 60 and found.proven and found.by == "Ann"
    game.answer("quota", "")
    assert found.proven and game.wrong == []


def test_a_fault_that_is_not_there_or_not_yet_is_a_wrong_answer(played: Played) -> None:
    game = played.game
    game.answer("quota", "a guess")
    game.answer("full-disk", "another one")
    game.answer("quota", "the same again")
    assert game.wrong == ["quota", "full-disk"]
    with pytest.raises(NotAllowed, match="there is no fault 'quotas'"):
        game.answer("quotas", "")
    played.now = game.length
    with pytest.raises(NotAllowed, match="the time is over"):
        game.answer("quota", "")


def test_a_game_without_a_fault_has_no_score(played: Played) -> None:
    played.game.turn()
    report = played.game.end()
    assert (report.score, report.put, report.lost) == (None, 5, 0)
    assert "no fault came" in str(report)


def test_after_its_end_a_game_changes_nothing_and_keeps_its_report(played: Played) -> None:
    report = played.game.end()
    played.turn()
    assert played.game.entries == {} and played.game.end() is report


def test_a_turn_asks_after_one_fault_and_all_have_their_turn(played: Played) -> None:
    game = played.game
    game.to_come.append(games.Hidden("full-disk", game.to_come[0].at))
    played.turn()
    played.turn(0)
    asked: list[str] = []

    def away(name: str) -> bool:
        asked.append(name)
        raise NotAllowed("a broker is away")

    for name in game.made:
        game.made[name] = Made((), partial(away, name))
    played.turn(games.CHECK)
    assert len(asked) == 1
    played.turn(0)
    assert sorted(asked) == ["full-disk", "quota"], "one that cannot be asked keeps no other one away"


def test_a_command_asks_the_game_over_its_socket(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    (tmp_path / "gameday").write_text(str(tmp_path))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "game"))
        server.listen()
        server.settimeout(30)
        turn, hangs = threading.Lock(), KafkaException(KafkaError(KafkaError._TIMED_OUT))
        monkeypatch.setattr(played.game.system, "restart", lambda name: fails(hangs), raising=False)
        answers = threading.Thread(target=lambda: [holder.answer(played.game, server, turn) for _ in range(4)])
        answers.start()
        with turn:  # a broker hangs, and a turn of the clock waits for it
            assert holder.ask("answer", "quota", "a guess").startswith("Noted: quota.")
            with pytest.raises(NotAllowed, match="there is no fault 'quotas'"):
                holder.ask("answer", "quotas", "")
        assert holder.ask("turn") is None, "only the words of a command are answered"
        with pytest.raises(NotAllowed, match="Timed out"):
            holder.ask("restart", "broker-1")
        answers.join()
    assert played.game.wrong == ["quota"]


def test_the_clock_turns_until_the_game_is_over_whatever_kafka_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "TURN", 0.001)
    turned, over = list[int](), threading.Event()

    def turn() -> None:
        turned.append(1)
        if len(turned) == 3:
            over.set()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    holder.keep_time(SimpleNamespace(turn=turn), threading.Lock(), over)  # type: ignore[arg-type]
    assert len(turned) == 3


def test_a_turn_that_the_end_of_the_game_cuts_off_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "TURN", 0.001)
    for ended in (True, False):
        over = threading.Event()

        def turn(ended: bool = ended, over: threading.Event = over) -> None:
            if ended:
                over.set()
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")

        with nullcontext() if ended else pytest.raises(sqlite3.ProgrammingError):
            holder.keep_time(SimpleNamespace(turn=turn), threading.Lock(), over)  # type: ignore[arg-type]


def test_a_program_logs_why_an_item_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    monkeypatch.setattr(system, "worker", lambda *_: logging.getLogger("kqlib.queue").info("football/0/1 failed: …"))
    system.program(None, "", str(tmp_path), "eu-1")  # type: ignore[arg-type]
    logging.root.handlers[0].close()
    assert "INFO football/0/1 failed" in (tmp_path / "eu-1.log").read_text(encoding="utf-8")
