"""Send the lines of standard input to a topic, and know what became of each one.

Promise: a line that is counted as stored is on every in-sync replica. Exit status: 0 all are stored, 1 some are not, 2 the producer
cannot go on. The topic is never created by accident. SIGTERM ends the input; each whole line that was read before is still sent.

    KAFKA_BOOTSTRAP=broker:9092 KAFKA_TOPIC=goals python 01_topics.py < goals.txt
"""

import logging
import os
import select
import signal
import sys
from types import FrameType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

SETTINGS = {
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"],
    "acks": "all",
    "enable.idempotence": True,  # a record that is sent again is stored once, and in its place
    "delivery.timeout.ms": 120_000,  # after so long a record is given up, and its report says so
    "linger.ms": 5,
}
log = logging.getLogger("goals")


class Sender:
    """A producer that counts what is stored and what is not."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.stored = 0
        self.failed = 0
        self.fatal: KafkaError | None = None
        self.stopping = False
        self.producer = Producer({**SETTINGS, "error_cb": self.on_error, "logger": log})

    def on_error(self, error: KafkaError) -> None:
        """Errors of the client itself. It repairs most of them alone: connections, leaders that moved."""
        if error.fatal():
            self.fatal = error
        else:
            log.warning("client: %s", error.str())

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """The delivery report of one record; called from poll() and flush()."""
        if error is None:
            self.stored += 1
        else:
            self.failed += 1
            log.error("not stored: %r: %s", message.value(), error.str())

    def stop(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM or Ctrl-C: end the input. The reports are still waited for."""
        self.stopping = True

    def check_topic(self) -> None:
        """A typo must not wait for two minutes."""
        # the list of all topics: a question about one topic can create it
        if self.topic not in self.producer.list_topics(timeout=30).topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no topic {self.topic!r}"))

    def run(self) -> None:
        """Send each line, until the input ends or SIGTERM comes. No line waits in a buffer of Python: it would be lost."""
        rest, chunk = b"", b"\n"
        while chunk and not self.stopping:
            self.producer.poll(0)  # calls on_delivery, also while no input comes
            if select.select([sys.stdin], [], [], 0.5)[0]:
                chunk = os.read(sys.stdin.fileno(), 65_536)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self.send(line)
        if rest and chunk:
            self.failed += 1
            log.error("not sent: %r: it ended in the middle of this line", rest)
        elif rest:
            self.send(rest)

    def send(self, line: bytes) -> None:
        """Hand one record to the client. If its buffer is full, wait until there is space."""
        while self.fatal is None:
            try:
                self.producer.produce(self.topic, line, on_delivery=self.on_delivery)
                return
            except BufferError:
                self.producer.poll(1.0)
        raise KafkaException(self.fatal)

    def finish(self) -> None:
        """Wait for every report. Each record gets one: after delivery.timeout.ms at the latest."""
        while self.producer.flush(10) > 0:
            log.info("waiting for %d reports", len(self.producer))


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    sender = Sender(os.environ["KAFKA_TOPIC"])
    signal.signal(signal.SIGTERM, sender.stop)
    signal.signal(signal.SIGINT, sender.stop)
    status = 0
    try:
        sender.check_topic()
        sender.run()
    except KafkaException as error:
        log.error("cannot go on: %s", error)
        status = 2
    sender.finish()
    log.info("%d stored, %d not stored", sender.stored, sender.failed)
    return status or int(sender.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
