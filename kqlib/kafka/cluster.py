"""A Kafka cluster as its clients see it, wherever it runs: settings, admin, leaders, Kafka's own tools.

In:  an address and the settings to reach it. Out: `Kafka`, which `connect()` returns for your own cluster. The workshop's embedded
`Cluster` is the same, with brokers to start and kill.
"""

from __future__ import annotations

import os
import re
import socket
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kqlib.errors import BadConfig, Closed, KqError, NotAllowed, TopicMissing, Unreachable
from kqlib.kafka import forks, settings
from kqlib.runtime import patience
from kqlib.text import words

if TYPE_CHECKING:
    from kqlib.kafka.clients import AdminClient
    from kqlib.kafka.members import Asker, Group

ANSWER = 3.5 * patience.PATIENCE  # seconds for one answer; "within 5 s" is the promise, on a quiet machine
TIMEOUT = 15.0 * patience.PATIENCE  # seconds for a list of all topics
ASK_AGAIN = 0.05  # seconds until a question whose connection closed is asked again
# An AdminClient that connects only when it asks does so without a pause while the broker that it takes for the controller is
# away: 10,000 attempts a second, a whole core, for as long as the question lasts. Connected to all, it pauses in between.
ALL_CONNECTED: dict[str, Any] = {"enable.sparse.connections": False}
_MADE: weakref.WeakSet[Kafka] = weakref.WeakSet()  # here, for the forks of this process


class Kafka:
    """A Kafka cluster: where it is and how to talk to it."""

    embedded = False
    verdicts = 0  # how often its clients were judged dead; a client that was made before the last time is replaced

    def __init__(self, bootstrap: str, own: dict[str, Any] | None = None) -> None:
        self.bootstrap = bootstrap
        self._own = settings.hidden(own or {})
        self._closed = False
        self._process = os.getpid()
        self._asks: Asker | None = None
        _MADE.add(self)

    def client(self, **extra: Any) -> dict[str, Any]:
        """Settings for any confluent_kafka client, with kqlib's defaults: `Producer(cluster.client())`.

        They are a plain dict: `cluster.client() | {"group.id": "scores"}`, or `cluster.client(group_id="scores")`.
        """
        self._check_open()
        return settings.client(self.bootstrap, self._own, extra)

    @cached_property
    def admin(self) -> AdminClient:
        """An AdminClient of this cluster."""
        return self._admin_client()

    def renew(self, admin: AdminClient | None = None) -> None:
        """Use this AdminClient or a new one from now on. One that once got no brokers never recovers (librdkafka 5301)."""
        self.verdicts += 1
        self.__dict__.pop("admin", None)
        if admin is not None:
            self.admin = admin

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers that are up."""
        return sorted(self.describe().brokers)

    @property
    def controller(self) -> int | None:
        """The id of the node that leads the controllers; None while there is none.

        Kafka's own tool is asked: a KRaft broker names any broker as the controller to a client.
        """
        self._check_open()
        with suppress(KqError):
            status = self.kafka("metadata-quorum", "describe", "--status", timeout=20)
            if found := re.search(r"^LeaderId:\s+(\d+)", status, re.MULTILINE):
                return int(found[1])
        return None

    def describe(self, timeout: float = TIMEOUT) -> Any:
        """The cluster's brokers and topics now: confluent_kafka's ClusterMetadata.

        Not `describe_cluster`: that waits for "the controller", which may be a broker that has just been killed.
        """
        from confluent_kafka import KafkaError, KafkaException

        self._check_open()
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.admin.list_topics(timeout=max(0.1, deadline - time.monotonic()))
            except KafkaException as error:  # at once, if the connection closed; while none can be made it waits
                if error.args[0].code() != KafkaError._TRANSPORT or time.monotonic() + ASK_AGAIN > deadline:
                    raise Unreachable(address=self.bootstrap, why=words(error)) from None
            time.sleep(ASK_AGAIN)

    def describe_group(self, group: str, seconds: float = 5.0, operations: bool = False) -> Group:
        """A group's members. operations: also what this user may do with it.

        KafkaException: Kafka's answer, or an error of the client (a code below 0) if there was none.
        """
        from kqlib.kafka import members

        settings = self.client(**ALL_CONNECTED)
        if any(callable(value) for value in settings.values()):  # a callback cannot go to another process
            return members.ask(self.admin, group, seconds, operations)
        if self._asks is None:
            self._asks = members.Asker(settings)
            weakref.finalize(self, forks.only_here(self._asks.close))
        return self._asks.describe(group, seconds, operations)

    def partitions(self, topic: str) -> dict[int, Any]:
        """A topic's partitions by number, now: confluent_kafka's PartitionMetadata (leader, replicas, isrs).

        Every topic is asked for: asking for one by name creates it where a broker allows that.
        """
        found = self.describe().topics.get(topic)
        if found is None:
            raise TopicMissing(topic=topic)
        return dict(sorted(found.partitions.items()))

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of the broker that leads this partition; None while there is none."""
        found = self.partitions(topic)
        if partition not in found:
            raise NotAllowed(f"'{topic}' has partitions 0 to {len(found) - 1}, not {partition}")
        leader = found[partition].leader
        return leader if leader >= 0 else None

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that can be asked; an embedded cluster knows its own processes."""
        return self.brokers

    def knows(self, number: int, topic: str) -> bool | None:
        """Does this very broker know the topic? None: this user may not ask.

        `list_topics` asks any broker. A question about a broker's settings goes to that broker, and can ask for a topic's as well.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        self._check_open()
        there = ConfigResource(ResourceType.TOPIC, topic)
        asked = [ConfigResource(ResourceType.BROKER, str(number)), there]
        try:
            self.admin.describe_configs(asked, request_timeout=ANSWER)[there].result(2 * ANSWER)
            return True
        except TimeoutError:
            why = "no answer"
        except KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                return False
            if error.args[0].name().endswith("AUTHORIZATION_FAILED"):
                return None
            why = words(error)
        raise Unreachable(address=f"broker {number} of {self.bootstrap}", why=why)

    def wait_for_topic(self, topic: str, partitions: int, seconds: float = 30) -> None:
        """Return when each running broker knows a new topic, and its partitions have their leaders."""

        def missing() -> str:
            if late := self._who(topic, knows=False):
                return f"broker {late[0]} does not know it"
            found = self.partitions(topic)
            bare = [number for number in range(partitions) if number not in found or found[number].leader < 0]
            return f"partition {bare[0]} has none" if bare else ""

        self._until_nothing(missing, seconds, f"'{topic}' to have its leaders")

    def wait_until_gone(self, topic: str, seconds: float = 30) -> None:
        """Return when no running broker knows this topic any more."""

        def missing() -> str:
            late = self._who(topic, knows=True)
            return f"broker {late[0]} still has it" if late else ""

        self._until_nothing(missing, seconds, f"'{topic}' to be gone")

    @staticmethod
    def _until_nothing(missing: Callable[[], str], seconds: float, why: str) -> None:
        """Wait until nothing is missing. A broker that does not answer just now is asked again."""
        patience.wait_for(lambda: not missing(), seconds, why, last=missing, not_yet=(KqError,))

    def _who(self, topic: str, knows: bool) -> list[int]:
        """The running brokers that know this topic, or those that do not: each learns by itself what the controller decided."""
        return [number for number in self.running if self.knows(number, topic) is knows]

    def kafka(self, tool: str, *args: str, timeout: float = 60) -> str:
        """Run one of Kafka's own tools against this cluster and return what it printed: `cluster.kafka("topics", "--list")`."""
        self._check_open()
        from kqlib.kafka import tools

        return tools.run(tool, args, self.bootstrap, self._own, timeout)

    def broker(self, number: int) -> Any:
        """A broker to stop, kill, pause: on an embedded cluster only."""
        raise NotAllowed(
            f"broker({number}) can be stopped only on an embedded cluster; this one is at {self.bootstrap}. Unset KQ_BOOTSTRAP"
        )

    def close(self) -> None:
        """Close it; your own cluster runs on."""
        self._close_clients()

    def _close_clients(self) -> None:
        self._closed = True
        self.__dict__.pop("admin", None)
        if self._asks is not None:
            self._asks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Kafka(closed)" if self._closed else "Kafka(one's own cluster)"

    def _admin_client(self, **extra: Any) -> AdminClient:
        from confluent_kafka import KafkaException

        from kqlib.kafka.clients import AdminClient

        try:
            return AdminClient(self.client(**ALL_CONNECTED, **extra))
        except (KafkaException, TypeError, ValueError) as error:
            raise BadConfig(source="the settings of the Kafka client", why=words(error)) from None

    def _check_open(self) -> None:
        self._check_here()
        if self._closed:
            raise Closed(thing="cluster")

    def _check_here(self) -> None:
        forks.check(self._process, f"the cluster at {self.bootstrap}")


def _in_a_fork() -> None:
    """The parent's AdminClients do not work in a fork. A cluster that is asked for one raises, and says why."""
    for kafka in _MADE:
        kafka.__dict__.pop("admin", None)


os.register_at_fork(after_in_child=_in_a_fork)


def reach(bootstrap: str, own: dict[str, Any]) -> Kafka:
    """Your own cluster, asked once: a wrong address is an error now, and not at the first use."""
    complaints: list[str] = []
    kafka = Kafka(bootstrap, own)
    admin = kafka._admin_client(error_cb=lambda error: complaints.append(error.str()))
    deadline = time.monotonic() + ANSWER
    asked = admin.describe_cluster(request_timeout=ANSWER)
    while not asked.done() and time.monotonic() < deadline:
        admin.poll(0.05)  # serves error_cb: it knows why, the request only knows that it timed out
        if any("uthentication" in complaint for complaint in complaints):
            break  # a wrong password does not get better
    if not asked.done() or asked.exception() is not None:
        raise _unreachable(bootstrap, complaints, asked.exception() if asked.done() else None)
    kafka.admin = admin
    return kafka


def check(file: Path) -> None:
    """`BadConfig` if a Kafka client does not take the settings of this file. Nothing is connected."""
    nowhere = Kafka("", {name: value for name, value in settings.read(file).items() if name != "bootstrap.servers"})
    try:
        nowhere._admin_client()
    except BadConfig as error:
        raise settings.located(error, file) from None


def _unreachable(bootstrap: str, complaints: list[str], error: BaseException | None) -> Unreachable:
    telling = [c for c in complaints if "brokers are down" not in c]
    if telling:
        why = telling[0]
    elif any(_listens(address) for address in bootstrap.split(",")):
        why = "something listens there, but does not answer these settings; does it want TLS or a login?"
    else:
        why = words(error) if error else "no answer"
    return Unreachable(address=bootstrap, why=why)


def _listens(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 0.3).close()
    except (OSError, ValueError):
        return False
    return True


def user(cluster: Kafka) -> str:
    """Who asks, as the cluster knows them."""
    name = cluster._own.get("sasl.username")
    return f"user '{name}'" if name else "this user"


def lacks(cluster: Kafka, *rights: object) -> str:
    """Which rights are missing, in the one form in which errors and the doctor say it."""
    who = user(cluster)
    return f"{who[0].upper()}{who[1:]} lacks {', '.join(map(str, rights))}"
