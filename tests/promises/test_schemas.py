"""A registry in a topic, on a real Kafka: the same ids in every process, also later, and one level for all."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from kqlib.errors import IncompatibleSchema, NotAllowed, UnknownSchema
from kqlib.kafka import Kafka
from kqlib.schemas import Registry, canonical, store
from kqlib.workshop import games, snapshot
from tests.patience import WAIT
from tests.promises.play import delete, put

V1, V2, V3, V4 = (games.schema(version) for version in games.VERSIONS)


def record(*names: str, name: str = "R", **default: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": "int", **default} for each in names]}


@pytest.fixture
def topic(kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The registry's topic under a name of this test's own: the first id is 1."""
    name = f"kq.schemas.{secrets.token_hex(4)}"
    monkeypatch.setattr(store, "TOPIC", name)
    yield name
    with suppress(KafkaException):
        kq_cluster.admin.delete_topics([name])[name].result(WAIT)


CHILD = """
import json, sys
from kqlib.kafka.cluster import reach
from kqlib.schemas import Registry, store
address, store.TOPIC = sys.argv[1:]
with reach(address, {}) as cluster:
    registry = Registry(cluster=cluster)
    print("ready", flush=True)
    work = json.loads(sys.stdin.readline())
    print(json.dumps([registry.register(subject, schema) for subject, schema in work]))
"""


def test_processes_that_register_at_once_agree_on_every_id(kq_cluster: Kafka, topic: str) -> None:
    work = [[f"s{number}", record(name=f"R{number}")] for number in range(12)]
    command = [sys.executable, "-c", CHILD, kq_cluster.bootstrap, topic]
    how: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as ends:
        children = [ends.enter_context(subprocess.Popen(command, **how)) for _ in range(2)]
        for child in children:
            ends.callback(child.kill)
        assert [child.stdout.readline() for child in children] == ["ready\n", "ready\n"]
        asked = [json.dumps(order) + "\n" for order in (work, work[::-1])]  # one from the front, one from the back
        for child, line in zip(children, asked, strict=True):
            child.stdin.write(line)
            child.stdin.flush()
        first, second = (json.loads(child.communicate(timeout=WAIT)[0]) for child in children)
    assert first == second[::-1]
    assert sorted(first) == list(range(1, 13))
    later = Registry(cluster=kq_cluster)
    assert [later.ids(subject)[0] for subject, _ in work] == first


def test_a_restart_finds_the_same_ids_levels_and_schemas(kq_cluster: Kafka, topic: str) -> None:
    before = Registry(cluster=kq_cluster)
    for schema in (V1, V2, V3):
        before.register("football-value", schema)
    before.set_level("football-value", "FULL")
    after = Registry(cluster=kq_cluster)
    assert (after.ids("football-value"), after.versions("football-value")) == ([1, 2, 3], [1, 2, 3])
    assert (after.level("football-value"), after.level()) == ("FULL", "BACKWARD")
    assert after.schema(3) == canonical(V3)
    assert after.register("football-value", V2) == 2
    assert repr(after) == "Registry(in kq.schemas, BACKWARD, 1 subject)"


def test_what_one_process_registers_another_one_reads(kq_cluster: Kafka, topic: str) -> None:
    here, there = Registry(cluster=kq_cluster), Registry(cluster=kq_cluster)
    reads = there.codec()
    value = games.values(games.events(1), 1)[0]
    assert reads.decode(here.codec("football-value", V1).encode(value)) == value
    assert there.subjects() == ["football-value"]
    here.set_level("football-value", "FULL")
    with pytest.raises(
        IncompatibleSchema, match="'football-value' keeps FULL: version 1 cannot read the new schema at"
    ):
        there.register("football-value", V3)
    with pytest.raises(UnknownSchema):
        there.schema(2)


def test_a_version_that_another_process_has_just_registered_is_found(kq_cluster: Kafka, topic: str) -> None:
    one, other = Registry(cluster=kq_cluster), Registry(cluster=kq_cluster)
    one.register("goals", record())
    assert other.version("goals", 1) == one.version("goals", 1)
    with pytest.raises(UnknownSchema, match="version 2 of 'goals' is not in this registry"):
        other.version("goals", 2)


def test_a_change_that_loses_the_race_is_refused_by_everybody(kq_cluster: Kafka, topic: str) -> None:
    here = Registry("FULL", cluster=kq_cluster)
    # Both were fine when they were sent: nothing was there yet. In the log one of them stands second.
    for name in ("a", "b"):
        put(kq_cluster, topic, json.dumps({"subject": "s", "schema": canonical(record(name))}).encode())
    there = Registry(cluster=kq_cluster)
    for registry in (here, there):
        assert [registry.schema(number) for number in registry.ids("s")] == [canonical(record("a"))]
    assert there.register("s", record("a", "b", default=0)) == 2  # the refused one took no id


def test_the_process_that_sent_it_too_late_gets_the_error(
    kq_cluster: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Registry("FULL", cluster=kq_cluster)
    write = store._write

    def another_is_faster(cluster: Kafka, entry: dict[str, Any]) -> int:
        put(kq_cluster, topic, json.dumps({"subject": "s", "schema": canonical(record("a"))}).encode())
        return write(cluster, entry)

    monkeypatch.setattr(store, "_write", another_is_faster)
    with pytest.raises(IncompatibleSchema, match="'s' keeps FULL: the new schema cannot read version 1 at 'b'"):
        late.register("s", record("b"))
    assert late.ids("s") == [1]


def test_records_of_other_programs_are_passed_over(kq_cluster: Kafka, topic: str) -> None:
    here = Registry(cluster=kq_cluster)
    strange = [b"", None, b"\xff\xfe", b"[]", b"5", b"{}", b'{"subject": 5, "schema": 7}', b'{"subject": "s"}']
    strange += [
        b'{"subject": "s", "schema": "{"}',
        b'{"level": "UPWARD"}',
        b'{"subject": "s", "level": 7}',
        b'{"level": {}}',
    ]
    put(kq_cluster, topic, *strange)
    assert here.register("s", V1) == 1
    assert Registry(cluster=kq_cluster).subjects() == ["s"]


def test_the_first_level_counts_for_all(kq_cluster: Kafka, topic: str) -> None:
    Registry(cluster=kq_cluster)
    assert Registry("FULL", cluster=kq_cluster).level() == "FULL"
    assert Registry("full", cluster=kq_cluster).level() == "FULL"
    with pytest.raises(NotAllowed) as caught:
        Registry("NONE", cluster=kq_cluster)
    assert str(caught.value) == (
        "the schemas of this cluster are at level FULL, not NONE; Registry(cluster=…).set_level(None, 'NONE') changes it for all"
    )
    Registry(cluster=kq_cluster).set_level(None, "NONE")
    assert Registry("NONE", cluster=kq_cluster).level() == "NONE"


def test_a_refused_schema_is_not_even_written_and_the_topic_is_kept_for_ever(kq_cluster: Kafka, topic: str) -> None:
    here = Registry(cluster=kq_cluster)
    here.register("s", V4)
    with pytest.raises(IncompatibleSchema):
        here.register("s", games.schema("no-default"))
    assert here.register("s", V4) == 1
    (records,) = snapshot.records(kq_cluster, topic).values()  # one partition
    assert len(records) == 1
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = kq_cluster.admin.describe_configs([resource])[resource].result(WAIT)
    assert {name: found[name].value for name in store.FOR_EVER} == store.FOR_EVER


def test_every_process_gives_one_schema_under_two_subjects_one_id(kq_cluster: Kafka, topic: str) -> None:
    here, there = Registry(cluster=kq_cluster), Registry(cluster=kq_cluster)
    assert [here.register("a-value", V1), there.register("b-value", V1), here.register("c-value", V2)] == [1, 1, 2]
    after = Registry(cluster=kq_cluster)
    for registry in (here, there, after):
        assert {each: registry.ids(each) for each in registry.subjects()} == {
            "a-value": [1],
            "b-value": [1],
            "c-value": [2],
        }
    assert len(snapshot.records(kq_cluster, topic)[0]) == 3


def of_time(unit: str) -> dict[str, Any]:
    field = {"name": "at", "type": {"type": "long", "logicalType": f"timestamp-{unit}"}}
    return {"type": "record", "name": "R", "fields": [field]}


def test_a_topic_of_the_first_edition_keeps_the_ids_that_it_gave(kq_cluster: Kafka, topic: str) -> None:
    # It gave each subject an id of its own, and did not compare logical types. Its messages carry these ids.
    written = [("a", record("x")), ("b", record("x")), ("t", of_time("millis")), ("t", of_time("micros")), ("c", V1)]
    refused = {"subject": "t", "schema": canonical(record("x"))}
    lines = [{"subject": subject, "schema": canonical(schema)} for subject, schema in written]
    kq_cluster.admin.create_topics([NewTopic(topic, 1, config=store.FOR_EVER)])[topic].result(WAIT)
    kq_cluster.wait_for_topic(topic, 1)
    put(kq_cluster, topic, *(json.dumps(line).encode() for line in [*lines[:3], refused, *lines[3:]]))
    here = Registry(cluster=kq_cluster)
    assert {each: here.ids(each) for each in here.subjects()} == {"a": [1], "b": [2], "c": [5], "t": [3, 4]}
    assert [here.schema(number) for number in range(1, 6)] == [canonical(schema) for _, schema in written]
    assert [here.register("a", record("x")), here.register("b", record("x"))] == [1, 2]
    assert here.register("d", record("x")) == 1  # from now on one id: the first that it got
    assert here.register("d", record("x", "y", default=0)) == 6
    with pytest.raises(IncompatibleSchema, match="a timestamp-micros would be read as a timestamp-millis"):
        here.register("t", {**of_time("millis"), "doc": "again"})
    after = Registry(cluster=kq_cluster)
    assert {each: after.ids(each) for each in after.subjects()} == {
        "a": [1],
        "b": [2],
        "c": [5],
        "d": [1, 6],
        "t": [3, 4],
    }


def test_a_topic_with_more_partitions_is_left_alone(kq_cluster: Kafka, topic: str) -> None:
    kq_cluster.admin.create_topics([NewTopic(topic, 2)])[topic].result(WAIT)
    kq_cluster.wait_for_topic(topic, 2)
    with pytest.raises(NotAllowed, match=r"has 2 partitions; ids are the order in one\. It is left alone"):
        Registry(cluster=kq_cluster)


def test_a_topic_that_was_made_anew_is_noticed(kq_cluster: Kafka, topic: str) -> None:
    here = Registry(cluster=kq_cluster)
    here.register("s", V1)
    delete(kq_cluster, topic)
    kq_cluster.admin.create_topics([NewTopic(topic, 1)])[topic].result(WAIT)
    kq_cluster.wait_for_topic(topic, 1)
    with pytest.raises(
        NotAllowed, match="no longer has its record 1: it was cut or made anew, so ids mean something else"
    ):
        here.register("s", V2)


def test_a_schema_too_large_for_a_record_is_refused_and_all_goes_on(kq_cluster: Kafka, topic: str) -> None:
    here = Registry(cluster=kq_cluster)
    with pytest.raises(NotAllowed, match=r"the schema could not be written to .*: .* too large"):
        here.register("s", {**record("a"), "doc": "x" * 2_000_000})
    assert here.register("s", V1) == 1
