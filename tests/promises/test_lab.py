"""A notebook's first line: fresh topics and groups however often a cell runs, and on one's own cluster nobody else's are touched."""

from __future__ import annotations

import contextlib
import json
import os
import random
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import kqlib as kq
from kqlib import broker, places, shared, snapshot
from kqlib.broker import Kafka
from kqlib.errors import BadTopicName, Closed, NotAllowed, NotInTime
from kqlib.lab import Lab

PATIENCE = 60


def put(kafka: Any, topic: str, *values: bytes) -> None:
    wrong: list[Any] = []
    producer = Producer(kafka.client())
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: wrong.append(error and error.str()))
    assert producer.flush(PATIENCE) == 0
    assert wrong == [None] * len(values)


def values(kafka: Kafka, topic: str) -> list[bytes]:
    return [message.value() for part in snapshot.records(kafka, topic).values() for message in part]


def topics(kafka: Kafka) -> set[str]:
    return set(kafka.admin.list_topics(timeout=PATIENCE).topics)


def committed(kafka: Kafka, group: str, topic: str) -> int | None:
    return snapshot._committed(kafka, group, topic, [0]).get(0)


def commit(kafka: Any, group: str, topic: str, offset: int = 1) -> None:
    """A commit of a group that nobody is in."""
    reader = Consumer(kafka.client(group_id=group, group_protocol="classic"))
    reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    reader.close()


def configured(kafka: Kafka, kind: ResourceType, name: str, **settings: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    kafka.admin.incremental_alter_configs([resource])[resource].result(PATIENCE)


@contextlib.contextmanager
def reading(kafka: Any, topic: str, pause: float = 0) -> Iterator[threading.Thread]:
    """A thread that polls in a loop, as a cell with a background reader does."""
    reader, stop = Consumer(kafka.client(group_id=f"reading-{topic}-{pause}")), threading.Event()
    reader.subscribe([topic])

    def loop() -> None:
        with contextlib.suppress(RuntimeError):  # closed by somebody else
            while not stop.is_set():
                reader.poll(0.1)
                time.sleep(pause)

    thread = threading.Thread(target=loop, daemon=True)
    while not reader.assignment():
        reader.poll(0.1)
    thread.start()
    yield thread
    stop.set()
    thread.join(PATIENCE)
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


@pytest.mark.parametrize("name", ["", None, 3, "two words", "a.b", "a/b", "ü", "a\n"])
def test_a_lab_that_has_no_notebooks_name_is_refused_before_anything_starts(monkeypatch, name):
    monkeypatch.setattr(broker, "Cluster", lambda *_, **__: pytest.fail("it started"))
    with pytest.raises(NotAllowed, match="a lab's name is its notebook's"):
        kq.lab(name)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "x" * 250, "__consumer_offsets"])
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


def test_until_gives_what_it_waited_for_and_says_what_it_saw_when_it_does_not_come(lab: Lab) -> None:
    seen = iter([None, 0, [], "there"])
    assert lab.until(lambda: next(seen)) == "there"
    start = time.monotonic()
    with pytest.raises(NotInTime, match=r"^Waited 0\.3 s for the moon; it did not happen\. Last seen: \{\}$"):
        lab.until(dict, 0.3, "the moon")
    assert 0.3 <= time.monotonic() - start < 5
    with pytest.raises(ZeroDivisionError):
        lab.until(lambda: 1 / 0)


# --- an embedded lab --------------------------------------------------------------------------------------------------


def test_an_embedded_labs_topic_has_its_plain_name_its_partitions_and_its_settings(lab: Lab) -> None:
    assert lab.topic("plain", 3, config={"retention.ms": 60_000}) == "plain"
    assert len(lab.admin.list_topics("plain", timeout=PATIENCE).topics["plain"].partitions) == 3
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
        message = reader.poll(PATIENCE)
        assert message is not None and message.value() == b"old"
    assert lab.topic("again") == "again"
    with pytest.raises(RuntimeError, match="closed"):
        reader.poll(0)
    assert values(lab.cluster, "again") == []
    assert bystander.assignment()  # it reads another topic: nobody closed it
    bystander.close()


def test_a_reader_in_another_thread_is_closed_if_it_pauses_and_holds_nothing_up_if_it_does_not(lab: Lab) -> None:
    for pause in (0.02, 0):
        topic = lab.topic("polled")
        with reading(lab, topic, pause) as thread:
            start = time.monotonic()
            lab.topic("polled")
            assert time.monotonic() - start < 20
            if pause:
                thread.join(PATIENCE)
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
        message = reader.poll(PATIENCE)
        assert message is not None and message.value() == b"a"
        reader.commit(message, asynchronous=False)
        assert committed(lab.cluster, group, topic) == 1
    lab.group("counters")
    with pytest.raises(RuntimeError, match="closed"):
        reader.poll(0)


def test_a_group_that_somebody_else_is_in_is_told_and_not_handed_out_as_fresh(lab: Lab, monkeypatch) -> None:
    topic, wait = lab.topic("busy"), Lab.until
    monkeypatch.setattr(Lab, "until", lambda self, condition, seconds, why: wait(self, condition, min(seconds, 2), why))
    with monkeypatch.context() as patch, reading(lab, topic, 0.02):
        patch.setattr(sys.modules["kqlib.lab"], "_consumers", list)  # the reader is another process's
        with pytest.raises(NotInTime, match="for readers in other threads or processes to leave group 'reading-"):
            lab.group("reading-busy-0.02")
    assert lab.group("reading-busy-0.02") == "reading-busy-0.02"


def test_a_lab_opened_again_is_a_new_cluster_with_the_same_chance_and_the_first_one_is_gone(lab: Lab, monkeypatch) -> None:
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    monkeypatch.delenv("KQ_KAFKA_CONFIG", raising=False)
    drawn, labs = [], []
    for auto_create in (True, False):
        labs.append(kq.lab("91-twice", auto_create=auto_create))
        drawn.append((labs[-1].random.random(), random.random()))
        assert labs[-1].topic("football") == "football"
        # nobody has spoken of a group on this cluster: its coordinator is not made yet
        assert "p0" in str(labs[-1].draw("football", group="nobody"))
        resource = ConfigResource(ResourceType.BROKER, "1")
        found = labs[-1].admin.describe_configs([resource])[resource].result(PATIENCE)
        assert found["auto.create.topics.enable"].value == str(auto_create).lower()
    first, second = labs
    assert drawn[0] == drawn[1]
    assert first.cluster.broker is not None and repr(first) == "Lab('91-twice', Cluster(closed))"
    for attempt in (first.client, lambda: first.topic("a"), lambda: first.group("a"), lambda: first.kafka("topics")):
        with pytest.raises(Closed):
            attempt()
    first.close()
    assert second.cluster.brokers == [1]  # closing the old one again does not touch the new one
    second.close()
    assert lab.cluster.brokers == [1]  # nor a lab of another name


def test_a_picture_shows_what_a_group_has_committed(lab: Lab) -> None:
    topic, group = lab.topic("drawn"), lab.group("drawn")
    put(lab, topic, b"a", b"b", b"c")
    commit(lab, group, topic, 2)
    (lane,) = snapshot.lanes(lab.cluster, topic, group)
    assert (lane.low, lane.end, lane.floor) == (0, 3, 2)
    assert [record.state for record in lane.records] == ["done", "done", "waiting"]
    assert "drawn" in str(lab.draw(topic, group)) and "1" in str(lab.draw_cluster(topic))


# --- a lab on one's own cluster ---------------------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, kq_cluster: Kafka, tmp_path: Path) -> Iterator[Kafka]:
    """The session's cluster, named by KQ_BOOTSTRAP, for a user called anna; what is left in it afterwards is removed."""
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LOGNAME", "anna")
    before = topics(kq_cluster)
    yield kq_cluster
    left = [name for name in topics(kq_cluster) - before if not name.startswith("__")]
    for done in kq_cluster.admin.delete_topics(left).values() if left else []:
        done.result(PATIENCE)


def python(code: str) -> subprocess.Popen[str]:
    """Another process of the same user."""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def noted(kafka: Kafka) -> set[str]:
    kept = {}
    for message in snapshot.records(kafka, shared.TOPIC)[0]:
        kept[message.key()] = message.value()
    return {json.loads(key)[1] for key, value in kept.items() if value is not None}


def test_what_a_lab_makes_on_ones_own_cluster_is_prefixed_noted_and_removed_at_its_end(own: Kafka) -> None:
    with kq.lab("93-own") as lab:
        assert lab.cluster.embedded is False
        assert lab.topic("football", 2) == "93-own.anna.football"
        assert lab.group("readers") == "93-own.anna.readers"
        assert noted(own) == {"93-own.anna.football", "93-own.anna.readers"}
        put(lab, "93-own.anna.football", b"a")
        commit(lab, "93-own.anna.readers", "93-own.anna.football")
        assert lab.topic("football") == "93-own.anna.football"
        assert values(own, "93-own.anna.football") == []
        with pytest.raises(NotAllowed, match="only on an embedded cluster"):
            lab.cluster.broker(1)
        policy = ConfigResource(ResourceType.TOPIC, shared.TOPIC)
        assert own.admin.describe_configs([policy])[policy].result(PATIENCE)["cleanup.policy"].value == "compact"
    assert noted(own) == set()
    assert not [name for name in topics(own) if name.startswith("93-own")]
    assert lab._group("93-own.anna.readers") is None if not lab.cluster._closed else True
    assert own.brokers == [1]


def test_the_next_run_removes_what_a_killed_one_left(own: Kafka) -> None:
    quick = {"consumer_session_timeout_ms": "1000", "consumer_heartbeat_interval_ms": "200"}
    configured(own, ResourceType.GROUP, "94-killed.anna.members", **quick)
    process = python(
        "import kqlib as kq, time; from confluent_kafka import Consumer, Producer, TopicPartition\n"
        "lab = kq.lab('94-killed'); topic = lab.topic('football'); left = lab.topic('left behind'.replace(' ', '-'))\n"
        "producer = Producer(lab.client()); producer.produce(topic, b'old'); producer.flush()\n"
        "reader = Consumer(lab.client(group_id=lab.group('readers'), group_protocol='classic'))\n"
        "reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)\n"
        "member = Consumer(lab.client(group_id=lab.group('members'))); member.subscribe([topic])\n"
        "member.commit(member.poll(60), asynchronous=False)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    assert process.stdout and process.stdout.readline() == "up\n", process.stderr and process.stderr.read()
    assert committed(own, "94-killed.anna.readers", "94-killed.anna.football") == 1
    process.kill()
    process.communicate()
    with kq.lab("94-killed") as lab:
        assert not [name for name in topics(own) if name.startswith("94-killed")]
        # a killed member is one until its session is over: its group is not forgotten, and waited for when it is wanted
        assert noted(own) <= {"94-killed.anna.members"}
        topic = lab.topic("football")
        assert values(own, topic) == []
        for name in ("readers", "members"):
            assert committed(own, lab.group(name), topic) is None
    assert noted(own) == set()


def test_what_no_run_of_this_lab_made_is_left_alone_even_under_its_name(own: Kafka) -> None:
    foreign = ["football", "95-mine.anna.football", "95-mine.bob.football", "95-mine.annabel.football", "95-mine-2.anna.x"]
    for done in own.admin.create_topics([NewTopic(name, 1) for name in foreign]).values():
        done.result(PATIENCE)
    for name in foreign:
        put(own, name, b"precious")
        commit(own, name, name)
    os.environ["LOGNAME"] = "bob"  # bob's own lab of the same name runs, and so does another lab of anna's
    bobs = kq.lab("95-mine")
    del kq.lab.__globals__["_open"]["95-mine"]  # it is another process's
    bobs.topic("scores")
    os.environ["LOGNAME"] = "anna"
    with kq.lab("95-mine-3") as hers:
        hers.topic("scores")
        bobs._traces.close()
        with kq.lab("95-mine") as lab:
            for make in (lab.topic, lab.group):
                with pytest.raises(NotAllowed, match=r"'95-mine\.anna\.football' is on this cluster, and no run of this"):
                    make("football")
            lab.topic("scores")
        assert {*foreign, "95-mine.bob.scores", "95-mine-3.anna.scores"} <= topics(own)
        assert "95-mine.anna.scores" not in topics(own)
    for name in foreign:
        assert values(own, name) == [b"precious"]
        assert committed(own, name, name) == 1
    bobs.close()


def test_lines_in_kq_labs_that_are_no_labs_do_no_harm(own: Kafka) -> None:
    with kq.lab("96-junk") as lab:
        lab.topic("football")
        producer = Producer(own.client())
        for key in (b"not json", b"[1, 2, 3]", b'"text"', b"{}", b"7", b"\xff", b'["topic", 3]', b'["group", null]'):
            producer.produce(shared.TOPIC, b"1", key)
        assert producer.flush(PATIENCE) == 0
        assert lab._traces and lab._traces.known("topic") == ["96-junk.anna.football"]
    with kq.lab("96-junk") as lab:
        assert lab.topic("football") == "96-junk.anna.football"
    own.admin.delete_topics([shared.TOPIC])[shared.TOPIC].result(PATIENCE)


def test_what_cannot_be_noted_is_not_made(own: Kafka) -> None:
    with kq.lab("97-mute") as lab:
        configured(own, ResourceType.TOPIC, shared.TOPIC, max_message_bytes="1")
        with pytest.raises(NotAllowed, match=r"'97-mute\.anna\.football' could not be noted in 'kq\.labs': .*too large"):
            lab.topic("football")
        assert "97-mute.anna.football" not in topics(own)
        configured(own, ResourceType.TOPIC, shared.TOPIC, max_message_bytes="1000000")
        lab.topic("football")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"brokers": 3}, "lab '98-more' needs 3 brokers; the cluster of KQ_BOOTSTRAP has 1"),
        ({"auto_create": True}, "lab '98-more' needs a broker that creates topics by itself"),
    ],
)
def test_what_needs_an_embedded_cluster_says_so(own: Kafka, asked: dict[str, Any], says: str) -> None:
    before = topics(own)
    with pytest.raises(NotAllowed, match=says):
        kq.lab("98-more", **asked)
    assert topics(own) == before


def test_a_lab_that_another_process_has_open_is_not_pulled_from_under_it(own: Kafka) -> None:
    with kq.lab("99-both") as lab:
        topic = lab.topic("football")
        put(lab, topic, b"a")
        code = "import kqlib as kq\nwith kq.lab('99-both') as lab: print(lab.topic('football'))"
        second = python(code + "\n")
        _, wrong = second.communicate(timeout=PATIENCE)
        assert "NotAllowed: lab '99-both' is open in another process of yours on this cluster" in wrong
        assert values(own, topic) == [b"a"]
        with kq.lab("99-beside"):  # a lab of another name is none of its business
            pass
    third = python(code)
    said, wrong = third.communicate(timeout=PATIENCE)
    assert (said, third.returncode) == ("99-both.anna.football\n", 0), wrong


@pytest.mark.parametrize("logname", ["anna", "anna-m", "Anna2", "anna.m", "anna_m", "a b", "änna", "DOMAIN\\anna", "."])
def test_a_users_name_is_in_letters_that_a_topic_may_have(monkeypatch, logname):
    monkeypatch.setenv("LOGNAME", logname)
    name = shared.user()
    assert name and set(name) <= set(string.ascii_letters + string.digits + "-")
    assert (name == logname) is (logname in {"anna", "anna-m", "Anna2"})


def test_every_users_name_is_its_own(monkeypatch):
    names = set()
    for logname in ("anna-m", "anna.m", "anna_m", "anna m", "anna@m"):
        monkeypatch.setenv("LOGNAME", logname)
        names.add(shared.user())
    assert len(names) == 5


def test_a_script_ends_although_its_readers_are_open_and_one_is_being_polled(own: Kafka) -> None:
    process = python(
        "import kqlib as kq, threading; from confluent_kafka import Consumer\n"
        "lab = kq.lab('89-end'); topic = lab.topic('football')\n"
        "silent = Consumer(lab.client(group_id=lab.group('a'))); silent.subscribe([topic])\n"
        "busy = Consumer(lab.client(group_id=lab.group('b'))); busy.subscribe([topic])\n"
        "def loop():\n"
        "    while True: busy.poll(0.1)\n"
        "busy.poll(1); threading.Thread(target=loop, daemon=True).start(); print('end', flush=True)"
    )
    said, wrong = process.communicate(timeout=PATIENCE)
    assert (said, process.returncode) == ("end\n", 0), wrong
    with kq.lab("89-end"):
        pass


# --- at="step" --------------------------------------------------------------------------------------------------------

CELLS: list[tuple[str, list[str]]] = [
    ("import kqlib as kq\nlab = kq.lab('92-at')", []),
    ("topic = lab.topic('football', partitions=2)\nprint('noise')\ntopic", []),
    ("1 / 0", ["raises-exception"]),
    ("def typed(a: int) -> int:\n    return a\nkind = typed.__annotations__['a']", ["step:typed"]),
    ("# words, not code", ["markdown"]),
    ("later = True", ["step:later", "hide"]),
    ("nonsense here", []),
]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: Kafka) -> Path:
    """A checkout with one small notebook in it."""
    file = tmp_path / "notebooks" / "92-at.ipynb"
    file.parent.mkdir()
    cells = [
        {
            "cell_type": "markdown" if "markdown" in tags else "code",
            "metadata": {"tags": tags} if tags else {},
            "source": source.splitlines(keepends=True),
        }
        for source, tags in CELLS
    ]
    file.write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(places, "repo", lambda: tmp_path)
    return file


def run_at(step: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(f"import kqlib as kq\nlab = kq.lab('92-at', at={step!r})", namespace)
    return namespace


def test_at_rebuilds_a_notebooks_state_up_to_a_step_and_not_further(notebook: Path, own: Kafka, capsys) -> None:
    found = run_at("later")
    assert capsys.readouterr().out == ""
    assert found["topic"] == "92-at.anna.football"
    assert set(snapshot.records(own, found["topic"])) == {0, 1}
    assert found["kind"] is int  # a cell is run as a cell, not with this library's __future__
    assert "later" not in found
    assert isinstance(found["lab"], Lab)
    earlier = run_at("typed")
    assert "kind" not in earlier and earlier["lab"] is not found["lab"]
    earlier["lab"].close()


def test_at_says_which_steps_there_are_and_what_went_wrong_on_the_way(notebook: Path, monkeypatch, tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="notebook 92-at has no step 'nowhere'; it has typed, later"):
        run_at("nowhere")
    cells = json.loads(notebook.read_text())["cells"]
    cells[2]["metadata"] = {}  # an error that is not meant
    notebook.write_text(json.dumps({"cells": cells}))
    with pytest.raises(ZeroDivisionError):
        run_at("later")
    kq.lab("92-at").close()
    notebook.unlink()
    for repo in (tmp_path, None):
        monkeypatch.setattr(places, "repo", lambda repo=repo: repo)
        with pytest.raises(NotAllowed, match=r"at='later' replays notebooks/92-at\.ipynb, which is not here"):
            run_at("later")
