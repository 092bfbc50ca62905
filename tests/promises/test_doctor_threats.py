"""`kq doctor` on a real broker: what threatens a queue is named with its remedy, and what this user may not look at is named too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

from kqlib.errors import NotNow
from kqlib.kafka import Kafka
from kqlib.queue import Site
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.doctor import Finding, machine, queues
from tests.patience import WAIT, until
from tests.promises import play
from tests.promises.play import configure
from tests.promises.queues import alone, put
from tests.promises.rights import may

CHECKS = ("retention", "compaction", "replicas", "sizes", "topic ids")
NAMES: set[str] = set()  # of queues


@pytest.fixture(scope="module", autouse=True)
def forgotten(locked: Cluster) -> Iterator[None]:
    """The cluster is given back without this file's queues and site."""
    yield
    locked.admin.delete_topics([each for name in NAMES for each in (name, f"{name}.dead")])
    locked.admin.delete_consumer_groups(["viewers"])["viewers"].result(WAIT)


def queue(cluster: Kafka, name: str) -> str:
    """A queue of site viewers with one item done and one waiting."""
    NAMES.add(name)
    Plan({name: QueueTopic(partitions=1)}).apply(cluster, quiet=True)
    put(cluster, name, b"1", os.urandom(2_000))
    with alone(cluster, "viewers") as site:
        item = site.queue(name).claim(wait=WAIT)
        assert item
        site.queue(name).ack(item)
    return name


def findings(cluster: Kafka) -> dict[str, Finding]:
    return {finding.name: finding for finding in queues.of(cluster)}


def setting(cluster: Kafka, name: str, **settings: str) -> None:
    configure(cluster, ResourceType.TOPIC, name, **settings)


def test_a_queue_that_is_well_has_nothing_to_fear(locked: Cluster) -> None:
    queue(locked, "well")
    found = findings(locked)
    assert [(name, found[name].ok) for name in CHECKS] == [(name, True) for name in CHECKS]


def test_a_retention_that_is_near_the_oldest_items_age_is_a_threat(locked: Cluster) -> None:
    name = queue(locked, "kept-short")
    setting(locked, name, retention_ms=f"{36 * 3_600_000}")
    well = findings(locked)["retention"]
    assert well.ok and f"'{name}' deletes records after 36 h, done or not" in well.what
    assert "until they are done" not in well.what and "half" in well.what
    play.put(locked, name, {"value": b"of yesterday", "timestamp": int(time.time() - 86_400) * 1000})
    setting(locked, name, retention_bytes="10000000")
    found = findings(locked)["retention"]
    assert f"'{name}' deletes records after 36 h; its oldest item waits for 24 h" in found.what
    assert f"'{name}' deletes records above 10000000 bytes a partition" in found.what
    assert (
        f"kq kafka configs --alter --entity-type topics --entity-name {name} --add-config retention.ms=-1"
        in found.remedy
    )
    setting(locked, name, retention_ms="-1", retention_bytes="-1")
    assert findings(locked)["retention"].ok


def test_compaction_is_a_threat_also_to_dead_letters(locked: Cluster) -> None:
    name = queue(locked, "compacted") + ".dead"
    setting(locked, name, cleanup_policy="compact,delete")
    found = findings(locked)["compaction"]
    assert (found.ok, found.what) == (
        False,
        f"'{name}' is compacted: an item is gone as soon as a later one has its key",
    )
    assert found.remedy.endswith(f"--entity-name {name} --add-config cleanup.policy=delete")
    setting(locked, name, cleanup_policy="delete")


@pytest.mark.nightly  # three brokers
def test_fewer_replicas_in_sync_than_a_put_needs_are_a_threat_and_puts_do_fail() -> None:
    with Cluster(3) as cluster:
        Plan({"sure": QueueTopic(partitions=1, replicas=3, config={"min.insync.replicas": 3})}).apply(
            cluster, quiet=True
        )
        assert findings(cluster)["replicas"].ok
        cluster.broker(3).kill()
        until(lambda: len(cluster.partitions("sure")[0].isrs) == 2)
        found = findings(cluster)["replicas"]
        assert "puts into 'sure' fail now: partition 0 has 2 replicas in sync and needs 3" in found.what
        errors: list[object] = []
        producer = Producer(cluster.client(message_timeout_ms=2000))
        producer.produce("sure", b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT) == 0 and errors[0] is not None
        with Site(cluster, "viewers") as site, pytest.raises(NotNow, match=r"NotEnoughReplicas.* may store it twice"):
            site.queue("sure").put(b"x")


def test_a_limit_below_what_waits_is_a_threat(locked: Cluster) -> None:
    name = queue(locked, "narrow")
    setting(locked, f"{name}.dead", max_message_bytes="1000")
    found = findings(locked)["sizes"]
    assert found.what.startswith(f"'{name}.dead' takes records of 1000 bytes; one of 2")
    assert found.what.endswith(f"waits in '{name}' and cannot be buried whole")
    assert f"--entity-name {name}.dead --add-config max.message.bytes=" in found.remedy
    setting(locked, f"{name}.dead", max_message_bytes="1114124")
    with alone(locked, "viewers") as site:
        item = site.queue(name).claim(wait=WAIT)
        assert item
        site.queue(name).bury(item)
    setting(locked, name, max_message_bytes="1000")
    found = findings(locked)["sizes"]
    assert f"'{name}' takes records of 1000 bytes; one of 2" in found.what
    assert f"waits in '{name}.dead' and cannot be put back" in found.what
    setting(locked, name, max_message_bytes="1048588")
    assert findings(locked)["sizes"].ok


def test_a_topic_that_was_made_anew_is_named(locked: Cluster) -> None:
    name = queue(locked, "anew")
    locked.admin.delete_topics([name])[name].result(WAIT)
    locked.wait_until_gone(name)
    Plan({name: QueueTopic(partitions=1)}).apply(locked, quiet=True)
    found = findings(locked)["topic ids"]
    assert found.what.startswith(f"'{name}' was made anew: site 'viewers' has state of the old topic only")
    assert (
        found.remedy
        == f"if that was meant: kq queue work {name} --site viewers -- CMD; else ask who deleted the old topic"
    )
    put(locked, name, b"again")
    with alone(locked, "viewers") as site:
        item = site.queue(name).claim(wait=WAIT)
        assert item and item.data == b"again"
        until(lambda: findings(locked)["topic ids"].ok)  # the note is written behind the first commit


def test_an_applications_user_learns_what_it_may_not_look_at(locked: Cluster) -> None:
    queue(locked, "well")
    may(locked, "READ topic *", "WRITE topic *", "READ group *")
    with locked.as_user("app") as app:
        found = findings(app)
        tried = machine._tried(app)
    assert found["offsets"].what == "User 'app' lacks DESCRIBE_CONFIGS on cluster 'kafka-cluster'"
    assert found["settings"].ok is None and found["settings"].what.startswith("User 'app' lacks DESCRIBE_CONFIGS on ")
    assert "DESCRIBE_CONFIGS on topic 'well', DESCRIBE_CONFIGS on topic 'well.dead'" in found["settings"].what
    assert "retention" not in found  # nothing is reported of settings that nobody saw
    assert tried.ok is None and tried.what.startswith("User 'app' lacks CREATE or DELETE on topics that begin with ")
    assert "KQ_BOOTSTRAP" not in str([*found.values(), tried])
