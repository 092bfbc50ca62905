"""The program of notebooks/at_work for notebook 15: a feed, its mover and workers, each of them a process that is killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.virtual.outbox import Outbox
from tests.patience import WAIT
from tests.promises.at_work import SPORTS, feed, started


def rows(count: int) -> list[bytes]:
    """Lines of a feed: three games of two leagues, in turn."""
    games = [("at-work-football", "ARS-CHE"), ("at-work-football", "LIV-MUN"), ("at-work-basket", "LAL-BOS")]
    lines = [games[number % 3] for number in range(count)]
    return [
        b'{"league": "%s", "game": "%s", "number": %d}\n' % (a.encode(), b.encode(), n)
        for n, (a, b) in enumerate(lines)
    ]


def test_a_feed_stores_each_row_once_with_its_job_and_gives_back_a_line_that_is_none(
    kq_cluster: Kafka, tmp_path: Path
) -> None:
    file, lines, bad = (
        tmp_path / "feed.db",
        rows(30),
        [b"no JSON\n", b'{"league": "tennis", "game": "A-B", "number": 1}\n'],
    )
    leagues = "at-work-football,at-work-basket"
    with started(SPORTS, kq_cluster, leagues, "feed", out=subprocess.PIPE, KQ_DATABASE=str(file)) as program:
        out, log = program.communicate(b"".join([*lines, *bad, *lines]), timeout=WAIT)
        assert (program.returncode, out) == (1, b"".join(bad)), log.decode()
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT COUNT(*) FROM feed").fetchone() == (30,)
        assert Outbox(db).waiting() == 30


@pytest.mark.nightly
@pytest.mark.limit(300)  # after a kill the next worker waits for the session of the dead one
def test_an_evening_whose_feed_mover_and_worker_are_killed_has_each_row_once_in_the_order_of_its_game(
    kq_cluster: Kafka, within: Callable[..., float], tmp_path: Path
) -> None:
    file, lines, sports = tmp_path / "feed.db", rows(600), ("at-work-football", "at-work-basket")
    env = {"KQ_DATABASE": str(file), "KQ_GROUP": "at-work-evening", "KQ_RESULTS": "at-work-evening-results"}
    kq.Plan({name: kq.QueueTopic(partitions=1) for name in (*sports, env["KQ_RESULTS"])}).apply(kq_cluster, quiet=True)

    def counted(sql: str) -> int:
        with closing(sqlite3.connect(file, timeout=30)) as db, suppress(sqlite3.OperationalError):  # no table yet
            return int(db.execute(sql).fetchone()[0])
        return 0

    def results() -> list[tuple[bytes, bytes]]:  # (job, row)
        records = kq.snapshot.records(kq_cluster, env["KQ_RESULTS"])[0]
        return [(dict(record.headers())["outbox-id"], record.value()) for record in records]

    def run(*words: str, topic: str = ",".join(sports)) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return started(SPORTS, kq_cluster, topic, *words, log=subprocess.DEVNULL, **env)

    with run("feed") as program:
        feed(program, b"".join(lines[:300]))
        within(30, lambda: counted("SELECT COUNT(*) FROM feed") > 20)
        program.kill()
    with run("feed") as program:
        program.communicate(b"".join(lines), timeout=2 * WAIT)
        assert program.returncode == 0
    assert counted("SELECT COUNT(*) FROM feed") == counted("SELECT COUNT(*) FROM kq_outbox") == 600
    with run("move"):
        within(30, lambda: counted("SELECT COUNT(*) FROM kq_outbox") < 600)  # it is killed at the end of this block
    with run("move"), run(topic=sports[1]) as second:
        with run(topic=sports[0]):
            within(30, lambda: len(results()) > 100)
        with run(topic=sports[0]) as first:
            within(90, lambda: len({row for _, row in results()}) == 600)
            for program in (first, second):
                program.send_signal(signal.SIGTERM)
                assert program.wait(WAIT) == 0
    by_job = dict(reversed(results()))  # the first result of each job
    assert sorted(by_job.values()) == sorted(b"done " + line.strip() for line in lines)
    for game in (b"ARS-CHE", b"LIV-MUN", b"LAL-BOS"):
        first_ones = [row for row in dict.fromkeys(row for _, row in results()) if game in row]
        assert first_ones == [b"done " + line.strip() for line in lines if game in line]
