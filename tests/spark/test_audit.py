"""The audit finds exactly the faults that a test makes, and no others, while workers run."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kqlib as kq
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.spark import audit, watch
from kqlib.spark.audit import VERDICTS
from tests.patience import WAIT, until


@dataclass
class Planted:
    """A queue of one site, its results, and what the audit shall say of each item."""

    cluster: Kafka
    queue: kq.queue.Queue
    results: str
    expected: dict[str, list[str]] = field(default_factory=lambda: {verdict: [] for verdict in VERDICTS})

    def claim(self, verdict: str) -> kq.queue.Item:
        """The next item, which shall become this."""
        item = self.queue.claim(wait=WAIT)
        assert item is not None
        self.expected[verdict].append(item.id)
        return item

    def once(self, verdict: str = "once") -> kq.queue.Item:
        """One item, done as it should be: result and ack in one transaction."""
        item = self.claim(verdict)
        with self.queue.step(item) as step:
            step.put(self.queue.site.queue(self.results, max_attempts=None), b"done")
        return item

    def result(self, item_id: str, site: str = "eu", back: bool = False) -> None:
        """A result that a worker writes past the queue. back: one that was aside, and is written into its topic once more."""
        producer = Producer(self.cluster.client())
        headers = {"kq-item": item_id.encode(), "kq-by": site.encode()}
        if back:
            headers["kq-replay-of"] = f"{self.results}/0/0".encode()
        producer.produce(self.results, b"again", headers=headers)
        assert producer.flush(WAIT) == 0

    def put(self, n: int) -> None:
        self.queue.put_many([kq.Put(b"%d" % at) for at in range(n)])

    def found(self, seen: Any) -> dict[str, list[str]]:
        rows = seen.items.orderBy("partition", "offset").select("verdict", "id").collect()
        return {verdict: [row["id"] for row in rows if row["verdict"] == verdict] for verdict in VERDICTS}

    def sorted(self) -> dict[str, list[str]]:
        def place(id_: str) -> tuple[int, int]:
            _, partition, offset = id_.rsplit("/", 2)
            return int(partition), int(offset)

        return {verdict: sorted(ids, key=place) for verdict, ids in self.expected.items()}


@pytest.fixture
def topics(kq_cluster: Kafka) -> tuple[str, str]:
    """A queue and a topic for its results."""
    name = f"football-{secrets.token_hex(3)}"
    plan = kq.Plan({name: kq.QueueTopic(partitions=2), f"{name}.results": kq.Topic(2)})
    plan.apply(kq_cluster, quiet=True)
    return name, f"{name}.results"


@pytest.fixture
def planted(kq_cluster: Kafka, topics: tuple[str, str]) -> Iterator[Planted]:
    """Nothing yet."""
    with kq.Site(kq_cluster, "eu") as site:
        yield Planted(kq_cluster, site.queue(topics[0]), topics[1])


def plant(all_: Planted) -> None:
    """Everything that can become of an item."""
    queue = all_.queue
    all_.put(6)
    all_.result(all_.once().id, back=True)
    for left in queue.peek(10):
        all_.expected["purged"].append(left.id)
    queue.purge()
    all_.put(40)
    for _ in range(5):
        all_.once()
    all_.result(all_.once("doubled").id)
    queue.ack(all_.claim("missing"))
    queue.bury(all_.claim("redriven"), "mended")
    assert queue.redrive(1) == 1
    queue.bury(all_.claim("dead"), "broken")
    both = all_.claim("doubled")
    all_.result(both.id)
    queue.bury(both, "done, and dead")
    all_.result(all_.once().id, site="us")  # another site's work is not ours
    with kq.Site(all_.cluster, "us") as other:
        theirs = other.queue(queue.name)
        theirs.bury(theirs.claim(wait=WAIT), "not in the us")  # type: ignore[arg-type]
        assert theirs.redrive(1) == 1
    all_.expected["in flight"] = []
    for _ in range(3):
        all_.claim("in flight")
    foreign = [record for record in _records(all_) if dict(record.headers() or []).get("kq-site") == b"us"]
    all_.expected["another site's"] = [f"{r.topic()}/{r.partition()}/{r.offset()}" for r in foreign]
    taken = {each for ids in all_.expected.values() for each in ids}
    ids = [f"{r.topic()}/{r.partition()}/{r.offset()}" for r in _records(all_)]
    all_.expected["waiting"] = [each for each in ids if each not in taken]


def _records(all_: Planted) -> list[Any]:
    found = kq.snapshot.records(all_.cluster, all_.queue.name)
    return [record for records in found.values() for record in records]


def test_every_fault_that_is_planted_is_found_and_nothing_else(spark: Any, planted: Planted, tmp_path: Path) -> None:
    plant(planted)
    name, cluster = planted.queue.name, planted.cluster
    going_on = watch(spark, cluster, name, "eu", results=planted.results, state=tmp_path / "state")
    looked = going_on.round()
    with audit(spark, cluster, name, "eu", results=planted.results, bucket="52 weeks") as seen:
        assert planted.found(seen) == planted.sorted() and seen.ids("missing") == planted.expected["missing"]
        assert looked.totals == {verdict: count for verdict, count in seen.counts.items() if count}
        assert not seen.right and not looked.right
        assert seen.depth == planted.queue.depth() and seen.gone == 0
        row = seen.table.collect()
        assert sum(each["items"] for each in row) == sum(seen.counts.values())
        assert sum(each["another_sites"] for each in row) == 1
        wrong = {each["verdict"]: (each["count"], each["ids"]) for each in seen.offending.collect()}
        assert wrong == {v: (len(ids), ids) for v, ids in planted.sorted().items() if v in ("missing", "doubled")}
        health = seen.health.collect()[-1]
        assert (
            (health["depth"], health["put"]) == (seen.depth, sum(seen.counts.values()))
            and 0 < health["oldest"] < 600
            and 0 <= health["p50"] <= health["p99"] < 600
        )
        assert repr(seen).startswith(f"Audit('{name}', site 'eu': 1 another site's, 2 doubled, 7 once, 1 redriven")
    with audit(
        spark, cluster, name, "eu", results=planted.results, since=datetime.now(UTC) + timedelta(hours=2)
    ) as none:
        assert none.counts == dict.fromkeys(VERDICTS, 0) and none.right


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_while_workers_run_nothing_is_called_wrong(spark: Any, planted: Planted, tmp_path: Path, rounds: int) -> None:
    queue, put, done = planted.queue, list[str](), threading.Semaphore(0)
    results = queue.site.queue(planted.results, max_attempts=None)
    enough, stop = threading.Event(), threading.Event()

    def handle(item: kq.queue.Item) -> None:
        with queue.step(item) as step:
            step.put(results, item.data)
        done.release()

    def puts() -> None:
        while not enough.wait(0.5):
            put.extend(queue.put_many([kq.Put(b"goal")] * 3))  # each of them is a transaction

    def works() -> None:
        queue.work(handle, threads=4, until=stop.is_set)

    team = [threading.Thread(target=puts), threading.Thread(target=works)]
    for thread in team:
        thread.start()
    going_on = watch(spark, planted.cluster, queue.name, "eu", results=planted.results, state=tmp_path / "state")
    try:
        assert all(done.acquire(timeout=WAIT) for _ in range(6))
        for _ in range(rounds):
            looked = going_on.round()
            assert looked.right, looked
            with audit(spark, planted.cluster, queue.name, "eu", results=planted.results) as seen:
                assert seen.right, (seen, seen.ids("missing"), seen.ids("doubled"))
        enough.set()
        assert seen.counts["once"] >= 6
        until(lambda: not team[0].is_alive() and queue.depth() == 0)
        deadline = time.monotonic() + 2 * WAIT
        while (looked := going_on.round()).totals != {"once": len(put)}:
            assert looked.right and time.monotonic() < deadline, looked
    finally:
        enough.set(), stop.set()
        for thread in team:
            thread.join()


def test_a_watch_corrects_itself_and_survives_being_killed(
    spark: Any, planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, queue, results = planted.cluster, planted.queue, planted.results
    verdicts = f"{queue.name}.verdicts"
    kq.Plan({verdicts: kq.Topic(1, compact=True)}).apply(cluster, quiet=True)

    def again() -> Any:
        return watch(spark, cluster, queue.name, "eu", results=results, state=tmp_path / "state", verdicts=verdicts)

    planted.put(6)
    lost, twice = planted.claim("missing"), planted.once()
    queue.ack(lost)
    first = again()
    assert first.round().totals == {"missing": 1, "once": 1, "waiting": 4}
    planted.result(lost.id)  # it comes late, and it comes
    planted.result(twice.id)  # a second one, long after the first was settled
    with monkeypatch.context() as broken:
        broken.setattr(type(first), "_save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            first.round()
    going_on = again()
    assert going_on.round().totals == {"once": 1, "doubled": 1, "waiting": 4}
    planted.result(twice.id)
    last = going_on.round()
    assert last.totals == {"once": 1, "doubled": 1, "waiting": 4} and last.changed == {}
    written = {record.key(): record.value() for record in kq.snapshot.records(cluster, verdicts)[0]}
    assert set(written) == {f"eu {lost.id}".encode(), f"eu {twice.id}".encode()}
    assert b'"verdict":"once"' in written[f"eu {lost.id}".encode()]
    assert b'"verdict":"doubled"' in written[f"eu {twice.id}".encode()]
    with pytest.raises(NotAllowed, match="holds the state of another audit"):
        watch(spark, cluster, queue.name, "us", results=results, state=tmp_path / "state")


HOUR = 3600


def dated(cluster: Kafka, topic: str, *records: tuple[str, float]) -> None:
    """Records with a key, put so many hours ago, all in partition 0."""
    producer = Producer(cluster.client())
    for key, hours in records:
        producer.produce(topic, b"goal", key, 0, timestamp=int((time.time() - hours * HOUR) * 1000))
    assert producer.flush(WAIT) == 0


def removed(cluster: Kafka, topic: str, offset: int) -> None:
    """What retention does to partition 0, at once."""
    for future in cluster.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(WAIT)


def done(cluster: Kafka, topic: str, offset: int) -> str:
    """A group that has done everything in partition 0 below this offset."""
    group = f"{topic}-plain"
    with closing(Consumer(cluster.client(group_id=group, group_protocol="classic"))) as worker:
        worker.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    return group


def test_an_item_whose_result_retention_may_have_removed_is_removed_and_a_newer_one_without_a_result_is_missing(
    spark: Any, kq_cluster: Kafka, topics: tuple[str, str], tmp_path: Path
) -> None:
    name, results = topics
    dated(kq_cluster, name, *((f"{name}/0/{at}", hours) for at, hours in enumerate((5, 5, 4, 0, 0, 0))))
    dated(kq_cluster, results, (f"{name}/0/0", 5), (f"{name}/0/2", 4), (f"{name}/0/3", 0))  # 1 and 4 were lost
    group, how = done(kq_cluster, name, 5), {"results": results, "of": "key"}
    removed(kq_cluster, results, 1)
    going_on = watch(spark, kq_cluster, name, group, state=tmp_path / "state", **how)
    looked = going_on.round()
    with audit(spark, kq_cluster, name, group, **how) as seen:
        assert {verdict: seen.ids(verdict) for verdict in ("removed", "missing")} == {
            "removed": [f"{name}/0/0", f"{name}/0/1"],
            "missing": [f"{name}/0/4"],
        }
        assert looked.totals == {verdict: n for verdict, n in seen.counts.items() if n}
        assert (seen.counts["once"], seen.counts["waiting"]) == (2, 1)
        assert repr(seen).endswith("1 waiting, 2 removed, 1 missing)")
    removed(kq_cluster, results, 3)  # all of it was read before: the watch goes on saying the same
    again = watch(spark, kq_cluster, name, group, state=tmp_path / "state", **how).round()
    assert (again.totals, again.changed) == (looked.totals, {})


def test_in_a_compacted_topic_an_item_without_a_result_is_missing_only_if_the_result_has_the_items_key(
    spark: Any, kq_cluster: Kafka, topics: tuple[str, str]
) -> None:
    name, results = topics[0], f"{topics[0]}.latest"
    kq.Plan({results: kq.Topic(1, compact=True)}).apply(kq_cluster, quiet=True)
    dated(kq_cluster, name, ("ARS-CHE", 0), ("ARS-CHE", 0))
    group = done(kq_cluster, name, 2)
    for of, verdict in (("kq-item", "removed"), ("key", "missing")):
        with audit(spark, kq_cluster, name, group, results=results, of=of) as seen:
            assert {word: n for word, n in seen.counts.items() if n} == {verdict: 2}


def test_a_dead_letter_that_was_removed_leaves_no_missing_item(spark: Any, planted: Planted) -> None:
    """Its log is empty, so nobody knows until when letters were removed from it."""
    queue = planted.queue
    planted.put(4)
    for verdict in ("removed", "redriven"):
        queue.bury(planted.claim(verdict), "broken")
        queue.redrive() if verdict == "redriven" else queue.dead.purge()
    for number, end in kq.spark.frames.bounds(planted.cluster, f"{queue.name}.dead")[1].items():
        part = TopicPartition(f"{queue.name}.dead", number, end)
        planted.cluster.admin.delete_records([part])[part].result(WAIT)
    with audit(spark, planted.cluster, queue.name, "eu", results=planted.results) as seen:
        assert {word: n for word, n in seen.counts.items() if n} == {"removed": 1, "redriven": 1, "waiting": 3}


def test_an_item_with_two_intended_outputs_is_done_once_when_both_are_there(
    spark: Any, kq_cluster: Kafka, topics: tuple[str, str], tmp_path: Path
) -> None:
    name, results = topics
    dated(kq_cluster, name, *((f"{name}/0/{at}", 0) for at in range(3)))
    dated(kq_cluster, results, *((f"{name}/0/{at}", 0) for at in (0, 0, 1, 2, 2, 2)))
    group, how = done(kq_cluster, name, 3), {"results": results, "of": "key"}
    going_on = watch(spark, kq_cluster, name, group, state=tmp_path / "state", outputs=2, **how)
    looked = going_on.round()
    with audit(spark, kq_cluster, name, group, outputs=2, **how) as seen:
        assert {word: seen.ids(word) for word in ("once", "missing", "doubled")} == {
            word: [f"{name}/0/{at}"] for at, word in enumerate(("once", "missing", "doubled"))
        }
        assert looked.totals == {"once": 1, "missing": 1, "doubled": 1}
    dated(kq_cluster, results, (f"{name}/0/0", 0), (f"{name}/0/1", 0))
    assert going_on.round().totals == {"once": 1, "doubled": 2}  # a third output, and the one that was late


def test_records_that_retention_took_before_the_watch_end_it_and_are_counted_by_the_audit(
    spark: Any, planted: Planted, tmp_path: Path
) -> None:
    cluster, name = planted.cluster, planted.queue.name

    def look() -> Any:
        return watch(spark, cluster, name, "eu", results=planted.results, state=tmp_path / "state").round()

    planted.put(4)
    assert look().totals == {"waiting": 4}
    planted.put(10)
    ends = kq.spark.frames.bounds(cluster, name)[1]
    for future in cluster.admin.delete_records([TopicPartition(name, n, end) for n, end in ends.items()]).values():
        future.result(WAIT)
    with pytest.raises(NotAllowed, match=r"retention has deleted \d+ records before they were read. Begin anew"):
        look()
    planted.put(2)
    group = f"{name}-plain"
    with closing(Consumer(cluster.client(group_id=group, group_protocol="classic"))) as worker:
        done_one = [TopicPartition(name, n, 1) for n in ends]  # one item of each partition
        worker.commit(offsets=done_one, asynchronous=False)
    with audit(spark, cluster, name, group, results=planted.results) as seen:
        assert seen.gone == sum(ends.values()) - len(ends) and not seen.right and seen.counts["waiting"] == 2
