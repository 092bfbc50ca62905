"""One member of a group, seen from inside: `member.py`, with a Consumer that is none."""

import queue
from types import SimpleNamespace

import pytest

from kqlib.workshop.groups import member


def records(*places):
    return [
        SimpleNamespace(topic=lambda: "t", partition=lambda p=p: p, offset=lambda o=o: o, error=lambda: None)
        for p, o in places
    ]


@pytest.mark.parametrize(
    ("places", "runs"),
    [
        ([], []),
        ([(0, 5), (0, 6), (0, 7)], [["t", 0, 5, 7]]),
        ([(0, 5), (1, 3), (0, 6)], [["t", 0, 5, 6], ["t", 1, 3, 3]]),
        ([(0, 5), (0, 7)], [["t", 0, 5, 5], ["t", 0, 7, 7]]),
    ],
)
def test_a_member_tells_its_work_as_runs_without_a_hole(places, runs) -> None:
    assert member._runs(records(*places)) == runs


@pytest.fixture
def made(monkeypatch):
    """A member with these orders and a Consumer that does nothing, and the events that it sent."""
    monkeypatch.setattr(member, "Consumer", lambda settings: SimpleNamespace())
    monkeypatch.setattr(member, "TopicPartition", lambda topic, number, offset: at_offset(offset, number))

    def make(commit=True, pace=None):
        orders = {"settings": {}, "topics": ["t"], "commit": commit, "pace": pace}
        events = []
        return member.Member(orders, queue.SimpleQueue(), events.append), events

    return make


class Pipe:
    """A connection whose other end is closed."""

    def __init__(self):
        self.sent = []
        self.send = self.sent.append

    def recv(self):
        raise EOFError


@pytest.mark.parametrize(
    ("orders", "last", "why"),
    [
        ({"settings": {"group.id": "g", "nonsense": 1}}, "failed", "nonsense"),
        ({"settings": {"group.id": "g", "bootstrap.servers": "127.0.0.1:1"}}, "left", ""),
    ],
)
def test_a_member_that_cannot_begin_says_why_and_one_without_a_parent_leaves(orders, last, why) -> None:
    line = Pipe()
    member.main(line, {"topics": ["t"], "commit": True, "pace": None, **orders})
    assert line.sent[-1]["what"] == last
    assert why in line.sent[-1].get("why", "")


def at_offset(offset, number=0):
    return SimpleNamespace(topic="t", partition=number, offset=offset)


REFUSED = SimpleNamespace(name=lambda: "ILLEGAL_GENERATION")
COMMITS = {
    # what happens to a member, and which commits of p0 it has asked for in the end
    "nothing done, nothing to commit": (["commit"], []),
    "what is done is asked for once, and the answer is awaited": (["work", "commit", "commit"], [[7]]),
    "what was taken is not asked for again": (["work", "commit", (None, 7), "commit"], [[7]]),
    "what was refused is asked for again": (["work", "commit", (REFUSED, 7), "commit"], [[7], [7]]),
    "an answer about less does not do for more": (["work", "commit", "work", (None, 7), "commit"], [[7], [9]]),
    "what was taken away is another member's to commit": (["work", "revoke", "commit"], []),
    "never": (["never", "work", "commit"], []),
}


@pytest.mark.parametrize(("events", "asked"), COMMITS.values(), ids=COMMITS)
def test_a_member_commits_what_it_has_done_and_still_holds(made, events, asked) -> None:
    one, sent = made(commit="never" not in events)
    found, offsets = [], iter([5, 6, 7, 8])
    one.consumer.commit = lambda offsets: found.append([each.offset for each in offsets])
    does = {
        "work": lambda: one.work(records((0, next(offsets)), (0, next(offsets)))),
        "commit": one.commit,
        "revoke": lambda: one.drop("revoked", [at_offset(-1001)]),
        "never": lambda: None,
    }
    for event in events:
        if isinstance(event, str):
            does[event]()
        else:
            one.committed(event[0], [at_offset(event[1])])
    assert found == asked
    assert ("refused" in [event["what"] for event in sent]) == any(event[0] is REFUSED for event in events)


@pytest.mark.parametrize(("pace", "batch"), [(None, 500), (1, 1), (20, 1), (200, 10), (1_000_000, 500)], ids=str)
def test_a_slow_member_takes_no_more_than_a_tick_of_work_at_once(made, pace, batch) -> None:
    assert made(pace=pace)[0].batch == batch
