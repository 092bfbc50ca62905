"""What another program's commit did, from plain values; and how that is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kqlib.queue import incidents
from kqlib.queue.incidents import Incident, Seen, Stored
from kqlib.queue.ledger import Ledger
from kqlib.queue.state import ledger_from

ID = "id"


def stored(ledger: Ledger) -> Stored:
    return ledger.floor, ledger.text()


def ours(epoch: int = 1) -> Ledger:
    """3 and 6 are open, 3 to 7 were handed out, 0 to 2 are done."""
    ledger = Ledger(3, 3, epoch, ID)
    ledger.claim(range(3, 8))
    ledger.ack([4, 5, 7])
    return ledger


TEXT = ours().text()


def seen(committed: int, low: int = 0, end: int = 20, text: str = "", kept: int = 99) -> Seen:
    return Seen(ID, low, end, committed, text, kept=kept)


# committed, the log's first offset: what was skipped, what comes again, what left the log; the skipped ones
FOUND: dict[str, tuple[Seen, bool, list[tuple[str, int]], list[int]]] = {
    "our own": (seen(3, text=TEXT), True, [], []),
    "our own, and the log was cut off": (seen(3, text=TEXT, end=5), True, [("cut", 1)], []),
    "our own, and the log was cut off behind what was open": (seen(3, text=TEXT, end=7), True, [], []),
    "our own, and the log was cut off and has grown again": (seen(3, text=TEXT, kept=2), True, [("cut", 2)], []),
    "to the end": (seen(20), True, [("skipped", 14)], [3, 6, *range(8, 20)]),
    "beyond the end": (seen(99), True, [("skipped", 14)], [3, 6, *range(8, 20)]),
    "between floor and top": (seen(5), True, [("skipped", 1), ("again", 2)], [3]),
    "where it was": (seen(3), True, [("again", 3)], []),
    "to the top": (seen(8), True, [("skipped", 2)], [3, 6]),
    "back": (seen(0), True, [("again", 6)], []),
    "the log begins behind": (seen(9, low=5), True, [("skipped", 2), ("removed", 1)], [6, 8]),
    "nothing is known": (seen(5), False, [("skipped", 5)], [0, 1, 2, 3, 4]),
    "nothing is known, and the log begins later": (seen(5, low=3), False, [("skipped", 2)], [3, 4]),
}


@pytest.mark.parametrize(("now", "known", "expected", "offsets"), FOUND.values(), ids=FOUND)
def test_what_a_commit_did_is_counted_beside_our_last_state(
    now: Seen, known: bool, expected: list[tuple[str, int]], offsets: list[int]
) -> None:
    assert now.committed is not None
    ledger = ledger_from(now, "raise", "it")
    found = incidents.found(now, ledger, stored(ours()) if known else None, 0, now=5)
    assert [(each.why, each.items) for each in found] == expected
    gone = [each for each in found if each.why in ("skipped", "cut")]
    assert [offset for offset in range(25) if any(each.has(offset) for each in gone)] == offsets
    assert sum(each.lost for each in found) == sum(many for why, many in expected if why != "again")


def test_what_was_purged_is_not_lost() -> None:
    gone = incidents.found(seen(3, low=10, text=TEXT), ours(), None, 0, now=5)
    assert [(each.why, each.items) for each in gone] == [("removed", 4)]
    assert not incidents.found(seen(3, low=10, text=TEXT), ours(), None, 10, now=5)


def test_the_newest_of_our_states_counts_if_it_is_of_this_topic() -> None:
    old, new, other = stored(ours(1)), stored(ours(2)), stored(Ledger(0, 0, 3, "other"))
    corrupt = (4, new[1])
    assert incidents.newest(ID, old, new, other, None, corrupt) == new
    assert incidents.newest(ID, other, None) is None
    same = stored(Ledger(9, 9, 2, ID))
    assert incidents.newest(ID, new, same) == new  # in memory and noted: memory comes first
    assert incidents.last({"floor": new[0], "text": new[1]}) == new
    assert incidents.last(None) is incidents.last({}) is incidents.last("x") is None


def test_an_incident_is_kept_as_a_note_until_its_offsets_have_left_the_log() -> None:
    found = incidents.found(seen(5), Ledger(5, 5, 9, ID), stored(ours()), 0, now=5)
    note = json.loads(json.dumps(incidents.note(ID, found)))
    assert incidents.noted(note, ID) == found == incidents.noted(note, ID)
    assert [each.why for each in incidents.noted(note, ID, low=4)] == ["again"]
    assert incidents.noted(note, ID, low=8) == []
    assert (
        incidents.noted(note, "another topic") == incidents.noted(None, ID) == incidents.noted({"topic": ID}, ID) == []
    )
    assert incidents.note(ID, []) is None


def skip(end: int, at: int = 0, state: Stored | None = None) -> Incident:
    return Incident("skipped", 0, end, end, at, state)


def removed(start: int, end: int) -> Incident:
    return Incident("removed", start, end, end - start, 7)


STATE = (0, Ledger(0, 0, 1, ID).text())
TOGETHER: dict[str, tuple[list[Incident], list[Incident], Callable[[list[Incident]], Any], Any]] = {
    "each is later": ([skip(1, 9)], [skip(2, 3), skip(3, 3)], lambda all_: [each.at for each in all_], [9, 10, 11]),
    "found again": ([skip(1, 9, STATE)], [skip(1, 20, STATE)], lambda all_: [each.at for each in all_], [9]),
    "gone on since": (
        [skip(1, 9, STATE)], [skip(5, 20, STATE)], lambda all_: [(each.end, each.at) for each in all_], [(5, 20)],
    ),
    "removed, and more of it": (
        [removed(0, 2)], [removed(5, 9)], lambda all_: [(each.start, each.end, each.items) for each in all_], [(0, 9, 6)],
    ),
    "many": ([skip(1, n) for n in range(30)], [skip(2, 40)], lambda all_: (len(all_), all_[-1].end), (incidents.MOST, 2)),
}  # fmt: skip


@pytest.mark.parametrize(("before", "new", "look", "expected"), TOGETHER.values(), ids=TOGETHER)
def test_incidents_follow_one_another(
    before: list[Incident], new: list[Incident], look: Callable[[list[Incident]], Any], expected: Any
) -> None:
    assert look(incidents.together(before, new)) == expected


def test_a_new_one_is_later_than_the_rewind_before_it() -> None:
    assert incidents.together([], [skip(1, 5)], after=8)[0].at == 9
