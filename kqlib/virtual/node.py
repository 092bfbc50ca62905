"""A node: owns some partitions of the virtual queues and answers for them over HTTP.

In:  a cluster, the data topic's name, an address. Out: `with Node(cluster, "games") as node: node.url`. Nodes of one topic are one
consumer group: the group deals the partitions, Kafka's transactions judge who really has one (`keeper`), T.partitions tells the world.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Self
from urllib.parse import urlsplit

import uvicorn
from confluent_kafka import KafkaException, TopicPartition

from kqlib.errors import Closed, KqError, NotAllowed, Unreachable
from kqlib.kafka import forks
from kqlib.kafka.cluster import Kafka
from kqlib.queue import arguments, state
from kqlib.queue.item import Out
from kqlib.queue.put import limits
from kqlib.queue.said import first
from kqlib.queue.site import _set_session
from kqlib.topic_rules import DEAD_MORE_BYTES
from kqlib.virtual import routes, takeover
from kqlib.virtual.door import Connection
from kqlib.virtual.errors import NotMine, Unavailable
from kqlib.virtual.fetcher import Fetcher
from kqlib.virtual.keeper import Keeper, Op
from kqlib.virtual.member import Member
from kqlib.virtual.names import checked_token, partition_of
from kqlib.virtual.origin import checked_hosts, checked_origins, loopback
from kqlib.virtual.partmap import PartitionMap
from kqlib.virtual.shelf import Shelf

log = logging.getLogger("kqlib.virtual")
logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # what strangers send is no line in a notebook's output

TOKEN = "KQ_VIRTUAL_TOKEN"
KEEP = 7 * 24 * 3600.0  # seconds that an idle consumer is remembered
WATCH = 5.0  # seconds between two looks at the topics' counts
CLOSE = 8.0
# seconds without a round of the member's thread: something is wrong, though partitions may still be served
STILL = 10.0
SPARE = 10.0  # seconds, two heartbeats: a member that is given nothing at its start is not told so
_LISTENING: weakref.WeakSet[socket.socket] = weakref.WeakSet()  # of this process's nodes


class Node:
    """One node: `with kq.virtual.Node(cluster, "games") as node: …`."""

    def __init__(
        self,
        cluster: Kafka,
        topic: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        session: float | None = None,
        keep_consumers: float = KEEP,
        advertise: str | None = None,
        origins: Collection[str] = (),
        hosts: Collection[str] = (),
    ) -> None:
        """origins: web pages that may ask it, like 'https://team.example'. hosts: names it may be asked under, besides its own."""
        self.origins = checked_origins(origins)
        named = checked_hosts(hosts)
        self.token = _needed(checked_token(token if token is not None else os.environ.get(TOKEN)), host)
        if session is not None:
            arguments.seconds("session", session, 0.5, 3600)
        arguments.seconds("keep_consumers", keep_consumers, 1, 10 * 366 * 24 * 3600.0)
        self.cluster, self.topic, self.id = cluster, topic, secrets.token_hex(4)
        self.topic_id, self.partitions = takeover.counts(cluster, topic)
        takeover.policies(cluster, topic)
        self.trouble = ""  # why nothing is served, if so
        most, keep = limits(cluster, [topic])[topic], float(keep_consumers)
        limit = max(1, most - DEAD_MORE_BYTES)  # a dead letter carries more than its item
        self.map = PartitionMap(topic, self.partitions)
        if session is not None:
            _set_session(cluster, self.group, session)
        with ExitStack() as undo:  # if the rest fails, the port is free again and no thread is left
            self._socket = _listen(host, port)
            _LISTENING.add(self._socket)
            undo.callback(self._socket.close)
            self.url = advertise or f"http://{_shown(host)}:{self._socket.getsockname()[1]}"
            own = {urlsplit(self.url).hostname or "", host.lower()}
            self.hosts = named | own if named or loopback(host) else None  # elsewhere a token is asked for
            self.ours = takeover.Ours(
                cluster, topic, self.topic_id, self.partitions, limit, keep, self.id, self.url, most
            )
            self._server = _server(self)
            self._fetcher = Fetcher(cluster, topic)
            undo.callback(self._fetcher.close)
            self._member = Member(cluster, topic, self.group, self.map, self.id)
            self._member.make, self._member.left = self._keeper, self._farewell
            undo.pop_all()
        self._http = threading.Thread(target=self._serve, name="kq-virtual-http", daemon=True)
        self._began = time.monotonic()
        self._closed, self._process = threading.Event(), os.getpid()
        self._watcher = threading.Thread(target=self._watch, name="kq-virtual-watch", daemon=True)

    @property
    def group(self) -> str:
        """The consumer group of all nodes of this topic."""
        return f"kq-virtual-{self.topic}"

    def start(self) -> Self:
        """Join the group and answer; returns when the address answers."""
        self._check_here()
        if self._closed.is_set():
            raise Closed(thing="node")
        if not self._http.ident:
            self._http.start()
            self._member.start()
            self._watcher.start()
            atexit.register(self.close)  # a notebook that ends leaves in good order, and nobody waits for its session
            deadline = time.monotonic() + 10
            while not self._server.started:
                if time.monotonic() > deadline or not self._http.is_alive():
                    self.close()
                    raise Unreachable(address=self.url, why="the HTTP server did not start")
                time.sleep(0.005)
        return self

    def close(self) -> None:
        """Give the partitions up in good order, then stop answering. Calling it twice does no harm."""
        if self._closed.is_set() or self._process != os.getpid():
            return
        self._closed.set()
        atexit.unregister(self.close)
        if self._http.ident:
            self._member.stop(CLOSE)
            self._server.should_exit = True
            self._http.join(CLOSE)
        self._socket.close()
        self._fetcher.close()

    def wait(self) -> None:
        """Return when it is closed."""
        self._check_here()
        self._closed.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Node('{self.topic}', {len(self.owned)} of {self.partitions} partitions)"

    # --- what is asked of it ---

    @property
    def owned(self) -> list[int]:
        """The partitions that it answers for now."""
        return sorted(number for number, keeper in list(self._member.keepers.items()) if keeper.state == "serving")

    def keeper_of(self, queue: str) -> Keeper:
        """Who keeps a queue's partition here; `NotMine` if another node does."""
        return self.keeper(partition_of(queue, self.partitions))

    def keeper(self, partition: int) -> Keeper:
        """Who keeps a partition here."""
        if self.trouble:
            raise Unavailable(self.trouble, WATCH)
        found = self._member.keepers.get(partition)
        if found is None or found.state == "lost":
            raise NotMine(f"partition {partition} is not this node's: ask the one that the map names")
        return found

    def keepers(self) -> dict[int, Keeper]:
        """Every partition that is ours, loading ones too."""
        return dict(sorted(self._member.keepers.items()))

    def ready(self) -> tuple[bool, str]:
        """Does it answer for everything that the group gave it?"""
        self._check_here()
        if self.trouble:
            return False, self.trouble
        if (still := time.monotonic() - self._member.ticked) > STILL:
            return False, f"the thread that talks with the group has not moved for {still:.0f} s"
        owners = list(self.map.owners.values())
        if twins := {owner.node for owner in owners if owner.url == self.url and owner.node != self.id}:
            return (
                False,
                f"node {min(twins)} says that it answers at {self.url}, too: each node needs an address of its own",
            )
        spare = len(owners) == self.partitions and time.monotonic() - self._began > SPARE
        if not self._member.joined.is_set() and not spare:
            return False, "the group has not said yet which partitions are this node's"
        known = {number for number, owner in list(self.map.owners.items()) if owner.node == self.id}
        loading = [
            number for number, keeper in self.keepers().items() if keeper.state != "serving" or number not in known
        ]
        return not loading, f"partitions {', '.join(map(str, loading))} are being read" if loading else ""

    def collect(self, partition: int, low: int) -> int:
        """Delete the records below an offset; the log's first offset now."""
        admin = self.cluster.admin
        part = TopicPartition(self.topic, partition, low)
        try:
            return int(admin.delete_records([part], request_timeout=10)[part].result(11).low_watermark)
        except (KafkaException, TimeoutError) as error:
            why = first(error).str() if isinstance(error, KafkaException) else "no answer"
            raise Unavailable(f"Kafka did not delete the records ({why}); ask again", 1.0, unknown=True) from None

    def _check_here(self) -> None:
        forks.check(self._process, f"the node of '{self.topic}'")

    # --- keepers ---

    def _keeper(self, partition: int, mine: int | None) -> Keeper:
        def proof(epoch: int) -> list[Out]:
            return [takeover.said(self.ours, partition, epoch)]

        def begin(left: Callable[[], bool]) -> takeover.Taken:
            return takeover.take_over(self.ours, partition, mine, left)

        keeper = Keeper(partition, begin, self._fetcher.fetch, proof)
        keeper.chores.append(Shelf.forget_idle)
        return keeper

    def _farewell(self, keeper: Keeper) -> list[Out]:
        return takeover.farewell(self.ours, keeper.partition, keeper.epoch)

    # --- threads ---

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _watch(self) -> None:
        """The topics are looked at now and then: one that grew has moved its queues; one that forgets has lost records."""
        while not self._closed.wait(WATCH):
            try:
                topic_id, many = takeover.counts(self.cluster, self.topic)
                takeover.policies(self.cluster, self.topic)
                same = (topic_id, many) == (self.topic_id, self.partitions)
                changed = f"'{self.topic}' is not the topic that this node began with: {many} partitions now"
                self.trouble = "" if same else changed
                self._trim()
            except Unreachable:  # the partitions' own transactions say whether Kafka is there
                self.cluster.renew()
            except KqError as error:
                self.trouble = str(error)

    def _trim(self) -> None:
        lows, _ = state.bounds(self.cluster, [(self.topic, number) for number in self.owned])
        for (_, number), low in lows.items():
            if (keeper := self._member.keepers.get(number)) and low > keeper.low:
                keeper.low = low
                keeper.ask(Op(lambda shelf, out, low=low: shelf.trim(low, out)))  # type: ignore[misc]


def _in_a_fork() -> None:
    """The parent's node answers there. Were its port open here as well, it would take connections after that node's end."""
    for inherited in _LISTENING:
        inherited.close()


os.register_at_fork(after_in_child=_in_a_fork)


def _needed(token: str | None, host: str) -> str | None:
    if token is None and not loopback(host):
        raise NotAllowed(
            f"whoever reaches {host} could read and delete every queue: set {TOKEN}, or listen on 127.0.0.1"
        )
    return token


def _server(node: Node) -> uvicorn.Server:
    """What answers its requests."""
    config = uvicorn.Config(
        routes.app(node),
        log_config=None,
        access_log=False,
        lifespan="off",
        http=Connection,
        ws="none",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=65_536,
    )
    return uvicorn.Server(config)


def _shown(host: str) -> str:
    named = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"[{named}]" if ":" in named else named


def _listen(host: str, port: int) -> socket.socket:
    arguments.count("port", port, 0)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # named, or asyncio leaves Nagle on: 40 ms an answer
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(1024)
    except (OSError, OverflowError) as error:
        made.close()
        raise NotAllowed(
            f"cannot listen on {host}, port {port}: {error}. Is it in use? port=0 takes a free one"
        ) from None
    return made
