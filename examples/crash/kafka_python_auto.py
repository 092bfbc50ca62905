"""kafka-python==3.0.12: auto-commit, the default.

Promises: offsets are committed each 5 s in the background. No guarantee is named.
Again: python -m examples.crash.page kafka_python_auto
"""

import os
import signal
import sys
import time

from kafka import KafkaConsumer, KafkaProducer


def work(value: bytes) -> bytes:
    time.sleep(0.001)
    return b"done " + value


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
address = os.environ["KQ_BOOTSTRAP"]
consumer = KafkaConsumer(
    os.environ["KQ_TOPIC"],
    bootstrap_servers=address,
    group_id=os.environ["KQ_GROUP"],
    auto_offset_reset="earliest",
)
producer = KafkaProducer(bootstrap_servers=address)

try:
    for message in consumer:
        sent = producer.send(os.environ["KQ_RESULTS"], work(message.value), message.key)
        sent.get(timeout=60)
finally:
    producer.close()
    consumer.close()
