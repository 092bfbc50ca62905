"""What a plan promises, on a real Kafka: created, grown, never shrunk, and nobody else's topics touched."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType

from kqlib import topic_rules, topics
from kqlib.errors import BadTopicName, CannotShrink, NotAllowed, TopicMissing, Unreachable
from kqlib.kafka import Kafka, reading
from kqlib.topics import Plan, QueueTopic, Topic, partitions_of
from kqlib.workshop.cluster import Cluster
from tests.patience import WAIT
from tests.promises.play import put
from tests.promises.rights import USUAL, may


@pytest.fixture
def mine(kq_cluster: Kafka) -> Iterator[str]:
    """A beginning for this test's topics; they are deleted afterwards."""
    begin = f"t{secrets.token_hex(3)}"
    yield begin
    left = [name for name in names(kq_cluster) if name.startswith(begin)]
    for future in kq_cluster.admin.delete_topics(left).values() if left else []:
        future.result(WAIT)


def names(cluster: Kafka) -> set[str]:
    return set(cluster.admin.list_topics(timeout=WAIT).topics)


def settings(cluster: Kafka, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {
        key: entry.value for key, entry in cluster.admin.describe_configs([resource])[resource].result(WAIT).items()
    }


def shape(cluster: Kafka, topic: str) -> tuple[int, dict[str, str]]:
    return partitions_of(cluster, topic), settings(cluster, topic)


def test_applying_a_plan_creates_every_topic_with_its_leaders(kq_cluster: Kafka, mine: str) -> None:
    plan = Plan(
        {
            f"{mine}-football": QueueTopic(web_servers=2, config={"max.message.bytes": 2_000_000}),
            f"{mine}-scores": Topic(partitions=3, compact=True),
            f"{mine}-log": Topic(config={"retention.ms": 5_000}),
        }
    )
    plan.apply(kq_cluster)
    for topic in ("football", "football.dead"):
        partitions, config = shape(kq_cluster, f"{mine}-{topic}")
        kept = config["cleanup.policy"], config["retention.ms"], config["retention.bytes"]
        assert (partitions, *kept) == (4, "delete", "-1", "-1")
        assert config["max.message.bytes"] == ("2000000" if topic == "football" else "2065536")
    assert partitions_of(kq_cluster, f"{mine}-scores") == 3
    assert settings(kq_cluster, f"{mine}-scores")["cleanup.policy"] == "compact"
    assert settings(kq_cluster, f"{mine}-log")["retention.ms"] == "5000"
    assert partitions_of(kq_cluster, "kq.queues") == 1
    assert settings(kq_cluster, "kq.queues")["cleanup.policy"] == "compact"
    assert all(kq_cluster.leader(f"{mine}-football", p) is not None for p in range(4))


def test_a_dead_letter_may_be_larger_than_the_largest_item(kq_cluster: Kafka, mine: str) -> None:
    Plan({mine: QueueTopic(partitions=1)}).apply(kq_cluster, quiet=True)
    errors: list[Any] = []
    producer = Producer(kq_cluster.client() | {"message.max.bytes": 3_000_000})
    for topic in (mine, f"{mine}.dead"):
        producer.produce(
            topic, b"x" * (topic_rules.RECORD_BYTES + 60_000), on_delivery=lambda error, _: errors.append(error)
        )
        producer.flush(WAIT)
    assert [error and error.name() for error in errors] == ["MSG_SIZE_TOO_LARGE", None]


def test_it_says_what_it_will_do_first_and_a_second_time_there_is_nothing_to_do(
    kq_cluster: Kafka, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan({mine: Topic(partitions=2)})
    lines = repr(plan.diff(kq_cluster)).splitlines()
    assert lines[0] == f"+ {mine}: create, 2 partitions"
    assert mine not in names(kq_cluster)
    assert plan.apply(kq_cluster) is None
    assert capsys.readouterr().out.splitlines() == lines
    again = plan.apply(kq_cluster, quiet=True)
    assert again is not None and not again.waits
    assert repr(again).splitlines()[0] == f"= {mine}: as planned"
    assert capsys.readouterr().out == ""


def test_a_topic_grows_and_keeps_its_records_and_what_the_plan_does_not_state(kq_cluster: Kafka, mine: str) -> None:
    Plan({mine: Topic(1, config={"flush.ms": 7_000, "retention.ms": 60_000})}).apply(kq_cluster)
    put(kq_cluster, mine, b"kick-off")
    Plan({mine: Topic(3, config={"retention.ms": -1})}).apply(kq_cluster)
    partitions, config = shape(kq_cluster, mine)
    assert (partitions, config["flush.ms"], config["retention.ms"]) == (3, "7000", "-1")
    assert sum(end for _, end in reading.bounds(kq_cluster, mine).values()) == 1  # records


def test_a_plan_that_would_shrink_one_topic_changes_none(kq_cluster: Kafka, mine: str) -> None:
    Plan({f"{mine}-a": Topic(3), f"{mine}-b": Topic(2)}).apply(kq_cluster)
    before = shape(kq_cluster, f"{mine}-a"), shape(kq_cluster, f"{mine}-b")
    worse = Plan({f"{mine}-new": Topic(), f"{mine}-b": Topic(4, compact=True), f"{mine}-a": Topic(2)})
    with pytest.raises(CannotShrink, match=f"'{mine}-a' has 3 partitions and the plan says 2"):
        worse.apply(kq_cluster)
    assert (shape(kq_cluster, f"{mine}-a"), shape(kq_cluster, f"{mine}-b")) == before
    assert f"{mine}-new" not in names(kq_cluster)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Topic(replicas=30), "replication factor"),
        (Topic(config={"retention.ms": "soon"}), "Not a number"),
        (Topic(config={"no.such.setting": 1}), "Unknown topic config name: no.such.setting"),
    ],
)
def test_what_the_broker_refuses_is_found_before_anything_is_changed(
    kq_cluster: Kafka, mine: str, bad: Topic, words: str
) -> None:
    with pytest.raises(NotAllowed, match=rf"refuses to create '{mine}-bad': .*{words}.* Nothing was changed\.$"):
        Plan({f"{mine}-good": Topic(), f"{mine}-bad": bad}).apply(kq_cluster)
    assert not [name for name in names(kq_cluster) if name.startswith(mine)]


def test_a_stranger_is_counted_and_left_alone(kq_cluster: Kafka, mine: str) -> None:
    stranger = f"{mine}-stranger"
    Plan({stranger: Topic(2, config={"flush.ms": 7_000})}).apply(kq_cluster)
    before = shape(kq_cluster, stranger)
    done = Plan({mine: Topic(partitions=3, compact=True)}).apply(kq_cluster, quiet=True)
    assert "on this cluster: left alone." in repr(done) and stranger not in repr(done)
    assert shape(kq_cluster, stranger) == before


def test_a_name_that_collides_with_a_topic_of_the_cluster_is_refused_and_nothing_else_is_made(
    kq_cluster: Kafka, mine: str
) -> None:
    Plan({f"{mine}_a": Topic()}).apply(kq_cluster)
    with pytest.raises(BadTopicName, match=f"'{mine}.a' cannot be a topic's name: it collides with '{mine}_a'"):
        Plan({f"{mine}-other": Topic(), f"{mine}.a": Topic()}).apply(kq_cluster)
    assert {name for name in names(kq_cluster) if name.startswith(mine)} == {f"{mine}_a"}


def test_many_may_apply_the_same_plan_at_once(kq_cluster: Kafka, mine: str) -> None:
    for servers in (1, 2):
        plan = Plan({mine: QueueTopic(web_servers=servers), f"{mine}-scores": Topic(3 * servers, compact=True)})
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _, plan=plan: plan.apply(kq_cluster, quiet=True), range(4)))
        assert not plan.diff(kq_cluster).waits


def test_asking_for_a_topic_never_makes_it_even_where_a_name_is_enough(locked: Cluster) -> None:
    before, careless = names(locked), Kafka(locked.bootstrap, locked.client() | {"allow.auto.create.topics": True})
    for name in ("nobody", "no body", ""):
        with pytest.raises(TopicMissing, match=f"'{name}' does not exist"):
            partitions_of(careless, name)
    Plan({"nobody": Topic(), "queue": QueueTopic(web_servers=1)}).diff(careless)
    assert names(locked) <= before


def test_thousands_of_topics_are_looked_at_in_parts_so_that_each_part_has_its_answer_in_time(locked: Cluster) -> None:
    def asked(many: int) -> int:
        locked.wire.clear()
        assert topics.existing(cluster, [f"planned-{number}" for number in range(many)]) == {}
        return locked.wire.state()[0].get("Metadata", 0)

    address = locked.wire.bootstrap
    with Kafka(address, locked.client() | {"bootstrap.servers": address}) as cluster:
        asked(1)  # it connects
        assert asked(5_000) >= 5


def test_an_application_may_look_and_learns_whom_to_ask_for_a_change(locked: Cluster, app: Kafka) -> None:
    may(locked, *USUAL)
    plan = Plan({"planned": QueueTopic(web_servers=1)})
    with pytest.raises(
        NotAllowed, match=r"^User 'app' lacks CREATE on topic 'planned'\. Nothing was changed\. Ask your administrator"
    ):
        plan.apply(app)
    plan.apply(locked)
    plan.apply(app)
    assert partitions_of(app, "planned") == 2
    for more, right in [
        (QueueTopic(web_servers=2), "ALTER"),
        (QueueTopic(web_servers=1, config={"flush.ms": 5}), "ALTER_CONFIGS"),
    ]:
        with pytest.raises(NotAllowed, match=f"^User 'app' lacks {right} on topic 'planned'. Nothing was changed"):
            Plan({"planned": more}).apply(app)
    assert not plan.diff(locked).waits


def test_a_cluster_that_does_not_answer_is_unreachable(
    kq_cluster: Cluster, deaf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "ANSWER", 1.0)
    deaf.pause()
    with pytest.raises(Unreachable, match=kq_cluster.bootstrap):
        Plan({"football": QueueTopic(web_servers=1)}).apply(kq_cluster)
