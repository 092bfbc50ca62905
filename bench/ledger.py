"""How fast the ledger is: a claim and an ack an item, in batches and scattered, and what writing and reading its text takes.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from kqlib.queue.ledger import Ledger

ITEMS, BATCH, OPEN = 200_000, 500, 3_000


def rate(work: Callable[[], object], items: int) -> float:
    """Items a second of CPU: it is one thread's, and neighbours do not count."""
    start = time.thread_time()
    work()
    return items / (time.thread_time() - start)


def batches() -> None:
    """Claim 500, ack 500, again and again."""
    ledger = Ledger()
    for start in range(0, ITEMS, BATCH):
        offsets = list(range(start, start + BATCH))
        ledger.claim(offsets)
        ledger.ack(offsets)


def scattered() -> None:
    """3,000 are out at any time, and they are done in no order; what is done is claimed anew in batches."""
    ledger, dice = Ledger(), random.Random(7)
    out = list(range(OPEN))
    dice.shuffle(out)
    ledger.claim(range(OPEN))
    done = 0
    while done < ITEMS:
        for _ in range(BATCH):
            ledger.ack((out.pop(),))
        done += BATCH
        top = ledger.top
        taken = len(ledger.claim(range(top, top + OPEN - len(out))))
        out += range(top, top + taken)
        swap = dice.randrange(len(out))
        out[swap:], out[:swap] = out[:swap], out[swap:]


def worst() -> Ledger:
    """Every second of a full ledger is done: the longest text."""
    ledger = Ledger(topic="u8F_x-3kTUqPZr2bGv0aWg")
    ledger.ack(range(1, len(ledger.claim(range(10_000))), 2))
    return ledger


def measured() -> dict[str, float]:
    """One round."""
    ledger = worst()
    text = ledger.text()
    return {
        "claim + ack in batches of 500, M/s (≥ 1.0)": rate(batches, ITEMS) / 1e6,
        "claim in batches + ack scattered, M/s (≥ 0.5)": rate(scattered, ITEMS) / 1e6,
        "texts written, the longest, k/s": rate(lambda: [ledger.text() for _ in range(100)], 100) / 1e3,
        "texts read, the longest, k/s": rate(lambda: [Ledger.read(text, ledger.floor) for _ in range(100)], 100) / 1e3,
        "characters of the longest": len(text),
    }
