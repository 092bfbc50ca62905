"""The complete programs of notebooks/at_work: each does its work on a real broker and ends at SIGTERM with status 0.

What their first lines promise is what `kq crash` shows: three points of the transaction in every run, every request of all workers at
night. At night they also work on a broker that is restarted under them. What single programs promise: test_at_work_each.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.workshop.crash import Report, life
from tests.patience import WAIT
from tests.promises.at_work import (
    ALL,
    AVRO,
    DRUPAL,
    FOLDER,
    KEYED,
    PROGRAMS,
    TRANSACTION,
    WORKERS,
    given,
    goals,
    plain,
    results,
    started,
    work_for,
)
from tests.promises.play import put

ALLOWED = {  # what the first lines of a program do not promise
    KEYED: ["doubled"],
    "04_consumer_groups.py": ["doubled"],
    AVRO: ["doubled"],
    DRUPAL: ["doubled"],
    "08_leases_and_the_ledger.py": ["doubled"],
    "11_share_groups.py": ["doubled"],
}
Crash = Callable[..., Report]


@pytest.mark.parametrize("name", [name for name in WORKERS if name not in (KEYED, AVRO)])  # test_at_work_each.py
def test_a_program_does_its_work_and_ends_at_sigterm(
    name: str, kq_cluster: Kafka, within: Callable[..., float]
) -> None:
    work = f"at-work-{name[:2]}"
    given(kq_cluster, work, 5)
    with started(name, kq_cluster, work) as program, results(kq_cluster, work) as so_far:
        expected = work_for(name, program, *range(5))
        within(30, lambda: so_far() >= expected)
        program.send_signal(signal.SIGTERM)
        _, log = program.communicate(timeout=WAIT)
        assert program.returncode == 0, log.decode()
        assert so_far() == expected


def test_a_transaction_keeps_its_promise_at_three_of_its_requests_and_an_orphan_is_ended_in_its_name(
    kq_crash: Crash,
) -> None:
    points = ["TxnOffsetCommit:1:after", "EndTxn:1:before", "EndTxn:1:after"]
    report = kq_crash([sys.executable, str(FOLDER / TRANSACTION)], 2, only=points)
    assert (report.clean, report.lost, report.doubled) == (True, 0, 0), str(report)
    assert [run.reached for run in report.runs] == [True] * 3
    assert ["aborted" in " ".join(run.lives[0].notes) for run in report.runs] == [True, True, False]


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize("name", [name for name in WORKERS if name != AVRO])  # its items are no plain numbers
def test_a_worker_keeps_what_its_first_lines_promise_at_every_request(name: str, kq_crash: Crash) -> None:
    report = kq_crash([sys.executable, str(FOLDER / name)], 3, allow=ALLOWED.get(name, []))
    assert (report.clean, report.lost) == (True, 0), str(report)


@pytest.mark.nightly
@pytest.mark.limit(600)
def test_a_reader_of_avro_keeps_its_promise_at_every_request(kq_crash: Crash, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three items is no Avro: what is put aside counts as a result."""
    encode = goals(kq_crash.keywords["cluster"], "goals")  # type: ignore[attr-defined]
    items = [(b"k0", encode(0)), (b"k1", b"1"), (b"k2", encode(2))]
    monkeypatch.setattr(life, "make_items", lambda number: items[:number])
    # `kq crash` names the topic of the results only in the command's environment
    command = ["sh", "-c", 'KQ_ASIDE="$KQ_RESULTS" exec "$0" "$1"', sys.executable, str(FOLDER / AVRO)]
    report = kq_crash(command, 3, allow=ALLOWED[AVRO])
    assert (report.clean, report.lost) == (True, 0), str(report)


@pytest.mark.nightly
@pytest.mark.limit(300)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_works_on_when_its_broker_is_restarted(name: str, within: Callable[..., float]) -> None:
    with kq.Cluster() as cluster:
        given(cluster, "work", 5, name)
        # clients without a broker log a lot, and a pipe that nobody reads gets full
        with started(name, cluster, "work", log=subprocess.DEVNULL) as program:
            with results(cluster, "work") as so_far:
                first = work_for(name, program, *range(5))
                within(60, lambda: so_far() >= first)
            cluster.broker(1).kill()
            cluster.broker(1).start()
            put(cluster, "work", (goals(cluster, "work") if name == AVRO else plain)(99))
            last = work_for(name, program, 99)
            with results(cluster, "work") as so_far, ExitStack() as lives:

                def done() -> bool:
                    nonlocal program
                    if name == TRANSACTION and program.poll() == 1:  # its client was stuck, as its first lines say
                        program = lives.enter_context(started(name, cluster, "work", log=subprocess.DEVNULL))
                    return so_far() >= last

                within(150, done)
                program.send_signal(signal.SIGTERM)
                assert program.wait(WAIT) == 0


@pytest.mark.parametrize("name", ALL)
def test_a_program_is_short_and_says_first_what_it_promises(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("Promise") for line in lines[:10])
