"""What the rungs do on a real Kafka beyond the promises: the mapping's own rules, and what an item costs."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from kqlib.errors import LeaseLost, QueueDeleted, TopicMissing
from kqlib.workshop.ladder import LADDER, DeletedList, LeasesInMemory, SaveOffset
from tests.patience import WAIT
from tests.promises.play import create, delete


@pytest.fixture
def listed(kq_cluster, kq_topic, tmp_path):
    """Queues of one site: they share its database."""
    made = []

    def make(name=kq_topic):
        made.append(DeletedList(kq_cluster, name, tmp_path / "site.db"))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def end(cluster, topic):
    """How many offsets a topic's partition has used up."""
    part = TopicPartition(topic, 0)
    return cluster.admin.list_offsets({part: OffsetSpec.latest()})[part].result(WAIT).offset


def test_after_a_recreation_one_put_leaves_a_record_for_each_offset_of_the_list(kq_cluster, kq_topic, listed):
    queue = listed()
    for number in range(3):
        queue.put(b"%d" % number)
        queue.ack(queue.claim(wait=WAIT))
    queue.close()
    delete(kq_cluster, kq_topic)
    create(kq_cluster, kq_topic)
    assert listed().put(b"new") == f"{kq_topic}/0/3"
    assert end(kq_cluster, kq_topic) == 4
    assert listed().claim(wait=WAIT).data == b"new"


def test_the_list_is_collected_by_the_low_watermark_and_only_when_asked(kq_cluster, kq_topic, listed):
    queue = listed()
    for number in range(5):
        queue.put(b"%d" % number)
        queue.ack(queue.claim(wait=WAIT))
    assert queue.garbage_collection() == 0
    part = TopicPartition(kq_topic, 0, 3)
    kq_cluster.admin.delete_records([part])[part].result(WAIT)
    assert queue.garbage_collection() == 3
    assert [queue._deleted(0, offset) for offset in range(5)] == [False, False, False, True, True]


def test_the_list_outlives_the_queue(listed):
    queue = listed()
    queue.put(b"1")
    item = queue.claim(wait=WAIT)
    queue.ack(item)
    queue.delete()
    for verb in (lambda: queue.put(b"2"), queue.claim):
        with pytest.raises(QueueDeleted):
            verb()
    other = listed()
    other.create()
    assert other._deleted(0, item.offset)


def test_a_queue_without_a_topic_cannot_be_made_or_created(kq_cluster, kq_topic, listed):
    for rung in (SaveOffset, DeletedList, LeasesInMemory):
        with pytest.raises(TopicMissing, match="'nowhere' does not exist on this cluster"):
            rung(kq_cluster, "nowhere")
    queue = listed()
    delete(kq_cluster, kq_topic)
    with pytest.raises(TopicMissing, match="does not exist on this cluster"):
        queue.create()


def test_a_lease_of_the_past_is_refused_with_a_sentence(kq_cluster, kq_topic):
    queue = LeasesInMemory(kq_cluster, kq_topic)
    queue.put(b"1")
    item = queue.claim(lease=0.01, wait=WAIT)
    again = queue.claim(wait=WAIT)
    assert again.attempt == 2
    with pytest.raises(LeaseLost, match=r"this lease is over; another worker may have the item by now\. Claim again"):
        queue.ack(item)
    queue.ack(again)
    queue.close()


COMMITS = {"auto-commit": 0, "save offset": 10, "deleted list": 10, "leases": 10}


@pytest.mark.parametrize("name", COMMITS)
def test_an_item_costs_the_commits_that_the_ladder_says(kq_cluster, kq_topic, name, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    queue = LADDER[name](kq_cluster, kq_topic)
    commits = []
    queue.consumer = Counted(queue.consumer, commits)
    for number in range(10):
        queue.put(b"%d" % number)
    for _ in range(10):
        queue.ack(queue.claim(wait=WAIT))
    queue.close()
    assert len(commits) == COMMITS[name]
    answer = LADDER[name].costs["lines · commits an item"].split(" · ")[1]  # '1', '1 + 5 SQL'
    assert len(commits) == 10 * int(answer.split()[0])


class Counted:
    """A consumer whose commits are counted."""

    def __init__(self, consumer: Consumer, commits: list[object]) -> None:
        self._consumer, self._commits = consumer, commits

    def __getattr__(self, name):
        if name == "commit":
            self._commits.append(name)
        return getattr(self._consumer, name)
