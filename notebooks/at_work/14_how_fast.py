"""Measure the latency of a topic at a fixed pace, as its users see it: from the moment when a record was due until it was read.

Promise: a record that is late because an earlier one was slow counts with its whole delay. The sender never waits for an answer. Give
it a topic of its own with one partition. It prints one line of percentiles, at SIGTERM, Ctrl-C or after COUNT records.
Exit status: 0 all records came back, 1 some did not, 2 it cannot go on.

    KAFKA_BOOTSTRAP=broker:9092 KAFKA_TOPIC=probes PACE=50 COUNT=10000 python 14_how_fast.py
"""

import logging
import os
import signal
import sys
import threading
import time
from types import FrameType

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

TOPIC = os.environ["KAFKA_TOPIC"]
PACE = float(os.environ.get("PACE", "50"))  # records a second
COUNT = int(os.environ.get("COUNT", "0"))  # 0: until SIGTERM
LAST = 30.0  # seconds to wait for the last records
CLIENT = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "log_level": 3}
log = logging.getLogger("latency")


class Probe:
    """Sends at a pace from one thread, and reads in another one."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.sent = 0
        self.latencies: list[float] = []
        self.fatal: KafkaError | None = None
        client = {**CLIENT, "error_cb": self.on_error}
        self.producer = Producer({**client, "acks": "all", "linger.ms": 0, "enable.idempotence": True})
        self.reader = Consumer({**client, "group.id": "latency", "enable.auto.commit": False})

    def on_error(self, error: KafkaError) -> None:
        """Errors of the client itself. It repairs most of them alone."""
        if error.fatal():
            self.fatal = error
            self.over.set()
        else:
            log.warning("client: %s", error.str())

    def stop(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM or Ctrl-C: send no more."""
        self.over.set()

    def begin(self) -> None:
        """Read from the end of now on. A typo must not create a topic."""
        if TOPIC not in self.producer.list_topics(timeout=30).topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no topic {TOPIC!r}"))
        _, end = self.reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        self.reader.assign([TopicPartition(TOPIC, 0, end)])

    def send(self) -> None:
        """Each record carries the moment when it was due. If this thread is late, that counts."""
        start = time.monotonic()
        while not self.over.is_set() and (not COUNT or self.sent < COUNT):
            due = start + self.sent / PACE
            if self.over.wait(max(0.0, due - time.monotonic())):
                break
            try:
                self.producer.produce(TOPIC, repr(due).encode(), partition=0)
                self.sent += 1
            except BufferError:
                self.producer.poll(0.1)  # the buffer is full; the record stays due at its moment
            self.producer.poll(0)
        self.over.set()

    def read(self) -> None:
        """Until all that was sent came back, or nothing more comes."""
        deadline = float("inf")
        while time.monotonic() < deadline and not (self.over.is_set() and len(self.latencies) >= self.sent):
            message = self.reader.poll(0.2)
            if self.over.is_set() and deadline == float("inf"):
                deadline = time.monotonic() + LAST
            if message is None:
                continue
            if message.error():
                log.warning("reader: %s", message.error().str())
                continue
            self.latencies.append(time.monotonic() - float(message.value()))


def percentiles(latencies: list[float]) -> str:
    """p50, p99, p99.9 and the largest, in ms."""
    found = sorted(latencies)
    parts = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    values = {name: found[min(int(len(found) * part), len(found) - 1)] * 1e3 for name, part in parts.items()}
    return ", ".join(f"{name} {value:.1f} ms" for name, value in values.items())


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    probe = Probe()
    signal.signal(signal.SIGTERM, probe.stop)
    signal.signal(signal.SIGINT, probe.stop)
    try:
        probe.begin()
    except KafkaException as error:
        log.error("cannot go on: %s", error)
        return 2
    sender = threading.Thread(target=probe.send)
    sender.start()
    probe.read()
    sender.join()
    probe.producer.flush(LAST)
    probe.reader.close()
    if probe.latencies:
        print(f"{len(probe.latencies)} of {probe.sent} records: {percentiles(probe.latencies)}")
    return 2 if probe.fatal else int(len(probe.latencies) < probe.sent)


if __name__ == "__main__":
    sys.exit(main())
