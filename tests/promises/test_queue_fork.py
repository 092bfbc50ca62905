"""A process forks while it has a site: children learn that they must connect, leave cleanly, and work on connections of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from kqlib.kafka import Kafka
from tests.patience import PATIENCE, WAIT
from tests.promises.queues import topic

SENTENCE = "was made in another process; connect after the fork"


Answers = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def answers(kq_cluster: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What a parent and its children saw in each case."""
    there = os.environ | {"KQ_BOOTSTRAP": kq_cluster.bootstrap, "KQ_STATE": str(tmp_path_factory.mktemp("state"))}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.promises.fork_parent"]
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, topic(kq_cluster)], env=there, start_new_session=True, **how)
    try:
        out, wrong = process.communicate(timeout=WAIT)
    finally:
        with suppress(ProcessLookupError):  # none is left, as a rule
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, wrong
    found: Answers = json.loads(out)
    assert {answer.pop("parent") for answer in found.values()} == {"Item"}
    return found


def refused(answer: dict[str, Any]) -> None:
    """Every verb that the child tried refused, and at once."""
    assert isinstance(answer["verbs"], dict), answer
    slowest = answer["verbs"].pop("slowest")
    wrong = {
        verb: reported
        for verb, reported in answer["verbs"].items()
        if not reported.startswith("NotAllowed: ") or SENTENCE not in reported
    }
    assert not wrong
    assert slowest < 1 * PATIENCE


def test_after_a_fork_everything_inherited_says_at_once_to_connect_after_the_fork(answers: Answers) -> None:
    answer = answers["inherited"]
    refused(answer)
    assert "gunicorn" in answer["verbs"]["put"] and "Celery" in answer["verbs"]["put"]
    assert answer["anew"] == "acked"


def test_a_child_that_only_leaves_is_gone_at_once(answers: Answers) -> None:
    answer = answers["leaves"]
    assert answer.pop("multiprocessing") == 0
    assert answer == dict.fromkeys(answer, "left")


def test_the_workers_of_a_forking_server_connect_for_themselves_and_end_at_sigterm(answers: Answers) -> None:
    workers = answers["serves"]["workers"]
    assert [worker["ended"] for worker in workers] == [0, 0, 0], workers
    for worker in workers:
        answer = json.loads(worker["answer"])
        assert SENTENCE in answer["put"] and answer["anew"] == "acked"


def test_a_childs_end_stops_no_broker_of_its_parent(answers: Answers) -> None:
    answer = answers["embedded"]
    assert answer["brokers"] == [1], answer
    assert SENTENCE in answer["child"]["kill"] and SENTENCE in answer["child"]["broker"]
    assert answer["child"]["address"].startswith("'127.0.0.1:")


def test_after_a_fork_virtual_queues_say_so_too_and_a_node_that_closes_is_gone_although_a_child_lives(
    answers: Answers,
) -> None:
    answer = answers["virtual"]
    refused(answer)
    assert answer["a block's end"] == "left" and answer["anew"] == "acked" and answer["depth"] == 0
    assert answer["closed"] == "nobody listens" and answer["lives on"] == "!"


def test_after_a_fork_a_lab_and_its_playgrounds_are_the_parents(answers: Answers) -> None:
    answer = answers["lab"]
    refused(answer)
    assert answer["close"] == "left" and answer["folder"] and answer["topic"].endswith(".football")
    assert answer["plays"] == ["", ""]


def test_after_a_fork_a_group_and_its_members_are_the_parents(answers: Answers) -> None:
    answer = answers["group"]
    refused(answer)
    assert answer["a block's end"] == "left" and answer["members"] == [["ann"], ["ann"]]
