"""Calls of librdkafka that take seconds: repeated while Kafka only says "not now", and left behind if they never return.

In:  a call and a deadline. Out: it returned, raised, or `NoAnswer`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import KafkaException

from kqlib.queue.answers import first

GRACE = 1.0  # seconds beyond its time until a call is left behind


class NoAnswer(Exception):  # noqa: N818 - nobody outside sees it
    """A call has not come back."""


def insist(call: Callable[[float], Any], deadline: float) -> None:
    """Called with the seconds that are left, again and again while Kafka only says "not now"."""
    while True:
        try:
            _bounded(call, max(0.1, deadline - time.monotonic()))
            return
        except KafkaException as error:
            kafka = first(error)
            if not kafka.retriable() or kafka.txn_requires_abort() or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _bounded(call: Callable[[float], Any], seconds: float) -> None:
    """On a thread of its own: librdkafka's calls do not all keep the time they are given (librdkafka 5456, 5511)."""
    came: SimpleQueue[BaseException | None] = SimpleQueue()

    def run() -> None:
        try:
            call(seconds)
            came.put(None)
        except BaseException as error:
            came.put(error)

    threading.Thread(target=run, name="kq-ending", daemon=True).start()
    try:
        error = came.get(timeout=seconds + GRACE)
    except Empty:
        raise NoAnswer from None
    if error is not None:
        raise error
