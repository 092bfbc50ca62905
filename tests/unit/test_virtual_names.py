"""Names of queues, their partitions, the three topics: tables."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from kqlib.errors import KqError
from kqlib.topics import Plan
from kqlib.virtual import names
from kqlib.virtual.ownership import PartitionMap


def test_three_topics_are_planned_from_one_name() -> None:
    plan = Plan(names.topics("games", partitions=6))
    assert {name: (topic.partitions, topic.compact) for name, topic in plan.all.items()} == {
        "games": (6, False),
        "games.offsets": (6, True),
        "games.partitions": (1, True),
    }
    assert plan.all["games"].settings["retention.ms"] == "-1"


WRONG = (
    (("games", 0), "partitions is a whole number from 1 to 1,000, not 0"),
    (("games", True), "partitions is a whole number from 1 to 1,000, not True"),
    (("games", "6"), "partitions is a whole number from 1 to 1,000, not '6'"),
    (("ga mes", 6), "'ga mes' cannot be a topic's name: Kafka takes a-z A-Z 0-9 . _ - and not ' '."),
    (
        ("g" * 240, 6),
        f"'{'g' * 240}.partitions' cannot be a topic's name: it has 251 characters and Kafka takes 249.",
    ),
    (
        ("games", 6, None, {"cleanup.policy": "compact"}),
        "'games' cannot be compacted: of each queue only the last item would stay",
    ),
)


@pytest.mark.parametrize(("arguments", "sentence"), WRONG)
def test_wrong_topics_are_refused_with_a_sentence(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(KqError) as error:
        names.topics(*arguments)
    assert str(error.value) == sentence


GOOD = ("a", "ARS-CHE", "user:42", "a.b", "~x", "@x", "A" * 200, "_", "0")
BAD: tuple[Any, ...] = ("", ".", "..", ".a", "a/b", "a b", "ä", "a\n", "A" * 201, "a?b", "a%b", None, 5, b"a")


@pytest.mark.parametrize("name", GOOD)
def test_names_that_go_through_an_address_untouched_are_taken(name: str) -> None:
    assert names.checked("queue", name) == name == names.queue_of(name.encode())


@pytest.mark.parametrize("name", BAD)
def test_other_names_are_refused_with_a_sentence(name: Any) -> None:
    with pytest.raises(
        KqError, match=r"a queue's name has 1 to 200 of a-z A-Z 0-9 _ : @ ~ \. - and does not begin with a dot: not "
    ):
        names.checked("queue", name)
    if isinstance(name, str):
        assert names.queue_of(name.encode()) is None


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"a b"])
def test_a_record_with_another_key_belongs_to_no_queue(key: bytes | None) -> None:
    assert names.queue_of(key) is None


def test_the_map_follows_its_records_and_the_greater_version_is_newer() -> None:
    made, one = PartitionMap("games", 2), {"node": "n1", "url": "http://127.0.0.1:1", "epoch": 3}
    owner, left = json.dumps(one).encode(), json.dumps({"node": "", "url": "", "epoch": 3}).encode()
    assert made.answer() == {"topic": "games", "partitions": 2, "version": -1, "owners": {"0": None, "1": None}}
    records = ((b"0", owner), (b"1", owner), (b"0", left), (b"x", b"{}"), (b"1", b"not json"), (b"1", b'{"url":"u"}'))
    for offset, record in enumerate(records):
        made.update(offset, *record)
    found = {"topic": "games", "partitions": 2, "version": 5, "owners": {"0": None, "1": one}}
    assert made.answer() == found
    made.update(0, *records[0])  # another reader begins at the beginning: that is known already
    assert made.answer() == found


def test_a_nodes_warning_is_not_printed_in_a_lesson() -> None:
    code = "import logging; from kqlib.workshop import nodes; logging.getLogger('kqlib.virtual').warning('lost')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stderr == ""
