"""Which promises begin first: a file that takes a minute and begins last keeps every other worker waiting for it.

pytest-xdist would begin with the files of many tests; here these are the quick ones. And what the queue's promises begin with.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from xdist.scheduler import LoadFileScheduling

from kqlib.errors import Unreachable
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from tests.patience import WAIT, until
from tests.promises.desk import Desk
from tests.promises.queue_worker import PATIENT, Worker
from tests.promises.queues import MADE, SESSION, Start, alone, topic

FIRST = "test_promises"  # notebooks wait for its scores
TOGETHER = {  # these files share a cluster beside the common one: one worker runs them, and starts it once
    **dict.fromkeys(("test_crash", "test_at_work", "test_faults_short", "test_steps"), "kq_crash"),
    **dict.fromkeys(("test_topics_copy", "test_wire"), "kq_crash"),
    **dict.fromkeys(("test_queue_looks", "test_queue_rights", "test_queue_unburied"), "locked"),
    **dict.fromkeys(("test_doctor_threats", "test_share", "test_topics"), "locked"),
    **dict.fromkeys(("test_cluster", "test_lab", "test_queue_edges_receipt"), "three"),
}
LONG = {
    *("test_plugin", "test_cluster", "test_faults_short", "test_rungs", "test_lab", "test_cli", "test_cli_queue"),
    *("test_queue_crashes", "test_queue_crossings", "test_virtual_fencing", "test_virtual_recover"),
}


def group(file: str) -> str:
    """What the files of a group have in common; of another file its own name."""
    return TOGETHER.get(Path(file).stem, file)


class ByCluster(LoadFileScheduling):  # type: ignore[misc]
    """A file belongs to one worker, and so do files that share a cluster."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCluster | None:
    """With `--dist loadfile`, as in `make test`."""
    return ByCluster(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, each in its own order."""
    items.sort(key=lambda item: (item.path.stem != FIRST, item.path.stem not in LONG | TOGETHER.keys()))


class Shared:
    """Clusters of a group of files. They end with its last test in this process, since an idle broker takes CPU as well."""

    def __init__(self) -> None:
        self._open, self._made = ExitStack(), dict[str, Cluster]()

    def cluster(self, name: str, **how: Any) -> Cluster:
        """This group's; made when it is first asked for."""
        if name not in self._made:
            self._made[name] = self._open.enter_context(Cluster(**how))
        return self._made[name]

    def end(self, cluster: Cluster) -> None:
        """This one too ends with the group, although its fixture would keep it for the whole session."""
        self._open.callback(cluster.close)

    def close(self) -> None:
        """End all of them."""
        self._made.clear()
        self._open.close()


SHARED = Shared()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of a group."""
    if nextitem is None or group(str(nextitem.path)) != group(str(item.path)):
        SHARED.close()


@pytest.fixture(autouse=True, scope="session")
def patient() -> Iterator[None]:
    """The library looks for a state as long as this run waits for one."""
    with pytest.MonkeyPatch.context() as patch:
        for module, seconds in PATIENT:
            patch.setattr(module, seconds, WAIT)
        yield


@pytest.fixture(scope="module")
def wired(kq_crash: Any) -> Iterator[Cluster]:
    """The cluster of `kq crash`, whose answers can be lost."""
    cluster: Cluster = kq_crash.keywords["cluster"]
    SHARED.end(cluster)
    yield cluster
    cluster.wire.heal()


@pytest.fixture
def deaf(kq_cluster: Kafka) -> Iterator[Any]:
    """The broker, to be paused; it goes on after the test."""
    broker = kq_cluster.broker(1)
    yield broker
    broker.resume()
    until(lambda: asked_anew(kq_cluster))
    kq_cluster.renew()  # it may know no broker: the broker's session ends while it is paused (librdkafka 5301)


def asked_anew(cluster: Kafka) -> list[int]:
    """The brokers that a new client finds."""
    with Kafka(cluster.bootstrap) as fresh, suppress(Unreachable):
        return fresh.brokers
    return []


@pytest.fixture(scope="module")
def locked() -> Cluster:
    """A cluster with TLS, logins, rules and a wire, whose brokers create a topic as soon as someone names it."""
    return SHARED.cluster("locked", secure=True, wire=True, auto_create=True)


@pytest.fixture(scope="module")
def app(locked: Cluster) -> Iterator[Kafka]:
    """The same cluster as its user of few rights sees it."""
    with locked.as_user("app") as made:
        yield made


@pytest.fixture(scope="module")
def site(kq_cluster: Kafka) -> Iterator[Site]:
    """One site for all tests of a file: joining is what takes time, and each has a topic of its own."""
    with alone(kq_cluster, f"site-{uuid.uuid4().hex[:8]}") as site:
        yield site


@pytest.fixture
def queue(kq_cluster: Kafka, site: Site) -> Queue:
    """A new queue with one partition."""
    return site.queue(topic(kq_cluster))


@pytest.fixture(scope="module")
def three() -> Cluster:
    """Three brokers; each test leaves them running."""
    return SHARED.cluster("three", brokers=3)


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    """A cluster that many tests share is given back as it was: without this test's queues."""
    theirs = len(MADE)  # made by fixtures that several tests share
    yield
    while len(MADE) > theirs:
        cluster, name = MADE.pop()
        if not getattr(cluster, "_closed", False):
            for deleted in cluster.admin.delete_topics([name, f"{name}.dead"]).values():
                with suppress(KafkaException):  # the test deleted it itself, or killed its broker
                    deleted.result(WAIT)


@pytest.fixture
def name(kq_cluster: Kafka) -> str:
    """A new queue's topic; the site has the same name."""
    return topic(kq_cluster)


@pytest.fixture
def here(kq_cluster: Kafka, name: str) -> Iterator[Site]:
    """That site, in this process."""
    with alone(kq_cluster, name) as site:
        yield site


@pytest.fixture
def start(kq_cluster: Kafka) -> Iterator[Start]:
    """Workers of the site that is named like its topic, ended after the test."""
    workers: list[Worker] = []

    def begin(name: str, **settings: Any) -> Worker:
        workers.append(Worker(kq_cluster.bootstrap, name, name, SESSION, **settings))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.end()


@pytest.fixture
def desk(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Desk]:
    """`kq queue` for a queue of one partition and a site; this cluster is the current one."""
    name = f"football-{secrets.token_hex(3)}"
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    monkeypatch.setenv("KQ_SITE", f"site-{name[-6:]}")
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    monkeypatch.delenv("KQ_KAFKA_CONFIG", raising=False)
    Plan({name: QueueTopic(partitions=1)}).apply(kq_cluster, quiet=True)
    capsys.readouterr()
    desk = Desk(kq_cluster, name, f"site-{name[-6:]}", capsys, monkeypatch)
    yield desk
    for process in desk.started:
        process.kill()
        process.wait(WAIT)
    kq_cluster.admin.delete_topics([name, f"{name}.dead"])
