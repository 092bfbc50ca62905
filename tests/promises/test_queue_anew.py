"""A topic that is deleted and made again while workers live: it starts clean, and nobody works on its items twice."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

import pytest

from kqlib.errors import KqError, LeaseLost
from kqlib.kafka import Kafka
from kqlib.queue import Queue, look
from kqlib.topics import Plan, QueueTopic
from tests.patience import WAIT
from tests.promises.play import commit, delete, put
from tests.promises.queues import alone, taken, topic

SESSION = 9.0  # so a member hears of its group every three seconds: until then the old assignment is all that it knows


def new(items: int) -> dict[bytes | None, int]:
    """Each of them once."""
    return {b"new %d" % number: 1 for number in range(items)}


def made_anew(cluster: Kafka, name: str, items: int) -> None:
    """Deleted, made again at once, and filled."""
    delete(cluster, name)
    Plan({name: QueueTopic(partitions=1)}).apply(cluster, quiet=True)
    put(cluster, name, *(b"new %d" % number for number in range(items)))


def done(queue: Queue, many: int, seconds: float = WAIT, calm: float = 6) -> Counter[bytes | None]:
    """Which new ones were claimed and acked, how often, until there are so many of them and, for a while, no more."""
    found: Counter[bytes | None] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            items = queue.claim_many(10, wait=0.3)
            queue.ack_many(items)
        except KqError:
            continue
        found.update(item.data for item in items if item.data and item.data.startswith(b"new"))
        if len(found) == many:
            until = min(until, time.monotonic() + calm)
    return found


@pytest.mark.parametrize("items", [3, 40], ids=["shorter than the old one was", "longer than the old one was"])
def test_a_topic_made_anew_starts_clean_under_who_had_the_old_one(kq_cluster: Kafka, name: str, items: int) -> None:
    with alone(kq_cluster, name, SESSION) as site:
        queue = site.queue(name, lease=60)
        queue.put_many([(b"old %d" % n, None) for n in range(8)])
        held = taken(queue, 6)
        queue.ack_many(held[:5])
        maker = threading.Thread(target=made_anew, args=(kq_cluster, name, items))
        maker.start()
        found = done(queue, items)
        maker.join()
        assert found == new(items)
        with pytest.raises(LeaseLost):
            queue.ack(held[5])
        assert queue.depth() == 0


def test_one_that_was_made_anew_while_nobody_looked_is_read_from_its_beginning(kq_cluster: Kafka, name: str) -> None:
    with alone(kq_cluster, name, SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"old %d" % n, None) for n in range(8)])
        queue.ack_many(taken(queue, 6)[:5])
    made_anew(kq_cluster, name, 40)
    with alone(kq_cluster, name, SESSION) as site:
        assert done(site.queue(name), 40, calm=1) == new(40)
        assert site.queue(name).depth() == 0


def test_a_commit_that_a_mirror_copied_as_it_is_is_named_and_every_item_comes(
    kq_cluster: Kafka, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    copy = topic(kq_cluster)
    with alone(kq_cluster, name, SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"%d" % n, None) for n in range(8)])
        queue.ack_many(taken(queue, 6)[:5])
        state, _ = look.seen(site, name)[0]
    put(kq_cluster, copy, *(b"%d" % n for n in range(8)))
    commit(kq_cluster, name, copy, state.committed or 0, state.metadata)
    with caplog.at_level(logging.INFO, "kqlib.queue"), alone(kq_cluster, name, SESSION) as site:
        assert [item.data for item in taken(site.queue(copy), 8)] == [b"%d" % n for n in range(8)]
    assert copy in caplog.text and "a mirror copied the commit" in caplog.text
