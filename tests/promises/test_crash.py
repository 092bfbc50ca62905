"""`kq crash` on a real Kafka: what a worker loses or doubles is found at the right request, and a right worker is left in peace."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kqlib.command import main as cli
from kqlib.errors import NotAllowed
from kqlib.workshop.crash import Report, life
from tests.patience import PATIENCE, WAIT

ROOT = Path(__file__).resolve().parents[2]
Crash = Callable[..., Report]


def example(name: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "crash" / f"{name}.py")]


def wrong(report: Report) -> dict[str, str]:
    """The points at which something went wrong."""
    return {"+".join(map(str, run.points)): str(run.verdict) for run in report.bad}


def test_a_worker_that_commits_first_loses_the_item_between_its_two_requests(kq_crash: Crash) -> None:
    report = kq_crash(example("at_most_once"), 2, only=["OffsetCommit:1:after", "Produce:1:after"])
    assert wrong(report) == {"OffsetCommit:1:after": "lost item 0"}
    assert (report.status, report.lost, report.doubled) == (1, 1, 0)
    assert all(run.reached for run in report.runs)
    assert report.story()[0] == "Killed after the broker had stored OffsetCommit 1, before Produce 1."
    assert report.picture.text.splitlines()[5] == "worker 1 ✕ 1  OffsetCommit 1  items/0 = 1             killed after"
    lives = [[life.ended for life in run.lives] for run in report.runs]
    assert lives == [["killed", "commits"]] * 2
    notes = [note for run in report.runs for life in run.lives for note in life.notes]
    assert notes == [f"left group {run.topic} in its name" for run in report.runs]
    assert max(run.recovery for run in report.runs) < 30, "without leaving in its name: 45 s"


@pytest.mark.nightly
def test_a_worker_that_writes_first_doubles_it_which_can_be_allowed(kq_crash: Crash) -> None:
    points = ["Produce:2:after", "OffsetCommit:2:before", "OffsetCommit:2:after"]
    report = kq_crash(example("at_least_once"), 2, only=points, allow=["doubled"])
    assert (report.clean, report.doubled, report.lost) == (True, 2, 0)
    assert [run.verdict.doubled for run in report.runs] == [(1,), (1,), ()]


SIMPLE = """
import os, sys
from confluent_kafka import Consumer, Producer, TopicPartition
address = os.environ["KQ_BOOTSTRAP"]
base = {"bootstrap.servers": address, "log_level": 0}
consumer = Consumer({**base, "group.id": os.environ["KQ_GROUP"], "enable.auto.commit": False, "enable.partition.eof": True})
producer = Producer(base | MORE)
there = consumer.committed([TopicPartition(os.environ["KQ_TOPIC"], 0)], 60)[0]
there.offset = max(0, there.offset)
consumer.assign([there])
while True:
    message = consumer.poll(60)
    if message.error():
        sys.exit(END)
    producer.produce(os.environ["KQ_RESULTS"], message.value())
    producer.flush()
    consumer.commit(message, asynchronous=False)
"""


def simple(more: str = "{}", end: str = "0", text: str = SIMPLE) -> list[str]:
    """A worker that ends at the topic's end."""
    return [sys.executable, "-c", text.replace("MORE", more).replace("END", end)]


BUSY = SIMPLE.replace(
    "        sys.exit(END)",
    """
        while True:  # as a client that proves every second that it is there
            consumer.commit(offsets=[there], asynchronous=False)
            time.sleep(0.2)
""",
).replace("import os, sys", "import os, sys, time")


@pytest.mark.nightly
def test_a_worker_whose_requests_never_end_is_over_when_no_result_comes(
    kq_crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "BUSY", 3.0 * PATIENCE)
    monkeypatch.setattr(life, "AFTER_END", 600.0)  # its commits are at the topic's end: a group without commits is not
    report = kq_crash(simple(text=BUSY), 2, only=["Produce:1:after"])
    assert wrong(report) == {"Produce:1:after": "doubled item 0"}
    assert [each.ended for each in report.runs[0].lives] == ["killed", "quiet"]


def test_a_second_accident_comes_in_the_recovery_and_children_of_a_command_die_with_it(
    kq_crash: Crash, marked: Any, within: Any
) -> None:
    shell = ["sh", "-c", 'echo started; "$@"; exit $?', "sh", *simple()]
    report = kq_crash(shell, 1, only=["Produce:1:after+Produce:2:after"])
    assert [run.verdict.doubled for run in report.runs] == [(0,)]
    assert [life.ended for life in report.runs[0].lives] == ["killed", "killed", "exit"]
    assert report.runs[0].output == "started\n" * 3
    within(5, lambda: marked.alive("kq-crash") == marked.alive("import os, sys") == [], "a process is left")


def test_a_worker_that_reads_something_else_before_it_begins_is_waited_for(kq_crash: Crash) -> None:
    begins, other = "consumer.assign([there])\n", 'consumer.assign([TopicPartition(os.environ["KQ_RESULTS"], 0)])\n'
    helper = f"{other}consumer.poll(60)\ntime.sleep({2 * PATIENCE})\n"
    slow = SIMPLE.replace("import os, sys", "import os, sys, time").replace(begins, helper + begins)
    assert kq_crash(simple(text=slow), 1, quiet=1, points_only=True).points


def test_a_point_that_cannot_be_is_named_before_the_command_runs(kq_crash: Crash, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    with pytest.raises(NotAllowed, match=r"Kafka has no request 'OffsetComit'.*OffsetCommit"):
        kq_crash(["touch", str(mark)], 1, only=["OffsetComit:1:after"])
    assert not mark.exists()


def test_a_worker_that_never_ends_gets_sigterm_when_its_work_is_done_and_one_that_ignores_it_is_named(
    kq_crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.workshop.crash.life.ENDS", 0.5)
    deaf = SIMPLE.replace("        sys.exit(END)", "        continue")
    deaf = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{deaf}"
    report = kq_crash(simple(text=deaf), 1, only=["OffsetCommit:1:after"])
    assert [life.ended for life in report.runs[0].lives] == ["killed", "commits"]
    assert report.notes[0] == "It did not end within 0.5 s of SIGTERM."
    assert report.clean


@pytest.mark.nightly
def test_twice_visits_each_point_of_a_recovery_or_says_how_many_it_left_out(kq_crash: Crash) -> None:
    report = kq_crash(simple(), 1, twice=True, sample=3, seed=5)
    assert [len(run.points) for run in report.runs] == [1] * 4 + [2] * 3
    assert all(run.reached for run in report.runs)
    assert report.left_out > 0 and report.notes[0] == f"{report.left_out} points left out; --sample and --seed choose."
    assert report.lost == 0


@pytest.mark.parametrize(
    "accident", [*(pytest.param(each, marks=pytest.mark.nightly) for each in ("cut", "error")), "drop-answer"]
)
def test_a_worker_gets_over_what_its_client_gets_over(kq_crash: Crash, accident: str) -> None:
    side = "after" if accident == "drop-answer" else "before"
    error = ":NOT_LEADER_OR_FOLLOWER" if accident == "error" else ""
    quick = '{"enable.idempotence": True, "socket.timeout.ms": 1000, "request.timeout.ms": 1000}'
    report = kq_crash(simple(quick), 2, accident=accident, only=[f"Produce:1:{side}{error}"])
    assert report.clean and report.runs[0].reached, report
    assert len(report.runs[0].lives) == 1


@pytest.mark.nightly
def test_a_stopped_worker_goes_on_after_its_pause(kq_crash: Crash) -> None:
    report = kq_crash(simple(), 2, accident="stop", pause=1, only=["Produce:1:after"])
    assert report.clean and report.runs[0].reached, report
    assert report.runs[0].seconds > 1


def test_with_takeover_a_second_worker_does_the_work_before_the_stopped_one_goes_on(
    kq_crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = life.Runner._start

    def started(runner: Any, name: str, log: Path, label: str = "") -> Any:
        child = start(runner, name, log, label)
        if label == " beside":
            assert child.wait(WAIT) == 0, "the second one should have ended at the topic's end"
        return child

    monkeypatch.setattr(life.Runner, "_start", started)
    report = kq_crash(simple(), 2, accident="stop", takeover=True, pause=0.1, only=["Produce:1:after"])
    assert wrong(report) == {"Produce:1:after": "doubled items 0 and 1"}


def test_a_command_that_ends_with_an_error_or_writes_nothing_is_an_error_with_its_output(kq_crash: Crash) -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('no such thing')"]
    with pytest.raises(NotAllowed) as refused:
        kq_crash(broken)
    text = str(refused.value)
    assert text.startswith("without any accident, the command ended with exit status 1; it sent no Produce")
    assert text.endswith("no such thing")
    silent = simple(text=SIMPLE.replace("producer.produce(", "print("))
    with pytest.raises(
        NotAllowed, match="without any accident, lost items 0 and 1 in KQ_RESULTS; it sent no Produce through"
    ):
        kq_crash(silent, 2)


@pytest.mark.nightly
def test_two_runs_that_use_one_transactional_id_are_named_and_go_one_by_one(kq_crash: Crash) -> None:
    text = SIMPLE.replace(
        "producer = Producer(base | MORE)",
        'producer = Producer({**base, "transactional.id": "mine"})\nproducer.init_transactions(60)',
    )
    text = text.replace("    producer.produce", "    producer.begin_transaction()\n    producer.produce").replace(
        "producer.flush()", "producer.commit_transaction()"
    )
    report = kq_crash(simple(text=text), 1, only=["Produce:1:before"])
    assert report.shared == ("mine",)
    assert report.notes[0].startswith("Two runs used 'mine', so runs went one by one.")


def test_the_command_line_says_it_with_its_exit_status(
    kq_crash: Crash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kqlib.workshop.crash.crash", kq_crash)  # on the cluster of these tests
    page, judge = tmp_path / "report.html", tmp_path / "my.py"
    judge.write_text(
        "def judge(items, results):\n    return [f'{len(results)} results of {len(items)}']\ndef of(value):\n    return int(value)\n"
    )
    more = ["--judge", f"{judge}:judge", "--id", f"{judge}:of", "--html", str(page), "--", *simple()]
    assert cli.main(["crash", "--items", "2", "--only", "Produce:1:after", "--json", *more]) == 1
    printed = capsys.readouterr()
    run = json.loads(printed.out)["runs"][0]
    assert (run["doubled"], run["lost"], run["judge"]) == ([0], [], ["3 results of 2"])
    assert "Produce:1:after: doubled item 0, 3 results of 2" in page.read_text()
    assert f"Written: {page}" in printed.err


def test_ctrl_c_ends_all_of_it_at_once(kq_crash: Crash, marked: Any, within: Any) -> None:
    def press() -> None:
        within(30, lambda: marked.alive("at_least_once.py"), "no worker was started")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        pressed = pool.submit(press)
        with pytest.raises(KeyboardInterrupt):
            kq_crash(example("at_least_once"))
        pressed.result()
    within(5, lambda: marked.alive("at_least_once.py") == [], "a process is left")


# --- all points, and as production would wait ----------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.limit(900)
def test_every_point_of_three_orders_of_work(kq_crash: Crash) -> None:
    first, last, both = (kq_crash(example(name)) for name in ("at_most_once", "at_least_once", "transactions"))
    assert (first.lost, first.doubled, len(first.runs)) == (8, 0, 16)
    assert (last.lost, last.doubled, len(last.runs)) == (0, 8, 16)
    assert (both.lost, both.doubled) == (0, 0) and len(both.runs) >= 42


@pytest.mark.nightly
@pytest.mark.limit(900)
def test_waiting_for_the_session_gives_the_same_verdicts(kq_crash: Crash) -> None:
    points = ["OffsetCommit:1:after", "Produce:1:before", "Produce:2:after"]  # after the last one nothing is left to do
    quick, patient = (kq_crash(example("at_most_once"), 2, only=points, patient=waits) for waits in (False, True))
    assert [run.verdict for run in quick.runs] == [run.verdict for run in patient.runs]
    times = [[run.recovery for run in report.runs if run.recovery is not None] for report in (quick, patient)]
    assert max(times[0]) < 30 < min(times[1])


@pytest.mark.nightly
@pytest.mark.limit(900)
@pytest.mark.parametrize(("name", "doubled"), [("kqlib_work", True), ("kqlib_step", False)])
def test_kqlib_itself_loses_nothing(kq_crash: Crash, name: str, doubled: bool) -> None:
    report = kq_crash(example(name), sample=24, seed=1, allow=["doubled"] if doubled else [])
    assert report.clean, report
