"""Share groups without a broker: what the verbs refuse, and how a member's one thread serves many callers."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, TopicPartition

from kqlib.errors import BadPayload, Closed, LeaseLost, NotAllowed, NotClaimed, Unreachable
from kqlib.queue.connection import TopicFacts
from kqlib.queue.item import Item, Put
from kqlib.queue.retry import Retry
from kqlib.share import ShareQueue, member, queue
from kqlib.share.group import Terms
from tests.patience import WAIT
from tests.unit.records import Rec


class Broker:
    """One partition of a share group in memory: what is free, how often each was delivered, and what was answered."""

    def __init__(self):
        self.changed, self.free, self.counts = threading.Condition(), [], {}
        self.answers, self.clients, self.batch, self.fails = [], [], 1, None
        self.assigns = True

    def put(self, many):
        with self.changed:
            self.free += range(len(self.counts), len(self.counts) + many)
            self.counts |= dict.fromkeys(self.free, 0) | self.counts
            self.changed.notify_all()

    def client(self, settings):
        self.clients.append(Client(self, settings))
        return self.clients[-1]


class Client:
    """A ShareConsumer in memory, as strict as the real one."""

    def __init__(self, broker, settings):
        self.broker, self.settings, self.thread = broker, settings, threading.get_ident()
        self.out, self.noted, self.closed = {}, [], False

    def _mine(self):
        assert threading.get_ident() == self.thread, "a second thread called a ShareConsumer"

    def subscribe(self, topics):
        self._mine()
        if self.broker.assigns:
            self.settings["stats_cb"]('{"cgrp": {"assignment_size": 1}}')

    def poll(self, timeout):
        self._mine()
        assert not self.out, "polled with records out"
        with self.broker.changed:
            if not self.broker.free:
                self.broker.changed.wait(timeout)
            size = max(self.settings["max.poll.records"], self.broker.batch)
            taken, self.broker.free = sorted(self.broker.free)[:size], sorted(self.broker.free)[size:]
            for offset in taken:
                self.broker.counts[offset] += 1
        self.out = dict.fromkeys(taken)
        return [Rec(offset, data=b"%d" % offset, count=self.broker.counts[offset]) for offset in taken]

    def acknowledge_offset(self, topic, partition, offset, kind):
        self._mine()
        if offset not in self.out:
            raise RuntimeError("not in flight")
        del self.out[offset]
        self.noted.append((offset, kind))

    def commit_sync(self, timeout):
        self._mine()
        fails, noted, self.noted = self.broker.fails, self.noted, []
        if fails is not None:
            return {TopicPartition("football", 0): KafkaException(KafkaError(fails))}
        self.broker.answers += noted
        self._give_back(offset for offset, kind in noted if kind == AcknowledgeType.RELEASE)
        return {TopicPartition("football", 0): None}

    def close(self):
        self._mine()
        self._give_back(self.out)
        self.closed = True

    def _give_back(self, offsets):
        with self.broker.changed:
            self.broker.free += list(offsets)
            self.broker.changed.notify_all()


class Cluster:
    bootstrap = "nowhere"
    _own: ClassVar[dict[str, str]] = {}

    def client(self, **extra):
        return {name.replace("_", ".") if name != "stats_cb" else name: value for name, value in extra.items()}


@pytest.fixture
def broker(monkeypatch):
    made = Broker()
    monkeypatch.setattr(member, "ShareConsumer", made.client)
    monkeypatch.setattr(member, "SETTLED", 0.02)
    monkeypatch.setattr(member, "LOOK", 0.02)
    monkeypatch.setattr(queue, "topic_facts", lambda cluster, name: {name: TopicFacts(1, 1_000_000)})
    monkeypatch.setattr(
        queue.settings,
        "agree",
        lambda cluster, group, lease, max_attempts: Terms(float(lease or 30), max_attempts or 5),
    )
    return made


@pytest.fixture
def make(broker):
    made = []

    def new(**how):
        made.append(ShareQueue(Cluster(), "football", **how))
        return made[-1]

    yield new
    for each in made:
        each.close()


# --- wrong arguments ------------------------------------------------------------------------------------------------------

ITEM = Item("football", 0, Rec(0), 1, time.monotonic() + 3600, 1, 1)
CONSTRUCTED = {
    "order='key' is not offered": ({"order": "key"}, "share groups do not offer order='key'"),
    "an order that does not exist": ({"order": "no"}, "order is 'any' or 'key', not 'no'"),
    "a lease of no seconds": ({"lease": 0}, "lease is a number of seconds from 0.001"),
    "one attempt": ({"max_attempts": 1}, "max_attempts is a whole number, at least 2, not 1"),
    "a group without a name": ({"group": ""}, "a site's name is text of 1 to 200"),
}
CALLED = {
    "another lease than the group's": (lambda q: q.claim(lease=2), NotAllowed, r"one setting of the group, 30 s"),
    "a lease of no seconds": (lambda q: q.claim(lease=-1), NotAllowed, "lease is a number of seconds"),
    "a wait in words": (lambda q: q.claim(wait="1"), NotAllowed, "wait is a number of seconds"),
    "no items": (lambda q: q.claim_many(0), NotAllowed, "n is a whole number, at least 1, not 0"),
    "a put to be due later": (lambda q: q.put(b"", delay=1), NotAllowed, "share groups do not offer a delay"),
    "one of many due later": (lambda q: q.put_many([Put(b"", delay=1)]), NotAllowed, "do not offer a delay"),
    "text": (lambda q: q.put("1"), BadPayload, "put takes bytes or None, not str"),
    "an ack of nothing": (lambda q: q.ack(None), NotAllowed, "takes an item that claim.. gave, not NoneType"),
    "an item of another queue": (
        lambda q: q.ack(Item("tennis", 0, Rec(0), 1, 9e9, 1, 1)),
        NotAllowed,
        "tennis/0/0 is not an item of 'football'",
    ),
    "an item that was not claimed": (
        lambda q: q.ack(Item("football", 0, Rec(0), 1, 9e9, 0, 0)),
        NotClaimed,
        "football/0/0 was only looked at",
    ),
    "an item of nobody": (lambda q: q.release(ITEM), LeaseLost, "its member is gone"),
    "a release to be due later": (lambda q: q.release(ITEM, delay=1), NotAllowed, "do not offer release with a delay"),
    "extend": (lambda q: q.extend(ITEM), NotAllowed, "do not offer extend: the client cannot renew a lock"),
    "bury": (lambda q: q.bury(ITEM), NotAllowed, "do not offer bury: Kafka 4.3 keeps no dead letters"),
    "dead": (lambda q: q.dead, NotAllowed, "do not offer dead: Kafka 4.3 keeps no dead letters"),
    "depth": (lambda q: q.depth(), NotAllowed, "do not offer depth: the client cannot ask"),
    "step": (lambda q: q.step(ITEM), NotAllowed, "do not offer step: an acknowledgement cannot be part"),
    "a retry that waits": (lambda q: q.work(print, retry=Retry.fixed(1)), NotAllowed, "a wait between attempts"),
}


@pytest.mark.parametrize("case", CONSTRUCTED)
def test_a_queue_that_cannot_be_is_refused(make, case):
    how, says = CONSTRUCTED[case]
    with pytest.raises(NotAllowed, match=says):
        make(**how)


@pytest.mark.parametrize("case", CALLED)
def test_a_wrong_call_is_refused_with_a_sentence(make, case):
    call, error, says = CALLED[case]
    with pytest.raises(error, match=says):
        call(make())


def test_a_closed_queue_says_so(make):
    shared = make()
    shared.close()
    shared.close()
    for verb in (shared.claim, lambda: shared.put(b""), lambda: shared.ack(ITEM)):
        with pytest.raises(Closed, match="share queue is closed"):
            verb()
    assert repr(shared) == "ShareQueue('football', group 'share-football', closed)"


def test_a_put_is_a_batch_of_its_own_and_one_that_fails_is_reported_by_place(make, monkeypatch):
    batches = []

    class Sender:
        def __init__(self, cluster, batch):
            batches.append(batch)

        def send(self, topic, records, many):
            ids = [f"{topic}/0/{at}" if value else None for at, (value, *_) in enumerate(records)]
            return SimpleNamespace(ids=ids, errors={})

        def close(self, seconds):
            pass

    monkeypatch.setattr(queue, "Sender", Sender)
    shared = make()
    assert shared.put(b"1", key=b"k") == "football/0/0"
    with pytest.raises(Unreachable, match=r"Of 2 items 1 are stored; the other 1 may have been, or not") as caught:
        shared.put_many([(b"1", None), (None, None)])
    assert (caught.value.done, caught.value.unknown) == ({0: "football/0/0"}, [1])
    assert batches == [1]


# --- members --------------------------------------------------------------------------------------------------------------


def test_many_threads_share_members_and_no_client_is_called_by_two(make, broker):
    shared, done = make(), []
    broker.put(40)
    worked = shared.work(lambda item: done.append(item.data), threads=8, until="empty")
    assert worked.done == 40
    assert sorted(done, key=int) == [b"%d" % number for number in range(40)]
    assert sorted(broker.answers) == [(offset, AcknowledgeType.ACCEPT) for offset in range(40)]


def test_a_member_that_is_done_polls_again_and_one_that_is_not_gets_company(make, broker):
    shared = make()
    broker.put(5)
    for _ in range(3):
        shared.ack(shared.claim(wait=5))
    assert len(broker.clients) == 1
    held = [shared.claim(wait=5), shared.claim(wait=5)]
    assert len(broker.clients) == 2
    shared.ack_many(held)


def test_a_batch_that_comes_whole_is_handed_out_one_by_one(make, broker):
    shared, broker.batch = make(), 10
    broker.put(10)
    items = [shared.claim(wait=5) for _ in range(10)]
    assert [item.offset for item in items] == list(range(10))
    assert len(broker.clients) == 1
    shared.release(items[3])
    assert (again := shared.claim(wait=5)).offset == 3
    assert (items[3].attempt, again.attempt) == (1, 2)


def test_ack_is_once_and_a_released_items_old_receipt_is_void(make, broker):
    shared = make()
    broker.put(2)
    first, second = shared.claim(wait=5), shared.claim(wait=5)
    shared.ack(first)
    shared.release(second)
    again = shared.claim(wait=5)
    for item in (first, second):
        with pytest.raises(LeaseLost, match=r"acked, released or rejected already|has another batch by now"):
            shared.ack(item)
    wrong = [again._replace(queue="tennis"), "football/0/1", again._replace(lease=0), again, first]
    with pytest.raises(LeaseLost, match=r"5 of 6 were not acked; the others are\. The first: tennis/0/1") as caught:
        shared.ack_many(iter([wrong[0], again, *wrong[1:]]))
    assert caught.value.items == wrong


def test_a_lease_is_the_groups_to_the_millisecond(make, broker):
    shared = make(lease=0.3)
    broker.put(1)
    assert shared.claim(lease=3 * 0.1, wait=5)  # 0.30000000000000004


def test_when_the_lock_is_over_the_member_leaves_and_an_ack_is_refused(make, broker, within):
    shared = make(lease=0.2)
    broker.put(1)
    item = shared.claim(wait=5)
    within(5, lambda: broker.clients[0].closed)
    with pytest.raises(LeaseLost, match=r"its lock is over \(the group's is 0.2 s\)"):
        shared.ack(item)
    assert shared.claim(wait=5).attempt == 2


def test_a_process_that_slept_in_a_poll_trusts_no_lock_that_its_client_got_before(monkeypatch):
    """It wakes up in a poll that returns nothing. The next one returns what was locked before the sleep."""
    now = [100.0]
    monkeypatch.setattr(member.time, "monotonic", lambda: now[0])
    one = member.Member(Cluster(), "scores", "football", 1, 30.0, threading.Condition(), float)

    class Sleeps:
        def poll(self, timeout):
            now[0] += 40.0
            return []

    class Wakes:
        def poll(self, timeout):
            now[0] += 0.1
            return [Rec(0, data=b"goal", count=1)]

    one._poll(Sleeps())
    one._poll(Wakes())
    assert one.deadline == 130.0  # over: the item is not handed out
    now[0] = 200.0
    one._poll(Wakes())  # nothing was awaited before this one
    assert one.deadline == 230.0


def test_what_nobody_claimed_is_given_back_soon_and_its_member_leaves(make, broker, within, monkeypatch):
    monkeypatch.setattr(member, "LINGER", 0.1)
    shared = make()
    assert shared.claim() is None
    broker.put(1)  # the poll that nobody waits for any more catches it
    within(5, lambda: broker.clients[0].closed)
    assert broker.free == [0]


def test_too_many_batches_out_give_nothing_and_say_why(make, broker, monkeypatch):
    monkeypatch.setattr(queue, "MOST", 2)
    shared = make()
    broker.put(3)
    items = [shared.claim(wait=5), shared.claim(wait=5)]
    assert shared.claim() is None
    assert shared.blocked == "2 batches are out, and that is all: ack or release"
    shared.ack(items[0])
    assert shared.blocked == ""
    assert shared.claim(wait=5).offset == 2


ANSWERS = {
    "the lock is over": (KafkaError.INVALID_RECORD_STATE, LeaseLost, "the broker says: .*record state is invalid"),
    "no answer in time": (KafkaError._TIMED_OUT, Unreachable, "may have been stored, or not"),
    "the leader has moved": (KafkaError.NOT_LEADER_FOR_PARTITION, LeaseLost, "it comes again"),
    "no right": (KafkaError.GROUP_AUTHORIZATION_FAILED, LeaseLost, "the broker says"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_the_broker_says_to_an_ack_is_reported_to_who_acks(make, broker, case):
    broker.fails, kind, says = ANSWERS[case]
    shared = make()
    broker.put(1)
    with pytest.raises(kind, match=says):
        shared.ack(shared.claim(wait=5))


def test_of_many_acks_those_that_got_no_answer_are_unknown(make, broker):
    shared = make()
    broker.put(2)
    done, open_ = shared.claim(wait=5), shared.claim(wait=5)
    shared.ack(done)
    broker.fails = KafkaError._TIMED_OUT
    with pytest.raises(Unreachable, match="No Kafka answered at nowhere: 1 of 2 acks") as caught:
        shared.ack_many([done, open_])
    assert (caught.value.items, caught.value.unknown) == ([done], [open_])


def test_a_client_that_cannot_be_made_is_reported_to_who_claims(make, monkeypatch):
    def refuse(settings):
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    monkeypatch.setattr(member, "ShareConsumer", refuse)
    with pytest.raises(NotAllowed, match=r"^This user lacks READ on group 'share-football'\. Nothing was claimed"):
        make().claim(wait=60)  # it does not wait: nobody gets a right by that


def test_members_that_fail_are_replaced_at_leisure_until_the_first_claim_gives_up(make, monkeypatch):
    tried = []

    def fail(settings):
        tried.append(settings)
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    monkeypatch.setattr(member, "ShareConsumer", fail)
    monkeypatch.setattr(queue, "FIRST", 1.0)
    monkeypatch.setattr(queue, "REST", 0.2)
    with pytest.raises(Unreachable, match="Nothing was claimed"):
        make().claim()
    assert 2 <= len(tried) <= 6


def test_a_group_that_gives_no_partition_is_reported_and_not_taken_for_an_empty_queue(make, broker, monkeypatch):
    monkeypatch.setattr(queue, "FIRST", 0.2)
    broker.assigns = False
    with pytest.raises(Unreachable, match=r"gave this process no partition within 0.2 s. Nothing was claimed"):
        make().claim()


def test_a_member_that_polls_for_nothing_too_long_is_replaced(make, broker, monkeypatch, within):
    monkeypatch.setattr(member, "RENEW", 0.1)
    monkeypatch.setattr(member, "QUANTUM", 0.02)
    shared = make()
    within(10, lambda: shared.claim(wait=0.2) is None and len(broker.clients) > 1)
    broker.put(1)
    assert shared.claim(wait=5) is not None


def test_a_handler_that_fails_is_tried_again_and_given_up_as_the_retry_says(make, broker, caplog):
    shared, seen = make(), []
    broker.put(2)

    def handler(item):
        seen.append((item.offset, item.attempt))
        if item.offset == 0:
            raise ValueError("no such game")

    worked = shared.work(handler, retry=Retry(attempts=2), until="empty")
    assert (worked.done, worked.released, worked.buried) == (1, 1, 1)
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1)]
    assert (0, AcknowledgeType.REJECT) in broker.answers
    assert "football/0/0 is given up and gone: ValueError: no such game" in caplog.text


def test_closing_gives_back_what_is_out_and_leaves_no_thread(make, broker):
    shared = make()
    broker.put(3)
    shared.claim(wait=5), shared.claim(wait=5)
    shared.close()
    assert broker.clients and all(client.closed for client in broker.clients)
    assert sorted(broker.free) == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kq-share")]


def test_a_client_is_closed_only_after_its_first_assignment(make, broker, monkeypatch):
    """librdkafka 2.16: a close() during which the assignment comes never returns."""
    monkeypatch.setattr(member, "QUANTUM", 0.02)
    monkeypatch.setattr(queue, "FIRST", 0.1)
    broker.assigns = False
    shared = make()
    with pytest.raises(Unreachable):
        shared.claim()
    closing = threading.Thread(target=shared.close)
    closing.start()
    closing.join(0.2)
    (client,) = broker.clients
    assert closing.is_alive() and not client.closed
    client.settings["stats_cb"]('{"cgrp": {"assignment_size": 1}}')
    closing.join(WAIT)
    assert client.closed


def test_settings_that_a_share_consumer_refuses_are_not_given_to_it():
    given = {"auto.offset.reset": "earliest", "partitioner": "murmur2_random", "bootstrap.servers": "nowhere"}
    cluster = SimpleNamespace(client=lambda **extra: given | extra)
    settings = member.Member(cluster, "g", "football", 1, 30.0, threading.Condition(), lambda: 0.0)._settings()
    assert "auto.offset.reset" not in settings
    assert "partitioner" not in settings
    assert settings["bootstrap.servers"] == "nowhere"
