"""A node that lost its partition serves nothing and writes nothing: real processes, really stopped; a real broker."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Iterator

import httpx
import pytest

from kqlib.kafka import Kafka
from kqlib.virtual.ownership import FRESH, Ownership
from kqlib.virtual.record_json import to_text
from tests.patience import WAIT, until
from tests.promises.virtual_nodes import Nodes


@pytest.fixture
def nodes(kq_cluster: Kafka, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """Nodes of a topic with one partition."""
    with Nodes(kq_cluster, f"virtual-{uuid.uuid4().hex[:8]}", 1, **getattr(request, "param", {})) as nodes:
        yield nodes


REQUESTS = (
    ("GET", "/queues/q/records", None),
    ("GET", "/queues/q/consumers/c/records", None),
    ("GET", "/queues/q/consumers/w/depth", None),
    ("GET", "/queues/q", None),
    ("GET", "/queues", None),
    ("POST", "/queues/q/records", {"records": [{"data": to_text(b"zombie")}]}),
    ("POST", "/queues/q/consumers/c/offset", {"offset": 3}),
    ("POST", "/queues/q/consumers/w/claim", {"n": 5}),
    ("POST", "/queues/q/consumers/w/ack", {"receipts": ["1.1.1"]}),
    ("DELETE", "/queues/q/consumers/c", None),
    ("DELETE", "/queues/q", None),
)


def test_a_node_that_was_stopped_and_lost_its_partition_serves_nothing_and_writes_nothing(nodes: Nodes) -> None:
    old = nodes.start()[0]
    nodes.settled()
    caller = nodes.caller()
    caller.put("q", b"0", b"1", b"2", b"3")
    assert caller.ask("POST", "q", "/consumers/c/offset", {"offset": 0}).json() == {"tracked": 0}
    held = caller.claim("q", 2, "w", lease=600)
    new = nodes.start()[0]
    old.signal(signal.SIGSTOP)
    others = nodes.caller(new)
    others.map["owners"] = {"0": {"url": new.url}}
    others.map["version"] = 1 << 60
    assert others.ask("POST", "q", "/consumers/c/offset", {"offset": 1}).json() == {"tracked": 1}
    again = others.claim("q", 2, "w", lease=600)
    assert [(item["data"], item["attempt"]) for item in again] == [(b"0", 2), (b"1", 2)]

    # asked while it sleeps, answered the moment it wakes: the answers race its heartbeat
    answers: dict[str, tuple[int, object]] = {}

    def ask(verb: str, path: str, body: object) -> None:
        response = httpx.request(verb, old.url + path, json=body, timeout=WAIT, trust_env=False)
        answers[f"{verb} {path}"] = (response.status_code, response.json().get("queues"))

    threads = [threading.Thread(target=ask, args=request) for request in REQUESTS]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    old.signal(signal.SIGCONT)
    for thread in threads:
        thread.join(WAIT)
    listed = answers.pop("GET /queues")
    assert listed in [(200, []), (409, None), (503, None)]  # a list of what it has: nothing
    assert len(answers) == len(REQUESTS) - 1 and {status for status, _ in answers.values()} <= {409, 503}, answers
    for verb, path, body in REQUESTS:
        if path != "/queues":
            until(lambda: old.http.request(verb, path, json=body).status_code == 409)  # noqa: B023 - now
    assert old.http.get("/queues").json().get("queues", []) == []  # it may be refusing still

    response = others.ask("GET", "q", "/records").json()["records"]
    assert len(response) == 4
    assert others.ask("GET", "q", "/consumers/c").json()["tracked"] == 1
    assert others.verb("ack", "q", *(item["receipt"] for item in held), consumer="w").status_code == 410
    assert others.verb("ack", "q", *(item["receipt"] for item in again), consumer="w").status_code == 200
    assert others.ask("GET", "q", "/consumers/w/depth").json() == {"depth": 2}


@pytest.mark.parametrize("nodes", [{"session": 20}], indirect=True, ids=["a session of 20 s"])
def test_a_node_stopped_for_less_than_its_session_goes_on_with_its_leases(nodes: Nodes) -> None:
    node = nodes.start()[0]
    nodes.settled()
    caller = nodes.caller()
    caller.put("q", b"0")
    item = caller.claim("q", lease=600)[0]
    node.signal(signal.SIGSTOP)
    time.sleep(1.2)  # longer than a proof holds
    node.signal(signal.SIGCONT)
    assert caller.ask("GET", "q", "/consumers/c/depth").json() == {"depth": 1}
    assert caller.verb("ack", "q", item["receipt"]).status_code == 200


@pytest.mark.parametrize("nodes", [{"again": WAIT}], indirect=True, ids=["it does not take it back"])
def test_of_two_nodes_that_both_believe_to_own_a_partition_kafka_refuses_one(kq_cluster: Kafka, nodes: Nodes) -> None:
    """Another group on the same topic: both groups give the partition away, and its id is still one."""
    node = nodes.start()[0]
    nodes.settled()
    caller = nodes.caller()
    caller.put("q", b"0")
    before = time.monotonic()
    taken = Ownership(kq_cluster, nodes.topic, "stranger", 600).take_over(0)
    response = node.http.post("/queues/q/records", json={"records": [{"data": to_text(b"1")}]})
    assert response.status_code in (409, 503)
    assert taken.epoch == 2 and taken.ready >= before + FRESH
    taken.writer.close()
