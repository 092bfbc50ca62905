"""A node: owns some partitions of the virtual queues and answers for them over HTTP.

In:  a cluster, the data topic's name, an address. Out: `with Node(cluster, "games") as node: node.url`.
The nodes of one topic are one consumer group (`member`), which assigns the partitions. Transactions prove which node owns a partition
(`partition`), and the topic T.partitions names all owners (`ownership`). `routes` has the requests.
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
from collections import Counter
from collections.abc import Collection
from typing import Self
from urllib.parse import urlsplit

import uvicorn
from confluent_kafka import KafkaException, TopicPartition

from kqlib.errors import Closed, KqError, NotAllowed, Unreachable
from kqlib.kafka import forks
from kqlib.kafka.cluster import Kafka
from kqlib.queue import arguments, state
from kqlib.queue.answers import first
from kqlib.queue.broker_settings import set_session_timeout
from kqlib.virtual import routes
from kqlib.virtual.errors import NotMine, Unavailable
from kqlib.virtual.fetcher import RecordFetcher
from kqlib.virtual.member import GroupMember
from kqlib.virtual.names import checked_token, partition_of
from kqlib.virtual.origins import checked_hosts, checked_origins, loopback
from kqlib.virtual.ownership import Ownership, PartitionMap
from kqlib.virtual.partition import Operation, PartitionServer
from kqlib.virtual.request_limits import Connection
from kqlib.virtual.tokens import Token, read as read_tokens

log = logging.getLogger("kqlib.virtual")
logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # bad requests print nothing into a notebook

TOKEN = "KQ_VIRTUAL_TOKEN"
KEEP = 7 * 24 * 3600.0  # seconds that an idle consumer is remembered
WATCH = 5.0  # seconds between two checks of the topics
CLOSE = 8.0
STILL = 10.0  # seconds without a round of the member's thread: it hangs, though partitions may still be served
SPARE = 10.0  # seconds, two heartbeats: the group does not tell a new member that it gets nothing
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
        tokens: str | None = None,
        tls: tuple[str, str] | None = None,
        session: float | None = None,
        keep_consumers: float = KEEP,
        advertise: str | None = None,
        origins: Collection[str] = (),
        hosts: Collection[str] = (),
    ) -> None:
        """token: with all rights. tokens: a file of tokens with some (`tokens.py`). tls: the files of a certificate and its key.

        origins: web pages that may ask it, like 'https://team.example'. hosts: names under which it answers, besides its own.
        """
        self.origins, named = checked_origins(origins), checked_hosts(hosts)
        whole = checked_token(token if token is not None else os.environ.get(TOKEN))
        self.tokens = [*([Token(whole)] if whole else []), *(read_tokens(tokens) if tokens else [])]
        _check_needed(self.tokens, host)
        if session is not None:
            arguments.seconds("session", session, 0.5, 3600)
        keep = arguments.seconds("keep_consumers", keep_consumers, 1, 10 * 366 * 24 * 3600.0)
        self.cluster, self.topic, self.id = cluster, topic, secrets.token_hex(4)
        self._ownership = Ownership(cluster, topic, self.id, keep)
        self.partitions = self._ownership.partitions
        self.map = PartitionMap(topic, self.partitions)
        self.answered = Counter[int]()  # requests, by the status of their answer
        self.trouble = ""  # why nothing is served, if so
        if session is not None:
            set_session_timeout(cluster, f"kq-virtual-{topic}", session)
        address = advertise or f"{'https' if tls else 'http'}://{_shown(host)}"
        own = {urlsplit(address).hostname or "", host.lower()}
        self.hosts = named | own if named or loopback(host) else None  # elsewhere a token is needed
        self._http = _http_server(self, tls)
        self._fetcher = RecordFetcher(cluster, topic)
        self._member = GroupMember(cluster, self.map, self.id, self._serve)
        self._http_thread = threading.Thread(target=self._answer, name="kq-virtual-http", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="kq-virtual-watch", daemon=True)
        self._began = time.monotonic()
        self._closed, self._process = threading.Event(), os.getpid()
        self._socket = _listen(host, port)  # last: what fails before this leaves no port bound
        _LISTENING.add(self._socket)
        self.url = self._ownership.url = advertise or f"{address}:{self._socket.getsockname()[1]}"

    def start(self) -> Self:
        """Join the group and answer; returns when the address answers."""
        self._check_here()
        if self._closed.is_set():
            raise Closed(thing="node")
        if not self._http_thread.ident:
            try:
                self._begin()
            except BaseException:
                self.close()
                raise
        return self

    def _begin(self) -> None:
        self._http_thread.start()
        self._member.start()
        self._watcher.start()
        atexit.register(self.close)  # the partitions of a notebook that ends move without waiting for its session
        deadline = time.monotonic() + 10
        while not self._http.started:
            if time.monotonic() > deadline or not self._http_thread.is_alive():
                raise Unreachable(address=self.url, why="the HTTP server did not start")
            time.sleep(0.005)

    def close(self) -> None:
        """Give the partitions up in good order, then stop answering. Calling it twice does no harm."""
        if self._closed.is_set() or self._process != os.getpid():
            return
        self._closed.set()
        atexit.unregister(self.close)
        self._member.stop(CLOSE)
        if self._http_thread.ident:
            self._http.should_exit = True
            self._http_thread.join(CLOSE)
        self._socket.close()
        self._fetcher.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Node('{self.topic}', {len(self.owned)} of {self.partitions} partitions)"

    # --- what it owns ---

    @property
    def owned(self) -> list[int]:
        """The partitions that it answers for now."""
        return [number for number, server in self.servers().items() if server.state == "serving"]

    def servers(self) -> dict[int, PartitionServer]:
        """The server of every partition that is ours, of those that are loading too."""
        return dict(sorted(self._member.servers.items()))

    def server(self, partition: int) -> PartitionServer:
        """The server of a partition; `NotMine` if another node has it."""
        if self.trouble:
            raise Unavailable(self.trouble, retry_after=WATCH)
        found = self._member.servers.get(partition)
        if found is None or found.state == "lost":
            raise NotMine(f"partition {partition} is not this node's: ask the one that the map names", unknown=False)
        return found

    def server_of(self, queue: str) -> PartitionServer:
        """The server of a queue's partition."""
        return self.server(partition_of(queue, self.partitions))

    def ready(self) -> tuple[bool, str]:
        """Does it answer for everything that the group gave it? If not, why."""
        self._check_here()
        if self.trouble:
            return False, self.trouble
        if (still := time.monotonic() - self._member.ticked) > STILL:
            return False, f"the thread that talks with the group has not moved for {still:.0f} s"
        owners = list(self.map.owners.items())
        if twins := {owner.node for _, owner in owners if owner.url == self.url and owner.node != self.id}:
            return False, f"node {min(twins)} has the address {self.url}, too: each node needs an address of its own"
        spare = len(owners) == self.partitions and time.monotonic() - self._began > SPARE
        if not self._member.joined.is_set() and not spare:
            return False, "the group has not decided yet which partitions are this node's"
        known = {number for number, owner in owners if owner.node == self.id}
        loading = [number for number, server in self.servers().items() if number not in {*self.owned} & known]
        return not loading, f"partitions {', '.join(map(str, loading))} are being read" if loading else ""

    def collect(self, partition: int, low: int) -> int:
        """Delete the records below an offset; the log's first offset now."""
        admin = self.cluster.admin
        part = TopicPartition(self.topic, partition, low)
        try:
            return int(admin.delete_records([part], request_timeout=10)[part].result(11).low_watermark)
        except (KafkaException, TimeoutError) as error:
            cause = first(error).str() if isinstance(error, KafkaException) else "no answer"
            why = f"Kafka did not delete the records ({cause}); ask again"
            raise Unavailable(why, retry_after=1.0, unknown=True) from None

    def _check_here(self) -> None:
        forks.check(self._process, f"the node of '{self.topic}'")

    # --- threads ---

    def _serve(self, partition: int, mine: int | None) -> PartitionServer:
        return PartitionServer(self._ownership, partition, self._fetcher.fetch, mine)

    def _answer(self) -> None:
        self._http.run(sockets=[self._socket])

    def _watch(self) -> None:
        """Check the topics now and then: if one grew, its queues have moved; if one forgets, records are lost."""
        while not self._closed.wait(WATCH):
            try:
                self._ownership.check_all()
                self.trouble = ""
                self._trim()
            except Unreachable:  # the partitions' own transactions show whether Kafka is there
                self.cluster.renew()
            except KqError as error:
                self.trouble = str(error)

    def _trim(self) -> None:
        lows, _ = state.bounds(self.cluster, [(self.topic, number) for number in self.owned])
        for (_, number), low in lows.items():
            if (server := self._member.servers.get(number)) and low > server.low:
                server.low = low
                server.ask(Operation(lambda store, out, low=low: store.trim(low, out)))  # type: ignore[misc]


def _in_a_fork() -> None:
    """The parent's node answers there. Were its port open here as well, it would take connections after that node's end."""
    for inherited in _LISTENING:
        inherited.close()


os.register_at_fork(after_in_child=_in_a_fork)


def _check_needed(tokens: list[Token], host: str) -> None:
    if not tokens and not loopback(host):
        why = f"everybody who reaches {host} could read and delete every queue"
        raise NotAllowed(f"{why}: set {TOKEN}, or listen on 127.0.0.1")


def _http_server(node: Node, tls: tuple[str, str] | None) -> uvicorn.Server:
    certificate, key = tls or (None, None)
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
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except OSError as error:  # an SSLError as well
        raise NotAllowed(f"the certificate {certificate} with the key {key} cannot be used: {error}") from None
    return uvicorn.Server(config)


def _shown(host: str) -> str:
    named = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"[{named}]" if ":" in named else named


def _listen(host: str, port: int) -> socket.socket:
    arguments.count("port", port, 0)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with its protocol named, or asyncio leaves Nagle's algorithm on: 40 ms an answer
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
