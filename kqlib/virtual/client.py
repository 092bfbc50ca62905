"""A client of virtual queues: knows which node has which queue, asks it directly, and goes on when the queue moves.

In:  the address of any node. Out: `client.queue("ARS-CHE")`, a queue with the usual verbs and errors.

    with kq.virtual.Client(url) as client:
        queue = client.queue("ARS-CHE", consumer="scores")
        queue.put(b"goal"); item = queue.claim(wait=1); queue.ack(item)

The map of owners is fetched at the start, every ten seconds and when a node answers 409. A request that was certainly not done (no
connection, 409, 503) is repeated until `patience` is over. One that may have been done is repeated only if that does no harm. A put
has a key, by which a node knows that it is repeated. An ack is repeated as well; if the answer is then "lease lost", its first try
may have been done or not, and the error is `NoNode`.
"""

from __future__ import annotations

import os
import random
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import httpx

from kqlib import errors
from kqlib.errors import Closed, KqError, LeaseLost, NotAllowed
from kqlib.kafka import forks
from kqlib.queue import arguments
from kqlib.virtual import errors as ours
from kqlib.virtual.errors import MEMBERS, NoNode
from kqlib.virtual.names import checked, checked_token, partition_of
from kqlib.virtual.queue import VirtualQueue

EVERY = 10.0  # seconds until the map is fetched again
CONNECT = 2.0  # seconds for a connection; without one the node counts as away
ANSWER = 10.0  # seconds for an answer, beside the seconds that a request wants to wait
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
LISTED = 100  # names
KNOWN = 300.0  # seconds for which a put is repeated; a node remembers its key for ten minutes
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Client:
    """Asks the nodes of one set of virtual queues. Thread-safe; no thread of its own."""

    def __init__(
        self, url: str | Sequence[str], *, token: str | None = None, patience: float = 60.0, ca: str | None = None
    ) -> None:
        """url: of one node or of several. patience: seconds until a request that nobody answers is given up; more than the
        session of the nodes' group (45 s by default), after which the queues of a killed node move.

        ca: a file with the certificates that sign those of the nodes, if public ones do not.
        """
        self._seeds = [address(each) for each in ([url] if isinstance(url, str) else url)]
        if not self._seeds:
            raise NotAllowed("say the address of at least one node, like 'http://127.0.0.1:4711'")
        self.patience = arguments.seconds("patience", patience, 0.1, 3600)
        headers = {"Authorization": f"Bearer {checked_token(token)}"} if token is not None else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        # nodes are asked directly
        self._http = httpx.Client(headers=headers, limits=limits, verify=trusted(ca), trust_env=False)
        self._map: dict[str, Any] = {"version": -2, "partitions": 0, "owners": {}}
        self._process = os.getpid()
        self._looked, self._one, self._closed = 0.0, threading.Lock(), False
        self._trouble = ""  # why the last node that was asked for the map did not send it

    def queue(
        self,
        name: str,
        consumer: str = "default",
        *,
        lease: float = 30,
        max_attempts: int | None = None,
        order: str | None = None,
    ) -> VirtualQueue:
        """A queue, for one consumer; it appears with its first item. max_attempts (0: for ever), order: fixed by the first claim."""
        checked("queue", name)
        checked("consumer", consumer)
        arguments.lease(lease)
        if max_attempts is not None and max_attempts != 0:
            arguments.max_attempts(max_attempts)
        if order is not None:
            arguments.one_of("order", order, "any", "key")
        return VirtualQueue(self, name, consumer, lease=float(lease), max_attempts=max_attempts, order=order)

    @property
    def owners(self) -> dict[int, str | None]:
        """Partition -> the address of its node, as this client knows it; None: nobody has it now."""
        self._refresh(EVERY)
        return {int(number): owner and owner["url"] for number, owner in self._map["owners"].items()}

    def queues(self, prefix: str = "") -> list[str]:
        """The first hundred names of queues that begin so, of all nodes. It waits for a node that is away, up to `patience`."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return self._listed(prefix)
            except (httpx.HTTPError, ours.NotMine, ours.Unavailable) as error:
                if time.monotonic() + LONGEST_PAUSE > deadline:
                    raise NoNode(
                        address=", ".join(self._seeds), why=f"{type(error).__name__}: {error}. Nothing was changed"
                    ) from None
            time.sleep(LONGEST_PAUSE * random.uniform(0.5, 1.0))
            self._refresh(0.0)

    def _listed(self, prefix: str) -> list[str]:
        owners = self.owners
        if not owners or None in owners.values():
            raise ours.Unavailable(f"the owners of some queues are not known{self._trouble}")
        asked = {"prefix": prefix, "limit": LISTED}
        answers = [
            self._once("GET", str(url), "/queues", params=asked) for url in sorted(set(owners.values()), key=str)
        ]
        return sorted({each["queue"] for answer in answers for each in answer["queues"]})[:LISTED]

    def close(self) -> None:
        """Done; leases that are out end by themselves."""
        if self._process == os.getpid():  # else another thread of the parent may have held the lock of its connections
            self._closed = True
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({len(self._seeds)} address{'es' * (len(self._seeds) > 1)}{', closed' * self._closed})"

    # --- asking ---

    def _ask(
        self,
        verb: str,
        queue: str,
        path: str,
        body: Any = None,
        *,
        wait: float = 0.0,
        again: bool = True,
        params: Any = None,
        key: str = "",
    ) -> Any:
        """The answer of the queue's owner, even if the queue moves meanwhile. again=False: do not repeat what may have been done.

        key: of a put; a node remembers it for some minutes.
        """
        deadline, pause = time.monotonic() + (min(self.patience, KNOWN) if key else self.patience) + wait, FIRST_PAUSE
        doubt = False  # an earlier try may have been done
        while True:
            maybe, rest, url = False, pause, ""
            try:
                url = self._owner(queue)
                return self._once(verb, url, f"/queues/{queue}{path}", body, wait=wait, params=params, key=key)
            except UNSENT as error:
                why = f"{type(error).__name__}: {error}"
            except httpx.HTTPError as error:  # sent, and no (whole) answer
                maybe, why = True, type(error).__name__
            except (ours.NotMine, ours.Unavailable) as error:
                maybe, why = bool(error.facts.get("unknown")), str(error)
                rest = max(pause, error.facts.get("retry_after", 0.2))
            except LeaseLost as error:
                if not doubt:
                    raise
                why = f"{error.facts['why']} (it was asked twice; the first time it may have been done. If not, the item comes again)"
                raise NoNode(address=self._where(queue), why=why) from None
            doubt = doubt or maybe
            if maybe and not again:
                safe = "It may have been done, or not: look before you do it again"
                raise NoNode(address=self._where(queue), why=f"{why}. {safe}")
            if time.monotonic() + rest > deadline:
                safe = "It may have been done, or not" if doubt else "Nothing was changed"
                raise NoNode(address=self._where(queue), why=f"{why}. {safe}")
            if url and self._where(queue) != url:  # its answer named another owner
                continue
            time.sleep(rest * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE, pause * 2)
            self._refresh(0.0)

    def _once(
        self, verb: str, url: str, path: str, body: Any = None, *, wait: float = 0.0, params: Any = None, key: str = ""
    ) -> Any:
        """One request: its answer, or the node's error as one of ours. wait: seconds to add to `ANSWER`."""
        if self._closed:
            raise Closed(thing="client")
        timeout = httpx.Timeout(ANSWER + wait, connect=CONNECT)
        headers = {"Idempotency-Key": key} if key else None
        answer = self._http.request(verb, url + path, json=body, params=params, timeout=timeout, headers=headers)
        try:
            content = answer.json() if answer.content else None
        except ValueError:
            raise KqError(f"{url} is no node of virtual queues: its answer is not JSON") from None
        if answer.is_success:
            return content
        if answer.status_code == 409 and isinstance(content, dict):
            self._learn(content.pop("map", None))
        raise error_of(content, answer.status_code)

    # --- the map ---

    def _owner(self, queue: str) -> str:
        """The address of the node that has this queue."""
        self._refresh(EVERY)
        if not self._map["partitions"]:
            raise ours.Unavailable(f"no node has sent its map yet{self._trouble}")
        number = self._partition(queue)
        owner = self._map["owners"].get(str(number))
        if owner is None:
            raise ours.Unavailable(f"nobody has partition {number} now")
        return str(owner["url"])

    def _partition(self, queue: str) -> int:
        return partition_of(queue, self._map["partitions"])

    def _where(self, queue: str) -> str:
        with suppress(KqError):
            return self._owner(queue)
        return ", ".join(self._seeds)

    def _refresh(self, age: float) -> None:
        """Fetch the map, unless ours is younger than `age` seconds, from the first node whose map is not older than ours."""
        # two processes on one connection would mix up their answers
        forks.check(self._process, "this client of virtual queues")
        if time.monotonic() - self._looked < age and self._map["partitions"]:
            return
        known = [owner["url"] for owner in self._map["owners"].values() if owner]
        for url in dict.fromkeys([*random.sample(known, len(known)), *self._seeds]):
            before = self._map["version"]
            try:
                # with little patience: a stopped node must not hold up the question to the others
                found = self._once("GET", url, "/map", wait=CONNECT - ANSWER)
            except (httpx.HTTPError, httpx.InvalidURL, ours.Unavailable) as error:
                self._trouble = f" ({type(error).__name__}: {error})"
                continue
            self._learn(found)
            self._looked = time.monotonic()
            if found["version"] >= before:
                return

    def _learn(self, found: Any) -> None:
        with self._one:
            if isinstance(found, dict) and found.get("version", -3) > self._map["version"]:
                self._map = found


def error_of(content: Any, status: int) -> KqError:
    """A node's error as it was raised there."""
    facts = dict(content) if isinstance(content, dict) else {}
    name, why = str(facts.pop("title", "")), facts.pop("detail", f"a node answered {status}")
    facts = {each: value for each, value in facts.items() if each not in MEMBERS}
    kind = getattr(ours, name, None) or getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, KqError)):
        return KqError(why)
    if kind.says != "{why}":  # its sentence is made of facts
        with suppress(KeyError):
            return kind(**facts)
        return KqError(why)
    if issubclass(kind, LeaseLost):
        return LeaseLost(why, refused=facts.get("refused", {}))
    return kind(why, **facts)


def trusted(ca: str | None) -> ssl.SSLContext | bool:
    """Whose certificates count: those that this file's certificates sign, or, without a file, public ones."""
    try:
        return ssl.create_default_context(cafile=ca) if ca else True
    except OSError:
        raise NotAllowed(f"a ca is a file with certificates, not {ca!r}") from None


def address(url: Any) -> str:
    """A node's address without its last slash; `NotAllowed` if it cannot be one."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise NotAllowed(f"a node's address is like 'http://127.0.0.1:4711', not {url!r}")
    return url.rstrip("/")
