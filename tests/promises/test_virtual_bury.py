"""Items of every size that a node takes: buried whole, and the same again after redrive."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kqlib.kafka import Kafka
from kqlib.queue.item import Put, size
from kqlib.virtual.client import Client
from kqlib.virtual.index import KEY
from kqlib.virtual.node import Node
from kqlib.virtual.queue import VirtualItem
from tests.promises.virtual_nodes import serving

LESS = (0, 1, 10, 100, 200, 300, 500, 1_000, 2_000, 3_000, 5_000, 20_000)  # bytes below the largest one
LONGEST = "\U0001f40f" * 10_000  # a reason as long as a node takes, four bytes a character
HEADERS = {"by": b"us", "nothing": None}


def largest(node: Node, queue: str, less: int = 0) -> Put:
    """The largest item that this queue takes, or one that is so much smaller."""
    taken = size(b"", queue.encode(), [*HEADERS.items(), (KEY, b"k")])
    return Put(os.urandom(node._ownership.limit - taken - less), b"k", HEADERS)


def whole(item: VirtualItem | None) -> tuple[bytes | None, bytes | None, dict[str, bytes | None]] | None:
    return item and (item.data, item.key, dict(item.headers))


@pytest.mark.parametrize(("most", "sizes"), [(100_000, LESS), (None, LESS[:1])], ids=["a small topic", "the usual one"])
def test_what_is_stored_is_buried_whole_and_comes_back_the_same(
    kq_cluster: Kafka, within: Callable[..., float], most: int | None, sizes: tuple[int, ...]
) -> None:
    config = {"max.message.bytes": most} if most else None
    with serving(kq_cluster, config=config) as node, Client(node.url) as client:
        queue = client.queue("goals")
        queue.put_many([largest(node, "goals", less) for less in sizes])  # together: Kafka takes no larger batch either
        within(20, lambda: queue.depth() == len(sizes), "the items to be read")
        items = queue.claim_many(len(sizes), wait=20)
        assert len(items) == len(sizes)
        for item in items:
            queue.bury(item, LONGEST)
        within(20, lambda: queue.dead.depth() == len(sizes), "the letters to be read")
        assert queue.redrive(len(sizes)) == len(sizes)
        within(20, lambda: queue.depth() == len(sizes), "what was put back to be read")
        again = queue.claim_many(len(sizes), wait=20)
        differ = [less for less, one, two in zip(sizes, items, again, strict=True) if whole(one) != whole(two)]
        assert differ == [], f"{len(differ)} of {len(sizes)} differ"
        queue.bury(again[0], LONGEST)  # and a second time
        within(20, lambda: queue.dead.depth() == 1, "the letter to be read")
        letter = queue.dead.claim(wait=20)
        assert letter is not None and letter.data == items[0].data and "kq-cut" not in letter.headers
