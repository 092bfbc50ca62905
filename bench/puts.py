"""What putting costs, next to a bare producer with the same promises: idempotent, acks=all, key, headers, a delivery callback.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. What is put is made before the clock starts.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

import kqlib as kq
from bench.broker import DATA, KEYS, broker, filled, fresh, spent

ITEMS, HEADERS = 20_000, {"feed": b"tv"}


def measured() -> dict[str, float]:
    """One round: the same items both ways."""
    topic = filled("bench-puts", 1)
    bare, items = spent(_bare(topic)), [kq.Put(DATA, KEYS[at % len(KEYS)], HEADERS) for at in range(ITEMS)]
    with kq.Site(broker(), fresh("puts")) as site:
        queue = site.queue(topic)
        queue.put(DATA)  # the first one connects
        ours = spent(lambda: queue.put_many(items))
    costs = {"bare producer": bare, "put_many": ours}
    return {
        **{f"{way}, k/s": ITEMS / cost.seconds / 1e3 for way, cost in costs.items()},
        "put_many ÷ bare producer (≥ 0.8)": bare.seconds / ours.seconds,
        **{f"{way}: CPU an item, here, µs": cost.ours / ITEMS * 1e6 for way, cost in costs.items()},
        **{f"{way}: CPU an item, broker, µs": cost.theirs / ITEMS * 1e6 for way, cost in costs.items()},
    }


def _bare(topic: str) -> Any:
    """Produce all and flush; every answer is received."""
    producer = Producer(broker().client(enable_idempotence=True, linger_ms=0))
    producer.produce(topic, DATA)
    producer.flush(20)
    stored: list[int] = []

    def answer(error: Any, message: Any) -> None:
        if error is None:
            stored.append(message.offset())

    def work() -> None:
        for at in range(ITEMS):
            producer.produce(topic, DATA, KEYS[at % len(KEYS)], on_delivery=answer, headers=HEADERS)
            producer.poll(0)
        producer.flush(60)
        if len(stored) != ITEMS:
            raise RuntimeError(f"{len(stored)} of {ITEMS} were stored")

    return work
