"""Commit, then write the result: what is committed and not yet written when the process dies is lost.

kq crash -- python examples/crash/at_most_once.py
"""

import os
import signal
import sys

from confluent_kafka import Consumer, Producer

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
address = os.environ["KQ_BOOTSTRAP"]
consumer = Consumer(
    {
        "bootstrap.servers": address,
        "group.id": os.environ["KQ_GROUP"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
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
        consumer.commit(message, asynchronous=False)
        producer.produce(os.environ["KQ_RESULTS"], b"done " + message.value(), message.key())
        producer.flush()
finally:
    consumer.close()
