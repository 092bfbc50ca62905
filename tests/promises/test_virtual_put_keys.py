"""A put over HTTP with an Idempotency-Key is stored once, also if it is repeated to the partition's next owner."""

from __future__ import annotations

import uuid

import httpx

from kqlib.kafka import Kafka
from kqlib.topics import Plan
from kqlib.virtual import Client, Node, topics
from kqlib.virtual.record_json import to_text
from tests.patience import WAIT, until


def test_a_put_that_is_repeated_with_its_key_is_stored_once_also_after_a_takeover(kq_cluster: Kafka) -> None:
    name = f"virtual-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 1)).apply(kq_cluster, quiet=True)
    body = {"records": [{"data": to_text(b"goal")}, {"data": to_text(b"card")}]}

    def put(node: Node, key: str) -> httpx.Response:
        url, headers = f"{node.url}/queues/q/records", {"Idempotency-Key": key}
        return httpx.post(url, json=body, headers=headers, timeout=WAIT, trust_env=False)

    with Node(kq_cluster, name) as first:
        until(lambda: first.ready()[0], first.ready)
        stored = put(first, "a")
        assert stored.status_code == 201 and len(stored.json()["offsets"]) == 2
        assert put(first, "a").json() == stored.json()
        assert put(first, "a b").status_code == put(first, "k" * 101).status_code == 422
    with Node(kq_cluster, name) as second, Client(second.url) as client:
        until(lambda: second.ready()[0], second.ready)
        assert put(second, "a").json() == stored.json()
        assert put(second, "b").json() != stored.json()
        queue = client.queue("q")
        items = [queue.claim(wait=WAIT) for _ in range(4)]
        assert [item.data for item in items if item] == [b"goal", b"card"] * 2 and queue.claim() is None
        assert all(item and not item.headers for item in items)
