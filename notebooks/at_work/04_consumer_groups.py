"""A worker in a consumer group: read a record, work on it, write the result, commit.

Promise, as `kq crash --allow doubled -- python 04_consumer_groups.py` shows: no record is lost, wherever the worker dies. A record may
be worked on twice, so the work must bear that. SIGTERM ends it after the record in hand.

KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP and KQ_RESULTS say where; start as many as there are partitions.
"""

import logging
import os
import signal
import sys
from types import FrameType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

ADDRESS = os.environ["KQ_BOOTSTRAP"]
RESULTS = os.environ["KQ_RESULTS"]
HOPELESS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
log = logging.getLogger("worker")


class Worker:
    """Reads a topic as a member of a group, until `stop` is called."""

    def __init__(self, topic: str, group: str) -> None:
        self.stopping = False
        self.producer = Producer({"bootstrap.servers": ADDRESS, "enable.idempotence": True, "logger": log})
        self.consumer = Consumer(
            {
                "bootstrap.servers": ADDRESS,
                "group.id": group,
                "auto.offset.reset": "earliest",  # where there is no commit yet; the default skips what is there
                "enable.auto.commit": False,  # a commit says that the work is done, so only this program can know
                "max.poll.interval.ms": 300_000,  # longer than the longest work on one record
                "logger": log,
            }
        )
        self.consumer.subscribe([topic], on_revoke=self.on_revoke, on_lost=self.on_lost)

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Another member takes these over. Everything that was worked on is committed already."""
        log.info("given up: %s", [part.partition for part in partitions])

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Another member has these already: what is not committed is worked on again there."""
        log.warning("lost: %s", [part.partition for part in partitions])

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def run(self) -> None:
        """Work until SIGTERM. KafkaException: this process cannot go on; start another one."""
        try:
            while not self.stopping:
                message = self.consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self.work(message)
                elif error.fatal() or error.code() in HOPELESS:
                    raise KafkaException(error)
                else:
                    log.warning("the client goes on: %s", error.str())
        finally:
            self.consumer.close()  # leaves the group, so that others take over at once

    def work(self, message: Message) -> None:
        """One record: the result first, the commit afterwards."""
        self.write(b"done " + (message.value() or b""), message.key())
        try:
            self.consumer.commit(message, asynchronous=False)
        except KafkaException as failed:
            if failed.args[0].fatal():
                raise
            # The next commit covers this one. If the partition has moved, its new owner works on the record again.
            log.warning("not committed: %s", failed)

    def write(self, value: bytes, key: bytes | None) -> None:
        """Return when the result is stored; raise if it is not."""
        reports: list[KafkaError | None] = []
        while True:
            try:
                self.producer.produce(RESULTS, value, key, on_delivery=lambda error, _: reports.append(error))
                break
            except BufferError:
                self.producer.poll(1.0)
        while not reports:  # the report comes within delivery.timeout.ms
            self.producer.poll(1.0)
        if reports[0] is not None:
            raise KafkaException(reports[0])


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    worker = Worker(os.environ["KQ_TOPIC"], os.environ["KQ_GROUP"])
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGINT, worker.stop)
    try:
        worker.run()
    except KafkaException as error:
        log.error("cannot go on: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
