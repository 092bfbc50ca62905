"""What the doctor finds in a cluster's queues, from plain values: retention, states, commits, settings of topics."""

from __future__ import annotations

import struct
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.queue.incidents import Incident, Seen
from kqlib.queue.ledger import Ledger
from kqlib.workshop.doctor import Finding, queues, topics

DAY = 86400.0
WELL = Ledger(7, 7, 3, "id").text()


def seen(committed: int | None, metadata: str = "", known: bool = True) -> Seen:
    return Seen("id", 0, 20, committed, metadata, known=known)


@pytest.mark.parametrize(
    ("seconds", "ok", "words"),
    [
        (2147483647 * 60.0, True, "where a site is in a queue is kept for ever"),
        (40 * DAY, True, "a site that does not work for 40 days is forgotten by the cluster"),
        (7 * DAY, False, "a site that does not work for 7 days is forgotten by the cluster: it would not know"),
        (3600.0, False, "a site that does not work for 60 min is forgotten"),
    ],
)
def test_a_retention_of_offsets_below_a_month_is_short(seconds: float, ok: bool, words: str) -> None:
    found = queues.kept(seconds)
    assert (found.ok, found.what.startswith(words)) == (ok, True)
    assert bool(found.remedy) == (not ok)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (seen(None, known=False), ""),
        (seen(None), "its state is gone"),
        (seen(7, WELL), ""),
        (seen(7, WELL, known=False), ""),
        (seen(5), "another program set its offset to 5"),
        (seen(5, known=False), "another program set its offset to 5"),
        (seen(6, WELL), "The committed state cannot be read: its checksum does not match the committed offset 6"),
        (seen(7, "hello"), "The committed state cannot be read: it is not of the form"),
    ],
)
def test_a_state_is_there_readable_and_ours(state: Seen, what: str) -> None:
    words, remedy = queues.wrong(state)
    assert words.startswith(what)
    assert bool(words) == bool(what) == bool(remedy)


def test_each_wrong_state_is_a_line() -> None:
    well = {("eu", "football", 0): seen(7, WELL), ("us", "football", 0): seen(None, known=False)}
    assert queues.ledgers(well, {}) == Finding(
        "ledgers", True, "2 partitions of 2 sites, nothing lost and nothing strange"
    )
    ill = queues.ledgers(well | {("us", "hockey", 1): seen(None), ("us", "hockey", 2): seen(3)}, {})
    assert ill.ok is False
    assert ill.what.splitlines() == [
        "site 'us' in 'hockey', partition 1: its state is gone",
        "site 'us' in 'hockey', partition 2: another program set its offset to 3",
    ]
    gone, set_by_another = str(ill).splitlines()[-2:]
    assert gone.startswith(f"{'':16}→ kq queue work hockey --site us --on-lost earliest")
    assert set_by_another.startswith(f"{'':16}→ let nothing else use the site's name as its group")


def test_what_happened_without_the_site_is_a_line_with_its_remedy() -> None:
    at = ("eu", "football", 0)
    ill = queues.ledgers({at: seen(7, WELL)}, {at: [Incident("skipped", 2, 7, 5, 0)]})
    assert ill.ok is False
    assert ill.what.startswith(
        "site 'eu' in 'football', partition 0: 5 items skipped by another program's commit, seen at"
    )
    assert ill.what.endswith("(offsets 2 to 6)") and ill.remedy.startswith("kq queue rewind football --site eu puts")


def test_a_state_that_nobody_commits_any_more_is_about_to_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    fresh = {("eu", "football", 0)}
    monkeypatch.setattr(queues, "committed_since", lambda *args: asked.append(args) or fresh)
    there = fresh | {("us", "football", 0), ("us", "football", 1)}
    well = queues.expiry(None, fresh, 7 * DAY)  # type: ignore[arg-type]
    assert (well.ok, well.what) == (True, "1 state, each committed lately")
    ill = queues.expiry(None, there, 7 * DAY)  # type: ignore[arg-type]
    assert (ill.ok, ill.what) == (False, "not committed for 5 days, forgotten after 7 days: site 'us' in 'football'")
    assert asked[1][1] == {"eu", "us"}
    assert asked[1][2] == pytest.approx(time.time() - queues.OLD * 7 * DAY, abs=60)
    asked.clear()
    assert queues.expiry(None, there, 2147483647 * 60.0).ok  # type: ignore[arg-type]
    assert asked == []  # kept for ever: nothing is read


@pytest.mark.parametrize(
    ("group", "partition"),  # where a broker with 50 partitions kept them
    [("", 0), ("a", 47), ("football", 9), ("drupal-eu", 3), ("polygenelubricants", 0), ("Tor für 𝄞", 45)],
)
def test_a_group_is_in_the_partition_that_javas_hash_names(group: str, partition: int) -> None:
    assert queues.place(group, 50) == partition
    assert queues.place(group, 1) == 0


def key(version: int, group: str, topic: str, partition: int) -> bytes:
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in (group, topic))
    return struct.pack(">h", version) + names + struct.pack(">i", partition)


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        (key(1, "drupal-eu", "football", 3), ("drupal-eu", "football", 3)),
        (key(0, "ü", "x", 0), ("ü", "x", 0)),
        (struct.pack(">hh", 2, 1) + b"g", None),  # a group's own metadata
        (key(3, "g", "x", 0), None),
        (b"", None),
        (None, None),
    ],
)
def test_a_record_of_kafkas_log_of_commits_says_whose_commit_it_is(raw: bytes | None, state: Any) -> None:
    assert queues.committed(raw) == state


def test_without_a_cluster_nothing_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    assert list(queues.findings()) == []
    monkeypatch.setattr("kqlib.kafka.cluster.ANSWER", 0.3)
    monkeypatch.setenv("KQ_BOOTSTRAP", "127.0.0.1:1")  # the round trip says that
    assert list(queues.findings()) == []


# --- settings of topics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "replicas", "in_sync", "ill"), [(1, 3, 1, False), (2, 3, 2, False), (2, 3, 1, True), (3, 2, 2, False)]
)
def test_puts_fail_below_min_insync_replicas_but_never_for_more_than_there_are(
    least: int, replicas: int, in_sync: int, ill: bool
) -> None:
    part = SimpleNamespace(id=0, replicas=[*range(replicas)], isrs=[*range(in_sync)])
    there = {"football": SimpleNamespace(partitions={0: part})}
    found = list(topics.too_few({"football": {"min.insync.replicas": str(least)}}, there))
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
def test_a_limit_is_reported_with_what_is_known_of_what_waits(
    settings: dict[str, str], known: bool, ok: bool | None, words: str
) -> None:
    waiting = {"football": topics.Waiting()} if known else {}
    found = topics.retention({"football": settings}, waiting)
    assert (found.ok, found.what) == (ok, words)
