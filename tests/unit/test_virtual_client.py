"""The client of virtual queues against nodes in memory: which node it asks, what it repeats, which errors it raises."""

from __future__ import annotations

import json
import time
from pathlib import Path

import confluent_kafka
import httpx
import pytest

from kqlib import keys
from kqlib.errors import BadPayload, Closed, KqError, LeaseLost, NotAllowed, PayloadTooLarge
from kqlib.queue.item import Put
from kqlib.queue.retry import Retry
from kqlib.virtual.client import KNOWN, Client
from kqlib.virtual.errors import NoNode, NotFound, NoToken
from kqlib.virtual.put_keys import REMEMBERED
from kqlib.virtual.record_json import to_text

A, B = "http://a:1", "http://b:1"
ON_0, ON_1 = "q1", "q2"  # names of queues that lie in partitions 0 and 1 of 2
VECTORS = Path(__file__).parents[2] / "data" / "murmur2.json"


class Nodes:
    """Two nodes: each answers what is next in its list for a route, or goes on with what is last."""

    def __init__(self):
        self.version, self.owners, self.asked, self.answers = 1, {0: A, 1: B}, [], []

    def map(self):
        owners = {
            str(n): None if url is None else {"node": url, "url": url, "epoch": 1} for n, url in self.owners.items()
        }
        return {"topic": "games", "partitions": 2, "version": self.version, "owners": owners}

    def __call__(self, request):
        url = f"{request.url.scheme}://{request.url.host}:{request.url.port}"
        if request.url.path == "/map":
            return httpx.Response(200, json=self.map())
        self.asked.append((url, request.method, request.url.path, json.loads(request.content or b"null"), request))
        response = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(response, Exception):
            raise response
        status, body = response(self) if callable(response) else response
        return httpx.Response(status, json=body)


@pytest.fixture
def nodes(monkeypatch):
    monkeypatch.setattr("kqlib.virtual.client.FIRST_PAUSE", 0.001)
    return Nodes()


@pytest.fixture
def client(nodes, monkeypatch):
    kind = httpx.Client
    monkeypatch.setattr(
        httpx, "Client", lambda **how: kind(transport=httpx.MockTransport(nodes), headers=how["headers"])
    )
    with Client(A, patience=20, token="a-secret") as made:
        yield made


STORED = (201, {"partition": 0, "offsets": [41]})
ITEM = {"receipt": "0.1.1", "offset": 41, "attempt": 2, "lease": 29.5, "data": to_text(b"goal"), "key": None}
ITEM |= {"headers": {"by": to_text(b"me")}, "created": 1790000000.5}
GIVEN = (200, {"items": [ITEM]})
DONE = (200, {"done": ["0.1.1"], "refused": {}})
LOST = (410, {"title": "LeaseLost", "detail": "1 refused", "done": [], "refused": {"0.1.1": "its lease is over"}})
LATER = (503, {"title": "Unavailable", "detail": "partition 0 is loading", "retry_after": 0.01, "unknown": False})


def test_each_queue_is_asked_of_the_node_that_has_it(nodes, client):
    nodes.answers = [STORED]
    assert client.queue(ON_0).put(b"goal", key=b"k", headers={"by": None}, delay=1) == f"{ON_0}/0/41"
    client.queue(ON_1).put(b"goal")
    assert [(url, path) for url, _, path, *_ in nodes.asked] == [
        (A, f"/queues/{ON_0}/records"),
        (B, f"/queues/{ON_1}/records"),
    ]
    record = {"data": to_text(b"goal"), "key": to_text(b"k"), "headers": {"by": None}, "delay": 1.0}
    assert nodes.asked[0][3] == {"records": [record]}
    assert nodes.asked[0][4].headers["authorization"] == "Bearer a-secret"
    assert client.owners == {0: A, 1: B}


def test_an_item_has_what_was_put_and_its_verbs_show_its_receipt(nodes, client):
    queue = client.queue(ON_0, "scores", lease=20, max_attempts=3, order="key")
    nodes.answers, before = [GIVEN, DONE], time.monotonic()
    item = queue.claim()
    assert (item.id, item.data, item.key, item.headers, item.attempt) == (
        f"{ON_0}/0/41",
        b"goal",
        None,
        {"by": b"me"},
        2,
    )
    assert item.created.isoformat() == "2026-09-21T14:13:20.500000+00:00"
    assert before + 29.5 <= item.deadline <= time.monotonic() + 29.5
    assert nodes.asked[0][3] == {"n": 1, "lease": 20.0, "wait": 0.0, "order": "key", "max_attempts": 3}
    longer = queue.extend(item, 60)
    assert longer == item
    assert longer.deadline > item.deadline
    queue.release(item, delay=2), queue.bury(item, "why"), queue.ack(longer)
    asked = [(path.rpartition("/")[2], body) for _, _, path, body, _ in nodes.asked[1:]]
    receipts = {"receipts": ["0.1.1"]}
    assert asked == [
        ("extend", receipts | {"lease": 60.0}),
        ("release", receipts | {"delay": 2.0}),
        ("bury", receipts | {"reason": "why"}),
        ("ack", receipts),
    ]
    assert queue.dead.name == f"{ON_0}.dead"


def test_a_409_brings_the_new_map_and_the_new_owner_is_asked_at_once(nodes, client, monkeypatch):
    monkeypatch.setattr("kqlib.virtual.client.time.sleep", pytest.fail)

    def moved(there):
        there.owners, there.version = {0: B, 1: B}, 2
        return 409, {"title": "NotMine", "detail": "not this node's", "unknown": False, "map": there.map()}

    nodes.answers = [moved, STORED]
    client.queue(ON_0).put(b"goal")
    assert [url for url, *_ in nodes.asked] == [A, B]


@pytest.mark.parametrize("first", [httpx.ConnectError("refused"), (409, {"title": "NotMine", "detail": "no"}), LATER])
def test_the_names_of_queues_are_whole_or_asked_for_again(nodes, client, monkeypatch, first):
    monkeypatch.setattr("kqlib.virtual.client.LONGEST_PAUSE", 0.01)
    nodes.answers = [(200, {"queues": [{"queue": "a"}]}), first, (200, {"queues": [{"queue": "b"}]})]
    assert client.queues() == ["b"]
    assert [url for url, *_ in nodes.asked] == [A, B, A, B]


def test_an_older_map_is_not_taken(nodes, client):
    assert client.owners == {0: A, 1: B}
    nodes.owners, nodes.version = {0: B, 1: B}, 0
    client._refresh(0.0)
    assert client.owners == {0: A, 1: B}


AGAIN = {  # what comes first -> is a redrive asked again?
    "nobody listens there": (httpx.ConnectError("refused"), True),
    "the node is loading": (LATER, True),
    "no answer in time": (httpx.ReadTimeout("slow"), False),
    "the node died over it": (httpx.RemoteProtocolError("gone"), False),
    "the node does not know what became of it": ((503, LATER[1] | {"unknown": True}), False),
    "the partition went away under it": ((409, {"title": "NotMine", "detail": "", "unknown": True}), False),
}


@pytest.mark.parametrize("case", AGAIN)
def test_only_what_may_be_done_twice_is_asked_twice(nodes, client, case):
    first, again = AGAIN[case]
    nodes.answers = [first, STORED]
    assert client.queue(ON_0).put(b"goal") == f"{ON_0}/0/41"
    keys = {request.headers["idempotency-key"] for *_, request in nodes.asked}
    assert len(nodes.asked) == 2 and len(keys) == 1  # the node knows that it is the same put
    nodes.answers = [first, (200, {"moved": 0})]
    if again:
        assert client.queue(ON_0).redrive() == 0
    else:
        with pytest.raises(NoNode, match="It may have been done, or not: look before you do it again"):
            client.queue(ON_0).redrive()
        assert len(nodes.asked) == 3
    nodes.answers = [first, GIVEN]
    assert client.queue(ON_0).claim() is not None


def test_each_put_has_a_key_of_its_own_and_is_repeated_for_half_of_the_time_that_a_node_remembers(nodes, client):
    nodes.answers = [STORED, STORED]
    client.queue(ON_0).put(b"goal"), client.queue(ON_0).put(b"goal")
    assert len({request.headers["idempotency-key"] for *_, request in nodes.asked}) == 2
    assert KNOWN == REMEMBERED / 2


@pytest.mark.parametrize(
    ("response", "safe"),
    [
        (httpx.ConnectError("certificate has expired"), "ConnectError: certificate has expired. Nothing was changed"),
        (httpx.ReadTimeout("slow"), "It may have been done, or not"),
    ],
)
def test_when_its_patience_is_over_it_says_what_is_safe(nodes, client, response, safe):
    nodes.answers, client.patience = [response], 1.0
    with pytest.raises(NoNode, match=rf"No node of the virtual queues answered at http://a:1: .*{safe}"):
        client.queue(ON_0).depth()
    assert len(nodes.asked) > 1


def test_an_ack_that_was_asked_twice_and_is_then_refused_is_not_known(nodes, client):
    nodes.answers = [GIVEN, httpx.ReadTimeout("slow"), LOST]
    queue = client.queue(ON_0)
    item = queue.claim()
    with pytest.raises(NoNode, match="the first time it may have been done"):
        queue.ack(item)
    nodes.answers = [LOST]
    with pytest.raises(LeaseLost, match=rf"{ON_0}/0/41: its lease is over. Nothing was changed"):
        queue.ack(item)
    with pytest.raises(LeaseLost, match=r"1 of 1 were not acked; the others are. The first:") as caught:
        queue.ack_many([item])
    assert caught.value.items == [item]


def test_a_partition_that_nobody_has_is_waited_for(nodes, client):
    nodes.owners[0], nodes.answers, client.patience = None, [STORED], 0.4
    start = time.monotonic()
    with pytest.raises(NoNode, match=r"nobody has partition 0 now\. Nothing was changed"):
        client.queue(ON_0).put(b"goal")
    assert time.monotonic() - start > client.patience / 2


def test_many_puts_are_as_many_requests_as_needed_and_the_error_says_which_are_done(nodes, client):
    thousand = (201, {"partition": 0, "offsets": list(range(1000))})
    nodes.answers = [thousand, (201, {"partition": 0, "offsets": [1000]})]
    assert len(client.queue(ON_0).put_many([(b"", None)] * 1001)) == 1001
    assert [len(body["records"]) for *_, body, _ in nodes.asked] == [1000, 1]
    nodes.asked.clear()
    nodes.answers = [STORED] * 3
    client.queue(ON_0).put_many([Put(b"", headers={f"{n:01000}": b"" for n in range(2_000)})] * 3)
    assert [len(body["records"]) for *_, body, _ in nodes.asked] == [1, 1, 1]  # long names of headers count as well
    nodes.asked.clear()
    nodes.answers, client.patience = [STORED, httpx.ReadTimeout("slow")], 0.1
    with pytest.raises(NoNode, match="It may have been done, or not") as caught:
        client.queue(ON_0).put_many([(b"x" * 1_900_000, None)] * 2)
    assert (caught.value.done, caught.value.unknown) == ({0: f"{ON_0}/0/41"}, [1])


def test_a_long_wait_is_several_requests(nodes, client, monkeypatch):
    monkeypatch.setattr("kqlib.virtual.queue.LONGEST_WAIT", 0.02)
    nodes.answers = [(200, {"items": []}), (200, {"items": []}), GIVEN]
    assert client.queue(ON_0).claim(wait=5) is not None
    assert len(nodes.asked) == 3


ERRORS = {
    "wrong input": (422, {"title": "NotAllowed", "detail": "n is too large"}, NotAllowed, "n is too large"),
    "a wrong payload": (422, {"title": "BadPayload", "detail": "not base64"}, BadPayload, "not base64"),
    "too large": (
        413,
        {"title": "PayloadTooLarge", "detail": "…", "topic": "games", "size": 9, "limit": 8, "safe": "So."},
        PayloadTooLarge,
        "would take 9 bytes and 'games' takes 8",
    ),
    "no such queue": (404, {"title": "NotFound", "detail": "no queue 'x'"}, NotFound, "no queue 'x'"),
    "no token": (401, {"title": "NoToken", "detail": "…"}, NoToken, "asks for its token"),
    "a fault of the node's": (500, {"title": "Broken", "detail": "its log says what"}, KqError, "its log says what"),
    "an answer that is none": (500, None, KqError, "a node answered 500"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_nodes_error_is_raised_as_it_was_there(nodes, client, case):
    status, body, kind, says = ERRORS[case]
    nodes.answers = [(status, body)]
    with pytest.raises(kind, match=says):
        client.queue(ON_0).depth()
    assert len(nodes.asked) == 1


WRONG = {
    "an address without http": (lambda c: Client("127.0.0.1:80"), NotAllowed, "a node's address is like 'http://"),
    "no address": (lambda c: Client([]), NotAllowed, "say the address of at least one node"),
    "a short token": (lambda c: Client(A, token="abc"), NotAllowed, "a token is at least 8 ASCII characters"),
    "a token of two lines": (lambda c: Client(A, token="12345678\n9"), NotAllowed, "a token is at least 8 ASCII"),
    "no patience": (lambda c: Client(A, patience=0), NotAllowed, "patience is a number of seconds from 0.1"),
    "a queue that begins with a dot": (lambda c: c.queue(".q"), NotAllowed, "a queue's name has 1 to 200 of"),
    "no lease": (lambda c: c.queue("q", lease=0), NotAllowed, "lease is a number of seconds"),
    "too many attempts": (lambda c: c.queue("q", max_attempts=99), NotAllowed, "max_attempts is a whole number"),
    "an unknown order": (lambda c: c.queue("q", order="no"), NotAllowed, "order is 'any' or 'key', not 'no'"),
    "more than a request carries": (lambda c: c.queue("q").put(b"x" * 10**7), PayloadTooLarge, "'q' takes 4000000"),
    "a header cut short": (lambda c: c.queue("q").put(b"", headers={"a\0b": b""}), BadPayload, "without a NUL"),
    "no items": (lambda c: c.queue("q").claim_many(0), NotAllowed, "n is a whole number, at least 1"),
    "an ack of nothing": (lambda c: c.queue("q").ack(None), NotAllowed, "an item that claim.. gave, not NoneType"),
    "a reason of three": (lambda c: c.queue("q").bury(None, 3), NotAllowed, "a reason is text, not int"),
    "a step": (lambda c: c.queue("q").step(None), NotAllowed, "virtual queues do not offer step"),
    "the dead of the dead": (lambda c: c.queue("q.dead").dead, NotAllowed, "holds dead letters already"),
    "to redrive none": (lambda c: c.queue("q").redrive(0), NotAllowed, "n is a whole number, at least 1"),
    "an unknown word": (lambda c: c.queue("q").work(print, lease=1), TypeError, "unexpected keyword argument 'lease'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused_before_anything_is_asked(nodes, client, case):
    call, error, says = WRONG[case]
    with pytest.raises(error, match=says):
        call(client)
    assert nodes.asked == []


def test_an_item_of_another_queue_is_refused(nodes, client):
    nodes.answers = [GIVEN]
    item = client.queue(ON_0).claim()
    with pytest.raises(NotAllowed, match=f"{ON_0}/0/41 is not an item of '{ON_1}'"):
        client.queue(ON_1).ack(item)


def test_work_does_what_comes_and_tells_the_node_what_failed(nodes, client):
    nodes.answers = [GIVEN, DONE, GIVEN, DONE, GIVEN, DONE, (200, {"items": [], "depth": 0})]
    outcomes = iter([None, ValueError("no"), OSError("never")])

    def handler(item):
        if (error := next(outcomes)) is not None:
            raise error

    retry = Retry.fixed(2, never=(OSError,))
    worked = client.queue(ON_0).work(handler, retry=retry, until="empty")
    assert (worked.done, worked.released, worked.buried) == (1, 1, 1)
    ended = [(path.rpartition("/")[2], body) for _, _, path, body, _ in nodes.asked if "claim" not in path][:3]
    assert [verb for verb, _ in ended] == ["ack", "release", "bury"]
    assert ended[1][1]["delay"] == 2.0
    assert ended[2][1]["reason"] == "OSError: never"


def test_a_closed_client_says_so(client):
    client.close()
    with pytest.raises(Closed, match="This client is closed"):
        client.queue("q").put(b"")
    assert repr(client) == "Client(1 address, closed)"


def test_the_golden_vectors_are_what_kafkas_clients_compute():
    rows = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    assert len(rows) == 50
    assert 10 < sum(row["murmur2"] >= 2**31 for row in rows) < 40  # half of them show a forgotten mask
    for row in rows:
        key, masked = bytes.fromhex(row["key"]), row["murmur2"] & 0x7FFFFFFF
        assert row["masked"] == masked
        for n, partition in row["partition"].items():
            assert partition == masked % int(n)
            assert partition == keys.partition(key, int(n)) == confluent_kafka.murmur2(key, int(n))
