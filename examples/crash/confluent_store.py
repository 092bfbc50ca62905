"""confluent-kafka==2.16.0: store_offsets() after the result is acknowledged; the commit runs in the background.

Promises: at least once, with enable.auto.offset.store=false and store_offsets() after the work.
Again: python -m examples.crash.page confluent_store
"""

import os
import signal
import sys
import time

from confluent_kafka import Consumer, Producer


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
        "enable.auto.offset.store": False,
    }
)
producer = Producer({"bootstrap.servers": address})
consumer.subscribe([os.environ["KQ_TOPIC"]])

try:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            print(message.error(), file=sys.stderr)
            continue
        producer.produce(os.environ["KQ_RESULTS"], work(message.value()), message.key())
        producer.flush()
        consumer.store_offsets(message)
finally:
    consumer.close()
