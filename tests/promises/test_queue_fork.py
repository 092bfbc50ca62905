"""A process forks while it has a site: children are told to connect, leave cleanly, and work on connections of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any

from kqlib.kafka import Kafka
from tests.patience import PATIENCE, WAIT
from tests.promises.queues import topic

SENTENCE = "was made in another process; connect after the fork"


def run(cluster: Kafka, case: str) -> dict[str, Any]:
    """What the parent of this case and its children saw."""
    state = tempfile.TemporaryDirectory()
    there = os.environ | {"KQ_BOOTSTRAP": cluster.bootstrap, "KQ_STATE": state.name}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.promises.fork_parent"]
    process = subprocess.Popen(
        [*command, case, topic(cluster)],
        env=there,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, wrong = process.communicate(timeout=WAIT)
    finally:
        with suppress(ProcessLookupError):  # none is left, as a rule
            os.killpg(process.pid, signal.SIGKILL)
        state.cleanup()
    assert process.returncode == 0, wrong
    said: dict[str, Any] = json.loads(out)
    assert said.pop("parent") == "Item"
    return said


def refused(said: dict[str, Any]) -> None:
    """Every verb that the child tried said so, and at once."""
    assert isinstance(said["verbs"], dict), said
    slowest = said["verbs"].pop("slowest")
    wrong = {
        verb: told
        for verb, told in said["verbs"].items()
        if not told.startswith("NotAllowed: ") or SENTENCE not in told
    }
    assert not wrong
    assert slowest < 1 * PATIENCE


def test_after_a_fork_everything_inherited_says_at_once_to_connect_after_the_fork(kq_cluster: Kafka) -> None:
    said = run(kq_cluster, "inherited")
    refused(said)
    assert "gunicorn" in said["verbs"]["put"] and "Celery" in said["verbs"]["put"]
    assert said["anew"] == "acked"


def test_a_child_that_only_leaves_is_gone_at_once(kq_cluster: Kafka) -> None:
    said = run(kq_cluster, "leaves")
    assert said.pop("multiprocessing") == 0
    assert said == dict.fromkeys(said, "left")


def test_the_workers_of_a_forking_server_connect_for_themselves_and_end_at_sigterm(kq_cluster: Kafka) -> None:
    workers = run(kq_cluster, "serves")["workers"]
    assert [worker["ended"] for worker in workers] == [0, 0, 0], workers
    for worker in workers:
        said = json.loads(worker["said"])
        assert SENTENCE in said["put"] and said["anew"] == "acked"


def test_a_childs_end_stops_no_broker_of_its_parent(kq_cluster: Kafka) -> None:
    said = run(kq_cluster, "embedded")
    assert said["brokers"] == [1], said
    assert SENTENCE in said["child"]["kill"] and SENTENCE in said["child"]["broker"]
    assert said["child"]["address"].startswith("'127.0.0.1:")


def test_after_a_fork_virtual_queues_say_so_too_and_a_node_that_closes_is_gone_although_a_child_lives(
    kq_cluster: Kafka,
) -> None:
    said = run(kq_cluster, "virtual")
    refused(said)
    assert said["a block's end"] == "left" and said["anew"] == "acked" and said["depth"] == 0
    assert said["closed"] == "nobody listens" and said["lives on"] == "!"


def test_after_a_fork_a_lab_and_its_playgrounds_are_the_parents(kq_cluster: Kafka) -> None:
    said = run(kq_cluster, "lab")
    refused(said)
    assert said["close"] == "left" and said["folder"] and said["topic"].endswith(".football")
    assert said["plays"] == ["", ""]


def test_after_a_fork_a_group_and_its_members_are_the_parents(kq_cluster: Kafka) -> None:
    said = run(kq_cluster, "group")
    refused(said)
    assert said["a block's end"] == "left" and said["members"] == [["ann"], ["ann"]]
