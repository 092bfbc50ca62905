"""kqlib works with confluent-kafka alone; what needs more says which extra brings it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alone import alone

WORKS = """
from kqlib import DrupalQueue, Plan, Put, QueueTopic, Retry, ShareQueue, Site, Topic, connect, errors, keys, topics
print(keys.spread([b"a", b"b"], 2))
"""
COMMANDS = ["--help", "queue --help", "topics --help", "metrics --help", "queue work --help", "kafka --help"]
NEEDS = {
    "kq.schemas.Registry()": ("schemas", "avro"),
    "kq.spark.session": ("spark", "spark"),
    "kq.virtual.Node": ("virtual.Node", "virtual"),
    "kq.play.keys()": ("kq.play", "lab"),
    "kq.promises": ("", ""),  # only its call needs anything
    "kq.Cluster()": ("", "lab"),
    "kq.lab('03-keys')": ("", "lab"),
}


def test_the_queue_and_the_plans_need_no_extra(tmp_path: Path) -> None:
    done = alone(tmp_path, "-c", WORKS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 records of 2 keys on 2 partitions by murmur2")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_explain_themselves_without_an_extra(command: str, tmp_path: Path) -> None:
    done = alone(tmp_path, "-m", "kqlib", *command.split())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("asked", NEEDS)
def test_a_missing_extra_is_one_sentence_with_the_command(asked: str, tmp_path: Path) -> None:
    what, extra = NEEDS[asked]
    done = alone(
        tmp_path, "-c", f"import kqlib as kq\ntry:\n    {asked}\nexcept kq.errors.KqError as error:\n    print(error)"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(what)
    assert (f'pip install "kqlib[{extra}]"' in done.stdout) == bool(extra)
