"""confluent-kafka==2.16.0: result and commit in one transaction. Both are there, or neither.

Promises: exactly once for reading, processing and writing, if results and offsets are in one transaction.
Again: python -m examples.crash.page transactions
"""

import os
import signal
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def work(value: bytes) -> bytes:
    time.sleep(0.001)
    return b"done " + value


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
address = os.environ["KQ_BOOTSTRAP"]
consumer = Consumer(
    {
        "bootstrap.servers": address,
        "group.id": os.environ["KQ_GROUP"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)
producer = Producer({"bootstrap.servers": address, "transactional.id": os.environ["KQ_TXN"]})
producer.init_transactions()
consumer.subscribe([os.environ["KQ_TOPIC"]])

try:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            print(message.error(), file=sys.stderr)
            continue
        producer.begin_transaction()
        producer.produce(os.environ["KQ_RESULTS"], work(message.value()), message.key())
        next_one = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        producer.send_offsets_to_transaction([next_one], consumer.consumer_group_metadata())
        producer.commit_transaction()
finally:
    consumer.close()
