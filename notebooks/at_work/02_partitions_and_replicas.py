"""Send the lines of standard input to a topic, and lose none when a broker dies. Lines that are not stored go to standard output.

Promise: a line that counts as stored is on KAFKA_COPIES machines or more (default: 2), so all of these but one may be lost. A topic
that cannot promise this is refused. Each other line that was read is on standard output, to be sent again. If only its answer was
lost, it is stored all the same, and then twice. SIGTERM ends the input; what was read before is still sent. A SIGKILL loses lines:
keep the input until the end. Exit status: 0 all are stored, 1 some are not, 2 the topic is refused, or the producer cannot go on.

    KAFKA_BOOTSTRAP=broker:9092 KAFKA_TOPIC=goals python 02_partitions_and_replicas.py < goals.txt > again.txt
"""

import logging
import os
import select
import signal
import sys

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

ADDRESS, TOPIC = os.environ["KAFKA_BOOTSTRAP"], os.environ["KAFKA_TOPIC"]
COPIES = int(os.environ.get("KAFKA_COPIES", "2"))  # 1: for a lab with one broker
SETTINGS = {
    "bootstrap.servers": ADDRESS,
    "acks": "all",  # acknowledged when all replicas in sync have it, and they are min.insync.replicas or more
    "enable.idempotence": True,  # a record that is sent again is stored once, and in its place
    "delivery.timeout.ms": 120_000,  # longer than the choice of a new leader; then the record is given up
}
log = logging.getLogger("goals")


def check_topic() -> None:
    """Refuse a topic whose acknowledged records can be lost. The question does not create it."""
    admin = AdminClient({"bootstrap.servers": ADDRESS, "log_level": 2})
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(30)
    replicas = min(len(partition.replicas) for partition in described.partitions)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    settings = admin.describe_configs([resource])[resource].result(30)
    least, unclean = (settings[name].value for name in ("min.insync.replicas", "unclean.leader.election.enable"))
    words = f"{TOPIC!r} has {replicas} replicas, min.insync.replicas={least}, unclean.leader.election.enable={unclean}"
    if min(replicas, int(least)) < COPIES or unclean == "true":
        raise KafkaException(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, f"{words}: {COPIES} copies are not sure"))
    if replicas <= int(least):
        log.warning("%s: while one broker is down, nothing is stored", words)


class Sender:
    """A producer that counts what is stored, and writes all else to standard output."""

    def __init__(self) -> None:
        self.stored, self.failed, self.stopping, self.fatal = 0, 0, False, False
        self.producer = Producer({**SETTINGS, "error_cb": self.on_error, "logger": log})

    def stop(self, *_: object) -> None:
        self.stopping = True

    def on_error(self, error: KafkaError) -> None:
        """Errors of the client itself. It repairs most of them alone: connections, leaders that moved."""
        log.warning("client: %s", error.str())
        self.fatal |= error.fatal()

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """The delivery report of one record. The client has tried until delivery.timeout.ms, if that was of any use."""
        if error is None:
            self.stored += 1
        else:
            self.not_stored(message.value() or b"", error.str())

    def not_stored(self, line: bytes, why: str) -> None:
        """To standard output, at once: it is the input of the next call."""
        self.failed += 1
        log.error("not stored: %s", why)
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()

    def run(self) -> None:
        """Send each line, until the input ends or SIGTERM comes. No line waits in a buffer of Python."""
        rest, chunk = b"", b"\n"
        while chunk and not (self.stopping or self.fatal):
            self.producer.poll(0)  # calls on_delivery, also while no input comes
            if select.select([sys.stdin], [], [], 0.5)[0]:
                chunk = os.read(sys.stdin.fileno(), 65_536)
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    self.send(line)
        if rest and chunk:
            self.not_stored(rest, "it ended in the middle of this line")
        elif rest:
            self.send(rest)

    def send(self, line: bytes) -> None:
        """Hand one record to the client. If its buffer is full, wait until there is space."""
        while True:
            try:
                self.producer.produce(TOPIC, line, on_delivery=self.on_delivery)
                break
            except BufferError:
                self.producer.poll(1.0)
            except KafkaException as error:  # too large, or the client has a fatal error: no report will come
                self.not_stored(line, str(error))
                break


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        check_topic()
    except (KafkaException, TimeoutError) as error:
        log.error("nothing was read: %r", error)
        return 2
    sender = Sender()
    signal.signal(signal.SIGTERM, sender.stop)
    signal.signal(signal.SIGINT, sender.stop)
    sender.run()
    sender.producer.flush()  # each record gets its report, after delivery.timeout.ms at the latest
    log.info("%d stored, %d not stored", sender.stored, sender.failed)
    return 2 if sender.fatal else int(sender.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
