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
import json
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
from bench.broker import DATA, Spent, broker, fresh, spent
from bench.peers import HERE, environment
from kqlib.queue.ledger import Ledger
from kqlib.virtual import topics
from kqlib.virtual.names import OFFSETS, partition_of

CALLS, THREADS, ROUNDS, PARTITIONS = 200, 8, 25, 4
GROW: dict[str, tuple[tuple[int, int, int], dict[str, int]]] = {  # each with three sizes, and what else is there
    "queues": ((1_000, 10_000, 100_000), {}),
    "items": ((10_000, 100_000, 1_000_000), {}),
    "bytes": ((100, 10_000, 900_000), {"items": CALLS}),
    "consumers": ((1_000, 10_000, 100_000), {"items": 10}),
}
AT_ONCE, SESSION = (1, 20, 100), 3
BARE = "aiohttp and nothing else"
BODY = {"records": [{"data": base64.b64encode(DATA).decode()}]}
NODE = """
import gc, sys, time
from kqlib.kafka.cluster import Kafka
from kqlib.virtual.node import Node
with Node(Kafka(sys.argv[1]), sys.argv[2], session=float(sys.argv[3])) as node:
    gc.freeze()  # as kq virtual serve does
    while not node.ready()[0] or not node.owned:
        time.sleep(0.01)
    print(node.url, flush=True)
    sys.stdin.read()
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


def node(topic: str) -> tuple[subprocess.Popen[str], str]:
    """One node of this topic, when it answers for its partitions."""
    return started(NODE, broker().bootstrap, topic, str(SESSION))


def made(name: str) -> str:
    """The topics of new virtual queues."""
    kq.Plan(topics(topic := fresh(name), PARTITIONS)).apply(broker(), quiet=True)
    return topic


@functools.cache
def served() -> tuple[subprocess.Popen[str], str]:
    """A node that has all partitions."""
    return node(made("bench-virtual"))


@functools.cache
def bare(python: str) -> tuple[subprocess.Popen[str], str]:
    """The aiohttp server."""
    kq.Plan({(topic := fresh("bench-bare")): kq.Topic(partitions=PARTITIONS)}).apply(broker(), quiet=True)
    return started((HERE / "bare.py").read_text(), broker().bootstrap, topic, python=python)


def once(http: httpx.Client, url: str, body: Any) -> float:
    """Milliseconds of one request; of two, if the first one's answer names the owner."""
    start = time.perf_counter()
    answer = http.post(url, json=body)
    if answer.status_code == 409:
        queue = (path := httpx.URL(url).path).split("/")[2]
        answer = http.post(owner(answer.json()["map"], queue) + path, json=body)
    answer.raise_for_status()
    return (time.perf_counter() - start) * 1e3


def owner(found: Any, queue: str) -> str:
    """The address that a map has for a queue."""
    return str(found["owners"][str(partition_of(queue, PARTITIONS))]["url"])


def calls() -> dict[str, list[float]]:
    """So many puts, then so many claims, of each of two nodes in turn: a noisy neighbour disturbs both alike."""
    queue, topic, found = fresh("q"), made("bench-two"), dict[str, list[float]]()
    nodes = [node(topic) for _ in range(2)]
    with httpx.Client(trust_env=False, timeout=30) as http:
        while {*(known := urls(http, nodes[0][1]))} != {*(url for _, url in nodes)} or known != urls(http, nodes[1][1]):
            time.sleep(0.02)
        mine = owner(http.get(f"{nodes[0][1]}/map").json(), queue)
        (other,) = {*known} - {mine}
        for verb, path, body in (("put", "records", BODY), ("claim", "consumers/c/claim", {})):
            for _ in range(CALLS):
                for how, url in (("of its owner", mine), ("of another node", other)):
                    found.setdefault(f"{verb}, {how}", []).append(once(http, f"{url}/queues/{queue}/{path}", body))
    for process, _ in nodes:
        process.kill()
    return found


def urls(http: httpx.Client, url: str) -> list[str]:
    """The owners that a node knows, by partition."""
    return [each["url"] if each else "" for each in http.get(f"{url}/map").json()["owners"].values()]


def together(url: str, queue: str, n: int) -> float:
    """Items a second that several clients put, claim and ack, n at a time."""

    def client(at: int) -> int:
        path, body, done = f"{url}/queues/{queue}-{at}", {"records": BODY["records"] * n}, 0
        with httpx.Client(trust_env=False, timeout=30) as http:
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


def cpu(process: subprocess.Popen[str], url: str, queue: str) -> dict[str, float]:
    """What an item costs a server, the broker and the clients, µs of CPU, in the largest batches."""
    n, inner = max(AT_ONCE), list[Spent]()
    outer = spent(lambda: inner.append(spent(lambda: together(url, queue, n), process.pid)))
    took = {"server": inner[0].theirs, "broker": outer.theirs, "clients": outer.ours}
    return {
        f"CPU of the {whose}, {n} at a time, µs an item": s * 1e6 / THREADS / ROUNDS / n for whose, s in took.items()
    }


def memory(process: subprocess.Popen[str]) -> float:
    """MB."""
    return float(psutil.Process(process.pid).memory_info().rss / 1e6)


@functools.cache
def empty() -> float:
    """The memory of a node without a record, MB."""
    process, _ = node(made("bench-empty"))
    found = memory(process)
    process.kill()
    return found


@functools.cache
def full(what: str, many: int) -> dict[str, float]:
    """A node with so many: its memory, a claim, and how long another node needs to take all over when it is killed."""
    size = {"queues": 1, "items": 1, "bytes": 1, "consumers": 0} | GROW[what][1] | {what: many}
    topic, names = made("bench-full"), [f"user:{n:06}" for n in range(size["queues"])]
    producer = Producer(broker().client(queue_buffering_max_messages=2_000_000))
    for name in names * size["items"]:
        producer.produce(topic, b"x" * size["bytes"], name.encode())
        producer.poll(0)
    state = {"floor": 1, "state": Ledger(1, 1, 1).text(), "at": 1, "order": "any", "most": 5}  # the first item is done
    for n in range(size["consumers"]):
        key, at = json.dumps(["consumer", names[0], f"c{n}"]), partition_of(names[0], PARTITIONS)
        producer.produce(topic + OFFSETS, json.dumps(state).encode(), key.encode(), at)
        producer.poll(0)
    producer.flush(120)
    process, url = node(topic)
    with httpx.Client(trust_env=False, timeout=60) as http:
        known(http, url, names[-100:])
        grown = memory(process) - empty()
        claims = [
            once(http, f"{url}/queues/{names[n % len(names)]}/consumers/c{n % (size['consumers'] or 1)}/claim", {})
            for n in range(CALLS)
        ]
        second, there = node(topic)
        nodes = {url: process, there: second}
        while {*urls(http, there)} != {*nodes}:
            time.sleep(0.02)
        nodes.pop(owner(http.get(f"{there}/map").json(), names[0])).kill()
        killed = time.perf_counter()
        ((url, process),) = nodes.items()
        known(http, url, names[-100:])
        taken = time.perf_counter() - killed
    process.kill()
    rows = {"memory, MB": grown, "claim: p50, ms": statistics.median(claims), f"takeover after {SESSION} s, s": taken}
    return {f"{many:,} {what}: {row}": value for row, value in rows.items()}


def known(http: httpx.Client, url: str, queues: list[str]) -> None:
    """Wait until a node answers for all of them."""
    while any(http.get(f"{url}/queues/{each}").status_code != 200 for each in queues):
        time.sleep(0.02)


@functools.cache
def peers() -> dict[str, Callable[[int], float]]:
    """What to compare with: items a second, so many at a time."""
    found: dict[str, Callable[[int], float]] = {}

    def aiohttp(python: str) -> Callable[[int], float]:
        _, url = bare(python)
        return lambda n: together(url, "all", n)

    def program(python: str, name: str, server: str | None) -> Callable[[int], float]:
        if server is None:
            raise OSError("its server is not installed")
        command = [python, str(HERE / f"{name}.py"), server, str(THREADS), str(ROUNDS)]
        return lambda n: float(subprocess.run([*command, str(n)], check=True, capture_output=True, text=True).stdout)

    ways: dict[str, tuple[str, Callable[[str], Callable[[int], float]]]] = {
        BARE: ("bare", aiohttp),
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
    (process, url), rows = served(), dict[str, float]()
    for what, taken in calls().items():
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
    rows |= {f"a node: {what}": each for what, each in cpu(process, url, fresh("q")).items()}
    if BARE in ways:
        rows |= {f"{BARE}: {what}": each for what, each in cpu(*bare(str(environment("bare"))), "all").items()}
    rows["a node, requests/s, 1 at a time"] = 3 * rows["a node, 1 at a time, items/s"]
    for what, (sizes, _) in GROW.items():
        for many in sizes:
            rows |= full(what, many)
    return rows
