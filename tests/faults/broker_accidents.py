"""Accidents of brokers: killed, stopped, restarted, without space, without power.

In:  a `World` under load. Out: nothing; when an accident is over, all brokers are back.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kqlib.errors import KqError, NotInTime
from kqlib.runtime import program
from kqlib.workshop.cluster import Cluster, node
from kqlib.workshop.cluster.embedded import Broker
from tests.faults.history import Did
from tests.faults.world import World
from tests.patience import WAIT

LEADER, COORDINATOR, TRANSACTIONS, CONTROLLER = "", "__consumer_offsets", "__transaction_state", "controller"  # roles
UNSYNCED = 64 * 1024  # bytes: at most so much of the end of a log is not on the disk yet


def killed(world: World, what: Sequence[str], times: int = 1) -> None:
    """In turn these brokers die by SIGKILL; each comes back before the next one goes."""
    for role in [*what] * times:
        ready(world)
        victim = world.cluster.broker(broker_of(world, role))
        victim.kill()
        another(world, role, victim)
        again(victim)


def one_killed(world: World) -> None:
    """A broker dies by SIGKILL: a leader, a coordinator or the controller."""
    killed(world, [world.chance.choice((LEADER, COORDINATOR, TRANSACTIONS, CONTROLLER))])


def broker_of(world: World, role: str) -> int:
    """The broker that has this role now: the controller's, or the leader's of a topic's first partition."""
    found = list[int | None]()

    def known() -> bool:
        with suppress(KqError):
            found[:] = [
                world.cluster.controller if role == CONTROLLER else world.cluster.leader(role or world.topic, 0)
            ]
        return found not in ([], [None])

    world.until(known, 60, f"a broker to be {role or 'the leader'}")
    return found[0] or 0


def another(world: World, role: str, victim: Broker) -> None:
    """Return when another broker has this role, and all workers have had items since then."""
    world.until(lambda: broker_of(world, role) != victim.id, 60, f"another {role or 'leader'}")
    world.busy()


def again(victim: Broker) -> None:
    """Start it. On a busy machine that takes longer than Cluster waits: the next turn waits for all replicas."""
    with suppress(NotInTime):
        victim.start()


def ready(world: World) -> None:
    """Return when all replicas are in sync, and all workers have had items since then."""
    world.until(lambda: healthy(world), 120, "all replicas to be in sync")
    world.busy()


def healthy(world: World) -> bool:
    """Has every partition all its replicas?"""
    try:
        topics = world.cluster.describe(5).topics.values()
    except KqError:
        return False
    return all(len(part.isrs) == len(part.replicas) for topic in topics for part in topic.partitions.values())


def paused(world: World) -> None:
    """The broker answers nobody for 15 seconds."""
    world.cluster.broker(1).pause()
    time.sleep(15)
    world.cluster.broker(1).resume()


def restarted(world: World) -> None:
    """The broker is stopped and started."""
    world.cluster.broker(1).stop()
    world.cluster.broker(1).start()


def only_one_killed(world: World) -> None:
    """The only broker dies by SIGKILL and is started at once."""
    again(world.cluster.broker(1).kill())
    world.busy()


def leader_frozen(world: World) -> None:
    """The leader of a partition is stopped (SIGSTOP), connected and silent, until others lead and work goes on; then it goes on."""
    ready(world)
    leader = world.cluster.broker(broker_of(world, LEADER))
    leader.pause()
    another(world, LEADER, leader)
    leader.resume()
    world.busy()


def two_down(world: World) -> None:
    """Two of three go, in good order, so that one replica is left in sync: nothing can be stored, and a put raises that."""
    world.until(lambda: healthy(world), 60, "all replicas to be in sync")
    for number in (1, 2):
        world.cluster.broker(number).stop()
    refused_put(world)
    for number in (1, 2):
        world.cluster.broker(number).start()


def refused_put(world: World) -> None:
    """A put while too few replicas are there: an error, in time, that says so."""
    begun = time.monotonic()
    try:
        world.queue.put(b"1")
    except KqError as error:
        assert "NotEnoughReplicas: " in str(error) and time.monotonic() - begun < WAIT, error
        world.noted.append(Did("world", "put", (1,), begun))
    else:
        raise AssertionError("one replica took a put for three")


def rolling(world: World) -> None:
    """The three brokers are restarted one after another, the active controller last, each when all replicas are in sync."""
    left, last = list(world.cluster._brokers), False
    while left:
        ready(world)
        active = broker_of(world, CONTROLLER)
        number = controller_last(left, active)[0]
        assert not last, "the active controller was restarted before others"
        last = number == active
        left.remove(number)
        world.cluster.broker(number).stop()
        again(world.cluster.broker(number))


def controller_last(brokers: Sequence[int], active: int) -> list[int]:
    """The order of a rolling restart: else each restart may choose another controller."""
    return sorted(brokers, key=lambda number: number == active)


def replaced(world: World) -> None:
    """A broker with a new id joins, every replica of another one moves to it, and that one is stopped for good."""
    ready(world)
    joined(world.cluster, 4)
    cluster, old = world.cluster, broker_of(world, LEADER)
    topics, move = world.folder / "topics.json", world.folder / "move.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name} for name in cluster.describe().topics]}))
    stay = ",".join(str(number) for number in cluster._brokers if number != old)
    asked = ("--topics-to-move-json-file", str(topics), "--broker-list", stay, "--generate")
    move.write_text(cluster.kafka("reassign-partitions", *asked).strip().splitlines()[-1])
    how = ("reassign-partitions", "--reassignment-json-file", str(move))
    cluster.kafka(*how, "--execute")
    world.until(lambda: "still in progress" not in cluster.kafka(*how, "--verify"), 300, "the replicas to be moved")
    found = [part.replicas for each in cluster.describe().topics.values() for part in each.partitions.values()]
    assert all(old not in replicas and 4 in replicas for replicas in found), found
    cluster.broker(old).stop()
    cluster.kafka("cluster", "unregister", "--bootstrap-server", cluster.bootstrap, "--id", str(old))
    ready(world)


def joined(cluster: Cluster, number: int) -> None:
    """A new broker, which is no controller."""
    port, other = node.free_ports(2)
    new = node.Node(number, port, other, cluster.home / f"broker-{number}")
    address = f"CLIENT://{node.HOST}:{port}"
    own = {"process.roles": "broker", "listeners": address, "advertised.listeners": address}
    program.write_properties(new.settings, node.properties(new, cluster._nodes, own))
    node.format_disks([new], {}, cluster.describe().cluster_id)
    cluster._brokers[number] = Broker(cluster, new)
    cluster.broker(number).start()


def power_lost(world: World, times: int = 3) -> None:
    """The leader of a partition dies, and the end of each of its logs, up to 64 KiB, was not on the disk yet. It starts at once."""
    for _ in range(times):
        ready(world)
        victim = world.cluster.broker(broker_of(world, LEADER))
        victim.kill()
        for log in newest_segments(victim.node.data):
            size = log.stat().st_size
            with log.open("r+b") as file:
                file.truncate(max(0, size - world.chance.randint(1, UNSYNCED)))
        again(victim)


def newest_segments(data: Path) -> list[Path]:
    """The file that each log is written to. Kafka syncs the log of its metadata itself, so that one is whole."""
    logs = [sorted(folder.glob("*.log")) for folder in data.iterdir() if folder.is_dir()]
    return [files[-1] for files in logs if files and not files[-1].parent.name.startswith("__cluster_metadata")]


def disk_full(world: World) -> None:
    """The leader of a partition can write no byte more, as on a full disk, and ends. Then there is space, and it starts."""
    ready(world)
    victim = world.cluster.broker(broker_of(world, LEADER))
    assert victim.pid
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    world.until(lambda: not victim.alive, 60, "the broker to give up")
    another(world, LEADER, victim)
    again(victim)
