"""Drupal's Queue API on a real Kafka: what Drupal core expects of any queue, deletion and return, garbage collection."""

from __future__ import annotations

import re
import time

import pytest

from kqlib.errors import BadPayload, LeaseLost, NotAllowed, QueueDeleted, TopicMissing
from kqlib.queue import Site
from kqlib.queue.drupal import DrupalQueue, NotCreated
from kqlib.queue.notes import Notes
from kqlib.topics import Plan, QueueTopic
from tests.promises.play import claimed, delete, put


@pytest.fixture
def topics(kq_cluster, kq_topic):
    """Two queues' topics of one partition each."""
    names = [f"{kq_topic[:60]}-{letter}-{kq_topic[-6:]}" for letter in "ab"]
    Plan({name: QueueTopic(partitions=1) for name in names}).apply(kq_cluster, quiet=True)
    yield names
    kq_cluster.admin.delete_topics([*names, *(f"{name}.dead" for name in names)])


@pytest.fixture
def site(kq_cluster, kq_topic):
    """A Drupal site."""
    with Site(kq_cluster, f"site-{kq_topic[-6:]}") as site:
        yield site


@pytest.fixture
def queue(site, topics):
    """A created queue."""
    made = DrupalQueue(site, topics[0])
    made.create_queue()
    return made


@pytest.fixture(scope="module")
def shared(kq_cluster):
    """A created queue for tests that leave nothing in it."""
    Plan({"drupal-shared": QueueTopic(partitions=1)}).apply(kq_cluster, quiet=True)
    with Site(kq_cluster, "drupal-shared") as site:
        made = DrupalQueue(site, "drupal-shared")
        made.create_queue()
        yield made
    kq_cluster.admin.delete_topics(["drupal-shared", "drupal-shared.dead"])


def test_what_drupal_core_expects_of_any_queue(site, topics, queue):
    other = DrupalQueue(site, topics[1])
    other.create_queue()
    data = [{"n": n, "words": ["a", None, 1.5]} for n in range(4)]
    for each in data[:2]:
        queue.create_item(each)
    first, second = claimed(queue), claimed(queue)
    assert [first.data, second.data] == data[:2]
    for each in data[2:]:
        queue.create_item(each)
    assert queue.number_of_items() == 4  # claimed ones count
    third = claimed(queue)
    assert third.data == data[2]
    assert queue.number_of_items() == 4
    assert queue.release_item(third) is True
    again, fourth = claimed(queue), claimed(queue)
    assert (again.data, fourth.data) == (data[2], data[3])
    assert queue.claim_item() is None
    assert other.number_of_items() == 0  # they know nothing of each other
    for item in (first, second, again, fourth):
        queue.delete_item(item)
    assert queue.number_of_items() == 0


def test_an_item_says_which_it_is_and_when_it_was_put(queue, topics):
    name = queue.create_item("x")
    item = claimed(queue)
    assert name == item.item_id == f"{topics[0]}/0/0"
    assert abs(item.created - time.time()) < 60


@pytest.mark.parametrize("data", [None, False, 0, "", "ä", [1, [2]], {"a": {"b": None}}])
def test_any_json_comes_back_as_it_was(shared, data):
    shared.create_item(data)
    item = claimed(shared)
    assert item.data == data
    shared.delete_item(item)


def test_a_deleted_queue_is_empty_and_what_was_done_stays_done_when_it_is_back(kq_cluster, site, queue, topics):
    for n in range(3):
        queue.create_item(n)
    queue.delete_item(claimed(queue))
    held = claimed(queue)
    queue.delete_queue()
    assert queue.number_of_items() == 0
    for verb in (lambda: queue.create_item(4), queue.claim_item):
        with pytest.raises(QueueDeleted, match="is marked deleted for this site"):
            verb()
    queue.create_queue()
    with pytest.raises(LeaseLost):
        queue.delete_item(held)
    assert queue.release_item(held) is False
    queue.create_item("new")
    assert claimed(queue).data == "new"
    assert queue.claim_item() is None


def test_a_process_that_dies_while_it_deletes_a_queue_leaves_it_as_it_was_or_deleted_and_empty(
    site, topics, queue, monkeypatch
):
    """It dies after any of its writes to kq.queues. The next process creates the queue, and either all items are there or none."""
    queue.create_item(1)
    write = Notes.write

    def dies(notes, *words):
        write(notes, *words)
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(Notes, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            queue.delete_queue()
    deleted = queue._status() == "deleted"
    queue.create_queue()
    assert queue.number_of_items() == (0 if deleted else 1)


def test_a_queue_whose_topic_is_gone_can_be_deleted(kq_cluster, site, queue, topics):
    delete(kq_cluster, topics[0])
    for _ in range(2):
        DrupalQueue(site, topics[0]).delete_queue()
    with pytest.raises(QueueDeleted):
        queue.create_item(1)


def test_deleting_for_one_site_changes_nothing_for_another(kq_cluster, queue, topics):
    queue.create_item(1)
    with Site(kq_cluster, f"other-{topics[0][-6:]}") as other:
        theirs = DrupalQueue(other, topics[0])
        theirs.create_queue()
        queue.delete_queue()
        assert theirs.number_of_items() == 1
        assert claimed(theirs).data == 1


@pytest.mark.parametrize("junk", [b"\xff not json", b"[" * 100_000 + b"]" * 100_000], ids=["no text", "nested deep"])
def test_someone_elses_record_goes_to_the_dead_letters_and_the_next_item_comes(kq_cluster, queue, topics, junk):
    put(kq_cluster, topics[0], junk)
    queue.create_item("good")
    assert claimed(queue).data == "good"
    assert [item.data for item in queue._queue.dead.peek()] == [junk]


def test_what_was_never_created_or_has_no_topic_is_refused(site, topics):
    queue = DrupalQueue(site, topics[0])
    with pytest.raises(NotCreated, match=r"was not created for this site\. Call create_queue\(\)"):
        queue.create_item(1)
    with pytest.raises(TopicMissing, match="Queues are pre-allocated"):
        DrupalQueue(site, "nowhere").create_queue()
    queue.delete_queue()  # nothing to delete: nothing is noted
    with pytest.raises(NotCreated):
        queue.claim_item()


@pytest.mark.parametrize(
    ("ask", "error", "sentence"),
    [
        (
            lambda q: q.create_item({1, 2}),
            BadPayload,
            "is JSON, and this is not: Object of type set is not JSON serializable",
        ),
        (lambda q: q.create_item(float("nan")), BadPayload, "an item of a Drupal queue is JSON, and this is not"),
        (lambda q: q.claim_item(lease_time=0), NotAllowed, "lease"),
        (lambda q: q.delete_item("x"), NotAllowed, "this takes what claim_item() gave, not str"),
        (lambda q: q.release_item(None), NotAllowed, "this takes what claim_item() gave, not NoneType"),
        (lambda q: q.garbage_collection(forget="eu"), NotAllowed, "forget is a list of sites, as in forget=['eu']"),
        (lambda q: q.garbage_collection(forget=["eu"]), NotAllowed, "no site 'eu' uses"),
        (lambda q: q.garbage_collection(forget=[q.site.name]), NotAllowed, "is this site: forget it from another one"),
        (lambda q: DrupalQueue("eu", "x"), NotAllowed, "a DrupalQueue belongs to a site"),
        (lambda q: DrupalQueue(q.site, ""), NotAllowed, "a queue's name is its topic's, not ''"),
    ],
)
def test_wrong_arguments_are_refused_with_a_sentence(shared, ask, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        ask(shared)


def done(queue, n):
    for number in range(n):
        queue.create_item(number)
    for _ in range(n):
        queue.delete_item(claimed(queue))


@pytest.mark.nightly  # by day `kq queue gc --forget` in test_cli_queue
def test_a_site_that_is_gone_holds_its_items_until_it_is_forgotten_and_the_process_that_forgets_may_die(
    kq_cluster, queue, topics, monkeypatch
):
    done(queue, 3)
    with Site(kq_cluster, f"gone-{topics[0][-6:]}") as gone:
        theirs = DrupalQueue(gone, topics[0])
        theirs.create_queue()
        for _ in range(2):
            theirs.delete_item(claimed(theirs))
        held = f"{topics[0]}: records of 2 offsets can be deleted\np0  0 to 2, the rest is held by '{gone.name}'"
        assert repr(queue.garbage_collection()) == held
        with pytest.raises(NotAllowed, match="is at work: 1 of its processes are there"):
            queue.garbage_collection(delete_records=True, forget=[gone.name])
    assert queue.garbage_collection(forget=[gone.name]).offsets == 3
    tool = type(kq_cluster).kafka

    def dies(cluster, *words, **how):
        if "--delete-offsets" in words:
            raise KeyboardInterrupt
        return tool(cluster, *words, **how)

    with monkeypatch.context() as dying:
        dying.setattr(type(kq_cluster), "kafka", dies)
        with pytest.raises(KeyboardInterrupt):
            queue.garbage_collection(delete_records=True, forget=[gone.name])
    assert repr(queue.garbage_collection()) == held  # nothing was deleted, and a look forgets no site
    assert queue.garbage_collection(delete_records=True, forget=[gone.name]).deleted
    done(queue, 1)
    assert queue.garbage_collection(delete_records=True).offsets == 1  # the forgotten site is no stranger either
