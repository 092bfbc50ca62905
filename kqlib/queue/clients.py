"""Long-lived clients, of sites and of nodes. When no answer comes, it is judged here whether one is dead; then it is replaced.

In:  a cluster, how a client is made, a client that gave no answer. Out: is it dead; a client that works.

A client can die in two ways. It reports a fatal error (`answers.fatal`). Or a starting broker once answered that the cluster has no
brokers: then it has no address left to ask, and it never recovers (librdkafka 5301). The client does not report that: no broker
answers it, while one answers a new client. The other clients of the process probably got the same answer. So one verdict counts
for all of a cluster (`Kafka.verdicts`): clients that only ask or read are made anew, and those that hold something (puts, partitions)
are judged one by one.

A client that waits for a connected and silent broker lives: it leaves that broker after `socket.timeout.ms`, and what it holds is sent
to another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kqlib.kafka.cluster import Kafka

ANSWER_WITHIN = 1.0  # seconds for an answer about the cluster
RECONNECT_WITHIN = 3.0  # seconds more for a client that holds something: a lost connection comes back sooner
# of clients that hold something; by default they wait 10 s and look dead
SETTINGS = {"reconnect.backoff.max.ms": 1_000}


def hears(client: Any, seconds: float = ANSWER_WITHIN, *, silent: bool = False) -> bool:
    """Does this client know a broker that answers? silent: or is it connected to one that does not answer now?"""
    try:
        return bool(client.list_topics(timeout=seconds).brokers)
    except KafkaException as error:  # a client that is not connected at all says _TRANSPORT
        return silent and error.args[0].code() == KafkaError._TIMED_OUT
    except RuntimeError:  # it is closed
        return False


def judge(cluster: Kafka, client: Any = None, holds: float = 0.0) -> bool:
    """No answer came through this client (None: the cluster's AdminClient). Is it dead? Not while the cluster is away.

    holds: seconds that the client has to come back after a new one was answered.
    """
    asked = cluster.admin if client is None else client
    if hears(asked, silent=holds > 0) or cluster._closed:
        return False
    fresh = cluster._admin_client()
    if not hears(fresh) or (holds and hears(asked, holds, silent=True)):
        return False
    cluster.renew(fresh)
    return True


def leave(client: Any) -> None:
    """Close a dead client without waiting: that may take for ever."""

    def close() -> None:
        with suppress(KafkaException, RuntimeError):
            client.close()

    threading.Thread(target=close, name="kq-left", daemon=True).start()


class Kept:
    """A client that only asks or reads: made at its first use, and made anew after a verdict. For one thread at a time."""

    def __init__(self, cluster: Kafka, made: Callable[[], Any]) -> None:
        self.cluster = cluster
        self._made = made
        self._client: Any = None
        self._verdicts = cluster.verdicts

    def now(self) -> Any:
        """The client to use now."""
        if self._client is not None and self._verdicts != self.cluster.verdicts:
            leave(self._client)
            self._client = None
        if self._client is None:
            self._verdicts = self.cluster.verdicts
            self._client = self._made()
        return self._client

    def dead(self) -> bool:
        """It gave no answer. Is it dead? Then `now` makes another one."""
        return judge(self.cluster, self._client)

    def close(self) -> None:
        """Close it."""
        if self._client is not None:
            self._client.close()
            self._client = None
