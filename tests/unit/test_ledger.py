"""The ledger is exact, its text always fits, and what it did not write it does not read."""

from __future__ import annotations

import base64
import re
import zlib

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.errors import LedgerCorrupt, NotAllowed
from kqlib.queue.ledger import BUDGET, Ledger
from kqlib.queue.ledger_text import CHARACTERS

TOPIC = "u8F_x-3kTUqPZr2bGv0aWg"


def new(floor: int = 0) -> Ledger:
    return Ledger(floor, floor, epoch=7, topic=TOPIC)


def opened(ledger: Ledger) -> dict[int, int]:
    return {offset: attempts for start, end, attempts in ledger.runs() for offset in range(start, end)}


def checked(ledger: Ledger) -> Ledger:
    """What must hold at every moment: the text fits, and says everything."""
    for version, leader in ((1, -1), (2, -1), (2, (1 << 31) - 1)):
        ledger.leader = leader
        text = ledger.text(version)
        assert len(text) <= CHARACTERS and text.isascii()
        again = Ledger.read(text, ledger.floor)
        assert (again.floor, again.top, again.epoch, again.topic) == (ledger.floor, ledger.top, ledger.epoch, TOPIC)
        assert list(again.runs()) == list(ledger.runs()) and again.leader == leader
    return ledger


# --- tables: what is done, then (floor, top, what is open) -----------------------------------------------------------

STORIES = {
    "nothing yet": ([], 0, 0, {}),
    "three are out": ([("claim", [0, 1, 2])], 0, 3, {0: 1, 1: 1, 2: 1}),
    "the first done moves the floor": ([("claim", [0, 1, 2]), ("ack", [0])], 1, 3, {1: 1, 2: 1}),
    "the middle one done leaves two runs": ([("claim", [0, 1, 2]), ("ack", [1])], 0, 3, {0: 1, 2: 1}),
    "all done: the floor is at the top": ([("claim", [0, 1, 2]), ("ack", [2, 0, 1])], 3, 3, {}),
    "tried again, it counts": ([("claim", [0, 1, 2]), ("claim", [1])], 0, 3, {0: 1, 1: 2, 2: 1}),
    "neighbours alike again": ([("claim", [0, 1]), ("claim", [0]), ("claim", [1])], 0, 2, {0: 2, 1: 2}),
    "passed over: open, no attempt": ([("pass_over", [0]), ("claim", [1])], 0, 2, {0: 0, 1: 1}),
    "old and new in one batch": ([("claim", [0]), ("claim", [0, 1])], 0, 2, {0: 2, 1: 1}),
    "a hole is nothing to do": ([("claim", [0, 5])], 0, 6, {0: 1, 5: 1}),
    "a hole at the front moves the floor": ([("claim", [5])], 5, 6, {5: 1}),
    "given back": ([("claim", [0, 1]), ("give_back", 1)], 0, 2, {0: 1, 1: 0}),
    "skipped at the end": ([("claim", [0]), ("ack", [0]), ("skip", 9)], 9, 9, {}),
    "skipped behind an open one": ([("claim", [0]), ("skip", 9)], 0, 9, {0: 1}),
    "purged in the middle of a run": ([("claim", [0, 1, 2, 3]), ("purge", 2)], 2, 4, {2: 1, 3: 1}),
    "open again below the floor": ([("skip", 9), ("claim", [9]), ("reopen", (2, 4))], 2, 10, {2: 0, 3: 0, 9: 1}),
    "open again around what is open": (
        [("claim", range(4)), ("ack", [0, 3]), ("reopen", (0, 9))],
        0,
        4,
        dict.fromkeys(range(4), 0) | {1: 1, 2: 1},
    ),
    "purged beyond the top": ([("claim", [0, 1, 2, 3]), ("purge", 8)], 8, 8, {}),
    "acked twice": ([("claim", [0, 1]), ("ack", [0]), ("ack", [0])], 1, 2, {1: 1}),
    "acks across runs": ([("claim", range(9)), ("ack", [4]), ("ack", range(2, 7))], 0, 9, {0: 1, 1: 1, 7: 1, 8: 1}),
}


@pytest.mark.parametrize(("does", "floor", "top", "left"), STORIES.values(), ids=STORIES)
def test_the_ledger_says_what_is_open(does: list, floor: int, top: int, left: dict) -> None:
    ledger = new()
    for verb, argument in does:
        getattr(ledger, verb)(*((*argument, 0, 99) if verb == "reopen" else (argument,)))
    assert (ledger.floor, ledger.top, opened(ledger), ledger.open) == (floor, top, left, len(left))
    checked(ledger)


ANSWERS = {
    "a fresh claim is attempt 1": (lambda x: x.claim([0, 1]), [1, 1]),
    "a second is 2": (lambda x: (x.claim([0, 1]), x.claim([0]))[1], [2]),
    "old and new": (lambda x: (x.claim([0]), x.claim([0, 1]))[1], [2, 1]),
    "after being passed over it is 1": (lambda x: (x.pass_over([0]), x.claim([0]))[1], [1]),
    "counted up to fifteen": (lambda x: [x.claim([0]) for _ in range(20)][-1], [15]),
    "ack says how many": (lambda x: (x.claim([0, 1, 2]), x.ack([0, 2, 5]))[1], 2),
    "purge says how many": (lambda x: (x.claim([0, 1, 2]), x.ack([0]), x.purge(2))[2], 1),
    "nothing to give back": (lambda x: (x.pass_over([0]), x.give_back(0))[1], False),
    "not open": (lambda x: x.attempts(3), None),
}


@pytest.mark.parametrize(("ask", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_the_ledger_answers(ask, answer) -> None:
    assert ask(new()) == answer


WRONG = {
    "an item that is not open": (lambda x: (x.claim([0, 1]), x.ack([0]), x.claim([0])), "offset 0 is not open"),
    "offsets that fall": (lambda x: x.claim([3, 1]), "offsets rise, and new ones begin at 4: not 1"),
    "a floor above the top": (lambda x: Ledger(3, 2), "a ledger's floor and top are 0 <= floor <= top, not 3 and 2"),
    "a version nobody knows": (lambda x: x.text(version=3), "a ledger is written in version 1, 2, not 3"),
}


@pytest.mark.parametrize(("ask", "sentence"), WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused(ask, sentence: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        ask(new())
    assert str(refused.value) == sentence


# --- the text ---------------------------------------------------------------------------------------------------------

GOLDEN_1 = "1 7 u8F_x-3kTUqPZr2bGv0aWg q5=RR01^Np0WnnKP2&"
GOLDEN_2 = "2 7 u8F_x-3kTUqPZr2bGv0aWg 0000Dq5=RR01^Np0Wkn_Wb^"


@pytest.mark.parametrize(("version", "leader", "golden"), [(1, -1, GOLDEN_1), (2, 12, GOLDEN_2)], ids=[1, 2])
def test_the_text_of_every_version_stays_readable(version: int, leader: int, golden: str) -> None:
    ledger = new(1000)
    ledger.leader = 12
    ledger.claim(range(1000, 1010))
    ledger.claim([1003])
    ledger.ack([1000, 1006])
    ledger.skip(1300)
    assert ledger.text(version) == golden
    again = Ledger.read(golden, 1001)
    assert opened(again) == {1001: 1, 1002: 1, 1003: 2, 1004: 1, 1005: 1, 1007: 1, 1008: 1, 1009: 1}
    assert again.leader == leader


def test_what_jumps_over_records_that_nobody_has_read_knows_no_leader() -> None:
    ledger = new()
    ledger.claim([0, 1, 2])
    ledger.leader = 4
    ledger.purge(3)
    assert ledger.copy().leader == 4
    ledger.purge(4)
    assert ledger.leader == -1


def sealed(body: bytes, floor: int = 0, head: str = f"1 7 {TOPIC}") -> str:
    """A text with the right checksum, whatever it says."""
    sum_ = zlib.crc32(f"{floor} {head} ".encode() + body).to_bytes(4, "big")
    return f"{head} {base64.b85encode(body + sum_).decode()}"


GOOD = bytes([0, 0, 32 + 1])  # tail 0; two items from the floor, attempt 1
UNREADABLE = {
    "nothing": ("", "it is not of the form"),
    "someone's note": ("done by anna", "it is not of the form"),
    "too long": (sealed(bytes(4000)), "it is not of the form"),
    "not ASCII": (sealed(GOOD) + "é", "it is not of the form"),
    "one word more": (sealed(GOOD) + " x", "it is not of the form"),
    "a newer version": (
        sealed(GOOD, head=f"3 7 {TOPIC}"),
        "written in version 3 and this kqlib reads version 1, 2. Update",
    ),
    "an epoch with a zero in front": (sealed(GOOD, head=f"1 07 {TOPIC}"), "it is not of the form"),
    "one letter changed": (sealed(GOOD)[:-1] + "!", "its checksum does not match the committed offset 0"),
    "another topic's id": (sealed(GOOD).replace(TOPIC, TOPIC[::-1]), "its checksum does not match"),
    "beside another floor": (sealed(GOOD, floor=5), "a mirror changes the offset, and copies the state unchanged"),
    "no base85": (f"1 7 {TOPIC} ~~~~~,,", "its state is not base85"),
    "too short for a checksum": (f"1 7 {TOPIC} 00", "its checksum does not match"),
    "no tail": (sealed(b""), "its runs are cut off"),
    "half a run": (sealed(bytes([0, 0])), "its runs are cut off"),
    "half a number": (sealed(bytes([0, 0, 129])), "its runs are cut off"),
    "an empty run": (sealed(bytes([0, 0, 1])), "not in their shortest form"),
    "a gap before the first": (sealed(bytes([0, 1, 17])), "not in their shortest form"),
    "two runs that are one": (sealed(bytes([0, 0, 17, 0, 17])), "not in their shortest form"),
    "a number in two bytes that fits in one": (sealed(bytes([0, 0, 145, 0])), "nothing in this version writes it"),
    "a tail with nothing open": (sealed(bytes([3])), "nothing is open"),
    "more than any claim could": (sealed(bytes([0, 0, 17]) + bytes([1, 17]) * 1700), "it is not of the form"),
    "a run longer than any claim": (sealed(bytes([0, 0, 128, 128, 8])), "nothing in this version writes it"),
}


@pytest.mark.parametrize(("text", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_the_ledger_did_not_write_it_does_not_read(text: str, why: str) -> None:
    Ledger.read(sealed(GOOD), 0)
    with pytest.raises(LedgerCorrupt, match=re.escape(why)):
        Ledger.read(text, 0)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_text_with_any_letter_changed_is_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([GOLDEN_1, GOLDEN_2]))
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda c: c != text[at]))
    with pytest.raises(LedgerCorrupt):
        Ledger.read(text[:at] + letter + text[at + 1 :], 1001)


# --- the budget -------------------------------------------------------------------------------------------------------


def test_a_full_ledger_takes_no_more_and_its_first_item_can_still_be_tried_again() -> None:
    ledger = new()
    taken = len(ledger.claim(range(10_000)))
    assert 3_190 <= taken <= BUDGET and ledger.top == taken
    assert ledger.claim([taken]) == [] and ledger.pass_over([taken]) == 0
    assert ledger.claim([5]) == [] and ledger.claim([0]) == [2] and ledger.claim([0]) == [3]
    checked(ledger)
    ledger.ack([0])
    assert ledger.claim([1]) == [2]
    checked(ledger)


def test_every_second_acked_of_a_full_ledger_fits() -> None:
    ledger = new()
    taken = len(ledger.claim(range(10_000)))
    ledger.ack(range(1, taken, 2))
    assert len(checked(ledger).text()) > 3_900
    ledger.ack(range(0, taken, 2))
    assert ledger.floor == ledger.top == taken and ledger.space() > 3_190


def test_alternating_attempts_fit() -> None:
    ledger = new()
    ledger.claim(range(10_000))
    ledger.ack(range(1_600, ledger.top))
    tried = sum(bool(ledger.claim([offset])) for offset in range(0, 1_600, 2))
    assert tried > 780
    checked(ledger)


def test_nine_hundred_spread_over_ten_million_fit() -> None:
    ledger, step = new(), 10_000_000 // 900
    for offset in range(0, 10_000_000 - step, step):
        ledger.claim([offset])
    assert ledger.open >= 899
    checked(ledger)


# --- against a plain dict ---------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 400)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fresh", "fresh", "over", "retry", "ack", "ack", "back", "skip", "purge", "reopen"]),
        NUMBERS,
        NUMBERS,
    ),
    max_size=60,
)


class Plain:
    """The same, as one writes it down without thinking of space."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.top = 0


@given(STEPS, st.sampled_from([1, 7, 300]), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_the_ledger_is_what_a_dict_says_and_fits(steps: list, wide: int, floor: int) -> None:
    ledger, plain = new(floor), Plain()
    plain.top = floor
    for verb, one, two in steps:
        _both(ledger, plain, verb, one * wide, two)
        assert opened(ledger) == plain.open and ledger.top == plain.top
        assert ledger.floor == min(plain.open, default=plain.top)
        checked(ledger)


def _both(ledger: Ledger, plain: Plain, verb: str, one: int, two: int) -> None:
    known = sorted(plain.open)
    some = known[one % (len(known) + 1) :][: two + 1]
    if verb in ("fresh", "over"):
        step = 1 + one % 3
        fresh = range(plain.top + one % 5, plain.top + one % 5 + step * two, step)
        taken = len(ledger.claim(fresh)) if verb == "fresh" else ledger.pass_over(fresh)
        plain.open |= dict.fromkeys(fresh[:taken], int(verb == "fresh"))
        plain.top = fresh[taken - 1] + 1 if taken else plain.top
    elif verb == "retry":
        given = ledger.claim(some[::3])
        for offset, attempt in zip(some[::3], given, strict=False):
            plain.open[offset] = min(15, plain.open[offset] + 1)
            assert attempt == plain.open[offset]
        assert given or not some or some[0] != known[0]  # the first open item can always be tried again
    elif verb == "ack":
        plain.open = {o: a for o, a in plain.open.items() if o not in set(some[:: 1 + one % 2])}
        assert ledger.ack(some[:: 1 + one % 2]) == len(some[:: 1 + one % 2])
    elif verb == "back" and some and ledger.give_back(some[0]):
        plain.open[some[0]] -= 1 if plain.open[some[0]] < 15 else 0
    elif verb == "reopen":
        start, most = max(0, plain.top - one), ledger.may_reopen()
        again = [o for o in range(start, min(start + two, plain.top)) if o not in plain.open][:most]
        new_ = ledger.reopen(start, start + two, two % 16, most)
        assert [o for first, last in new_ for o in range(first, last)] == again
        plain.open |= dict.fromkeys(again, two % 16)
    elif verb == "skip":
        ledger.skip(plain.top + one)
        plain.top += one
    elif verb == "purge":
        below = (known[0] if known else plain.top) + two
        plain.open = {o: a for o, a in plain.open.items() if o >= below}
        plain.top = max(plain.top, below)
        ledger.purge(below)


@given(STEPS)
@settings(max_examples=12, deadline=None)
def test_a_full_ledger_fits_whatever_happens_to_it(steps: list) -> None:
    ledger, plain = new(), Plain()
    taken = len(ledger.claim(range(10_000)))
    plain.open, plain.top = dict.fromkeys(range(taken), 1), taken
    for verb, one, two in steps:
        _both(ledger, plain, verb, one * 8, two * 8)
        assert opened(ledger) == plain.open
        checked(ledger)


def test_a_copy_goes_its_own_way() -> None:
    ledger = new()
    ledger.claim(range(5))
    other = ledger.copy()
    other.ack([2])
    assert opened(ledger) == dict.fromkeys(range(5), 1) and len(opened(other)) == 4


CUTS: dict[str, tuple[int, dict[int, int], int, int]] = {  # where: what is left open, floor, top
    "beyond its top": (20, {1: 1, 3: 1, 4: 1}, 1, 6),
    "within a run": (4, {1: 1, 3: 1}, 1, 4),
    "at its floor": (1, {}, 1, 1),
    "below its floor": (0, {}, 0, 0),
}


@pytest.mark.parametrize(("end", "left", "floor", "top"), CUTS.values(), ids=CUTS)
def test_a_log_that_was_cut_off_takes_what_lay_beyond_with_it(end: int, left: dict, floor: int, top: int) -> None:
    ledger = new()
    ledger.claim(range(6))
    ledger.ack([0, 2, 5])
    gone = ledger.cut(end)
    assert (opened(ledger), ledger.floor, ledger.top, gone) == (left, floor, top, 3 - len(left))
    checked(ledger)
