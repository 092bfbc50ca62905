"""A worker that reads Avro, on kqlib's schemas: every version into its own schema, also versions that come while it runs.

Promise, as its test shows with `kq crash`: no record is lost, wherever the worker dies; it may be worked on twice. What cannot be
read goes to KQ_ASIDE with its key, its bytes and the cause. A record whose schema is not known waits for it, KQ_SCHEMA_WAIT seconds
at most (default: 60). If no registry answers for so long, the worker ends, and a new start goes on there.

KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP, KQ_RESULTS and KQ_ASIDE say where, KQ_REGISTRY is the address of a schema registry (default: the
cluster's own topic kq.schemas). SIGTERM ends it after the record in hand. Exit status: 0 ended by SIGTERM, 1 it cannot go on.
"""

import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

import kqlib as kq

TOPIC, RESULTS, ASIDE = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"], os.environ["KQ_ASIDE"]
GROUP, REGISTRY = os.environ["KQ_GROUP"], os.environ.get("KQ_REGISTRY")
SCHEMA_WAIT = float(os.environ.get("KQ_SCHEMA_WAIT", "60"))  # less than max.poll.interval.ms, which is 5 minutes
GOAL = {"type": "record", "name": "Goal", "fields": [{"name": "number", "type": "long"}]}  # all that it reads of a goal
log = logging.getLogger("worker")


def work(goal: dict[str, Any]) -> bytes:
    """The work itself. A goal has the fields of this program, whatever its writer's schema was."""
    return b"done %d" % goal["number"]


class Worker:
    """Reads a topic as a member of a group, until `stop` is called."""

    def __init__(self, cluster: Any, codec: kq.schemas.Codec) -> None:
        self.codec = codec
        self.stopping = threading.Event()
        self.producer = Producer(cluster.client(enable_idempotence=True))
        self.consumer = Consumer(cluster.client(group_id=GROUP))  # kqlib's defaults: no auto-commit

    def run(self) -> None:
        """Work until SIGTERM. KafkaException: this process cannot go on; start another one."""
        try:
            self.consumer.subscribe([TOPIC])
            while not self.stopping.is_set():
                message = self.consumer.poll(0.5)
                if message is not None:
                    self.one(message)
        finally:
            self.consumer.close()

    def one(self, message: Message) -> None:
        """One record: its result is stored, or the record itself in KQ_ASIDE. The commit comes afterwards."""
        if (event := message.error()) is not None:
            if event.fatal() or event.name().endswith("AUTHORIZATION_FAILED"):
                raise KafkaException(event)
            log.warning("the client goes on: %s", event.str())
            return
        try:
            goal = self.decoded(message.value())
            if goal is not None:  # a tombstone has no value
                self.write(RESULTS, work(goal), message.key())
        except (kq.errors.CorruptPayload, kq.errors.IncompatibleSchema, kq.errors.UnknownSchema) as error:
            self.put_aside(message, error)
        try:
            self.consumer.commit(message, asynchronous=False)
        except KafkaException as failed:  # the next commit covers it, or the partition's new owner works on it again
            if failed.args[0].fatal():
                raise
            log.warning("not committed: %s", failed)

    def decoded(self, data: bytes | None) -> Any:
        """The value. A registry may be away for a moment, or learn of a schema later than this program."""
        until = time.monotonic() + SCHEMA_WAIT
        while True:
            try:
                return self.codec.decode(data)
            except (kq.errors.UnknownSchema, kq.errors.NoRegistry) as error:
                if self.stopping.wait(1.0):
                    sys.exit(0)  # the next start decides
                if time.monotonic() > until:
                    raise
                log.warning("a record waits: %s", error)

    def put_aside(self, message: Message, error: kq.errors.KqError) -> None:
        """The record as it came, with its place as the key, and why it is here. `kq.spark.put_back` can put it back."""
        place = f"{message.topic()}/{message.partition()}/{message.offset()}"
        log.error("%s is put aside: %s", place, error)
        headers = [*(message.headers() or []), ("kq-key", message.key()), ("kq-time", str(message.timestamp()[1]))]
        headers += [("kq-cause", type(error).__name__), ("kq-why", str(error))]
        self.write(ASIDE, message.value(), place, headers)

    def write(self, topic: str, value: bytes, key: Any, headers: Any = None) -> None:
        """Return when it is stored; raise if it is not. One record at a time, so the client's buffer is never full."""
        reports: list[KafkaError | None] = []
        self.producer.produce(topic, value, key, headers=headers, on_delivery=lambda error, _: reports.append(error))
        self.producer.flush()
        if reports[0] is not None:
            raise KafkaException(reports[0])


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        with kq.connect() as cluster:
            registry = kq.schemas.Registry(url=REGISTRY) if REGISTRY else kq.schemas.Registry(cluster=cluster)
            worker = Worker(cluster, registry.codec(f"{TOPIC}-value-{GROUP}", GOAL))  # no version that anybody writes
            signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
            worker.run()
    except (kq.errors.KqError, KafkaException) as error:  # it says what happened, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
