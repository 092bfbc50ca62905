"""confluent-kafka==2.16.0: ShareConsumer, acknowledged one by one.

Promises: a record that is not acknowledged in 30 s comes again, to any member; after 5 deliveries it is gone. No order. A preview.
Again: python -m examples.crash.page share_consumer
"""

import os
import signal
import sys
import time

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
address, group = os.environ["KQ_BOOTSTRAP"], os.environ["KQ_GROUP"]
# A share group starts at the topic's end, unless the group's own setting says otherwise.
start = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[start])
admin = AdminClient({"bootstrap.servers": address})
admin.incremental_alter_configs([resource])[resource].result()
consumer = ShareConsumer(
    {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"},
)
producer = Producer({"bootstrap.servers": address})
consumer.subscribe([os.environ["KQ_TOPIC"]])

try:
    while True:
        for message in consumer.poll(1.0):
            if message.error():
                print(message.error(), file=sys.stderr)
                continue
            time.sleep(0.001)
            producer.produce(os.environ["KQ_RESULTS"], b"done " + message.value(), message.key())
            producer.flush()
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            for part, error in consumer.commit_sync().items():
                if error is not None:
                    print(part, error, file=sys.stderr)
finally:
    consumer.close()
