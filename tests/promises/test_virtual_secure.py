"""A node over TLS with tokens that have some rights, and its numbers."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import httpx
import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.virtual import Client, Node
from kqlib.virtual.errors import NoNode, NoRight
from kqlib.workshop.cluster.secure import certify
from tests.patience import WAIT, until
from tests.promises.virtual_nodes import serving

TOKENS = (
    '[worker]\ntoken = "works-on-orders"\nprefix = "orders-"\nverbs = ["put", "claim"]\n[all]\ntoken = "all-rights"\n'
)


def test_a_node_answers_over_tls_what_a_token_may_ask_and_counts_it(kq_cluster: Kafka, tmp_path: Path) -> None:
    certify(tmp_path)
    (tmp_path / "tokens.toml").write_text(TOKENS)
    ca, pem = str(tmp_path / "ca.pem"), str(tmp_path / "broker.pem")
    with (
        serving(kq_cluster, tokens=str(tmp_path / "tokens.toml"), tls=(pem, pem)) as node,
        Client(node.url, token="works-on-orders", ca=ca) as client,
        Client(node.url, token="all-rights", patience=0.1) as stranger,
    ):
        trusted = ssl.create_default_context(cafile=ca)
        assert node.url.startswith("https://127.0.0.1:")
        queue = client.queue("orders-eu")
        assert queue.put_many([(b"%d" % at, None) for at in range(3)])
        item = queue.claim(wait=WAIT)
        assert item is not None and item.data == b"0"
        with pytest.raises(NoRight, match=r"this token may not put in 'other'\. Nothing was done"):
            client.queue("other").put(b"")
        with pytest.raises(NoNode, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.queue("orders-eu").depth()

        def numbers() -> dict[str, float]:
            headers = {"Authorization": "Bearer all-rights"}
            text = httpx.get(f"{node.url}/metrics", headers=headers, verify=trusted, timeout=WAIT, trust_env=False).text
            return {name: float(value) for name, value in re.findall(r"^kqlib_virtual_(\S+) (\S+)$", text, re.M)}

        found = numbers()
        part = '{partition="0"}'
        names = ("partition_serving", "queues", "records", "claimed_items", "waiting_requests")
        assert [found[name + part] for name in names] == [1, 1, 3, 1, 0]
        assert found['requests_total{status="201"}'] == found['requests_total{status="403"}'] == 1
        queue.ack(item)
        until(lambda: numbers()[f"claimed_items{part}"] == 0)
        with pytest.raises(NotAllowed, match=r"a ca is a file with certificates, not 'none\.pem'"):
            Client(node.url, ca="none.pem")
        with pytest.raises(NotAllowed, match=r"the certificate .*tokens.toml with the key .* cannot be used"):
            Node(kq_cluster, node.topic, tls=(str(tmp_path / "tokens.toml"), pem))
