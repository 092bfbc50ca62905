"""What `keys.spread` costs: a million keys, in seconds and, by the first row, as a ratio to hashing them bare.

In: nothing. Out: `measured()`: one round, {what: seconds}. `make bench` prints it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import murmur2

from kqlib import keys

RECORDS, PARTITIONS = 1_000_000, 12


def timed(work: Callable[[], object]) -> float:
    """Seconds of CPU that it took."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def measured() -> dict[str, float]:
    """One round: a million different keys, a million records of a thousand keys, and the same keys as text."""
    different = [b"key-%d" % number for number in range(RECORDS)]
    same = [b"key-%d" % (number % 1000) for number in range(RECORDS)]
    words = [key.decode() for key in different]
    return {
        "a million keys hashed bare, s": timed(lambda: [murmur2(key, PARTITIONS) for key in different]),
        "keys.spread, a million keys, s": timed(lambda: keys.spread(different, PARTITIONS)),
        "keys.spread, a thousand keys, s": timed(lambda: keys.spread(same, PARTITIONS)),
        "keys.spread, a million as text, s": timed(lambda: keys.spread(words, PARTITIONS)),
        "keys.moved, a million keys, s": timed(lambda: keys.moved(different, PARTITIONS, 2 * PARTITIONS)),
    }
