"""A work queue on one partition of a Kafka topic. Step 6: a state is about one topic."""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient


class LeaseLost(Exception):
    """This item is not yours any more: write nothing, claim the next one."""


@dataclass(frozen=True)
class Item:
    offset: int
    data: bytes = field(compare=False)  # the other fields are the receipt
    attempt: int
    epoch: int
    topic_id: str


class Ledger:
    def __init__(self, floor, top, open_items, epoch, topic_id):
        self.floor = floor  # everything below is done
        self.top = top  # nothing from here on was handed out
        self.open = open_items  # what is not done between them: offset -> attempts
        self.epoch = epoch  # the number of this owner
        self.topic_id = topic_id

    def claim(self, offset):
        self.open[offset] = self.open.get(offset, 0) + 1
        self.top = max(self.top, offset + 1)
        return self.open[offset]

    def ack(self, offset):
        del self.open[offset]
        if offset == self.floor:
            self.floor = min(self.open, default=self.top)

    def done(self, offset):
        return offset < self.top and offset not in self.open

    def text(self):
        return json.dumps([self.topic_id, self.epoch, self.top, list(self.open.items())])


class Queue:
    def __init__(self, settings, topic, site, clock=time.monotonic):
        self.topic = topic
        self.clock = clock
        self.admin = AdminClient(settings)
        self.producer = Producer(settings)
        group = {"group.id": site, "group.protocol": "consumer", "enable.auto.commit": False}
        self.consumer = Consumer({**settings, **group, "auto.offset.reset": "earliest"})
        self.waiting = {}  # read and not handed out, or given back: offset -> data
        self.leases = {}  # offset -> the item, and when its lease ends
        self.ledger = None  # the partition is not ours yet
        self.consumer.subscribe([topic], on_assign=self.begin, on_revoke=self.drop, on_lost=self.drop)

    def begin(self, consumer, parts):
        for part in parts:  # our one partition, or none
            [state] = consumer.committed([part], timeout=10)
            self.ledger = self.load(max(state.offset, 0), state.metadata)  # below 0: no commit yet
            consumer.incremental_assign([TopicPartition(self.topic, 0, self.ledger.floor)])

    def drop(self, consumer, parts):
        self.ledger = None
        self.waiting.clear()
        self.leases.clear()

    def load(self, floor, text):
        found = self.admin.describe_topics(TopicCollection([self.topic]))[self.topic].result(10)
        now = str(found.topic_id)
        topic_id, epoch, top, open_items = json.loads(text or json.dumps([now, 0, floor, []]))
        if topic_id != now:  # the state of an older topic with this name
            floor, top, open_items = 0, 0, []
        return Ledger(floor, top, dict(open_items), epoch + 1, now)

    def save(self):
        state = TopicPartition(self.topic, 0, self.ledger.floor, self.ledger.text())
        self.consumer.commit(offsets=[state], asynchronous=False)

    def put(self, data, key=None):
        self.producer.produce(self.topic, data, key, on_delivery=stored)
        self.producer.flush()

    def claim(self, lease=30.0, wait=1.0):
        end = time.monotonic() + wait
        while not self.fill():
            if time.monotonic() >= end:
                return None
        offset = min(self.waiting)
        attempt = self.ledger.claim(offset)
        self.save()  # before anyone gets the item
        item = Item(offset, self.waiting.pop(offset), attempt, self.ledger.epoch, self.ledger.topic_id)
        self.leases[offset] = item, self.clock() + lease
        return item

    def fill(self):
        record = self.consumer.poll(0 if self.waiting else 0.1)
        if record is not None and record.error() is None and not self.ledger.done(record.offset()):
            self.waiting[record.offset()] = record.value()
        for offset, (item, end) in list(self.leases.items()):
            if end <= self.clock():
                del self.leases[offset]
                self.waiting[offset] = item.data
        return bool(self.waiting)

    def ack(self, item):
        self.check(item)
        del self.leases[item.offset]
        self.ledger.ack(item.offset)
        self.save()

    def release(self, item):
        self.check(item)
        del self.leases[item.offset]
        self.waiting[item.offset] = item.data

    def extend(self, item, lease=30.0):
        self.check(item)
        self.leases[item.offset] = item, self.clock() + lease

    def check(self, item):
        held, end = self.leases.get(item.offset, (None, 0))
        if held != item or end <= self.clock():
            raise LeaseLost("another worker may have this item: write nothing, claim the next one")

    def close(self):
        self.consumer.close()


def stored(error, record):
    if error is not None:
        raise KafkaException(error)


def main():
    """A worker, as `kq crash` runs it: it claims two items, and acks the second one first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    queue = Queue({"bootstrap.servers": os.environ["KQ_BOOTSTRAP"]}, os.environ["KQ_TOPIC"], os.environ["KQ_GROUP"])
    while True:
        items = [queue.claim(wait=0.5), queue.claim(wait=0.5)]
        for item in filter(None, reversed(items)):
            queue.producer.produce(os.environ["KQ_RESULTS"], b"done " + item.data, on_delivery=stored)
            queue.producer.flush()
            queue.ack(item)


if __name__ == "__main__":
    main()
