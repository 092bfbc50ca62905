"""What groups promise, on a real Kafka: when they are settled, who is put out, and that no member is left behind.

Who holds what, a crash, what stands still in each protocol, and static members: the stored outputs of notebook 04.
"""

from __future__ import annotations

import gc
import html
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ResourceType

import kqlib as kq
from kqlib.errors import Closed, NotAllowed, NotInTime, TopicMissing, Unreachable
from kqlib.kafka import Kafka
from kqlib.kafka.writing import write
from kqlib.workshop.groups import Group, assignment, lag
from tests.patience import PATIENCE, WAIT, until
from tests.promises.play import configure, put

SESSION = 2.0 * PATIENCE  # seconds, where a test waits for its end
SOON = 30.0  # seconds, on the slowest machine: where a member does not leave, its session of 45 s is waited for


def processes(*groups: Group) -> set[int]:
    """The members' processes that run."""
    pids = {member._fork.pid for group in groups for member in group._members.values()}
    return {pid for pid in pids if not gone({pid})}


def gone(pids: set[int]) -> bool:
    return not any(runs(pid) for pid in pids)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # also one that ends between the two questions
        return False


# --- who holds what ------------------------------------------------------------------------------------------------------


def test_a_group_that_settles_asks_again_when_no_broker_answers(
    kq_cluster: Kafka, kq_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Group(kq_cluster, kq_topic, kq_topic) as group:
        group.join()
        describe, asked = kq_cluster.describe, []

        def once_silent(*how: float) -> object:
            asked.append(how)
            if len(asked) == 1:
                raise Unreachable(address=kq_cluster.bootstrap, why="no answer")
            return describe(*how)

        monkeypatch.setattr(kq_cluster, "describe", once_silent)
        assert group.settle().sizes == (1,)
        assert len(asked) > 1


@pytest.mark.kq_partitions(4)
def test_what_settle_returns_was_settled_although_the_next_change_has_begun(
    kq_cluster: Kafka, kq_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Group(kq_cluster, kq_topic, kq_topic) as group:
        group.join(2)
        member, settled = next(iter(group._members.values())), group._is_settled
        before = set(member.held)

        def then_it_changes() -> bool:
            """The group settles, and a member gives up everything for a moment: once."""
            answer = settled()
            if answer:
                monkeypatch.setattr(group, "_is_settled", settled)
                member.held = set()
                threading.Timer(0.3, setattr, [member, "held", before]).start()
            return answer

        monkeypatch.setattr(group, "_is_settled", then_it_changes)
        assert group.settle().sizes == (2, 2)


def test_lag_counts_from_what_the_log_still_has(kq_cluster: Kafka, kq_topic: str) -> None:
    put(kq_cluster, kq_topic, *[b"goal"] * 10)
    part = TopicPartition(kq_topic, 0, 4)
    kq_cluster.admin.delete_records([part])[TopicPartition(kq_topic, 0)].result(WAIT)
    assert lag(kq_cluster, kq_topic, kq_topic).sizes == (6,)
    for committed, left in ((2, 6), (7, 3), (10, 0)):
        reader = Consumer(kq_cluster.client(group_id=kq_topic, group_protocol="classic"))
        reader.commit(offsets=[TopicPartition(kq_topic, 0, committed)], asynchronous=False)
        reader.close()
        assert lag(kq_cluster, kq_topic, kq_topic).sizes == (left,)


@pytest.mark.kq_partitions(2)
def test_a_member_busy_for_longer_than_allowed_is_put_out_and_finds_out_when_it_is_back(
    kq_cluster: Kafka, kq_topic: str
) -> None:
    with Group(kq_cluster, kq_topic, kq_topic, session=SESSION, max_poll=SESSION, protocol="eager") as group:
        group.join("ann", "ben")
        group.pause("ann")
        assert group.settle().sizes == (1, 1)  # its heart beats: it is a member
        until(lambda: {*assignment(kq_cluster, kq_topic, kq_topic).held} == {"ben"})
        both = group.settle()
        assert repr(both).endswith("1 with two owners")  # ann believes that she still has one
        assert group.resume().sizes == (1, 1)
        group.pause("ann", "ben")
        assert group.settle().busy == {"ann", "ben"}  # nobody polls, so there is nothing to wait for
        assert [stop.what for stop in group.timeline().stops][:4] == [
            "ann, ben join",
            "ann is busy",
            "ann put out",
            "ann is back",
        ]


# --- no member is left behind ----------------------------------------------------------------------------------------------


def test_a_group_made_again_under_its_name_closes_the_one_before(kq_cluster: Kafka, kq_topic: str) -> None:
    one = Group(kq_cluster, kq_topic, kq_topic)
    one.join(2)
    pids = processes(one)
    assert all(os.getpgid(pid) != os.getpgid(0) for pid in pids)  # Jupyter's stop button is not for them
    with Group(kq_cluster, kq_topic, kq_topic) as two:
        assert len(pids) == 2 and gone(pids) and one.members == []
        with pytest.raises(Closed):
            one.join()
        began = time.monotonic()
        assert two.join().sizes == (1,)
        assert time.monotonic() - began < SOON  # the old ones have left: nobody waits for their session


def test_a_dropped_group_and_a_closed_cluster_leave_no_process(kq_cluster: Kafka, kq_topic: str) -> None:
    dropped = Group(kq_cluster, kq_topic, kq_topic)
    dropped.join(2, wait=False)
    pids = processes(dropped)
    assert len(pids) == 2
    del dropped
    gc.collect()
    until(lambda: gone(pids))
    with Kafka(kq_cluster.bootstrap) as other:
        group = Group(other, kq_topic, kq_topic)
        group.join(wait=False)
        assert len(processes(group)) == 1
    until(lambda: not processes(group))
    until(lambda: group.members == [])  # its thread reads the end of the process


def test_a_lab_begins_its_group_anew_and_takes_its_members_along_when_it_closes(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    with kq.lab("test-groups") as lab:

        def cell() -> Group:
            football = lab.topic("football", partitions=2)
            scores = Group(lab, "scores", football)
            scores.join()
            put(lab.cluster, football, *({"value": b"goal", "partition": number % 2} for number in range(10)))
            until(lambda: scores.work.times == 10 and scores.lag().total == 0)
            return scores

        kept = [cell(), cell()]
        assert [group.work.again for group in kept] == [0, 0]
        assert len(processes(*kept)) == 1
    until(lambda: not processes(*kept))


def test_a_playground_shows_what_its_buttons_have_done(kq_cluster: Kafka) -> None:
    play = kq.play.group(kq_cluster)
    assert play.picture.text.splitlines() == ["playground · 1 member · 4 partitions · lag 0", "ann  p0 · p1 · p2 · p3"]
    assert "2 members" in play.press("join").picture.text
    assert "'ben' is in group 'playground' already" in html.unescape(play.press("join").note)
    assert "ben joins" in play.set(see="over time").picture.text
    assert "1 member ·" in play.set(see="now").press("leave").picture.text
    configure(kq_cluster, ResourceType.TOPIC, "playground", max_message_bytes="1")
    # the brokers learn it a moment later
    until(lambda: "too large" in write(kq_cluster, [{"topic": "playground", "value": b"goal"}], WAIT))
    assert "the records could not be stored: Broker: Message size too large" in play.press("put 1000 records").note
    with Group(kq_cluster, "playground", "playground") as group:  # the next of this name closes the playground's
        assert group.join().sizes == (4,)
    kq_cluster.admin.delete_topics(["playground"])["playground"].result(WAIT)


# --- wrong arguments -------------------------------------------------------------------------------------------------------


def test_wrong_arguments_get_a_sentence(kq_cluster: Kafka, kq_topic: str) -> None:
    with pytest.raises(TopicMissing, match="'nowhere' does not exist"):
        Group(kq_cluster, kq_topic, "nowhere")
    with Group(kq_cluster, kq_topic, kq_topic, session=SESSION) as group:
        group.join("ann", "ben")
        group.crash("ann", wait=False)
        group.leave("ben", wait=False)
        wrong: dict[str, Callable[[], object]] = {
            "who joins? So many, from 1 on, or names; not 0": lambda: group.join(0),
            "not True": lambda: group.join(True),
            "not 1.5": lambda: group.join(1.5),  # type: ignore[arg-type]
            "a Group has 16 members at the most, for each is a process on this machine; 0 are in it": lambda: (
                group.join(17)
            ),
            "a member's name is made of letters": lambda: group.join("a b"),
            "'cem' is in group": lambda: group.join("cem", "cem"),
            "'ann' has crashed; nobody is in group": lambda: group.pause("ann"),
            "'ben' has left": lambda: group.crash("ben"),
            "'zoe' is not here": lambda: group.leave("zoe"),
            "who? Say a name; nobody is in group": group.pause,
            "a member must join() first": group.resume,
        }
        for words, ask in wrong.items():
            with pytest.raises(NotAllowed, match=re.escape(words)):
                ask()
    with pytest.raises(Closed, match="This group is closed"):
        group.join()
    with pytest.raises(TopicMissing):
        lag(kq_cluster, kq_topic, "nowhere")
    with pytest.raises(NotAllowed, match=r"a group reads topics: Group\(lab, 'scores', 'football'\)"):
        Group(kq_cluster, kq_topic)
    with pytest.raises(NotAllowed, match=r"'\^\(' is not a regular expression"):
        Group(kq_cluster, kq_topic, "^(")
    with pytest.raises(NotAllowed, match="a topic is a name"):
        Group(kq_cluster, kq_topic, 7)  # type: ignore[arg-type]


def test_what_the_cluster_refuses_is_reported_in_its_words(kq_cluster: Kafka, kq_topic: str) -> None:
    with pytest.raises(NotAllowed, match=f"the clocks of group '{kq_topic}' were not set: .*min.session.timeout.ms"):
        Group(kq_cluster, kq_topic, kq_topic, session=0.5)
    foreign = Consumer(kq_cluster.client(group_id=kq_topic, partition_assignment_strategy="roundrobin"))
    foreign.subscribe([kq_topic])
    until(lambda: foreign.poll(0.1) or foreign.assignment())
    try:
        with Group(kq_cluster, kq_topic, kq_topic, protocol="eager") as group:
            with pytest.raises(NotAllowed, match=f"ann cannot be in group '{kq_topic}': .*nconsistent"):
                group.join()
            assert group.members == []
            group._extra["session.timeout.ms"] = 500
            with pytest.raises(NotAllowed, match=r"ann cannot be in group .*session timeout"):
                group.join()
    finally:
        foreign.close()


def test_a_group_that_does_not_settle_says_what_was_seen_last(kq_cluster: Kafka, kq_topic: str) -> None:
    foreign = Consumer(kq_cluster.client(group_id=kq_topic))
    foreign.subscribe([kq_topic])
    until(lambda: foreign.poll(0.1) or foreign.assignment())  # else ann gets all there is, and the group settles
    try:
        with Group(kq_cluster, kq_topic, kq_topic) as group:
            group.join(wait=False)
            with pytest.raises(
                NotInTime, match=f"Waited 0.5 s for group '{kq_topic}' to settle.*1 member, 1 partition"
            ):
                group.settle(0.5)
    finally:
        foreign.close()
