"""A node under many requests: nothing grows, no request holds up the others for long, and nothing is bound after a failure.

`tests/faults/test_virtual.py` has the long form, a million requests.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from kqlib.errors import KqError
from kqlib.kafka import Kafka
from kqlib.queue.item import Put
from kqlib.queue.ledger import Ledger
from kqlib.virtual.client import Client
from kqlib.virtual.index import StoredState
from kqlib.virtual.node import Node
from kqlib.virtual.partition import Operation, PartitionServer
from kqlib.virtual.store import ItemStore
from kqlib.workshop.cluster.node import free_ports
from tests.patience import PATIENCE, WAIT
from tests.promises.virtual_nodes import serving

JSON = {"Content-Type": "application/json"}
C = "/queues/q/consumers/c"
LONGEST = 0.1  # seconds of one callback


@pytest.fixture(scope="module")
def node(kq_cluster: Kafka) -> Iterator[Node]:
    with serving(kq_cluster) as node:
        yield node


def test_leases_that_are_over_long_after_their_items_leave_nothing_in_memory(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.virtual.store.SPARE", 10, raising=False)
    with Client(node.url) as client:
        queue = client.queue("leases", lease=3600)
        queue.put_many([(b"goal", None)] * 60)
        for _ in range(60):
            item = queue.claim(wait=20)
            assert item is not None
            queue.ack(item)
    store = node.server(0).store
    assert (store.ledgers, len(store._changes) <= 10) == ({}, True), f"{len(store._changes)} entries after 60 items"


def test_polls_that_were_answered_or_given_up_leave_nothing_in_memory(node: Node, within: Callable[..., float]) -> None:
    server, http = node.server(0), node.url

    async def polls() -> None:
        async with httpx.AsyncClient(base_url=http, timeout=WAIT, trust_env=False) as client:
            poll = [client.post(f"/queues/p{n}/consumers/c/claim", json={"wait": 60}) for n in range(20)]
            asked = [asyncio.create_task(each) for each in poll]
            async with asyncio.timeout(WAIT):
                while len(server._parked) < 20:
                    await asyncio.sleep(0.01)
            record = {"records": [{"data": ""}]}
            for n in range(10):
                await client.post(f"/queues/p{n}/records", json=record)
            await asyncio.gather(*asked[:10])
            for each in asked[10:]:
                each.cancel()

    asyncio.run(polls())
    within(20, lambda: not server._parked and not server._until, "them to be forgotten")


def items(many: int, **record: Any) -> bytes:
    return json.dumps({"records": [record] * many}).encode()


def requests() -> dict[str, tuple[str, bytes]]:
    """Bodies of some megabytes: not made by a worker that runs other files."""
    return {
        "a thousand wrong records": ("/queues/q/records", items(1_000, **{f"a{n}": 1 for n in range(300)})),
        "wrong headers": ("/queues/q/records", items(1, headers={f"a{n}": 1 for n in range(200_000)})),
        "many headers": ("/queues/q/records", items(1, headers={f"a{n}": None for n in range(200_000)})),
        "words that nobody knows": (f"{C}/claim", json.dumps({f"a{n}": 1 for n in range(200_000)}).encode()),
        "a million lists": (f"{C}/ack", json.dumps({"receipts": [[]] * 1_000_000}).encode()),
        "a million numbers": (f"{C}/ack", json.dumps({"receipts": [1] * 1_000_000}).encode()),
        "a deep one": (f"{C}/ack", b"[" * 4_000_000),
        "as many wrong ones as there may be": (f"{C}/claim", json.dumps({f"a{n}": 1 for n in range(11_990)}).encode()),
        "as many headers as there may be": (
            "/queues/q/records",
            items(800, headers={f"h{n}": "aGk=" for n in range(8)}),
        ),
        "as large as it may be": ("/queues/q/records", items(1_000, data=base64.b64encode(os.urandom(3_000)).decode())),
    }


def test_no_request_holds_up_the_others_for_long(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one callback of the node's loop takes of the processor: what it waits for is not its own."""
    bodies = requests()
    longest = dict.fromkeys(bodies, 0.0)
    now, run = next(iter(bodies)), asyncio.Handle._run  # type: ignore[attr-defined]

    def timed(handle: Any) -> None:
        what, start = now, time.thread_time()  # `now` may be another one when it is done
        run(handle)
        if threading.current_thread() is node._http_thread:
            longest[what] = max(longest[what], time.thread_time() - start)

    gc.collect()
    gc.freeze()  # a node's process has nothing of the other tests for the collector to look through
    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    monkeypatch.setattr("kqlib.virtual.request_limits.SLOW", WAIT)  # here a body may be late
    with httpx.Client(base_url=node.url, headers=JSON, timeout=WAIT, trust_env=False) as http:
        assert http.get("/openapi.json").status_code == http.get("/docs").status_code == 200
        for now, (path, body) in bodies.items():  # noqa: B007 - `timed` reads it
            response = http.post(path, content=body)
            assert response.status_code in (201, 400, 413, 422), response.text
    gc.unfreeze()
    assert min(longest.values()) > 0, "a request was not timed"
    assert {what: took for what, took in longest.items() if took > LONGEST * PATIENCE} == {}


def test_a_look_at_a_queue_with_many_consumers_holds_up_neither_the_loop_nor_its_partition(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their depths are counted some at a time, and again only for those that changed. An answer has a page of them."""
    many, longest, read = 20_000, Counter[str](), Ledger.read
    state = {"floor": 1, "state": Ledger(1, 1, 1).text(), "order": "any", "most": 5}  # the first item is done

    def timed(what: str, run: Callable[..., None]) -> Callable[..., None]:
        def timed_run(*args: Any) -> None:
            start = time.thread_time()
            run(*args)
            longest[what] = max(longest[what], time.thread_time() - start)  # type: ignore[assignment]

        return timed_run

    def consumers(store: ItemStore, _: Any) -> None:
        value = json.dumps(state | {"at": store.index.entries["busy"].offsets[0] + 1}).encode()
        for n in range(many):
            store.index.store("busy", f"c{n:05}", StoredState(value, time.time()))

    with Client(node.url) as client, httpx.Client(base_url=node.url, timeout=WAIT, trust_env=False) as http:
        client.queue("busy").put_many([(b"goal", None)] * 3)
        node.server(0).ask(Operation(consumers)).result(WAIT)
        monkeypatch.setattr(PartitionServer, "_do", timed("an operation", PartitionServer._do))
        monkeypatch.setattr(asyncio.Handle, "_run", timed("a callback", asyncio.Handle._run))  # type: ignore[attr-defined]
        monkeypatch.setattr(Ledger, "read", lambda *state: longest.update(read=1) or read(*state))
        looks = [http.get("/queues/busy", params={"after": f"c{n:05}", "limit": 2}).json() for n in (7, many - 2)]
        monkeypatch.undo()
    node.server(0).ask(Operation(lambda store, _: store.index.delete("busy", store.index.head))).result(WAIT)
    assert [[each["consumer"] for each in look["consumers"]] for look in looks] == [["c00008", "c00009"], ["c19999"]]
    assert [(look["depth"], look["after"]) for look in looks] == [(2, "c00009"), (2, None)]
    assert longest.pop("read") == many
    assert {what: took for what, took in longest.items() if took > LONGEST * PATIENCE} == {}


def test_a_client_puts_any_number_of_items_with_any_number_of_headers(node: Node) -> None:
    """As many requests as it takes."""
    with Client(node.url) as client:
        put = Put(b"x", headers={f"h{n}": b"" for n in range(30)})
        assert len(client.queue("headers").put_many([put] * 700)) == 700


def broken(*_: Any, **__: Any) -> Any:
    raise KqError("broken for this test")


@pytest.mark.parametrize(
    "what",
    [
        *("Ownership", "set_session_timeout", "_shown", "RecordFetcher", "GroupMember", "routes.app", "session"),
        "GroupMember.start",
    ],
)
def test_a_node_that_cannot_be_made_leaves_no_port_bound_and_no_thread(
    kq_cluster: Kafka, node: Node, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float], what: str
) -> None:
    """`session` is the real thing: the broker refuses half a second. `GroupMember.start` fails while the node already answers."""
    (port,) = free_ports(1)  # not one that the system may give to a client meanwhile
    before = set(threading.enumerate())
    if what != "session":
        monkeypatch.setattr(f"kqlib.virtual.node.{what}", broken)
    with pytest.raises(KqError) as kept:  # its traceback holds the half-made node, as a notebook does
        Node(kq_cluster, node.topic, port=port, session=0.5 if what == "session" else 4).start()
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))

    def left() -> set[str]:
        return {each.name for each in set(threading.enumerate()) - before if each.name.startswith("kq-virtual")}

    within(20, lambda: not left(), "a thread is left")  # one that closes its client needs a moment
    assert kept.value.why
