"""kqlib works with confluent-kafka alone; what needs more says which extra brings it."""

from __future__ import annotations

from pathlib import Path

from tests.alone import alone

WORKS = """
from kqlib import DrupalQueue, Plan, Put, QueueTopic, Retry, ShareQueue, Site, Topic, connect, errors, keys, topics
print(keys.spread([b"a", b"b"], 2))
"""
EXPLAINED = """
import sys
from kqlib.command.main import main
for words in sys.argv[1:]:
    try:
        main(words.split())
    except SystemExit as end:
        assert not end.code, words
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


def test_commands_explain_themselves_without_an_extra(tmp_path: Path) -> None:
    done = alone(tmp_path, "-c", EXPLAINED, *COMMANDS)
    assert (done.returncode, done.stderr) == (0, "")


LACKING = """
import sys
import kqlib as kq
for asked in sys.argv[1:]:
    try:
        exec(asked)
        print()
    except kq.errors.KqError as error:
        print(error)
"""


def test_a_missing_extra_is_one_sentence_with_the_command(tmp_path: Path) -> None:
    done = alone(tmp_path, "-c", LACKING, *NEEDS)
    assert (done.returncode, done.stderr) == (0, "")
    for (what, extra), line in zip(NEEDS.values(), done.stdout.splitlines(), strict=True):
        assert line.startswith(what)
        assert (f'pip install "kqlib[{extra}]"' in line) == bool(extra)
