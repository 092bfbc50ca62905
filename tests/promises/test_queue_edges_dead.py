"""Dead letters at their edges: which of them go back and which stay, and nothing that cannot be read or written sticks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

import kqlib.queue.queue
from kqlib.errors import NotAllowed, PayloadTooLarge, QueueDeleted
from kqlib.kafka import Kafka
from kqlib.queue import Item, Put, Queue, Retry, Site, fetch, redrive
from kqlib.queue.drupal import DrupalQueue
from kqlib.topics import Plan, QueueTopic
from tests.patience import PATIENCE, WAIT, until
from tests.promises import play
from tests.promises.queues import alone, data, drained, put, taken, topic


def buried(queue: Queue, *reasons: str, value: bytes = b"") -> list[str]:
    """An item for each reason, buried for it; the ids of the letters. Its data is its number."""
    queue.put_many([(b"%d" % n + value, None) for n in range(len(reasons))])
    claimed: list[Any] = []
    while len(claimed) < len(reasons):
        claimed += queue.claim_many(len(reasons) - len(claimed), wait=WAIT)
    before = queue.dead.depth()
    for item, reason in zip(claimed, reasons, strict=True):
        queue.bury(item, reason)
    return [letter.id for letter in queue.dead.peek(before + len(reasons))[before:]]


# --- redrive chooses ------------------------------------------------------------------------------------------------------


def test_redrive_puts_back_what_was_chosen_and_leaves_the_others_where_they_were(queue: Queue) -> None:
    reasons = ("ValueError: a", "KeyError: b", "BadValueError: c", "ValueError: no such player", "by hand")
    letters = buried(queue, *reasons)
    assert queue.redrive(9, reason="ValueError", dry_run=True) == 2  # and not BadValueError
    assert data(queue.dead.peek(9)) == [b"0", b"1", b"2", b"3", b"4"] and queue.depth() == 0
    assert queue.redrive(reason="no such play") == 1
    assert queue.redrive(ids=[letters[4], f"{queue.name}/0/1"]) == 2  # a letter's id, or that of the item that it was
    assert [value for value, _ in drained(queue)] == [b"1", b"3", b"4"]
    left = queue.dead.claim_many(9)
    assert [(letter.data, letter.attempt) for letter in left] == [(b"0", 1), (b"2", 1)]  # in order, at once, uncounted
    for letter in left:
        queue.dead.release(letter)
    assert queue.redrive(1, reason="ValueError") == 1 and queue.redrive(9, reason="nobody wrote this") == 0
    assert data(queue.dead.peek(9)) == [b"2"]


def test_redrive_chooses_by_when_a_letter_was_buried(queue: Queue) -> None:
    buried(queue, "old")
    (old,) = queue.dead.peek(1)
    buried(queue, "new")
    since = old.created + timedelta(milliseconds=1)
    assert queue.redrive(since=datetime.now(UTC) + timedelta(hours=1)) == 0
    assert queue.redrive(since=since) == 1 and data(queue.dead.peek(9)) == [old.data]


def test_letters_go_into_another_queue_of_the_site(queue: Queue, kq_cluster: Kafka) -> None:
    other = queue.site.queue(topic(kq_cluster))
    buried(queue, "a", "b")
    assert queue.redrive(2, into=other) == 2
    assert drained(other) == [(b"0", 1), (b"1", 1)] and queue.depth() == queue.dead.depth() == 0


def test_what_was_dead_three_times_stays_dead_unless_it_is_forced(queue: Queue) -> None:
    queue.put(b"poison", headers={"mine": b"1"})
    for life in (1, 2, 3):
        item = queue.claim(wait=WAIT)
        assert item is not None and (item.data, item.headers) == (b"poison", {"mine": b"1"})
        queue.bury(item, f"life {life}")
        if life < 3:
            assert queue.redrive() == 1
    buried(queue, "another")
    (poison, _) = queue.dead.peek(2)
    moved = queue.redrive(9)
    assert moved == 1 and moved.refused == {poison.id: "it was dead 3 times. force puts it back all the same"}
    assert queue.redrive(ids=[poison.id], force=True, dry_run=True) == 1
    assert queue.redrive(9, force=True) == 1 and queue.dead.depth() == 0


def test_a_chosen_letter_is_found_behind_more_than_fits_into_memory(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = buried(queue, *("x" for _ in range(20)), value=os.urandom(300_000))
    monkeypatch.setattr(fetch, "MOST_BYTES", 1_000_000)
    assert queue.redrive(ids=letters[-1:]) == 1
    assert data(queue.dead.peek(1))[0][:1] == b"0" and queue.dead.depth() == 19


def test_letters_that_could_not_be_looked_at_are_not_passed_over_in_silence(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    buried(queue, *("x" for _ in range(20)), value=os.urandom(300_000))
    monkeypatch.setattr(fetch, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(redrive, "BLOCKED", 0.5)
    monkeypatch.setattr(queue._session.fetch, "many", 3)  # taken from the client at once, however much it has
    held = []
    while items := queue.dead.claim_many(3):
        held += items
    assert len(held) < 20 and queue.redrive(reason="x") == 0
    assert f"'{queue.dead.name}': not every letter was looked at: too much is in memory" in caplog.text
    for item in held:
        queue.dead.release(item)


def test_what_dies_again_meanwhile_is_not_put_back_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    buried(queue, "x", "x")
    end = queue.site._end

    def dies_at_once(ending: Any) -> None:
        end(ending)
        if ending.outs[0].topic == queue.name:
            queue._session.changed.release()
            try:
                for item in queue.claim_many(9, wait=WAIT):
                    queue.bury(item, "x")
            finally:
                queue._session.changed.acquire()

    monkeypatch.setattr(queue.site, "_end", dies_at_once)
    assert queue.redrive(reason="x", force=True) == 2 and queue.dead.depth() == 2


WRONG: dict[str, dict[str, Any]] = {
    "ids is a list of ids, as in": {"ids": "football.dead/0/1"},
    "an item's id is topic/partition/offset": {"ids": ["football.dead"]},
    "reason is a text that is in the letters' reasons, not ''": {"reason": ""},
    "since is a time with its zone, as in": {"since": datetime(2026, 5, 1)},
    "into is a queue of this site, as in into=site.queue": {"into": "football"},
    "n is a whole number, at least 1, not 0": {"n": 0},
}


def test_a_choice_that_cannot_be_is_refused_with_a_sentence(queue: Queue) -> None:
    for sentence, how in WRONG.items():
        with pytest.raises(NotAllowed, match=sentence):
            queue.redrive(**how)
    with pytest.raises(NotAllowed, match="holds dead letters: they go back into a queue"):
        queue.redrive(into=queue.dead)


# --- what could be put can be buried and redriven -------------------------------------------------------------------------


def largest(queue: Queue) -> bytes:
    """As many bytes as one item may have."""
    low, high = 0, queue.facts.limit
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            queue._checked([Put(bytes(middle))])
            low = middle
        except PayloadTooLarge:
            high = middle
    return os.urandom(low)


def test_the_largest_item_that_can_be_put_is_buried_and_redriven_whole(queue: Queue) -> None:
    values = [largest(queue), *(b"%d" % n for n in range(5))]
    queue.put_many([(value, None) for value in values])
    for value in values:
        item = queue.claim(wait=WAIT)
        assert item is not None and item.data == value
        queue.bury(item, "too large?")
    assert queue.redrive(6) == 6
    assert drained(queue) == sorted((value, 1) for value in values) and queue.dead.depth() == 0


def test_a_letter_that_does_not_fit_any_more_holds_nobody_and_says_where_the_original_is(
    queue: Queue, kq_cluster: Kafka
) -> None:
    full = os.urandom(queue.facts.limit - 72)  # a record of another client may use all that the topic takes
    play.put(kq_cluster, queue.name, full, b"small", message_max_bytes=2_000_000)
    for item in (queue.claim(wait=WAIT), queue.claim(wait=WAIT)):
        assert item is not None
        queue.bury(item, "too large")
    moved = queue.redrive(9)
    assert moved == 1 and drained(queue) == [(b"small", 1)]
    ((id_, why),) = moved.refused.items()
    assert id_ == queue.dead.peek(1)[0].id and queue.dead.peek(1)[0].data == full
    assert why.startswith("it would take 1") and why.endswith(f"The original is {queue.name}/0/0")


def test_a_letter_whose_data_had_to_be_cut_is_not_redriven_and_says_where_the_original_is(
    site: Site, kq_cluster: Kafka
) -> None:
    name = topic(kq_cluster)
    play.configure(kq_cluster, ResourceType.TOPIC, f"{name}.dead", max_message_bytes="20000")
    queue = site.queue(name)
    queue.put_many([(bytes(50_000), None), (b"small", None)])
    for item in (queue.claim(wait=WAIT), queue.claim(wait=WAIT)):
        assert item is not None
        queue.bury(item, "too large")
    moved = queue.redrive(9, force=True)
    assert moved == 1 and drained(queue) == [(b"small", 1)] and queue.dead.depth() == 1
    why = f"headers, data did not fit into the letter. The original is {name}/0/0, in its log"
    assert list(moved.refused.values()) == [why]


def test_letters_go_back_from_partitions_that_came_after_the_queue_was_opened(
    site: Site, kq_cluster: Kafka, queue: Queue
) -> None:
    assert queue.redrive(9) == 0  # of one partition
    Plan({queue.name: QueueTopic(partitions=2)}).apply(kq_cluster, quiet=True)
    put(kq_cluster, queue.dead.name, b"letter", partition=1)
    until(lambda: queue.redrive(9) == 1)
    assert data(taken(queue, 1)) == [b"letter"]


def test_many_letters_go_back_into_a_topic_that_takes_small_batches(site: Site, kq_cluster: Kafka) -> None:
    queue = site.queue(topic(kq_cluster, **{"max.message.bytes": 20_000}))
    buried(queue, *("x" for _ in range(60)), value=bytes(1_000))
    assert queue.redrive(60) == 60 and queue.depth() == 60


def test_a_redrive_that_fails_half_way_says_how_many_letters_went_back(
    site: Site, kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves as many letters in a transaction as one batch of the topic takes. The topic's limit is lowered after the first."""
    queue = site.queue(topic(kq_cluster, **{"max.message.bytes": 20_000}))
    buried(queue, *("x" for _ in range(30)), value=bytes(3_000))
    end = site._end

    def ends(ending: Any) -> None:
        end(ending)
        play.configure(kq_cluster, ResourceType.TOPIC, queue.name, max_message_bytes="500")

    monkeypatch.setattr(site, "_end", ends)
    with pytest.raises(PayloadTooLarge) as error:
        queue.redrive(30)
    moved = queue.depth()
    assert 0 < moved < 30 and queue.dead.depth() == 30 - moved
    assert str(error.value).endswith(f"Dead letters that went back before this error: {moved}.")


# --- discard --------------------------------------------------------------------------------------------------------------


def test_a_record_of_no_calendar_is_an_item_as_others_are(site: Site, kq_cluster: Kafka) -> None:
    name = topic(kq_cluster, **{"message.timestamp.after.max.ms": 2**63 - 1})
    # it was meant in microseconds: beyond the year 9999
    play.put(kq_cluster, name, {"value": b"1", "timestamp": 10**17})
    queue = DrupalQueue(site, name)
    queue.create_queue()
    item = play.claimed(queue)
    assert item.item.created == datetime.max.replace(microsecond=0, tzinfo=UTC)
    assert site.queue(name).stats()["oldest"] < 0
    queue.delete_item(item)


def test_discard_takes_the_named_letter_and_leaves_those_of_other_sites(site: Site, kq_cluster: Kafka) -> None:
    name = topic(kq_cluster)
    with alone(kq_cluster, f"{name}-two") as other:
        one, two = site.queue(name), other.queue(name)
        one.put_many([(b"0", None), (b"1", None), (b"2", None)])
        mine, theirs = taken(one, 3), taken(two, 3)
        one.bury(mine[0], "mine")
        two.bury(theirs[1], "theirs")
        one.bury(mine[2], "mine")
        with pytest.raises(NotAllowed, match="it is not there"):
            one.dead.discard(two.dead.peek(1)[0].id)
        one.dead.discard(one.dead.peek(9)[1].id)
        assert data(one.dead.claim_many(9)) == [b"0"] and one.dead.depth() == 1
        assert data(two.dead.claim_many(9)) == [b"1"] and two.dead.depth() == 1


def test_discard_says_at_once_what_is_not_there_and_never_calls_done_what_it_could_not_read(
    queue: Queue, kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    monkeypatch.setattr(fetch, "MOST_CACHED", 50)
    monkeypatch.setattr(kqlib.queue.queue, "READ_WITHIN", 2.0 * PATIENCE)
    put(kq_cluster, queue.dead.name, *(b"%d" % n for n in range(3_000)))
    begun = time.monotonic()
    with pytest.raises(NotAllowed, match="it is not there, or done already"):
        queue.dead.discard(f"{queue.dead.name}/0/3000")
    assert time.monotonic() - begun < 2 * PATIENCE + 2
    within(10, lambda: [owner.full for owner in queue._session.partitions_of(queue.dead.name)] == [fetch.FULL])
    with pytest.raises(NotAllowed, match="it could not be read: too much is in memory"):
        queue.dead.discard(f"{queue.dead.name}/0/2999")


def test_discard_waits_for_the_state_of_the_partition_and_calls_it_no_other_process(
    site: Site, kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    """Of two partitions one is read again, as after a transaction without an answer. The other one is there all the time."""
    queue, look = site.queue(topic(kq_cluster, 2)), site._waiter.look
    put(kq_cluster, queue.name, b"0")
    put(kq_cluster, queue.name, b"1", partition=1)
    assert queue.claim(wait=WAIT) is not None
    within(WAIT, lambda: len(site._session.partitions_of(queue.name)) == 2)

    def looks(*words: Any, **how: Any) -> Any:
        time.sleep(1.0)
        return look(*words, **how)

    monkeypatch.setattr(site._waiter, "look", looks)
    with site._session.changed:
        site._session.reload(site._session.partitions[queue.name, 1], "its state is read again")
    queue.discard(f"{queue.name}/1/0")
    assert data(queue.peek(9)) == [b"0"]


# --- reasons --------------------------------------------------------------------------------------------------------------


class NoWords(Exception):  # noqa: N818 - nobody catches it
    """It cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("\udcff at the end"), b"ValueError: \\udcff at the end"),
        (NoWords(), b"NoWords: its text cannot be read (RuntimeError)"),
    ],
    ids=["half a character", "no text at all"],
)
def test_whatever_a_handler_raises_its_item_is_buried_and_the_next_one_comes(
    site: Site, kq_cluster: Kafka, error: Exception, reason: bytes
) -> None:
    queue = site.queue(topic(kq_cluster), max_attempts=1)
    queue.put_many([(b"%d" % n, None) for n in range(8)])

    def fails(_: Item) -> None:
        raise error

    assert queue.work(fails, until="empty").buried == 8
    assert {letter.headers["kq-reason"] for letter in queue.dead.peek(9)} == {reason}


def test_a_reason_of_any_text_can_be_given_and_chosen(queue: Queue) -> None:
    buried(queue, "half \ud800", "whole")
    assert queue.redrive(reason="half \ud800") == 1 and data(queue.dead.peek(9)) == [b"1"]


# --- a queue that was deleted ---------------------------------------------------------------------------------------------


def test_nothing_is_redriven_into_a_deleted_queue_and_deleting_it_again_empties_it(
    site: Site, kq_cluster: Kafka
) -> None:
    queue = DrupalQueue(site, topic(kq_cluster))
    queue.create_queue()
    letters, elsewhere = site.queue(queue.name), site.queue(topic(kq_cluster))
    buried(letters, "a", "b")
    buried(elsewhere, "c")
    queue.delete_queue()
    for again in (lambda: letters.redrive(9), lambda: elsewhere.redrive(into=letters)):
        with pytest.raises(QueueDeleted, match="is marked deleted for this site"):
            again()
    assert (queue.number_of_items(), letters.dead.depth(), elsewhere.dead.depth()) == (0, 2, 1)
    put(kq_cluster, queue.name, b"by someone who does not know it")
    queue.delete_queue()
    assert queue.number_of_items() == 0
    queue.create_queue()
    assert letters.redrive(9) == 2 and queue.number_of_items() == 2


def test_a_letter_of_used_up_attempts_is_there_as_soon_as_depth_no_longer_counts_its_item(
    site: Site, kq_cluster: Kafka
) -> None:
    """Kafka answers a commit before it marks it in each partition. An open transaction makes that moment long."""
    queue = site.queue(topic(kq_cluster), max_attempts=1)
    queue.put(b"bad")
    item = queue.claim(wait=WAIT)
    assert item
    with closing_transaction(kq_cluster, queue.dead.name, 0.4):
        queue.release(item)
        while queue.depth():
            assert queue.claim() is None
        (letter,) = queue.dead.peek(5)
        assert (letter.data, letter.headers["kq-reason"]) == (b"bad", b"its attempts are used up")


@contextmanager
def closing_transaction(cluster: Kafka, name: str, seconds: float) -> Iterator[None]:
    """Another program's transaction in this topic, which is aborted after so many seconds."""
    producer = Producer(cluster.client(transactional_id=f"other-{name}"))
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    producer.produce(name, b"other", partition=0)
    producer.flush(WAIT)
    timer = threading.Timer(seconds, producer.abort_transaction)
    timer.start()
    yield
    timer.join()


def test_a_letter_that_fails_again_for_good_waits_and_the_reason_asks_for_no_topic(queue: Queue) -> None:
    queue.dead.put(b"letter")
    with pytest.raises(NotAllowed, match="holds dead letters already: ack, discard or redrive one"):
        queue.dead.work(lambda item: 1 / 0, retry=Retry(attempts=1), until="empty")
    assert queue.dead.depth() == 1
