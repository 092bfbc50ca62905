"""A stream goes on where it was, and nowhere else: not on another cluster, not on a topic made anew, not without its snapshot."""

from __future__ import annotations

import argparse
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kqlib.command import pipeline
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.spark import checkpoint, form, standings
from kqlib.spark.snapshot import Snapshot
from kqlib.topics import Plan, Topic
from kqlib.workshop import games
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from tests.patience import WAIT
from tests.spark.hand import by_hand

PATIENCE = 300
TOLD = list(games.season(300, sport="football"))


@pytest.fixture
def names(kq_cluster: Kafka) -> Iterator[tuple[str, str]]:
    """A topic of games and one for standings."""
    name = f"games-{secrets.token_hex(3)}"
    topics = name, f"{name}.table"
    plan(*topics).apply(kq_cluster, quiet=True)
    yield topics
    for done in kq_cluster.admin.delete_topics(list(topics)).values():
        done.result(WAIT)


def plan(games: str, out: str) -> Plan:
    return Plan({games: Topic(2, config=FOR_EVER), out: Topic(1, compact=True)})


def home_of(cluster: Kafka, names: tuple[str, str]) -> str:
    """Where `kq pipeline standings GAMES OUT` keeps its checkpoint."""
    args = argparse.Namespace(word="standings", source=names[0], target=names[1], home=None)
    return pipeline._home(args, cluster)


def run(spark: Any, cluster: Kafka, names: tuple[str, str], home: str) -> None:
    assert standings(spark, cluster, *names, registry=Registry(cluster=cluster), home=home, once=True).wait(PATIENCE)


def test_a_checkpoint_of_another_cluster_or_of_a_topic_made_anew_is_refused_and_has_another_default_place(
    spark: Any, kq_cluster: Kafka, names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "state"))
    home, first = str(tmp_path / "home"), home_of(kq_cluster, names)
    assert checkpoint.claim(spark, home, kq_cluster, *names) == f"{home}/checkpoint"
    noted = Path(home, checkpoint.FILE).read_text()
    with Cluster() as other:
        plan(*names).apply(other, quiet=True)
        assert home_of(other, names) != first
        with pytest.raises(NotAllowed, match=r"holds the checkpoint of another cluster .* name an empty directory"):
            run(spark, other, names, home)
        with pytest.raises(NotAllowed, match="holds the checkpoint of another cluster"):
            form(spark, other, *names, registry=Registry(cluster=other), home=home, once=True)
        how = {"home": home, "registry": None, "subject": None, "group": None, "once": True}
        typed = argparse.Namespace(word="quarantine", source=names[0], target=names[1], **how)
        with pytest.raises(NotAllowed, match="holds the checkpoint of another cluster"):
            pipeline.quarantine(typed, other)
    assert home_of(kq_cluster, names) == first
    kq_cluster.admin.delete_topics([names[0]])[names[0]].result(WAIT)
    kq_cluster.wait_until_gone(names[0])
    plan(*names).apply(kq_cluster, quiet=True)
    assert home_of(kq_cluster, names) != first
    with pytest.raises(NotAllowed, match=f"the checkpoint of '{names[0]}' before it was deleted and made again"):
        run(spark, kq_cluster, names, home)
    assert Path(home, checkpoint.FILE).read_text() == noted and not Path(home, "checkpoint").exists()


def test_standings_whose_snapshot_is_lost_are_refused_and_come_right_from_an_empty_directory(
    spark: Any, kq_cluster: Kafka, names: tuple[str, str], tmp_path: Path
) -> None:
    home, registry = str(tmp_path / "home"), Registry(cluster=kq_cluster)
    produce(kq_cluster, names[0], seasons.messages(TOLD[:200], registry, f"{names[0]}-value"))
    run(spark, kq_cluster, names, home)
    shutil.rmtree(Path(home, "current"))
    produce(kq_cluster, names[0], seasons.messages(TOLD[200:], registry, f"{names[0]}-value"))
    with pytest.raises(NotAllowed, match="current/0 is lost or cut"):
        run(spark, kq_cluster, names, home)
    run(spark, kq_cluster, names, f"{home}-2")
    rows = Snapshot(spark, f"{home}-2").read("teams").collect()
    assert sorted(map(tuple, rows), key=lambda row: (row[0], row[2])) == by_hand(TOLD)
