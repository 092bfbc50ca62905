"""The lesson's orders without Kafka: the queue is a list, the kill an exception."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from kqlib.virtual import client
from kqlib.workshop import orders
from kqlib.workshop.orders import CONFLICTS, KILLED, Counted, Handler, Request


class Dead(BaseException):
    """Killed."""


class Queue(list[bytes]):
    """What a handler and an outbox need of a queue."""

    name = "jobs"

    def put(self, data: bytes) -> None:
        self.append(data)

    def put_many(self, items: list[Any]) -> None:
        self.extend(item.data for item in items)


def inside(order: Request) -> None:
    order.insert()
    order.put()
    order.commit()


def after(order: Request) -> None:
    order.insert()
    order.commit()
    order.put()


def outbox(order: Request) -> None:
    order.insert()
    order.note()
    order.commit()


@pytest.mark.parametrize(
    ("handler", "counted"),
    [
        (inside, Counted(orders=199, jobs=230, twice=30, missing=0, stray=1)),
        (after, Counted(orders=200, jobs=199, twice=0, missing=1, stray=0)),
        (outbox, Counted(orders=200, jobs=200, twice=0, missing=0, stray=0)),
    ],
)
def test_each_way_to_enqueue_loses_and_doubles_what_the_lesson_says(
    handler: Handler, counted: Counted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue, file = Queue(), str(tmp_path / "orders.db")

    class Client:
        """Gives that queue."""

        def __init__(self, url: str) -> None: ...
        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None: ...
        def queue(self, name: str) -> Queue:
            return queue

    def dies(number: int) -> None:
        assert number == signal.SIGKILL
        raise Dead

    monkeypatch.setattr(client, "Client", Client)
    monkeypatch.setattr(signal, "raise_signal", dies)
    with pytest.raises(Dead):
        orders.serve(None, handler, "", file, 0)
    orders.serve(None, handler, "", file, KILLED + 1)
    assert orders.counted([int(data) for data in queue], file) == counted
    assert len(CONFLICTS) == 30
