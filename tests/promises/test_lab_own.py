"""A lab on one's own cluster: what it makes is prefixed, noted and removed; nobody else's things are touched. And `at=step`."""

from __future__ import annotations

import json
import string
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

import kqlib as kq
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka, connect
from kqlib.runtime import places
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop import lab_notes, snapshot
from kqlib.workshop.lab import Lab, _open
from tests.patience import PATIENCE, WAIT
from tests.promises.play import commit, committed, configure, create, delete, put, setting, topics, values

Python = Callable[..., subprocess.Popen[str]]

# --- a lab on one's own cluster ---------------------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, kq_cluster: Kafka, tmp_path: Path) -> Iterator[Kafka]:
    """The session's cluster, named by KQ_BOOTSTRAP, for a user called anna; what is left in it afterwards is removed."""
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    monkeypatch.setenv("KQ_STATE", machine(tmp_path, "m1"))
    monkeypatch.setenv("LOGNAME", "anna")
    before = topics(kq_cluster)
    yield kq_cluster
    for lab in [lab for lab in _open.values() if not lab.cluster.embedded]:
        lab.close()
    left = [name for name in topics(kq_cluster) - before - {lab_notes.TOPIC} if not name.startswith("__")]
    for done in kq_cluster.admin.delete_topics(left).values() if left else []:
        done.result(WAIT)


def machine(folder: Path, name: str) -> str:
    """A state directory, as of a machine of this name."""
    state = folder / name
    state.mkdir(exist_ok=True)
    (state / "machine").write_text(name)
    return str(state)


def noted(kafka: Kafka, *kinds: str) -> set[str]:
    kept = {}
    for message in snapshot.records(kafka, lab_notes.TOPIC)[0]:
        kept[message.key()] = message.value()
    return {
        json.loads(key)[1]
        for key, value in kept.items()
        if value is not None and json.loads(key)[0] in (kinds or lab_notes.KINDS)
    }


def test_what_a_lab_makes_on_ones_own_cluster_is_prefixed_noted_and_removed_at_its_end(own: Kafka) -> None:
    with kq.lab("93-own") as lab:
        assert lab.cluster.embedded is False
        assert lab.topic("football", 2) == "93-own.anna.m1.football"
        assert lab.group("readers") == "93-own.anna.m1.readers"
        assert noted(own) == {"93-own.anna.m1.football", "93-own.anna.m1.readers"}
        put(lab, "93-own.anna.m1.football", b"a")
        commit(lab, "93-own.anna.m1.readers", "93-own.anna.m1.football")
        assert lab.topic("football") == "93-own.anna.m1.football"
        assert values(own, "93-own.anna.m1.football") == []
        with pytest.raises(NotAllowed, match="only on an embedded cluster"):
            lab.cluster.broker(1)
        assert setting(own, ResourceType.TOPIC, lab_notes.TOPIC, "cleanup.policy") == "compact"
        scores = kq.groups.Group(lab, "scores", "93-own.anna.m1.football")
        scores.join(2)
    assert noted(own) == set() and scores.members == []
    assert not [name for name in topics(own) if name.startswith("93-own")]
    assert committed(own, "93-own.anna.m1.readers", "93-own.anna.m1.football") is None
    assert own.brokers == [1]


def test_the_next_run_removes_what_a_killed_one_left(own: Kafka, python: Python) -> None:
    session = f"{2000 * PATIENCE:.0f}"  # the member must commit before it is over, and the next run waits for its end
    quick = {"consumer_session_timeout_ms": session, "consumer_heartbeat_interval_ms": "200"}
    configure(own, ResourceType.GROUP, "94-killed.anna.m1.members", **quick)
    process = python(
        "import kqlib as kq, time; from confluent_kafka import Consumer, Producer, TopicPartition",
        "lab = kq.lab('94-killed'); topic = lab.topic('football'); left = lab.topic('left behind'.replace(' ', '-'))",
        "producer = Producer(lab.client()); producer.produce(topic, b'old'); producer.flush()",
        "reader = Consumer(lab.client(group_id=lab.group('readers'), group_protocol='classic'))",
        "reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)",
        "member = Consumer(lab.client(group_id=lab.group('members'))); member.subscribe([topic])",
        "member.commit(member.poll(60), asynchronous=False)",
        "print('up', flush=True); time.sleep(60)",
    )
    assert process.stdout and process.stdout.readline() == "up\n", process.stderr and process.stderr.read()
    assert committed(own, "94-killed.anna.m1.readers", "94-killed.anna.m1.football") == 1
    process.kill()
    process.communicate()
    with kq.lab("94-killed") as lab:
        assert not [name for name in topics(own) if name.startswith("94-killed")]
        # a killed member is one until its session is over: its group is not forgotten, and waited for when it is asked for
        assert noted(own) <= {"94-killed.anna.m1.members"}
        topic = lab.topic("football")
        assert values(own, topic) == []
        for name in ("readers", "members"):
            assert committed(own, lab.group(name), topic) is None
    assert noted(own) == set()


def test_what_no_run_of_this_lab_made_is_left_alone_even_under_its_name(own: Kafka, monkeypatch, tmp_path) -> None:
    foreign = [
        "football",
        "95-mine.anna.m1.football",
        "95-mine.anna.football",
        "95-mine.anna.m2.football",
        "95-mine.bob.football",
        "95-mine.annabel.football",
        "95-mine-2.anna.x",
    ]
    for name in foreign:
        create(own, name)
        put(own, name, b"precious")
        commit(own, name, name)
    with monkeypatch.context() as patch:  # bob's lab of the same name is open, in his process on his machine
        patch.setenv("LOGNAME", "bob")
        patch.setenv("KQ_STATE", machine(tmp_path, "m2"))
        bobs = Lab("95-mine", connect())
        bobs.topic("scores")
    with kq.lab("95-mine-3") as hers:  # and another one of anna's
        hers.topic("scores")
        with kq.lab("95-mine") as lab:
            for make in (lab.topic, lab.group):
                with pytest.raises(
                    NotAllowed, match=r"'95-mine\.anna\.m1\.football' is on this cluster, and no run of this"
                ):
                    make("football")
            lab.topic("scores")
        assert {*foreign, "95-mine.bob.m2.scores", "95-mine-3.anna.m1.scores"} <= topics(own)
        assert "95-mine.anna.m1.scores" not in topics(own)
    for name in foreign:
        assert values(own, name) == [b"precious"]
        assert committed(own, name, name) == 1
    bobs.close()


def test_lines_in_kq_labs_that_are_no_labs_do_no_harm(own: Kafka) -> None:
    with kq.lab("96-junk") as lab:
        lab.topic("football")
        for key in (b"not json", b"[1, 2, 3]", b'"text"', b"{}", b"7", b"\xff", b'["topic", 3]', b'["group", null]'):
            put(own, lab_notes.TOPIC, {"value": b"1", "key": key})
        assert lab._notes and lab._notes.known("topic") == ["96-junk.anna.m1.football"]
    with kq.lab("96-junk") as lab:
        assert lab.topic("football") == "96-junk.anna.m1.football"
    delete(own, lab_notes.TOPIC)


def too_large(kafka: Kafka) -> bool:
    """Is the limit of one byte in force? It is checked before the key is missed, so this record is never stored."""
    refused: list[str] = []
    producer = Producer(kafka.client())
    producer.produce(lab_notes.TOPIC, b"keyless", on_delivery=lambda error, _: refused.append(error.name()))
    assert producer.flush(WAIT) == 0
    assert set(refused) < {"MSG_SIZE_TOO_LARGE", "INVALID_RECORD"}, refused
    return refused == ["MSG_SIZE_TOO_LARGE"]


def test_what_cannot_be_noted_is_not_made(own: Kafka, within: Callable[..., float]) -> None:
    with kq.lab("97-mute") as lab:
        configure(own, ResourceType.TOPIC, lab_notes.TOPIC, max_message_bytes="1")
        within(60, lambda: too_large(own))  # the broker hears of it after the controller's answer
        with pytest.raises(
            NotAllowed, match=r"'97-mute\.anna\.m1\.football' could not be noted in 'kq\.labs': .*too large"
        ):
            lab.topic("football")
        assert "97-mute.anna.m1.football" not in topics(own)
        configure(own, ResourceType.TOPIC, lab_notes.TOPIC, max_message_bytes="1000000")
        within(60, lambda: not too_large(own))
        lab.topic("football")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"brokers": 3}, "lab '98-more' needs 3 brokers; the cluster of KQ_BOOTSTRAP has 1"),
        ({"auto_create": True}, "lab '98-more' needs a broker that creates topics by itself"),
        ({"wire": True}, "lab '98-more' needs a cluster with a wire: an embedded one"),
    ],
)
def test_what_needs_an_embedded_cluster_says_so(own: Kafka, asked: dict[str, Any], says: str) -> None:
    before = topics(own)
    with pytest.raises(NotAllowed, match=says):
        kq.lab("98-more", **asked)
    assert topics(own) == before


def test_a_lab_that_another_process_has_open_is_not_pulled_from_under_it(own: Kafka, python: Python) -> None:
    with kq.lab("99-both") as lab:
        topic = lab.topic("football")
        put(lab, topic, b"a")
        code = "import kqlib as kq\nwith kq.lab('99-both') as lab: print(lab.topic('football'))"
        second = python(code + "\n")
        _, err = second.communicate(timeout=WAIT)
        assert "NotAllowed: lab '99-both' is open in another process of yours on this cluster" in err
        assert values(own, topic) == [b"a"]
        with kq.lab("99-beside"):  # a lab of another name is none of its business
            pass
    third = python(code)
    output, err = third.communicate(timeout=WAIT)
    assert (output, third.returncode) == ("99-both.anna.m1.football\n", 0), err


def test_a_lab_that_another_computer_with_the_same_home_holds_is_left_alone_until_its_note_is_old(
    own: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kq.lab("87-home") as lab:
        lab.topic("football")
    holder = json.dumps(["holder", "87-home.anna.m1."])
    put(own, lab_notes.TOPIC, {"key": holder, "value": b"another-computer 1"})
    for _ in range(2):  # who is refused does not free it
        with pytest.raises(NotAllowed, match=r"lab '87-home' is open on another computer that shares .* in \d+ s"):
            kq.lab("87-home")
    monkeypatch.setattr(lab_notes, "STALE", 0.0)
    with kq.lab("87-home") as lab:
        lab.topic("football")


def test_a_live_lab_renews_its_note(own: Kafka, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]) -> None:
    monkeypatch.setattr(lab_notes, "RENEW", 0.05)
    with kq.lab("86-live") as lab:
        assert lab._notes
        within(60, lambda: len(lab._notes._holders()) > 3)
        assert noted(own, "holder") >= {"86-live.anna.m1."}
    assert "86-live.anna.m1." not in noted(own, "holder")


def test_a_labs_end_removes_what_sites_noted_of_its_topics_and_nothing_else(own: Kafka) -> None:
    def queues() -> set[str]:
        kept = {message.key(): message.value() for message in snapshot.records(own, "kq.queues")[0]}
        return {json.loads(key)[1] for key, value in kept.items() if value is not None}

    Plan({"football": QueueTopic(partitions=1)}).apply(own, quiet=True)
    with kq.Site(own, "fans") as fans:
        fans.queue("football")
    with kq.lab("85-notes") as lab:
        topic = lab.topic("scores")
        with kq.Site(lab.cluster, lab.group("fans")) as site:
            queue = site.queue(topic, max_attempts=None)
            queue.put(b"a")
            queue.ack(queue.claim(wait=WAIT))
        assert {topic, "football"} <= queues()
    assert topic not in queues() and "football" in queues()


def test_a_users_name_is_in_letters_that_a_topic_may_have_and_is_nobody_elses(monkeypatch):
    names = {}
    for logname in ("anna", "anna-m", "Anna2", "anna.m", "anna_m", "a b", "änna", "DOMAIN\\anna", "."):
        monkeypatch.setenv("LOGNAME", logname)
        names[logname] = lab_notes.user()
        assert set(names[logname]) <= set(string.ascii_letters + string.digits + "-")
    assert len({*names.values()}) == len(names)
    assert [names[same] for same in ("anna", "anna-m", "Anna2")] == ["anna", "anna-m", "Anna2"]


def test_a_script_ends_although_its_readers_are_open_and_one_is_being_polled(own: Kafka, python: Python) -> None:
    process = python(
        "import kqlib as kq, threading; from confluent_kafka import Consumer",
        "lab = kq.lab('89-end'); topic = lab.topic('football')",
        "silent = Consumer(lab.client(group_id=lab.group('a'))); silent.subscribe([topic])",
        "busy = Consumer(lab.client(group_id=lab.group('b'))); busy.subscribe([topic])",
        "def loop():",
        "    while True: busy.poll(0.1)",
        "busy.poll(1); threading.Thread(target=loop, daemon=True).start(); print('end', flush=True)",
    )
    output, err = process.communicate(timeout=WAIT)
    assert (output, process.returncode) == ("end\n", 0), err
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
    assert found["topic"] == "92-at.anna.m1.football"
    assert set(snapshot.records(own, found["topic"])) == {0, 1}
    assert found["kind"] is int  # a cell is run as a cell, not with this library's __future__
    assert "later" not in found
    assert isinstance(found["lab"], Lab)
    earlier = run_at("typed")
    assert "kind" not in earlier and earlier["lab"] is not found["lab"]
    earlier["lab"].close()


def test_at_says_which_steps_there_are_and_what_went_wrong_on_the_way(
    notebook: Path, monkeypatch, tmp_path: Path
) -> None:
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
