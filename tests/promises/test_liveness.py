"""Every live member owns its share within its session + 5 s, whatever happened: nodes of virtual queues and sites of a queue.

200 storms of each kind are in `tests/faults/test_storms.py`.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from confluent_kafka import TopicPartition

from kqlib.kafka import Kafka
from kqlib.queue.broker_settings import alter_group
from kqlib.queue.session import Session
from kqlib.topics import Plan, QueueTopic
from kqlib.virtual import member as membership
from kqlib.virtual.member import OUT, GroupMember
from kqlib.virtual.names import topics
from kqlib.virtual.node import Node
from kqlib.virtual.writer import PartitionWriter
from kqlib.workshop.cluster import Cluster
from tests.faults.storm import PARTITIONS, PROMISED, Storm, storms
from tests.faults.storm_member import NodeMember, SiteMember
from tests.patience import PATIENCE, WAIT

Within = Callable[..., float]
UNHEARD = 10.0  # seconds: the session where answers to heartbeats are lost


@pytest.mark.parametrize("kind", ["node", "site"])
def test_a_member_whose_client_is_dead_for_good_joins_again_with_another(
    kq_cluster: Kafka, within: Within, kind: str
) -> None:
    """Its group was deleted while it was stopped. The coordinator then refuses its heartbeat, and the client never sends one again."""
    with Storm(kq_cluster, kind, 0, session=1.0) as storm:
        member = storm.join()
        storm.calm(within, 30)
        member.signal(signal.SIGSTOP)
        within(1.0 + PROMISED, lambda: storm.dealt() == {}, "the stopped member is still in its group")
        kq_cluster.admin.delete_consumer_groups([storm.group])[storm.group].result(WAIT)
        member.signal(signal.SIGCONT)
        storm.calm(within)


def test_a_takeover_that_comes_late_does_not_keep_a_partition_from_its_owner(
    kq_cluster: Kafka, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starved node fences the owner after it has given the partition up. The owner is idle, so its own writes do not tell it."""
    name = f"late-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 2)).apply(kq_cluster, quiet=True)
    begin, go_on, held = PartitionWriter.begin, threading.Event(), dict[str, PartitionWriter]()

    def late(writer: PartitionWriter) -> None:
        """The first takeover of each partition stands still, just before it fences."""
        if held.setdefault(str(writer.partition), writer) is writer:
            go_on.wait(WAIT)
        begin(writer)

    monkeypatch.setattr(PartitionWriter, "begin", late)
    monkeypatch.setattr(membership, "LEAVE", 0.1)
    session = 2.0 * PATIENCE  # nobody who only stands still for a moment loses what it owns
    with Node(kq_cluster, name, session=session) as first:
        within(10, lambda: len(held) == 2, "the first node was given no partitions")
        with Node(kq_cluster, name) as second:
            within(10, lambda: second.owned, "the second node was given nothing")
            (ours,) = second.owned
            assert first.owned == []
            before = second.server(ours).epoch
            go_on.set()  # now the first node fences the second one, too
            within(
                10,
                lambda: (now := first.map.owners.get(ours)) and now.epoch > before,
                "the first node did not come late",
            )
            within(2.0 + PROMISED, lambda: second.owned == [ours] and named(first, ours) == second.id, "not taken back")
            within(2.0 + PROMISED, lambda: first.owned == [1 - ours], "the first node has not got its share")


@pytest.fixture
def still() -> Iterator[Cluster]:
    """A cluster whose broker may stand still for longer than a client waits for an answer to a heartbeat, which is a second here.

    What it says in such an answer is lost: the client throws it away, and the broker says it only once.
    """
    with Cluster(config={"broker.session.timeout.ms": "30000"}) as cluster:
        yield cluster


def stand(cluster: Cluster) -> None:
    """Longer than that: at most one second until a heartbeat, and two until its answer is given up."""
    cluster.broker(1).pause()
    time.sleep(3.2)
    cluster.broker(1).resume()


def group_of(cluster: Cluster, kind: str, name: str, partitions: int) -> str:
    """The topics of some members; the name of their group, which has its clocks."""
    plan = topics(name, partitions) if kind == "node" else {name: QueueTopic(partitions=partitions)}
    Plan(plan).apply(cluster, quiet=True)
    clocks = {"consumer.session.timeout.ms": int(UNHEARD * PATIENCE * 1000), "consumer.heartbeat.interval.ms": 1000}
    group = f"kq-virtual-{name}" if kind == "node" else name
    alter_group(cluster, group, clocks)
    return group


class One:
    """A member, in this process."""

    made = count(1)

    def __init__(self, cluster: Cluster, kind: str, name: str) -> None:
        number = next(self.made)
        address = ",".join([cluster.bootstrap] * number)  # a process has one site of a name and an address
        member = SiteMember if kind == "site" else NodeMember
        self.kind, self.here = kind, cast(Any, member)(Kafka(address, {"client.id": f"one-{number}"}), name)

    @property
    def inner(self) -> Any:
        """What talks to the group."""
        return self.here.site._session if self.kind == "site" else self.here.node._member

    @property
    def many(self) -> int:
        """How many partitions it has."""
        return len(self.here.look()["owned"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.here.leave()


def shares(*members: One) -> list[int]:
    """How many partitions each has."""
    return [member.many for member in members]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["node", "site"])
def test_a_member_that_did_not_hear_what_it_is_to_give_up_keeps_nobody_from_its_share(
    still: Cluster, within: Within, kind: str
) -> None:
    """The coordinator waits for it, and it knows nothing of that."""
    group, lost = group_of(still, kind, "taken", 2), False

    def members() -> int:
        return len(still.admin.describe_consumer_groups([group], request_timeout=WAIT)[group].result(WAIT + 1).members)

    with One(still, kind, "taken") as first:
        while not lost:  # its heartbeat may have come between the second member and the stop
            within(30, lambda: shares(first) == [2], "one member does not own all")
            with One(still, kind, "taken") as second:
                within(10, lambda: members() == 2, "the second member did not join")
                stand(still)
                took = within(UNHEARD + PROMISED, lambda: shares(first, second) == [1, 1], "no share")
                lost = took > OUT - 1.0


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["node", "site"])
def test_a_member_that_did_not_hear_what_it_is_given_gets_it(
    still: Cluster, within: Within, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It owns something, so its heartbeats do not ask for the whole. The coordinator counts it as the owner of what nobody serves."""
    group_of(still, kind, "given", 6)
    of, gives_up = (Session, "_commit_last") if kind == "site" else (GroupMember, "_give_up")
    give_up, on_assign = getattr(of, gives_up), of._on_assign
    slow, done, lost = list[Any](), threading.Event(), False

    def later(member: Any, partitions: Any) -> None:
        give_up(member, partitions)
        if member in slow:
            time.sleep(3.0)  # meanwhile the new member has been given another one's

    def then(member: Any, consumer: Any, parts: list[Any]) -> None:
        on_assign(member, consumer, parts)
        if member in slow:
            done.set()

    monkeypatch.setattr(of, gives_up, later)
    monkeypatch.setattr(of, "_on_assign", then)
    with One(still, kind, "given") as first, One(still, kind, "given") as second:
        while not lost:
            slow.clear()
            within(30, lambda: shares(first, second) == [3, 3], "two members do not own all")
            done.clear()
            slow.append(second.inner)
            with One(still, kind, "given") as third:
                assert done.wait(WAIT), "nothing was taken from the slow one"
                time.sleep(0.03)  # it says so
                stand(still)
                took = within(UNHEARD + PROMISED, lambda: shares(first, second, third) == [2, 2, 2], "no share")
                slow.clear()
                lost = took > 3.0


def named(node: Node, partition: int) -> Any:
    """Who owns a partition, as a node's map says."""
    owner = node.map.owners.get(partition)
    return owner and owner.node


@pytest.mark.parametrize("kind", ["node", "site"])
def test_after_a_storm_every_live_member_owns_its_share(kq_cluster: Kafka, within: Within, kind: str) -> None:
    """Members that join, leave, are killed and stopped, several at once."""
    assert len(storms(kq_cluster, kind, range(2), within, at_once=2, blows=3)) == 2


def test_a_storm_sees_a_site_that_reads_other_partitions_than_it_gives_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else agrees: what the site gives out is what the coordinator says."""
    dealt, read = list(range(PARTITIONS)), list(range(PARTITIONS))
    monkeypatch.setattr(Storm, "dealt", lambda storm: {"m1": dealt})
    site: Any = SiteMember.__new__(SiteMember)
    consumer = SimpleNamespace(assignment=lambda: [TopicPartition("games", number) for number in read])
    owners = {("games", number): SimpleNamespace(saved=1, dropped=None) for number in dealt}
    inside = SimpleNamespace(changed=threading.Condition(), consumer=consumer, partitions=owners, loadings={})
    site.site, site.name, site.error = SimpleNamespace(_session=inside), "m1", ""
    members: Any = [SimpleNamespace(name="m1", look=site.look)]
    storm = Storm(Kafka("127.0.0.1:1", {}), "site", 0, members=members)
    assert storm.wrong() == ""
    read.pop()
    assert "'map': [0, 1, 2]" in storm.wrong()
