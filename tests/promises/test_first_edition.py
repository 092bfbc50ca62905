"""A site that the first edition left in mid-work goes on: its broker's disk is kept in first_edition.tar.gz.

The first edition (0.1) made it: topic `football` with thirteen items of six keys, site `drupal-eu` with order "key" and 5 attempts.
Item 0 was acked, item 1 buried, item 2 released once. Then 2, 3, 4 and 5 were claimed, 5 was acked, and the process was killed.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.workshop.cluster import Cluster, node
from tests.patience import WAIT
from tests.promises.queues import alone

ARCHIVE = Path(__file__).with_name("first_edition.tar.gz")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kafka]:
    """A broker on the first edition's disk."""

    def stored(nodes: Sequence[node.Node], _: object, cluster_id: str) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(nodes[0].home.parent, filter="data")
        ids = nodes[0].data / "meta.properties"  # a new cluster knows its brokers by its id
        ids.write_text(re.sub("cluster.id=.*", f"cluster.id={cluster_id}", ids.read_text()))

    monkeypatch.setattr(node, "format_disks", stored)
    with Cluster() as made:
        yield made


def test_a_site_of_the_first_edition_goes_on_where_its_process_was_killed(cluster: Kafka) -> None:
    with alone(cluster, "drupal-eu") as site:
        with pytest.raises(NotAllowed, match="order"):
            site.queue("football", order="any", max_attempts=5)
        queue = site.queue("football", order="key", max_attempts=5)
        assert (queue.depth(), queue.dead.depth(), queue.lost) == (10, 1, 0)
        attempts = {}
        while queue.depth():
            item = queue.claim(wait=WAIT)
            assert item
            attempts[item.data] = item.attempt
            queue.ack(item)
        new = {b"item %d" % n: 1 for n in range(6, 12)}
        assert attempts == {b"item 2": 3, b"item 3": 2, b"item 4": 2, **new, b"later": 1}

        [letter] = queue.dead.peek()
        assert (letter.data, letter.key) == (b"item 1", b"key 1")
        assert queue.redrive() == 1
        item = queue.claim(wait=WAIT)
        assert item and (item.data, item.attempt) == (b"item 1", 1)
        queue.ack(item)
        assert (queue.depth(), queue.dead.depth(), queue.lost) == (0, 0, 0)
