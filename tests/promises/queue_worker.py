"""A worker in a process of its own, for tests that kill it: it gets one call at a time and answers each.

In:  bootstrap, site, topic, settings of the queue; then verbs. Out: what came of each, as JSON.
`dies` ends it by SIGKILL at a named place: as a power cut would, in the middle of a verb.
The process is forked by Python's fork server, which has imported this file and has no client and no thread.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from kqlib.errors import KqError
from kqlib.kafka.cluster import Kafka
from kqlib.queue import Site, claim, look, queue, site
from tests.patience import WAIT

PATIENT = ((look, "BRIEFLY"), (claim, "FIRST"), (claim, "SEEN"), (queue, "FIRST"), (queue, "SEEN"), (site, "VISIBLE"))
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


def dies(where: str) -> None:
    """From now on this process is killed at this place."""
    from confluent_kafka import Producer

    from kqlib.queue import transactions

    class Fatal(Producer):
        def __getattribute__(self, name: str) -> Any:
            if name == where:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getattribute__(name)

    transactions.Producer = Fatal  # type: ignore[misc]
    transactions.TIMEOUT = 2.0  # the broker ends the dead one's transaction sooner


def main(line: Connection, bootstrap: str, site_name: str, topic: str, session: float | None, **settings: Any) -> None:
    """Answer calls until the test's end is closed."""

    def tell(value: Any) -> None:
        line.send(json.dumps(value))

    for module, seconds in PATIENT:
        setattr(module, seconds, WAIT)
    here = Site(Kafka(bootstrap), site_name, session=session)
    own = here.queue(topic, **settings)
    held: dict[str, Any] = {}
    tell("ready")
    while (call := heard(line)) is not None:
        verb, *arguments = json.loads(call)
        try:
            if verb == "claim":
                items = own.claim_many(*arguments, wait=WAIT)
                held |= {item.id: item for item in items}
                tell({item.id: item.attempt for item in items})
            elif verb == "claim now":
                items = own.claim_many(*arguments)
                held |= {item.id: item for item in items}
                tell({item.id: item.attempt for item in items})
            elif verb == "dies":
                dies(*arguments)
                tell("ok")
            elif verb == "step":
                with own.step(held[arguments[0]]) as step:
                    step.put(own, arguments[1].encode())
                tell("ok")
            elif verb == "close":
                here.close()
                tell("ok")
            elif verb == "redrive":
                here._member.told = WAIT  # it is alone: the letters' partitions come to it, however late
                tell(own.redrive(*arguments))
            elif verb in ("depth", "purge"):
                tell(getattr(own, verb)(*arguments))
            else:
                getattr(own, verb)(held[arguments[0]], *arguments[1:])
                tell("ok")
        except KqError as error:
            tell(f"{type(error).__name__}: {error}")


def heard(line: Connection) -> str | None:
    """The next call; None when the test's end is closed."""
    with suppress(EOFError):
        return str(line.recv())
    return None
