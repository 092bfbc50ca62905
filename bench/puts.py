"""What putting costs, next to a bare producer with the same promises: idempotent, acks=all, key, headers, a delivery callback.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. Both linger for 0 ms, have stored their first item
before the clock starts, and get what is put ready-made. Their order is drawn.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

import kqlib as kq
from bench.broker import DATA, KEYS, Spent, broker, drawn, filled, fresh, spent

ITEMS, HEADERS = 50_000, {"feed": b"tv"}


def measured() -> dict[str, float]:
    """One round: the same items both ways."""
    ways = {"bare producer": _bare, "put_many": _ours}
    took = {way: put(filled("bench-puts", 1)) for way, put in drawn(ways)}
    costs = {way: took[way] for way in ways}
    return {
        **{f"{way}, k/s": ITEMS / cost.seconds / 1e3 for way, cost in costs.items()},
        "put_many ÷ bare producer (≥ 0.8)": costs["bare producer"].seconds / costs["put_many"].seconds,
        **{f"{way}: CPU an item, here, µs": cost.ours / ITEMS * 1e6 for way, cost in costs.items()},
        **{f"{way}: CPU an item, broker, µs": cost.theirs / ITEMS * 1e6 for way, cost in costs.items()},
    }


def _ours(topic: str) -> Spent:
    items = [kq.Put(DATA, KEYS[at % len(KEYS)], HEADERS) for at in range(ITEMS)]
    with kq.Site(broker(), fresh("puts")) as site:
        queue = site.queue(topic)
        queue.put(DATA)
        return spent(lambda: queue.put_many(items))


def _bare(topic: str) -> Spent:
    """Produce all and flush; every answer is received."""
    producer = Producer(broker().client(enable_idempotence=True, linger_ms=0))
    producer.produce(topic, DATA)
    producer.flush(20)
    keys = [KEYS[at % len(KEYS)] for at in range(ITEMS)]
    stored: list[int] = []

    def answer(error: Any, message: Any) -> None:
        if error is None:
            stored.append(message.offset())

    def work() -> None:
        for key in keys:
            producer.produce(topic, DATA, key, on_delivery=answer, headers=HEADERS)
            producer.poll(0)
        producer.flush(60)

    cost = spent(work)
    if len(stored) != ITEMS:
        raise RuntimeError(f"{len(stored)} of {ITEMS} were stored")
    return cost
