"""aiokafka==0.14.0: commit() after the result is acknowledged.

Promises: at least once, if the commit comes after the work.
Again: python -m examples.crash.page aiokafka_manual
"""

import asyncio
import os
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def work(value: bytes) -> bytes:
    await asyncio.sleep(0.001)
    return b"done " + value


async def main() -> None:
    address = os.environ["KQ_BOOTSTRAP"]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    consumer = AIOKafkaConsumer(
        os.environ["KQ_TOPIC"],
        bootstrap_servers=address,
        group_id=os.environ["KQ_GROUP"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=address)
    await consumer.start()
    await producer.start()
    try:
        async for message in consumer:
            result = await work(message.value)
            await producer.send_and_wait(os.environ["KQ_RESULTS"], result, message.key)
            await consumer.commit()
    except asyncio.CancelledError:
        print("SIGTERM: the worker ends")
    finally:
        await consumer.stop()
        await producer.stop()


asyncio.run(main())
