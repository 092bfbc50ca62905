"""Who is in a group, and what this user may do with it. A child process asks the coordinator.

librdkafka's AdminClient ends its whole process by an assertion when a coordinator that it asked is gone (librdkafka 4605, 5397).
Two of two processes that asked before and after a restart of a broker ended so. A worker must not end that way. So the child
asks, and if it ends, only an answer is lost.

In:  the settings of a client, a group. Out: `Group`.
The child starts with the first question. It ends after IDLE seconds without one, or when its parent has ended.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kqlib.runtime.patience import PATIENCE

IDLE = 20.0  # seconds without a question until the child ends
START = 10.0 * PATIENCE  # seconds more for the first answer: the child has to start
_GONE, _LATE = -195, -185  # librdkafka's _TRANSPORT and _TIMED_OUT: ask again
Place = tuple[str, int]


class Member(NamedTuple):
    """A member of a group. One that crashed is a member until its session is over."""

    member_id: str
    client_id: str
    host: str
    assignment: list[Place]  # what it has
    target: list[Place] | None  # what it is to have; None: a classic group does not tell


class Group(NamedTuple):
    """A group as its coordinator describes it."""

    state: str  # as ConsumerGroupState names it: STABLE, EMPTY, DEAD …
    members: list[Member]
    operations: list[str] | None  # what this user may do with it; None: not asked for, or not known


def ask(admin: AdminClient, group: str, seconds: float, operations: bool) -> Group:
    """Ask in this process."""
    return _group(_answer(admin, group, seconds, operations))


class Asker:
    """The child process that asks, for one cluster. Thread-safe: one question at a time."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings, self._lock = dict(settings), threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._closed = False

    def describe(self, group: str, seconds: float, operations: bool = False) -> Group:
        """Ask. KafkaException: Kafka's own answer, or an error of the client (a code below 0) if there was none."""
        question = json.dumps([group, seconds, operations])
        with self._lock:
            for _ in range(2):  # the child may just have ended, being idle
                if answer := self._ask(question, seconds):
                    break
                self._end()  # its pipes close before it is seen to have ended
            if answer and "error" in answer and answer["error"][0] < 0:
                self._end()  # no answer came. The next question has a new client (librdkafka 5301), and no late answer
        return _group(answer or {"error": [_GONE, "the process that asked the group's coordinator ended"]})

    def close(self) -> None:
        """End the child, and with it a question that waits for its answer."""
        self._closed = True
        if (child := self._child) is not None:
            child.kill()
        with self._lock:
            self._end()

    def _ask(self, question: str, seconds: float) -> dict[str, Any] | None:
        """The answer; None: the child has ended."""
        if self._closed:
            return None
        if self._child is None or self._child.poll() is not None:
            self._end()
            seconds += START
            try:
                self._child = self._started()
            except OSError:  # this system starts no process now
                return None
            if self._closed:  # meanwhile: `close` has not seen this child, and waits for this question
                return None
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.write(f"{question}\n")
            self._child.stdin.flush()
        except OSError:
            return None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            if not selector.select(seconds + 1):
                return {"error": [_LATE, "no answer from the group's coordinator"]}
        line = self._child.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", __name__]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        # Not by the reaper, which would be a second process: it answers on its stdout, and ends when its stdin does.
        child = subprocess.Popen(command, env=env, text=True, encoding="utf-8", start_new_session=True, **pipes)
        assert child.stdin is not None
        with suppress(OSError):  # it has ended: the question meets the same
            child.stdin.write(f"{json.dumps(self._settings)}\n")  # not as an argument: there are passwords in it
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()


def _group(answer: dict[str, Any]) -> Group:
    """The answer as values, or the error that it is."""
    if error := answer.get("error"):
        raise KafkaException(KafkaError(*error))
    members = [
        Member(member_id, client_id, host, _pairs(has) or [], _pairs(target))
        for member_id, client_id, host, has, target in answer["members"]
    ]
    return Group(answer["state"], members, answer["operations"])


def _pairs(places: list[list[Any]] | None) -> list[Place] | None:
    """Places as JSON has them, as values."""
    return None if places is None else [(topic, number) for topic, number in places]


# --- in the child ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer questions, one a line, until none comes any more."""
    admin = AdminClient(json.loads(sys.stdin.readline()))
    while True:
        idle = threading.Timer(IDLE, os._exit, [0])
        idle.daemon = True
        idle.start()
        line = sys.stdin.readline()
        idle.cancel()
        if not line:
            os._exit(0)  # closing a client may wait for its broker
        print(json.dumps(_answer(admin, *json.loads(line))), flush=True)


def _answer(admin: AdminClient, group: str, seconds: float, operations: bool) -> dict[str, Any]:
    how: dict[str, Any] = {"include_authorized_operations": operations, "request_timeout": seconds}
    try:
        found = admin.describe_consumer_groups([group], **how)[group].result(seconds)
    except KafkaException as error:
        return {"error": [error.args[0].code(), error.args[0].str()]}
    except TimeoutError:
        return {"error": [_LATE, "no answer from the group's coordinator"]}
    may = found.authorized_operations
    return {
        "state": found.state.name,
        "members": [
            [each.member_id, each.client_id, each.host, _places(each.assignment), _places(each.target_assignment)]
            for each in found.members
        ],
        "operations": None if may is None else [each.name for each in may],
    }


def _places(assignment: Any) -> list[Place] | None:
    return None if assignment is None else [(part.topic, part.partition) for part in assignment.topic_partitions]


if __name__ == "__main__":
    main()
