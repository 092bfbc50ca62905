"""aiokafka==0.14.0: results and offsets in one transaction for each batch.

Promises: exactly once, if results and offsets are in one transaction and readers read only what is committed.
Again: python -m examples.crash.page aiokafka_transactions
"""

import asyncio
import os
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def work(value: bytes) -> bytes:
    await asyncio.sleep(0.001)
    return b"done " + value


async def main() -> None:
    address, group = os.environ["KQ_BOOTSTRAP"], os.environ["KQ_GROUP"]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    consumer = AIOKafkaConsumer(
        os.environ["KQ_TOPIC"],
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=os.environ["KQ_TXN"])
    await consumer.start()
    await producer.start()
    try:
        while True:
            batches = await consumer.getmany(timeout_ms=1000)
            if not batches:
                continue
            async with producer.transaction():
                for messages in batches.values():
                    for message in messages:
                        result = await work(message.value)
                        await producer.send(os.environ["KQ_RESULTS"], result, message.key)
                offsets = {partition: messages[-1].offset + 1 for partition, messages in batches.items()}
                await producer.send_offsets_to_transaction(offsets, group)
    except asyncio.CancelledError:
        print("SIGTERM: the worker ends")
    finally:
        await consumer.stop()
        await producer.stop()


asyncio.run(main())
