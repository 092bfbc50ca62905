"""`kq crash` without Kafka: the judge, the points, what is read and refused, and how a report reads."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kqlib.command import main as cli
from kqlib.errors import NotAllowed
from kqlib.runtime import jars
from kqlib.workshop.crash.leaving import _members, _producers
from kqlib.workshop.crash.life import Life, Point, Run, _fetched, _work
from kqlib.workshop.crash.report import Report, committed_early
from kqlib.workshop.crash.retriable import POSSIBLE, RETRIABLE
from kqlib.workshop.crash.runs import _command, _differs, _pairs, _sampled, crash, points_of
from kqlib.workshop.crash.verdict import Verdict, judged, last_number, make_items
from kqlib.workshop.promises.crash_points import two_leases
from kqlib.workshop.wire.crossing import Crossing
from kqlib.workshop.wire.messages import Messages

MESSAGES = Messages(next(path for path in jars.fetch("broker") if path.name.startswith("kafka-clients-")))

# --- the judge ----------------------------------------------------------------------------------------------------------

ITEMS = make_items(6)


def results(*numbers: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, b"item 7 is done: %d" % number) for number in numbers]


@pytest.mark.parametrize(
    ("came", "found"),
    [
        ((0, 1, 2, 3, 4, 5), {}),
        ((5, 4, 3, 2, 1, 0), {"order": ("k0", "k1", "k2")}),
        ((1, 0, 2, 4, 3, 5), {}),
        ((3, 0, 1, 2, 4, 5), {"order": ("k0",)}),
        ((0, 1, 2, 3, 0, 4, 5), {"doubled": (0,)}),
        ((0, 2, 4, 5), {"lost": (1, 3)}),
        ((), {"lost": (0, 1, 2, 3, 4, 5)}),
        ((0, 1, 2, 3, 4, 5, 6, 99), {"strange": 2}),
    ],
)
def test_the_judge_counts_results_by_item_and_looks_at_the_order_of_each_key(came: Any, found: Any) -> None:
    assert judged(ITEMS, results(*came)) == Verdict(6, **found)


def test_items_are_numbered_and_have_three_keys_in_turn() -> None:
    assert make_items(4) == [(b"k0", b"0"), (b"k1", b"1"), (b"k2", b"2"), (b"k0", b"3")]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"3", 3),
        (b"done 12", 12),
        (b'{"n": 4, "t": "x"}', 4),
        (b"1 of 7\n.", 7),
        (b"none", None),
        (b"", None),
        (None, None),
    ],
)
def test_a_result_names_its_item_by_the_last_whole_number(value: bytes | None, number: int | None) -> None:
    assert last_number(value) == number


def test_a_judge_of_ones_own_gets_items_and_results_and_its_sentences_count() -> None:
    def strict(items: Any, came: Any) -> list[str]:
        return [] if len(items) == len(came) else [f"{len(came)} results"]

    assert judged(ITEMS, results(*range(6)), judge=strict).wrong() == []
    assert judged(ITEMS, results(0), judge=strict).wrong(["lost"]) == ["judge"]
    assert judged(ITEMS, results(0), judge=lambda *_: "one sentence").judge == ("one sentence",)
    with pytest.raises(NotAllowed, match=r"a judge returns sentences or nothing, not \[1\]"):
        judged(ITEMS, [], judge=lambda *_: [1])


def test_an_item_whose_ack_was_taken_twice_had_two_live_leases() -> None:
    taken = [(None, b"acked %d" % number) for number in (0, 1, 2, 0, 2)]
    assert two_leases(ITEMS, [*taken, (None, b"done 1"), (None, None)]) == ["two acks were taken of items 0 and 2"]
    assert two_leases(ITEMS, taken[:3]) == []


def test_a_verdict_reads_well() -> None:
    assert str(Verdict(4)) == "each item has one result"
    verdict = Verdict(9, (1,), (2, 3), ("k0",), ("it is slow",), 1)
    assert (
        str(verdict) == "lost item 1, doubled items 2 and 3, out of order: k0, it is slow, 1 result that names no item"
    )
    assert str(Verdict(9, tuple(range(9)))) == "lost items 0, 1, 2, 3, 4 and 4 more"


# --- points -------------------------------------------------------------------------------------------------------------


def crossing(api: str, nth: int, at: float = 0, version: int = 3, **more: Any) -> Crossing:
    return Crossing(at, "worker", api, nth, 100, 1.0, 1, 7, version, **more)


def made(
    *apis: str, points: tuple[Point, ...] = (), verdict: Verdict | None = None, lives: int = 1, **more: Any
) -> Run:
    """A run with these requests; one in capitals has the accident."""
    counts: Counter[str] = Counter()
    crossed = []
    for at, name in enumerate(apis):
        api, accident = name.rstrip("!"), "killed after" * name.endswith("!")
        counts[api] += 1
        crossed.append(crossing(api, counts[api], at, accident=accident))
    ended = tuple(Life("killed" if n < lives - 1 else "commits", 0) for n in range(lives))
    how = {"reached": True, "seconds": 1.0, "recovery": None, "crossed": tuple(crossed), **more}
    return Run("kq-crash-1-0", points, verdict or Verdict(4), ended, **how)


def test_points_are_the_requests_whose_number_the_work_fixes_each_before_and_after() -> None:
    run = made("Metadata", "Fetch", "Produce", "OffsetCommit", "Heartbeat", "Produce", "LeaveGroup")
    spelled = [str(each) for each in points_of(run, "kill", MESSAGES)]
    assert spelled == [
        f"{each}:{side}" for each in ("Produce:1", "OffsetCommit:1", "Produce:2") for side in ("before", "after")
    ]
    assert len(points_of(run, "kill", MESSAGES, every=True)) == 14
    assert [str(each) for each in points_of(run, "drop-answer", MESSAGES)] == [
        "Produce:1:after",
        "OffsetCommit:1:after",
        "Produce:2:after",
    ]


def test_an_accident_of_errors_visits_each_retriable_code_that_a_broker_can_answer() -> None:
    def errors(api: str, version: int, **request: Any) -> list[str]:
        run = made(crossed=(crossing(api, 1, version=version, request=request),))
        return [str(each).removeprefix(f"{api}:1:") for each in points_of(run, "error", MESSAGES)]

    coordinator = ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"]
    assert errors("OffsetCommit", 9) == [f"before:{each}" for each in coordinator]
    assert errors("OffsetCommit", 10)[3:] == ["before:UNKNOWN_TOPIC_ID"]
    assert errors("Produce", 9)[-2:] == ["after:NOT_ENOUGH_REPLICAS_AFTER_APPEND", "after:REQUEST_TIMED_OUT"]
    assert "before:CONCURRENT_TRANSACTIONS" in errors("InitProducerId", 4, TransactionalId="t")
    assert "before:CONCURRENT_TRANSACTIONS" not in errors("InitProducerId", 4)
    assert "before:KAFKA_STORAGE_ERROR" in errors("ShareAcknowledge", 1)
    known = {name for names in (RETRIABLE, *POSSIBLE.values()) for name in names}
    assert known <= set(MESSAGES.errors.values()), "a name that Kafka does not have"
    assert {name for names in POSSIBLE.values() for name in names} <= RETRIABLE


@pytest.mark.parametrize("text", ["Produce:2:after", "EndTxn:10:before", "Produce:1:before:NOT_LEADER_OR_FOLLOWER"])
def test_a_point_is_read_as_it_is_written(text: str) -> None:
    assert str(Point.read(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "Produce:2",
        "Produce:0:after",
        "Produce:x:after",
        "Produce:1:at",
        "a:1:after:b:c",
    ],
)
def test_what_is_no_point_is_named(text: str) -> None:
    with pytest.raises(NotAllowed, match="a point is written like Produce:2:after, not"):
        Point.read(text)


def test_a_second_accident_comes_at_each_request_of_the_recovery() -> None:
    run = made("Produce!", "Metadata", "Produce", "OffsetCommit", points=(Point("Produce", 1, "after"),))
    pairs = ["+".join(map(str, each)) for each in _pairs([run])]
    assert pairs == [
        f"Produce:1:after+{each}"
        for each in ("Produce:2:before", "Produce:2:after", "OffsetCommit:1:before", "OffsetCommit:1:after")
    ]
    assert list(_pairs([made("Produce")])) == []


def test_a_sample_is_the_same_for_the_same_seed_and_keeps_the_order() -> None:
    points = [(Point("Produce", number, "after"),) for number in range(1, 100)]
    one = _sampled(points, 12, 7)
    assert one == _sampled(points, 12, 7) != _sampled(points, 12, 8)
    assert one == sorted(one, key=points.index) and len(one) == 12
    assert _sampled(points, 500, 7) == points


def test_kinds_whose_number_differs_between_two_runs_are_named_polls_are_not() -> None:
    assert _differs(made("Produce", "Fetch"), made("Produce", "Fetch", "Fetch", "JoinGroup"), every=False) == {}
    more = made("Produce", "Produce", "OffsetCommit", "Fetch", "JoinGroup")
    assert _differs(made("Produce"), more, every=False) == {"OffsetCommit": (0, 1), "Produce": (1, 2)}
    assert _differs(made("Produce"), more, every=True) == {
        "JoinGroup": (0, 1),
        "OffsetCommit": (0, 1),
        "Produce": (1, 2),
    }


# --- who has died -------------------------------------------------------------------------------------------------------


def test_members_and_producers_that_have_not_left_are_found() -> None:
    def asked(api: str, answer: dict[str, Any] | None = None, **request: Any) -> Crossing:
        return crossing(api, 1, request=request, answer=answer or {})

    new = [
        asked("ConsumerGroupHeartbeat", GroupId="g", MemberId="a", MemberEpoch=0),
        asked("ConsumerGroupHeartbeat", GroupId="g", MemberId="b", MemberEpoch=3),
        asked("ConsumerGroupHeartbeat", GroupId="g", MemberId="a", MemberEpoch=-1),
    ]
    assert list(_members(new)) == [("ConsumerGroupHeartbeat", "g", "b")]
    old = [
        asked("JoinGroup", {"MemberId": "c"}, GroupId="g", MemberId=""),
        asked("JoinGroup", {"MemberId": "d"}, GroupId="g", MemberId=""),
        asked("LeaveGroup", GroupId="g", Members=[{"MemberId": "c"}]),
        asked("LeaveGroup", GroupId="g", MemberId="e"),
    ]
    assert list(_members(old)) == [("LeaveGroup", "g", "d")]
    producers = [
        asked("InitProducerId", {"ErrorCode": 14, "ProducerId": -1, "ProducerEpoch": -1}, TransactionalId="t"),
        asked("InitProducerId", {"ErrorCode": 0, "ProducerId": 5, "ProducerEpoch": 0}, TransactionalId="t"),
        asked("InitProducerId", {"ErrorCode": 0, "ProducerId": 6, "ProducerEpoch": 0}, TransactionalId=None),
        asked("EndTxn", {"ErrorCode": 0, "ProducerId": 5, "ProducerEpoch": 2}, TransactionalId="t"),
    ]
    assert _producers(producers) == {"t": (5, 2)}


# --- the report ---------------------------------------------------------------------------------------------------------


def report(*runs: Run, **more: Any) -> Report:
    base = made("Produce", "OffsetCommit", "Produce", "OffsetCommit")
    how = {"accident": "kill", "allow": (), "base": base, "points": tuple(run.points for run in runs), **more}
    return Report(["python", "worker.py"], 4, runs=runs, **how)


LOST = made(
    *("OffsetCommit!", "OffsetCommit", "Produce"),
    points=(Point("Produce", 1, "after"),),
    verdict=Verdict(4, lost=(2,)),
    lives=2,
)
DOUBLED = made(
    "Produce!", "Produce", points=(Point("Produce", 2, "before"),), verdict=Verdict(4, doubled=(0, 1)), lives=2
)
FINE = made("Produce!", points=(Point("Produce", 2, "after"),), lives=2)


def test_a_report_counts_runs_by_kind_and_side() -> None:
    assert report(LOST, DOUBLED, FINE).table.text == (
        "worker.py · 4 items · 3 runs · lost in 1, doubled in 1\n"
        "killed …        runs  lost  doubled  order\n"
        "after Produce      2     1        0      0\n"
        "before Produce     1     0        1      0"
    )


def test_the_exit_status_says_what_went_wrong_and_what_is_allowed_is_no_failure() -> None:
    assert report(FINE).status == 0
    assert report(LOST, FINE).status == 1
    assert report(DOUBLED, allow=("doubled",)).status == 0
    assert report(LOST, allow=("doubled",)).status == 1
    failed = made("Produce", points=(Point("Produce", 1, "after"),))
    failed = Run(**{**vars(failed), "lives": (Life("exit", 3),) * 6})
    assert report(failed, FINE).status == 2
    assert "failed" in report(failed).table.text


def test_the_shortest_failing_history_reads_in_sentences() -> None:
    assert report(LOST, DOUBLED).story() == [
        "Killed before Produce 2 reached the broker.",
        "It was started 1 more time, and its group went on at its last commit.",
        "Items 0 and 1 were written, and read and written again.",
        "Write the result and commit in one transaction, or let the reader of the results drop what it has.",
        "To see it again: kq crash --only Produce:2:before -- python worker.py",
    ]
    assert report(LOST).story()[0] == "Killed after the broker had stored Produce 1, before OffsetCommit 1."
    assert report(FINE).story() == []
    stuck = Run(**{**vars(LOST), "lives": (Life("quiet", 0),)})
    assert report(stuck).story()[1:-1] == ["Item 2 was never written, and then nothing crossed any more."]
    assert "kq crash --accident cut --only Produce:1:after -- python" in report(LOST, accident="cut").story()[-1]
    mixed = made("Produce!", points=(Point("Produce", 1, "before"),), verdict=Verdict(4, order=("k0", "k2")), lives=2)
    assert report(mixed).story()[2] == "Keys whose results came out of order: k0, k2."


def test_what_a_reader_has_to_know_is_noted() -> None:
    notes = report(FINE, left_out=9, differs={"Produce": (1, 2)}, shared=("t",)).notes
    assert notes[0] == "9 points left out; --sample and --seed choose."
    assert notes[1] == "Two runs without an accident had 1 and 2 Produce: some points may have been missed."
    assert notes[2].startswith("Two runs used 't', so runs went one by one.")
    again = made("Produce!", points=(Point("Produce", 2, "after"),), lives=4)
    assert "In 1 run the command ended with an error and only another restart did the work." in report(again).notes


def test_a_transaction_that_hangs_by_a_defect_of_its_client_is_explained() -> None:
    closed = (Point("Produce", 1, "before"),)
    for last, noted in (("AddOffsetsToTxn", True), ("TxnOffsetCommit", False)):
        hangs = made("Produce!", "AddOffsetsToTxn", last, points=closed, verdict=Verdict(4, lost=(1,)))
        hangs = Run(**{**vars(hangs), "lives": (Life("quiet", None),)})
        assert any("issues 5511 and 5456" in each for each in report(hangs, accident="cut").notes) is noted


def test_a_commit_before_the_result_is_noted_although_nothing_went_wrong() -> None:
    batch = bytes(57) + (2).to_bytes(4, "big")
    part = {"Index": 0, "Records": batch}
    produce = crossing("Produce", 1, request={"TopicData": [{"Name": "results", "PartitionData": [part]}]})

    def commit(offset: int, api: str = "OffsetCommit") -> Crossing:
        topic = {"Name": "kq-crash-1-0", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}
        return crossing(api, 1, request={"Topics": [topic]})

    cases: list[tuple[tuple[Crossing, ...], list[int]]] = [
        ((produce, commit(2)), []),
        ((produce, commit(3)), [2]),
        ((commit(1), produce), [0]),
        ((commit(1, "TxnOffsetCommit"), produce), []),
    ]
    for crossed, early in cases:
        base = made(crossed=crossed)
        assert committed_early(base) == early
        noted = any(each.startswith("Without any accident item") for each in report(FINE, base=base).notes)
        assert noted == bool(early)


def test_a_report_is_one_page_and_json() -> None:
    page = report(LOST).page()
    assert page.startswith("<!doctype html>") and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "kq crash -- python worker.py" in page and "Produce:1:after: lost item 2" in page
    found = json.loads(report(LOST, FINE).as_json())
    assert [run["lost"] for run in found["runs"]] == [[2], []]
    assert found["clean"] is False and found["points"] == ["Produce:1:after", "Produce:2:after"]


# --- what is asked for --------------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"command": "python worker.py"},
        "a command is a list of words, as in ['python', 'worker.py'], not 'python worker.py'",
    ),
    ({"command": []}, "a command is a list of words, as in ['python', 'worker.py'], not []"),
    ({"command": ["no-such-program"]}, "there is no program 'no-such-program' that can be started"),
    ({"items": 0}, "items is a number from 1 to 1,000, not 0"),
    ({"items": True}, "items is a number from 1 to 1,000, not True"),
    ({"accident": "flood"}, "an accident is kill, stop, drop-answer, cut or error, not 'flood'"),
    ({"allow": ["losses"]}, "what can be allowed is lost, doubled, order, judge or died, not 'losses'"),
    ({"sample": 0}, "sample is a number from 1 to 100,000, not 0"),
    ({"at_once": 99}, "at_once is a number from 1 to 9, not 99"),
    ({"quiet": 0}, "quiet is a number of seconds from 0 to 3,600, not 0"),
    ({"only": ["Produce"]}, "a point is written like Produce:2:after, not 'Produce'"),
]


@pytest.mark.parametrize(("how", "sentence"), WRONG)
def test_what_cannot_be_is_refused_before_anything_starts(
    how: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.workshop.crash.runs.Cluster", lambda **_: pytest.fail("a cluster was started"))
    with pytest.raises(NotAllowed) as refused:
        crash(**{"command": ["true"], **how})
    assert str(refused.value) == sentence


def test_a_command_is_run_as_it_was_written() -> None:
    assert _command(("sh", "a b.sh")) == ["sh", "a b.sh"]


TYPED = [
    ([], "kq: which command? It stands behind --, as in: kq crash -- python worker.py"),
    (["--"], "kq: which command? It stands behind --, as in: kq crash -- python worker.py"),
    (["--items", "x", "--", "true"], "kq crash: error: argument --items: invalid int value: 'x'"),
    (["--accident", "flood", "--", "true"], "invalid choice: 'flood'; choose from"),
    (
        ["--allow", "lost,all", "--", "true"],
        "kq: what can be allowed is lost, doubled, order, judge or died, not 'all'",
    ),
    (
        ["--judge", "no.py:judge", "--", "true"],
        "kq: 'no.py:judge' names no function; write the file and the name, as in my.py:judge",
    ),
    (["--id", "my.py", "--", "true"], "kq: 'my.py' names no function; write the file and the name, as in my.py:judge"),
    (["--id", "my.py:none", "--", "true"], "kq: my.py has no function 'none'"),
    (["--judge", "bad.py:judge", "--", "true"], "kq: bad.py cannot be loaded: SyntaxError"),
    (["--takeover", "--", "true"], "kq: takeover needs accident='stop' (--accident stop)"),
    (["--html", "no/such/place.html", "--", "true"], "kq: there is no directory no/such for the report"),
    (["--acident", "kill", "--", "true"], "there is no '--acident' here; did you mean --accident?"),
    (["worker.py"], "there is no 'worker.py' here"),
]


@pytest.mark.parametrize(("typed", "sentence"), TYPED)
def test_what_is_mistyped_is_named_before_anything_starts(
    typed: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text("x = 1\n")
    Path("bad.py").write_text("def judge(\n")
    monkeypatch.setattr("kqlib.workshop.crash.runs.Cluster", lambda **_: pytest.fail("a cluster was started"))
    try:
        status = cli.main(["crash", *typed])
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    assert status == 2
    assert sentence in capsys.readouterr().err


def test_an_idle_share_group_does_no_work() -> None:
    counts = {"Produce": 4, "ShareAcknowledge": 4, "ShareFetch": 9, "ShareGroupHeartbeat": 3}
    assert _work(counts) == _work({**counts, "ShareFetch": 99}) == 8
    assert _fetched(counts) == 9
