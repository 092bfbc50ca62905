"""pyrallel-consumer==1.0.0: an async worker, order by key, the defaults.

Promises: at least once; results that are done but not yet committed may be repeated after a restart; order for each key.
Again: python -m examples.crash.page pyrallel
"""

import asyncio
import os
import signal

from confluent_kafka import Producer
from pyrallel_consumer.config import KafkaConfig
from pyrallel_consumer.consumer import PyrallelConsumer
from pyrallel_consumer.dto import ExecutionMode, WorkItem

config = KafkaConfig(BOOTSTRAP_SERVERS=[os.environ["KQ_BOOTSTRAP"]], CONSUMER_GROUP=os.environ["KQ_GROUP"])
config.parallel_consumer.execution.mode = ExecutionMode.ASYNC
producer = Producer({"bootstrap.servers": os.environ["KQ_BOOTSTRAP"]})


async def work(item: WorkItem) -> None:
    await asyncio.sleep(0.001)
    producer.produce(os.environ["KQ_RESULTS"], b"done " + item.payload, item.key)
    await asyncio.to_thread(producer.flush)


async def main() -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    consumer = PyrallelConsumer(config=config, worker=work, topic=os.environ["KQ_TOPIC"])
    await consumer.start()
    await over.wait()
    await consumer.stop()


asyncio.run(main())
