"""Retry policies, dead letters, states and items: values, without a broker."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from kqlib.errors import BadPayload, KqError, LedgerCorrupt, LedgerLost, NotAllowed
from kqlib.queue import Item, Put, Retry, dead, state
from kqlib.queue.incidents import Seen
from kqlib.queue.item import put_of, size
from kqlib.queue.ledger import Ledger
from tests.unit.records import Rec

ID = "u8F_x-3kTUqPZr2bGv0aWg"


def poison(at: int, key: bytes, headers: Any, data: bytes = b"poison") -> Rec:
    return Rec(at, key, headers, data)


# --- retry ---------------------------------------------------------------------------------------------------------------

OS = OSError("x")
WAITS: dict[str, tuple[Retry, BaseException, list[float | None]]] = {
    "at once": (Retry(), OS, [0, 0, 0]),
    "fixed": (Retry.fixed(5), OS, [5, 5, 5]),
    "linear": (Retry.linear(5, cap=12), OS, [5, 10, 12]),
    "exponential": (Retry.exponential(1, cap=3), OS, [1, 2, 3]),
    "fifteen minutes are the most": (Retry.exponential(600, jitter=1.0), OS, [pytest.approx(750, abs=150), 900, 900]),
    "only some": (Retry.fixed(5, only=(ValueError,)), OS, [None, None, None]),
    "their children too": (Retry.fixed(5, only=(OSError,)), FileNotFoundError(), [5, 5, 5]),
    "never some": (Retry.fixed(5, never=(OSError,)), OS, [None, None, None]),
    "give up": (Retry.fixed(5, attempts=2), OS, [5, None, None]),
    "not what ends a program": (Retry(), KeyboardInterrupt(), [None, None, None]),
}


@pytest.mark.parametrize(("retry", "error", "waits"), WAITS.values(), ids=WAITS)
def test_a_retry_says_how_long_to_wait(retry: Retry, error: BaseException, waits: list) -> None:
    assert [retry.wait(attempt, error, "q/0/1") for attempt in (1, 2, 3)] == waits


def test_jitter_spreads_what_failed_together_and_is_the_same_each_time() -> None:
    retry = Retry.fixed(10, jitter=0.5, seed=3)
    waits = [retry.wait(1, OS, f"q/0/{n}") for n in range(50)]
    assert waits == [Retry.fixed(10, jitter=0.5, seed=3).wait(1, OS, f"q/0/{n}") for n in range(50)]
    assert all(10 <= wait <= 15 for wait in waits if wait) and len(set(waits)) == 50
    assert waits != [Retry.fixed(10, jitter=0.5, seed=4).wait(1, OS, f"q/0/{n}") for n in range(50)]


WRONG = {
    "no such shape": (
        lambda: Retry("square"),
        NotAllowed,
        "a retry's shape is fixed, linear or exponential, not 'square'",
    ),
    "too long": (lambda: Retry.fixed(901), NotAllowed, "first is a number of seconds from 0 to 900, not 901"),
    "capped too high": (
        lambda: Retry.fixed(1, cap=1000),
        NotAllowed,
        "cap is a number of seconds from 0 to 900, not 1000",
    ),
    "much jitter": (lambda: Retry(jitter=2), NotAllowed, "jitter is a share from 0 to 1, not 2"),
    "an exception alone": (
        lambda: Retry(only=OSError),
        NotAllowed,
        "only is a tuple of exception classes, like (OSError,)",
    ),
    "no attempt": (lambda: Retry(attempts=0), NotAllowed, "attempts is a whole number, at least 1, or None, not 0"),
    "text in a Put": (lambda: Put("a"), BadPayload, "put takes bytes or None, not str"),
    "delay in a Put": (
        lambda: Put(b"a", delay=True),
        NotAllowed,
        "delay is a number of seconds from 0 to 900, not True",
    ),
    "a delay above every number": (
        lambda: Put(b"a", delay=10**400),
        NotAllowed,
        "delay is a number of seconds from 0 to 900, not 1000",
    ),
    "half a pair": (
        lambda: put_of((b"a",)),
        BadPayload,
        "put_many takes Put(…) values or (data, key) pairs, not tuple",
    ),
}


@pytest.mark.parametrize(("make", "kind", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_values_are_reported_in_a_sentence(make: Any, kind: type[KqError], sentence: str) -> None:
    with pytest.raises(kind, match=re.escape(sentence)):
        make()


def test_a_put_keeps_the_headers_that_were_checked() -> None:
    headers: dict[str, Any] = {"feed": b"tv"}
    put = Put(b"goal", headers=headers)
    headers["feed"] = "no bytes"
    assert put.all_headers == [("feed", b"tv")]
    assert [name for name, _ in Put(b"goal", headers={"feed": b"tv"}, delay=5).all_headers] == [
        "feed",
        "kq-due",
        "kq-delay",
    ]


# --- dead letters ----------------------------------------------------------------------------------------------------------


def letter(record: Rec, reason: str = "bad", limit: int = 100_000) -> Any:
    about = {"origin": "a/b.c/3/7".replace("a/", ""), "site": "here", "attempts": 2}
    return dead.letter(record, reason=reason, partitions=2, limit=limit, **about)


def test_a_dead_letter_carries_the_item_and_its_story_and_the_way_back_drops_the_story() -> None:
    record = poison(7, b"k", [("mine", b"1"), ("mine", b"2"), ("kq-due", b"5"), ("kq-site", b"other")])
    out = letter(record)
    story = dict(out.headers)
    assert (out.topic, out.partition, out.key, out.value) == ("b.c.dead", 1, b"k", b"poison")
    assert out.headers[:2] == [("mine", b"1"), ("mine", b"2")] and "kq-due" not in story
    assert (story["kq-origin"], story["kq-attempts"], story["kq-reason"]) == (b"b.c/3/7", b"2", b"bad")
    assert (story["kq-dead-site"], story["kq-site"], story["kq-created"]) == (b"here", b"here", b"0")
    again = dead.back(poison(0, b"k", out.headers), "b.c", "here")
    assert (again.topic, again.key, again.value) == ("b.c", b"k", b"poison")
    assert again.headers == [("mine", b"1"), ("mine", b"2"), ("kq-site", b"here"), ("kq-again", story["kq-origin"])]


def test_what_a_redriven_item_carries_fits_into_the_space_that_a_put_leaves() -> None:
    topic = "t" * 249
    story = [("kq-origin", f"{topic}/{9**9}/{10**18 - 1}".encode()), ("kq-deaths", b"12345678")]
    out = dead.back(poison(0, b"k", story), topic, "s" * 200)
    assert size(out.value, out.key, out.headers) - size(out.value, out.key, []) <= dead.REDRIVE_BYTES


def test_how_often_an_item_was_dead_goes_with_it_from_life_to_life() -> None:
    record, seen = poison(7, b"k", [("mine", b"1")]), []
    for _ in range(4):
        out = letter(record)
        again = dead.back(poison(0, b"k", out.headers), "b.c", "here")
        record = poison(8, b"k", again.headers)
        seen.append((dict(out.headers).get("kq-deaths"), dead.deaths(record)))
    assert seen == [(None, 1), (b"2", 2), (b"3", 3), (b"4", 4)]
    assert Item("b.c", 3, record, 1, 0.0, 1, 1).headers == {"mine": b"1"}
    assert [dead.deaths(poison(0, b"k", [("kq-deaths", answer)])) for answer in (None, b"", b"many", b"9" * 99)] == [
        0
    ] * 4


CUTS = {
    "it fits": (500, 100, 100, None, (500, 100, 100)),
    "a long reason": (500, 100, 50_000, "reason", (500, 100, 200)),
    "long headers": (500, 50_000, 100, "reason, headers", (500, 0, 100)),
    "long data": (50_000, 100, 100, "reason, headers, data", (0, 0, 100)),
}


@pytest.mark.parametrize(("data", "header", "reason", "cut", "left"), CUTS.values(), ids=CUTS)
def test_a_story_is_cut_until_it_fits(data: int, header: int, reason: int, cut: str | None, left: tuple) -> None:
    record = poison(7, b"k", [("mine", b"h" * header)], b"d" * data)
    out = letter(record, "r" * reason, limit=5_000)
    found = dict(out.headers)
    assert (len(out.value or b""), len(found.get("mine", b"")), len(found["kq-reason"])) == left
    assert found.get("kq-cut") == (cut.encode() if cut else None) and size(out.value, out.key, out.headers) <= 5_000


def test_a_key_that_does_not_fit_is_cut_too_or_its_item_would_stick() -> None:
    out = letter(poison(7, b"k" * 9_000, []), limit=5_000)
    assert (out.key, out.value, dict(out.headers)["kq-cut"]) == (None, None, b"reason, headers, data, key")
    assert size(out.value, out.key, out.headers) <= 5_000


# --- states ----------------------------------------------------------------------------------------------------------------


def text(floor: int, top: int, *done: int, topic: str = ID) -> str:
    ledger = Ledger(floor, floor, 3, topic)
    ledger.claim(range(floor, top))
    ledger.ack(sorted(done))
    return ledger.text()


STATES: dict[str, tuple[Seen, str, tuple[int, int, int]]] = {
    "new": (Seen(ID, 5, 9, None, ""), "raise", (5, 5, 0)),
    "as it was left": (Seen(ID, 0, 9, 2, text(2, 6, 4), known=True), "raise", (2, 6, 3)),
    "lost, from the beginning": (Seen(ID, 5, 9, None, "", known=True), "earliest", (5, 5, 0)),
    "lost, from now on: its owner counts what that skips": (Seen(ID, 5, 9, None, "", known=True), "latest", (5, 5, 0)),
    "never there: its items are not skipped": (Seen(ID, 5, 9, None, ""), "latest", (5, 5, 0)),
    "set by a tool": (Seen(ID, 5, 9, 7, "", known=True), "raise", (7, 7, 0)),
    "set too low": (Seen(ID, 5, 9, 1, "", known=True), "raise", (5, 5, 0)),
    "set too high": (Seen(ID, 5, 9, 99, "", known=True), "raise", (9, 9, 0)),
    "a log that was cut off": (Seen(ID, 0, 4, 2, text(2, 6, 4), known=True), "raise", (2, 4, 2)),
    "a log that was cut off below the floor": (Seen(ID, 0, 1, 2, text(2, 6), known=True), "raise", (1, 1, 0)),
    "a log that was cut off and has grown again": (
        Seen(ID, 0, 9, 2, text(2, 6, 4), kept=3, known=True),
        "raise",
        (2, 3, 1),
    ),
    "a log that was cut off behind the top": (Seen(ID, 0, 9, 2, text(2, 6, 4), kept=8, known=True), "raise", (2, 6, 3)),
    "another topic of the name": (Seen("AAAA", 0, 9, 2, text(2, 6)), "raise", (0, 0, 0)),
}


@pytest.mark.parametrize(("seen", "on_lost", "expected"), STATES.values(), ids=STATES)
def test_a_state_is_taken_as_it_is_found(seen: Seen, on_lost: str, expected: tuple) -> None:
    ledger = state.ledger_from(seen, on_lost, "'q', partition 0")
    assert (ledger.floor, ledger.top, ledger.open) == expected and ledger.topic == seen.topic_id
    assert ledger.epoch >= (3 if seen.metadata else 0)
    assert (
        ledger.epoch > 1_000_000 or seen.metadata or not (seen.known or seen.committed)
    )  # above any that was counted up


def test_a_lost_state_and_an_unreadable_one_are_reported_and_never_guessed() -> None:
    with pytest.raises(LedgerLost, match="The state of 'q', partition 0 is gone"):
        state.ledger_from(Seen(ID, 5, 9, None, "", known=True), "raise", "'q', partition 0")
    with pytest.raises(LedgerCorrupt):
        state.ledger_from(Seen(ID, 0, 9, 3, text(2, 6), known=True), "earliest", "'q', partition 0")


def test_an_item_shows_itself_the_same_each_time() -> None:
    item = Item("football", 3, Rec(41, b"k", [("a", b"1"), ("kq-due", b"5")]), 2, 9.0, 1, 7)
    assert repr(item) == "Item(football/3/41, attempt 2)" and item.headers == {"a": b"1"}
    assert item._replace(record=Rec(1, time=10**17)).created.year == 9999  # nanoseconds, taken for milliseconds
    assert item.created == datetime(1970, 1, 1, tzinfo=UTC) and (item.data, item.key) == (b"data", b"k")
    assert repr(Item("football", 3, Rec(41), 0, 0.0, 0, 0)) == "Item(football/3/41, not claimed)"
    with pytest.raises(AttributeError):
        item.attempt = 3
