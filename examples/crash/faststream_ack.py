"""faststream==0.7.8: AckPolicy.ACK.

Promises: at least once: the offset is committed after the handler, also if the handler failed.
Again: python -m examples.crash.page faststream_ack
"""

import asyncio
import os

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ["KQ_BOOTSTRAP"])
app = FastStream(broker)


@broker.subscriber(
    os.environ["KQ_TOPIC"],
    group_id=os.environ["KQ_GROUP"],
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.ACK,
)
@broker.publisher(os.environ["KQ_RESULTS"])
async def work(value: int) -> str:
    await asyncio.sleep(0.001)
    return f"done {value}"


asyncio.run(app.run())
