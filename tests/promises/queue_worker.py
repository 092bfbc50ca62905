"""A worker in a process of its own, for tests that kill it: told what to do line by line, it answers line by line.

In:  bootstrap, site, topic, settings of the queue as JSON; then verbs on stdin. Out: what came of each, one JSON line.
`dies` ends it by SIGKILL at a named place: as a power cut would, in the middle of a verb.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from kqlib.broker.kafka import Kafka
from kqlib.errors import KqError
from kqlib.queue import Site


class Worker:
    """The test's end: `worker.do("claim", 3)`."""

    def __init__(self, bootstrap: str, site: str, topic: str, session: float | None = 2, **settings: Any) -> None:
        words = [bootstrap, site, topic, json.dumps(session), json.dumps(settings)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.promises.queue_worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == "ready"

    def do(self, verb: str, *arguments: Any) -> Any:
        """Say it and hear what came of it."""
        self.say(verb, *arguments)
        return self.hear()

    def say(self, verb: str, *arguments: Any) -> None:
        """Say it."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([verb, *arguments]) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """One answer; None: it is dead."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def signal(self, number: int) -> None:
        """SIGKILL, SIGSTOP, SIGCONT, SIGTERM."""
        self.process.send_signal(number)

    def end(self) -> None:
        """However it is."""
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def dies(where: str) -> None:
    """From now on this process is killed at this place."""
    from confluent_kafka import Producer

    from kqlib.queue import ending

    class Fatal(Producer):
        def __getattribute__(self, name: str) -> Any:
            if name == where:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getattribute__(name)

    ending.Producer = Fatal  # type: ignore[misc]
    ending.TIMEOUT = 2.0  # the broker ends the dead one's transaction sooner


def main(bootstrap: str, site_name: str, topic: str, session: str, settings: str) -> None:
    """Do what is said until nobody says anything."""
    site = Site(Kafka(bootstrap), site_name, session=json.loads(session))
    queue = site.queue(topic, **json.loads(settings))
    held: dict[str, Any] = {}
    tell("ready")
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        try:
            if verb == "claim":
                items = queue.claim_many(*arguments, wait=15)
                held |= {item.id: item for item in items}
                tell({item.id: item.attempt for item in items})
            elif verb == "claim now":
                items = queue.claim_many(*arguments)
                held |= {item.id: item for item in items}
                tell({item.id: item.attempt for item in items})
            elif verb == "dies":
                dies(*arguments)
                tell("ok")
            elif verb == "step":
                with queue.step(held[arguments[0]]) as step:
                    step.put(queue, arguments[1].encode())
                tell("ok")
            elif verb == "close":
                site.close()
                tell("ok")
            elif verb in ("depth", "purge", "redrive"):
                tell(getattr(queue, verb)(*arguments))
            else:
                getattr(queue, verb)(held[arguments[0]], *arguments[1:])
                tell("ok")
        except KqError as error:
            tell(f"{type(error).__name__}: {error}")


def tell(value: Any) -> None:
    """One line."""
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
