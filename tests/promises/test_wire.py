"""The wire on a real Kafka: what clients send is seen and named, and each accident happens exactly where it was asked for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from kqlib import Plan, QueueTopic, Site
from kqlib.errors import Closed, NotAllowed, Unreachable
from kqlib.kafka import Kafka, reading, tools
from kqlib.queue import copying
from kqlib.workshop import view
from kqlib.workshop.cluster import Cluster
from tests.patience import PATIENCE, WAIT, until
from tests.promises.play import create, put, values


@pytest.fixture(scope="module")
def wired(wired: Cluster) -> Cluster:
    """The one broker with a wire, and the topics of these tests."""
    for name in ("seen", "killed", "refused", "lost", "restarted", "java"):
        create(wired, name)
    return wired


@pytest.fixture(autouse=True)
def healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins with a wire on which nothing happens and nothing was seen."""
    wire = request.getfixturevalue("wired").wire if "wired" in request.fixturenames else None
    if wire:
        wire.heal()
        wire.clear()
    yield
    if wire:
        wire.heal()


def first(reader: Consumer) -> Message:
    deadline = time.monotonic() + WAIT
    while (message := reader.poll(0.2)) is None:
        assert time.monotonic() < deadline, "no record came"
    assert message.error() is None
    return message


def test_what_a_client_sends_is_seen_in_its_order_with_what_matters_and_the_admins_requests_are_not(
    wired: Cluster,
) -> None:
    wire = wired.wire
    producer = Producer(wire.client(enable_idempotence=True, linger_ms=60_000))  # flush() sends both at once
    producer.list_topics("seen", timeout=WAIT)
    producer.produce("seen", b"a")
    producer.produce("seen", b"b")
    assert producer.flush(WAIT) == 0
    reader = Consumer(wire.client(group_id="readers", client_id="reader"))
    reader.subscribe(["seen"])
    reader.commit(first(reader), asynchronous=False)
    reader.close()
    wired.admin.list_topics(timeout=WAIT)
    assert view.wire(wire.seen(), title="a record").text.splitlines() == [
        "a record · 2 clients, 4 requests",
        "rdkafka → 1  InitProducerId 1",
        "rdkafka → 1  Produce 1         seen/0 ×2, acks=all",
        "reader → 1   OffsetFetch 1     seen/0 = -1",
        "reader → 1   OffsetCommit 1    seen/0 = 1",
    ]
    heartbeats = [each.what for each in wire.seen("reader") if each.api == "ConsumerGroupHeartbeat"]
    assert (heartbeats[0], heartbeats[-1]) == ("group readers, joins", "group readers, leaves")
    fetched = [each.what for each in wire.seen("reader") if each.api == "Fetch" and each.what]
    assert fetched == ["seen/0 ×2"], "new versions of Fetch have the topic's id, not its name"
    assert {each.pid for each in wire.seen()} == {psutil.Process().pid}
    times = [each.ms for each in wire.seen() if each.api in {"Produce", "OffsetCommit"}]
    assert all(time is not None and 0 <= time < WAIT * 1000 for time in times)
    assert wire.seen("nobody") == []


def test_a_transaction_is_seen_with_its_partitions_its_offsets_and_its_end(wired: Cluster) -> None:
    producer = Producer(wired.wire.client(transactional_id="t", retry_backoff_ms=1, retry_backoff_max_ms=5))
    producer.init_transactions(WAIT)
    reader = Consumer(wired.client(group_id="t"))
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("seen", b"c")
        producer.send_offsets_to_transaction([TopicPartition("seen", 0, 2)], reader.consumer_group_metadata(), WAIT)
        end(WAIT)
    reader.close()
    found = [(each.api, each.what) for each in wired.wire.seen(polls=False) if not each.error]
    assert found[0] == ("InitProducerId", "transactional")
    assert ("Produce", "seen/0 ×1, acks=all, in a transaction") in found
    assert ("TxnOffsetCommit", "seen/0 = 2") in found
    assert [what for api, what in found if api == "EndTxn"] == ["commit", "abort"]


def test_a_refused_produce_is_sent_again_and_one_whose_answer_says_so_is_stored_once_by_an_idempotent_producer(
    wired: Cluster,
) -> None:
    for when in ("before", "after"):
        wired.wire.error("Produce", "NOT_LEADER_OR_FOLLOWER", when=when)
        put(wired.wire, "refused", when.encode())
        wired.wire.error("Produce", "NOT_ENOUGH_REPLICAS", when=when)
        put(wired.wire, "refused", b"again " + when.encode(), enable_idempotence=True)
    accidents = [(each.error, each.accident) for each in wired.wire.seen() if each.accident]
    assert accidents == [
        (error, f"error {when}")
        for when in ("before", "after")
        for error in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS")
    ]
    assert values(wired, "refused") == [b"before", b"again before", *[b"after"] * 2, b"again after"], (
        "without idempotence twice"
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_is_answered_with_the_error_that_was_asked_for(wired: Cluster, protocol: str) -> None:
    reader = Consumer(wired.wire.client(group_id=f"refused-{protocol}", group_protocol=protocol))
    reader.subscribe(["seen"])
    message = first(reader)
    error = {"classic": "ILLEGAL_GENERATION", "consumer": "STALE_MEMBER_EPOCH"}[protocol]
    wired.wire.error("OffsetCommit", error, when="before")
    with pytest.raises(KafkaException) as refused:
        reader.commit(message, asynchronous=False)
        reader.commit(message, asynchronous=False)  # a client may try a stale epoch again by itself
        raise KafkaException(None)
    assert refused.value.args[0] is None or refused.value.args[0].name() == error
    assert next(each.error for each in wired.wire.seen() if each.api == "OffsetCommit") == error
    reader.close()


WORKER = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 0, "log_level": 0})
for number in range(3):
    producer.produce(sys.argv[2], b"%d" % number)
    producer.flush()
    print(number, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(("when", "stored"), [("before", 2), ("after", 3)])
def test_a_worker_dies_just_before_or_just_after_the_broker_stores_its_record(
    wired: Cluster, when: str, stored: int
) -> None:
    before = len(values(wired, "killed"))
    command = [sys.executable, "-c", WORKER, wired.wire.bootstrap, "killed"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin and worker.stdout
        assert worker.stdout.readline() == "0\n"
        wired.wire.kill(worker.pid, "Produce", 3, when)
        worker.stdin.write("\n\n\n")
        worker.stdin.flush()
        assert worker.wait(WAIT) == -9
        assert worker.stdout.read() == "1\n"
    assert len(values(wired, "killed")) - before == stored
    assert wired.wire.seen(worker.pid)[-1].accident == f"killed {when}"


def test_a_lost_answer_makes_a_client_send_again(wired: Cluster) -> None:
    wired.wire.drop("Produce")
    patience = int(1000 * PATIENCE)
    quick = {"socket_timeout_ms": patience, "request_timeout_ms": patience, "message_timeout_ms": 60 * patience}
    put(wired.wire, "lost", b"once", enable_idempotence=True, **quick)
    assert [each.accident for each in wired.wire.seen() if each.api == "Produce"] == ["answer lost", ""]
    assert values(wired, "lost") == [b"once"]


def test_a_reader_whose_only_connection_closes_while_it_asks_for_bounds_gets_them(wired: Cluster) -> None:
    """The client forgets its broker then, and starts anew from the bootstrap servers. What it says meanwhile differs."""
    kafka, wire = wired.wire.cluster, wired.wire
    for _ in range(12):
        wire.disconnect("ListOffsets")
        assert list(reading.bounds(kafka, "lost")) == [("lost", 0)]
        assert wire.wait(0)


def test_a_cluster_is_described_although_the_connection_closes_while_it_is_asked(wired: Cluster) -> None:
    kafka, wire = wired.wire.cluster, wired.wire
    kafka.describe()
    for when in ("before", "after") * 6:  # asked only once, half of them would fail
        wire.disconnect("Metadata", when=when)
        assert set(kafka.describe().brokers) == {1}
        assert wire.wait(0)


def test_a_java_client_is_seen_and_gets_over_errors_in_its_newest_versions(wired: Cluster) -> None:
    put(wired, "java", b"one", b"two")
    for api, error, when in (
        ("Fetch", "NOT_LEADER_OR_FOLLOWER", "before"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", "after"),
    ):
        wired.wire.error(api, error, when=when)
    words = ["--topic", "java", "--from-beginning", "--max-messages", "2", "--group", "java"]
    printed = tools.run("console-consumer", words, wired.wire.bootstrap, {}, WAIT)
    assert [line for line in printed.splitlines() if line in ("one", "two")] == ["one", "two"]
    seen = wired.wire.seen("console-consumer")
    accidents = [(each.api, each.error, each.accident) for each in seen if each.accident]
    assert accidents == [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", "error after"),
        ("Fetch", "NOT_LEADER_OR_FOLLOWER", "error before"),
    ]
    assert [each.what for each in seen if each.api == "Fetch" and each.what] == ["java/0 ×2"]
    newest = wired.wire.messages.newest("FindCoordinator")
    assert {each.version for each in seen if each.api == "FindCoordinator"} == {newest}
    if sys.platform == "linux":
        assert len({each.pid for each in seen} - {None}) == 1


def test_a_broker_that_was_stopped_and_started_again_is_reached_through_the_same_wire(wired: Cluster) -> None:
    address = wired.wire.bootstrap
    producer = Producer(wired.wire.client())
    wired.broker(1).stop().start()
    producer.produce("restarted", b"after")
    assert producer.flush(WAIT) == 0
    assert wired.wire.bootstrap == address
    assert values(wired, "restarted") == [b"after"]


def test_a_wrong_value_for_wire_is_refused() -> None:
    for wrong in ("some", -1, 10, 1.5, None):
        with pytest.raises(NotAllowed, match='wire is True, a number of wires from 1 to 9, or "all", not'):
            Cluster(wire=wrong)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    """A cluster with TLS and logins whose own connections are on wires too; a test closes it."""
    with Cluster(wire="all", secure=True) as made:
        yield made


def test_a_copy_is_over_when_its_last_records_can_be_read(secured: Cluster) -> None:
    for name in ("from", "to"):
        create(secured, name)
    put(secured, "from", b"0", b"1", b"2")
    with ThreadPoolExecutor(1) as pool:
        secured.wire.brokers.hold("WriteTxnMarkers")
        copy = pool.submit(copying.copy, secured, "from", secured, "to")
        assert secured.wire.brokers.wait(WAIT)  # the transaction is committed, and its mark is on the way
        with pytest.raises(TimeoutError):
            copy.result(1.0)
        secured.wire.brokers.release()
        assert copy.result(WAIT) == 3
    assert values(secured, "to") == [b"0", b"1", b"2"]


def test_a_wire_carries_tls_and_logins_and_ends_with_its_cluster(
    secured: Cluster, within: Callable[..., float]
) -> None:
    with secured:
        assert {each.api for each in secured.wire.controllers.seen()} >= {"BrokerHeartbeat", "SaslHandshake"}
        create(secured, "secret")
        app: Any = secured.as_user("app")
        through = app.client() | {"bootstrap.servers": secured.wire.bootstrap}
        producer = Producer(through)
        producer.produce("secret", b"x")
        assert producer.flush(WAIT) == 0
        assert [(each.api, each.what) for each in secured.wire.seen() if not each.poll] == [
            ("Produce", "secret/0 ×1, acks=all")
        ]
        came: list[str] = []
        wrong = Producer(through | {"sasl.password": "wrong", "error_cb": lambda error: came.append(error.name())})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=2)
        until(lambda: wrong.poll(0.1) is not None and "_AUTHENTICATION" in came)
        wire, process = secured.wire, psutil.Process(secured.wire._proxy._child.pid)
    within(5, lambda: not process.is_running(), "the proxy is still there")
    with pytest.raises(Closed):
        wire.seen()


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three brokers whose own connections are on wires too."""
    with Cluster(3, wire="all", config={"replica.lag.time.max.ms": 2000}) as made:
        create(made, "copied", 1, 3)
        yield made


def in_sync(cluster: Cluster) -> set[int]:
    return set(cluster.partitions("copied")[0].isrs)


@pytest.mark.nightly  # three brokers; by day tests/unit/test_wire_proxy.py cuts a broker off, and notebook 15 all three
def test_a_broker_that_clients_cannot_reach_is_still_in_the_cluster_and_its_partitions_stay_with_it(
    three: Cluster,
) -> None:
    leader = three.leader("copied", 0)
    three.wire.cut(leader)
    producer = Producer(three.wire.client(message_timeout_ms=3000, socket_timeout_ms=1000))
    failed: list[object] = []
    producer.produce("copied", b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(WAIT)
    assert failed[0] is not None
    assert three.brokers == [1, 2, 3] and three.leader("copied", 0) == leader
    three.wire.heal()
    put(three.wire, "copied", b"y")


@pytest.mark.nightly  # by day the copy above holds up what brokers send each other
def test_a_follower_that_is_cut_from_its_leader_falls_out_of_sync_and_comes_back(
    three: Cluster, within: Callable[..., float]
) -> None:
    within(30, lambda: in_sync(three) == {1, 2, 3})
    leader = three.leader("copied", 0)
    follower = next(number for number in (1, 2, 3) if number != leader)
    assert {each.api for each in three.wire.brokers.seen()} >= {"Fetch"}
    assert {each.api for each in three.wire.controllers.seen()} >= {"BrokerHeartbeat", "Fetch"}
    three.wire.brokers.cut(leader, pid=three.broker(follower).pid)
    producer = Producer(three.client(acks=1))
    producer.produce("copied", b"z")
    assert producer.flush(WAIT) == 0
    within(60, lambda: follower not in in_sync(three), "the follower is still in sync")
    assert three.brokers == [1, 2, 3], "the controller still sees it"
    three.wire.brokers.heal()
    within(60, lambda: in_sync(three) == {1, 2, 3}, "the follower did not come back")


def test_a_purge_that_is_not_answered_may_have_been_stored_and_says_so(wired: Cluster) -> None:
    """The broker stores the marks, and its answer is lost."""
    Plan({"purged": QueueTopic(partitions=1)}).apply(wired, quiet=True)
    with Site(Kafka(wired.wire.bootstrap), "purges") as site:
        # The purge is given up before its connection is, else a second try would be answered.
        patient = int(1_200 * PATIENCE)
        site._sender()._settings |= {"delivery.timeout.ms": patient, "socket.timeout.ms": 2 * patient}
        queue = site.queue("purged")
        queue.put(b"a")
        wired.wire.drop("Produce")
        with pytest.raises(Unreachable) as error:
            queue.purge()
        assert "It may have been stored in 'kq.queues', or not" in str(error.value)
        until(lambda: queue.depth() == 0)
