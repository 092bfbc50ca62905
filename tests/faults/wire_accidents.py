"""Accidents of connections, by the wire: answers lost, ways cut, requests late.

In:  a `World` under load whose processes go through a wire. Out: nothing; when an accident is over, everything passes again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.faults.broker_accidents import LEADER, again, another, broker_of, ready
from tests.faults.world import SESSION, World

CUT = 15.0  # seconds that brokers are cut off from each other


def answers_lost(world: World, kinds: Sequence[str], times: int = 2) -> None:
    """The broker has done what was asked, and the connection closes before its answer."""
    for kind in [*kinds] * times:
        world.busy()
        world.cluster.wire.disconnect(kind, when="after")
        world.until(lambda: world.cluster.wire.wait(1), 60, f"a request {kind}")


def cut_off(world: World, way: str) -> None:
    """A worker is cut off, one way, until its session is over and others have what it had."""
    worker = world.victim()
    world.holding(worker)
    world.gone(worker)
    world.cluster.wire.cut(way=way, pid=worker.popen.pid)
    time.sleep(SESSION + 2)
    world.cluster.wire.heal()
    world.spared(worker)
    world.busy()


def commit_comes_late(world: World) -> None:
    """A worker's commit, and all that it sends after it, are held until another worker has its partitions, and come then."""
    worker, wire = world.workers[0], world.cluster.wire
    world.holding(worker)  # so that the commit is of an ack: of a claim that is not committed nothing is handed out
    wire.hold("OffsetCommit")
    world.until(lambda: wire.wait(1), 60, "a request OffsetCommit")
    wire.cut(way="to", pid=worker.popen.pid)
    world.busy(world.worker())
    wire.heal()
    world.busy()


def slow(world: World, ms: float = 200, seconds: float = 15) -> None:
    """Each request waits before the broker gets it."""
    world.cluster.wire.delay(ms)
    time.sleep(seconds)
    world.cluster.wire.heal()


def leader_alone(world: World, way: str = "to") -> None:
    """A leader and the other brokers are cut off from each other, one way, for 15 seconds; clients reach it."""
    ready(world)
    world.cluster.wire.brokers.cut(broker=broker_of(world, LEADER), way=way)
    time.sleep(CUT)
    world.cluster.wire.brokers.heal()


def leader_alone_killed(world: World) -> None:
    """A leader hears nothing from its followers for three seconds, and dies by SIGKILL before they are out of sync. It comes back."""
    ready(world)
    victim = world.cluster.broker(broker_of(world, LEADER))
    world.cluster.wire.brokers.cut(broker=victim.id, way="to")
    time.sleep(3)
    victim.kill()
    world.cluster.wire.brokers.heal()
    another(world, LEADER, victim)
    again(victim)


def without_controller(world: World, way: str = "from") -> None:
    """A leader and the controllers are cut off from each other, one way, for 15 seconds; clients reach it."""
    ready(world)
    leader = world.cluster.broker(broker_of(world, LEADER))
    world.cluster.wire.controllers.cut(way=way, pid=leader.pid)
    time.sleep(CUT)
    world.cluster.wire.controllers.heal()


def first_answers_lost(world: World, times: int = 2) -> None:
    """A producer or a worker begins, and the answer is lost that gives its producer an id."""
    for start in [lambda: world.another(world.producers[0]), world.worker] * times:
        world.busy()
        world.cluster.wire.disconnect("InitProducerId", when="after")
        process = start()
        world.until(lambda: world.cluster.wire.wait(1), 60, "a request InitProducerId")
        world.busy(process)
