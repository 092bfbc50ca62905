"""What the doctor says of a topic's settings, from plain values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kqlib.doctor import threats


@pytest.mark.parametrize(
    ("wanted", "replicas", "in_sync", "ill"), [(1, 3, 1, False), (2, 3, 2, False), (2, 3, 1, True), (3, 2, 2, False)]
)
def test_puts_fail_below_min_insync_replicas_but_never_for_more_than_there_are(
    wanted: int, replicas: int, in_sync: int, ill: bool
) -> None:
    part = SimpleNamespace(id=0, replicas=[*range(replicas)], isrs=[*range(in_sync)])
    there = {"football": SimpleNamespace(partitions={0: part})}
    found = threats._too_few({"football": {"min.insync.replicas": str(wanted)}}, there)
    assert bool(found) == ill
    if ill:
        assert found[0][0].endswith("partition 0 has 1 replicas in sync and needs 2")
