"""confluent-kafka==2.16.0: auto-commit, the default, and produce() without waiting.

Promises: what poll() returned is committed each 5 s in the background. If its work was not done at a crash, it is missed.
Again: python -m examples.crash.page confluent_auto
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
        producer.poll(0)
finally:
    producer.flush()
    consumer.close()
