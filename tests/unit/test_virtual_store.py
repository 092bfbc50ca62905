"""Everything that can be done with one partition's queues, without Kafka: tables of cases, and a property against a plain model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.errors import KqError, LeaseLost, NotAllowed
from kqlib.queue.item import Put
from kqlib.virtual.errors import NotFound, Rewind
from kqlib.virtual.index import RecordCache, StoredRecord, StoredState
from kqlib.virtual.names import queue_of
from kqlib.virtual.store import NOTHING, ItemStore, Missing, Place, Writes
from tests.unit.records import Rec

ONE = Place("games", 0, 1, "u8F_x-3kTUqPZr2bGv0aWg", 2_000)


class Log:
    """Both topics of one partition as lists, and a store that read them."""

    def __init__(self, place: Place = ONE) -> None:
        self.place, self.now = place, 1_000.0
        self.data: list[tuple[str | None, StoredRecord]] = []
        self.states: dict[bytes, bytes] = {}
        self.low = 0
        self.store = self.read()

    def read(self) -> ItemStore:
        """A new owner reads everything."""
        self.store = ItemStore(self.place, clock=lambda: self.now)
        for key, value in self.states.items():
            self.store.load(key, value, 0.0)
        self.store.index.read_to(self.low)
        self.store.arrive(self.data[self.low :])
        return self.store

    def do(self, run: Callable[[Writes], Any]) -> Any:
        """A verb, and its writes committed."""
        out = Writes()
        try:
            return self._end(run(out), out)
        except KqError:
            self._end(None, out)
            raise

    def _end(self, value: Any, out: Writes) -> Any:
        for at, each in enumerate(out.outs):
            if each.topic == "games":
                kept = StoredRecord.of(Rec(len(self.data), each.key, each.headers, each.value, int(self.now * 1000)))
                out.places[at] = kept.offset
                self.data.append((queue_of(each.key), kept))
                self.store.arrive(self.data[-1:])
            elif each.value is None:
                self.states.pop(each.key or b"", None)
            else:
                self.states[each.key or b""] = each.value
        return value() if callable(value) else value

    def put(self, queue: str, *datas: bytes, **how: Any) -> list[int]:
        return self.do(lambda out: self.store.put(queue, [Put(data, **how) for data in datas], out))

    def claim(self, queue: str = "q", n: int = 1, consumer: str = "c", lease: float = 30, **terms: Any) -> list[Any]:
        found = self.do(lambda out: self.store.claim((queue, consumer), n, lease, out, **terms))
        return [] if found is NOTHING else found

    def verb(self, verb: str, *items: Any, queue: str = "q", consumer: str = "c", more: tuple[Any, ...] = ()) -> Any:
        receipts = [getattr(item, "receipt", item) for item in items]
        return self.do(lambda out: getattr(self.store, verb)((queue, consumer), receipts, *more, out))

    def depth(self, queue: str = "q", consumer: str = "c") -> int:
        return self.store.depth(queue, consumer)


def datas(items: list[Any]) -> list[tuple[bytes | None, int]]:
    return [(item.record.data, item.attempt) for item in items]


# --- as a log ---


def test_a_page_ends_after_its_last_record() -> None:
    log = Log()
    log.put("q", *[b"%d" % n for n in range(5)])
    found, following = log.store.read("q", 0, 2)
    assert (len(found), following) == (2, 2)
    assert log.store.read("q", following, 3) == ([each for _, each in log.data[2:]], 5)


TRACKS: tuple[tuple[list[tuple[int, bool]], Any], ...] = (
    ([(0, False)], 0),  # offset 0 can be acked
    ([(0, False), (0, False)], 0),  # twice is fine
    ([(0, False), (3, False), (1, True)], 1),
    ([(2, False), (-1, True)], -1),
    ([(2, False), (1, False)], Rewind),
    ([(0, False), (-1, False)], Rewind),
    ([(4, False)], NotAllowed),  # not there yet
)


@pytest.mark.parametrize(("steps", "comes"), TRACKS)
def test_a_cursor_goes_forward_and_back_only_when_asked_to(steps: list[tuple[int, bool]], comes: Any) -> None:
    log = Log()
    log.put("q", b"0", b"1", b"2", b"3")
    *first, last = steps
    for offset, rewind in first:
        log.do(lambda out, at=offset, back=rewind: log.store.track("q", "c", at, back, out))
    if isinstance(comes, int):
        assert log.do(lambda out: log.store.track("q", "c", *last, out)) == comes
        assert log.read().tracked("q", "c") == comes
    else:
        before = log.store.tracked("q", "c")
        with pytest.raises(comes) as error:
            log.do(lambda out: log.store.track("q", "c", *last, out))
        assert log.read().tracked("q", "c") == before
        assert comes is not Rewind or error.value.tracked == before


def test_a_deleted_queue_is_gone_for_every_reader_at_once_and_begins_anew() -> None:
    log = Log()
    log.put("q", b"0", b"1", b"2")
    log.put("other", b"x")
    item = log.claim()[0]
    log.do(lambda out: log.store.track("q", "reader", 1, False, out))
    assert log.do(lambda out: log.store.delete("q", 0, out)) == 4
    for store in (log.store, log.read()):
        assert store.read("q", 0, 10) == ([], 4) and store.depth("q", "c") == 0
        assert store.index.names() == ["other"]
    with pytest.raises(NotFound, match="there is no queue 'q'"):
        log.do(lambda out: log.store.delete("q", 0, out))
    log.put("q", b"new")
    assert datas(log.claim(n=5)) == [(b"new", 1)]
    with pytest.raises(LeaseLost):
        log.verb("ack", item)
    assert log.read().index.marks == {"q": 4}


# --- as a queue ---


def test_a_new_owner_gives_what_was_not_acked_counted_and_nothing_else() -> None:
    log = Log()
    log.put("q", *[b"%d" % n for n in range(6)])
    items = log.claim(n=4)
    log.verb("ack", items[1], items[2])
    log.read()
    assert log.depth() == 4
    with pytest.raises(LeaseLost, match="1 of 1 refused"):
        log.verb("ack", items[0])
    assert datas(log.claim(n=9)) == [(b"0", 2), (b"3", 2), (b"4", 1), (b"5", 1)]


VERBS = (
    ("ack", (), 1),
    ("release", (0.0,), 2),
    ("extend", (60.0,), 2),
    ("bury", ("why",), 1),
)


@pytest.mark.parametrize(("verb", "more", "depth"), VERBS)
def test_every_verb_asks_for_a_lease_that_holds(verb: str, more: tuple[Any, ...], depth: int) -> None:
    log = Log()
    log.put("q", b"0", b"1")
    old = log.claim(lease=5)[0]
    log.now += 6
    new = log.claim(lease=50)[0]
    assert (new.record.data, new.attempt) == (b"0", 2)
    with pytest.raises(LeaseLost, match=r"The first: ") as error:
        log.verb(verb, old, new, more=more)
    assert (error.value.done, list(error.value.refused)) == ([new.receipt], [old.receipt])
    assert log.depth() == depth


@pytest.mark.parametrize("order", ["any", "key"])
def test_the_leases_of_an_owner_that_leaves_go_on_and_of_one_that_dies_do_not(order: str) -> None:
    log = Log()
    for n in range(6):
        log.put("q", b"%d" % n, key=b"%d" % n)
    done, extended, released, buried, late = log.claim(n=5, order=order)
    log.do(lambda out: out.outs.extend(log.store.hand_over(1)))
    log.now += 20
    log.read().now = lambda: 20.0  # its states were stored at 0
    log.store.go_on(1)
    assert log.store.consumer("q", "c")["claimed"] == 5
    log.store.cache = RecordCache()
    with pytest.raises(Missing) as unread:  # a letter needs the record, and the owner before had it
        log.verb("bury", buried, more=("bad",))
    assert unread.value.offsets == [3]
    for _, record in log.data:
        log.store.cache.add(record)
    log.verb("bury", buried, more=("bad",))
    assert datas(log.claim(n=9)) == [(b"5", 1)]  # what is out is not handed out again
    log.verb("extend", extended, more=(60,))
    log.verb("release", released, more=(0,))
    log.verb("ack", done)
    assert log.depth("q.dead", "x") == 1 and log.depth() == 4
    log.now += 11  # 30 s since the claim: the leases that were not extended are over
    log.store.tidy()
    with pytest.raises(LeaseLost, match="its lease ended"):
        log.verb("ack", late)
    assert datas(log.claim(n=9)) == [(b"2", 2), (b"4", 2)]

    log.read().go_on(2)  # this owner has died: nothing was handed over by it
    with pytest.raises(LeaseLost, match="nobody has it"):
        log.verb("ack", extended)


def test_a_queues_depth_is_that_of_its_slowest_consumer() -> None:
    log = Log()
    log.put("q", b"0", b"1", b"2")
    assert log.store.queue("q") == {"queue": "q", "partition": 0, "records": 3, "depth": 3, "first": 0, "last": 2}
    log.verb("ack", *log.claim(n=2))
    assert log.store.queue("q")["depth"] == 1
    log.do(lambda out: log.store.track("q", "reader", 0, False, out))
    assert log.store.queue("q")["depth"] == 2


def test_an_item_twice_in_one_ack_is_refused_the_second_time() -> None:
    log = Log()
    log.put("q", b"0")
    item = log.claim()[0]
    with pytest.raises(LeaseLost) as error:
        log.verb("ack", item, item)
    assert error.value.done == [item.receipt] and log.depth() == 0


def test_with_order_by_key_one_item_of_a_key_is_out() -> None:
    log = Log()
    for key, data in ((b"A", b"A1"), (b"B", b"B1"), (b"A", b"A2"), (b"B", b"B2")):
        log.put("q", data, key=key)
    first = log.claim(n=9, order="key")
    assert datas(first) == [(b"A1", 1), (b"B1", 1)]
    assert log.claim(n=9) == []
    log.read()  # a new owner looks at all that is open before anything goes out
    again = log.claim(n=9)
    assert datas(again) == [(b"A1", 2), (b"B1", 2)]
    log.verb("ack", again[0])
    assert datas(log.claim(n=9)) == [(b"A2", 1)]


def test_an_item_that_used_up_its_attempts_is_buried_once_with_its_story() -> None:
    log = Log()
    log.put("q", b"bad", key=b"k", headers={"h": b"v"})
    for attempt in (1, 2):
        item = log.claim(max_attempts=2)[0]
        assert item.attempt == attempt
        log.verb("release", item, more=(0.0,))
    assert log.claim() == [] and log.depth() == 0
    letter = log.claim("q.dead", n=5, max_attempts=3)
    assert datas(letter) == [(b"bad", 1)]
    own = letter[0].record.own_headers
    assert (own["h"], own["kq-origin"], own["kq-attempts"]) == (b"v", b"q/0/0", b"2")
    assert own["kq-reason"] == b"its attempts are used up" and letter[0].record.key == b"k"


@pytest.mark.parametrize("more", [{}, {"max_attempts": 1}])
def test_an_item_whose_queue_can_have_no_dead_letters_comes_again_for_ever(more: dict[str, int]) -> None:
    """The name is so long that with '.dead' it is none: its letter went to no queue."""
    log, queue = Log(), "q" * 196
    log.put(queue, b"bad")
    for attempt in range(1, 8):
        (item,) = log.claim(queue, **more)
        assert item.attempt == attempt
        log.verb("release", item, queue=queue, more=(0.0,))


def test_a_letter_and_its_items_end_are_written_together_even_if_the_next_item_must_be_fetched() -> None:
    log = Log()
    log.put("q", b"bad", b"good")
    log.verb("release", log.claim(max_attempts=1)[0], more=(0.0,))
    bad = log.store.cache.get(0)
    log.store.cache = RecordCache()
    log.store.cache.add(bad)
    out = Writes()
    with pytest.raises(Missing):
        log.store.claim(("q", "c"), 1, 30.0, out)
    assert [each.topic for each in out.outs] == ["games", "games.offsets"]


REFUSED: tuple[tuple[Callable[[Log], Any], type[KqError], str], ...] = (
    (lambda log: log.claim(order="any"), NotAllowed, "this consumer's order is 'key' since its first claim, not 'any'"),
    (
        lambda log: log.claim(max_attempts=7),
        NotAllowed,
        "this consumer's max_attempts is 5 since its first claim, not 7",
    ),
    (lambda log: log.claim(consumer="reader"), NotAllowed, "'reader' reads 'q' as a log, with an offset"),
    (lambda log: log.store.tracked("q", "c"), NotAllowed, "'c' works on 'q' with leases"),
    (lambda log: log.do(lambda out: log.store.track("no", "c", 0, False, out)), NotFound, "there is no queue 'no'"),
)


@pytest.mark.parametrize(("run", "kind", "sentence"), REFUSED)
def test_what_cannot_be_is_refused_with_a_sentence_and_changes_nothing(
    run: Callable[[Log], Any], kind: type[KqError], sentence: str
) -> None:
    log = Log()
    log.put("q", b"0", b"1")
    log.claim(order="key", lease=9)
    log.do(lambda out: log.store.track("q", "reader", 0, False, out))
    states, data = dict(log.states), list(log.data)
    with pytest.raises(kind) as error:
        run(log)
    assert str(error.value).startswith(sentence) or sentence in str(error.value)
    assert (log.states, log.data) == (states, data)


# --- the log forgets, consumers idle ---


def test_what_retention_took_is_counted_as_done_and_the_rest_is_found_again() -> None:
    log = Log()
    for n in range(8):
        log.put("q", b"%d" % n)
        log.put("noise", b"x")
    items = log.claim(n=4)  # 0 to 3
    log.verb("ack", items[1])
    log.low = 5  # q's 0, 1, 2 are gone (offsets 0, 2, 4); open: 3, and 4 to 7 were not looked at
    log.read()
    assert log.depth() == 5
    assert datas(log.claim(n=9)) == [(b"3", 2), (b"4", 1), (b"5", 1), (b"6", 1), (b"7", 1)]
    log.low = 16
    log.read()
    assert log.depth() == 0 and log.claim() == []


def test_a_live_owner_sees_the_log_forget() -> None:
    log = Log()
    log.put("q", *[b"%d" % n for n in range(6)])
    items = log.claim(n=4)
    log.do(lambda out: log.store.track("q", "reader", 0, False, out))
    assert (log.depth(), log.depth(consumer="reader")) == (6, 5)
    log.do(lambda out: log.store.trim(2, out))
    assert (log.depth(), log.depth(consumer="reader")) == (4, 4)
    with pytest.raises(LeaseLost):
        log.verb("ack", items[0])
    log.verb("ack", items[2])
    assert log.depth() == 3


NEEDED: tuple[tuple[Callable[[Log], Any], int], ...] = (
    (lambda log: None, 0),  # nobody has read a: all of it is needed
    (lambda log: log.do(lambda out: log.store.track("a", "r", 0, False, out)), 1),
    (lambda log: log.do(lambda out: log.store.delete("a", 0, out)), 1),
    (lambda log: [log.verb("ack", *log.claim("a", n=5), queue="a"), log.verb("ack", log.claim("b")[0], queue="b")], 3),
    (lambda log: [log.do(lambda out, q=q: log.store.delete(q, 0, out)) for q in ("a", "b")], 4),
)


@pytest.mark.parametrize(("run", "low"), NEEDED)
def test_records_are_needed_until_the_slowest_queue_of_the_partition_has_done_them(
    run: Callable[[Log], Any], low: int
) -> None:
    log = Log()
    for queue in ("a", "b", "a", "b"):
        log.put(queue, b"x")
    run(log)
    assert log.store.needed() == low


def test_idle_consumers_are_forgotten_and_busy_ones_are_not() -> None:
    log = Log()
    log.put("q", b"0", b"1")
    for consumer in ("old", "read", "new"):
        log.do(lambda out, c=consumer: log.store.track("q", c, 0, False, out))
    log.claim(consumer="works")
    for consumer in ("old", "read", "works"):
        stored = log.store.index.stored("q", consumer)
        assert stored is not None
        log.store.index.store("q", consumer, StoredState(stored.value, 5.0))
    log.do(lambda out: log.store.touch("q", "read", out))  # it reads, and acks nothing
    assert log.do(log.store.forget_idle) == 1
    assert sorted(log.store.index.entries["q"].consumers or {}) == ["new", "read", "works"]
    assert len(log.states) == 3


def test_records_that_are_not_at_hand_are_asked_for_and_an_idle_work_costs_nothing() -> None:
    log = Log()
    log.put("q", b"0", b"1", b"2")
    log.store.cache = RecordCache(1)
    with pytest.raises(Missing) as error:
        log.store.read("q", 0, 5)
    assert error.value.offsets == [0, 1, 2]
    with pytest.raises(Missing) as error:
        log.claim(n=2)
    assert error.value.offsets == [0, 1]
    log.store.cache = RecordCache()
    for _, kept in log.data:
        log.store.cache.add(kept)
    items = log.claim(n=2)
    log.verb("ack", *items)
    assert log.store.ledgers == {}


# --- a property ---

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "claim", "claim", "ack", "release", "expire", "read", "collect", "noise"]),
        st.integers(0, 6),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=150)
@given(STEPS, st.sampled_from(["any", "key"]))
def test_nothing_is_lost_and_nothing_that_was_acked_comes_again(steps: list[tuple[str, int]], order: str) -> None:
    log, put, done, out, n = Log(), {}, set(), {}, 0  # type: Log, dict[int, bytes], set[int], dict[int, Any], int
    for verb, number in steps:
        if verb == "put":
            for _ in range(number):
                (offset,) = log.put("q", b"%d" % n, key=b"%d" % (n % 3))
                put[offset] = b"%d" % n
                n += 1
        elif verb == "noise":
            log.put("other", *[b"x"] * (number + 1))
            log.do(lambda out: log.store.track("other", "c", log.store.index.head - 1, False, out))
        elif verb == "claim":
            for item in log.claim(n=number + 1, order=order, max_attempts=0, lease=10):
                assert item.record.offset not in out and item.record.offset not in done
                assert item.record.data == put[item.record.offset]
                out[item.record.offset] = item
        elif verb in ("ack", "release") and out:
            offset = sorted(out)[number % len(out)]
            log.verb(verb, out.pop(offset), more=() if verb == "ack" else (0.0,))
            if verb == "ack":
                done.add(offset)
        elif verb == "expire":
            log.now += 11
            out = {}
        elif verb == "read":
            log.read()
            out = {}
        elif verb == "collect":
            log.low = max(log.low, log.store.needed())
            log.do(lambda out: log.store.trim(log.low, out))
        assert log.depth() == len(put.keys() - done)
    log.now += 11
    left = set()
    while items := log.claim(n=3, order=order, max_attempts=0, lease=10):
        left |= {item.record.offset for item in items}
        log.verb("ack", *items)
    assert left == put.keys() - done and log.depth() == 0
