"""`cluster.wire`: what crosses between clients and brokers, and what shall happen to it.

In:  calls. Out: commands for the proxy, a process that ends with its cluster; `Crossing`s.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal as signals
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kqlib.errors import Closed, NotAllowed, NotInTime
from kqlib.kafka import Kafka
from kqlib.runtime import jars
from kqlib.runtime.patience import PATIENCE
from kqlib.text import near
from kqlib.workshop.children import ROOT, Children, Command
from kqlib.workshop.wire.crossing import Crossing, crossings
from kqlib.workshop.wire.messages import Messages

START = 30.0 * PATIENCE  # seconds until the proxy listens; it takes a fifth of one
ANSWER = 10.0 * PATIENCE
WAYS = {"to": ("to",), "from": ("from",), "both": ("to", "from")}
WHEN, WHAT, SIGNALS = ("before", "after"), ("request", "answer"), ("KILL", "STOP")
KILLED = {"KILL": "killed", "STOP": "stopped"}


class Proxy:
    """The proxy's process as its parent sees it."""

    def __init__(self, children: Children, listeners: Sequence[str], brokers: int, certificate: Path | None) -> None:
        jar = next(path for path in jars.fetch("broker") if path.name.startswith("kafka-clients-"))
        self.messages, self._address, self._log = Messages(jar), children.home / "wire", children.home / "wire.log"
        module = [sys.executable, "-P", "-m", "kqlib.workshop.wire.proxy"]
        words = [",".join(listeners), str(brokers), str(certificate or "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
        self._child: Command = children.run("wire", [*module, str(self._address), str(jar), *words], self._log, env)
        if not self._child.makes(self._address, START):
            why = self._log.read_text(errors="replace").strip() or self._child.why
            raise NotAllowed(f"the wire did not start: {why}")
        self.ports: dict[tuple[str, int], int] = self.call("ports")

    def call(self, name: str, within: float = ANSWER, /, **how: Any) -> Any:
        """Give the proxy a command, and return its answer."""
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(within)
                line.connect(str(self._address))
                line.sendall(pickle.dumps((name, how)))
                line.shutdown(socket.SHUT_WR)
                with line.makefile("rb") as answer:
                    well, value = pickle.load(answer)
        except TimeoutError:
            raise NotInTime(seconds=within, why="the wire to answer", last="nothing") from None
        except (OSError, EOFError, pickle.UnpicklingError):
            raise Closed(thing="wire") from None
        if not well:
            raise NotAllowed(f"the wire could not do that: {value}")
        return value


class Wire:
    """The wire of one listener: clients that go through `bootstrap` can be seen, delayed, cut and killed."""

    def __init__(self, cluster: Kafka, proxy: Proxy, listener: str) -> None:
        self._cluster, self._proxy, self.listener = cluster, proxy, listener
        self._topics: dict[bytes, str] = {}

    @property
    def brokers(self) -> Wire:
        """The wire of the brokers among themselves, with `Cluster(wire="all")`."""
        return self._other("PEERS")

    @property
    def controllers(self) -> Wire:
        """The wire of the controllers and of the brokers that ask them, with `Cluster(wire="all")`."""
        return self._other("CONTROLLER")

    @property
    def messages(self) -> Messages:
        """Kafka's message definitions."""
        return self._proxy.messages

    @property
    def bootstrap(self) -> str:
        """The address for clients that go through the wire."""
        return ",".join(f"127.0.0.1:{port}" for (name, _), port in self._proxy.ports.items() if name == self.listener)

    @cached_property
    def cluster(self) -> Kafka:
        """The same cluster through the wire, for what takes a cluster: `kq.Site(cluster.wire.cluster, "site")`."""
        return Kafka(self.bootstrap, self._cluster._own)

    def client(self, **extra: Any) -> dict[str, Any]:
        """Settings for a confluent_kafka client that goes through the wire: `Producer(cluster.wire.client())`."""
        return self._cluster.client(**extra) | {"bootstrap.servers": self.bootstrap}

    # --- see ------------------------------------------------------------------------------------------------------------

    def seen(self, client: str | int | None = None, *, polls: bool = True) -> list[Crossing]:
        """What has crossed, in order. client: a client id or the number of a process. polls: with polls, heartbeats, questions."""
        notes = self._proxy.call("seen", listener=self.listener)
        asked = False

        def topic_name(number: bytes) -> str:
            """A topic's name by its id. The cluster is asked once, if there is a new one."""
            nonlocal asked
            if number not in self._topics and not asked:
                asked = True
                self._learn_topics()
            return self._topics.get(number, "a topic")

        found = crossings(notes, self.messages, topic_name)
        return [each for each in found if client in (None, each.client, each.pid) and (polls or not each.poll)]

    def state(self) -> tuple[dict[str, int], int]:
        """How many requests of each kind have crossed since the last `clear`, and how many rules have met their request."""
        kinds = self.messages.kinds
        found, met = self._proxy.call("state", listener=self.listener)
        return {kinds.get(kind, f"kind {kind}"): number for kind, number in sorted(found.items())}, met

    def clear(self) -> None:
        """Forget what has crossed, and count from 1 again."""
        self._proxy.call("clear", listener=self.listener)

    # --- cut and delay --------------------------------------------------------------------------------------------------

    def cut(
        self, broker: int | None = None, way: str = "both", *, client: str | None = None, pid: int | None = None
    ) -> None:
        """Let nothing pass until `heal`: to a broker, from it, or both ways. Connections stay open, as behind a broken cable.

        broker: None cuts all. client, pid: cut only these clients.
        """
        ways = WAYS[_one_of("way", way, WAYS)]
        self._connections(broker, client, pid, cut=ways)

    def delay(self, ms: float, *, broker: int | None = None, client: str | None = None, pid: int | None = None) -> None:
        """Let each request wait so many milliseconds before it goes on, until `heal`."""
        if isinstance(ms, bool) or not isinstance(ms, int | float) or not 0 < ms <= 600_000:
            raise NotAllowed(f"a delay is a number of milliseconds from 0 to 600,000, not {ms!r}")
        self._connections(broker, client, pid, delay=ms / 1000)

    def heal(self) -> None:
        """Lift every cut and delay and every rule whose request has not come, and pass on what was held."""
        self._proxy.call("heal", listener=self.listener)

    # --- accidents at one request ---------------------------------------------------------------------------------------

    def kill(
        self, pid: int, api: str, nth: int = 1, when: str = "before", signal: str = "KILL", *, client: str | None = None
    ) -> None:
        """Kill a process at its nth request of a kind: just before it reaches the broker, or after the broker has answered.

        signal: "KILL", or "STOP", which freezes it; request or answer then wait until it goes on.
        client: the process's client id, where the system does not tell whose a connection is (not Linux, or a container).
        """
        number = signals.Signals[f"SIG{_one_of('signal', signal, SIGNALS)}"]
        whose = {"client": client} if client else {"pid": pid}
        self._rule("kill", api, nth, when, target=pid, signal=int(number), words=f"{KILLED[signal]} {when}", **whose)

    def kill_group(
        self, api: str, nth: int = 1, when: str = "before", signal: str = "KILL", *, pid: int | None = None
    ) -> None:
        """The same for the process group of `set_group`, at the nth request of all clients from now on. pid: of this process."""
        number = signals.Signals[f"SIG{_one_of('signal', signal, SIGNALS)}"]
        self._rule("kill", api, nth, when, pid=pid, signal=int(number), words=f"{KILLED[signal]} {when}")

    def set_group(self, pid: int) -> None:
        """The process group that `kill_group` kills."""
        self._proxy.call("group", listener=self.listener, pid=pid)

    def drop(
        self, api: str, nth: int = 1, what: str = "answer", *, broker: int | None = None, client: str | None = None
    ) -> None:
        """Lose the nth request of a kind from now on, or its answer. The connection stays open."""
        when = "before" if _one_of("what", what, WHAT) == "request" else "after"
        self._rule("drop", api, nth, when, broker=broker, client=client, words=f"{what} lost")

    def error(
        self,
        api: str,
        error: str | int,
        nth: int = 1,
        when: str = "after",
        *,
        broker: int | None = None,
        client: str | None = None,
    ) -> None:
        """Answer the nth request of a kind from now on with an error: `wire.error("OffsetCommit", "REBALANCE_IN_PROGRESS")`.

        when: "after" the broker has done it, or "before": then the broker never gets the request.
        """
        names = {name: code for code, name in self.messages.errors.items() if code}
        code = error if isinstance(error, int) else names.get(error)
        if code not in names.values():
            raise NotAllowed(f"Kafka has no error {error!r}{near(str(error), names)}")
        self._rule("error", api, nth, when, code=code, broker=broker, client=client, words=f"error {when}")

    def hold(
        self, api: str, nth: int = 1, what: str = "request", *, broker: int | None = None, client: str | None = None
    ) -> None:
        """Hold the nth request of a kind from now on, or its answer, and what follows on its connection, until `release`."""
        when = "before" if _one_of("what", what, WHAT) == "request" else "after"
        self._rule("hold", api, nth, when, broker=broker, client=client, words=f"{what} held")

    def disconnect(
        self, api: str, nth: int = 1, when: str = "before", *, broker: int | None = None, client: str | None = None
    ) -> None:
        """Close the connection at the nth request of a kind from now on."""
        self._rule("close", api, nth, when, broker=broker, client=client, words=f"closed {when}")

    def release(self) -> None:
        """Pass on what is held."""
        self._proxy.call("release", listener=self.listener)

    def wait(self, seconds: float = 30) -> bool:
        """Wait until every request with a rule has come. False if that takes longer."""
        met: bool = self._proxy.call("wait", seconds + ANSWER, listener=self.listener, seconds=seconds)
        return met

    # --- inside ---------------------------------------------------------------------------------------------------------

    def number(self, api: str) -> int:
        """Kafka's number of a kind of request."""
        numbers = self.messages.numbers
        if api not in numbers:
            raise NotAllowed(f"Kafka has no request {api!r}{near(str(api), numbers)}")
        return numbers[api]

    def _rule(self, action: str, api: str, nth: int, when: str, *, broker: int | None = None, **how: Any) -> None:
        kind = self.number(api)
        if isinstance(nth, bool) or not isinstance(nth, int) or nth < 1:
            raise NotAllowed(f"nth is the number of a request, 1 for the next, not {nth!r}")
        how |= {"when": _one_of("when", when, WHEN), "broker": self._broker(broker)}
        late = self._proxy.call("rule", action=action, listener=self.listener, kind=kind, nth=nth, **how)
        if late:
            raise NotAllowed(f"process {how['pid']} has already sent {late} {api}; nth must be more than that")

    def _other(self, listener: str) -> Wire:
        if any(each == listener for each, _ in self._proxy.ports):
            return Wire(self._cluster, self._proxy, listener)
        raise NotAllowed('only clients are on this wire; make the cluster with wire="all"')

    def _connections(self, broker: int | None, client: str | None, pid: int | None, **how: Any) -> None:
        self._proxy.call(
            "connection_rule", listener=self.listener, broker=self._broker(broker), client=client, pid=pid, **how
        )

    def _broker(self, number: int | None) -> int | None:
        if number is None:
            return None
        found: int = self._cluster.broker(number).id
        return found

    def _learn_topics(self) -> None:
        """Note the names of all topics by their ids: new requests have nothing else."""
        from confluent_kafka import TopicCollection

        admin = self._cluster.admin
        asked = admin.describe_topics(TopicCollection(list(self._cluster.describe().topics)), request_timeout=ANSWER)
        for name, future in asked.items():
            number = str(future.result(ANSWER).topic_id)
            self._topics[base64.urlsafe_b64decode(number + "==")] = name

    def __repr__(self) -> str:
        return f"Wire({self.listener.lower()})"


def _one_of(name: str, value: Any, known: Mapping[str, Any] | Sequence[str]) -> str:
    if value in known:
        return str(value)
    raise NotAllowed(f"{name} is {' or '.join(map(repr, known))}, not {value!r}")
