"""Accidents of processes and topics: what is done to a world, each a function whose first line says what happens.

In:  a `World` under load. Out: nothing; when an accident is over, work goes on. Brokers and the wire have modules of their own.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.faults.history import Did
from tests.faults.world import SESSION, World
from tests.patience import WAIT

# --- processes ---


def nothing(world: World) -> None:
    """Nothing happens."""


def sigterm(world: World, times: int = 4) -> None:
    """Workers get SIGTERM, one after another, and others come."""
    for _ in range(times):
        world.busy()
        world.leave(world.victim())
        world.worker()


def sigkill(world: World, times: int = 4) -> None:
    """Workers are killed, one after another, and others come."""
    for _ in range(times):
        worker = world.victim()
        world.busy(worker)
        world.holding(worker)
        world.kill(worker)
        world.worker()


def killed_late(world: World, times: int = 2) -> None:
    """Workers are killed when they have had something for a while."""
    for _ in range(times):
        worker = world.victim()
        world.busy(worker)
        world.holding(worker)
        time.sleep(0.4)
        world.kill(worker)
        world.worker()


def sigstop(world: World, times: int = 2) -> None:
    """A worker is stopped until its session is over and others have what it had; then it goes on as if nothing had been."""
    for _ in range(times):
        worker = world.victim()
        world.holding(worker)
        worker.signal(signal.SIGSTOP)
        world.gone(worker)
        time.sleep(SESSION + 2)
        worker.signal(signal.SIGCONT)
        world.spared(worker)


def stopped_in_transaction(world: World) -> None:
    """A worker stops itself where a transaction is written and not yet committed, and goes on when others have its items."""
    worker = world.worker(stop_in="commit_transaction")
    world.until(lambda: worker.stopped, 60, "the worker to stop itself")
    world.gone(worker)
    time.sleep(SESSION + 4 + 2)
    worker.signal(signal.SIGCONT)


def storm(world: World) -> None:
    """Twelve members come and go every two seconds."""
    time.sleep(20)


def producers_killed(world: World, times: int = 5) -> None:
    """Producers are killed in the middle of a batch, and others come."""
    for _ in range(times):
        victim = world.producers[0]
        world.busy(victim)
        world.kill(victim)
        world.another(victim)


def clocks_off(world: World, seconds: float = 3600) -> None:
    """A producer and a worker begin whose clocks are ahead, then two whose clocks are behind."""
    for off in (seconds, -seconds):
        world.busy(world.another(world.producers[0], clock=off), world.worker(clock=off))


# --- topics ---


def grown(world: World) -> None:
    """Partitions are added."""
    world.plan(2 * world.partitions)
    time.sleep(12)  # producers hear of it


def recreated(world: World) -> None:
    """The topic is deleted and made again, then grows."""
    world.cluster.admin.delete_topics([world.topic])[world.topic].result(WAIT)
    world.plan(world.partitions)
    now = time.monotonic()
    world.noted.append(Did("world", "wiped", (), now, now))
    time.sleep(3)
    grown(world)


# --- several ---


def together(world: World, accidents: Sequence[Callable[[World], None]], times: int = 3) -> None:
    """Two or three accidents at once, drawn by the seed: of workers, producers, brokers and connections."""
    for _ in range(times):
        world.busy()
        chosen = world.chance.sample(accidents, world.chance.choice((2, 3)))
        with ThreadPoolExecutor(len(chosen)) as threads:
            for done in [threads.submit(accident, world) for accident in chosen]:
                done.result()
