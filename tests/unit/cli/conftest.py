"""What tests of `kq` without a broker share: a machine on which nothing runs, one on which something seems to, a checkout."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kqlib.command import main as cli
from kqlib.runtime import places
from kqlib.workshop.cluster import up

OURS, OTHERS = "127.0.0.1:21000,127.0.0.1:21001", "kafka.example:9092"


def run(*words: str) -> int:
    """The exit code of kq with these arguments."""
    try:
        return cli.main(words)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing was started and nothing is set."""
    for name in ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    monkeypatch.setattr("kqlib.kafka.cluster.ANSWER", 0.3)
    for name in ("execv", "execve"):  # these tests are not to become anything
        monkeypatch.setattr(os, name, lambda *args: pytest.fail(f"it would become {args}"))
    return tmp_path


@pytest.fixture
def holder(nothing_runs: Path) -> Iterator[up.Running]:
    """What a living `kq up` of two brokers leaves to see: its lock, held, and its file. No Kafka."""
    running = up.Running(OURS, 2, 1)
    with (nothing_runs / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (nothing_runs / "up.json").write_text(json.dumps({"bootstrap": OURS, "brokers": 2, "pid": 1}))
        yield running


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with three notebooks and a draft."""
    repo = tmp_path / "check out"
    for name in ("notebooks/00-start-here", "notebooks/03-keys", "notebooks/12-spark-pipeline", "drafts/mine"):
        file = repo / f"{name}.ipynb"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"cells": []}')
    (tmp_path / "outside.ipynb").write_text("{}")
    monkeypatch.chdir(repo)
    monkeypatch.setattr(places, "repo", lambda: repo)
    return repo


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where kq would turn into JupyterLab, its command and its environment."""
    asked: list[Any] = []

    def execve(*args: Any) -> None:
        asked.extend(args)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    return asked
