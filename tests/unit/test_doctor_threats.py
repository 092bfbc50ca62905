"""What the doctor says of a topic's settings, from plain values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kqlib.workshop.doctor import threats


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


KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
WEEK = KEPT | {"retention.ms": f"{7 * 86_400_000}"}


@pytest.mark.parametrize(
    ("settings", "known", "ok", "words"),
    [
        (KEPT, True, True, "no topic deletes items before they are done"),
        (WEEK | {"cleanup.policy": "compact"}, True, True, "no topic deletes items before they are done"),
        (WEEK, True, True, "'football' deletes records after 7 days, done or not; no item has waited for half of that"),
        (
            WEEK,
            False,
            None,
            "'football' deletes records after 7 days, done or not; how long its items wait is not known",
        ),
        (
            WEEK | {"retention.bytes": "1000"},
            True,
            True,
            "'football' deletes records after 7 days and above 1000 bytes a partition, done or not; "
            "no item has waited for half of that",
        ),
    ],
)
def test_a_limit_is_said_with_what_is_known_of_what_waits(
    settings: dict[str, str], known: bool, ok: bool | None, words: str
) -> None:
    waiting = {"football": threats.Waiting()} if known else {}
    found = threats._retention({"football": settings}, waiting)
    assert (found.ok, found.what) == (ok, words)
