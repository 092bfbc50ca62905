"""Standings by three engines: each is right however often it is killed, and the audit of all three sees an engine that is wrong."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from examples.standings import compare
from examples.standings.compare import Audit, Engine, Trial, audit, truth
from kqlib.kafka import Kafka
from kqlib.workshop.games import seasons
from tests.patience import WAIT, until

SEASON = list(seasons.rows(190, 7, "football", late=0.01, doubled=0.01))
# It does in two commits what the worker does in one, and dies once between them, at an event of this kind.
PLANTED = """
import json, os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4
sys.path.insert(0, sys.argv[3])
import worker
kind, died = sys.argv[4], Path(sys.argv[5])

class Wrong(worker.Worker):
    def __init__(self, *args):
        super().__init__(*args)
        self.events.step = self.two_commits

    @contextmanager
    def two_commits(self, item):
        self.puts, fact = [], json.loads(item.data)
        yield self
        halves = [lambda: self.events.ack(item), lambda: [queue.put(data, key) for queue, data, key in self.puts]]
        first, last = halves if kind == "final" else halves[::-1]
        first()
        if fact["kind"] == kind and not died.exists():
            died.write_text(str(fact["number"]))
            os.kill(os.getpid(), signal.SIGKILL)
        last()

    def put(self, *what):
        self.puts.append(what)

class Forgets(worker.League):
    def add(self, fact):
        return super().add(fact | {"number": str(uuid4())})

worker.League = Forgets if kind == "goal" else worker.League
worker.main(*sys.argv[1:3], "1", Wrong)
"""


def test_the_programs_are_short() -> None:
    for name, most in {"Standings.java": 150, "worker.py": 100}.items():
        assert len((compare.HERE / name).read_text("utf-8").splitlines()) <= most


def test_the_audit_names_what_is_missing_and_what_is_too_much() -> None:
    right = truth(SEASON)
    one, other = sorted(right)[:2]
    wrong = right | {one: right[one] | {"scored": right[one]["scored"] + 2}, other: right[other] | {"played": 0}}
    assert audit(right, right) == Audit(0, 0, [])
    assert audit(wrong, right) == Audit(right[other]["played"], 2, [one, other])
    assert audit({}, right).wrong == sorted(right)


def test_a_worker_that_is_killed_goes_on_from_its_state(kq_cluster: Kafka, tmp_path: Path) -> None:
    with closing(Trial(kq_cluster, uuid4().hex[:8], SEASON)) as trial:
        command = [*compare.worker(trial, tmp_path), "1"]
        with closing(Engine(command, kq_cluster, tmp_path)) as engine:
            trial.put(60)
            assert not trial.wait(WAIT).wrong, engine.log.read_text("utf-8")
            engine.kill()
            trial.put(len(SEASON))
            engine.start()
            assert trial.wait(WAIT) == Audit(0, 0, []), engine.log.read_text("utf-8")
            assert engine.peak and sum(engine.cpu.values()) and len(trial.delays(60)) == 40


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["final", "goal"], ids=["acks first", "counts again"])
def test_the_audit_sees_a_worker_that_commits_in_two_halves(kq_cluster: Kafka, tmp_path: Path, kind: str) -> None:
    season, died = list(seasons.rows(190, 7, "football", corrections=0)), tmp_path / "died"
    with closing(Trial(kq_cluster, uuid4().hex[:8], season)) as trial:
        command = [sys.executable, "-c", PLANTED, trial.games, trial.out, str(compare.HERE), kind, str(died)]
        with closing(Engine(command, kq_cluster, tmp_path)) as engine:
            trial.put(len(season))
            until(lambda: engine.process.poll() is not None, lambda: engine.log.read_text("utf-8"))
            engine.start()
            if kind == "final":
                rest = truth([each for each in season if each.number != int(died.read_text("utf-8"))])
                until(lambda: trial.table == rest, lambda: audit(trial.table, rest))
                assert (found := audit(trial.table, truth(season))).lost and not found.doubled
            else:
                until(lambda: (found := audit(trial.table, truth(season))).doubled and not found.lost)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", compare.ENGINES)
def test_every_engine_is_right_after_three_kills(kq_cluster: Kafka, engine: str) -> None:
    row, found = compare.measure(kq_cluster, engine, 700, 3)
    assert found == Audit(0, 0, []), row
