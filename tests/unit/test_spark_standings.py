"""Standings without Spark: what is refused, and the schemas of what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kqlib.errors import NotAllowed, TopicMissing
from kqlib.schemas import Registry
from kqlib.spark import form, standings
from kqlib.spark.snapshot import LocalFiles, check_topics
from kqlib.spark.standings import FORM, STANDING, check_folder
from kqlib.spark.table import COLUMNS, facts, games


class Cluster:
    """A cluster with these topics."""

    bootstrap, _closed, _own = "127.0.0.1:9", False, {}

    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def partitions(self, topic: str) -> dict[int, Any]:
        if topic not in self.topics:
            raise TopicMissing(topic=topic)
        return {0: None}


def test_what_is_written_has_a_schema_of_its_own() -> None:
    assert tuple(field["name"] for field in STANDING["fields"]) == COLUMNS
    registry = Registry()
    assert registry.register("standings-value", STANDING) != registry.register("form-value", FORM)


def test_a_topic_that_is_missing_is_named_before_anything_starts() -> None:
    common: dict[str, Any] = {"registry": Registry(), "home": "/home"}
    with pytest.raises(TopicMissing, match="'out'"):
        standings(None, Cluster("games"), "games", "out", **common)
    with pytest.raises(TopicMissing, match="'bad'"):
        standings(None, Cluster("games", "out"), "games", "out", quarantine="bad", **common)
    with pytest.raises(TopicMissing, match="'form'"):
        form(None, Cluster("out"), "out", "form", **common)


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        (("games", "games"), "would read its own rows, without end: name another topic"),
        (("games", "out", None, "games"), "a stream that writes into 'games' would read its own rows"),
        (("games", "out", "out"), "'out' gets the standings: name another topic for the rows that are put aside"),
    ],
)
def test_a_stream_that_would_read_what_it_writes_is_refused(topics: tuple[Any, ...], says: str) -> None:
    cluster: Any = Cluster("games", "out", "aside")
    check_topics(cluster, "games", "out", "aside", "aside")  # one topic for bad and for late rows
    with pytest.raises(NotAllowed, match=says):
        check_topics(cluster, *topics)


class Frame:
    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)


NEEDS = "games(good) needs decoded rows with `value` and `timestamp`, as decode(…).good has them"
HOME = "home is a directory for the checkpoint and the snapshot, not "


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: games(Frame("value")), NEEDS),
        (lambda: games("rows"), NEEDS),
        (lambda: facts(Frame("value", "timestamp"), -1), "late is a number of seconds from 0, not -1"),
        (lambda: facts(Frame("value", "timestamp"), "1 hour"), "late is a number of seconds from 0, not '1 hour'"),
        (lambda: standings(None, Cluster("g"), "g", "g", registry=Registry(), home=""), f"{HOME}''"),
        (lambda: form(None, Cluster("g"), "g", "g", registry=Registry(), home=None), f"{HOME}None"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        call()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "folder", ["link", "link/../teams", "home/../home/teams", "home", "beside/..", "linked/teams", ""]
)
def test_a_folder_of_parquet_that_is_in_the_state_or_around_it_is_refused_by_whatever_path(
    folder: str, tmp_path: Path
) -> None:
    (tmp_path / "home/teams").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home/teams")
    (tmp_path / "linked").symlink_to(tmp_path / "home")
    for home in ("home", "linked", "beside/../home"):
        with pytest.raises(NotAllowed, match="name an empty one"):
            check_folder(LocalFiles(f"{tmp_path}/{folder}"), f"{tmp_path}/{home}")
    check_folder(LocalFiles(f"{tmp_path}/home2"), f"{tmp_path}/home")
    check_folder(LocalFiles("s3a://home/teams"), "s3a://home2")
