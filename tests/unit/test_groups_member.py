"""One member of a group, seen from inside (`member.py`, with a Consumer that is none) and from its parent (`process.py`)."""

import io
import json
import queue
from types import SimpleNamespace

import pytest

from kqlib.kafka import Kafka
from kqlib.workshop.groups import member
from kqlib.workshop.groups.process import Process, Record

P = [("football", number) for number in range(6)]
CLUSTER = Kafka("127.0.0.1:1")


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


class Fake:
    """A Consumer that has nothing to read."""

    closed = False

    def __init__(self, settings): ...

    def subscribe(self, topics, **callbacks):
        callbacks["on_assign"](self, [SimpleNamespace(topic="t", partition=0)])

    def consume(self, count, seconds):
        return []

    def assignment(self): ...

    def close(self):
        Fake.closed = True


def test_a_busy_member_polls_no_more_until_it_is_back(monkeypatch, capsys) -> None:
    monkeypatch.setattr("confluent_kafka.Consumer", Fake)
    said = queue.SimpleQueue()
    for word in ("pause", "resume", "leave"):
        said.put(word)
    one = member.Member({"settings": {}, "topics": ["t"], "commit": True, "pace": None}, said, member.os.getppid())
    polled = []
    one.consumer.consume = lambda *_: polled.append(one.busy) or []
    one.live()
    told = [json.loads(line)["what"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["assigned", "joined", "busy", "back", "left"]
    assert Fake.closed and polled == [False]


def test_a_member_whose_parent_is_gone_leaves(monkeypatch, capsys) -> None:
    monkeypatch.setattr("confluent_kafka.Consumer", Fake)
    one = member.Member({"settings": {}, "topics": ["t"], "commit": True, "pace": None}, queue.SimpleQueue(), -1)
    one.consumer.consume = lambda *_: pytest.fail("it polls on")
    one.live()
    assert '"left"' in capsys.readouterr().out


def test_a_member_that_cannot_begin_says_why(monkeypatch, capsys) -> None:
    bad = json.dumps(
        {"settings": {"group.id": "g", "nonsense": 1}, "topics": ["t"], "commit": True, "pace": None, "give_up": 4}
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(bad + "\n"))
    monkeypatch.setattr(member, "_listen", lambda said, give_up: None)
    member.main()
    told = json.loads(capsys.readouterr().out)
    assert told["what"] == "failed" and "nonsense" in told["why"]


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
    "what was taken away is somebody else's to commit": (["work", "revoke", "commit"], []),
    "never": (["never", "work", "commit"], []),
}


@pytest.mark.parametrize(("events", "asked"), COMMITS.values(), ids=COMMITS)
def test_a_member_commits_what_it_has_done_and_still_holds(monkeypatch, capsys, events, asked) -> None:
    def part(topic, number, offset):
        return at_offset(offset, number)

    monkeypatch.setattr("confluent_kafka.Consumer", Fake)
    monkeypatch.setattr("confluent_kafka.TopicPartition", part)
    orders = {"settings": {}, "topics": ["t"], "commit": "never" not in events, "pace": None}
    one, found, offsets = member.Member(orders, queue.SimpleQueue(), 0), [], iter([5, 6, 7, 8])
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
    assert ('"refused"' in capsys.readouterr().out) == any(event[0] is REFUSED for event in events)


@pytest.mark.parametrize(("pace", "batch"), [(None, 500), (1, 1), (20, 1), (200, 10), (1_000_000, 500)], ids=str)
def test_a_slow_member_takes_no_more_than_a_tick_of_work_at_once(monkeypatch, pace, batch) -> None:
    monkeypatch.setattr("confluent_kafka.Consumer", Fake)
    one = member.Member({"settings": {}, "topics": ["t"], "commit": True, "pace": pace}, queue.SimpleQueue(), 0)
    assert one.batch == batch


HEARD = {
    "a member that has begun works": ([{"what": "joined"}], "working", ""),
    "it is busy": ([{"what": "joined"}, {"what": "busy"}], "busy", ""),
    "it is back": ([{"what": "busy"}, {"what": "back"}], "working", ""),
    "it has what it was assigned": ([{"what": "assigned", "partitions": [P[0], P[1]]}], "starting", "01"),
    "less what was revoked": (
        [
            {"what": "assigned", "partitions": P[:3]},
            {"what": "revoked", "partitions": P[1:2]},
            {"what": "lost", "partitions": P[2:3]},
        ],
        *("starting", "0"),
    ),
    "one that has left has nothing": ([{"what": "assigned", "partitions": P[:3]}, {"what": "left"}], "left", ""),
    "one that failed says why": ([{"what": "failed", "why": "no"}], "failed", ""),
}


@pytest.mark.parametrize(("said", "state", "has"), HEARD.values(), ids=HEARD)
def test_what_a_member_says_is_remembered(said, state, has) -> None:
    one = Process.__new__(Process)
    one.name, one.record, one.held, one.state, one.trouble = "ann", Record(), set(), "starting", ""
    for line in said:
        one._note({"at": 1.0, **line})
    assert (one.state, one.held) == (state, {P[int(n)] for n in has})
    assert one.trouble == next((line["why"] for line in said if "why" in line), "")
    assert [event.what for event in one.record.events] == [line["what"] for line in said]


def test_words_that_come_together_are_all_heard(monkeypatch, tmp_path, within) -> None:
    twice = tmp_path / "twice.py"
    line = json.dumps({"what": "busy", "at": 1.0})
    twice.write_text(
        f"import sys\nsys.stdout.write({line!r} + '\\n' + {line!r} + '\\n')\nsys.stdout.flush()\nsys.stdin.read()"
    )
    monkeypatch.setattr("kqlib.workshop.groups.process.PROGRAM", twice)
    one = Process("ann", {}, CLUSTER, Record())
    within(5, lambda: len(one.record.events) >= 2)
    assert [event.what for event in one.record.events] == ["busy", "busy"]  # the second is not stuck in a buffer
    one.close()
    assert one.state == "left" and one.held == set()
