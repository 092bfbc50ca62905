"""`kq up`, `down` and `status` without a broker: what the files in the state directory mean, and what is printed."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from kqlib.workshop.cluster import up
from tests.unit.cli.conftest import OTHERS, OURS, run


def test_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert (up.find(), run("status"), run("status", "--json"), run("down")) == (None, 1, 1, 0)
    words = ["Nothing runs. Start a cluster with `kq up`, or set KQ_BOOTSTRAP.", "null", "Nothing runs."]
    assert capsys.readouterr().out.splitlines() == words


def test_what_a_dead_holder_left_is_no_cluster_and_is_removed(nothing_runs: Path) -> None:
    file = nothing_runs / "up.json"
    for left in (json.dumps({"bootstrap": OURS, "brokers": 2, "pid": os.getpid()}), "{", "[]", ""):
        file.write_text(left)
        assert up.find() is None
        assert not file.exists()


def test_a_second_up_prints_the_same_line_and_another_size_is_refused(
    holder: up.Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (up.find(), run("up"), run("up", "--brokers", "2")) == (holder, 0, 0)
    assert capsys.readouterr().out == f"export KQ_BOOTSTRAP={OURS}\n" * 2
    assert run("up", "--brokers", "3") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "kq: a cluster of 2 brokers runs already, and it stays as it is; `kq down` ends it\n"


def test_down_waits_for_the_holder_and_says_when_it_does_not_end(
    holder: up.Running, nothing_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "STOP", 0.2)
    (nothing_runs / "up.log").write_text("stuck in the mud\n")
    assert run("down") == 2
    assert not (nothing_runs / "up.json").exists(), "the holder ends when its file is gone"
    err = capsys.readouterr().err
    assert "Waited 0.2 s for the cluster of `kq up` to end" in err
    assert "pid=1" in err and "stuck in the mud" in err


def test_an_old_export_is_pointed_to_the_cluster_that_runs(
    holder: up.Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", "127.0.0.1:1")
    assert run("status") == 2
    err = capsys.readouterr().err
    assert err.startswith("kq: No Kafka answered at 127.0.0.1:1: ")
    assert f'But `kq up` keeps a cluster at {OURS}: eval "$(kq up)"' in err


def test_a_current_cluster_that_does_not_answer_is_reported_once(
    holder: up.Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for exported in (None, OURS):
        if exported:
            monkeypatch.setenv("KQ_BOOTSTRAP", exported)
        assert run("status") == 2
        err = capsys.readouterr().err
        assert err.startswith(f"kq: No Kafka answered at {OURS}: ")
        assert "keeps a cluster" not in err


def test_a_broker_at_whose_port_nothing_listens_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listens, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        addresses = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in (listens, taken))
        assert up._answering(up.Running(addresses, 2, os.getpid())) == {1: "up", 2: "down"}


EVAL = 'eval "$(kq up)"'


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            up.Status("kq up", OURS, {1: "up", 2: "down"}, 1, 4, exported=False),
            [
                f"The cluster of `kq up` at {OURS}",
                "  broker 1  up, controller",
                "  broker 2  down",
                "  topics    4",
                f"Notebooks use it after {EVAL}",
            ],
        ),
        (
            up.Status("KQ_BOOTSTRAP", OTHERS, {7: "up"}, 100, 12, exported=True, other=OURS),
            [
                f"Your cluster (KQ_BOOTSTRAP) at {OTHERS}",
                "  broker 7  up",
                "  node 100  controller",
                "  topics    12",
                f"`kq up` keeps another one at {OURS}; notebooks use that after {EVAL}",
            ],
        ),
    ],
)
def test_a_status_says_what_runs_where_and_who_uses_it(status: up.Status, words: list[str]) -> None:
    assert str(status).splitlines() == words


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (OURS, OURS, True),
        ("127.0.0.1:21001", OURS, True),
        ("127.0.0.1:2100", OURS, False),
        ("", "", False),
    ],
)
def test_two_addresses_are_the_same_cluster_if_they_share_a_broker(one: str, other: str, same: bool) -> None:
    assert up._same(one, other) is same
