"""A worker of the fault runs, a process of its own: claims, holds, acks or buries, and writes down each before and after.

In:  one JSON object of settings (`world.World.worker`). Out: its history. SIGTERM: what is in hand is finished, then it leaves.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from kqlib.errors import Closed, KqError, LeaseLost
from kqlib.kafka.cluster import Kafka
from kqlib.queue import Site
from kqlib.queue.broker_settings import set_session_timeout
from kqlib.workshop import ladder
from tests.faults.mutants import changed
from tests.faults.virtual_queues import VirtualQueues
from tests.faults.writing import Writing, until_sigterm


class Worker:
    """Claims batches until asked to stop."""

    def __init__(self, written: Writing, batch: int, hold: float, bury: int) -> None:
        # hold: seconds from claim to ack. bury: numbers that it divides are buried; 0: none
        self.written, self.batch, self.hold, self.bury = written, batch, hold, bury

    def work(self, queue: Any, stop: threading.Event, seconds: float = float("inf")) -> None:
        """For so long."""
        end = time.monotonic() + seconds
        while not stop.is_set() and time.monotonic() < end:
            try:
                items = queue.claim_many(self.batch, wait=0.5)
            except Closed:
                return
            except KqError as error:
                say("claim", error)
                stop.wait(0.1)
                continue
            if items:
                self.written.begins("claim", *facts(items))
                time.sleep(self.hold)
                self.finish(queue, items)

    def finish(self, queue: Any, items: Sequence[Any]) -> None:
        """Bury the bad ones, ack the others."""
        poison = [item for item in items if self.bury and int(item.data) % self.bury == 0]
        for item in poison:
            self.call("bury", [item], lambda item=item: queue.bury(item, "bad"))
        if good := [item for item in items if item not in poison]:
            self.call("ack", good, lambda: queue.ack_many(good))

    def call(self, verb: str, items: Sequence[Any], do: Any) -> None:
        """One call and how each item fared."""
        call, bad = self.written.begins(verb, *facts(items)), dict[int, str]()
        try:
            do()
        except LeaseLost as error:
            refused = error.facts.get("items", items if verb == "bury" else ())
            bad = {place: "refused" for place, item in enumerate(items) if item in refused}
            if not bad:  # lost while the ack was on its way
                bad = dict.fromkeys(range(len(items)), "unknown")
        except KqError as error:
            say(verb, error)
            bad = dict.fromkeys(range(len(items)), "unknown")
        self.written.ended(call, bad)


class Broken(ladder.AutoCommit):
    """The ladder's first rung with this worker's verbs: what was polled counts as done."""

    def claim_many(self, n: int, wait: float) -> list[Any]:
        """Up to n records."""
        first = self.claim(wait)
        return [first, *(item for _ in range(n - 1) if (item := self.claim(0)))] if first else []

    def ack_many(self, items: Sequence[Any]) -> None:
        """Nothing to do."""


def facts(items: Sequence[Any]) -> tuple[list[int], list[int], list[str]]:
    """Their values, attempts and ids."""
    ids = [f"{item.partition}/{item.offset}" for item in items]
    return [int(item.data) for item in items], [item.attempt or 1 for item in items], ids


def say(verb: str, error: Exception) -> None:
    """To this process's own log."""
    print(f"{verb}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def stops_in(where: str) -> None:
    """This process stops itself at the next such call of a transaction, once: as a laptop's lid would."""
    from confluent_kafka import Producer

    from kqlib.queue import transactions

    class Sleepy(Producer):
        slept = False

        def __getattribute__(self, name: str) -> Any:
            if name == where and not Sleepy.slept:
                Sleepy.slept = True
                os.kill(os.getpid(), signal.SIGSTOP)
            return super().__getattribute__(name)

    transactions.Producer = Sleepy  # type: ignore[misc]
    transactions.TIMEOUT = 4.0  # the broker ends its transaction sooner


def main(
    bootstrap: str,
    site: str,
    topic: str,
    history: str,
    *,
    session: float = 3,
    batch: int = 100,
    hold: float = 0.02,
    bury: int = 0,
    life: float = 0,
    stop_in: str = "",
    broken: bool = False,
    clock: float = 0,
    mutant: str = "",
    nodes: Sequence[str] = (),
    **queue: Any,
) -> None:
    """Work until asked to stop; with `life`, leave and come back every so many seconds. nodes: of virtual queues."""
    stop, cluster = until_sigterm(), Kafka(bootstrap)
    worker, chance = Worker(Writing(history), batch, hold, bury), random.Random(history)
    changed(clock, mutant)
    if stop_in:
        stops_in(stop_in)
    if broken:
        set_session_timeout(cluster, f"auto-{topic}", session)
        worker.work(Broken(cluster, topic), stop)
        return
    if nodes:
        with VirtualQueues(nodes) as queues:
            worker.work(queues, stop)
        return
    while not stop.is_set():
        with Site(cluster, site, session=session) as opened:
            seconds = chance.uniform(0.5, 1.5) * life if life else float("inf")
            worker.work(opened.queue(topic, **queue), stop, seconds)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
