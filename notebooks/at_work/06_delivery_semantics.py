"""Exactly once from topic to topic: the result and the commit are one transaction.

Promise, as `kq crash -- python 06_delivery_semantics.py` shows: wherever the worker dies, each record has one result for readers with
isolation.level=read_committed. Work outside of Kafka is not covered: a mail that was sent is not unsent.

KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP, KQ_RESULTS and KQ_TXN say where. KQ_TXN is the transactional id: one for each worker, the same
after a restart. SIGTERM ends it after the transaction in hand. Exit status 1: it cannot go on, start it again. It also ends so
when a call to the client does not return (librdkafka 5456: `send_offsets_to_transaction`, after its broker was restarted).
"""

import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

ADDRESS = os.environ["KQ_BOOTSTRAP"]
TOPIC, RESULTS, TXN = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"], os.environ["KQ_TXN"]
SECONDS = 15  # for one answer of a transaction's coordinator
READER = {
    "group.id": os.environ["KQ_GROUP"],
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,  # the transaction commits
    "isolation.level": "read_committed",
}
HOPELESS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
log = logging.getLogger("worker")


class Worker:
    """Reads, works and writes in transactions, until `stop` is called."""

    def __init__(self) -> None:
        self.stopping = False
        self.producer = Producer({"bootstrap.servers": ADDRESS, "transactional.id": TXN, "logger": log})
        self.consumer = Consumer({"bootstrap.servers": ADDRESS, **READER, "logger": log})

    def stop(self, *_: object) -> None:
        self.stopping = True

    def run(self) -> None:
        """Work until SIGTERM. KafkaException: this process cannot go on; start another one."""
        try:
            self.again(lambda: self.producer.init_transactions(SECONDS))  # fences the life before
            self.consumer.subscribe([TOPIC])
            while not self.stopping:
                if (message := self.consumer.poll(0.5)) is None:
                    continue
                error = message.error()
                if error is None:
                    self.one(message)
                elif error.fatal() or error.code() in HOPELESS:
                    raise KafkaException(error)
                else:
                    log.warning("the client goes on: %s", error.str())
        finally:
            self.consumer.close()

    def one(self, message: Message) -> None:
        """One record in one transaction. After an abort it is read again."""
        offset = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        try:
            self.producer.begin_transaction()
            self.write(b"done " + (message.value() or b""), message.key())
            group = self.consumer.consumer_group_metadata()  # refused if the group has moved the partition
            self.again(lambda: self.producer.send_offsets_to_transaction([offset], group, SECONDS))
            self.again(lambda: self.producer.commit_transaction(SECONDS))
        except KafkaException as failed:
            if not failed.args[0].txn_requires_abort():
                raise  # fatal: another worker has this transactional id
            log.warning("aborted: %s", failed)
            self.again(lambda: self.producer.abort_transaction(SECONDS))
            self.back_to(message)

    def back_to(self, message: Message) -> None:
        """Read this record again, unless another member has its partition now."""
        part = TopicPartition(message.topic(), message.partition(), message.offset())
        if any(mine.partition == part.partition for mine in self.consumer.assignment()):
            self.consumer.seek(part)

    def write(self, value: bytes, key: bytes | None) -> None:
        """Hand the result to the client. Its failure aborts the transaction, so no report is needed here."""
        while True:
            try:
                self.producer.produce(RESULTS, value, key)
                return
            except BufferError:
                self.producer.poll(1.0)

    def again(self, call: Callable[[], object]) -> object:
        """Call until there is an answer: a retriable error says that nothing is decided yet."""
        while True:
            faulthandler.dump_traceback_later(2 * SECONDS, exit=True)  # exit status 1, and standard error has the place
            try:
                return call()
            except KafkaException as failed:
                if not failed.args[0].retriable() or self.stopping:
                    raise
                log.warning("once more: %s", failed)
            finally:
                faulthandler.cancel_dump_traceback_later()


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    worker = Worker()
    signal.signal(signal.SIGTERM, worker.stop)
    try:
        worker.run()
    except KafkaException as error:
        log.error("cannot go on: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
