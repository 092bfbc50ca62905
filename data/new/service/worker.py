"""Works on orders: each one becomes a receipt.

Promise: each order has one receipt for readers with isolation.level=read_committed, wherever a worker dies. The receipt and the ack of
the order are one transaction. An order that fails is tried five times, later each time. Then it is a dead letter.

    kq topics apply plan.toml    # once, and after each change of the plan
    python worker.py             # as many of them as you like

KQ_BOOTSTRAP names the cluster, KQ_KAFKA_CONFIG a file with its settings. SIGTERM ends a worker after the items in hand.
"""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.queue import Item, Queue

HERE = Path(__file__).parent
SITE = "new-service"  # all workers of one site share the work; another site gets every order too
SCHEMA = json.loads((HERE / "schemas" / "order.avsc").read_text(encoding="utf-8"))
RETRY = kq.Retry.exponential(
    1, cap=300, jitter=0.2, never=(ValueError, kq.errors.CorruptPayload)
)  # bad data is bad tomorrow, too
log = logging.getLogger("worker")


def orders(cluster: Kafka) -> kq.schemas.Codec:
    """Orders to bytes and back. A schema that may not follow the earlier ones is refused here."""
    return kq.schemas.Registry(cluster=cluster).codec("orders-value", SCHEMA)


def receipt(order: dict[str, Any]) -> bytes:
    """The work itself: an order in, a receipt out. A ValueError makes a dead letter, another exception is tried again."""
    if order["pieces"] < 1:
        raise ValueError(f"{order['pieces']} pieces cannot be ordered")
    return f"{order['customer']} pays {order['pieces'] * order['cents']} cents".encode()


def run(queue: Queue, receipts: Queue, work: Callable[[bytes], bytes], until: Any = None) -> None:
    """Work until SIGTERM, or until what `Queue.work` knows as `until`."""

    def handle(item: Item) -> None:
        try:
            result = work(item.data or b"")
        except Exception as error:
            log.warning("%s failed at attempt %d: %s", item.id, item.attempt, error)
            raise  # the queue decides: later again, or a dead letter
        with queue.step(item) as step:
            step.put(receipts, result, item.key)

    log.info("%s", queue.work(handle, threads=4, retry=RETRY, until=until))


def main() -> int:
    """One worker."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        with kq.connect() as cluster, kq.Site(cluster, SITE) as site:
            codec = orders(cluster)
            run(site.queue("orders", max_attempts=5), site.queue("receipts"), lambda data: receipt(codec.decode(data)))
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
