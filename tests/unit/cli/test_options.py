"""What is typed after `kq pipeline` and `kq virtual serve` arrives at Spark's functions and at the node. No broker, no Spark."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kqlib.spark
import kqlib.spark.frames
import kqlib.spark.snapshot
import kqlib.virtual
from kqlib.command.pipeline import audits, streams
from kqlib.spark.rules import Rule
from kqlib.workshop.cluster import up
from tests.unit.cli.conftest import run

SCORE = Rule("score", "score >= 0")
TOPICS = {"kq.schemas": None}
CLUSTER = SimpleNamespace(partitions=lambda topic: {0: topic}, describe=lambda: SimpleNamespace(topics=TOPICS))


class Called(Exception):  # noqa: N818 - no error
    """The function was called; `how` are its keyword arguments."""

    def __init__(self, **how: Any) -> None:
        super().__init__(how)
        self.how = how


def called(*_: Any, **how: Any) -> None:
    raise Called(**how)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where `home` is made
    monkeypatch.setattr(up, "current", lambda: nullcontext(CLUSTER))
    monkeypatch.setattr(kqlib.spark, "session", lambda cluster: None)
    monkeypatch.setattr(streams, "home_of", lambda args, cluster: "home")
    monkeypatch.setattr(kqlib.spark.snapshot, "claim", lambda *_: "home")
    monkeypatch.setattr(kqlib.spark.frames, "read", lambda *_, **how: None)


@pytest.mark.parametrize(
    ("function", "typed", "how"),
    [
        ("standings", "standings games table --subject goals", {"subject": "goals"}),
        ("standings", "standings games table", {"subject": None, "late": 3600.0, "rules": (), "home": "home"}),
        ("standings", "run pipeline.toml --once", {"late": 60, "late_topic": "late", "once": True, "rules": (SCORE,)}),
        ("stream", "run bad.toml", {"once": False, "rules": (SCORE,)}),
        ("plan.plan", "plan pipeline.toml", {"tables": True}),
        ("plan.plan", "plan quarantine games bad", {"tables": False}),
        ("plan.plan", "status pipeline.toml", {}),
        ("standings", "standings games table --late games.late", {"late_topic": "games.late", "quarantine": None}),
        ("aside.put_back", "quarantine retry games.late games --run r1", {"run": "r1", "mend": None, "dry": True}),
        ("aside.put_back", "quarantine retry games.late games --yes", {"dry": False}),
        ("backfill", "backfill pipeline.toml --rate 9", {"rate": 9, "start": "earliest", "late": 60, "switch": False}),
        ("backfill", "backfill standings games table --start 0:3 --switch", {"start": {0: 3}, "switch": True}),
        ("audit", "audit football --site eu --results done --once --of item", {"of": "item"}),
        ("audit", "audit football --site eu --results done --once", {"of": "kq-item"}),
        ("watch", "audit football --site eu --results done --to verdicts", {"verdicts": "verdicts"}),
        ("replay", "replay games again --start 0:3 --end 0:5,1:7", {"start": {0: 3}, "end": {0: 5, 1: 7}}),
        ("replay", "replay games again", {"end": "latest", "dry": True}),
    ],
)
def test_an_option_of_a_pipeline_arrives(
    function: str, typed: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    least = 'stream = "{}"\nsource = "games"\ntarget = "{}"\nrules = {{score = "score >= 0"}}\n'
    Path("bad.toml").write_text(least.format("quarantine", "bad"))
    Path("pipeline.toml").write_text(least.format("standings", "table") + 'late = "late"\nlateness = 60\n')
    monkeypatch.setattr(f"kqlib.spark.{function}", called)
    monkeypatch.setattr(streams, "registry_of", lambda args, cluster: None)
    monkeypatch.setattr(streams, "schema_of", lambda args, registry: None)
    monkeypatch.setattr(audits, "state_directory", lambda *_: "state")
    with pytest.raises(Called) as caught:
        run("pipeline", *typed.split())
    assert how.items() <= caught.value.how.items()


def test_the_site_is_kq_site_if_none_is_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kqlib.spark, "audit", lambda *asked, **_: called(site=asked[3]))
    monkeypatch.setattr("kqlib.queue.Site", lambda _, name: called(site=name))
    typed = ("audit football --results done --once", "replay football --dead")
    monkeypatch.setenv("KQ_SITE", "eu")
    for each in typed:
        with pytest.raises(Called) as caught:
            run("pipeline", *each.split())
        assert caught.value.how == {"site": "eu"}
    monkeypatch.delenv("KQ_SITE")
    for each in typed:
        assert run("pipeline", *each.split()) == 2
        assert "--site" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (
            "quarantine retry games.late",
            "which topic gets the rows back? Type: kq pipeline quarantine retry games.late TARGET\n",
        ),
        ("run standings", "Type kq pipeline standings TOPIC TARGET, or name a file like pipeline.toml\n"),
        ("stop quarantine games", "Type kq pipeline stop quarantine TOPIC TARGET, or name a file like pipeline.toml\n"),
        ("plan standing games table", "type nothing after it; did you mean standings?\n"),
        (
            "backfill standings games table --rate 0",
            "rate is a whole number, at least 1, not 0; see kq pipeline backfill --help\n",
        ),
        (
            "quarantine retry games.late games --home there",
            "--home goes without retry; see kq pipeline quarantine --help\n",
        ),
        ("replay games again -n 3", "-n goes with --dead; see kq pipeline replay --help\n"),
        (
            "replay football --dead --site eu --start 0:3",
            "--start goes without --dead; see kq pipeline replay --help\n",
        ),
        ("replay football --dead --site eu --end 0:3", "--end goes without --dead; see kq pipeline replay --help\n"),
        ("replay football --dead --site eu --run r1", "--run goes without --dead; see kq pipeline replay --help\n"),
    ],
)
def test_what_does_not_go_together_says_which_command_is_right(
    typed: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pipeline", *typed.split()) == 2
    assert capsys.readouterr().err.endswith(says)


@pytest.mark.parametrize(
    ("options", "how"),
    [(["--registry", "http://schemas:8081"], {"url": "http://schemas:8081"}), ([], {"cluster": CLUSTER})],
)
def test_the_schemas_are_at_an_address_or_on_the_cluster(
    options: list[str], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.schemas.Registry", called)
    with pytest.raises(Called) as caught:
        run("pipeline", "quarantine", "games", "bad", *options)
    assert caught.value.how == how


def test_a_plan_of_a_cluster_without_schemas_says_so_and_makes_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kqlib.schemas.Registry", called)
    monkeypatch.delitem(TOPICS, "kq.schemas")
    assert run("pipeline", "plan", "quarantine", "games", "bad") == 2
    assert "this cluster has no schemas: there is no topic 'kq.schemas'" in capsys.readouterr().err


def test_a_node_behind_a_proxy_advertises_the_address_that_clients_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kqlib.virtual, "Node", called)
    # the handlers that it sets would stay for the tests after this one
    own = SimpleNamespace(SIGTERM=signal.SIGTERM, SIGINT=signal.SIGINT, signal=lambda *_: None)
    monkeypatch.setattr("kqlib.command.virtual.signal", own)
    with pytest.raises(Called) as caught:
        run("virtual", "serve", "games", "--host", "0.0.0.0", "--port", "80", "--advertise", "https://queues.example")
    assert caught.value.how == {
        "host": "0.0.0.0",
        "port": 80,
        "advertise": "https://queues.example",
        "origins": [],
        "hosts": [],
        "tokens": None,
        "tls": None,
    }
