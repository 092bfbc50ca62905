"""What unit tests share: signals that stay as they are, and a checkout with exercises, away from the real one, a registry."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kqlib.runtime import places
from kqlib.schemas import Registry
from kqlib.workshop import games
from tests.unit.checks_examples import REPLICAS, TOPICS


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A test leaves the signals as it found them: a later test that is interrupted would fail for nothing."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture
def solutions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout with two files of exercises, and a machine on which nothing was passed yet: the files' directory."""
    folder = tmp_path / "repo" / "notebooks" / "solutions"
    folder.mkdir(parents=True)
    (folder / "01_topics.py").write_text(TOPICS)
    (folder / "02_partitions_and_replicas.py").write_text(REPLICAS)
    monkeypatch.setattr(places, "repo", lambda: tmp_path / "repo")
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "state"))
    return folder


@pytest.fixture(scope="module")
def registry() -> Registry:
    """Versions 1 to 4 of the games under ids 1 to 4, and nothing refused."""
    registry = Registry("NONE")
    for version in games.VERSIONS:
        registry.register("games-value", games.schema(version))
    return registry
