"""Nodes for a lesson, on a real broker."""

from __future__ import annotations

import httpx
import pytest

from kqlib.kafka import Kafka
from kqlib.virtual import Client
from kqlib.workshop.lab import Lab
from kqlib.workshop.nodes import serving


def test_nodes_of_a_lesson_have_dealt_all_out_in_new_topics_and_are_gone_behind_the_block(kq_cluster: Kafka) -> None:
    lab = Lab("nearby", kq_cluster)
    for _ in range(2):
        with serving(lab, 2, partitions=3) as nodes, Client(nodes[0].url) as client:
            assert sorted(number for node in nodes for number in node.owned) == [0, 1, 2]
            assert all(node.owned for node in nodes)
            assert client.queues() == []
            client.queue("ARS-CHE").put(b"goal")
            assert client.queues() == ["ARS-CHE"]
        for node in nodes:
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{node.url}/map", trust_env=False)
