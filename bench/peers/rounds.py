"""Several clients that put, claim and ack so many items at a time, each in its own queue, on something that is no HTTP server.

In:  put, claim, ack of one client; CLIENTS ROUNDS N on the command line. Out: items a second, printed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Client = tuple[Callable[[list[bytes]], object], Callable[[int], list[Any]], Callable[[list[Any]], object]]


def main(client: Callable[[str], Client], data: bytes = b"x" * 100) -> None:
    """client: the three verbs of a new client with a queue of this name."""
    clients, rounds, n = map(int, sys.argv[2:5])
    made, begin, done = [client(f"q{at}") for at in range(clients)], threading.Barrier(clients + 1), list[int]()

    def work(one: Client) -> None:
        put, claim, ack = one
        begin.wait()
        for _ in range(rounds):
            put([data] * n)
            taken = claim(n)
            ack(taken)
            done.append(len(taken))

    threads = [threading.Thread(target=work, args=(one,)) for one in made]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    assert sum(done) == clients * rounds * n, "not all came"
    print(sum(done) / (time.perf_counter() - start))
