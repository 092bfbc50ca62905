"""What virtual queues cost over HTTP: a put and a claim, straight to the right node and through one that forwards.

Then items a second, beside what a user might take instead; memory; how long another node needs to take over.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. Node, forwarder and peers are other processes.
The aiohttp server (`peers/bare.py`) has no queues at all: it is the upper bound. Redis and PostgreSQL are asked by their own clients,
without HTTP. What cannot be installed or started is named on stderr, and has no rows.
"""

from __future__ import annotations

import atexit
import base64
import functools
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
from confluent_kafka import Producer

import kqlib as kq
from bench import servers
from bench.broker import DATA, broker, fresh
from bench.peers import HERE, environment
from kqlib.virtual import topics

CALLS, THREADS, ROUNDS, QUEUES = 200, 8, 25, 100_000
AT_ONCE, SESSION = (1, 20, 100), 3
BARE = "aiohttp and nothing else"
BODY = {"records": [{"data": base64.b64encode(DATA).decode()}]}
NODE = """
import sys, time
from kqlib.kafka.cluster import Kafka
from kqlib.virtual.node import Node
with Node(Kafka(sys.argv[1]), sys.argv[2], session=float(sys.argv[3])) as node:
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


def started(program: str, *words: str, python: str = sys.executable) -> tuple[subprocess.Popen[str], str]:
    """A process and the address that it says; it ends with this one."""
    process = subprocess.Popen(
        [python, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    assert process.stdout
    if not (address := process.stdout.readline().strip()):
        raise RuntimeError("it did not start")
    return process, address


@functools.cache
def served() -> tuple[str, str, int]:
    """A node's address, the forwarder's, and the node's process."""
    name = fresh("bench-virtual")
    kq.Plan(topics(name, 4)).apply(broker(), quiet=True)
    node, url = started(NODE, broker().bootstrap, name, str(SESSION))
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

    def client(at: int) -> int:
        path, body, done = f"/queues/{queue}-{at}", {"records": BODY["records"] * n}, 0
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            for _ in range(ROUNDS):
                once(http, f"{path}/records", body)
                items = http.post(f"{path}/consumers/c/claim", json={"n": n}).json()["items"]
                once(http, f"{path}/consumers/c/ack", {"receipts": [item["receipt"] for item in items]})
                done += len(items)
        return done

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(client, range(THREADS)))
    return done / (time.perf_counter() - start)


@functools.cache
def many(queues: int) -> dict[str, float]:
    """A node with so many queues, a record each: what it grows by, a claim from one of them, and another node that takes them over."""
    name = fresh("bench-many")
    kq.Plan(topics(name, 4)).apply(broker(), quiet=True)
    node, url = started(NODE, broker().bootstrap, name, str(SESSION))
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    producer = Producer(broker().client(queue_buffering_max_messages=2 * QUEUES))
    names = [f"user:{n:06}" for n in range(queues)]
    for each in names:
        producer.produce(name, b"x", each.encode())
    producer.flush(60)
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        known(http, names[-100:])
        grown = (process.memory_info().rss - before) / 1e6
        claims = [once(http, f"/queues/{each}/consumers/c/claim", {}) for each in names[:CALLS]]
    _, url = started(NODE, broker().bootstrap, name, str(SESSION))
    node.kill()
    killed = time.perf_counter()
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        known(http, names[-100:])
        taken = time.perf_counter() - killed
    return {
        f"memory for {queues:,} queues, MB": grown,
        f"claim, {queues:,} queues: p50, ms": statistics.median(claims),
        f"takeover of {queues:,} queues, {SESSION} s of session included, s": taken,
    }


def known(http: httpx.Client, queues: list[str]) -> None:
    """Wait until a node answers for all of them."""
    while any(http.get(f"/queues/{each}").status_code != 200 for each in queues):
        time.sleep(0.02)


@functools.cache
def peers() -> dict[str, Callable[[int], float]]:
    """What to compare with: items a second, so many at a time."""
    found: dict[str, Callable[[int], float]] = {}
    topic = fresh("bench-bare")
    kq.Plan({topic: kq.Topic(partitions=4)}).apply(broker(), quiet=True)

    def bare(python: str) -> Callable[[int], float]:
        _, url = started((HERE / "bare.py").read_text(), broker().bootstrap, topic, python=python)
        return lambda n: together(url, "all", n)

    def program(python: str, name: str, server: str | None) -> Callable[[int], float]:
        if server is None:
            raise OSError("its server is not installed")
        command = [python, str(HERE / f"{name}.py"), server, str(THREADS), str(ROUNDS)]
        return lambda n: float(subprocess.run([*command, str(n)], check=True, capture_output=True, text=True).stdout)

    ways: dict[str, tuple[str, Callable[[str], Callable[[int], float]]]] = {
        BARE: ("bare", bare),
        "PostgreSQL, SKIP LOCKED": ("procrastinate", lambda python: program(python, "skip_locked", servers.postgres())),
    }
    for fsync in ("everysec", "always"):
        ways[f"Redis stream, {fsync}"] = ("rq", lambda python, to=fsync: program(python, "streams", servers.redis(to)))
    for name, (kind, make) in ways.items():
        try:
            found[name] = make(str(environment(kind)))
        except (OSError, RuntimeError, subprocess.SubprocessError) as why:
            print(f"{name} is left out: {why}", file=sys.stderr)
    return found


def measured() -> dict[str, float]:
    """One round."""
    url, through, _ = served()
    queue, rows = fresh("q"), {}
    for what, taken in calls({"straight": url, "one hop more": through}, queue).items():
        cuts = statistics.quantiles(taken, n=100)
        rows |= {f"{what}: p50, ms": cuts[49], f"{what}: p99, ms": cuts[98]}
    ways: dict[str, Callable[[int], float]] = {"a node": lambda n: together(url, fresh("q"), n), **peers()}
    for n in AT_ONCE:
        rates = {name: ways[name](n) for name in random.sample(list(ways), len(ways))}
        rows |= {f"{name}, {n} at a time, items/s": rates[name] for name in ways}
        if BARE in rates:
            rows[f"a node ÷ {BARE}, {n} at a time{' (≥ 0.5)' if n == max(AT_ONCE) else ''}"] = (
                rates["a node"] / rates[BARE]
            )
    for queues in (QUEUES // 100, QUEUES // 10, QUEUES):
        rows |= many(queues)
    return rows
