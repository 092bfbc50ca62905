"""What unit tests share: a checkout with exercises, away from the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqlib.runtime import places
from tests.unit.checks_examples import REPLICAS, TOPICS


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
