"""What all programs here share: the sports, the schema of an event, and how an event is read."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kqlib as kq
from kqlib.schemas.wire import split

HERE = Path(__file__).parent
SITE = "new-two-sports"  # all workers of one site share the work; another site gets every event too
SPORTS = ("football", "basketball")  # the names of their queues; both write into the topic events
SUBJECT = "events-value"  # the events of both sports have one schema
SCHEMA = json.loads((HERE / "schemas" / "event.avsc").read_text(encoding="utf-8"))


def reader(registry: kq.schemas.Registry) -> Callable[[bytes | None], dict[str, Any]]:
    """A function that reads an event with the newest schema, also if that schema came after the start of this process."""
    known: set[int] = set()
    codec: kq.schemas.Codec | None = None
    lock = threading.Lock()

    def read(data: bytes | None) -> dict[str, Any]:
        nonlocal codec
        if data is None:
            raise kq.errors.CorruptPayload("an event has a value")
        number = split(data).id
        with lock:  # a worker has several threads: an older answer must not come last
            if codec is None or number not in known:
                codec = registry.codec(SUBJECT)  # the newest schema reads all rows from now on
                known.add(number)
        return codec.decode(data)

    return read
