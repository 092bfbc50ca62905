"""A worker in a process of its own, for tests that kill it: it gets one call at a time and answers each.

In:  bootstrap, site, topic, settings of the queue; then verbs. Out: what came of each, as JSON.
`dies` ends it by SIGKILL directly before or after a named write to Kafka: as a power cut would, in the middle of a verb.
The process is forked by Python's fork server, which has imported this file and has no client and no thread.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from kqlib.errors import KqError
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site, claim, commits, connection, look, queue, sender, session as sessions, transactions
from kqlib.topic_rules import QUEUES
from tests.patience import WAIT

PATIENT = (
    (look, "COUNT_WITHIN"),
    (claim, "ASSIGNED_WITHIN"),
    (claim, "READ_WITHIN"),
    (queue, "ASSIGNED_WITHIN"),
    (queue, "READ_WITHIN"),
    (connection, "VISIBLE"),
)
"""Seconds after which the library stops looking and says what it knows. In these tests it looks as long as the run waits."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, "tests.faults.storm_member"])  # one server for this whole process


class Worker:
    """The test's end: `worker.do("claim", 3)`."""

    def __init__(self, bootstrap: str, site: str, topic: str, session: float | None = 2, **settings: Any) -> None:
        self._line, its = FORKS.Pipe()
        self.process = FORKS.Process(
            target=main, args=(its, bootstrap, site, topic, session), kwargs=settings, daemon=True
        )
        self.process.start()
        its.close()
        assert self.hear() == "ready"

    def do(self, verb: str, *arguments: Any) -> Any:
        """Call a verb and return its answer."""
        self.say(verb, *arguments)
        return self.hear()

    def claim(self, many: int) -> dict[str, int]:
        """So many items, each with its attempt. They may come in several claims."""
        found: dict[str, int] = {}
        while len(found) < many:
            more = self.do("claim", many - len(found))
            assert more, f"{len(found)} of {many} came"
            found |= more
        return found

    def say(self, verb: str, *arguments: Any) -> None:
        """Call a verb."""
        self._line.send(json.dumps([verb, *arguments]))

    def hear(self) -> Any:
        """One answer; None: it is dead."""
        try:
            return json.loads(self._line.recv())
        except (EOFError, ConnectionResetError):
            return None

    def signal(self, number: int) -> None:
        """SIGKILL, SIGSTOP, SIGCONT, SIGTERM."""
        if self.process.is_alive():
            os.kill(self.process.pid or 0, number)

    def end(self) -> None:
        """End it, also when it is stopped or dead."""
        self.process.kill()
        self.process.join(WAIT)
        self._line.close()


WRITES = {"commit", "close", "produce", "begin_transaction", "send_offsets_to_transaction", "commit_transaction"}
LAST = ["", ""]  # before or after which write this process is killed
WRITTEN: list[str] = []  # since `dies`


def dies(write: str, when: str = "before") -> None:
    """From now on this process is killed at this write: 'before' it begins, or 'after' Kafka has it and nobody here knows that.

    'never': it is not killed, and what is written there does not come to Kafka.
    A write is named by the client's method; a note by its kind and partition: 'note purge/0'; the second of a name is 'commit #2'.
    """
    LAST[:] = when, write
    WRITTEN.clear()
    transactions.TIMEOUT = 2.0  # the broker ends the dead one's transaction sooner
    commits.RIDE = WAIT  # what was acked with wait=False is stored by the verb, not before it


def watched(kind: type[Any]) -> type[Any]:
    """The same client; each of its writes may be this process's last."""

    class Watched(kind):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            return partial(write, name, found, self) if name in WRITES else found

    return Watched


def write(method: str, do: Any, client: Any, *arguments: Any, **named: Any) -> Any:
    """Do it, unless this process dies before."""
    name = named_write(method, *arguments)
    if ["before", name] == LAST:
        die(client, method)
    if ["never", name] == LAST:
        return None
    answer = do(*arguments, **named)
    if ["after", name] == LAST:
        die(client, method)
    WRITTEN.append(name)
    return answer


def die(client: Any, method: str) -> None:
    """Now. A producer has sent what it was given."""
    if method == "produce":
        client.flush(WAIT)
    os.kill(os.getpid(), signal.SIGKILL)


def named_write(method: str, topic: Any = None, _value: Any = None, key: Any = None, *_: Any) -> str:
    """Its name, as in `dies`."""
    name = method
    if method == "produce" and topic == QUEUES:
        name = f"note {'/'.join(map(str, json.loads(key)[2:]))}"
    many = sum(each.partition(" #")[0] == name for each in WRITTEN)
    return f"{name} #{many + 1}" if many else name


def main(line: Connection, bootstrap: str, site_name: str, topic: str, session: float | None, **settings: Any) -> None:
    """Answer calls until the test's end is closed."""

    def tell(value: Any) -> None:
        line.send(json.dumps(value))

    for module, seconds in PATIENT:
        setattr(module, seconds, WAIT)
    for module, client in ((sessions, "Consumer"), (sender, "Producer"), (transactions, "Producer")):
        setattr(module, client, watched(getattr(module, client)))
    here = Site(Kafka(bootstrap), site_name, session=session)
    own = here.queue(topic, **settings)
    calls = verbs(here, own)
    tell("ready")
    while (call := received(line)) is not None:
        verb, *arguments = json.loads(call)
        try:
            reported = calls[verb](*arguments)
            tell("ok" if reported is None else reported)
        except KqError as error:
            tell(f"{type(error).__name__}: {error}")


def verbs(here: Site, own: Queue) -> dict[str, Callable[..., Any]]:
    """What each call does. Items are named by their ids."""
    held: dict[str, Any] = {}

    def claim(many: int, wait: float = WAIT) -> dict[str, int]:
        items = own.claim_many(many, wait=wait)
        held.update({item.id: item for item in items})
        return {item.id: item.attempt for item in items}

    def with_item(verb: str) -> Callable[..., None]:
        def do(id_: str, *arguments: Any) -> None:
            getattr(own, verb)(held[id_], *arguments)

        return do

    def step(id_: str, data: str) -> None:
        with own.step(held[id_]) as step:
            step.put(own, data.encode())

    def close(*ids: str) -> None:
        for id_ in ids:
            own.ack(held[id_], wait=False)
        here.close()

    def discard(id_: str) -> None:
        here._session.decided_after = WAIT  # it is alone: the letters' partitions come to it, however late
        own.dead.discard(id_)

    def redrive(*many: int) -> int:
        here._session.decided_after = WAIT
        return own.redrive(*many)

    return {
        **{verb: with_item(verb) for verb in ("ack", "release", "extend", "bury")},
        "ack_many": lambda *ids: own.ack_many([held[id_] for id_ in ids]),
        "claim": claim,
        "claim now": lambda many: claim(many, 0),
        "step": step,
        "redrive": redrive,
        "discard": discard,
        "depth": own.depth,
        "purge": own.purge,
        "rewind": lambda: look.rewind(here, own.name, back=True),
        "close": close,
        "dies": dies,
        "writes": lambda: WRITTEN,
    }


def received(line: Connection) -> str | None:
    """The next call; None when the test's end is closed."""
    with suppress(EOFError):
        return str(line.recv())
    return None
