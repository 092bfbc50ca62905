"""A small queue on Kafka that is sound, and the same with one mistake each, for `test_explore`.

In:  a cluster, a topic with one partition. Out: put, claim, ack, release. What is done is a list of offsets in the group's commit.
"""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Message, TopicPartition

from kqlib.workshop.ladder import SaveOffset


class Sound(SaveOffset):
    """A claim gives the first record that is neither done nor out. In no group: nothing waits for a rebalance."""

    def __init__(self, cluster: Any, name: str) -> None:
        super().__init__(cluster, name)
        [stored] = self._stored()
        self.done, self.out = set[int](json.loads(stored.metadata or "[]")), set[int]()
        self.records: list[Message] = []
        self.consumer.assign([TopicPartition(name, 0, 0)])

    def claim(self, wait: float = 0) -> Any:
        """It has read to the end, so it need not wait."""
        _, end = self.consumer.get_watermark_offsets(TopicPartition(self.topic, 0))
        while len(self.records) < end:
            self.records += self.consumer.consume(end - len(self.records), 1.0)
        free = [record for record in self.records if record.offset() not in self.done | self.out]
        if not free:
            return None
        item = self.chosen(free)
        self.out.add(item.offset())
        return item

    def chosen(self, free: list[Message]) -> Message:
        """The oldest."""
        return free[0]

    def ack(self, item: Any) -> None:
        """Its offset joins the list."""
        self.out.discard(item.offset())
        self.done.add(item.offset())
        self.note(self.done)

    def release(self, item: Any) -> None:
        """It is free again."""
        self.out.discard(item.offset())

    def note(self, done: set[int]) -> None:
        """Commit the list."""
        at = TopicPartition(self.topic, 0, 0, metadata=json.dumps(sorted(done)))
        self.consumer.commit(offsets=[at], asynchronous=False)


class LastFirst(Sound):
    """The newest item comes first."""

    def chosen(self, free: list[Message]) -> Message:
        return free[-1]


class LosesWhatIsOut(Sound):
    """A claim is committed as if it were done."""

    def claim(self, wait: float = 0) -> Any:
        item = super().claim(wait)
        self.note(self.done | self.out)
        return item


class GivesTwice(Sound):
    """It forgets what is out."""

    def claim(self, wait: float = 0) -> Any:
        item = super().claim(wait)
        self.out.clear()
        return item

    def release(self, item: Any) -> None:
        pass
