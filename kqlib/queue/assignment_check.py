"""Is a member's assignment what the coordinator says? It asks after an answer to one of its heartbeats was lost.

librdkafka drops an answer that arrives after the next heartbeat was due. It does not ask again, and a
broker sends each change only once. A member that missed it keeps a partition that it must give up, or does not serve one that it
was given, until the next rebalance. The client's statistics count such answers.

In:  the statistics of a consumer, and the partitions that its member has. Out: must the member join anew?
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Set
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException

from kqlib.errors import KqError
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.members import Member
from kqlib.queue.item import Place

STATISTICS_EVERY = 2.0  # seconds between two statistics
ASK_EVERY = 1.0  # seconds between two questions


class AssignmentCheck:
    """Compares what one consumer has with what the coordinator says. All calls are made by the thread that polls it."""

    def __init__(self, cluster: Kafka, group: str, give_up: float) -> None:
        """give_up: seconds in which a member hears that it must give up a partition, and does so."""
        self.cluster = cluster
        self.group = group
        self.give_up = give_up
        self._lost = 0  # answers, of all requests
        self._doubt = False  # an answer was lost: perhaps it gave or took a partition
        self._calm = False  # the coordinator is there, and no answer was lost just now
        self._since: dict[tuple[str, Place], float] = {}  # what the coordinator says otherwise, and since when
        self._asked: Future[list[Member]] | None = None
        self._next = 0.0

    def settings(self) -> dict[str, Any]:
        """What the consumer needs."""
        return {"statistics.interval.ms": int(STATISTICS_EVERY * 1000), "stats_cb": self._count}

    def _count(self, statistics: str) -> None:
        counts = json.loads(statistics)
        lost = sum(broker["req_timeouts"] for broker in counts["brokers"].values())
        self._calm = lost == self._lost and counts.get("cgrp", {}).get("state") == "up"
        self._doubt = self._doubt or lost > self._lost
        self._lost = lost

    def missed(self, consumer: Any, have: Set[Place]) -> bool:
        """Has the coordinator given or taken a partition, and this member did not hear of it?"""
        now = time.monotonic()
        if self._asked is None:
            if self._doubt and self._calm and now >= self._next:
                self._next = now + ASK_EVERY
                self._asked = Future()
                threading.Thread(target=self._ask, args=[self._asked], name="kq-asks", daemon=True).start()
            return False
        if not self._asked.done():
            return False
        asked = self._asked
        self._asked = None
        try:
            found = self._differs(asked.result(), consumer.memberid(), have)
        except (KafkaException, KqError, RuntimeError):  # it is asked again
            return False
        self._since = {each: self._since.get(each, now) for each in found}
        self._doubt = bool(found)
        patience = {"given": ASK_EVERY / 2, "taken": self.give_up}
        return any(now - since >= patience[kind] for (kind, _), since in self._since.items())

    def _ask(self, answer: Future[list[Member]]) -> None:
        try:
            answer.set_result(self.cluster.describe_group(self.group).members)
        except Exception as error:  # the thread that polls sees it
            answer.set_exception(error)

    @staticmethod
    def _differs(members: list[Member], me: str, have: Set[Place]) -> set[tuple[str, Place]]:
        mine = [each for each in members if each.member_id == me]
        given = {at for each in mine for at in each.assignment}
        kept = {at for each in mine for at in each.target or ()}
        taken = have - kept if mine else set[Place]()
        return {("given", at) for at in given - have} | {("taken", at) for at in taken}
