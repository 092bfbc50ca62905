"""A notebook's first line: fresh topics and groups however often a cell runs, and on one's own cluster nobody else's are touched."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, DeserializingConsumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ResourceType

import kqlib as kq
from kqlib.errors import BadTopicName, Closed, NotAllowed, NotInTime, Unreachable
from kqlib.kafka import Kafka
from kqlib.workshop import lab as place, snapshot
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.lab import Lab
from tests.patience import PATIENCE, WAIT, until
from tests.promises.play import committed, put, setting, topics, values


@contextlib.contextmanager
def reading(kafka: Any, topic: str, pause: float = 0) -> Iterator[threading.Thread]:
    """A thread that polls in a loop, as a cell with a background reader does."""
    reader, stop = Consumer(kafka.client(group_id=f"reading-{topic}-{pause}")), threading.Event()
    reader.subscribe([topic])

    def loop() -> None:
        with contextlib.suppress(RuntimeError):  # closed elsewhere
            while not stop.is_set():
                reader.poll(0.1)
                time.sleep(pause)

    thread = threading.Thread(target=loop, daemon=True)
    try:
        while not reader.assignment():
            reader.poll(0.1)
        thread.start()
        yield thread
    finally:
        stop.set()
        if thread.ident:
            thread.join(WAIT)
        with contextlib.suppress(RuntimeError):
            reader.close()


@pytest.fixture(scope="module")
def lab(kq_cluster: Kafka) -> Iterator[Lab]:
    """An embedded lab; its tests take a topic of their own each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KQ_BOOTSTRAP", raising=False)
        patch.delenv("KQ_KAFKA_CONFIG", raising=False)
        with kq.lab("90-embedded") as made:
            yield made


# --- names, waiting, chance -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", None, "two words", "a.b", "a\n"])
def test_a_lab_that_has_no_notebooks_name_is_refused_before_anything_starts(monkeypatch, name):
    monkeypatch.setattr(place, "Cluster", lambda *_, **__: pytest.fail("it started"))
    with pytest.raises(NotAllowed, match="a lab's name is its notebook's"):
        kq.lab(name)


@pytest.mark.parametrize("name", ["", "a b", "__consumer_offsets"])
def test_a_topic_that_cannot_be_named_so_is_refused_with_the_rule(lab: Lab, name: str) -> None:
    before = topics(lab.cluster)
    with pytest.raises(BadTopicName):
        lab.topic(name)
    assert topics(lab.cluster) == before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"partitions": 0}, "artition"),
        ({"partitions": "two"}, "'refused' was not created"),
        ({"replicas": 2}, "eplication"),
        ({"config": {"retention.ms": "soon"}}, "retention.ms"),
        ({"config": {"no.such.setting": 1}}, "no.such.setting"),
    ],
)
def test_a_topic_that_kafka_does_not_make_says_why(lab: Lab, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(NotAllowed, match=says):
        lab.topic("refused", **wrong)
    assert "refused" not in topics(lab.cluster)


def test_a_broker_that_does_not_answer_is_not_yet(lab: Lab) -> None:
    def nowhere() -> None:
        raise Unreachable(address="127.0.0.1:1", why="nobody there")

    def moving() -> None:
        raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))

    answers = iter([nowhere, moving, lambda: "there"])

    def asked() -> str | None:
        return next(answers)()

    assert lab.until(asked) == "there"
    waited = re.escape(
        f"Waited {0.1 * PATIENCE:g} s for an answer; it did not happen. Last seen: No Kafka answered at 127"
    )
    with pytest.raises(NotInTime, match=waited):
        lab.until(nowhere, 0.1, "an answer")
    with pytest.raises(ZeroDivisionError):
        lab.until(lambda: 1 / 0)


# --- an embedded lab --------------------------------------------------------------------------------------------------


def test_an_embedded_labs_topic_has_its_plain_name_its_partitions_and_its_settings(lab: Lab) -> None:
    assert lab.topic("plain", 3, config={"retention.ms": 60_000}) == "plain"
    assert len(lab.admin.list_topics("plain", timeout=WAIT).topics["plain"].partitions) == 3
    assert [lab.cluster.leader("plain", number) for number in range(3)] == [1, 1, 1]
    assert lab.group("plain") == "plain"
    assert "plain" in lab.kafka("topics", "--list").split()
    assert repr(lab) == "Lab('90-embedded', Cluster(1 broker))"


def test_a_cell_run_again_gets_an_empty_topic_and_its_open_reader_is_closed(lab: Lab) -> None:
    other = lab.topic("other")
    bystander = Consumer(lab.client(group_id="bystander"))
    bystander.assign([TopicPartition(other, 0, 0)])
    for partitions in (2, 3):
        topic = lab.topic("again", partitions)
        assert values(lab.cluster, topic) == []
        assert set(snapshot.records(lab.cluster, topic)) == set(range(partitions))
        put(lab, topic, b"old")
        reader = Consumer(lab.client(group_id="again"))
        reader.subscribe([topic])
        message = reader.poll(WAIT)
        assert message is not None and message.value() == b"old"
    assert lab.topic("again") == "again"
    with pytest.raises(RuntimeError, match="closed"):
        reader.poll(0)
    assert values(lab.cluster, "again") == []
    assert bystander.assignment()  # it reads another topic: nobody closed it
    bystander.close()


def test_a_cell_run_again_closes_readers_made_from_the_labs_own_settings_and_no_others(
    lab: Lab, kq_cluster: Kafka, kq_topic: str
) -> None:
    topic, other = lab.topic(kq_topic), Lab("97-other", kq_cluster)  # another cluster, with a topic of the same name
    made = [
        Consumer(lab.client(group_id="mine")),
        Consumer(lab.client() | {"group.id": "mine"}),
        DeserializingConsumer({**lab.client(), "group.id": "mine"}),
        Consumer({"bootstrap.servers": lab.cluster.bootstrap, "group.id": "other"}),
        Consumer(lab.cluster.client(group_id="a-site")),
        Consumer(kq_cluster.client(group_id="elsewhere")),
        Consumer(other.client(group_id="another-lab")),
    ]
    for reader in made:
        reader.assign([TopicPartition(topic, 0, 0)])
    lab.topic(kq_topic)
    closed = []
    for reader in made:
        try:
            closed.append(not reader.assignment())
            reader.close()
        except RuntimeError:
            closed.append(True)
    assert closed == [True] * 3 + [False] * 4


def test_a_reader_that_nobody_refers_to_any_more_is_not_kept_by_the_lab(lab: Lab) -> None:
    class Reader(Consumer):
        """A reader to which one can refer weakly."""

    topic = lab.topic("forgotten")
    reader = Reader(lab.client(group_id="forgotten"))
    reader.assign([TopicPartition(topic, 0, 0)])
    known = weakref.ref(reader)
    lab.topic("another")  # the lab looks at its readers
    lab.topic("another")
    assert lab._mark.on(reader)
    assert reader.assignment()
    del reader
    gc.collect()
    assert known() is None


def test_a_reader_in_another_thread_is_closed_if_it_pauses_and_holds_nothing_up_if_it_does_not(lab: Lab) -> None:
    for pause in (0.02, 0):
        topic = lab.topic("polled")
        with reading(lab, topic, pause) as thread:
            start = time.monotonic()
            lab.topic("polled")
            assert time.monotonic() - start < 5 * PATIENCE
            if pause:
                thread.join(WAIT)
                assert not thread.is_alive()
            assert values(lab.cluster, topic) == []


def test_a_cell_run_again_gets_a_group_that_has_committed_nothing(lab: Lab) -> None:
    topic = lab.topic("counted")
    put(lab, topic, b"a", b"b")
    for _ in range(2):
        group = lab.group("counters")
        assert committed(lab.cluster, group, topic) is None
        reader = Consumer(lab.client(group_id=group))
        reader.subscribe([topic])
        message = reader.poll(WAIT)
        assert message is not None and message.value() == b"a"
        reader.commit(message, asynchronous=False)
        assert committed(lab.cluster, group, topic) == 1
    lab.group("counters")
    with pytest.raises(RuntimeError, match="closed"):
        reader.poll(0)


def test_a_group_with_a_foreign_member_is_refused_and_not_handed_out_as_fresh(lab: Lab, monkeypatch) -> None:
    topic, wait = lab.topic("busy"), Lab.until
    with monkeypatch.context() as patch, reading(lab, topic, 0.02):
        patch.setattr(Lab, "until", lambda self, condition, _, why: wait(self, condition, 2, why))  # it does not come
        patch.setattr(sys.modules["kqlib.workshop.lab"], "consumers", list)  # the reader is another process's
        with pytest.raises(NotInTime, match="for readers in other threads or processes to leave group 'reading-"):
            lab.group("reading-busy-0.02")
    assert lab.group("reading-busy-0.02") == "reading-busy-0.02"


def test_the_playground_of_brokers_shows_what_became_of_records_when_the_only_one_is_killed(lab: Lab) -> None:
    play = kq.play.brokers(lab)
    assert "10 sent, 10 acknowledged" in play.press("send 10 records").picture.text
    assert "there is no wire between these brokers" in play.press("cut off").note
    assert "1 broker, 1 dead" in play.press("kill").picture.text
    assert "20 sent, 10 acknowledged, 0 failed, 10 on the way" in play.press("send 10 records").picture.text
    play.press("bring back")
    until(lambda: "20 sent, 20 acknowledged" in play.picture.text, lambda: play.picture.text)
    shown = play.press("pause").picture
    assert "broker 1 paused" in shown.text and "…" not in shown.svg
    play.press("bring back")


def test_the_playground_of_nodes_shows_who_answered_and_who_takes_over_when_a_node_is_killed(lab: Lab) -> None:
    play = kq.play.virtual(lab)
    assert play.picture.text.splitlines() == [
        "no request yet · 4 queues · 3 partitions · 3 nodes",
        *("ARS-CHE 0  p0  node A", "LIV-MUN 0  p1  node A", "INT-MIL 0  p2  node A", "BAR-RMA 0  p0  node A"),
    ]
    assert "node A is running; start is for a node that is off or killed" in play.press("start").note
    assert "no item of ARS-CHE is out: claim one first" in play.press("ack").note
    scene = play._draw.__self__
    client = scene.queues["ARS-CHE"].client
    assert "put BAR-RMA: A 201 · " in play.set(queue="BAR-RMA").press("put").picture.text
    play.set(who="B").press("start")
    until(lambda: "node B" in play.picture.text, lambda: play.picture.text)
    assert {*client._seeds} == {*scene.names}  # it finds node B also when node A is dead before B was asked
    moved, stays = ([row[:7] for row in play.picture.text.splitlines()[1:] if row.endswith(node)] for node in "BA")
    client._looked = time.monotonic()  # its map is as it was, however long that took
    assert re.search(f"put {moved[0]}: A 409.* → B 201 · ", play.set(queue=moved[0]).press("put").picture.text)
    play.set(queue=stays[0]).press("put")
    assert f"claim {stays[0]}: A 200, attempt 1" in play.press("claim").picture.text
    play.set(who="A").press("kill")
    assert "node A, killed" in play.picture.text
    assert re.search(rf"put {stays[0]}: A no answer .*→ B 201 · ", play.press("put").picture.text)  # it came through
    assert f"{stays[0]} 2 (1 out)  p" in play.picture.text and "node A, killed" not in play.picture.text
    assert "lease" in play.press("ack").note  # it died with the node
    assert f"claim {stays[0]}: B 200, attempt 2" in play.press("claim").picture.text
    again = kq.play.virtual(lab)  # the cell runs once more
    assert not scene.children._forking.alive and client._closed and "playground is closed" in play.press("put").note
    assert "no request yet" in again.picture.text
    again._draw.__self__.close()


# --- three brokers, of which one is always late -----------------------------------------------------------------------


@contextlib.contextmanager
def stuttering(lab: Lab, seconds: float = 0.2) -> Iterator[None]:
    """One broker after the other stands still for a moment, as on a busy machine; nobody has paused it, so nobody knows."""
    stop = threading.Event()

    def one_after_the_other() -> None:
        for number in itertools.cycle(lab.cluster.running):
            pid = lab.cluster.broker(number).pid
            assert pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
            if stop.wait(seconds / 4):
                return

    thread = threading.Thread(target=one_after_the_other)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def three(three: Cluster) -> Lab:
    made = Lab("91-three", three)
    made.admin.list_consumer_groups(request_timeout=WAIT).result(WAIT)  # now it is connected to all of them
    return made


@pytest.mark.parametrize("times", [2, pytest.param(15, marks=pytest.mark.nightly)])
def test_a_cell_run_again_and_again_meets_no_broker_that_does_not_know_it(three: Lab, times: int) -> None:
    with stuttering(three):
        for _ in range(times):
            topic = three.topic("careful", 3)
            assert [three.cluster.knows(number, topic) for number in (1, 2, 3)] == [True] * 3
            assert "careful" in str(three.draw_cluster(topic))


@pytest.mark.nightly  # by day a broker is stopped in test_cluster, and the lab makes its topic anew beside it
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_topic_is_made_anew_whichever_broker_is_dead(three: Lab, which: int) -> None:
    leading = three.cluster.controller  # 0: the one that leads the controllers
    number = [leading, *(each for each in (1, 2, 3) if each != leading)][which]
    three.topic("made", 3)
    three.cluster.broker(number).kill()
    assert number not in three.cluster.running
    assert set(three.cluster.partitions(three.topic("made", 3))) == {0, 1, 2}
    three.cluster.broker(number).start()
    assert set(three.cluster.partitions(three.topic("made", 3))) == {0, 1, 2}


def test_a_lab_opened_again_is_a_new_cluster_with_the_same_chance_and_the_first_one_is_gone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    monkeypatch.delenv("KQ_KAFKA_CONFIG", raising=False)
    assert setting(lab.cluster, ResourceType.BROKER, "1", "auto.create.topics.enable") == "false"
    with kq.lab("90-embedded", auto_create=True, wire=True) as second:
        drawn = second.random.random(), random.random()
        assert repr(lab) == "Lab('90-embedded', Cluster(closed))"
        for attempt in (lab.client, lambda: lab.topic("a"), lambda: lab.group("a"), lambda: lab.kafka("topics")):
            with pytest.raises(Closed):
                attempt()
        lab.close()  # the old one again: it does not touch the new one
        # nobody has spoken of a group on this cluster: its coordinator is not made yet
        assert "p0" in str(second.draw(second.topic("football"), group="nobody"))
        assert second.group("early") == "early"
        put(second, "football", b"x")
        assert "Produce" in {each.api for each in second.cluster.wire.seen()}, "a lab's clients go through its wire"
        assert setting(second.cluster, ResourceType.BROKER, "1", "auto.create.topics.enable") == "true"
        random.seed(0)
        assert drawn == (Lab("90-embedded", second.cluster).random.random(), random.random())
        folder = Path(second.folder("checkpoint"))
        (folder / "offsets").mkdir()
        assert Path(second.folder("checkpoint")) == folder and not list(folder.iterdir())
        assert Path(second.folder("other")) != folder
    assert second.cluster._closed and not folder.exists()
