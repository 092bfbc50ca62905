"""The index of a partition: tables, and properties against a plain list of (queue, offset)."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.errors import NotAllowed
from kqlib.virtual.index import QueueIndex, RecordCache, StoredRecord, StoredState


def index(*records: tuple[int, str]) -> QueueIndex:
    made = QueueIndex()
    for offset, queue in records:
        made.add(queue, offset)
    return made


def test_a_queue_is_its_offsets_in_order() -> None:
    made = index((0, "a"), (3, "b"), (4, "a"), (9, "a"))
    a = made.entries["a"]
    assert (list(a.offsets), a.end, a.offset(1), made.head) == ([0, 4, 9], 3, 4, 10)
    assert [a.place(offset) for offset in (0, 1, 4, 5, 9, 10)] == [0, 1, 1, 2, 2, 3]


def test_places_stay_what_they_are_when_the_log_forgets_its_beginning() -> None:
    made = index((0, "a"), (3, "b"), (4, "a"), (9, "a"))
    a = made.entries["a"]
    made.trim(4)
    assert (list(a.offsets), a.gone, a.end, a.offset(1), a.place(4), a.place(0)) == ([4, 9], 1, 3, 4, 1, 1)
    assert "b" not in made.entries


def test_a_queue_that_has_lost_its_records_lives_on_for_its_consumers() -> None:
    made = index((0, "a"))
    made.store("a", "c", StoredState(b"{}", 1.0))
    made.trim(5)
    assert made.entries["a"].end == 1 and made.stored("a", "c") == StoredState(b"{}", 1.0)
    made.store("a", "c", None)
    assert made.entries == {}


def test_a_deleted_queue_is_gone_with_its_consumers_and_what_comes_late_is_gone_too() -> None:
    made = index((0, "a"), (1, "b"))
    made.store("a", "c", StoredState(b"{}", 1.0))
    made.delete("a", 4)
    assert "a" not in made.entries and made.stored("a", "c") is None
    assert not made.add("a", 3) and made.add("a", 4) and list(made.entries["a"].offsets) == [4]
    made.delete("a", 2)  # an older mark changes nothing
    assert made.marks["a"] == 4 and list(made.entries["a"].offsets) == [4]


def test_a_record_of_another_program_belongs_to_no_queue() -> None:
    made = index((0, "a"))
    assert not made.add(None, 1) and made.head == 2 and list(made.entries) == ["a"]


def test_records_that_are_out_of_order_are_refused() -> None:
    with pytest.raises(NotAllowed, match="0 comes after 4"):
        index((4, "a"), (0, "a"))


NAMES = {"a": 1, "ab": 1, "b": 1, "b:1": 1}
PAGES = (
    (("", "", 10), ["a", "ab", "b", "b:1"]),
    (("a", "", 10), ["a", "ab"]),
    (("", "ab", 10), ["b", "b:1"]),
    (("", "", 2), ["a", "ab"]),
    (("x", "", 2), []),
)


@pytest.mark.parametrize(("asked", "found"), PAGES)
def test_names_come_in_pages(asked: tuple[str, str, int], found: list[str]) -> None:
    assert index(*((at, name) for at, name in enumerate(NAMES))).names(*asked) == found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 3)),
        st.tuples(st.just("trim"), st.just(""), st.integers(0, 40)),
        st.tuples(st.just("delete"), st.sampled_from("abc"), st.integers(0, 3)),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS)
def test_the_index_says_the_same_as_the_log_read_again(steps: list[tuple[str, str, int]]) -> None:
    made, log, head, low, marks = QueueIndex(), [], 0, 0, {}  # type: QueueIndex, list[tuple[int, str]], int, int, dict[str, int]
    for verb, queue, number in steps:
        if verb == "add":
            head += number
            made.add(queue, head - 1)
            log.append((head - 1, queue))
        elif verb == "trim":
            low = max(low, min(number, head))
            made.trim(low)
        else:
            marks[queue] = max(marks.get(queue, 0), head + number)
            made.delete(queue, head + number)
    alive = [(offset, queue) for offset, queue in log if offset >= low and offset >= marks.get(queue, 0)]
    expected = {queue: [offset for offset, name in alive if name == queue] for queue in {name for _, name in alive}}
    assert {queue: list(entry.offsets) for queue, entry in made.entries.items()} == expected


def test_a_hundred_thousand_queues_fit_into_tens_of_megabytes() -> None:
    made = QueueIndex()
    for offset in range(100_000):
        made.add(f"user:{offset:06}", offset)
    each = sum(
        sys.getsizeof(name) + sys.getsizeof(entry) + sys.getsizeof(entry.offsets)
        for name, entry in made.entries.items()
    )
    assert each + sys.getsizeof(made.entries) < 40_000_000


def test_records_in_memory_are_nothing_for_the_garbage_collector_to_look_at() -> None:
    cache, record = RecordCache(), StoredRecord(7, b"goal", None, (("by", b"ann"),), 5_000)
    cache.add(record)
    for _ in range(2):  # a tuple leaves the collector's list once those inside it have
        gc.collect()
    assert not gc.is_tracked(cache._records[7]) and cache.get(7) == record
