"""Which client is dead: one that says so, or one that hears nobody while a new one does. No broker: with the cluster away none is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kqlib.kafka import Kafka
from kqlib.queue.clients import Kept, judge
from kqlib.queue.sender import Sender

NOWHERE = Kafka("127.0.0.1:1")


SILENT = None  # connected to a broker that does not answer


class Client:
    """A broker answers it, or not, or is SILENT: one answer after another, the last one for ever."""

    def __init__(self, *hears: bool | None) -> None:
        self.hears, self.closed = list(hears), False

    def list_topics(self, timeout: float) -> Any:
        if not (now := self.hears.pop(0) if len(self.hears) > 1 else self.hears[0]):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT if now is SILENT else KafkaError._TRANSPORT))
        return SimpleNamespace(brokers={1: "a broker"})

    def close(self) -> None:
        self.closed = True


class Somewhere(Kafka):
    """A cluster whose next AdminClient is this one."""

    def __init__(self, fresh: Client) -> None:
        super().__init__("somewhere")
        self.fresh: Any = fresh

    def _admin_client(self, **_: Any) -> Any:
        return self.fresh


# what the old client hears, and a new one; does the old one hold something; is it dead?
VERDICTS: dict[str, tuple[Client, Client, float, bool]] = {
    "it hears someone": (Client(True), Client(True), 0.0, False),
    "the cluster is away": (Client(False), Client(False), 0.0, False),
    "a new one hears someone": (Client(False), Client(True), 0.0, True),
    "it comes back with the cluster, and holds something": (Client(False, True), Client(True), 3.0, False),
    "it holds something, and does not come back": (Client(False), Client(True), 3.0, True),
    "it holds something, and its broker is silent": (Client(SILENT), Client(True), 3.0, False),
    "it holds something, and comes to a silent broker": (Client(False, SILENT), Client(True), 3.0, False),
    "it only asks, and its broker is silent": (Client(SILENT), Client(True), 0.0, True),
}


@pytest.mark.parametrize(("old", "fresh", "holds", "dead"), VERDICTS.values(), ids=VERDICTS)
def test_a_client_is_dead_when_it_hears_nobody_and_a_new_one_does(
    old: Client, fresh: Client, holds: float, dead: bool
) -> None:
    cluster = Somewhere(fresh)
    assert judge(cluster, old, holds) is dead
    assert cluster.verdicts == dead and (cluster.__dict__.get("admin") is fresh) is dead


def test_after_a_verdict_every_client_that_only_asks_is_made_anew(within: Callable[..., float]) -> None:
    cluster, made = Somewhere(Client(True)), list[Client]()

    def make() -> Client:
        made.append(Client(False))
        return made[-1]

    kept, other = Kept(cluster, make), Kept(cluster, make)
    first, second = kept.now(), other.now()
    assert kept.now() is first and kept.dead()
    assert kept.now() not in (first, second) and other.now() not in (first, second)
    within(5, lambda: first.closed and second.closed)


def test_a_producer_that_reports_a_fatal_error_is_replaced_and_one_without_a_cluster_is_kept(
    within: Callable[..., float],
) -> None:
    sender = Sender(NOWHERE)
    old = sender._made()
    sender._suspected = True
    within(10, lambda: not sender._suspected)
    assert sender._producer is old
    sender._complaint(KafkaError(KafkaError._FATAL))
    within(10, lambda: sender._producer is not old)
    sender.close()
