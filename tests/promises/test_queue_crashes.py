"""The queue when processes die, stop and come back, and when the cluster changes under it: real processes, a real broker."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from kqlib.broker import Cluster, Kafka
from kqlib.errors import LeaseLost, LedgerCorrupt, LedgerLost
from kqlib.queue import Site
from tests.promises.queues import SESSION, Start, drained, put, topic


def test_a_killed_workers_items_come_back_counted_within_a_session(
    kq_cluster: Kafka, name: str, start: Start, here: Site
) -> None:
    put(kq_cluster, name, b"a", b"b", b"c", b"d")
    worker = start(name)
    assert worker.do("claim", 3) == {f"{name}/0/{n}": 1 for n in range(3)}
    assert worker.do("ack", f"{name}/0/1") == "ok"
    queue = here.queue(name)
    assert queue.depth() == 3
    worker.signal(signal.SIGKILL)
    killed = time.monotonic()
    assert queue.claim(wait=20).attempt == 2
    assert time.monotonic() - killed < SESSION + 2 + 6  # joining included; the machine is shared
    assert drained(queue, 0.5) == [(b"c", 2), (b"d", 1)] and queue.depth() == 1


def test_a_worker_that_slept_past_its_session_loses_its_lease_and_changes_nothing(
    kq_cluster: Kafka, name: str, start: Start, here: Site
) -> None:
    put(kq_cluster, name, b"a", b"b")
    worker, queue = start(name), here.queue(name)
    assert worker.do("claim", 2) == {f"{name}/0/0": 1, f"{name}/0/1": 1}
    worker.signal(signal.SIGSTOP)
    a = queue.claim(wait=20)
    assert (a.data, a.attempt) == (b"a", 2)
    queue.ack(a)
    worker.signal(signal.SIGCONT)
    for verb in ("ack", "release", "extend", "bury", "ack"):
        assert str(worker.do(verb, f"{name}/0/1")).startswith(("LeaseLost: ", "Unreachable: ")), verb
    assert drained(queue, 3) == [(b"b", 2)] and queue.depth() == 0
    assert queue.dead.peek(5) == []


def test_a_worker_that_closes_gives_back_what_nobody_handles(
    kq_cluster: Kafka, name: str, start: Start, here: Site
) -> None:
    put(kq_cluster, name, b"a", b"b", b"c")
    worker = start(name)
    worker.do("claim", 3)
    worker.do("ack", f"{name}/0/0")
    assert worker.do("close") == "ok"
    begun = time.monotonic()
    assert drained(here.queue(name)) == [(b"b", 1), (b"c", 1)]
    assert time.monotonic() - begun < 6


PLACES = {
    "before the transaction": ("begin_transaction", 1),
    "with the letter written, not the state": ("send_offsets_to_transaction", 1),
    "with both written, not committed": ("commit_transaction", 1),
}


@pytest.mark.parametrize("place", [place for place, _ in PLACES.values()], ids=PLACES)
def test_a_worker_that_dies_while_it_buries_leaves_one_dead_letter_in_the_end(
    kq_cluster: Kafka, name: str, start: Start, here: Site, place: str
) -> None:
    put(kq_cluster, name, b"poison")
    worker = start(name)
    assert worker.do("dies", place) == "ok"
    worker.do("claim", 1)
    assert worker.do("bury", f"{name}/0/0", "bad") is None
    queue = here.queue(name)
    item = queue.claim(wait=30)  # not before the broker has ended the dead one's transaction
    assert (item.data, item.attempt) == (b"poison", 2) and queue.dead.peek(5) == []
    queue.bury(item, "bad")
    assert [i.data for i in queue.dead.peek(5)] == [b"poison"] and queue.depth() == 0


def test_a_poison_item_that_kills_its_workers_is_buried_and_takes_nobody_with_it(
    kq_cluster: Kafka, name: str, start: Start, here: Site
) -> None:
    put(kq_cluster, name, b"poison", b"good", b"fine")
    for attempt in (1, 2):
        worker = start(name, max_attempts=2)
        assert worker.do("claim", 3) == {f"{name}/0/0": attempt}  # its last two: alone
        worker.end()
    queue = here.queue(name)
    assert drained(queue) == [(b"fine", 1), (b"good", 1)]
    assert [item.headers["kq-attempts"] for item in queue.dead.peek(5)] == [b"2"]


def test_two_processes_share_the_partitions_and_do_everything_once(kq_cluster: Kafka, start: Start) -> None:
    name = topic(kq_cluster, 4)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"%d" % n, b"%d" % n) for n in range(200)])
        seen: Counter[str] = Counter()
        worker = start(name)
        for _ in range(30):
            mine = queue.claim_many(5, wait=0.2)
            queue.ack_many(mine)  # at once: what is in hand when a partition moves has three seconds
            theirs = worker.do("claim now", 5)
            assert set(theirs.values()) <= {1} and {item.attempt for item in mine} <= {1}
            seen.update([*theirs, *(item.id for item in mine)])
            assert {worker.do("ack", id_) for id_ in theirs} <= {"ok"}
        worker.do("close")
        while items := queue.claim_many(50, wait=3):
            seen.update(item.id for item in items)
            queue.ack_many(items)
        assert len(seen) == 200 and set(seen.values()) == {1} and queue.depth() == 0


def test_depth_and_purge_are_known_in_every_process(kq_cluster: Kafka, name: str, start: Start, here: Site) -> None:
    queue = here.queue(name)
    queue.put_many([(b"%d" % n, None) for n in range(10)])
    items = queue.claim_many(4)
    queue.ack(items[2])
    other = start(name)
    assert other.do("depth") == 9 == queue.depth()
    assert other.do("purge") is None and other.do("depth") == 0
    time.sleep(1)  # owners hear of it within a second
    with pytest.raises(LeaseLost):
        queue.ack(items[0])
    queue.put(b"new")
    assert other.do("depth") == 1 and queue.claim(wait=2).data == b"new"


def test_a_mark_once_applied_is_not_applied_to_a_group_that_is_moved_back(kq_cluster: Kafka, name: str) -> None:
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        queue.claim()
        queue.purge()
        assert queue.claim() is None
        time.sleep(0.3)
    moved(kq_cluster, name, 0)
    with Site(kq_cluster, name, session=3) as site:
        assert drained(site.queue(name)) == [(b"a", 1), (b"b", 1)]


def moved(cluster: Kafka, name: str, offset: int, metadata: str = "") -> None:
    """As Kafka's own tools set a group's offset."""
    reader = Consumer(cluster.client(group_id=name, group_protocol="classic"))
    reader.commit(offsets=[TopicPartition(name, 0, offset, metadata=metadata)], asynchronous=False)
    reader.close()


def test_a_commit_without_metadata_is_where_it_goes_on(kq_cluster: Kafka, name: str) -> None:
    put(kq_cluster, name, b"a", b"b", b"c")
    for offset, left in ((2, [(b"c", 1)]), (1, [(b"b", 1), (b"c", 1)]), (99, [])):
        moved(kq_cluster, name, offset)
        with Site(kq_cluster, name, session=3) as site:
            queue = site.queue(name)
            assert queue.depth() == len(left) and drained(queue, 2) == left


def test_a_state_that_is_gone_is_lost_and_not_replayed(kq_cluster: Kafka, name: str) -> None:
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        queue.ack(queue.claim())
    kq_cluster.admin.delete_consumer_groups([name])[name].result(10)
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name)
        for _ in range(2):
            with pytest.raises(LedgerLost, match="Nothing was handed out again"):
                queue.claim()
        assert drained(site.queue(name, on_lost="earliest"), 3) == [(b"a", 1), (b"b", 1)]
    kq_cluster.admin.delete_consumer_groups([name])[name].result(10)
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name, on_lost="latest")
        assert queue.claim() is None
        queue.put(b"c")
        assert drained(queue, 3) == [(b"c", 1)]


def test_a_state_that_cannot_be_read_is_not_guessed(kq_cluster: Kafka, name: str) -> None:
    put(kq_cluster, name, b"a")
    moved(kq_cluster, name, 0, "1 7 somebody wrote-here")
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name)
        with pytest.raises(LedgerCorrupt):
            queue.claim()
        with pytest.raises(LedgerCorrupt):
            queue.depth()


def test_new_partitions_are_found_while_it_runs(kq_cluster: Kafka, name: str, here: Site) -> None:
    queue = here.queue(name)
    queue.put(b"before")
    assert queue.claim().data == b"before"
    kq_cluster.admin.create_partitions([NewPartitions(name, 2)])[name].result(10)
    kq_cluster.wait_for_topic(name, 2)
    producer = Producer(kq_cluster.client(acks="all"))
    producer.produce(name, b"there", partition=1)
    assert producer.flush(10) == 0
    assert queue.claim(wait=20).data == b"there" and queue.depth() == 2


def test_what_retention_took_is_counted_as_lost(kq_cluster: Kafka, name: str) -> None:
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name)
        queue.put_many([(b"%d" % n, None) for n in range(6)])
        queue.ack(queue.claim_many(4)[1])
    kq_cluster.admin.delete_records([TopicPartition(name, 0, 3)])
    time.sleep(0.5)
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name)
        assert queue.depth() == 3
        assert drained(queue) == [(b"3", 1), (b"4", 1), (b"5", 1)] and queue.lost == 2


def test_an_aborted_transactions_records_are_no_items_and_no_depth(kq_cluster: Kafka, name: str, here: Site) -> None:
    producer = Producer(kq_cluster.client(transactional_id=name))
    producer.init_transactions(10)
    for value, end in ((b"a", "commit_transaction"), (b"-", "abort_transaction"), (b"b", "commit_transaction")):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(10)
        getattr(producer, end)(10)
    queue = here.queue(name)
    assert drained(queue, 3) == [(b"a", 1), (b"b", 1)]
    time.sleep(0.6)
    assert queue.claim() is None and queue.depth() == 0 and queue.lost == 0


def test_with_the_broker_gone_it_closes_in_time_and_nothing_is_lost() -> None:
    with Cluster() as cluster:
        name = topic(cluster)
        site = Site(cluster, "site", session=2)
        queue = site.queue(name, lease=60)
        queue.put_many([(b"a", None), (b"b", None)])
        assert queue.claim().data == b"a"
        cluster.broker(1).kill()
        begun = time.monotonic()
        site.close()
        assert time.monotonic() - begun < 5.5
        cluster.broker(1).start()
        with Site(cluster, "site", session=2) as again:
            assert [data for data, _ in drained(again.queue(name), 15)] == [b"a", b"b"]
