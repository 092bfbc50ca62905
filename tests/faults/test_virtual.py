"""The long runs of virtual queues: 100,000 of them, nodes killed, stopped and replaced under load; and whatever requests a machine
can think of. `make nightly PART=faults`; minutes, not seconds."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Any

import psutil
import pytest
import schemathesis
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from kqlib.kafka import Kafka
from kqlib.workshop import snapshot
from kqlib.workshop.cluster import Cluster
from tests.patience import PATIENCE, WAIT, until
from tests.promises.virtual_load import Load, converged
from tests.promises.virtual_nodes import Caller, Nodes

MANY = 100_000
REQUESTS = 10 * int(os.environ.get("KQ_FAULT_ITEMS", "100000"))
CASES = int(os.environ.get("KQ_FAULT_CASES", "20000"))
GROWTH = 10.0  # MB in the second half of these cases
LONGEST = 0.1  # seconds of the processor that one callback takes: all other requests wait for it
QUEUES = [f"queue-{n}" for n in range(40)]


@pytest.fixture
def nodes(kq_cluster: Kafka) -> Iterator[Nodes]:
    with Nodes(kq_cluster, f"faults-{uuid.uuid4().hex[:8]}", 6, session=2) as nodes:
        yield nodes


def fill(cluster: Kafka, topic: str, many: int) -> None:
    """A record in each of so many queues, as any other client would put it."""
    producer = Producer(cluster.client(acks="all", queue_buffering_max_messages=200_000))
    for n in range(many):
        producer.produce(topic, b"%d" % n, f"user:{n:06}".encode())
        if not n % 10_000:
            producer.poll(0)
    assert producer.flush(WAIT) == 0


def test_three_nodes_keep_a_hundred_thousand_queues_while_they_are_killed_stopped_and_replaced(nodes: Nodes) -> None:
    fill(nodes.cluster, nodes.topic, MANY)
    nodes.start(3)
    nodes.settled(120)
    took = []
    with Load(nodes, QUEUES, workers=3, pace=0.005) as load:
        for turn in range(6):
            load.until(150, 240)
            victim = random.Random(turn).choice(nodes.all)
            if turn % 3 == 0:  # a rolling restart: one comes, one leaves in good order
                nodes.start(1)
                victim.leave()
                nodes.end(victim)
            elif turn % 3 == 1:
                victim.signal(signal.SIGKILL)
                nodes.end(victim)
                nodes.start(1)
            else:  # longer than its session: it comes back and has to learn that it has nothing
                victim.signal(signal.SIGSTOP)
                time.sleep(5)
                victim.signal(signal.SIGCONT)
            took.append(converged(nodes))
        until(lambda: load.reads > 100 or load.broken, seconds=2 * WAIT)
        load.check(300)
    print("maps agreed so many seconds after the group:", [round(each, 1) for each in took])
    assert max(took) < 2 * PATIENCE
    caller = nodes.caller()
    for n in random.Random(7).sample(range(MANY), 300):
        assert caller.claim(f"user:{n:06}", 5)[0]["data"] == b"%d" % n


def test_an_index_of_a_hundred_thousand_queues_fits_into_tens_of_megabytes(nodes: Nodes) -> None:
    (node,) = nodes.start(1)
    nodes.settled()
    process = psutil.Process(node.fork.pid)
    before = process.memory_info().rss
    fill(nodes.cluster, nodes.topic, MANY)
    until(lambda: sum(len(page) for page in pages(node.http)) >= MANY, seconds=2 * WAIT)
    grown = (process.memory_info().rss - before) / 1e6
    print(f"{grown:.0f} MB for {MANY:,} queues, the last records of each partition included")
    assert grown < 150


def pages(http: object) -> Iterator[list[dict[str, object]]]:
    after: str | None = ""
    while after is not None:
        response = http.get("/queues", params={"after": after, "limit": 1000}).json()  # type: ignore[attr-defined]
        yield response["queues"]
        after = response["after"]


def test_a_broker_of_three_dies_and_nothing_acknowledged_is_lost() -> None:
    with Cluster(3) as cluster, Nodes(cluster, "virtual", 6, session=4) as nodes:
        nodes.start(3)
        nodes.settled(120)
        with Load(nodes, QUEUES[:12]) as load:
            for number in (1, 2, 3):
                load.until(40, 240)
                cluster.broker(number).kill()
                load.until(40, 240)
                cluster.broker(number).start()
                nodes.settled(120)
            load.check(300)


def test_no_request_that_its_own_page_allows_or_forbids_breaks_a_node(nodes: Nodes) -> None:
    """20,000 requests made from the node's OpenAPI page, right ones and wrong ones: no 5xx, and its memory stays."""
    (node,) = nodes.start(1)
    nodes.settled()
    process, sizes = psutil.Process(node.fork.pid), [0.0]
    page = schemathesis.openapi.from_url(f"{node.url}/openapi.json")
    counts: Counter[int] = Counter()

    def asked(case: Any) -> None:
        for part in (case.query, case.body):
            if isinstance(part, dict) and isinstance(part.get("wait"), int | float) and part["wait"] > 0:
                part["wait"] = min(part["wait"], 0.01)  # a long poll takes as long as it says
        response = case.call(base_url=node.url, timeout=WAIT)
        counts[response.status_code] += 1
        assert response.status_code < 500, (case.method, case.path, case.query, case.body, response.text)
        assert response.status_code in (200, 201, 204) or response.json()["detail"], response.text

    operations, calm = [found.ok() for found in page.get_all_operations()], list(HealthCheck)
    while counts.total() < CASES:
        for operation in operations:
            for mode in GenerationMode:
                if mode is GenerationMode.POSITIVE or operation.path_parameters or operation.query or operation.body:
                    run = given(case=operation.as_strategy(generation_mode=mode))(asked)
                    with suppress(Unsatisfiable):  # nothing wrong can be sent to a route that takes nothing
                        settings(max_examples=32, deadline=None, database=None, suppress_health_check=calm)(run)()
        sizes.append(process.memory_info().rss / 1e6)
    print(f"{counts.total():,} requests:", sorted(counts.items()), "· MB:", *map(round, sizes[1:]))
    assert {200, 201, 404, 422} <= counts.keys()
    assert sizes[-1] - sizes[len(sizes) // 2] < GROWTH
    assert node.http.get("/health").status_code == 200


def test_every_broker_is_stopped_and_killed_for_longer_than_its_clients_remember_and_the_node_goes_on() -> None:
    """Clients that once knew no broker never come back (librdkafka 5301): the node makes others, and needs no restart."""
    with Cluster(1) as cluster, Nodes(cluster, "away", 4, session=4) as nodes:
        nodes.start(1)
        nodes.settled(120)
        caller, broker = nodes.caller(), cluster.broker(1)
        for turn, seconds in (("pause", 8), ("kill", 14)):
            waiting = {(queue, turn.encode()) for queue in QUEUES[:8]}
            for queue, data in waiting:
                caller.put(queue, data)
            getattr(broker, turn)()
            time.sleep(seconds)
            broker.resume() if turn == "pause" else broker.start()
            deadline = time.monotonic() + 2 * WAIT
            while waiting:
                assert time.monotonic() < deadline, f"after a {turn}: {waiting}"
                queue, data = min(waiting)
                for item in caller.claim(queue, wait=5):
                    if (
                        caller.verb("ack", queue, item["receipt"]).status_code == 200
                    ):  # else its partition was given up meanwhile
                        assert item["data"] == data
                        waiting.discard((queue, data))


def test_what_consumers_have_done_outlives_the_compaction_of_its_topic(nodes: Nodes) -> None:
    """Really compacted: fewer records are left than were written, and a new node reads the same from them."""
    name = f"{nodes.topic}.offsets"
    quick = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
    set_ = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in quick.items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=set_)
    nodes.cluster.admin.incremental_alter_configs([resource])[resource].result(WAIT)
    (node,) = nodes.start(1)
    nodes.settled(60)
    caller = nodes.caller()
    caller.put("work", *[b"%d" % n for n in range(60)])
    offsets = caller.put("log", *[b"%d" % n for n in range(60)])
    caller.put("gone", b"x")
    for offset in offsets[:50]:
        (item,) = caller.claim("work", 1)
        assert caller.verb("ack", "work", item["receipt"]).status_code == 200
        assert caller.ask("POST", "log", "/consumers/r/offset", {"offset": offset}).status_code == 200
        assert caller.claim("gone", 1, f"c-{offset}")
    assert caller.ask("DELETE", "gone", "").status_code == 200
    deadline = time.monotonic() + 2 * WAIT
    while left(nodes.cluster, name) > 60:
        for queue in ("work", "log", "gone"):
            caller.ask("GET", queue, "/consumers/x/depth")  # a segment is closed by the next record: here a proof
        assert time.monotonic() < deadline, left(nodes.cluster, name)
        time.sleep(0.6)
    node.signal(signal.SIGKILL)
    nodes.end(node)
    nodes.start(1)
    nodes.settled(60)
    caller = nodes.caller()
    assert caller.ask("GET", "log", "/consumers/r").json()["tracked"] == offsets[49]
    assert caller.ask("GET", "gone", "").status_code == 404
    assert [item["data"] for item in caller.claim("work", 20)] == [b"%d" % n for n in range(50, 60)]


def left(cluster: Kafka, topic: str) -> int:
    """How many records are left in a topic."""
    return sum(map(len, snapshot.records(cluster, topic).values()))


def test_ten_thousand_long_polls_at_once_are_held_and_one_more_is_refused_for_now(nodes: Nodes) -> None:
    soft, hard = getrlimit(RLIMIT_NOFILE)
    files = 20_000 if hard < 0 else min(20_000, hard)
    setrlimit(RLIMIT_NOFILE, (files, hard))  # the node inherits it
    try:
        (node,) = nodes.start(1)
        nodes.settled()
        asyncio.run(polled(node.url, min(10_000, (files - 500) * 3 // 4), nodes.caller()))
    finally:
        setrlimit(RLIMIT_NOFILE, (soft, hard))
    print(f"{psutil.Process(node.fork.pid).memory_info().rss / 1e6:.0f} MB afterwards")
    assert node.http.get("/health").status_code == 200 and node.owned() == list(range(6))


async def answer(reader: asyncio.StreamReader) -> bytes:
    """A whole answer: its head often comes before the rest."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return head + await reader.readexactly(int(length[1]) if length else 0)


async def polled(url: str, places: int, caller: Caller) -> None:
    """Connections that wait, each for a queue of its own: as many as there are places, or as come while the first still waits."""
    host, port = url.removeprefix("http://").split(":")
    open_, begun = [], time.monotonic()

    async def poll(queue: str) -> asyncio.Task[bytes]:
        """Ask, and return the task that waits for the answer."""
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST /queues/{queue}/consumers/c/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        )
        writer.write(f"{head}content-length: 12\r\n\r\n".encode() + b'{"wait": 60}')
        open_.append(writer)
        return asyncio.create_task(answer(reader))

    waiting: list[asyncio.Task[bytes]] = []
    while len(waiting) < places and time.monotonic() - begun < 40:
        several = range(len(waiting), min(len(waiting) + 50, places))
        waiting += await asyncio.gather(*(poll(f"poll-{n}") for n in several))
    print(f"{len(waiting):,} wait after {time.monotonic() - begun:.0f} s")
    try:
        assert len(waiting) == places, len(waiting)
        (response,) = await asyncio.gather(await poll("one-more"))
        assert response.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in response
        assert not any(task.done() for task in waiting)
        for writer in open_[-100:]:  # a client that disconnects frees a place
            writer.close()
        for at in range(50):
            await asyncio.to_thread(caller.put, f"poll-{at}", b"x")
        answers = [task.result() for task in (await asyncio.wait(waiting[:50], timeout=WAIT))[0]]
        assert len(answers) == 50 and all(response.startswith(b"HTTP/1.1 200 ") for response in answers)
        late = [item for at in range(50) for item in await asyncio.to_thread(caller.claim, f"poll-{at}", 1)]
        assert (
            sum(b'"receipt"' in response for response in answers) + len(late) == 50
        )  # late: of polls that ended before
    finally:
        for writer in open_:
            writer.close()
        await asyncio.gather(*waiting, return_exceptions=True)


def test_a_node_keeps_its_size_over_a_million_requests_and_none_holds_up_the_others(
    nodes: Nodes, figures: list[str]
) -> None:
    """Puts, long polls, acks of leases of an hour, polls that are given up, and wrong ones; what is done is collected."""
    nodes.settings |= {"timed": True, "session": 45}  # nothing dies here: a busy machine must not take its partitions
    (node,) = nodes.start(1)
    nodes.settled()
    fill_memory(nodes.caller())
    process, sizes, begun = psutil.Process(node.fork.pid), [0.0], time.monotonic()
    for percent in (10, 40, 50):
        asyncio.run(requested(node.url, REQUESTS * percent // 100))
        sizes.append(process.memory_info().rss / 1e6)
    seconds, (busy, passed) = time.monotonic() - begun, node.longest_callback()
    figures.append(f"{REQUESTS:,} requests in {seconds:,.0f} s, {process.num_threads()} threads")
    figures.append(f"memory at 10, 50 and 100 %: {', '.join(f'{size:.1f} MB' for size in sizes[1:])}")
    figures.append(f"the longest callback: {1000 * busy:.0f} ms of the processor, {1000 * passed:.0f} ms by the clock")
    assert max(sizes) - sizes[1] < 20
    assert busy < LONGEST * PATIENCE


def fill_memory(caller: Caller) -> None:
    """Put so many records that each partition of six has as many in memory as it ever keeps. Their queues are deleted."""
    for n in range(240):
        caller.put(f"warm-{n}", *[b"goal"] * 1_000)
        assert caller.ask("DELETE", f"warm-{n}", "").status_code == 200


async def requested(url: str, many: int, at_once: int = 64) -> None:
    """So many requests, by workers with queues of their own."""
    host, port = url.removeprefix("http://").split(":")
    left = many

    async def asked(open_: Any, path: str, body: Any, status: int) -> bytes:
        nonlocal left
        left -= 1
        text = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        open_[1].write(f"{head}content-length: {len(text)}\r\n\r\n{text}".encode())
        response = await answer(open_[0])
        assert response.startswith(b"HTTP/1.1 %d " % status), response
        return response.partition(b"\r\n\r\n")[2]

    async def work(number: int) -> None:
        turn, lines = 0, [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        while left > 0:
            queue, turn = f"/queues/w{number}-{turn % 20}", turn + 1
            consumer, claim = f"{queue}/consumers/c", {"wait": 30, "lease": 3600}
            poll = asyncio.create_task(asked(lines[0], f"{consumer}/claim", claim, 200))
            await asked(lines[1], f"{queue}/records", {"records": [{"data": "Z29hbA=="}]}, 201)
            receipts = [item["receipt"] for item in json.loads(await poll)["items"]]
            await asked(lines[1], f"{consumer}/ack", {"receipts": receipts}, 200)
            if turn % 10 == 0:
                await asked(lines[1], f"{queue}/records", {"recs": [1]}, 422)
                given_up = asyncio.create_task(asked(lines[0], f"{consumer}/claim", claim, 200))
                await asyncio.sleep(0)
                given_up.cancel()
                lines[0][1].close()
                lines[0] = await asyncio.open_connection(host, int(port))
            if turn % 200 == 0:
                await asked(lines[1], f"/partitions/{number % 6}/collect", None, 200)
        for _, writer in lines:
            writer.close()

    await asyncio.gather(*(work(number) for number in range(at_once)))
