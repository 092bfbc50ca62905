"""What single programs of notebooks/at_work promise in their first lines, on a real broker."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import murmur2
from confluent_kafka.admin import NewPartitions, NewTopic

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.kafka.reading import bounds, read
from kqlib.queue.item import Put
from kqlib.virtual.client import Client
from tests.patience import WAIT
from tests.promises.at_work import (
    AVRO,
    DRUPAL,
    FIRST_SENDER,
    FOLDER,
    KEYED,
    METER,
    OPERATIONS,
    SAFE,
    SENDERS,
    VIRTUAL,
    feed,
    given,
    goals,
    results,
    started,
)
from tests.promises.play import put
from tests.promises.virtual_nodes import serving

SECOND = {"number": "long", "minute": "int"}  # the fields of later versions of a goal; the third one is incompatible
THIRD = {"number": "string"}


def test_a_sender_ends_at_the_end_of_its_input_and_says_what_is_missing(kq_cluster: Kafka) -> None:
    given(kq_cluster, "at-work-end", 0)
    with started(FIRST_SENDER, kq_cluster, "at-work-end") as program:
        _, log = program.communicate(b"one\n" + b"x" * 2_000_000 + b"\n", timeout=WAIT)
        assert program.returncode == 2  # too large for the client: it says so at once
        assert b"1 stored, 0 not stored" in log
    with started(FIRST_SENDER, kq_cluster, "at-work-typo") as program:
        _, log = program.communicate(b"one\n", timeout=WAIT)
        assert (program.returncode, b"there is no topic" in log) == (2, True), log.decode()


def test_a_sender_refuses_a_topic_that_can_lose_records_and_gives_back_each_line_that_is_not_stored(
    kq_cluster: Kafka,
) -> None:
    given(kq_cluster, "at-work-back", 0)
    with started(SAFE, kq_cluster, "at-work-back", out=subprocess.PIPE, KAFKA_COPIES="2") as program:
        out, log = program.communicate(b"one\n", timeout=WAIT)
        assert (program.returncode, out) == (2, b""), log.decode()
        assert b"has 1 replicas, min.insync.replicas=1" in log
    large = b"x" * 2_000_000
    with started(SAFE, kq_cluster, "at-work-back", out=subprocess.PIPE) as program:
        out, log = program.communicate(b"one\n" + large + b"\ntwo", timeout=WAIT)
        assert (program.returncode, out == large + b"\n") == (1, True), log.decode()
        assert b"2 stored, 1 not stored" in log
        assert b"while one broker is down, nothing is stored" in log


@pytest.mark.parametrize("name", SENDERS)
def test_a_sender_that_is_ended_has_stored_each_line_that_it_has_read(
    name: str, kq_cluster: Kafka, within: Callable[..., float], tmp_path: Path
) -> None:
    work, line = f"at-work-read-{name[:2]}", b"goal 0123456789\n"  # no half line: it divides what is read at once
    given(kq_cluster, work, 0)
    (tmp_path / "goals.txt").write_bytes(line * 1_000_000)

    def stored() -> int:
        ((_, end),) = bounds(kq_cluster, f"{work}-results").values()
        return end

    with (tmp_path / "goals.txt").open("rb", buffering=0) as lines:
        with started(name, kq_cluster, work, stdin=lines, out=subprocess.PIPE) as program:
            within(30, stored)
            program.send_signal(signal.SIGTERM)
            out, log = program.communicate(timeout=WAIT)
        assert (program.returncode, out) == (0, b""), log.decode()
        read_so_far = lines.tell()  # the position in a file is the parent's as well
        assert stored() * len(line) == read_so_far


def unread(program: subprocess.Popen[bytes]) -> int:
    """How many bytes of its input a program has not read yet."""
    assert program.stdin
    return int(struct.unpack("i", fcntl.ioctl(program.stdin, termios.FIONREAD, bytes(4)))[0])


@pytest.mark.nightly
@pytest.mark.parametrize("name", SENDERS)
def test_a_sender_loses_no_line_when_the_leader_dies_before_its_followers_have_it_and_does_not_send_half_a_line(
    name: str, within: Callable[..., float]
) -> None:
    topic, lines = "work-results", [b"goal %d" % number for number in range(3_000)]
    first, second, third = (b"".join(each + b"\n" for each in lines[at : at + 1_000]) for at in (0, 1_000, 2_000))
    with kq.Cluster(brokers=3) as cluster:
        new = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
        cluster.admin.create_topics([new])[topic].result(WAIT)
        cluster.wait_for_topic(topic, 1)
        leader = cluster.leader(topic, 0)
        assert leader is not None
        followers = [number for number in (1, 2, 3) if number != leader]
        log = cluster.broker(leader).log.parent / "data" / f"{topic}-0" / f"{0:020}.log"
        # clients without a broker log a lot, and a pipe that nobody reads gets full
        with started(name, cluster, "work", out=subprocess.PIPE, log=subprocess.DEVNULL, KAFKA_COPIES="2") as program:
            feed(program, first)
            within(60, lambda: len(kq.snapshot.records(cluster, topic)[0]) == 1_000)
            size = log.stat().st_size
            with cluster.frozen(*followers):
                feed(program, second)
                within(60, lambda: log.stat().st_size > size)
                cluster.broker(leader).kill()
            feed(program, third + b"hal")
            within(60, lambda: unread(program) == 0)
            program.send_signal(signal.SIGTERM)
            program.wait(WAIT)  # communicate() would end its input
            assert program.stdout
            assert (program.returncode, program.stdout.read()) == (1, b"hal\n" if name == SAFE else b"")
        assert [record.value() for record in kq.snapshot.records(cluster, topic)[0]] == lines


def test_a_keyed_stage_keeps_the_order_of_each_key_where_java_puts_it_and_refuses_a_topic_that_has_grown(
    kq_cluster: Kafka, within: Callable[..., float]
) -> None:
    work, results = "at-work-keys", "at-work-keys-results"
    given(kq_cluster, work, 0, partitions=3)
    games = [b"ARS-CHE", b"LIV-MUN", b"INT-MIL", b"BAR-RMA", b"AJA-PSV"]
    goals_of = ((number, games[number % 5]) for number in range(100))
    put(kq_cluster, work, *({"value": b"%s goal %d" % (game, number), "key": game} for number, game in goals_of))

    def found() -> dict[int, list[tuple[bytes, bytes]]]:
        records = kq.snapshot.records(kq_cluster, results)
        return {part: [(each.key(), each.value()) for each in records[part]] for part in records}

    with started(KEYED, kq_cluster, work, KQ_PARTITIONS="3") as program:
        within(30, lambda: sum(map(len, found().values())) >= 100)
        program.send_signal(signal.SIGTERM)
        _, log = program.communicate(timeout=WAIT)
        assert program.returncode == 0, log.decode()
    for part, pairs in found().items():
        assert {murmur2(key, 3) for key, _ in pairs} <= {part}
        for game in games:
            values = [int(value.split()[-1]) for key, value in pairs if key == game]
            assert values == sorted(values)
    assert sorted(value for pairs in found().values() for _, value in pairs) == sorted(
        b"done %s goal %d" % (games[number % 5], number) for number in range(100)
    )
    kq_cluster.admin.create_partitions([NewPartitions(results, 4)])[results].result(WAIT)
    kq_cluster.wait_for_topic(results, 4)
    with started(KEYED, kq_cluster, work, KQ_PARTITIONS="3") as program:
        _, log = program.communicate(timeout=WAIT)
        assert (program.returncode, b"does not have 3 partitions" in log) == (1, True), log.decode()


@pytest.mark.nightly
def test_a_keyed_stage_ends_when_its_topic_grows_under_it(kq_cluster: Kafka, within: Callable[..., float]) -> None:
    work, results = "at-work-grows", "at-work-grows-results"
    given(kq_cluster, work, 1)
    with started(KEYED, kq_cluster, work) as program:
        within(30, lambda: kq.snapshot.records(kq_cluster, results)[0])
        kq_cluster.admin.create_partitions([NewPartitions(results, 2)])[results].result(WAIT)

        def ended() -> bool:
            put(kq_cluster, work, *(b"game-%d goal" % number for number in range(10)))
            return program.poll() is not None

        within(60, ended)
        _, log = program.communicate(timeout=WAIT)
        assert (program.returncode, b"has grown" in log) == (1, True), log.decode()


def test_a_reader_of_avro_meets_new_versions_and_puts_aside_what_it_cannot_read(
    kq_cluster: Kafka, within: Callable[..., float]
) -> None:
    work = "at-work-avro"
    given(kq_cluster, work, 2, AVRO)
    with started(AVRO, kq_cluster, work, KQ_SCHEMA_WAIT="1") as program, results(kq_cluster, work) as so_far:
        within(30, lambda: so_far() >= {b"done 0", b"done 1"})
        second, third = goals(kq_cluster, work, SECOND), goals(kq_cluster, work, THIRD)
        unreadable = [b'{"number": 7}', third(8), bytes([0, 0, 0, 255, 255]) + second(9)[5:]]
        put(kq_cluster, work, second(2), *unreadable, second(3))
        within(60, lambda: so_far() >= {b"done 2", b"done 3"})
        program.send_signal(signal.SIGTERM)
        _, log = program.communicate(timeout=WAIT)
        assert program.returncode == 0, log.decode()
        assert so_far() == {b"done %d" % number for number in range(4)}
    aside = kq.snapshot.records(kq_cluster, f"{work}-aside")[0]
    assert [record.value() for record in aside] == unreadable
    assert [record.key() for record in aside] == [f"{work}/0/{offset}".encode() for offset in (3, 4, 5)]
    causes = [dict(record.headers())["kq-cause"] for record in aside]
    assert causes == [b"CorruptPayload", b"IncompatibleSchema", b"UnknownSchema"]


@pytest.mark.nightly
def test_a_worker_of_a_drupal_queue_buries_bad_data_and_tries_again_when_a_lease_is_over(
    kq_cluster: Kafka, within: Callable[..., float], tmp_path: Path
) -> None:
    """Its `work` is replaced, as a reader does it: the service that it needs fails twice for one item, and always for another."""
    work, program_file, tries = "at-work-drupal", tmp_path / "worker.py", tmp_path / "tries"
    program_file.write_text(
        f"""
import importlib, sys
sys.path.insert(0, {str(FOLDER)!r})
program = importlib.import_module({DRUPAL.removesuffix(".py")!r})
def work(data, theirs=program.work):
    with open({str(tries)!r}, "a+") as tries:
        tries.write(f"{{data}}\\n")
        tries.seek(0)
        count = tries.read().split().count(str(data))
    if data == "never" or (data == "third" and count < 3):
        raise ConnectionError("the service is away")
    return theirs(data)
program.work = work
sys.exit(program.main())
"""
    )
    given(kq_cluster, work, 0)
    with kq.Site(kq_cluster, work) as site:
        dead = site.queue(f"{work}.dead")
        put(kq_cluster, work, b"null", b"no JSON", b'"never"', b'"third"', b"1")
        with started(program_file, kq_cluster, work, KQ_LEASE="1") as program, results(kq_cluster, work) as so_far:
            within(60, lambda: so_far() == {b"done 1"})  # nothing waits for the two that fail
            within(60, lambda: so_far() == {b"done 1", b"done third"})
            within(60, lambda: dead.depth() == 3)
            kq.DrupalQueue(site, work).delete_queue()
            _, log = program.communicate(timeout=WAIT)
            assert (program.returncode, b"is marked deleted for this site" in log) == (1, True), log.decode()
        tried = tries.read_text().split()
        assert (tried.count("None"), tried.count("third"), tried.count("never")) == (1, 3, 5)


def test_a_worker_of_a_virtual_queue_that_is_killed_loses_nothing_and_does_nothing_twice(
    kq_cluster: Kafka, within: Callable[..., float], tmp_path: Path
) -> None:
    file, expected = tmp_path / "results.db", {f"done {number}" for number in range(40)}

    def results() -> list[str]:
        with closing(sqlite3.connect(file)) as db, suppress(sqlite3.OperationalError):  # no table yet
            return [result for (result,) in db.execute("SELECT result FROM results")]
        return []

    with serving(kq_cluster) as node, Client(node.url) as client:
        queue = client.queue("jobs", "worker", max_attempts=5)
        jobs = [Put(b"%d" % number, headers={"outbox-id": b"%d" % number}) for number in range(40)]
        queue.put_many([*jobs, *jobs[:5], Put(b"")])  # a mover has put five jobs twice, and one job is bad data
        env = {"KQ_NODES": node.url, "KQ_QUEUE": "jobs", "KQ_DATABASE": str(file), "KQ_LEASE": "2"}
        with started(VIRTUAL, kq_cluster, "jobs", log=subprocess.DEVNULL, **env) as program:
            within(30, results)
            program.kill()
        with started(VIRTUAL, kq_cluster, "jobs", **env) as program:
            within(60, lambda: queue.depth() == 0)
            program.send_signal(signal.SIGTERM)
            _, log = program.communicate(timeout=WAIT)
        assert program.returncode == 0, log.decode()
        assert sorted(results()) == sorted(expected)
        assert queue.dead.depth() == 1


def test_a_look_at_a_cluster_names_the_topics_that_take_no_records(kq_cluster: Kafka) -> None:
    names = {"at-work-fine": "1", "at-work-strict": "2"}
    new = [NewTopic(name, 1, config={"min.insync.replicas": least}) for name, least in names.items()]
    for future in kq_cluster.admin.create_topics(new).values():
        future.result(WAIT)
    for name in names:
        kq_cluster.wait_for_topic(name, 1)

    def looked(*topics: str, bootstrap: str = kq_cluster.bootstrap) -> tuple[int, list[str]]:
        command = [sys.executable, str(FOLDER / OPERATIONS), *topics]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "KAFKA_BOOTSTRAP": bootstrap}
        )
        return ran.returncode, (ran.stdout + ran.stderr).splitlines()

    assert looked("at-work-fine") == (0, ["1 topics, 0 partitions that cannot be written, 0 warnings"])
    assert looked(*names) == (
        1,
        [
            "ERROR at-work-strict-0: 1 in sync, 2 needed: acks=all is refused. Out of sync: []",
            "2 topics, 1 partitions that cannot be written, 0 warnings",
        ],
    )
    assert looked("at-work-typo")[0] == 2


def measured(cluster: Kafka, topic: str, count: int, freeze: float = 0.0) -> tuple[int, str]:
    """The exit status of a probe of so many records at 100 a second, and what it printed. freeze: after its first record."""
    env = {"KAFKA_BOOTSTRAP": cluster.bootstrap, "KAFKA_TOPIC": topic, "PACE": "100", "COUNT": str(count)}
    command = [sys.executable, str(FOLDER / METER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **env}, text=True) as program:
        try:
            if freeze:
                next(read(cluster, {(topic, 0): 0}, {(topic, 0): 1}, timeout=WAIT))
                with cluster.frozen(1):  # type: ignore[attr-defined]
                    time.sleep(freeze)  # the length of the freeze is what is measured
            out, _ = program.communicate(timeout=WAIT)
            return program.returncode, out
        finally:
            program.kill()


def test_a_probe_prints_the_percentiles_of_all_its_records(kq_cluster: Kafka) -> None:
    given(kq_cluster, "at-work-14", 0)
    status, out = measured(kq_cluster, "at-work-14", 50)
    assert status == 0
    assert re.fullmatch(r"50 of 50 records: p50 [\d.]+ ms, p99 [\d.]+ ms, p99.9 [\d.]+ ms, max [\d.]+ ms\n", out), out
    status, out = measured(kq_cluster, "at-work-no-such-topic", 50)
    assert (status, out) == (2, "")


@pytest.mark.nightly
def test_a_probe_counts_the_records_that_were_due_while_the_broker_stood_still() -> None:
    with kq.Cluster() as cluster:
        given(cluster, "work", 0)
        status, out = measured(cluster, "work", 300, freeze=2.0)
        assert status == 0
        median = float(out.partition("p50 ")[2].partition(" ")[0])
        # 200 of 300 records are due in these two seconds: half of all wait for a large part of them
        assert median > 300, out
