"""One Spark session for all tests: to start one takes longer than most tests."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kqlib.kafka import Kafka
from kqlib.spark.session import QUICK
from tests.patience import WAIT, until


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """The quick compiler only, in every JVM of these tests: on some hundred rows Java's other one takes more than it gives."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JDK_JAVA_OPTIONS", f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {QUICK}".strip())
        yield


@pytest.fixture(scope="session")
def spark(kq_cluster: Kafka) -> Iterator[Any]:
    """The session of this process, on the test's cluster; its web page shows the last few queries only."""
    from kqlib.spark import close, session

    kept = ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions")
    page = {"spark.ui.enabled": True, "spark.ui.port": "0"}
    small = {"spark.sql.shuffle.partitions": "2"}
    if not os.environ.get("KQ_NIGHTLY"):  # on some hundred rows it costs more to compile a query than to run it
        small |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    warm = {"spark.python.daemon.module": "tests.spark.warm"}  # each worker of Python is forked from it
    yield session(kq_cluster, config=page | small | warm | dict.fromkeys(kept, "8"))
    close()
    with warnings.catch_warnings():  # the last of Py4J's forgotten sockets go here, and not at pytest's own end
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a stream's checkpoint."""
    return str(tmp_path / "checkpoint")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Py4J leaves the sockets of threads that have ended to the garbage collector, which then warns."""
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def kq_topic(kq_cluster: Kafka, kq_topic: str) -> str:
    """A topic that keeps its records for ever: the games lie in the past, and Kafka would delete them at once."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    changes = ConfigResource(ResourceType.TOPIC, kq_topic, incremental_configs=[entry])
    for done in kq_cluster.admin.incremental_alter_configs([changes]).values():
        done.result(WAIT)
    asked = ConfigResource(ResourceType.TOPIC, kq_topic)
    until(lambda: kq_cluster.admin.describe_configs([asked])[asked].result(WAIT)["retention.ms"].value == "-1")
    return kq_topic
