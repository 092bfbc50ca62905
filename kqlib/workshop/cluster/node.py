"""One Kafka node: its ports, its settings file, the command that starts it, and the format of its disk.

In:  a directory, the ids and ports of all nodes. Out: values and files; the processes belong to `cluster.py`.
Everything listens on 127.0.0.1 and nowhere else.
"""

from __future__ import annotations

import base64
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kqlib.errors import BrokerDied, NotAllowed
from kqlib.runtime import archive, program

HOST = "127.0.0.1"
PEERS = "PEERS"  # the listener for brokers among themselves, if they are on the wire
CONTROLLER = "CONTROLLER"
# Ports that no client's own is drawn from: a restarted broker finds its port free.
BELOW_EPHEMERAL = range(20_000, 32_000)
COMPLAINT = re.compile(r"\S+ (ERROR|FATAL) |Exception in thread|Error ")  # a log's line that says what went wrong
CHECKPOINT = "bootstrap.checkpoint"
LOG4J = Path(__file__).with_name("log4j2.properties")

# Settings for a lab, not for production: short timeouts, few internal partitions, small buffers.
LAB = {
    "auto.create.topics.enable": "false",  # a typo must not become a topic
    "broker.session.timeout.ms": "4000",  # a killed leader is replaced in seconds, not in nine
    "broker.heartbeat.interval.ms": "500",
    "controlled.shutdown.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.max.session.timeout.ms": "1800000",  # as in Kafka's older groups: a slow machine may need more than a minute
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",  # else decided once a second: who rejoins in the same one waits
    "group.consumer.heartbeat.interval.ms": "500",  # partitions move by heartbeats: with five seconds each change takes that long
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": str(8 * 2**20),  # the default takes 128 MB of heap
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "metadata.max.idle.interval.ms": "10000",  # the default writes an empty record twice a second: a third of an idle broker's work
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.retention.minutes": str(2**31 - 1),  # by default commits are forgotten after seven days
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "1",
}


@dataclass(frozen=True)
class Wired:
    """A listener on the wire: where the broker listens, and where the proxy does, which is what the broker advertises."""

    port: int
    proxy: int


@dataclass(frozen=True)
class Node:
    """A node's place in its cluster: id, ports, directory."""

    id: int
    port: int
    controller_port: int
    home: Path
    wires: Mapping[str, Wired] = field(default_factory=dict)  # listeners whose address is the proxy's, by name

    @property
    def controller_address(self) -> int:
        """The port at which other nodes find its controller."""
        return self.wires[CONTROLLER].proxy if CONTROLLER in self.wires else self.controller_port

    @property
    def log(self) -> Path:
        """The output of this node."""
        return self.home / "broker.log"

    @property
    def data(self) -> Path:
        """Kafka's own files: a directory a partition."""
        return self.home / "data"

    @property
    def settings(self) -> Path:
        """server.properties, as Kafka reads it."""
        return self.home / "server.properties"

    def tail(self, lines: int = 15, since: int = 0) -> str:
        """The end of its log: its last error and what follows, else the last lines. No stack frames.

        since: where in the file its present run begins.
        """
        text = self.log.read_bytes()[since:].decode(errors="replace") if self.log.exists() else ""
        found = [line for line in text.splitlines() if not line.startswith("\t")]
        begin = next((i for i in reversed(range(len(found))) if COMPLAINT.match(found[i])), max(0, len(found) - lines))
        return "\n".join(found[begin : begin + lines]) or "(no output)"


def new_id() -> str:
    """A random id in Kafka's form; never one that begins with '-', which Kafka's tools take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, drawn at random so that two clusters rarely meet."""
    found: list[int] = []
    for port in random.SystemRandom().sample(BELOW_EPHEMERAL, 2000):
        if len(found) == count:
            return found
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    raise NotAllowed(f"no port from {BELOW_EPHEMERAL.start} to {BELOW_EPHEMERAL.stop} is free on {HOST}")


def open_port(port: int) -> bool:
    """Does a process listen there?"""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def properties(node: Node, nodes: Sequence[Node], extra: Mapping[str, str]) -> dict[str, str]:
    """server.properties of one node; `extra` overrules."""
    copies = str(min(3, len(nodes)))
    in_sync = "2" if len(nodes) >= 3 else "1"
    own = {"CLIENT": node.port, CONTROLLER: node.controller_port}
    wires = {name: wire for name, wire in node.wires.items() if name != CONTROLLER}
    listeners = own | {name: wire.port for name, wire in wires.items()}
    advertised = own | {name: wire.proxy for name, wire in node.wires.items()}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_address}" for n in nodes),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": PEERS if PEERS in wires else "CLIENT",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in advertised.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "log.dirs": str(node.data),
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        **LAB,
        **extra,
    }


def run_command(node: Node) -> list[str]:
    """The command of a broker."""
    return program.jvm("kafka.Kafka", str(node.settings), options=["-Xms128m"], logging=LOG4J)


def format_disks(nodes: Sequence[Node], extra: Mapping[str, str], cluster_id: str) -> None:
    """Give every node an empty formatted disk. Kafka's tool writes the same on all of them, except three ids."""
    written = _checkpoint()
    for node in nodes:
        for disk in map(Path, extra.get("log.dirs", str(node.data)).split(",")):
            ids = {"version": 1, "cluster.id": cluster_id, "node.id": node.id, "directory.id": new_id()}
            try:
                disk.mkdir(parents=True, exist_ok=True)
                with (disk / "meta.properties").open("x") as file:  # never over other data
                    file.writelines(f"{key}={value}\n" for key, value in ids.items())
                shutil.copyfile(written, disk / CHECKPOINT)
            except OSError as error:
                raise BrokerDied(broker=node.id, why=f"its disk {disk} cannot be formatted", tail=str(error)) from None


def _checkpoint() -> Path:
    """The features that a new cluster has, as Kafka's tool writes them: its first run on this machine is kept."""
    kept = archive.home_of(program.classpath()) / CHECKPOINT
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as work:
            port, controller = free_ports(2)
            one = Node(1, port, controller, Path(work))
            program.write_properties(one.settings, properties(one, [one], {}))
            tool = program.jvm(
                "kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(one.settings), logging=LOG4J
            )
            with one.log.open("w") as log:
                ran = subprocess.run(tool, stdout=log, stderr=subprocess.STDOUT, check=False)
            if ran.returncode != 0:
                raise BrokerDied(broker=1, why=f"formatting a disk gave {ran.returncode}", tail=one.tail())
            os.replace(one.data / CHECKPOINT, kept)
    return kept
