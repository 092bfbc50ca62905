"""When it is noted that a site has state in a partition, and how long a topic that was made anew is left alone."""

from __future__ import annotations

import queue
import time
from dataclasses import replace
from typing import Any

import pytest

from kqlib.errors import LedgerLost, Unreachable
from kqlib.queue.assigned import Loading
from kqlib.queue.incidents import Seen
from kqlib.queue.ledger import Ledger
from kqlib.queue.loader import Loader
from tests.patience import WAIT

AT = ("football", 0)
KEY = ("here", "football", "state", 0)


class Notes:
    """What kq.queues says, without Kafka."""

    def __init__(self, known: dict[tuple[Any, ...], str]) -> None:
        self.known, self.written = known, list[Any]()

    def catch_up(self) -> None:
        """It is always up to date."""

    def get(self, *key: Any) -> Any:
        return self.known.get(key)

    def mark(self, *_key: Any, **_kind: Any) -> int:
        return 0

    purge_mark = mark

    def write(self, notes: list[Any], _sender: object) -> None:
        self.written += notes


class Looker:
    """One partition as it is."""

    def __init__(self, committed: int | None, alone: bool = False, text: str | None = None) -> None:
        self.alone = lambda: alone
        if text is None:
            text = Ledger(3, 3, 1, "id").text() if committed is not None else ""
        self.seen = Seen("id", 0, 9, committed, text)

    def look(self, _partitions: list[Any], notes: Any) -> dict[Any, Seen]:
        return {AT: replace(self.seen, known=notes.get(*KEY) == "id")}


def loader_of(notes: Any, looker: Any) -> Loader:
    sender: Any = None
    return Loader("here", looker, notes, sender, lambda: None)


@pytest.mark.parametrize(
    ("committed", "known", "written", "error"),
    [
        (None, {}, [], None),  # the first owner may lose it before its first commit: that must not look like a loss
        (3, {}, [(KEY, "id")], None),  # one that died between its commit and the note
        (3, {KEY: "id"}, [], None),
        (None, {KEY: "id"}, [], LedgerLost),
        (None, {KEY: "older"}, [], None),  # of a topic that was deleted
    ],
    ids=["new", "committed and not noted", "known", "gone", "another topic's"],
)
def test_a_state_is_noted_when_it_is_there(
    committed: int | None, known: dict[tuple[Any, ...], str], written: list[Any], error: type[Exception] | None
) -> None:
    notes, loading = Notes(known), Loading(AT, "raise")
    loader = loader_of(notes, Looker(committed))
    loader.load([loading])
    assert loader.done.get(timeout=WAIT) is loading
    loader.close()
    assert notes.written == written and type(loading.error) is (error or type(None))


@pytest.mark.parametrize(
    ("how", "alone", "after"),
    [
        ({"was": "id"}, False, 0.0),
        ({"was": "older"}, True, None),  # the group has given out the old topic: of the new one it may be another's
        ({"decided_after": 0.6}, False, 0.6),  # the owner of the old topic may still commit under this name
        ({"decided_after": 60}, True, 0.0),  # there is nobody
        ({"decided_after": 60, "ended": "older"}, False, 0.0),  # that was this process
    ],
    ids=["the same topic", "held under the old one", "new to this process", "nobody else", "had to the end"],
)
def test_a_topic_made_anew_is_left_alone_until_nobody_works_on_the_old_one(
    how: dict[str, Any], alone: bool, after: float | None, within: Any
) -> None:
    notes, loading = Notes({} if "was" in how else {KEY: "older"}), Loading(AT, "raise", **how)
    loader = loader_of(notes, Looker(None, alone))
    loader.load([loading])
    if after is None:
        within(5, lambda: "made anew" in loading.trouble)
        with pytest.raises(queue.Empty):
            loader.done.get(timeout=0.5)
    else:
        assert loader.done.get(timeout=WAIT) is loading and loading.ledger is not None
        assert time.monotonic() - loading.since >= after
    loader.close()


def test_one_that_has_to_wait_holds_up_no_other() -> None:
    loader = loader_of(Notes({}), Looker(None))
    loader.load([Loading(AT, "raise", was="older"), other := Loading(AT, "raise")])
    assert loader.done.get(timeout=WAIT) is other
    loader.load([late := Loading(AT, "raise")])
    assert loader.done.get(timeout=WAIT) is late
    loader.close()


@pytest.mark.parametrize("remembered", [True, False], ids=["in this process", "in kq.queues"])
def test_what_a_commit_skipped_is_noted_before_the_partition_is_anybodys(remembered: bool) -> None:
    ours, older = Ledger(4, 4, 1_000, "id"), Ledger(0, 0, 7, "id")
    in_memory, noted = (ours, older) if remembered else (older, ours)
    notes = Notes({KEY: "id", (*KEY[:2], "last", 0): {"floor": noted.floor, "text": noted.text()}})  # type: ignore[dict-item]
    loader = loader_of(notes, Looker(7, text=""))
    loader.load([loading := Loading(AT, "raise", last=(in_memory.floor, in_memory.text()))])
    assert loader.done.get(timeout=WAIT) is loading
    loader.close()
    ((key, note),) = notes.written
    (incident,) = note["incidents"]
    assert key == (*KEY[:2], "incidents", 0)
    assert (incident["why"], incident["start"], incident["end"], incident["items"]) == ("skipped", 4, 7, 3)
    assert loading.ledger is not None and (loading.ledger.floor, loading.gone) == (7, 0)


def test_a_state_counts_as_loaded_when_its_notes_are_stored() -> None:
    notes: Any = Notes({})
    loadings, write = [Loading(AT, "raise")], notes.write
    seen = list[Any]()

    def unanswered(_notes: list[Any], _sender: object) -> None:
        seen.append(loadings[0].ledger)
        notes.write = write
        raise Unreachable(address="h:1", why="no answer to a note")

    notes.write = unanswered
    loader = loader_of(notes, Looker(3))
    loader.load(loadings)
    assert loader.done.get(timeout=WAIT) is loadings[0]
    loader.close()
    assert (seen, notes.written, loadings[0].ledger is None) == ([None], [(KEY, "id")], False)
