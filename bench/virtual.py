"""What virtual queues cost over HTTP: a put and a claim, straight to the right node and through one that forwards; items a second;
memory.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. Node and forwarder are processes of their own.
"""

from __future__ import annotations

import atexit
import base64
import functools
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import httpx
import psutil
from confluent_kafka import Producer

import kqlib as kq
from bench.broker import DATA, broker, fresh
from kqlib.virtual import topics

CALLS, THREADS, QUEUES = 200, 8, 100_000
BODY = {"records": [{"data": base64.b64encode(DATA).decode()}]}
NODE = """
import sys, time
from kqlib.kafka.cluster import Kafka
from kqlib.virtual.node import Node
with Node(Kafka(sys.argv[1]), sys.argv[2]) as node:
    while not node.ready()[0] or not node.owned:
        time.sleep(0.01)
    print(node.url, flush=True)
    sys.stdin.read()
"""
FORWARDER = """
import sys, socket, httpx, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
other = httpx.AsyncClient(base_url=sys.argv[1], trust_env=False, timeout=30)
async def forward(request):
    body, head = await request.body(), {"content-type": "application/json"}
    answer = await other.request(request.method, request.url.path, content=body, headers=head)
    return Response(answer.content, answer.status_code, media_type="application/json")
app = Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST"])])
made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
made.bind(("127.0.0.1", 0))
print(f"http://127.0.0.1:{made.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")).run(sockets=[made])
"""


def started(program: str, *words: str) -> tuple[subprocess.Popen[str], str]:
    """A process and the address that it says; it ends with this one."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    assert process.stdout
    return process, process.stdout.readline().strip()


@functools.cache
def served() -> tuple[str, str, int]:
    """A node's address, the forwarder's, and the node's process."""
    name = fresh("bench-virtual")
    kq.Plan(topics(name, 4)).apply(broker(), quiet=True)
    node, url = started(NODE, broker().bootstrap, name)
    _, through = started(FORWARDER, url)
    return url, through, node.pid


def once(http: httpx.Client, path: str, body: Any) -> float:
    """Milliseconds of one request."""
    start = time.perf_counter()
    http.post(path, json=body).raise_for_status()
    return (time.perf_counter() - start) * 1e3


def calls(urls: dict[str, str], queue: str) -> dict[str, list[float]]:
    """So many puts, then so many claims, on each way in turn: a noisy neighbour disturbs both alike."""
    found: dict[str, list[float]] = {f"{verb}, {how}": [] for verb in ("put", "claim") for how in urls}
    ways = {how: httpx.Client(base_url=url, trust_env=False, timeout=30) for how, url in urls.items()}
    for verb, path, body in (("put", "records", BODY), ("claim", "consumers/c/claim", {})):
        for _ in range(CALLS):
            for how, http in ways.items():
                found[f"{verb}, {how}"].append(once(http, f"/queues/{queue}/{path}", body))
    for http in ways.values():
        http.close()
    return found


def together(url: str, queue: str, n: int) -> float:
    """Items a second that several clients put, claim and ack, n at a time."""
    done: list[int] = []

    def client(at: int) -> None:
        path, body = f"/queues/{queue}-{at}", {"records": BODY["records"] * n}
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            for _ in range(CALLS // THREADS):
                once(http, f"{path}/records", body)
                items = http.post(f"{path}/consumers/c/claim", json={"n": n}).json()["items"]
                once(http, f"{path}/consumers/c/ack", {"receipts": [item["receipt"] for item in items]})
                done.append(len(items))

    threads = [threading.Thread(target=client, args=(at,)) for at in range(THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - start)


@functools.cache
def memory() -> float:
    """Megabytes that a node grows by when it meets 100,000 queues with a record each."""
    name = fresh("bench-many")
    kq.Plan(topics(name, 4)).apply(broker(), quiet=True)
    node, url = started(NODE, broker().bootstrap, name)
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    producer = Producer(broker().client(queue_buffering_max_messages=2 * QUEUES))
    for n in range(QUEUES):
        producer.produce(name, b"x", f"user:{n:06}".encode())
    producer.flush(60)
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        last = f"user:{QUEUES - 1:06}"
        while http.get(f"/queues/{last}").status_code != 200:
            time.sleep(0.1)
        time.sleep(1.0)  # the other partitions
    grown = (process.memory_info().rss - before) / 1e6
    node.kill()
    return grown


def measured() -> dict[str, float]:
    """One round."""
    url, through, _ = served()
    queue, rows = fresh("q"), {}
    for what, taken in calls({"straight": url, "one hop more": through}, queue).items():
        cuts = statistics.quantiles(taken, n=100)
        rows |= {f"{what}: p50, ms": cuts[49], f"{what}: p99, ms": cuts[98]}
    rows[f"put + claim + ack, {THREADS} clients, one at a time, items/s"] = together(url, f"{queue}-one", 1)
    rows[f"put + claim + ack, {THREADS} clients, 20 at a time, items/s"] = together(url, f"{queue}-many", 20)
    rows[f"memory for {QUEUES:,} queues, MB"] = memory()
    return rows
