"""faststream==0.7.8: a subscriber and a publisher with the defaults.

Promises: at most once: with ACK_FIRST, the default, Kafka's client commits by itself (auto-commit).
Again: python -m examples.crash.page faststream_default
"""

import asyncio
import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ["KQ_BOOTSTRAP"])
app = FastStream(broker)


@broker.subscriber(
    os.environ["KQ_TOPIC"],
    group_id=os.environ["KQ_GROUP"],
    auto_offset_reset="earliest",
)
@broker.publisher(os.environ["KQ_RESULTS"])
async def work(value: int) -> str:
    await asyncio.sleep(0.001)
    return f"done {value}"


asyncio.run(app.run())
