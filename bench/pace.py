"""How long one item takes: put, claim, ack, one after the other, a hundred items a second.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.
"""

from __future__ import annotations

import time
from statistics import median

import kqlib as kq
from bench.broker import DATA, KEYS, broker, filled, fresh, spent

ITEMS, PACE, WARM = 500, 100, 15


def measured() -> dict[str, float]:
    """One round."""
    times = dict[str, list[float]](all=[], put=[], claim=[], ack=[])
    with kq.Site(broker(), fresh("pace")) as site:
        queue = site.queue(filled(fresh("bench-pace"), 0))

        def work() -> None:
            begun = time.perf_counter()
            for at in range(WARM + ITEMS):
                time.sleep(max(0.0, begun + at / PACE - time.perf_counter()))  # here time is the point
                start = time.perf_counter()
                queue.put(DATA, KEYS[at % len(KEYS)])
                stored = time.perf_counter()
                while (item := queue.claim(wait=1.0)) is None:
                    pass
                claimed = time.perf_counter()
                queue.ack(item)
                done = time.perf_counter()
                took = done - start, stored - start, claimed - stored, done - claimed
                for each, seconds in zip(times.values(), took, strict=True):
                    each.append(seconds * 1e3)

        cost = spent(work)
    counted = {step: sorted(each[WARM:]) for step, each in times.items()}
    whole = counted.pop("all")
    return {
        "put, claim and ack one, ms p50 (≤ 3)": median(whole),
        "put, claim and ack one, ms p99": whole[int(ITEMS * 0.99)],
        **{f"{step} alone, ms p50": median(each) for step, each in counted.items()},
        "CPU an item, here, µs": cost.ours / (WARM + ITEMS) * 1e6,
        "CPU an item, broker, µs": cost.theirs / (WARM + ITEMS) * 1e6,
    }
