"""A put with an Idempotency-Key is done once: repeated here, after a takeover, in the same transaction. No broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.queue.item import Put
from kqlib.virtual import put_keys
from kqlib.virtual.index import StoredRecord
from kqlib.virtual.names import queue_of
from kqlib.virtual.store import ItemStore, Place, Writes

GOAL = [Put(b"goal", b"k", {"by": b"me"}), Put(b"card")]


class Log:
    """The records of one partition, and its present owner."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.now = 1_000.0
        self.take_over()

    def take_over(self) -> None:
        """The next owner reads the log."""
        self.store = ItemStore(Place("games", 0, 1))
        self.store.now = lambda: self.now
        self.read(self.records)

    def read(self, records: list[Any]) -> None:
        self.store.arrive((queue_of(each.key()), StoredRecord.of(each)) for each in records)

    def put(self, *keys: str | None, queue: str = "q", puts: Any = GOAL) -> list[list[int]]:
        """Puts with these keys, in one transaction; their offsets. What was committed is read."""
        out, before = Writes(), len(self.records)
        answers = [self.store.put(queue, puts, out, key) for key in keys]
        for at, each in enumerate(out.outs):
            out.places[at] = len(self.records)
            found = {"offset": len(self.records), "key": each.key, "value": each.value, "headers": each.headers}
            message = {name: lambda value=value: value for name, value in found.items()}
            self.records.append(SimpleNamespace(**message, timestamp=lambda now=self.now: (1, int(now * 1000))))
        offsets = [answer() for answer in answers]
        self.read(self.records[before:])
        return offsets


def test_a_repeated_put_stores_nothing_and_gets_the_offsets_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    assert log.put("a", "a", None) == [[0, 1], [0, 1], [2, 3]]  # in one transaction, too
    assert log.put("a", "b") == [[0, 1], [4, 5]] and len(log.records) == 6
    log.take_over()
    assert log.put("b", "a") == [[4, 5], [0, 1]] and len(log.records) == 6
    assert log.put("a", queue="other") == [[6, 7]]  # a key belongs to a queue
    log.now += put_keys.REMEMBERED + 1
    assert log.put("a") == [[8, 9]]
    log.take_over()
    assert log.put("a", "b") == [[8, 9], [10, 11]]


@pytest.mark.parametrize(
    "puts", [GOAL[:1], GOAL[::-1], [Put(b"goal"), Put(b"card")], [*GOAL[:1], Put(b"card", delay=1)]]
)
@pytest.mark.parametrize("taken", [True, False])
def test_a_key_is_refused_for_other_records(puts: list[Put], taken: bool) -> None:
    log = Log()
    log.put("a")
    if taken:
        log.take_over()
    with pytest.raises(NotAllowed, match="the Idempotency-Key 'a' was used for other records of 'q'"):
        log.put("a", puts=puts)
    assert log.put("a") == [[0, 1]]


def test_the_keys_of_a_partition_are_bounded_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_keys, "MOST", 20)
    log = Log()
    for at in range(30):
        log.put(f"key-{at}")
    for _ in range(2):
        assert log.put("key-29", "key-21") == [[58, 59], [42, 43]] and len(log.records) == 60
        assert len(log.store.puts._known) == 10
        log.take_over()
    assert log.put("key-0") == [[60, 61]]


def test_the_key_is_not_among_the_headers_of_an_item() -> None:
    log = Log()
    log.put("a")
    record = StoredRecord.of(log.records[0])
    assert record.own_headers == {"by": b"me"} and not any(name == "kq-put" for name, _ in record.headers)
