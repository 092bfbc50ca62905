"""The complete programs of notebooks/at_work: each does its work on a real broker and ends at SIGTERM with status 0.

What their first lines promise is what `kq crash` shows: two points of the transaction in every run, every request of all workers at
night. At night they also work on a broker that is restarted under them.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, murmur2
from confluent_kafka.admin import NewPartitions, NewTopic

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.kafka.reading import read
from kqlib.queue.item import Put
from kqlib.virtual.client import Client
from kqlib.workshop.crash import Report, life
from tests.patience import WAIT
from tests.promises.virtual_nodes import serving

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "at_work"
ALL = sorted(path.name for path in FOLDER.glob("*.py"))
VIRTUAL = "10_virtual_queues.py"  # it asks nodes, and not Kafka
SPARK = "12_spark_pipeline.py"  # it needs a session: tests/spark
OPERATIONS = "13_operations.py"  # it is no worker: it looks once, and ends
METER = "14_how_fast.py"  # it works on nothing, and prints what it measured
PROGRAMS = [name for name in ALL if name not in (VIRTUAL, SPARK, OPERATIONS, METER)]
SAFE, KEYED, AVRO, DRUPAL = (
    *("02_partitions_and_replicas.py", "03_keys.py"),
    *("05_avro_versions.py", "07_queue_on_a_log.py"),
)
SENDERS = {"01_topics.py", SAFE}
WORKERS = [name for name in PROGRAMS if name not in SENDERS]
ALLOWED = {  # what the first lines of a program do not promise
    KEYED: ["doubled"],
    "04_consumer_groups.py": ["doubled"],
    AVRO: ["doubled"],
    DRUPAL: ["doubled"],
    "08_leases_and_the_ledger.py": ["doubled"],
    "11_share_groups.py": ["doubled"],
}
FIRST = {"number": "int", "min": "int"}  # the fields of three versions of a goal; the third one is incompatible
SECOND = {"number": "long", "minute": "int"}
THIRD = {"number": "string"}
Crash = Callable[..., Report]


@contextmanager
def started(
    name: str, cluster: Kafka, work: str, log: int = subprocess.PIPE, out: int | None = None, **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs, with the environment that its first lines name."""
    ours: Mapping[str, str] = {
        "KAFKA_BOOTSTRAP": cluster.bootstrap,
        "KAFKA_TOPIC": f"{work}-results",
        "KAFKA_COPIES": "1",  # a cluster of one broker
        "KQ_BOOTSTRAP": cluster.bootstrap,
        "KQ_TOPIC": work,
        "KQ_RESULTS": f"{work}-results",
        "KQ_ASIDE": f"{work}-aside",
        "KQ_GROUP": work,
        "KQ_TXN": work,
        **more,
    }
    command = [sys.executable, str(FOLDER / name)]
    env = {**os.environ, **ours}
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=log, env=env)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def given(cluster: Kafka, work: str, count: int, name: str = "", partitions: int = 1) -> None:
    """Two topics, and numbered items in the first one; a reader of Avro has a third topic."""
    topics = (work, f"{work}-results", *([f"{work}-aside"] if name == AVRO else []))
    kq.Plan({topic: kq.QueueTopic(partitions=partitions) for topic in topics}).apply(cluster, quiet=True)
    encode = goals(cluster, work) if name == AVRO else plain
    put(cluster, work, *map(encode, range(count)))


def put(cluster: Kafka, topic: str, *values: bytes) -> None:
    """Records without keys."""
    producer = Producer(cluster.client())
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT) == 0


def plain(number: int) -> bytes:
    """An item of most programs."""
    return b"%d" % number


def goals(cluster: Kafka, work: str, fields: Mapping[str, str] = FIRST, level: str = "NONE") -> Callable[[int], bytes]:
    """Items in Avro: a version with these fields is registered, and a number becomes a goal's bytes."""
    registry, subject = kq.schemas.Registry(cluster=cluster), f"{work}-value"
    registry.set_level(subject, level)
    schema = {"type": "record", "name": "Goal", "fields": [{"name": each, "type": fields[each]} for each in fields]}
    codec = registry.codec(subject, schema)
    values = {"int": int, "long": int, "string": str}
    return lambda number: codec.encode({each: values[kind](number) for each, kind in fields.items()}) or b""


@contextmanager
def results(cluster: Kafka, work: str) -> Iterator[Callable[[], set[bytes]]]:
    """What careful readers see of the results so far."""
    seen: set[bytes] = set()
    settings = {"group_id": f"{work}-reader", "isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    reader = Consumer(cluster.client(**settings))
    reader.subscribe([f"{work}-results"])

    def so_far() -> set[bytes]:
        seen.update(message.value() for message in reader.consume(100, 0.2) if message.error() is None)
        return seen

    try:
        yield so_far
    finally:
        reader.close()


def feed(name: str, program: subprocess.Popen[bytes], count: int) -> set[bytes]:
    """What the results will be; a sender gets its lines."""
    if name not in SENDERS:
        return {b"done %d" % number for number in range(count)}
    lines = {b"goal %d" % number for number in range(count)}
    assert program.stdin
    program.stdin.write(b"\n".join(sorted(lines)) + b"\n")
    program.stdin.flush()
    return lines


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != AVRO])  # it has a test of its own
def test_a_program_does_its_work_and_ends_at_sigterm(
    name: str, kq_cluster: Kafka, within: Callable[..., float]
) -> None:
    work = f"at-work-{name[:2]}"
    given(kq_cluster, work, 5)
    with started(name, kq_cluster, work) as program, results(kq_cluster, work) as so_far:
        expected = feed(name, program, 5)
        within(30, lambda: so_far() >= expected)
        program.send_signal(signal.SIGTERM)
        _, log = program.communicate(timeout=WAIT)
        assert program.returncode == 0, log.decode()
        assert so_far() == expected


def test_a_sender_ends_at_the_end_of_its_input_and_says_what_is_missing(kq_cluster: Kafka) -> None:
    given(kq_cluster, "at-work-end", 0)
    with started("01_topics.py", kq_cluster, "at-work-end") as program:
        _, log = program.communicate(b"one\n" + b"x" * 2_000_000 + b"\n", timeout=WAIT)
        assert program.returncode == 2  # too large for the client: it says so at once
        assert b"1 stored, 0 not stored" in log
    with started("01_topics.py", kq_cluster, "at-work-typo") as program:
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


@pytest.mark.nightly
def test_a_sender_loses_no_line_when_the_leader_is_killed_and_gives_back_half_a_line(
    within: Callable[..., float],
) -> None:
    lines = [b"goal %d" % number for number in range(3_000)]
    with kq.Cluster(brokers=3) as cluster:
        new = NewTopic("work-results", 1, 3, config={"min.insync.replicas": "2"})
        cluster.admin.create_topics([new])["work-results"].result(WAIT)
        cluster.wait_for_topic("work-results", 1)
        how = {"log": subprocess.DEVNULL, "out": subprocess.PIPE}
        with started(SAFE, cluster, "work", KAFKA_COPIES="2", **how) as program:  # type: ignore[arg-type]
            assert program.stdin
            with results(cluster, "work") as so_far:
                for number, part in enumerate((lines[:1_000], lines[1_000:2_000], lines[2_000:])):
                    program.stdin.write(b"\n".join(part) + b"\n")
                    program.stdin.flush()
                    if number == 0:
                        within(60, so_far)
                        leader = cluster.leader("work-results", 0)
                        assert leader is not None
                    if number == 1:
                        cluster.broker(leader).kill()
                within(90, lambda: so_far() >= set(lines))
            program.stdin.write(b"hal")
            program.stdin.flush()
            time.sleep(1.5)  # no state shows that it was read; if it was not, the test is only weaker
            program.send_signal(signal.SIGTERM)
            out, _ = program.communicate(timeout=WAIT)
            assert (program.returncode, out) in ((1, b"hal\n"), (0, b""))


def test_a_keyed_stage_keeps_the_order_of_each_key_where_java_puts_it_and_refuses_a_topic_that_has_grown(
    kq_cluster: Kafka, within: Callable[..., float]
) -> None:
    work, results = "at-work-keys", "at-work-keys-results"
    given(kq_cluster, work, 0, partitions=3)
    games = [b"ARS-CHE", b"LIV-MUN", b"INT-MIL", b"BAR-RMA", b"AJA-PSV"]
    producer = Producer(kq_cluster.client())
    for number in range(100):
        game = games[number % 5]
        producer.produce(work, b"%s goal %d" % (game, number), game)
    assert producer.flush(WAIT) == 0

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
    work = "at-work-drupal"
    given(kq_cluster, work, 0)
    with kq.Site(kq_cluster, work) as site:  # its own notes say afterwards what became of the items
        dead = site.queue(f"{work}.dead")
        put(kq_cluster, work, b"null", b"no JSON", b"1")
        with started(DRUPAL, kq_cluster, work) as program, results(kq_cluster, work) as so_far:
            within(60, lambda: so_far() == {b"done 1"})
            within(60, lambda: dead.depth() == 2)
            kq.DrupalQueue(site, work).delete_queue()
            _, log = program.communicate(timeout=WAIT)
            assert (program.returncode, b"is marked deleted for this site" in log) == (1, True), log.decode()


def measured(cluster: Kafka, topic: str, count: int, freeze: float = 0.0) -> tuple[int, str]:
    """The exit status of a probe of so many records at 100 a second, and what it printed. freeze: after its first record."""
    env = {"KAFKA_BOOTSTRAP": cluster.bootstrap, "KAFKA_TOPIC": topic, "PACE": "100", "COUNT": str(count)}
    command = [sys.executable, str(FOLDER / "14_how_fast.py")]
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


def test_a_transaction_keeps_its_promise_at_two_of_its_requests(kq_crash: Crash) -> None:
    command = [sys.executable, str(FOLDER / "06_delivery_semantics.py")]
    report = kq_crash(command, 2, only=["TxnOffsetCommit:1:after", "EndTxn:1:before"])
    assert (report.clean, report.lost, report.doubled) == (True, 0, 0), str(report)


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
                first = feed(name, program, 5)
                within(60, lambda: so_far() >= first)
            cluster.broker(1).kill()
            cluster.broker(1).start()
            put(cluster, "work", (goals(cluster, "work") if name == AVRO else plain)(99))
            if name in SENDERS:
                assert program.stdin
                program.stdin.write(b"goal 99\n")
                program.stdin.flush()
            last = b"goal 99" if name in SENDERS else b"done 99"
            with results(cluster, "work") as so_far:
                within(60, lambda: last in so_far())
            program.send_signal(signal.SIGTERM)
            assert program.wait(WAIT) == 0


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


@pytest.mark.parametrize("name", ALL)
def test_a_program_is_short_and_says_first_what_it_promises(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("Promise") for line in lines[:10])


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
