"""kafka-python==3.0.12: commit() after the result is acknowledged.

Promises: commit() blocks until the offsets are stored; a restart goes on there. No guarantee is named.
Again: python -m examples.crash.page kafka_python_manual
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
    enable_auto_commit=False,
)
producer = KafkaProducer(bootstrap_servers=address)

try:
    for message in consumer:
        sent = producer.send(os.environ["KQ_RESULTS"], work(message.value), message.key)
        sent.get(timeout=60)
        consumer.commit()
finally:
    producer.close()
    consumer.close()
