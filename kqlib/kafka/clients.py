"""Kafka clients that outlive the call that makes them. A fork of this process keeps them for ever, and never ends them.

In:  what confluent_kafka's classes take. Out: the same classes, whose objects are known here while they live.

librdkafka ends a client by joining its threads. A forked child has no such threads, so it would wait for ever: when the last
reference goes, in a garbage collection, or at the interpreter's exit. So a child adds one reference to each client, and never
gives it back.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any, Self

import confluent_kafka
from confluent_kafka import admin

_LIVE: weakref.WeakSet[Any] = weakref.WeakSet()
_HELD: dict[
    int, list[Any]
] = {}  # by the thread that forks just now: none of these may end between the fork and `_keep`


class _Known:
    def __new__(cls, *args: Any, **how: Any) -> Self:
        client = super().__new__(cls, *args, **how)
        _LIVE.add(client)  # before it has a thread
        return client


class Producer(_Known, confluent_kafka.Producer):
    """confluent_kafka's Producer."""


class Consumer(_Known, confluent_kafka.Consumer):
    """confluent_kafka's Consumer."""


class ShareConsumer(_Known, confluent_kafka.ShareConsumer):
    """confluent_kafka's ShareConsumer."""


class AdminClient(_Known, admin.AdminClient):
    """confluent_kafka's AdminClient."""


def _hold() -> None:
    _HELD[threading.get_ident()] = list(_LIVE)


def _let_go() -> None:
    _HELD.pop(threading.get_ident(), None)


def _keep() -> None:
    """In the child: no client's count of references ever reaches zero."""
    for client in _HELD.pop(threading.get_ident(), []):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_keep)
