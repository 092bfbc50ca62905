"""What every peer's program shares: a job that notes when it ended, and the two commands `put` and `work`. Python's own modules only.

In:  `put NUMBER MS RATE` or `work`; PEER_SERVER and PEER_RESULTS in the environment. Out: a line for each job that was done:
its number, the moment at which it should have been put, the moment at which it ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

SERVER = os.environ["PEER_SERVER"]
NAME = os.environ["PEER_NAME"]
RESULTS = os.open(os.environ["PEER_RESULTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
THREADS = int(os.environ.get("PEER_THREADS", "8"))


def job(number: int, ms: float, moment: float) -> None:
    """Take so many milliseconds."""
    if ms:
        time.sleep(ms / 1e3)
    os.write(RESULTS, b"%d %.6f %.6f\n" % (number, moment, time.time()))


def main(put: Callable[[int, float, float], object], work: Callable[[], object]) -> None:
    """Do what the command line says. put: one job, durable as far as the peer can."""
    command, *numbers = sys.argv[1:]
    if command == "work":
        work()
        return
    many, ms, rate = int(numbers[0]), float(numbers[1]), float(numbers[2])
    begun = time.time()
    for number in range(many):
        moment = begun + number / rate if rate else begun
        time.sleep(max(0.0, moment - time.time()))
        put(number, ms, moment)
