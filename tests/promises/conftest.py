"""Which promises begin first: a file that takes a minute and begins last keeps every other worker waiting for it.

pytest-xdist would begin with the files of many tests; here these are the quick ones. And what the queue's promises begin with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kqlib.broker import Kafka
from kqlib.queue import Site
from tests.promises.queue_worker import Worker
from tests.promises.queues import SESSION, Start, topic

LONG = {
    *("test_promises", "test_plugin", "test_cluster", "test_faults_short", "test_rungs", "test_lab"),
    *(
        "test_queue_crashes",
        "test_queue_crossings",
        "test_virtual_moves",
        "test_virtual_fencing",
        "test_virtual_recover",
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, each in its own order."""
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture
def name(kq_cluster: Kafka) -> str:
    """A new queue's topic; the site has the same name."""
    return topic(kq_cluster)


@pytest.fixture
def here(kq_cluster: Kafka, name: str) -> Iterator[Site]:
    """That site, in this process."""
    with Site(kq_cluster, name, session=SESSION) as site:
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
