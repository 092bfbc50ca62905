"""Keys: where they go, how evenly, and what growth moves; no broker is needed to know it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.errors import NotAllowed
from kqlib.keys import moved, partition, spread
from kqlib.workshop import view
from kqlib.workshop.play.keys import keys as playground

GAMES = ["LAL-BOS", "MCI-LIV", "ARS-CHE", "BAR-RMA", "INT-MIL", "LIV-MUN", "TOT-EVE", "NEW-AVL", "BHA-WHU", "DAL-DEN"]

quick = settings(max_examples=60, deadline=None)  # a busy machine is no error
a_key = st.one_of(st.binary(max_size=40), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
some_keys = st.lists(a_key, max_size=25)
few = st.integers(1, 200)
a_hash = st.sampled_from(["murmur2", "crc32"])


# --- partition ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "n", "how", "place"),
    [
        (b"LAL-BOS", 3, "murmur2", 0),
        ("LAL-BOS", 3, "crc32", 2),
        ("Fußball", 7, "murmur2", partition("Fußball".encode(), 7)),
        (b"", 7, "crc32", 0),
        (b"x", 2**31 - 1, "murmur2", 2_121_525_046),
    ],
)
def test_a_key_has_one_place(key: Any, n: int, how: Any, place: int) -> None:
    assert partition(key, n, hash=how) == place


NOT_A_COUNT = "the number of partitions is a whole number, 1 or more, not {}"


@pytest.mark.parametrize(
    ("key", "n", "how", "sentence"),
    [
        (b"A", 0, "murmur2", "a topic has at least 1 partition and at most 2,147,483,647, not 0"),
        (b"A", 2**31, "murmur2", "a topic has at least 1 partition and at most 2,147,483,647, not 2,147,483,648"),
        (b"A", True, "murmur2", NOT_A_COUNT.format("True")),
        (b"A", None, "murmur2", NOT_A_COUNT.format("None")),
        (b"A", 3, "md5", "hash is 'murmur2' (Java, Spark, kqlib) or 'crc32' (librdkafka's default), not 'md5'"),
        (
            None,
            3,
            "murmur2",
            "a null key has no partition of its own: clients send such records to one for a while, then to another. "
            "Leave them out, or give them a key",
        ),
        (
            121,
            3,
            "murmur2",
            "a key is bytes, or text for its UTF-8 form, not int: turn it into what your producer sends, "
            "as in str(key).encode()",
        ),
        (bytearray(b"A"), 3, "crc32", "a key is bytes, or text for its UTF-8 form, not bytearray: say bytes(key)"),
        ("\ud800", 3, "murmur2", r"'\ud800' has no UTF-8 form, so no producer sends it: take bytes"),
    ],
)
def test_what_is_no_question_gets_a_sentence(key: Any, n: Any, how: Any, sentence: str) -> None:
    for ask in (lambda: partition(key, n, how), lambda: spread([key], n, how), lambda: moved([key], n, n, how)):
        with pytest.raises(NotAllowed) as refused:
            ask()
        assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("ARS-CHE", "keys are many, as in [b'ARS-CHE', b'LAL-BOS'], not one str"),
        (None, "keys are many, as in [b'ARS-CHE', b'LAL-BOS'], not one NoneType"),
        (
            [["A"]],
            "a key is bytes, or text for its UTF-8 form, not list: turn it into what your producer sends, "
            "as in str(key).encode()",
        ),
    ],
)
def test_one_key_is_not_many(keys: Any, sentence: str) -> None:
    for ask in (lambda: spread(keys, 3), lambda: moved(keys, 3, 4)):
        with pytest.raises(NotAllowed) as refused:
            ask()
        assert str(refused.value) == sentence


# --- spread ------------------------------------------------------------------------------------------------------------


@quick
@given(some_keys, few, a_hash)
def test_a_spread_adds_up_to_all_records(keys: list[Any], n: int, how: Any) -> None:
    found = spread(keys, n, how)
    assert sum(found) == sum(found.sizes) == sum(found.records.values()) == len(keys)
    assert len(found) == len(found.keys) == n
    assert (
        sum(found.keys) == len(found.records) == len({key if isinstance(key, bytes) else key.encode() for key in keys})
    )
    assert list(found) == [sum(partition(key, n, how) == place for key in keys) for place in range(n)]
    assert found.idle == list(found).count(0)


@quick
@given(some_keys, few, a_hash)
def test_evenness_is_one_only_when_all_partitions_get_the_same(keys: list[Any], n: int, how: Any) -> None:
    found = spread(keys, n, how)
    assert 0 < found.evenness <= 1
    assert (found.evenness == 1) == (max(found) == min(found))


@quick
@given(some_keys, few)
def test_hot_is_what_fills_more_than_a_partition_alone(keys: list[Any], n: int) -> None:
    found = spread(keys, n)
    assert all(times * n > len(keys) for times in found.hot.values())
    assert {key for key, times in found.records.items() if times * n > len(keys)} == set(found.hot)
    assert list(found.hot.values()) == sorted(found.hot.values(), reverse=True)
    assert n > 1 or not found.hot


def test_a_key_as_text_and_as_bytes_is_one_key_named_as_it_came_first() -> None:
    found = spread([b"A", "A", "B", b"B", b"A"], 4)
    assert dict(found.records) == {b"A": 3, "B": 2}


@pytest.mark.parametrize(
    ("keys", "n", "words"),
    [
        (GAMES, 3, "10 records of 10 keys on 3 partitions by murmur2: 7 + 2 + 1\nevenness 0.48"),
        ([], 2, "0 records of 0 keys on 2 partitions by murmur2: 0 + 0\nevenness 1.00, 2 idle"),
        (
            GAMES * 100 + GAMES[:1] * 1000,
            4,
            "2,000 records of 10 keys on 4 partitions by murmur2: 300 + 200 + 1,300 + 200\n"
            "evenness 0.38 · hot: LAL-BOS 1,100",
        ),
        (
            GAMES,
            100,
            "10 records of 10 keys on 100 partitions by murmur2: 0 to 2 each\n"
            "evenness 0.05, 91 idle · hot: ARS-CHE 1, BAR-RMA 1, BHA-WHU 1, 7 more",
        ),
    ],
)
def test_a_spread_says_itself_in_two_lines(keys: list[str], n: int, words: str) -> None:
    assert repr(spread(keys, n)) == words


def test_a_spread_over_a_billion_partitions_is_refused_and_not_tried() -> None:
    with pytest.raises(NotAllowed) as refused:
        spread(GAMES, 10**9)
    assert str(refused.value) == (
        "a spread counts the records of each partition, so of 1,000,000 partitions at most, not 1,000,000,000"
    )
    assert len(spread(GAMES, 10**6)) == 10**6


# --- moved -------------------------------------------------------------------------------------------------------------


@quick
@given(some_keys, few, few, a_hash)
def test_what_moves_is_what_has_another_place_afterwards(keys: list[Any], one: int, other: int, how: Any) -> None:
    before, after = sorted((one, other))
    found = moved(keys, before, after, how)
    for key in keys:
        places = (partition(key, before, how), partition(key, after, how))
        assert (key in found) == (places[0] != places[1])
        assert key not in found or found[key] == places
    assert 0 <= found.share <= 1


def test_keys_are_found_as_text_and_as_bytes_and_come_out_as_they_were_given() -> None:
    found = moved(["LAL-BOS", b"ARS-CHE", b"INT-MIL", "INT-MIL"], 4, 6)
    assert list(found) == ["LAL-BOS", b"INT-MIL"]
    assert found["INT-MIL"] == found[b"INT-MIL"] == (1, 5)
    assert "ARS-CHE" not in found


def test_moved_says_itself_in_a_line() -> None:
    assert repr(moved(GAMES, 4, 6)) == "7 of 10 keys move · 4 → 6 partitions by murmur2"
    assert repr(moved(["A"], 1, 2, "crc32")) == "1 of 1 key moves · 1 → 2 partitions by crc32"


def test_a_topic_never_shrinks() -> None:
    with pytest.raises(NotAllowed) as refused:
        moved(GAMES, 6, 4)
    assert str(refused.value) == (
        "a topic never gets fewer partitions, so it does not go from 6 to 4. "
        "For fewer make a new topic and copy into it"
    )


def test_a_picture_says_the_same_as_the_numbers() -> None:
    assert view.spread(spread(GAMES, 3), "football").text.splitlines()[2:5] == [
        "p0  7 records  A B C D G H I",
        "p1  2 records  F J",
        "p2  1 record   E",
    ]
    assert view.moved(moved(GAMES[:2], 4, 6)).title == "keys · 2 keys · 1 of them elsewhere"
    assert "*B*" in view.spread(spread(GAMES, 3), mark="MCI-LIV").text


@pytest.mark.parametrize(
    "many",
    [lambda keys: view.spread(spread(keys, 3)), lambda keys: view.moved(moved(keys, 3, 4))],
    ids=["spread", "moved"],
)
def test_a_picture_of_too_many_keys_is_refused_and_not_tried(many: Any) -> None:
    with pytest.raises(NotAllowed) as refused:
        many([b"%d" % number for number in range(100_001)])
    assert str(refused.value) == "a picture shows at most 100,000 keys, and these are 100,001: draw a part of them"


# --- the playground ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("controls", "line"),
    [
        ({"partitions": 3, "hash": "crc32"}, "p2  3 records  G I *K*"),
        ({"key": "ARS-CHE"}, "p0  3 records  *A* B D"),
        ({"key": "", "partitions": 7}, "(empty) → p2 · 11 keys"),
        ({"key": "a\u202eb"}, r"a\u202eb → p1 · 11 keys"),
    ],
)
def test_a_moved_control_shows_in_the_picture_and_in_its_twin(controls: dict[str, Any], line: str) -> None:
    assert line in playground().set(**controls).picture.text.splitlines()


def test_a_key_without_a_place_gets_a_sentence_and_the_last_picture_stays() -> None:
    play = playground().set(hash="crc32", key="")
    assert "an empty key has no partition of its own by librdkafka" in play.note
    assert play.set(key="A").note == ""
