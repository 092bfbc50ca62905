"""The embedded Kafka: real brokers to start, stop, kill and pause; an error that says why, and nothing left."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

from kqlib import topics
from kqlib.errors import BrokerDied, Closed, NotAllowed, TopicMissing
from kqlib.kafka import Kafka
from kqlib.kafka.reading import bounds
from kqlib.queue import state
from kqlib.runtime import archive, places, program
from kqlib.topics import Plan, Topic
from kqlib.workshop.cluster import Cluster, node
from kqlib.workshop.cluster.__main__ import record, use
from kqlib.workshop.cluster.embedded import START
from kqlib.workshop.lab import Lab
from tests.patience import PATIENCE, WAIT, until
from tests.promises.play import create, put, setting, values


def litter(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("kqlib-*"))


def test_what_kafka_writes_on_a_new_disk_is_kept_and_every_disk_gets_its_own_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache may be older than this file in it: then any process makes it, with Kafka's own tool and nothing left open."""
    monkeypatch.setattr(node.archive, "home_of", lambda _classpath: tmp_path / "cache")
    nodes = [node.Node(each, 9000 + each, 9100 + each, tmp_path / f"broker-{each}") for each in (1, 2)]
    node.format_disks(nodes, {}, "one-cluster")
    gc.collect()  # a file that was left open would be a warning, and a warning fails a test
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [node.CHECKPOINT]
    written = [(each.data / "meta.properties").read_text() for each in nodes]
    assert all("cluster.id=one-cluster" in text for text in written) and written[0] != written[1]
    assert all((each.data / node.CHECKPOINT).read_bytes() for each in nodes)


@pytest.mark.nightly  # ten seconds, and only what a start costs depends on it
def test_a_broker_finds_the_classes_of_its_work_in_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").symlink_to(places.cache() / "jars")
    monkeypatch.setenv("KQ_CACHE", str(tmp_path))
    archive.make(program.classpath(), record)
    log, command = tmp_path / "classes", node.run_command
    monkeypatch.setattr(
        node, "run_command", lambda one: [*(words := command(one))[:3], f"-Xlog:class+load:{log}", *words[3:]]
    )
    with Cluster() as made:
        use(made)
    found = [line.partition(" source: ")[2] for line in log.read_text().splitlines()]
    assert sum(each.startswith("shared objects") for each in found) > 5_000
    assert sum(each.startswith(("file:", "jrt:")) for each in found) < 60  # 534 of a broker that was only started


# --- wrong arguments are refused before anything starts -----------------------------------------------------------


@pytest.mark.parametrize("brokers", [0, -1, 10, True, "3", 1.0, None, [1]])
def test_a_number_of_brokers_that_cannot_be_is_refused_before_anything_starts(monkeypatch, tmp_path, brokers):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(NotAllowed, match="brokers must be a number from 1 to 9, not"):
        Cluster(brokers)
    assert litter(tmp_path) == []


# --- three brokers ----------------------------------------------------------------------------------------------------


def test_three_brokers_are_three_and_the_lab_settings_are_in_force(three: Cluster) -> None:
    assert three.brokers == [1, 2, 3]
    assert three.controller in {1, 2, 3}
    assert repr(three) == "Cluster(3 brokers)"
    assert repr(three.broker(2)) == "Broker(2, running)"
    settings = {
        "offsets.retention.minutes": str(2**31 - 1),
        "auto.create.topics.enable": "false",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    for number in ("1", "3"):
        found = {key: setting(three, ResourceType.BROKER, number, key) for key in settings}
        assert found == settings
    create(three, "settings")
    assert len(three.admin.list_topics("settings", timeout=WAIT).topics["settings"].partitions[0].replicas) == 3


def test_a_topic_that_nobody_made_is_not_made_by_naming_it(three: Cluster) -> None:
    wrong: list[Any] = []
    producer = Producer(three.client() | {"message.timeout.ms": 1000, "allow.auto.create.topics": True})
    producer.produce("typo", b"x", on_delivery=lambda error, _: wrong.append(error.name()))
    producer.flush(WAIT)
    assert wrong[0] in {"_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART", "_MSG_TIMED_OUT"}
    assert "typo" not in three.admin.list_topics(timeout=WAIT).topics


def test_every_socket_that_listens_is_on_the_loopback(three: Cluster) -> None:
    for number in three.brokers:
        listening = [
            link.laddr.ip
            for link in psutil.Process(three.broker(number).pid).net_connections("inet")
            if link.status == psutil.CONN_LISTEN
        ]
        assert len(listening) >= 2
        assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("number", [0, 4, "1", None])
def test_a_broker_that_is_not_there_cannot_be_had(three: Cluster, number: Any) -> None:
    with pytest.raises(NotAllowed, match="this cluster has brokers 1, 2, 3, not"):
        three.broker(number)


def test_a_leader_is_asked_of_a_partition_that_is_there(three: Cluster) -> None:
    create(three, "led", 2)
    assert {three.leader("led", 0), three.leader("led", 1)} <= {1, 2, 3}
    for partition in (2, -1):
        with pytest.raises(NotAllowed, match="'led' has partitions 0 to 1, not"):
            three.leader("led", partition)
    with pytest.raises(TopicMissing, match="'nobody'"):
        three.leader("nobody", 0)


def test_each_verb_does_to_a_broker_what_it_says_and_one_that_is_away_costs_its_clients_no_cpu(
    three: Cluster, within: Callable[..., float]
) -> None:
    broker = three.broker(next(number for number in (1, 2, 3) if number != three.controller))
    others = sorted({1, 2, 3} - {broker.id})
    first = broker.pid
    assert first is not None

    def status() -> str:
        return psutil.Process(broker.pid).status()

    assert broker.start().pid == first  # it runs already
    assert broker.pause() is broker
    assert (broker.state, broker.alive, repr(broker)) == ("paused", True, f"Broker({broker.id}, paused)")
    assert status() == psutil.STATUS_STOPPED  # not only soon
    broker.resume()
    assert (broker.state, broker.alive) == ("running", True)
    within(60, lambda: status() != psutil.STATUS_STOPPED)
    within(60, lambda: three.brokers == [1, 2, 3])
    broker.pause().start()
    assert (broker.state, broker.pid) == ("running", first)
    Plan({"football": Topic(partitions=1)}).apply(three, quiet=True)
    clients = [Kafka(three.bootstrap) for _ in range(16)]
    for each in clients:
        each.describe()

    # its controller lets it go when the others' heartbeats have shown the handover: on a busy machine not within 15 s
    assert broker.stop(timeout=WAIT) is broker
    assert (broker.state, broker.alive, broker.pid) == ("stopped", False, None)
    assert "Shutdown completed" in broker.log.read_text()
    within(60, lambda: three.brokers == others)
    assert not psutil.pid_exists(first)
    # a client that took it for the controller tried to connect 10,000 times a second: 2.5 s of CPU in 3 s
    begun, since = time.process_time(), time.monotonic()
    for each in clients:
        assert list(state.topic_ids(each, ["football"], 10 * PATIENCE)) == ["football"]
        assert topics.partitions_of(each, "football") == 1
    assert time.process_time() - begun < 1 + (time.monotonic() - since) / 3
    lab = Lab("92-cluster", three)
    for _ in range(2):  # made, and made anew; at night beside each broker that is dead
        assert set(three.partitions(lab.topic("made", 3))) == {0, 1, 2}
    broker.stop().kill()  # nothing to do is no error
    for verb in (broker.pause, broker.resume):
        with pytest.raises(NotAllowed, match=f"broker {broker.id} does not run; start"):
            verb()
    assert broker.start().state == "running"
    assert three.brokers == [1, 2, 3]
    assert broker.pid != first

    broker.pause().kill()
    assert (broker.state, broker.alive) == ("stopped", False)
    broker.start()  # at once: the cluster still takes the dead one for alive
    assert three.brokers == [1, 2, 3]


@pytest.mark.nightly  # by day notebook 02 kills a leader
def test_a_killed_leader_is_replaced_and_no_record_that_was_confirmed_is_lost(
    three: Cluster, within: Callable[..., float]
) -> None:
    create(three, "kept", 1, 3)
    put(three, "kept", b"a", b"b")
    old = three.leader("kept", 0)
    assert old is not None
    three.broker(old).kill()
    within(60, lambda: three.leader("kept", 0) not in (old, None))
    put(three, "kept", b"c")

    rest = [number for number in (1, 2, 3) if number != old]
    for number in rest:  # one of three, then none: no majority decides anything any more
        three.broker(number).kill()
        assert not three.has_quorum()
    start = time.monotonic()
    three.broker(old).start()
    assert (
        time.monotonic() - start < 15 * PATIENCE
    )  # it does not wait for a cluster that cannot be: that would take 30 s
    assert three.broker(old).state == "running"
    three.broker(rest[0]).start()  # two of three: a majority
    assert three.has_quorum()
    within(60, lambda: set(three.brokers) == {old, rest[0]})
    three.broker(rest[1]).start()
    assert three.brokers == [1, 2, 3]
    within(60, lambda: three.leader("kept", 0) is not None)
    assert values(three, "kept") == [b"a", b"b", b"c"]


# --- one broker -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"log.dirs": "/proc/no/such/place"}, "/proc/no/such/place"),  # the disk cannot be formatted
        ({"authorizer.class.name": "no.such.Authorizer"}, "no.such.Authorizer"),  # the broker cannot start
    ],
)
def test_a_broker_that_dies_at_birth_says_why_with_the_end_of_its_log_and_leaves_nothing(
    monkeypatch, tmp_path, marked, config, says
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(BrokerDied) as caught:
        Cluster(config=config)
    assert time.monotonic() - start < START / 2  # nobody waited for the end of the patience
    assert says in str(caught.value)
    assert "exit code 1" in str(caught.value) or "cannot be formatted" in str(caught.value)
    assert marked.alive() == []
    assert litter(tmp_path) == []


def test_a_disk_in_use_is_not_formatted(tmp_path):
    theirs = tmp_path / "theirs" / "meta.properties"
    theirs.parent.mkdir()
    theirs.write_text("version=1\nnode.id=7\n")
    with pytest.raises(BrokerDied, match=r"its disk .* cannot be formatted") as caught:
        Cluster(config={"log.dirs": theirs.parent})
    assert str(theirs) in str(caught.value)
    assert theirs.read_text() == "version=1\nnode.id=7\n"


def is_closed_and_says_so(made: Cluster) -> None:
    """A closed cluster can be closed again, and nothing else."""
    made.close()
    assert repr(made) == "Cluster(closed)"
    broker = made._brokers[1]
    assert (broker.state, broker.alive, broker.pid) == ("stopped", False, None)
    tries: list[Callable[[], Any]] = [
        made.client,
        made.describe,
        lambda: made.admin,
        lambda: made.brokers,
        lambda: made.controller,
        lambda: made.leader("t", 0),
        lambda: made.kafka("topics", "--list"),
        lambda: made.broker(1),
        lambda: made.as_user("app"),
        broker.start,
        broker.pause,
        broker.resume,
    ]
    for number, attempt in enumerate(tries):
        with pytest.raises(Closed, match=r"^This cluster is closed\. Make a new one\.$"):
            attempt()
            pytest.fail(f"try {number} worked")
    broker.stop().kill()  # it is down: that is what was asked for


def test_a_start_that_is_interrupted_leaves_nothing_and_a_closed_cluster_says_that_it_is(monkeypatch, tmp_path, marked):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started = []

    def interrupt(self: Cluster, *_: Any) -> None:
        started.append((self, until(lambda: self.broker(1).pid)))
        raise KeyboardInterrupt

    monkeypatch.setattr(Cluster, "wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Cluster()
    made, pid = started[0]
    assert not psutil.pid_exists(pid)
    assert marked.alive() == []
    assert litter(tmp_path) == []
    is_closed_and_says_so(made)


def test_a_cluster_beside_others_draws_a_taken_port_again_and_ends_when_nobody_holds_it_any_more(
    kq_cluster: Kafka, marked: Any, within: Callable[..., float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is taken by a broker with the same number, which answers in its place."""
    draw, draws = node.free_ports, []
    taken = int(kq_cluster.bootstrap.rpartition(":")[2])

    def unlucky(count: int) -> list[int]:
        draws.append(draw(count))
        return [taken, *draws[-1][1:]] if len(draws) == 1 else draws[-1]

    monkeypatch.setattr(node, "free_ports", unlucky)
    made = Cluster(auto_create=True)
    assert len(draws) >= 2  # a third time if a cluster beside it was quicker
    assert (made.bootstrap, made.brokers, repr(made)) == (f"127.0.0.1:{draws[-1][0]}", [1], "Cluster(1 broker)")
    with pytest.raises(NotAllowed, match="no users; make it with secure=True"):
        made.as_user("app")
    put(made, "only-here", b"x", allow_auto_create_topics=True)  # made by naming it
    assert "only-here" not in kq_cluster.admin.list_topics(timeout=WAIT).topics
    home, pid = made.home, made.broker(1).pid
    assert len(marked.alive("kafka.Kafka")) == 1
    assert home.stat().st_mode & 0o077 == 0
    del made
    gc.collect()
    within(3, lambda: not psutil.pid_exists(pid) and not home.exists() and not marked.alive())
    assert kq_cluster.brokers == [1]


def test_a_tool_that_works_until_it_is_ended_finds_its_cluster_and_can_be_killed(
    kq_cluster: Any, kq_topic: str, within: Callable[..., float]
) -> None:
    writer = kq_cluster.start_tool("verifiable-producer", "--topic", kq_topic)
    try:
        within(30, lambda: bounds(kq_cluster, kq_topic)[kq_topic, 0][1] > 0)
        assert writer.alive
    finally:
        writer.kill()
    assert not writer.alive
