"""A put with an Idempotency-Key is done once: repeated here, after a takeover, in the same transaction. No broker."""

from __future__ import annotations

from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.queue.item import Put
from kqlib.virtual import put_keys
from kqlib.virtual.store import ItemStore, Writes
from tests.unit.test_virtual_store import Log

GOAL = [Put(b"goal", b"k", {"by": b"me"}), Put(b"card")]


class KeyLog(Log):
    """Puts with keys, and a wall clock that stands with the other one."""

    def read(self) -> ItemStore:
        super().read().now = lambda: self.now
        return self.store

    def put_all(self, *keys: str | None, queue: str = "q", puts: Any = GOAL) -> list[list[int]]:
        """Puts with these keys, in one transaction; their offsets."""

        def run(out: Writes) -> Any:
            answers = [self.store.put(queue, puts, out, key) for key in keys]
            return lambda: [answer() for answer in answers]

        found: list[list[int]] = self.do(run)
        return found


def test_a_repeated_put_stores_nothing_and_gets_the_offsets_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    log = KeyLog()
    assert log.put_all("a", "a", None) == [[0, 1], [0, 1], [2, 3]]  # in one transaction, too
    assert log.put_all("a", "b") == [[0, 1], [4, 5]] and len(log.data) == 6
    log.read()
    assert log.put_all("b", "a") == [[4, 5], [0, 1]] and len(log.data) == 6
    assert log.put_all("a", queue="other") == [[6, 7]]  # a key belongs to a queue
    log.now += put_keys.REMEMBERED + 1
    assert log.put_all("a") == [[8, 9]]
    log.read()
    assert log.put_all("a", "b") == [[8, 9], [10, 11]]


@pytest.mark.parametrize(
    "puts", [GOAL[:1], GOAL[::-1], [Put(b"goal"), Put(b"card")], [*GOAL[:1], Put(b"card", delay=1)]]
)
@pytest.mark.parametrize("taken", [True, False])
def test_a_key_is_refused_for_other_records(puts: list[Put], taken: bool) -> None:
    log = KeyLog()
    log.put_all("a")
    if taken:
        log.read()
    with pytest.raises(NotAllowed, match="the Idempotency-Key 'a' was used for other records of 'q'"):
        log.put_all("a", puts=puts)
    assert log.put_all("a") == [[0, 1]]


def test_no_data_and_empty_data_are_two_puts() -> None:
    log = KeyLog()
    log.put_all("a", puts=[Put(None)])
    with pytest.raises(NotAllowed, match="was used for other records"):
        log.put_all("a", puts=[Put(b"")])


def test_the_keys_of_a_partition_are_bounded_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_keys, "MOST", 20)
    log = KeyLog()
    for at in range(30):
        log.put_all(f"key-{at}")
    for _ in range(2):
        assert log.put_all("key-29", "key-21") == [[58, 59], [42, 43]] and len(log.data) == 60
        assert len(log.store.puts._known) == 10
        log.read()
    assert log.put_all("key-0") == [[60, 61]]


def test_the_key_is_not_among_the_headers_of_an_item() -> None:
    log = KeyLog()
    log.put_all("a")
    record = log.data[0][1]
    assert record.own_headers == {"by": b"me"} and not any(name == "kq-put" for name, _ in record.headers)
