"""A node over HTTP beyond the cases of data/virtual-cases.json: waiting, deleting, every wrong request. A queue a test."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from confluent_kafka.admin import NewPartitions

from kqlib.errors import KqError, NotAllowed
from kqlib.kafka import Kafka
from kqlib.topics import Plan, Topic
from kqlib.virtual import partition
from kqlib.virtual.index import RecordCache
from kqlib.virtual.names import topics
from kqlib.virtual.node import Node
from kqlib.virtual.record_json import to_bytes, to_text
from tests.patience import PATIENCE, WAIT, until
from tests.promises import play
from tests.promises.test_virtual_limits import HEAD, TOKEN, plain
from tests.promises.virtual_nodes import serving

LONGEST = min(WAIT, 60)  # seconds that one request may wait


@pytest.fixture(scope="module", autouse=True)
def read_first() -> Iterator[None]:
    """A put is answered when its node has read it, however late that is: what was put can be claimed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "SEEN", WAIT / 2)
        yield


@pytest.fixture(scope="module")
def node(kq_cluster: Kafka) -> Iterator[Node]:
    """Three partitions: a count that is no power of two."""
    with serving(kq_cluster, 3, token=TOKEN) as node:
        yield node


@pytest.fixture
def http(node: Node) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=node.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=WAIT, trust_env=False
    ) as http:
        yield http


@pytest.fixture
def q() -> str:
    """A queue of its own."""
    return f"q-{uuid.uuid4().hex[:8]}"


def put(http: httpx.Client, q: str, *datas: bytes, **more: Any) -> list[int]:
    response = http.post(f"/queues/{q}/records", json={"records": [{"data": to_text(data), **more} for data in datas]})
    assert response.status_code == 201, response.text
    return list(response.json()["offsets"])


def verb(http: httpx.Client, q: str, verb: str, c: str = "c", **body: Any) -> httpx.Response:
    return http.post(f"/queues/{q}/consumers/{c}/{verb}", json=body)


def claim(http: httpx.Client, q: str, c: str = "c", **body: Any) -> list[tuple[bytes, int, str]]:
    response = verb(http, q, "claim", c, **body)
    assert response.status_code == 200, response.text
    return [(to_bytes(item["data"]), item["attempt"], item["receipt"]) for item in response.json()["items"]]


def datas(response: httpx.Response) -> list[bytes]:
    return [to_bytes(record["data"]) for record in response.json()["records"]]


def test_an_idle_reader_behind_a_busy_neighbour_is_at_the_end_at_once(
    node: Node, http: httpx.Client, within: Callable[..., float]
) -> None:
    idle = f"idle-{uuid.uuid4().hex[:6]}"
    where = node.server_of(idle).partition
    busy = next(name for n in range(100) if node.server_of(name := f"{idle}-{n}").partition == where)
    put(http, idle, b"0")
    put(http, busy, *[b"x"] * 500)
    put(http, idle, b"1")
    last = put(http, busy, b"x")[-1]
    within(20, lambda: node.server_of(idle).store.index.head > last, "the node did not read it")
    found = http.get(f"/queues/{idle}/consumers/c/records?limit=1").json()
    assert http.post(f"/queues/{idle}/consumers/c/offset", json={"offset": found["next"] - 1}).status_code == 200
    start = time.monotonic()
    response = http.get(f"/queues/{idle}/consumers/c/records")
    assert time.monotonic() - start < 5 * PATIENCE  # the machine is shared; 500 records were not read
    assert datas(response) == [b"1"]
    assert response.json()["next"] > last  # the end of the partition, not of the queue


def test_a_long_poll_is_answered_by_what_comes_and_holds_no_thread(http: httpx.Client, node: Node, q: str) -> None:
    before, found = threading.active_count(), []  # type: int, list[bytes]

    def wait(at: int) -> None:
        with httpx.Client(headers=http.headers, timeout=WAIT, trust_env=False) as own:
            response = own.post(f"{node.url}/queues/{q}-{at}/consumers/c/claim", json={"wait": 40})
            found.append(to_bytes(response.json()["items"][0]["data"]))

    threads = [threading.Thread(target=wait, args=(at,)) for at in range(20)]
    for thread in threads:
        thread.start()
    until(lambda: sum(len(ops) for each in node.servers().values() for ops in list(each._parked.values())) == 20)
    assert threading.active_count() <= before + 20 + 2  # ours; the node's own are as many as before
    for at in range(20):
        put(http, f"{q}-{at}", b"%d" % at)
    for thread in threads:
        thread.join(WAIT)
    assert sorted(found) == sorted(b"%d" % at for at in range(20))


def test_a_reader_waits_for_its_own_queue_and_nobody_elses(http: httpx.Client, node: Node, q: str) -> None:
    (last,) = put(http, q, b"0")
    timer = threading.Timer(0.5, lambda: put(http, q, b"1"))
    timer.start()
    assert datas(http.get(f"/queues/{q}/records", params={"from": last + 1, "wait": 30})) == [b"1"]
    timer.join()
    assert http.get(f"/queues/{q}/records", params={"from": 1 << 40, "wait": 0.2}).json()["records"] == []


def test_who_hangs_up_while_waiting_is_not_given_anything(
    http: httpx.Client, node: Node, q: str, within: Callable[..., float]
) -> None:
    def waiting() -> list[Any]:
        return [op for op in list(node.server_of(q)._parked.get(q, ())) if not op.future.cancelled()]

    before, body = node.answered.copy(), '{"wait": 60}'
    head = f"POST /queues/{q}/consumers/c/claim HTTP/1.1\r\n{HEAD}content-type: application/json\r\n"
    with plain(node, f"{head}content-length: {len(body)}\r\n\r\n{body}"):
        within(20, waiting, "the claim does not wait")
    within(20, lambda: not waiting(), "the node did not see that the client hung up")
    within(20, lambda: node.answered[400] == before[400] + 1, "it is not counted")
    assert node.answered[503] == before[503]  # who looks at the numbers takes 503 for a node that is not ready
    put(http, q, b"0")
    assert [item[:2] for item in claim(http, q)] == [(b"0", 1)]


def test_a_delayed_item_and_a_delayed_release_come_when_they_are_due(http: httpx.Client, q: str) -> None:
    start = (
        time.monotonic()
    )  # before it is asked: however slow the machine, nothing is due earlier than so long after that
    put(http, q, b"late", delay=0.5)
    (item,) = claim(http, q, wait=LONGEST)
    assert time.monotonic() - start > 0.45
    start = time.monotonic()
    verb(http, q, "release", receipts=[item[2]], delay=0.5)
    (item,) = claim(http, q, wait=LONGEST)
    assert time.monotonic() - start > 0.45 and item[:2] == (b"late", 2)


def test_a_consumer_deletes_itself_and_begins_anew(http: httpx.Client, q: str) -> None:
    put(http, q, b"0")
    claim(http, q)
    assert http.delete(f"/queues/{q}/consumers/c").status_code == 204
    assert http.delete(f"/queues/{q}/consumers/c").status_code == 404
    assert [item[:2] for item in claim(http, q)] == [(b"0", 1)]


def test_queues_are_listed_in_pages(http: httpx.Client, q: str) -> None:
    for at in range(5):
        put(http, f"{q}-{at}", b"x")
    names, after = [], ""
    while after is not None:
        response = http.get("/queues", params={"prefix": q, "after": after, "limit": 2}).json()
        names += [each["queue"] for each in response["queues"]]
        after = response["after"]
    assert names == [f"{q}-{at}" for at in range(5)]


def test_records_that_nobody_keeps_in_memory_are_fetched_from_the_log(http: httpx.Client, node: Node, q: str) -> None:
    put(http, q, *[b"%d" % at for at in range(20)])
    server = node.server_of(q)
    server.store.cache = RecordCache()
    response = http.get(f"/queues/{q}/records")
    assert datas(response) == [b"%d" % at for at in range(20)]
    assert abs(response.json()["records"][0]["created"] - time.time()) < 60
    server.store.cache = RecordCache()
    assert [item[0] for item in claim(http, q, n=5)] == [b"%d" % at for at in range(5)]


def test_what_every_queue_has_done_is_deleted_and_not_a_record_more(kq_cluster: Kafka) -> None:
    with serving(kq_cluster) as node, httpx.Client(base_url=node.url, timeout=WAIT, trust_env=False) as http:
        put(http, "a", b"0", b"1")
        (slow,) = put(http, "b", b"2")
        put(http, "a", b"3")
        verb(http, "a", "ack", receipts=[item[2] for item in claim(http, "a", n=9)])
        assert http.post("/partitions/0/collect").json() == {"low": slow}
        assert datas(http.get("/queues/b/records")) == [b"2"]
        assert claim(http, "a") == [] and http.get("/queues/a/consumers/c/depth").json() == {"depth": 0}
        http.delete("/queues/b")
        http.delete("/queues/a")
        assert http.post("/partitions/0/collect").json()["low"] > slow
        assert http.get("/queues").json()["queues"] == []
        put(http, "a", b"4")
        assert [item[:2] for item in claim(http, "a", n=9)] == [(b"4", 1)]


def test_records_of_other_clients_are_ordinary_items(kq_cluster: Kafka, node: Node, http: httpx.Client, q: str) -> None:
    theirs, nobodys = {"value": b"theirs", "key": q}, {"value": b"nobody's", "key": b"no queue at all"}
    play.put(kq_cluster, node.topic, theirs, nobodys, b"keyless")
    assert [item[:2] for item in claim(http, q, wait=LONGEST)] == [(b"theirs", 1)]


# --- wrong requests ---

RECORDS = "/queues/q/records"
C = "/queues/q/consumers/c"
GOOD = "1.2.3"
WRONG: tuple[tuple[str, str, Any, int, str], ...] = (
    ("POST", RECORDS, None, 422, "body: Field required"),
    ("POST", RECORDS, {}, 422, "body.records: Field required"),
    ("POST", RECORDS, {"records": []}, 422, "body.records: List should have at least 1 item"),
    ("POST", RECORDS, {"records": [{}] * 1_001}, 422, "body.records: List should have at most 1000 items"),
    ("POST", RECORDS, {"records": [{"data": "ä"}]}, 422, "body.records.0.data: Value error, it is not base64"),
    (
        "POST",
        RECORDS,
        {"records": [{"data": 5}]},
        422,
        "body.records.0.data: Value error, bytes are written as base64, not as int",
    ),
    (
        "POST",
        RECORDS,
        {"records": [{"headers": {"h": "!"}}]},
        422,
        "body.records.0.headers.h: Value error, it is not base64",
    ),
    (
        "POST",
        RECORDS,
        {"records": [{"headers": {"kq-x": ""}}]},
        422,
        "a header's name is text that does not begin with",
    ),
    ("POST", RECORDS, {"records": [{"delay": 901}]}, 422, "body.records.0.delay: Input should be less than or equal"),
    ("POST", RECORDS, {"records": [{"what": 1}]}, 422, "body.records.0.what: Extra inputs are not permitted"),
    ("POST", RECORDS, {"records": [{"data": to_text(b"x" * 1_100_000)}]}, 413, "The record would take "),
    ("POST", RECORDS, {"records": [{"data": to_text(b"x" * 4_000_000)}]}, 413, "a body has at most 4,194,304 bytes"),
    ("POST", "/queues/a%20b/records", {"records": [{}]}, 422, "path.q: String should match pattern"),
    ("GET", RECORDS + "?from=-1", None, 422, "query.from: Input should be greater than or equal to 0"),
    ("GET", RECORDS + "?limit=1001", None, 422, "query.limit: Input should be less than or equal to 1000"),
    ("GET", RECORDS + "?wait=61", None, 422, "query.wait: Input should be less than or equal to 60"),
    ("GET", RECORDS + "?wait=nan", None, 422, "query.wait: Input should be"),
    ("GET", "/queues/q/consumers/.c/records", None, 422, "path.c: String should match pattern"),
    ("POST", C + "/offset", {}, 422, "body.offset: Field required"),
    ("POST", C + "/offset", {"offset": -2}, 422, "body.offset: Input should be greater than or equal to -1"),
    ("POST", "/queues/none/consumers/c/offset", {"offset": 0}, 404, "there is no queue 'none': it appears with"),
    ("POST", C + "/claim", {"n": 0}, 422, "body.n: Input should be greater than or equal to 1"),
    ("POST", C + "/claim", {"order": "fifo"}, 422, "body.order: String should match pattern"),
    ("POST", C + "/ack", {"receipts": []}, 422, "body.receipts: List should have at least 1 item"),
    ("POST", C + "/ack", {"receipts": ["x"]}, 422, "body.receipts.0: String should match pattern"),
    (
        "POST",
        C + "/ack",
        {"receipts": [GOOD]},
        410,
        "1 of 1 refused; what is in done is done. The first: nobody has it",
    ),
    ("POST", C + "/release", {"receipts": [GOOD], "delay": 901}, 422, "body.delay: Input should be less than or equal"),
    (
        "POST",
        C + "/extend",
        {"receipts": [GOOD], "lease": -1},
        422,
        "body.lease: Input should be greater than or equal",
    ),
    ("POST", C + "/bury", {"receipts": [GOOD], "reason": 5}, 422, "body.reason: Input should be a valid string"),
    ("POST", "/queues/q.dead/consumers/c/bury", {"receipts": [GOOD]}, 422, "'q.dead' holds dead letters already"),
    ("POST", C + "/redrive", {"n": 1}, 422, "'q' holds no dead letters: redrive 'q.dead'"),
    ("POST", C + "/redrive", {"n": 0}, 422, "body.n: Input should be greater than or equal to 1"),
    ("GET", "/queues?limit=0", None, 422, "query.limit: Input should be greater than or equal to 1"),
    ("GET", "/queues/none", None, 404, "there is no queue 'none'"),
    ("GET", "/queues/none/consumers", None, 404, "there is no queue 'none'"),
    ("GET", "/queues/none/consumers/c", None, 404, "'none' has no consumer 'c'"),
    ("GET", "/queues/none/consumers/a%20b/depth", None, 422, "path.c: String should match pattern"),
    ("DELETE", "/queues/none", None, 404, "there is no queue 'none'"),
    ("DELETE", "/queues/none/consumers/c", None, 404, "'none' has no consumer 'c'"),
    ("POST", "/partitions/3/collect", None, 404, " has partitions 0 to 2, not 3"),
    ("POST", "/partitions/x/collect", None, 422, "path.p: Input should be a valid integer"),
    ("PUT", RECORDS, {}, 405, "Method Not Allowed"),
    ("GET", "/queues%0A", None, 404, "there is no such route: see /docs"),
    ("GET", "/queue/q", None, 404, "there is no such route: see /docs"),
    ("GET", "/queues/a%2Fb/records", None, 404, "there is no such route: see /docs"),
    ("GET", "/queues/q%0A/records", None, 422, "path.q: String should match pattern"),
    ("GET", "/queues/%FF/records", None, 422, "path.q: String should match pattern"),
    ("GET", RECORDS + f"?from={1 << 80}", None, 422, "query.from: Input should be less than or equal to"),
    ("GET", RECORDS + f"?from={'9' * 5_000}", None, 422, "query.from: Unable to parse input string as an integer"),
    ("POST", C + "/claim", {"n": True}, 422, "body.n: Input should be a valid integer"),
    ("POST", C + "/offset", {"offset": 1 << 63}, 422, "body.offset: Input should be less than or equal to"),
)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case[0]} {case[1][:40]} {case[3]} {case[4][:30]}")
def test_a_wrong_request_is_refused_with_a_sentence(http: httpx.Client, case: tuple[str, str, Any, int, str]) -> None:
    how, path, body, status, sentence = case
    response = http.request(how, path, json=body)
    assert response.status_code == status, response.text
    found = response.json()
    assert sentence in found["detail"] and found["type"] == f"urn:kqlib:{found['title']}" and found["status"] == status
    assert response.headers["content-type"] == "application/problem+json" and "Traceback" not in response.text


def test_a_405_names_the_verbs_of_all_routes_of_its_path(http: httpx.Client) -> None:
    assert [http.put(path).headers["allow"] for path in (RECORDS, "/map", C)] == ["GET, POST", "GET", "DELETE, GET"]


def test_every_route_has_a_wrong_request(http: httpx.Client) -> None:
    """A new route gets its own."""
    asked = [(how, path.partition("?")[0].split("/")) for how, path, *_ in WRONG]
    for path, verbs in http.get("/openapi.json").json()["paths"].items():
        parts = path.split("/")
        for how in (verb.upper() for verb in verbs if path not in ("/map", "/health", "/ready", "/metrics")):
            there = any(
                how == other
                and len(response) == len(parts)
                and all(p[:1] == "{" or p == s for p, s in zip(parts, response, strict=True))
                for other, response in asked
            )
            assert there, f"{how} {path}"


def test_answers_hold_what_the_contract_says(http: httpx.Client, q: str) -> None:
    paths = http.get("/openapi.json").json()["paths"]

    def asked(how: str, path: str, body: Any = None) -> Any:
        response = http.request(how, path.replace("{q}", q).replace("{c}", "c").replace("{p}", "0"), json=body)
        held = paths[path.partition("?")[0]][how.lower()]["responses"][str(response.status_code)]["content"]
        schema, answer = held["application/json"]["schema"], response.json()
        jsonschema.validate(answer, schema)
        assert answer.keys() == schema["properties"].keys(), path
        for name, kind in schema["properties"].items():
            if members := kind.get("items", {}).get("properties"):
                assert [each.keys() for each in answer[name]] == [members.keys()], f"{path}: {name}"
        return answer

    log, consumer = "/queues/{q}/records", "/queues/{q}/consumers/{c}"
    asked("POST", log, {"records": [{"data": "YQ==", "headers": {"h": None}}]})
    asked("GET", log)
    receipts = [each["receipt"] for each in asked("POST", f"{consumer}/claim", {})["items"]]
    for path in ("/map", "/queues?limit=1", "/queues/{q}", "/queues/{q}/consumers", consumer, f"{consumer}/depth"):
        asked("GET", path)
    for verb in ("extend", "release"):
        asked("POST", f"{consumer}/{verb}", {"receipts": receipts})
    asked("DELETE", "/queues/{q}")
    asked("POST", "/partitions/{p}/collect")
    asked("POST", log, {"records": [{}]})
    end = asked("GET", f"{consumer}/records")["records"][0]["offset"]
    asked("POST", f"{consumer}/offset", {"offset": end})


def test_health_map_and_the_page_say_what_they_should(http: httpx.Client, node: Node) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/ready").json()["partitions"] == {"0": "serving", "1": "serving", "2": "serving"}
    owners = http.get("/map").json()["owners"]
    assert {number: owner["url"] for number, owner in owners.items()} == dict.fromkeys("012", node.url)
    contract = http.get("/openapi.json").json()
    assert contract["openapi"].startswith("3.1.") and contract["info"]["title"] == "Virtual queues"
    page = http.get("/docs").text
    assert "/queues/{q}/records" in page and "<script" not in page


WRONG_NODES: tuple[tuple[dict[str, Any], str], ...] = (
    (
        {"host": "0.0.0.0"},
        "everybody who reaches 0.0.0.0 could read and delete every queue: set KQ_VIRTUAL_TOKEN, or listen on",
    ),
    ({"token": "short"}, "a token is at least 8 ASCII characters without spaces (its value is not shown)"),
    ({"token": ""}, "a token is at least 8 ASCII characters without spaces (its value is not shown)"),
    ({"port": -1}, "port is a whole number, at least 0, not -1"),
    ({"port": 99_999}, "cannot listen on 127.0.0.1, port 99999"),
    ({"session": 0}, "session is a number of seconds from 0.5 to 3600, not 0"),
    ({"keep_consumers": 0}, "keep_consumers is a number of seconds from 1 to "),
    ({"topic": "not-there"}, "'not-there' does not exist on this cluster."),
)


@pytest.mark.parametrize(("how", "sentence"), WRONG_NODES)
def test_a_wrong_node_is_refused_with_a_sentence(
    kq_cluster: Kafka, node: Node, how: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(KqError) as error:
        Node(kq_cluster, **{"topic": node.topic, **how})
    assert str(error.value).startswith(sentence)


def test_a_port_that_is_taken_is_reported_at_the_start(kq_cluster: Kafka, node: Node) -> None:
    with pytest.raises(KqError, match="Is it in use"):
        Node(kq_cluster, node.topic, token=TOKEN, port=int(node.url.rsplit(":", 1)[1]))


FIT = {"": Topic(2), ".offsets": Topic(2, compact=True), ".partitions": Topic(1, compact=True)}
UNFIT: dict[str, tuple[dict[str, Topic | None], str]] = {
    "more states than partitions": ({".offsets": Topic(3, compact=True)}, "has 2 partitions and "),
    "a second partition of owners": (
        {".partitions": Topic(2, compact=True)},
        ".partitions' has 2 partitions and must have one",
    ),
    "no topic for states": ({".offsets": None}, ".offsets' does not exist on this cluster."),
    "records that are compacted": (
        {"": Topic(2, compact=True)},
        "' has cleanup.policy=compact and must have delete: else Kafka forgets",
    ),
    "states that are deleted": ({".offsets": Topic(2)}, ".offsets' has cleanup.policy=delete and must have compact"),
    "owners that are deleted": (
        {".partitions": Topic(1)},
        ".partitions' has cleanup.policy=delete and must have compact",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_topics_that_do_not_fit_are_refused(kq_cluster: Kafka, case: str) -> None:
    other, sentence = UNFIT[case]
    name = f"unfit-{uuid.uuid4().hex[:8]}"
    plan = {name + end: topic for end, topic in {**FIT, **other}.items() if topic}
    Plan(plan).apply(kq_cluster, quiet=True)
    with pytest.raises(KqError, match=re.escape(sentence)):
        Node(kq_cluster, name)


def test_a_plan_does_not_grow_virtual_queues_and_if_they_grow_no_node_serves_them(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    monkeypatch.setattr("kqlib.virtual.node.WATCH", 0.5)
    with serving(kq_cluster) as node, httpx.Client(base_url=node.url, timeout=WAIT, trust_env=False) as http:
        put(http, "q", b"0")
        with pytest.raises(NotAllowed, match="Keep 1, or make new topics of another name and put the items there"):
            Plan(topics(node.topic, 2)).apply(kq_cluster, quiet=True)
        kq_cluster.admin.create_partitions([NewPartitions(node.topic, 2)])[node.topic].result(WAIT)
        within(60, lambda: http.get("/queues/q/records").status_code == 503, "it is served")
        refused = http.get("/queues/q/records")
        assert refused.headers["retry-after"] == "1" and "has 2 partitions and " in refused.json()["detail"]
        unready = http.get("/ready")
        assert unready.status_code == 503 and unready.headers["content-type"] == "application/problem+json"
        assert "has 2 partitions and " in unready.json()["detail"] and not unready.json()["ready"]
