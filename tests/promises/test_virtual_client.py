"""The client on real nodes: the verbs, and nothing acknowledged is lost when a node dies. test_promises.py scores its promises."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from kqlib.errors import Closed, KqError, LeaseLost
from kqlib.queue.retry import Retry
from kqlib.virtual.client import Client
from kqlib.virtual.errors import NodeDied, NoNode, NotFound
from kqlib.virtual.names import partition_of
from kqlib.workshop.promises import virtual as promised
from kqlib.workshop.promises.virtual import addresses, nodes
from tests.patience import WAIT
from tests.promises.virtual_nodes import Nodes


def test_a_node_that_dies_while_it_is_waited_for_says_why(kq_cluster, monkeypatch):
    def dies(line, *_):
        raise RuntimeError("no memory left")

    monkeypatch.setattr(promised, "serve", dies)
    with (
        pytest.raises(NodeDied, match="RuntimeError: no memory left"),
        nodes(kq_cluster, "died-test", partitions=2, many=1),
    ):
        pytest.fail("it was waited for as if it served")


# --- one client, one node -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def urls(kq_cluster):
    with nodes(kq_cluster, "client-test", partitions=2, many=1) as found:
        yield found


@pytest.fixture
def client(urls):
    with Client(urls) as made:
        yield made


def test_the_nodes_address_is_found_in_the_topic_of_owners(kq_cluster, urls):
    assert addresses(kq_cluster, "client-test") == urls


def test_many_are_put_in_parts_claimed_in_parts_and_acked_in_parts(client):
    queue = client.queue("many")
    names = queue.put_many([(b"%d" % number, None) for number in range(1500)])
    assert len(set(names)) == 1500
    items = []
    while len(items) < 1500:
        items += queue.claim_many(1500, wait=WAIT)
    assert [item.id for item in items] == names
    queue.ack_many(items)
    assert queue.depth() == 0
    with pytest.raises(LeaseLost, match="1500 of 1500 were not acked") as caught:
        queue.ack_many(items)
    assert len(caught.value.items) == 1500


def test_ack_many_acks_what_is_valid_and_names_the_rest(client):
    queue, other = client.queue("mixed"), client.queue("mixed-other")
    queue.put_many([(b"1", None), (b"2", None)])
    other.put(b"3")
    first, second = (queue.claim(wait=WAIT) for _ in range(2))
    wrong = [other.claim(wait=WAIT), "football/0/1", second]
    with pytest.raises(LeaseLost, match=r"3 of 5 were not acked; the others are\. The first: mixed-other/") as error:
        queue.ack_many(iter([wrong[0], first, wrong[1], second, wrong[2]]))
    assert error.value.items == wrong
    assert (queue.depth(), other.depth()) == (0, 1)
    with pytest.raises(LeaseLost, match=f"1 of 1 .*{first.id}: ") as error:
        queue.ack_many([first])
    assert error.value.items == [first]


def test_two_consumers_each_get_every_item_and_a_reader_reads_beside_them(client):
    scores, audit = client.queue("shared", "scores"), client.queue("shared", "audit")
    scores.put_many([(b"1", None), (b"2", None)])
    for consumer in (scores, audit):
        items = consumer.claim_many(10, wait=WAIT)
        assert [item.data for item in items] == [b"1", b"2"]
        consumer.ack_many(items)
    read = scores.read()
    assert [data for _, data in read.records] == [b"1", b"2"]
    assert scores.read(read.next).records == ()


def test_what_fails_goes_to_the_dead_letters_with_its_story_and_back(client, within):
    queue, done = client.queue("poison", max_attempts=2), []
    queue.put(b"goal")

    def fails(item):
        raise ValueError("no such game \udcff")  # half a character, which cannot be written

    worked = queue.work(fails, retry=Retry(attempts=2), until="empty")
    assert (worked.released, worked.buried) == (1, 1)
    letter = queue.dead.claim(wait=WAIT)
    assert letter.data == b"goal"
    assert letter.headers["kq-reason"] == b"ValueError: no such game \\udcff"
    queue.dead.release(letter)
    assert queue.redrive(5) == 1
    within(60, lambda: queue.depth() == 1, "what was put back to be read")  # the letters lie in another partition
    queue.work(lambda item: done.append(item.attempt), until="empty")
    assert done == [1]


def test_a_redrive_that_fails_half_way_says_how_many_letters_went_back(client, monkeypatch, within):
    """It moves a thousand letters with one request. Here it is one letter, and the client is closed after the first."""
    queue = client.queue("half-way")
    queue.put_many([(b"1", None), (b"2", None)])
    for item in queue.claim_many(2, wait=WAIT):
        queue.bury(item)
    within(60, lambda: queue.dead.depth() == 2, "both letters to be read: they lie in another partition")
    monkeypatch.setattr("kqlib.virtual.queue.AT_ONCE", 1)
    ask = client._ask

    def asks(*words, **how):
        response = ask(*words, **how)
        client.close()
        return response

    monkeypatch.setattr(client, "_ask", asks)
    with pytest.raises(Closed, match=r"Dead letters that went back before this error: 1\.$"):
        queue.redrive(2)


def test_a_deleted_queue_is_gone_and_begins_anew(client):
    queue = client.queue("gone")
    queue.put(b"1")
    assert "gone" in client.queues("go")
    queue.delete()
    assert queue.depth() == 0
    with pytest.raises(NotFound):
        queue.delete()
    queue.put(b"2")
    item = queue.claim(wait=WAIT)
    assert item.data == b"2"
    queue.ack(item)


# --- a node dies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.nightly),
    ],
)
def test_when_a_node_dies_the_client_goes_on_and_nothing_acknowledged_is_lost(kq_cluster, how, within):
    with Nodes(kq_cluster, f"dies-{how.name}-{os.getpid()}", partitions=4) as there:
        there.start(2)
        owners = there.settled()
        with Client([node.url for node in there.all], patience=60) as client:
            queues = [client.queue(f"game-{number}", lease=10) for number in range(8)]
            put, done, maybe, stop, lock = [], [], [], threading.Event(), threading.Lock()
            for queue in queues[:4]:
                queue.put(b"first")
            threads = [threading.Thread(target=_puts, args=(queue, put, stop, lock)) for queue in queues[:4]]
            threads += [threading.Thread(target=_takes, args=(queue, done, maybe, stop, lock)) for queue in queues[:4]]
            for thread in threads:
                thread.start()
            try:
                within(60, lambda: len(done) > 20, "nothing was done before")
                victim = next(node for node in there.all if node in owners.values())
                victim.signal(how)
                before = len(done)
                assert client.queues("game-") == [queue.name for queue in queues[:4]]  # of the dead node too
                within(60, lambda: len(done) > before + 40 and set(client.owners.values()) == {_other(there, victim)})
            finally:
                stop.set()
                for thread in threads:
                    thread.join(WAIT)
            for queue in queues[:4]:
                while (item := queue.claim(wait=WAIT if queue.depth() else 0)) is not None:
                    queue.ack(item)
                    done.append(item.data)
                assert queue.depth() == 0
            assert set(put) <= set(done) | set(maybe)
            assert len(maybe) <= len(threads)  # one a thread: the request that the node died over


def test_without_a_node_the_names_of_queues_are_an_error_and_not_an_empty_list():
    with Client("http://127.0.0.1:1", patience=1) as client, pytest.raises(NoNode, match="Nothing was changed"):
        client.queues()


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_a_client_by_default_outlasts_the_session_of_a_node_that_was_killed(kq_cluster):
    with Nodes(kq_cluster, f"outlasts-{os.getpid()}", partitions=2, session=None) as there:  # Kafka's default
        there.start(2)
        victim = there.settled()[partition_of("game", 2)]
        with Client([node.url for node in there.all]) as client:
            queue = client.queue("game")
            queue.put(b"1")
            victim.signal(signal.SIGKILL)
            killed = time.monotonic()
            queue.put(b"2")
            print(f"put {time.monotonic() - killed:.1f} s after the node was killed")
            assert sorted(item.data for item in queue.claim_many(2)) == [b"1", b"2"]


def test_the_default_patience_of_a_client_is_longer_than_the_default_session_of_a_cluster(kq_cluster, client):
    """The short form of the test above: a takeover takes the session, a heartbeat of the next node, and its start."""
    asked = ConfigResource(ResourceType.GROUP, f"nobody-{os.getpid()}")
    found = kq_cluster.admin.describe_configs([asked])[asked].result(WAIT)
    session, beat = (
        int(found[f"consumer.{name}.ms"].value) / 1e3 for name in ("session.timeout", "heartbeat.interval")
    )
    assert client.patience >= session + 2 * beat


def _other(there, victim):
    return next(node.url for node in there.all if node is not victim)


def _puts(queue, put, stop, lock):
    number = 0
    while not stop.is_set():
        number += 1
        data = f"{queue.name} {number}".encode()
        try:
            queue.put(data)
        except KqError:
            continue  # it may be stored or not: the put was not acknowledged
        with lock:
            put.append(data)
        stop.wait(0.1)


def _takes(queue, done, maybe, stop, lock):
    while not stop.is_set():
        item = queue.claim(wait=0.2)
        if item is None:
            continue
        try:
            queue.ack(item)
        except LeaseLost:
            continue
        except NoNode:  # nobody knows whether the ack was stored: if not, it comes again
            maybe.append(item.data)
            continue
        with lock:
            done.append(item.data)
