"""The process between clients and brokers. It passes bytes on, notes the head of each request and answer, and applies rules.

In:  connections of clients, one port for each broker and listener; commands over a Unix socket. Out: the same bytes at the broker,
and what crossed. Each listener of the brokers that is on the wire has ports here: clients use one, brokers may use others.
It is a process of its own, so that no other Python thread delays it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kqlib.workshop.wire.connections import HOST, Connection
from kqlib.workshop.wire.messages import Messages
from kqlib.workshop.wire.traffic import CLIENTS, ConnectionRule, Rule, Traffic


class Proxy:
    """The ports, and the commands about what crosses there."""

    def __init__(self, jar: Path) -> None:
        self.traffic = Traffic(Messages(jar))
        self.ports: dict[tuple[str, int], int] = {}
        self._begun = self.traffic.loop.time()

    async def listen(self, listener: str, brokers: int, tls: ssl.SSLContext | None) -> None:
        """A port for each broker."""
        for broker in range(1, brokers + 1):
            server = await self.traffic.loop.create_server(
                lambda broker=broker: Connection(self.traffic, listener, broker).requests,
                HOST,
                0,
                ssl=tls,
                backlog=512,
            )
            self.ports[listener, broker] = server.sockets[0].getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One command, and its answer."""
        with suppress(ConnectionError, EOFError, pickle.UnpicklingError):
            name, how = pickle.loads(await reader.read())
            try:
                answer = (True, await getattr(self, f"do_{name}")(**how))
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            writer.write(pickle.dumps(answer))
            await writer.drain()
        writer.close()

    # --- commands: each returns what can be pickled ---------------------------------------------------------------------

    async def do_ports(self) -> dict[tuple[str, int], int]:
        """Where it listens."""
        return self.ports

    async def do_targets(self, targets: dict[tuple[str, int], int]) -> None:
        """Where the brokers are."""
        self.traffic.targets = targets

    async def do_rule(self, **how: Any) -> int:
        """A rule for one request. If the process has sent that already, there is no rule: return how many it has sent."""
        rule = Rule(**how)
        rule.count = self.traffic.counts[rule.listener, rule.pid, rule.kind] if rule.pid else 0
        if rule.count >= rule.nth:
            return rule.count
        self.traffic.rules.append(rule)
        return 0

    async def do_wait(self, listener: str, seconds: float) -> bool:
        """Wait until every rule of the listener has met its request."""
        end = self.traffic.loop.time() + seconds
        while waits := [each.happened for each in self._rules(listener) if not each.happened.is_set()]:
            try:
                await asyncio.wait_for(waits[0].wait(), end - self.traffic.loop.time())
            except TimeoutError:
                return False
        return True

    async def do_connection_rule(self, **how: Any) -> None:
        """Cut or delay from now on."""
        self.traffic.connection_rules.append(ConnectionRule(**how))
        self._apply_cuts()

    async def do_heal(self, listener: str) -> None:
        """Lift every cut, delay and rule of a listener, and pass on what was held."""
        traffic = self.traffic
        traffic.connection_rules = [each for each in traffic.connection_rules if each.listener != listener]
        traffic.rules = [each for each in traffic.rules if each.listener != listener]
        self._apply_cuts()
        await self.do_release(listener)

    async def do_release(self, listener: str) -> None:
        """Pass on what was held."""
        for connection in self.traffic.connections:
            if connection.origin.listener == listener:
                for direction in connection.directions.values():
                    direction.release()

    async def do_seen(self, listener: str) -> list[dict[str, Any]]:
        """What crossed."""
        begun = self._begun
        return [
            {**vars(each), "at": each.at - begun, "done": each.done and each.done - begun, "reply": b"", "rule": None}
            for each in self.traffic.notes[listener]
        ]

    async def do_state(self, listener: str) -> tuple[dict[int, int], int]:
        """How many requests of each kind have crossed since the last `clear`, and how many rules have met theirs."""
        met = sum(each.happened.is_set() for each in self._rules(listener))
        return dict(self.traffic.totals[listener]), met

    async def do_group(self, listener: str, pid: int) -> None:
        """From now on this process group is the one to kill."""
        self.traffic.groups[listener] = pid

    async def do_clear(self, listener: str) -> None:
        """Forget what has crossed, and begin to count anew."""
        traffic = self.traffic
        traffic.notes[listener].clear()
        traffic.totals[listener].clear()
        for key in [key for key in traffic.counts if key[0] == listener]:
            del traffic.counts[key]

    def _rules(self, listener: str) -> list[Rule]:
        return [each for each in self.traffic.rules if each.listener == listener]

    def _apply_cuts(self) -> None:
        for connection in self.traffic.connections:
            connection.apply_cuts()


async def main(address: str, jar: str, listeners: str, brokers: str, certificate: str) -> None:
    """Listen until the reaper ends this process. Clients use TLS if there is a certificate; brokers reach each other without it."""
    proxy = Proxy(Path(jar))
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    for listener in listeners.split(","):
        await proxy.listen(listener, int(brokers), tls if listener.startswith(CLIENTS) else None)
    await asyncio.start_unix_server(proxy.serve, f"{address}.new")
    os.rename(f"{address}.new", address)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
