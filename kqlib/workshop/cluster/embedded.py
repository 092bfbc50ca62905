"""A real Kafka on this machine: KRaft nodes as child processes, ready in seconds, gone with this process however it ends.

In:  how many brokers. Out: `Cluster`, a `Kafka` whose brokers can be stopped, killed, paused and started.
A node's files and settings are in `node.py`; its process in `workshop/children.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kqlib.errors import BrokerDied, NotAllowed, Unreachable
from kqlib.kafka import forks, settings, tools
from kqlib.kafka.cluster import Kafka
from kqlib.runtime import program
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop.children import Children, Command
from kqlib.workshop.cluster import node as nodes
from kqlib.workshop.cluster.node import Node, Wired
from kqlib.workshop.cluster.secure import Security, allow_app
from kqlib.workshop.wire.control import Proxy, Wire
from kqlib.workshop.wire.traffic import CLIENTS

MOST = 9
START = 60.0 * PATIENCE  # seconds until a start is given up; it takes two
FETCH = 1.5  # seconds until a follower's fetch that waits at the leader has surely run out


class Broker:
    """One broker of an embedded cluster: something to stop, kill, pause, resume and start."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.id, self.node = node.id, node
        self._cluster, self._child = cluster, None  # type: tuple[Cluster, Command | None]
        self._since = 0  # where in its log its present run begins

    @property
    def alive(self) -> bool:
        """Does its process run? A paused one does."""
        return self._child is not None and self._child.alive

    @property
    def state(self) -> str:
        """running, paused or stopped."""
        return "stopped" if not self._child or not self.alive else "paused" if self._child.paused else "running"

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.node.log

    @property
    def pid(self) -> int | None:
        """Its process, while it has one."""
        return self._child.pid if self._child and self.alive else None

    def start(self) -> Broker:
        """Start it and wait until the cluster counts it in (at once when too few controllers are up to count anybody)."""
        if self.state == "paused":
            self.resume()
        self._launch()
        if self._cluster.has_quorum():
            self._cluster.wait_for([self.id])
        return self

    def stop(self, timeout: float = 15) -> Broker:
        """End it in good order: its partitions move to other brokers first."""
        self._cluster._check_here()
        if self._child:
            self._child.stop(timeout)  # too few controllers may be left to hand over to
        return self

    def kill(self) -> Broker:
        """End it as a power cut does."""
        self._cluster._check_here()
        if self._child:
            self._child.kill()
        return self

    def pause(self) -> Broker:
        """Freeze it: its connections stay open, and nothing answers (SIGSTOP)."""
        self._running().pause()
        return self

    def resume(self) -> Broker:
        """Let a paused one go on."""
        self._running().resume()
        return self

    def _launch(self) -> None:
        self._cluster._check_open()
        if not self.alive:
            self._since = self.log.stat().st_size if self.log.exists() else 0
            self._child = self._cluster._children.run(f"broker-{self.id}", nodes.run_command(self.node), self.log)

    def _running(self) -> Command:
        self._cluster._check_open()
        if not self._child or not self._child.alive:
            raise NotAllowed(f"broker {self.id} does not run; start() it first")
        return self._child

    def __repr__(self) -> str:
        return f"Broker({self.id}, {self.state})"


class Cluster(Kafka):
    """An embedded Kafka: `with kq.Cluster(brokers=3) as cluster: …`. Loopback only, gone with this process.

    secure: TLS, logins and access rules, users "deploy" and "app". auto_create: naming a topic creates it.
    config: any further broker setting, in Kafka's words.
    wire: True gives `cluster.wire`, through which clients are seen, delayed, cut and killed. A number makes so many `cluster.wires`.
    "all" puts the brokers among themselves on wires as well: `cluster.wire.brokers` and `cluster.wire.controllers`.
    """

    embedded = True

    def __init__(
        self,
        brokers: int = 1,
        *,
        secure: bool = False,
        auto_create: bool = False,
        config: dict[str, Any] | None = None,
        wire: bool | int | str = False,
    ) -> None:
        listeners = _wired_listeners(wire)
        if isinstance(brokers, bool) or not isinstance(brokers, int) or not 1 <= brokers <= MOST:
            raise NotAllowed(f"brokers must be a number from 1 to {MOST}, not {brokers!r}")
        super().__init__("")  # the address comes with the ports
        self._brokers: dict[int, Broker] = {}
        self.home = Path(tempfile.mkdtemp(prefix="kqlib-"))
        self._children = Children(self.home)
        self._finish = weakref.finalize(self, forks.only_here(self._children.close))
        more = {"auto.create.topics.enable": "true"} if auto_create else {}
        try:
            self._begin(brokers, secure, listeners, more | {key: str(value) for key, value in (config or {}).items()})
        except BaseException:
            self.close()
            raise

    def _begin(self, brokers: int, secure: bool, listeners: Sequence[str], extra: dict[str, str]) -> None:
        self._security = Security.make(self.home / "tls") if secure else None
        if self._security:
            extra = self._security.node_properties(listeners) | extra
        certificate = self._security.home / "broker.pem" if self._security else None
        proxy = Proxy(self._children, listeners, brokers, certificate) if listeners else None
        self.wires = [Wire(self, proxy, listener) for listener in listeners] if proxy else []
        for tries_left in (2, 1, 0):
            self._nodes = self._numbered(brokers, listeners, proxy.ports if proxy else {})
            if proxy:
                proxy.call(
                    "targets",
                    targets={(listener, n.id): n.wires[listener].port for n in self._nodes for listener in listeners},
                )
            super().__init__(",".join(f"{nodes.HOST}:{n.port}" for n in self._nodes))
            if self._security:
                self._own = self._security.client("deploy")
            self._brokers = {n.id: Broker(self, n) for n in self._nodes}
            try:
                self._start_all(extra)
                break
            except BrokerDied as died:
                if not tries_left or "Address already in use" not in died.facts["tail"]:
                    raise
                self._clear()  # another program took the port between the look and the bind: draw again
        if self._security:
            allow_app(self.admin)

    def _numbered(self, brokers: int, listeners: Sequence[str], proxies: Mapping[tuple[str, int], int]) -> list[Node]:
        """The nodes with ports of their own. The controllers' wire leads to the controllers' only listener."""
        ports = iter(nodes.free_ports((2 + len(listeners)) * brokers))
        made = []
        for number in range(1, brokers + 1):
            port, controller = next(ports), next(ports)
            wired = {}
            for listener in listeners:
                wired[listener] = Wired(
                    controller if listener == nodes.CONTROLLER else next(ports), proxies[listener, number]
                )
            made.append(Node(number, port, controller, self.home / f"broker-{number}", wired))
        return made

    def _start_all(self, extra: dict[str, str]) -> None:
        """Format the disks, start every node, wait until the cluster says that all are in."""
        for each in self._nodes:
            program.write_properties(each.settings, nodes.properties(each, self._nodes, extra))
        self._id = nodes.new_id()
        nodes.format_disks(self._nodes, extra, self._id)
        for broker in self._brokers.values():
            broker._launch()
        self.wait_for([n.id for n in self._nodes], START)

    def _clear(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        self.__dict__.pop("admin", None)
        for each in self._nodes:
            shutil.rmtree(each.home, ignore_errors=True)

    def broker(self, number: int) -> Broker:
        """One broker, by its id (1, 2, …)."""
        self._check_open()
        if number not in self._brokers:
            raise NotAllowed(f"this cluster has brokers {', '.join(map(str, self._brokers))}, not {number!r}")
        return self._brokers[number]

    @property
    def wire(self) -> Wire:
        """What crosses between clients and brokers, if they use `cluster.wire.bootstrap`."""
        self._check_open()
        if not self.wires:
            raise NotAllowed("this cluster has no wire; make it with wire=True")
        return self.wires[0]

    @contextlib.contextmanager
    def frozen(self, *numbers: int) -> Iterator[None]:
        """Brokers stand still in this block: `with cluster.frozen(2, 3): …`. They are connected, and answer nothing.

        A follower's fetch waits at the leader for half a second at most. One that waits when the follower is frozen would
        still be answered, with the next record. So this waits until it has run out.
        """
        brokers = [self.broker(number).pause() for number in numbers]
        time.sleep(FETCH)
        try:
            yield
        finally:
            for broker in brokers:
                broker.resume()

    def start_tool(self, tool: str, *args: str) -> Command:
        """Start one of Kafka's own tools that works until it is ended, such as connect-standalone. It ends with this cluster."""
        self._check_open()
        login = self.home / "tools.login"
        program.write_properties(login, settings.to_java(self._own))
        return self._children.run(
            tool, tools.command(tool, list(map(str, args)), self.bootstrap, self._own, login), self.home / f"{tool}.log"
        )

    def as_user(self, user: str) -> Kafka:
        """The same cluster seen by another user of a secure one: "deploy" or "app"."""
        self._check_open()
        if not self._security:
            raise NotAllowed("this cluster has no users; make it with secure=True")
        return Kafka(self.bootstrap, self._security.client(user))

    @property
    def running(self) -> list[int]:
        """The ids of the brokers whose process runs and is not paused."""
        return [number for number, broker in self._brokers.items() if broker.state == "running"]

    def has_quorum(self) -> bool:
        """Do more than half of the controllers run, so that the cluster can decide anything?"""
        return 2 * len(self.running) > len(self._brokers)

    def wait_for(self, ids: Sequence[int], seconds: float = START) -> None:
        """Return when the cluster itself counts these brokers in; a node that dies meanwhile is `BrokerDied` with its log's end."""

        def joined() -> bool:
            for number in ids:
                broker = self._brokers[number]
                if not broker.alive:
                    why = broker._child.why if broker._child else "it was not started"
                    raise BrokerDied(broker=number, why=why, tail=broker.node.tail(since=broker._since))
            return self._counted(ids) >= set(ids)

        def last() -> str:
            missing = sorted(set(ids) - self._counted(ids))
            return f"broker {missing} is missing\n{self._brokers[missing[0]].node.tail(3)}" if missing else ""

        wait_for(joined, seconds, f"broker {sorted(ids)} to join", last)

    def _counted(self, ids: Sequence[int]) -> set[int]:
        if not all(nodes.open_port(self._brokers[number].node.port) for number in ids):
            return set()
        with contextlib.suppress(Unreachable):
            found = self.describe(2)
            if found.cluster_id == self._id:  # else another cluster was quicker at this port, and ours ends
                return set(found.brokers)
        return set()

    def close(self) -> None:
        """End every broker and remove the directory. Calling it twice does no harm."""
        if not self._finish.alive or self._process != os.getpid():
            return
        self._close_clients()
        self._finish()

    def __repr__(self) -> str:
        if self._closed:
            return "Cluster(closed)"
        count = len(self._brokers)
        return f"Cluster({count} broker{'s' * (count > 1)}{', secure' * bool(self._security)})"


def _wired_listeners(wire: bool | int | str) -> list[str]:
    """The listeners that go through the proxy."""
    if wire == "all":
        return [CLIENTS, nodes.PEERS, nodes.CONTROLLER]
    if isinstance(wire, int) and 0 <= wire <= MOST:
        return [CLIENTS, *(f"{CLIENTS}{number}" for number in range(2, wire + 1))][:wire]
    raise NotAllowed(f'wire is True, a number of wires from 1 to {MOST}, or "all", not {wire!r}')
