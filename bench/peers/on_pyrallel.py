"""Jobs on pyrallel-consumer and Kafka: asynchronous workers, at most eight at once, in the order of keys or in none."""

from __future__ import annotations

import asyncio
import json

from confluent_kafka import Producer
from peer import NAME, SERVER, THREADS, job, main
from pyrallel_consumer import KafkaConfig, OrderingMode, PyrallelConsumer, WorkItem

producer = Producer({"bootstrap.servers": SERVER, "acks": "all", "enable.idempotence": True, "linger.ms": 0})


def put(number: int, ms: float, moment: float) -> None:
    """One record, confirmed by all replicas."""
    producer.produce(NAME, json.dumps([number, ms, moment]), b"%d" % (number % 97))
    producer.flush(30)


async def handle(item: WorkItem) -> None:
    """A job's sleep must not stop the loop."""
    number, ms, moment = json.loads(item.payload)
    if ms:
        await asyncio.sleep(ms / 1e3)
    job(number, 0, moment)


async def run() -> None:
    """Until this process is ended."""
    config = KafkaConfig(BOOTSTRAP_SERVERS=[SERVER], CONSUMER_GROUP=NAME, SESSION_TIMEOUT_MS=6_000, dlq_enabled=False)
    config.parallel_consumer.ordering_mode = (
        OrderingMode.KEY_HASH if NAME.endswith("by-key") else OrderingMode.UNORDERED
    )
    config.parallel_consumer.execution.max_in_flight = THREADS
    consumer = PyrallelConsumer(config=config, worker=handle, topic=NAME)
    await consumer.start()
    while True:
        await asyncio.sleep(1)


main(put, lambda: asyncio.run(run()))
