"""The promises on a real Kafka: what each kind of queue keeps."""

from __future__ import annotations

import os

import psutil
import pytest

from kqlib.workshop.ladder import LADDER, LEDGER
from kqlib.workshop.promises import PROMISES, promises, run, tried_on
from kqlib.workshop.promises.drupal import Drupal, SqlQueue
from kqlib.workshop.promises.share import Share
from kqlib.workshop.promises.virtual import VIRTUAL

pytestmark = pytest.mark.limit(300)  # it may wait for another process of the run that computes the same scores

# tried once in a run: notebooks 07 to 11 read these scores
QUEUES = {
    **LADDER,
    "ledger": LEDGER,
    "Drupal's SQL": SqlQueue,
    "DrupalQueue": Drupal,
    "share": Share,
    "virtual": VIRTUAL,  # on two nodes
}

# by day these two are tried on what notebooks 07, 10 and 11 show of them, at night on the other promises as well
SHOWN = {
    "save offset": [
        *("first in, first out", "claimed is hidden", "released comes back", "release disturbs nobody"),
        *("acks in any order", "depth counts claimed", "deleted and back", "survives a killed worker"),
    ],
    "virtual": [
        *("released together", "lease expires", "extend", "delayed release", "order by key", "dead letter, once"),
        *("redrive chooses", "deleted and back", "survives a killed worker", "a crash is an attempt", "zombie refused"),
        *("outputs with the ack", "a bad output stops nobody", "depth from outside", "more processes than partitions"),
    ],
}

# ✓ kept · ✗ broken · – not offered, in the order of `QUEUES`
EXPECTED = {
    "first in, first out": "✓✓✓✓✓✓–✓✓",
    "claimed is hidden": "✓✗✗✓✓✓✓✓✓",
    "empty means empty": "✗✗✗✗✓✓✓✓✓",
    "released comes back": "–✓✓✓✓✓✓✓✓",
    "released together": "–✗✗✓✓✓✓✓✗",
    "release disturbs nobody": "–✗✗✓✓✓✓✓✓",
    "acks in any order": "–✗✓✗✓✓✓✓✓",
    "depth counts claimed": "–––✓✓✓✓–✓",
    "lease expires": "–✗✗✓✓✓✓✓✓",
    "extend": "–––✓✓–––✓",
    "stale ack refused": "–✗✗✓✓✗✓✓✓",
    "delayed release": "–––✓✓✓––✓",
    "many threads": "✓✓✓✓✓✓✓✓✓",
    "order by key": "✗✗✗✗✓✗––✓",
    "dead letter, once": "––––✓–––✓",
    "redrive chooses": "––––✓––––",
    "deleted and back": "––✓––✗✓––",
    "survives a killed worker": "✗✗✗✓✓✓✓✓✓",
    "a crash is an attempt": "–––✗✓––✓✓",
    "zombie refused": "✗✗✗✓✓✗✓✓✓",
    "outputs with the ack": "––––✓––––",
    "a bad output stops nobody": "––––✓––––",
    "depth from outside": "–––✗✓✓✓–✓",
    "depth is exact": "–––✗✓✓✓–✓",
    "topic recreated": "✓✓✓✓✓✓✓✓✓",
    "leader dies": "✓✓✓✓✓✓✓✓✓",
    "heals after an outage": "✓✓✓✓✓✓✓✓✓",
    "more processes than partitions": "✗✗✗✗✗✓✗✓✓",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where this run keeps its verdicts; a directory of this file's own if the run has none."""
    with pytest.MonkeyPatch.context() as patch:
        if "KQ_VERDICTS" not in os.environ:
            patch.setenv("KQ_VERDICTS", str(tmp_path_factory.mktemp("verdicts")))
        yield


def by_day(queue, name):
    return name in SHOWN.get(queue, PROMISES)


@pytest.fixture(scope="module")
def scores(store):
    """All at once: what takes long is waiting, and that can be done side by side."""
    return tried_on(
        QUEUES, {queue: [each for name, each in PROMISES.items() if by_day(queue, name)] for queue in QUEUES}
    )


def check(scores, name):
    """Each queue that was tried on this promise keeps it, or not, as it is known."""
    found = {queue: verdicts[name] for queue, verdicts in scores.verdicts.items() if name in verdicts}
    signs = {queue: {True: "✓", False: "✗", None: "–"}[verdict.kept] for queue, verdict in found.items()}
    known = {queue: sign for queue, sign in zip(QUEUES, EXPECTED[name], strict=True) if queue in found}
    assert signs == known, {queue: verdict.seen for queue, verdict in found.items()}


@pytest.mark.parametrize("name", PROMISES)
def test_each_rung_keeps_what_it_is_known_to_keep(scores, name):
    check(scores, name)


SEEN = {
    ("save offset", "claimed is hidden"): "1 came to b while a had it",
    ("leases", "empty means empty"): "items were waiting, and a claim found none",
    ("save offset", "released together"): ("1 to 5 were released, and not all of them were out again together"),
    ("leases", "depth is exact"): (
        "the second of 3 that were out was acked, and for another process depth was 35, not 34"
    ),
    ("deleted list", "release disturbs nobody"): "1 was released, and 2 came again while it was out",
    ("save offset", "acks in any order"): "2 came again although it was done",
    ("leases", "acks in any order"): "2 came again although it was done",
    ("deleted list", "lease expires"): "the lease was over, and 1, 2 and 3 never came again",
    ("auto-commit", "survives a killed worker"): "the worker died with 1, 2 and 3, and 1, 2 and 3 never came again",
    ("deleted list", "zombie refused"): "a worker slept past its session, and 1 and 2 never came",
    ("leases", "depth from outside"): "1 of 5 was acked, and for another process depth was 5, not 4",
    ("save offset", "more processes than partitions"): "1, 2 and 3 came to both",
    ("leases", "more processes than partitions"): "one of the two got nothing",
    ("leases", "a crash is an attempt"): "after 1 crash it came as attempt 1",
    ("Drupal's SQL", "stale ack refused"): "the lease of 2 was over, and its ack was taken",
    ("Drupal's SQL", "zombie refused"): "b had 1, and the ack of a, who had slept, was taken",
    ("Drupal's SQL", "deleted and back"): "the queue was deleted, and took an item",
}


@pytest.mark.parametrize(("queue", "name"), [each for each in SEEN if by_day(*each)])
def test_a_cross_says_in_one_line_what_was_seen(scores, queue, name):
    assert scores[queue, name].seen == SEEN[queue, name]


@pytest.mark.nightly
def test_what_no_notebook_shows_of_a_queue_is_as_it_is_known_too():
    others = {queue: [each for name, each in PROMISES.items() if not by_day(queue, name)] for queue in SHOWN}
    scores = tried_on({queue: QUEUES[queue] for queue in SHOWN}, others)
    for name in scores.promises:
        check(scores, name)
    seen = {(queue, name): scores[queue, name].seen for queue, name in SEEN if not by_day(queue, name)}
    assert seen == {place: SEEN[place] for place in seen} and len(seen) == 2


def test_what_a_share_group_cannot_do_says_why(scores):
    reasons = {
        name: scores["share", name].seen.partition(": ")[0] for name in PROMISES if scores["share", name].kept is None
    }
    assert reasons == {
        "depth counts claimed": "share groups do not offer depth",
        "extend": "share groups do not offer extend",
        "delayed release": "share groups do not offer release with a delay",
        "order by key": "share groups do not offer order='key'",
        "dead letter, once": "share groups do not offer dead",
        "redrive chooses": "share groups do not offer bury",
        "deleted and back": "no create",
        "outputs with the ack": "share groups do not offer step",
        "a bad output stops nobody": "share groups do not offer step",
        "depth from outside": "share groups do not offer depth",
        "depth is exact": "share groups do not offer depth",
    }


def test_the_item_that_broke_it_can_be_drawn(scores):
    assert scores.draw("release disturbs nobody", "save offset").text == (
        "release disturbs nobody · item 2 · 2 deliveries, 1 worker\nworker a  ¹ … open · ² … open"
    )


def test_the_lease_of_a_killed_worker_ends_there(scores):
    assert scores.draw("survives a killed worker", "leases").text == (
        "survives a killed worker · item 1 · 2 deliveries, 2 workers\nworker a  ¹ ✕ killed\nworker b  ¹ ✓ ack"
    )


def test_a_second_table_of_the_same_run_says_the_same_and_starts_no_cluster(scores, monkeypatch):
    kept = [promise for promise in PROMISES if scores["ledger", promise].kept]  # a cross of a late answer is not stored
    monkeypatch.setattr(run, "Cluster", None)
    again = promises({"mine": LEDGER}, only=kept)
    for promise in kept:
        assert again["mine", promise] == scores["ledger", promise]
        assert again.draw(promise, "mine").text == scores.draw(promise, "ledger").text
    assert again.costs == {"mine": scores.costs["ledger"]}


def test_no_process_of_it_is_left(scores):
    """Workers have the command line of the process that forks them."""
    assert not [
        each
        for each in psutil.Process().children(recursive=True)
        if "kqlib.workshop.children" in " ".join(each.cmdline())
    ]
