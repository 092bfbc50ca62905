"""Commits of other programs in the site's group, records that left the log, a state that is gone: reported, counted, put back."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition

from kqlib.errors import LedgerLost
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.doctor import queues
from tests.patience import WAIT, until
from tests.promises.desk import KQ, REPO, Desk, Ran
from tests.promises.play import commit
from tests.promises.queues import alone, data, drained, put, taken, topic

SKIPPED = "skipped by another program's commit"


def strangers_read(cluster: Kafka, site: str, name: str, many: int) -> None:
    """A stock consumer with auto-commit in the site's group, until it has read so many records."""
    how = {"group_protocol": "consumer", "enable_auto_commit": True, "auto_offset_reset": "earliest"}
    reader, read, deadline = Consumer(cluster.client(group_id=site, **how)), 0, time.monotonic() + WAIT
    reader.subscribe([name])
    try:
        while read < many:
            assert time.monotonic() < deadline, f"it read {read} records"
            message = reader.poll(0.2)
            read += message is not None and message.error() is None
    finally:
        reader.close()


def everything(queue: Queue, seen: Counter[bytes]) -> None:
    """Until the queue says that it is empty."""
    while items := queue.claim_many(50):
        seen.update(data(items))
        queue.ack_many(items)


def ledgers(cluster: Kafka, name: str) -> str:
    """What `kq doctor` says of this queue's states."""
    found = {finding.name: finding for finding in queues.of(cluster)}["ledgers"]
    return "\n".join(line for line in found.what.splitlines() if f"'{name}'" in line)


def elsewhere(name: str, word: str, *rest: str) -> Ran:
    """`kq queue WORD` in a process of its own: in this one it would take the live site's place."""
    done = subprocess.run([*KQ, word, name, *rest], cwd=REPO, capture_output=True, text=True, timeout=WAIT, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def begun(cluster: Kafka, site: Site, name: str) -> tuple[Queue, Counter[bytes]]:
    """40 items in two partitions: two are done and one was given back; what was handed out and done."""
    put(cluster, name, *[b"%d" % n for n in range(20)])
    put(cluster, name, *[b"%d" % n for n in range(20, 40)], partition=1)
    queue = site.queue(name)
    items = taken(queue, 3)
    queue.ack_many(items[:2])
    queue.release(items[2])
    return queue, Counter(data(items[:2]))


def check_reported(say: Callable[..., Ran], cluster: Kafka, name: str, seen: Counter[bytes]) -> int:
    """Doctor, show and story say how many are lost, and which; how many."""
    lost, missed = 40 - len(seen), next(n for n in range(40) if b"%d" % n not in seen)
    assert SKIPPED in ledgers(cluster, name)
    assert say("show", "--json").json["lost"] == lost
    assert f" items {SKIPPED}" in say("show").out
    assert SKIPPED in say("story", f"{name}/{missed // 20}/{missed % 20}").out
    dry = say("rewind")
    assert dry.code == 1 and f"\n{lost} items would be put back" in dry.out and "Nothing was done: add --yes" in dry.out
    return lost


def all_came(queue: Queue, seen: Counter[bytes]) -> None:
    """The rest comes, and each item has come once."""
    while len(seen) < 40:
        items = queue.claim_many(50, wait=WAIT)
        assert items, f"only {len(seen)} came"
        seen.update(data(items))
        queue.ack_many(items)
    assert queue.claim() is None and queue.depth() == 0
    assert set(seen.values()) == {1} and len(seen) == 40
    assert queue.lost == 0


def test_what_a_stock_consumer_beside_a_live_site_skipped_is_reported_and_put_back(
    kq_cluster: Kafka, desk: Desk, within: Callable[..., float]
) -> None:
    name = topic(kq_cluster, 2)
    with alone(kq_cluster, desk.site) as site:
        queue, seen = begun(kq_cluster, site, name)
        strangers_read(kq_cluster, desk.site, name, 17)
        within(WAIT, lambda: len(site._session.partitions_of(name)) == 2, "the partition does not come back")
        everything(queue, seen)
        lost = 40 - len(seen)
        assert lost >= 15 and set(seen.values()) == {1}
        assert queue.lost == lost == queue.stats()["lost"]
        assert SKIPPED in ledgers(kq_cluster, name) and f" items {SKIPPED}" in elsewhere(name, "show").out
        assert queue.claim() is None
        assert elsewhere(name, "rewind", "--yes").code == 0
        all_came(queue, seen)
        within(10, lambda: ledgers(kq_cluster, name) == "", "doctor still tells of it")


def test_what_was_skipped_while_the_site_was_closed_is_reported_and_put_back(kq_cluster: Kafka, desk: Desk) -> None:
    name = topic(kq_cluster, 2)
    say = partial(desk, on=name)
    with alone(kq_cluster, desk.site) as site:
        seen = begun(kq_cluster, site, name)[1]
    how = ("--reset-offsets", "--to-latest", "--execute")  # as an operator resets the offsets of a group that is empty
    kq_cluster.kafka("consumer-groups", *how, "--group", desk.site, "--topic", name)
    check_reported(say, kq_cluster, name, seen)  # before an owner has seen it
    with alone(kq_cluster, desk.site) as site:
        queue = site.queue(name)
        everything(queue, seen)
        assert queue.lost == 40 - len(seen) == queue.stats()["lost"]
    with Site(kq_cluster, desk.site) as looks:
        assert looks.queue(name).lost == 40 - len(seen)
    lost = check_reported(say, kq_cluster, name, seen)
    assert say("depth").out == "0\n"
    assert say("rewind", "--yes").code == 0
    assert say("depth").out == f"{lost}\n" and ledgers(kq_cluster, name) == ""
    with alone(kq_cluster, desk.site) as site:
        all_came(site.queue(name), seen)
    with alone(kq_cluster, desk.site) as site:
        assert site.queue(name).claim() is None
        assert site.queue(name).lost == 0


def test_what_is_lost_in_a_partition_that_came_after_the_queue_was_opened_is_counted(
    kq_cluster: Kafka, desk: Desk
) -> None:
    with Site(kq_cluster, desk.site) as looks:
        queue = looks.queue(desk.name)  # of one partition
        Plan({desk.name: QueueTopic(partitions=2)}).apply(kq_cluster, quiet=True)
        put(kq_cluster, desk.name, b"0", b"1", partition=1)
        until(lambda: not elsewhere(desk.name, "work", "--until-empty", "--", "true").code and queue.depth() == 0)
        put(kq_cluster, desk.name, b"2", b"3", b"4", partition=1)
        how = ("--reset-offsets", "--to-latest", "--execute")
        kq_cluster.kafka("consumer-groups", *how, "--group", desk.site, "--topic", desk.name)

        def lost() -> int:
            elsewhere(desk.name, "work", "--until-empty", "--", "true")  # an owner notes what was skipped
            looks._notes.catch_up()
            return queue.lost

        assert until(lost) == 3


def test_a_commit_that_moves_back_is_reported(kq_cluster: Kafka, desk: Desk) -> None:
    put(kq_cluster, desk.name, *[b"%d" % n for n in range(6)])
    with alone(kq_cluster, desk.site) as site:
        assert len(drained(site.queue(desk.name), 6)) == 6
    commit(kq_cluster, desk.site, desk.name, 2)
    with alone(kq_cluster, desk.site) as site:
        queue = site.queue(desk.name)
        assert len(drained(queue, 4)) == 4 and queue.lost == 0
    came_again = "4 items came again: another program's commit moved back"
    assert came_again in ledgers(kq_cluster, desk.name) and came_again in desk("show").out
    assert desk("rewind", "--yes").code == 0
    assert ledgers(kq_cluster, desk.name) == "" and desk("depth").out == "0\n"


def test_what_left_the_log_before_it_was_done_is_reported_until_it_is_known(kq_cluster: Kafka, desk: Desk) -> None:
    put(kq_cluster, desk.name, *[b"%d" % n for n in range(9)])
    with alone(kq_cluster, desk.site) as site:
        items = taken(site.queue(desk.name), 3)
        site.queue(desk.name).ack(items[1])
    cut = TopicPartition(desk.name, 0, 6)
    kq_cluster.admin.delete_records([cut])[cut].result(WAIT)
    with alone(kq_cluster, desk.site) as site:
        queue = site.queue(desk.name)
        assert queue.depth() == 3 and drained(queue, 3) == [(b"6", 1), (b"7", 1), (b"8", 1)]
        assert queue.lost == 5 == queue.stats()["lost"]  # two open, three that nobody had read
    left = "5 items left the log before they were done"
    with Site(kq_cluster, desk.site) as looks:
        assert looks.queue(desk.name).lost == 5
    assert left in ledgers(kq_cluster, desk.name) and left in desk("show").out
    assert desk("show", "--json").json["lost"] == 5
    assert left in desk("story", f"{desk.name}/0/2").out and left in desk("story", f"{desk.name}/0/5").out
    assert left not in desk("story", f"{desk.name}/0/1").out
    assert desk("rewind", "--forget", "--json").json["items"] == 0
    assert desk("rewind", "--forget", "--yes").code == 0
    assert ledgers(kq_cluster, desk.name) == "" and desk("show", "--json").json["lost"] == 0


def test_garbage_collection_leaves_what_a_commit_skipped(kq_cluster: Kafka, desk: Desk) -> None:
    desk.no_tool()
    put(kq_cluster, desk.name, *[b"%d" % n for n in range(6)])
    with alone(kq_cluster, desk.site) as site:
        site.queue(desk.name).ack(taken(site.queue(desk.name), 1)[0])
    commit(kq_cluster, desk.site, desk.name, 6)
    with alone(kq_cluster, desk.site) as site:
        assert site.queue(desk.name).claim() is None
    assert [row["to"] for row in desk("gc", "--json").json["partitions"]] == [1]
    assert desk("rewind", "--forget", "--yes").code == 0
    with alone(kq_cluster, desk.site) as site:
        assert site.queue(desk.name).claim() is None
    assert [row["to"] for row in desk("gc", "--json").json["partitions"]] == [6]


# --- a state that is gone -----------------------------------------------------------------------------------------------


def test_a_state_that_is_gone_has_its_remedy_on_the_command_line_and_no_word_guesses(
    kq_cluster: Kafka, desk: Desk
) -> None:
    desk("put", "-", typed=b"0\n1\n2\n")
    assert desk("work", "--until-empty", "--", "true").code == 0
    kq_cluster.admin.delete_consumer_groups([desk.site])[desk.site].result(WAIT)
    for word in ("show", "depth", "peek"):
        reported = desk(word)
        assert (
            (reported.code, reported.out) == (2, "")
            and "is gone" in reported.err
            and "--on-lost earliest" in reported.err
        ), word
    listed = desk("list", "--json")
    assert next(row for row in listed.json if row["queue"] == desk.name)["items"] is None and "is gone" in listed.err
    informed = desk("story", f"{desk.name}/0/0").out
    assert "is gone" in informed and "--on-lost" in informed and "waiting" not in informed and "done" not in informed
    assert "its state is gone" in ledgers(kq_cluster, desk.name)
    assert desk("claim").code == 2
    assert desk("work", "--until-empty", "--", "true").code == 2
    with Site(kq_cluster, desk.site) as site, pytest.raises(LedgerLost):
        site.queue(desk.name).depth()
    worked = desk("work", "--until-empty", "--on-lost", "earliest", "--json", "--", "true")
    assert worked.json["done"] == 3
    assert desk("depth").out == "0\n"
