"""Queues at their crash points: a sample of the stored scores is tried again, and the judge sees what a broken queue does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kqlib.workshop.cluster import Cluster
from kqlib.workshop.crash import crash_cluster
from kqlib.workshop.ladder import LADDER, LEDGER
from kqlib.workshop.promises.crash_points import CLOCKS, TRIALS, all_queues, read, visit

KILLED, IN_A_STEP, STOPPED = TRIALS


@pytest.fixture(scope="module")
def wired() -> Iterator[Cluster]:
    with crash_cluster(config=CLOCKS) as made:
        yield made


def test_a_sample_of_two_points_of_our_queue_has_its_stored_score(wired: Cluster) -> None:
    stored, _ = read()
    for trial in (KILLED, IN_A_STEP):
        score = visit({"ledger": LEDGER}, [trial], wired, sample=1, seed=18)["ledger"][trial.name]
        assert score.points == 1
        known = stored["ledger"][trial.name].failed
        assert score.failed == {point: seen for point, seen in known.items() if point in score.failed}


@pytest.mark.nightly  # by day tests/unit/test_crash.py judges two leases, and test_crash.py a lost item
def test_two_live_leases_are_seen_where_there_are_two_and_a_lost_item_where_one_is_lost(wired: Cluster) -> None:
    at = "OffsetCommit:1:before"
    mapped = visit({"mapping": LADDER["save offset"]}, [STOPPED], wired, only=[at])["mapping"]
    assert mapped[STOPPED.name].failed == {at: "two acks were taken of items 0, 1, 2 and 3"}
    at = "Produce:1:before"
    careless = visit({"auto": LADDER["auto-commit"]}, [KILLED], wired, only=[at])["auto"]
    assert careless[KILLED.name].failed == {at: "lost 0"}


@pytest.mark.nightly
@pytest.mark.limit(3600)
def test_every_point_of_every_queue_has_its_stored_score() -> None:
    stored, _ = read()
    found = visit(all_queues())
    failed = {queue: {name: score.failed for name, score in trials.items()} for queue, trials in found.items()}
    assert failed == {queue: {name: score.failed for name, score in stored[queue].items()} for queue in found}
