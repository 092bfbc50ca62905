"""A work queue on one partition of a Kafka topic. Step 1: the floor is stored."""

import os
import signal
import sys
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


@dataclass(frozen=True)
class Item:
    offset: int
    data: bytes
    attempt: int


class Ledger:
    def __init__(self, floor, top, open_items):
        self.floor = floor  # everything below is done
        self.top = top  # nothing from here on was handed out
        self.open = open_items  # what is not done between them: offset -> attempts

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
        return ""  # only the floor is stored


class Queue:
    def __init__(self, settings, topic, site):
        self.topic = topic
        self.producer = Producer(settings)
        group = {"group.id": site, "group.protocol": "consumer", "enable.auto.commit": False}
        self.consumer = Consumer({**settings, **group, "auto.offset.reset": "earliest"})
        self.waiting = {}  # read and not handed out, or given back: offset -> data
        [state] = self.consumer.committed([TopicPartition(topic, 0)], timeout=10)
        self.ledger = self.load(max(state.offset, 0), state.metadata)  # below 0: no commit yet
        self.consumer.assign([TopicPartition(topic, 0, self.ledger.floor)])

    def load(self, floor, text):
        return Ledger(floor, floor, {})

    def save(self):
        state = TopicPartition(self.topic, 0, self.ledger.floor, self.ledger.text())
        self.consumer.commit(offsets=[state], asynchronous=False)

    def put(self, data, key=None):
        self.producer.produce(self.topic, data, key, on_delivery=stored)
        self.producer.flush()

    def claim(self, wait=1.0):
        end = time.monotonic() + wait
        while not self.fill():
            if time.monotonic() >= end:
                return None
        offset = min(self.waiting)
        attempt = self.ledger.claim(offset)
        return Item(offset, self.waiting.pop(offset), attempt)

    def fill(self):
        record = self.consumer.poll(0 if self.waiting else 0.1)
        if record is not None and record.error() is None and not self.ledger.done(record.offset()):
            self.waiting[record.offset()] = record.value()
        return bool(self.waiting)

    def ack(self, item):
        self.ledger.ack(item.offset)
        self.save()

    def release(self, item):
        self.waiting[item.offset] = item.data

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
