"""When a site's consumer reports an error: which ones end it, and that another consumer then joins in its place. No broker."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from kqlib.queue import session
from kqlib.queue.session import Session
from tests.patience import PATIENCE, until

# what a consumer reports in a message without a topic; must it be replaced?
REPORTS = {
    "a heartbeat was refused for good": (KafkaError(KafkaError._FATAL, "ConsumerGroupHeartbeat fatal error"), True),
    "fenced": (KafkaError(KafkaError._FENCED, fatal=True), True),
    "no broker is connected": (KafkaError(KafkaError._ALL_BROKERS_DOWN), False),
}


class Consumer:
    """Reports one error, once, and is silent from then on. The ones after the first report nothing."""

    def __init__(self, made: list[Any], error: KafkaError) -> None:
        report = SimpleNamespace(topic=lambda: None, partition=lambda: -1, error=lambda: error)
        self.reports = [] if made else [report]
        self.rounds, self.closed, self.topics = 0, False, list[str]()
        made.append(self)

    def subscribe(self, topics: list[str], **_: Any) -> None:
        self.topics = topics

    def consume(self, _many: int, _seconds: float) -> list[Any]:
        self.rounds += not self.reports
        return [self.reports.pop()] if self.reports else []

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("error", "dead"), REPORTS.values(), ids=REPORTS)
def test_a_consumer_that_is_dead_for_good_is_replaced_and_no_other(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError, dead: bool
) -> None:
    made = list[Consumer]()
    monkeypatch.setattr(session, "Consumer", lambda _: Consumer(made, error))
    monkeypatch.setattr(session, "JOIN_AFTER", 0.0)
    cluster: Any = SimpleNamespace(verdicts=0, bootstrap="nowhere", client=dict)
    site = Session(cluster, "here", *cast(Any, [None] * 3))
    site.subscriptions.claim("football", time.monotonic())
    site.start()
    closed = [True, False] if dead else [False]
    try:
        until(
            lambda: made and made[-1].rounds > 2 and [each.closed for each in made] == closed,
            lambda: site.trouble,
            5.0 * PATIENCE,
        )
        assert made[-1].topics == ["football"]
    finally:
        site.stop(5.0 * PATIENCE, give_back=True)
