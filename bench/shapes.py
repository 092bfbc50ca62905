"""Claim and ack next to Kafka's own share group, at topics of several shapes: partitions × records that a producer sent together.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.

One worker, 100,000 items of 100 bytes with 97 keys. Ours claims 2,000 at once and acks them durably: two commits a batch, since
the attempts are stored before anybody sees an item. The share group acknowledges each record and commits each poll; it takes what a
poll gives, up to 2,000, since it gives out whole record batches. The order of the two is drawn for each shape.
"""

from __future__ import annotations

import random

from bench.broker import filled
from bench.queue import Batches, ours, run, share

ITEMS, TAKEN = 100_000, 2_000
KEYS = [b"game-%d" % number for number in range(97)]
PARTITIONS, SENT = (1, 4, 16), (1, 100, 2_000)


def measured() -> dict[str, float]:
    """One round: each shape, both ways."""
    row: dict[str, float] = {}
    for partitions in PARTITIONS:
        for sent in SENT:
            shape = f"{partitions} × {sent:,}"
            topic = filled(f"bench-shape-{partitions}-{sent}", ITEMS, partitions, sent, tuple(KEYS))
            rates, cpu = {}, {}
            for way in random.sample(["ours", "share group"], 2):
                batches: Batches = ours(topic, TAKEN, True) if way == "ours" else share(topic, TAKEN)
                done, _, cost = run(batches, ITEMS * 9 // 10)
                rates[way], cpu[way] = done / cost.seconds, cost.ours / done
            row[f"{shape}: ours ÷ share group (≥ 1.0)"] = rates["ours"] / rates["share group"]
            row[f"{shape}: ours, k/s"] = rates["ours"] / 1e3
            row[f"{shape}: ours, CPU an item, µs"] = cpu["ours"] * 1e6
            row[f"{shape}: share group, CPU an item, µs"] = cpu["share group"] * 1e6
    return row
