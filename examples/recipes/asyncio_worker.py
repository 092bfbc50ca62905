"""asyncio: the handler is a coroutine, and many items are worked on at once in one event loop.

    KQ_BOOTSTRAP=127.0.0.1:9092 python examples/recipes/asyncio_worker.py

The queue claims, extends leases and acks on its own threads. Each of them waits for one coroutine, so 16 threads are 16 items at once.
"""

from __future__ import annotations

import asyncio
import signal
import threading

import kqlib as kq
from kqlib.queue import Item


async def fetch(item: Item) -> None:
    """The job: all that it awaits leaves the loop free for other items."""
    await asyncio.sleep(0.1)
    print("fetched", (item.data or b"").decode(), flush=True)


async def main() -> None:
    """Until SIGTERM: what has begun is finished and acked."""
    loop, stop = asyncio.get_running_loop(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def handle(item: Item) -> None:
        asyncio.run_coroutine_threadsafe(fetch(item), loop).result()

    def work() -> str:
        with kq.connect() as cluster, kq.Site(cluster, "fetcher") as site:
            return str(site.queue("pages", lease=30).work(handle, threads=16, until=stop.is_set))

    print(await asyncio.to_thread(work))


if __name__ == "__main__":
    asyncio.run(main())
