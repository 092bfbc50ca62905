"""Sixteen threads with a millisecond of work an item, on one partition; next to the same threads on a `queue.SimpleQueue`.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. The bare queue loses all it has when its process
ends: what it gives is what sixteen threads of this Python can do at all. The work is a sleep, so that it takes no core from others.
The order of the four is drawn.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import kqlib as kq
from bench.broker import Spent, broker, drawn, filled, fresh, spent

ITEMS, THREADS, WORK, SOME = 6_000, 16, 0.001, 8


def measured() -> dict[str, float]:
    """One round: bare, by `queue.work`, and by a loop of one's own that claims one or eight."""
    bare, one, some = "SimpleQueue", "claim and ack by hand", f"claim {SOME} and ack by hand"
    ways = {bare: _bare, "queue.work": _by_work, one: _by_hand(1), some: _by_hand(SOME)}
    took = {}
    for way, run in drawn(ways):
        with kq.Site(broker(), fresh("threads")) as site:
            took[way] = run(site.queue(filled("bench-threads", ITEMS + 1), lease=300))
    costs = {way: took[way] for way in ways}
    return {
        **{f"{way}, k/s": ITEMS / cost.seconds / 1e3 for way, cost in costs.items()},
        **{f"{way} ÷ {bare} (≥ 0.6)": costs[bare].seconds / costs[way].seconds for way in ("queue.work", some)},
        **{f"{way}: CPU an item, here, µs": cost.ours / ITEMS * 1e6 for way, cost in costs.items()},
        **{f"{way}: CPU an item, broker, µs": costs[way].theirs / ITEMS * 1e6 for way in costs if way != bare},
    }


def _together(work: Callable[[], None]) -> None:
    """All threads do it; returns when the last one is ready."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _bare(_: Any) -> Spent:
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(ITEMS):
        items.put(number)

    def work() -> None:
        while True:
            try:
                items.get_nowait()
            except queue.Empty:
                return
            time.sleep(WORK)

    return spent(lambda: _together(work))


def _by_work(ours: Any) -> Spent:
    ours.ack(ours.claim(wait=10))  # has joined
    return spent(lambda: ours.work(lambda _: time.sleep(WORK), threads=THREADS, until="empty"))


def _by_hand(some: int) -> Callable[[Any], Spent]:
    """Each thread claims so many, works on them one by one, and acks them together."""

    def run(ours: Any) -> Spent:
        ours.ack(ours.claim(wait=10))
        left, one = [ITEMS], threading.Lock()

        def work() -> None:
            while left[0] > 0:
                items = ours.claim_many(some, wait=0.05)
                for _ in items:
                    time.sleep(WORK)
                ours.ack_many(items)
                with one:
                    left[0] -= len(items)

        return spent(lambda: _together(work))

    return run
