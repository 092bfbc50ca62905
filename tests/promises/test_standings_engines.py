"""Standings by three engines: each is right however often it is killed, and the audit of all three sees an engine that is wrong."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from examples.standings import compare
from examples.standings.compare import Audit, Trial, audit, truth
from kqlib.kafka import Kafka
from kqlib.workshop.games import seasons
from tests.patience import until

SEASON = list(seasons.rows(400, 7, "football", late=0.01, doubled=0.05))
# The worker with one line wrong: it acks before it counts, and dies once in between; or it counts what was sent twice.
WRONG = """
import json, os, signal, sys
from pathlib import Path
from uuid import uuid4
sys.path.insert(0, sys.argv[1])
import worker
died, count, add = Path(sys.argv[2]), worker.Worker.count, worker.League.add

def acks_first(self, item):
    fact = json.loads(item.data)
    if fact["kind"] == "final" and not died.exists():
        self.events.ack(item)
        died.write_text(str(fact["number"]))
        os.kill(os.getpid(), signal.SIGKILL)
    count(self, item)

worker.{}
worker.main(*sys.argv[3:], "1")
"""
LINES = {
    "lost": "Worker.count = acks_first",
    "doubled": 'League.add = lambda self, fact: add(self, fact | {"number": str(uuid4())})',
}


def test_the_audit_names_what_is_missing_and_what_is_too_much() -> None:
    right = truth(SEASON)
    one, other = sorted(right)[:2]
    wrong = right | {one: right[one] | {"scored": right[one]["scored"] + 2}, other: right[other] | {"played": 0}}
    assert audit(right, right) == Audit(0, 0, [])
    assert audit(wrong, right) == Audit(right[other]["played"], 2, [one, other])
    assert audit({}, right).wrong == sorted(right)


def test_a_worker_that_is_killed_goes_on_from_its_state(kq_cluster: Kafka, tmp_path: Path) -> None:
    # The ends come last: no transaction is open when it is killed. Then a goal is taken back, twice: the state is needed.
    few = [event for event in SEASON if event.game in {SEASON[0].game, SEASON[1].game} and event.kind != "card"]
    few.append(few[-1])
    with closing(Trial(kq_cluster, lambda *args: [*compare.worker(*args), "1"], few, tmp_path)) as trial:
        trial.put(len(few) - 2)
        assert not trial.wait().wrong, trial.log.read_text("utf-8")
        trial.kill()
        trial.put(len(few))
        trial.start()
        assert trial.wait() == Audit(0, 0, []), trial.log.read_text("utf-8")
        assert trial.peak and sum(trial.cpu.values()) and len(trial.held) == len(trial.ended) == 4


@pytest.mark.nightly
@pytest.mark.parametrize("what", LINES)
def test_the_audit_sees_a_worker_that_is_wrong(kq_cluster: Kafka, tmp_path: Path, what: str) -> None:
    season, died = SEASON[:190], tmp_path / "died"
    program, right = [sys.executable, "-c", WRONG.replace("{}", LINES[what]), compare.HERE, died], truth(season)
    with closing(Trial(kq_cluster, lambda trial, _: [*program, trial.games, trial.out], season, tmp_path)) as trial:
        trial.put(len(season))
        if what == "doubled":
            until(lambda: (found := audit(trial.read(0.02), right)).doubled and not found.lost)
        else:
            until(lambda: trial.process.poll() is not None, lambda: trial.log.read_text("utf-8"))
            trial.start()
            rest = truth([each for each in season if each.number != int(died.read_text("utf-8"))])
            until(lambda: trial.read(0.02) == rest, lambda: audit(trial.table, rest))
            assert (found := audit(trial.table, right)).lost and not found.doubled


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize("engine", compare.ENGINES)
def test_every_engine_is_right_after_three_kills(kq_cluster: Kafka, engine: str) -> None:
    row, found = compare.measure(kq_cluster, engine, 590, 3)
    assert found == Audit(0, 0, []), row
