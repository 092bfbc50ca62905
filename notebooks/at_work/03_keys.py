"""A stage that gives records a key: it reads one topic and writes another one, and keeps the order of each key.

Promise, as `kq crash --allow doubled -- python 03_keys.py` shows: no record is lost, wherever the program dies, and no key is out of
order. After a death records come twice: what counts for the order is the first of each. A key is where Java's clients put it.
A topic that does not have KQ_PARTITIONS partitions (default: 1) is refused: where a topic has grown, a key is in two places.
KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP and KQ_RESULTS say where. SIGTERM ends it after the batch in hand, and a new start goes on there.
"""

import logging
import os
import signal
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, murmur2

ADDRESS, TOPIC, RESULTS = os.environ["KQ_BOOTSTRAP"], os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]
PARTITIONS = int(os.environ.get("KQ_PARTITIONS", "1"))
HOPELESS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
READER = {"group.id": os.environ["KQ_GROUP"], "auto.offset.reset": "earliest", "enable.auto.commit": False}
WRITER = {
    "partitioner": "murmur2_random",  # as in Java; the default of this client is another hash
    "enable.idempotence": True,  # a retry does not change the order
    "enable.gapless.guarantee": True,  # nor does a refused record: no later one is stored (experimental, says librdkafka)
    "delivery.timeout.ms": 0,  # no limit: no record is given up before a later one is stored
    "topic.metadata.refresh.interval.ms": 10_000,  # a topic that grows is noticed after so long
}
log = logging.getLogger("stage")


def work(value: bytes) -> tuple[bytes, bytes]:
    """The key and the work itself. A value is b"ARS-CHE goal 45": the key is the game, since a game's events must be in order."""
    return value.split(b" ", 1)[0], b"done " + value


def on_delivery(error: KafkaError | None, message: Message) -> None:
    """The delivery report of one result; poll() and flush() raise what it raises. Is its key where it has always been?"""
    if error is None and message.partition() != murmur2(message.key() or b"", PARTITIONS):
        error = KafkaError(KafkaError.INVALID_PARTITIONS, f"{RESULTS!r} has grown: its keys move")
    if error is not None:
        raise KafkaException(error)


class Stage:
    """Reads and writes in batches, until `stop` is called."""

    def __init__(self) -> None:
        self.stopping = False
        self.producer = Producer({"bootstrap.servers": ADDRESS, **WRITER, "logger": log})
        self.consumer = Consumer({"bootstrap.servers": ADDRESS, **READER, "logger": log})

    def stop(self, *_: object) -> None:
        self.stopping = True

    def run(self) -> None:
        """Work until SIGTERM. KafkaException: this process cannot go on; start another one."""
        try:
            self.check_topics()
            self.consumer.subscribe([TOPIC])
            while not self.stopping:
                first = self.consumer.poll(0.5)
                if first is not None:
                    self.batch([first, *self.consumer.consume(499, 0)])  # so many may come twice after a death
        finally:
            self.consumer.close()

    def check_topics(self) -> None:
        """Refuse topics of another size. All topics are asked for: a question about one topic can create it."""
        topics = self.consumer.list_topics(timeout=30).topics
        for name in (TOPIC, RESULTS):
            if name not in topics or len(topics[name].partitions) != PARTITIONS:
                wrong = KafkaError(KafkaError.INVALID_PARTITIONS, f"{name!r} does not have {PARTITIONS} partitions")
                raise KafkaException(wrong)

    def batch(self, messages: list[Message]) -> None:
        """Write the results in the order of the records. The commit comes when all are stored."""
        for message in messages:
            if (error := message.error()) is None:
                self.write(*work(message.value() or b""))
            elif error.fatal() or error.code() in HOPELESS:
                raise KafkaException(error)
            else:
                log.warning("the client goes on: %s", error.str())
        while self.producer.flush(1.0) > 0 and not self.stopping:
            log.info("waiting for %d reports", len(self.producer))
        if len(self.producer) == 0:
            self.commit()

    def write(self, key: bytes, value: bytes) -> None:
        """Hand one result to the client. If its buffer is full, wait until there is space."""
        while True:
            try:
                self.producer.produce(RESULTS, value, key, on_delivery=on_delivery)
                break
            except BufferError:
                self.producer.poll(1.0)

    def commit(self) -> None:
        """Commit what was read. If a partition has moved, its new owner writes these results again."""
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as failed:
            if failed.args[0].fatal():
                raise
            log.warning("not committed: %s", failed)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stage = Stage()
    signal.signal(signal.SIGTERM, stage.stop)
    try:
        stage.run()
    except KafkaException as error:
        log.error("cannot go on: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
