"""confluent_kafka's clients, made safe for forks: a forked child never ends its parent's. And Consumers that can always be closed, and
whose records can always be read.

In:  the arguments of confluent_kafka's classes. Out: the same classes; this module knows their objects while they live. `close`.

librdkafka ends a client by joining its threads. A forked child has no such threads, so it would wait for ever: when the last
reference goes, in a garbage collection, or at the interpreter's exit. So a child adds one reference to each client, and never
drops it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from operator import length_hint
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaException, admin

log = logging.getLogger("kqlib.kafka")
_LIVE: weakref.WeakSet[Any] = weakref.WeakSet()
# By the thread that forks just now. None of these may end between the fork and `_keep`.
_HELD: dict[int, list[Any]] = {}


class _Known:
    def __new__(cls, *args: Any, **how: Any) -> Self:
        client = super().__new__(cls, *args, **how)
        _LIVE.add(client)  # before it has a thread
        return client


class Producer(_Known, confluent_kafka.Producer):
    """confluent_kafka's Producer."""


class Consumer(_Known, confluent_kafka.Consumer):
    """confluent_kafka's Consumer. It can be closed at any moment."""

    def poll(self, *args: Any, **how: Any) -> Any:
        """The next record, or None."""
        message = super().poll(*args, **how)
        return message if message is None else _readable([message])[0]

    def consume(self, *args: Any, **how: Any) -> list[Any]:
        """The next records."""
        return _readable(super().consume(*args, **how))

    def close(self) -> None:
        """Leave the group."""
        close(self)


class ShareConsumer(_Known, confluent_kafka.ShareConsumer):
    """confluent_kafka's ShareConsumer."""

    def poll(self, *args: Any, **how: Any) -> list[Any]:
        """The next records."""
        return _readable(list(super().poll(*args, **how)))


class AdminClient(_Known, admin.AdminClient):
    """confluent_kafka's AdminClient."""


def _readable(messages: list[Any]) -> list[Any]:
    """The records; without its headers where a name of one is no UTF-8. Go's and C's clients write any bytes as a name.

    The client cannot show such headers: its list of them is broken, and a program that looks into it may end. `headers` says so by an
    error that the interpreter does not always notice, but `map` does. Looked at once, or such a record would stop its queue.
    """
    left = iter(messages)
    while True:
        try:
            deque(map(confluent_kafka.Message.headers, left), maxlen=0)
        except SystemError:
            message = messages[-1 - length_hint(left)]
            message.set_headers([])
            place = f"{message.topic()}/{message.partition()}/{message.offset()}"
            log.warning("%s: a header's name is no UTF-8; its headers are left out", place, extra={"item": place})
        else:
            return messages


def close(consumer: confluent_kafka.Consumer) -> None:
    """Close a Consumer of anybody. What its group assigned or took since its last poll is accepted first.

    Else `close` accepts it, while the group is being left. Then it waits for ever about once in 500 times, and no other thread of
    the process runs, since it holds the GIL (librdkafka 4884).
    """
    try:
        with suppress(KafkaException, RuntimeError):  # a dead client, or one that is closed
            consumer.pause(consumer.assignment())  # no record comes: its offset would be committed
            consumer.poll(0)
    finally:  # also if its owner's callback fails
        confluent_kafka.Consumer.close(consumer)


def _hold() -> None:
    _HELD[threading.get_ident()] = list(_LIVE)


def _let_go() -> None:
    _HELD.pop(threading.get_ident(), None)


def _keep() -> None:
    """In the child: no client's count of references ever reaches zero."""
    for client in _HELD.pop(threading.get_ident(), []):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_keep)
