"""A topic over HTTP by aiohttp and confluent-kafka alone: what no virtual queue on them can be faster than.

In:  BOOTSTRAP TOPIC. Out: its address, then answers until stdin ends. It answers the three requests that the bench sends to a node.
A put waits for the broker, an ack commits. It has no queues, leases, attempts or owners: a claim gives what is next in the topic.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
from collections import deque
from queue import SimpleQueue
from typing import Any

from aiohttp import web
from confluent_kafka import Consumer, Message, Producer, TopicPartition

BOOTSTRAP, TOPIC = sys.argv[1:]
PRODUCER = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "linger.ms": 0})
CONSUMER = Consumer(
    {"bootstrap.servers": BOOTSTRAP, "group.id": TOPIC, "enable.auto.commit": False, "fetch.wait.max.ms": 10}
)
READY, ARRIVED = deque[Message](), asyncio.Condition()
ACKS = SimpleQueue[tuple[dict[int, int], "asyncio.Future[None]"]]()


async def put(request: web.Request) -> web.Response:
    """Produce them, and answer when the broker has all."""
    loop, records = asyncio.get_running_loop(), (await request.json())["records"]
    left, stored = len(records), loop.create_future()

    def delivered(error: Any, _: Message) -> None:
        nonlocal left
        left -= 1
        if error or not left:
            loop.call_soon_threadsafe(stored.set_result, error)

    for record in records:
        PRODUCER.produce(TOPIC, base64.b64decode(record["data"]), on_delivery=delivered)
    return web.json_response({}, status=500 if await stored else 200)


async def claim(request: web.Request) -> web.Response:
    """The next ones."""
    n = (await request.json()).get("n", 1)
    async with ARRIVED:
        await ARRIVED.wait_for(lambda: len(READY) >= n)
        found = [READY.popleft() for _ in range(n)]
    items = [
        {"receipt": f"{each.partition()}:{each.offset()}", "data": base64.b64encode(each.value()).decode()}
        for each in found
    ]
    return web.json_response({"items": items})


async def ack(request: web.Request) -> web.Response:
    """Commit behind them."""
    highest: dict[int, int] = {}
    for receipt in (await request.json())["receipts"]:
        partition, offset = map(int, receipt.split(":"))
        highest[partition] = max(offset + 1, highest.get(partition, 0))
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ACKS.put((highest, stored))
    await stored
    return web.json_response({})


async def arrived(found: list[Message]) -> None:
    """They can be claimed."""
    async with ARRIVED:
        READY.extend(found)
        ARRIVED.notify_all()


def consume(loop: asyncio.AbstractEventLoop) -> None:
    """Read ahead, and commit: all acks that wait, at once. In one thread: while another one polls, a commit never begins."""
    while True:
        if found := [each for each in CONSUMER.consume(500, 0.001) if not each.error()]:
            asyncio.run_coroutine_threadsafe(arrived(found), loop)
        highest: dict[int, int] = {}
        waiting = [ACKS.get() for _ in range(ACKS.qsize())]
        for offsets, _ in waiting:
            highest |= {number: max(end, highest.get(number, 0)) for number, end in offsets.items()}
        if waiting:
            CONSUMER.commit(offsets=[TopicPartition(TOPIC, *each) for each in highest.items()], asynchronous=False)
            for _, stored in waiting:
                loop.call_soon_threadsafe(stored.set_result, None)


def poll() -> None:
    """Call what was delivered."""
    while True:
        PRODUCER.poll(0.1)


async def main() -> None:
    """Serve."""
    owned, app, loop = asyncio.Event(), web.Application(client_max_size=4 << 20), asyncio.get_running_loop()
    app.router.add_post("/queues/{queue}/records", put)
    app.router.add_post("/queues/{queue}/consumers/{consumer}/claim", claim)
    app.router.add_post("/queues/{queue}/consumers/{consumer}/ack", ack)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            each.offset = 0
        consumer.assign(partitions)
        loop.call_soon_threadsafe(owned.set)

    CONSUMER.subscribe([TOPIC], on_assign=assigned)
    for work in (lambda: consume(loop), poll):
        threading.Thread(target=work, daemon=True).start()
    await owned.wait()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
