"""The exercises of 14-how-fast: latency as a user sees it, full batches on a real Kafka, and a size."""

import struct
import threading
import time
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kqlib.kafka import reading
from kqlib.queue import Site
from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def seen_by_a_user(due: list, sent: list, done: list, part: float) -> float:
    latencies = sorted(end - begin for begin, end in zip(due, done, strict=True))
    return latencies[min(int(len(latencies) * part), len(latencies) - 1)]


def since_sent(due: list, sent: list, done: list, part: float) -> float:
    """You measure since a record was sent. A record that was sent late has made its user wait before."""
    return seen_by_a_user(sent, sent, done, part)


def not_sorted(due: list, sent: list, done: list, part: float) -> float:
    """A percentile is a place in the sorted latencies. Yours are in the order in which the records were sent."""
    return done[min(int(len(done) * part), len(done) - 1)] - due[min(int(len(due) * part), len(due) - 1)]


def on_average(due: list, sent: list, done: list, part: float) -> float:
    """That is the mean. It hides the worst moments, whatever `part` is."""
    return sum(end - begin for begin, end in zip(due, done, strict=True)) / len(done)


LATENCY = Exercise(
    id="14.1",
    ask="latency counts since a record was due, and a percentile is a place in the sorted list",
    task="return the latency at `part` of all records",
    cases=[
        Case(([0, 10, 20, 30], [0, 10, 20, 30], [2, 13, 21, 38], 0.5), 3, "the third of 1, 2, 3 and 8"),
        Case(([0, 10, 20, 30], [0, 10, 50, 51], [1, 50, 51, 52], 0.5), 31, "sent late: the user waited since it was due"),
        Case(([5], [5], [9], 0.99), 4, "one record is every percentile"),
        Case(([0, 10, 20, 30], [0, 10, 20, 30], [2, 13, 21, 38], 1), 8, "the largest one", "int(4 * 1) is no index of four."),
    ],
    hints=(
        "Which two of the three lists does a user notice? Someone who clicks does not know when your program got to it.",
        "Make the list of differences, sort it, and take the value at int(n * part). For part 1 that index is one too large.",
    ),
    solution=seen_by_a_user,
    wrong=(since_sent, not_sorted, on_average),
)  # fmt: skip

ITEMS, MOST = [b"goal %d" % number for number in range(1_000)], 100


def filling(producer: Any, topic: str, items: list) -> None:
    for item in items:
        producer.produce(topic, item)
    producer.flush()


def flush_for_each(producer: Any, topic: str, items: list) -> None:
    for item in items:
        producer.produce(topic, item)
        producer.flush()


def flush_for_five(producer: Any, topic: str, items: list) -> None:
    for number, item in enumerate(items):
        producer.produce(topic, item)
        if number % 5 == 4:
            producer.flush()


def never_flushed(producer: Any, topic: str, items: list) -> None:
    for item in items:
        producer.produce(topic, item)


FEW = "Each flush() sends what is there and waits. How many records does a batch get, if you call it so often?"
ALL = "produce() only fills a buffer. When answer returned, some records were still in it."


def batches(file: Path) -> int:
    """How many batches a file of the log has. Each begins with its first offset (8 bytes) and its length (4)."""
    data, at, found = file.read_bytes(), 0, 0
    while at + 12 <= len(data):
        at, found = at + 12 + struct.unpack_from(">i", data, at + 8)[0], found + 1
    return found


def sent_by(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Give the answer a producer, then look into Kafka."""
    cluster = kafka()
    topic = new_topic(cluster)
    # What is not flushed is not sent, however slow the machine is.
    producer = Producer(cluster.client(linger_ms=10_000))
    producer.list_topics(topic, timeout=20)
    call = f"answer(producer, topic, {len(ITEMS):,} items)"
    answer(producer, topic, list(ITEMS))
    stored = [message.value() for message in reading.records(cluster, topic)[0]]
    yield Tried(f"{call}: records in Kafka", len(set(stored)), len(ITEMS), "all items are stored", ALL)
    found = batches(cluster.broker(1).node.data / f"{topic}-0" / f"{0:020}.log")
    yield Tried(f"{call}: batches in Kafka ({MOST} or fewer)", found, min(found, MOST), "and the batches are full", FEW)


FULL_BATCHES = Exercise(
    id="14.2",
    ask="all items are stored, in few batches",
    task="send all items; when it returns, all are stored, in 100 batches or fewer",
    probe=sent_by,
    hints=(
        "flush() waits until every record is acknowledged. How often must that happen?",
        "Call produce() for each item, and flush() once after the loop.",
    ),
    solution=filling,
    wrong=(flush_for_each, flush_for_five, never_flushed),
)


def sized(items: float, handler: float) -> tuple[int, int]:
    threads = ceil(items * handler / 0.7)
    return threads, ceil(threads / 16) + 1


def planned_full(items: float, handler: float) -> tuple[int, int]:
    threads = max(1, ceil(items * handler))
    return threads, ceil(threads / 16) + 1


def none_away(items: float, handler: float) -> tuple[int, int]:
    threads, processes = sized(items, handler)
    return threads, processes - 1


def rounded_down(items: float, handler: float) -> tuple[int, int]:
    threads = max(1, int(items * handler / 0.7))
    return threads, max(1, threads // 16) + 1


PLANNED = (
    "Threads that work all the time never catch up after a pause: divide by 0.7. A part of a thread is a whole one."
)
AWAY = "One process may be away, in a deployment or after a crash. Who does its work then?"
CASES = [  # no quotient is a whole number: floats would round it up
    ((100, 0.03), (5, 2), "3 at work at once, planned at 70 %", ""),
    ((2000, 0.04), (115, 9), "80 at once: 115 threads in 8 processes, and one more", "7 processes have 112 threads."),
    ((1, 0.001), (1, 2), "at least one thread, and two processes", "A site without a thread does nothing."),
    ((220, 0.05), (16, 2), "11 at once: 16 threads fill one process", "16 threads fit into one process."),
    ((230, 0.05), (17, 3), "one thread more needs one process more", "17 threads do not fit into one process."),
]
LOAD, SECONDS, LATE = (20, 0.1), 2, 10  # items a second and seconds for each, for so long; fewer may wait then
CATCHES_UP = 5  # times as long may it take until fewer wait: the machine may have paused
BEHIND = "Items wait at the end: two at a time are not enough for 20 items a second of 100 ms."


def kept_up(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Compare the numbers. If they are right, run one process of that size."""
    for args, expected, why, hint in CASES:
        got = answer(*args)
        threads_right = isinstance(got, tuple | list) and [*got[:1]] == [expected[0]]
        yield Tried(f"answer{args}", got, expected, why, hint or (AWAY if threads_right else PLANNED))
    threads, _ = answer(*LOAD)
    waiting = left_by(threads)
    yield Tried(
        f"{threads} threads on Kafka: {LATE} items wait or more", waiting >= LATE, False, "and they keep up", BEHIND
    )


def left_by(threads: int) -> int:
    """How many items wait, when so many threads have worked while items came at the pace of LOAD, and had time to catch up.

    On a machine that takes longer for everything, items come as much later and are worked on for as much longer.
    """
    cluster = kafka()
    topic, over = new_topic(cluster), threading.Event()
    items, seconds = LOAD[0] / PATIENCE, LOAD[1] * PATIENCE
    with Site(cluster, topic) as site:
        queue = site.queue(topic, max_attempts=None)
        queue.claim()  # it joins its group before the clock starts
        how = {"until": over.is_set}
        worker = threading.Thread(target=queue.work, args=(lambda item: time.sleep(seconds), threads), kwargs=how)
        worker.start()
        producer, begin, waiting = Producer(cluster.client(linger_ms=0)), time.monotonic(), 0
        for number in range(CATCHES_UP * LOAD[0] * SECONDS):
            time.sleep(max(0.0, begin + number / items - time.monotonic()))
            producer.produce(topic, b"goal")
            if number >= LOAD[0] * SECONDS and number % LOAD[0] == 0:
                producer.flush(20)
                waiting = queue.depth()
                if waiting < LATE:
                    break
        over.set()
        worker.join()
    return waiting


SIZED = Exercise(
    id="14.3",
    ask="threads = items a second × seconds ÷ 0.7; processes = threads ÷ 16, and one more; and they keep up",
    task="return two numbers: threads, processes",
    probe=kept_up,
    hints=(
        "How many items are at work at the same time? Items a second × seconds for each.",
        "Divide by 0.7 and round up: the threads. Divide them by 16, round up, and add one: the processes.",
    ),
    solution=sized,
    wrong=(planned_full, none_away, rounded_down),
)
