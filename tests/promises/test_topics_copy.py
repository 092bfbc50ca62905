"""`kq topics copy`: every record once, as it was, and a site's state for the copy. It can be killed anywhere and goes on."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import kqlib as kq
from kqlib.command import main as cli
from kqlib.errors import NotAllowed, Unreachable
from kqlib.kafka import Kafka, reading
from kqlib.queue import copying, moving
from kqlib.queue.notes import Notes
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.crash import Report
from tests.patience import WAIT
from tests.promises.queues import taken

COPY = """
import os
from kqlib.command.main import main
raise SystemExit(main(["topics", "copy", os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]]))
"""
THERE_AND_BACK = """
import os
import kqlib as kq
from kqlib.command.main import main
from kqlib.kafka import Kafka
here, there, topic = os.environ["KQ_BOOTSTRAP"], os.environ["KQ_OTHER"], os.environ["KQ_TOPIC"]
kq.Plan({topic: kq.Topic(1)}).apply(Kafka(there), quiet=True)
if main(["topics", "copy", topic, topic, "--to", there]):
    raise SystemExit(1)
os.environ["KQ_BOOTSTRAP"] = there
raise SystemExit(main(["topics", "copy", topic, os.environ["KQ_RESULTS"], "--to", here]))
"""


@pytest.fixture
def names(kq_cluster: Kafka) -> Iterator[tuple[str, str]]:
    """A queue with two partitions, and an empty one for its copy."""
    begin = f"copy{secrets.token_hex(3)}"
    both = (f"{begin}-from", f"{begin}-to")
    kq.Plan({name: kq.QueueTopic(partitions=2) for name in both}).apply(kq_cluster, quiet=True)
    yield both
    for future in kq_cluster.admin.delete_topics([*both, *(f"{name}.dead" for name in both)]).values():
        future.result(WAIT)


def contents(cluster: Kafka, topic: str) -> dict[int, list[Any]]:
    """All that a copy keeps, by partition."""
    return {
        number: [(each.key(), each.value(), each.headers(), each.timestamp()) for each in messages]
        for number, messages in reading.records(cluster, topic).items()
    }


def put(cluster: Kafka, topic: str, count: int, **more: Any) -> None:
    producer = Producer(cluster.client())
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"k%d" % (number % 5), **more)
    assert producer.flush(WAIT) == 0


def odd_records(cluster: Kafka, topic: str) -> None:
    """Nothing as key, value or header; an aborted transaction between two others."""
    producer = Producer(cluster.client(transactional_id=topic))
    producer.init_transactions(WAIT)
    for number, ends in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
    ):
        producer.begin_transaction()
        producer.produce(topic, None, b"tombstone", partition=0, timestamp=1_700_000_000_000 + number)
        producer.produce(topic, b"", None, partition=1, headers=[("a", None), ("a", b"\xff"), ("b", b"")])
        producer.flush(WAIT)
        ends(WAIT)


def test_a_copy_has_every_committed_record_as_it_was_and_copying_again_adds_only_what_is_new(
    kq_cluster: Kafka, names: tuple[str, str]
) -> None:
    source, target = names
    odd_records(kq_cluster, source)
    put(kq_cluster, source, 2_500, headers=[("feed", b"tv")], timestamp=1_700_000_000_123)
    assert copying.copy(kq_cluster, source, kq_cluster, target) == 2_504
    assert contents(kq_cluster, target) == contents(kq_cluster, source)
    assert copying.copy(kq_cluster, source, kq_cluster, target) == 0
    put(kq_cluster, source, 3)
    assert copying.copy(kq_cluster, source, kq_cluster, target) == 3
    assert contents(kq_cluster, target) == contents(kq_cluster, source)


def worked_on(cluster: Kafka, topic: str, site_name: str) -> dict[bytes | None, int]:
    """A site has done, tried and not seen items, out of order: what is left, with the attempts of each."""
    with kq.Site(cluster, site_name) as site:
        queue = site.queue(topic, max_attempts=None)
        for number in range(0, 40, 4):  # each transaction leaves a mark in the log
            with site.transaction() as transaction:
                for each in range(number, number + 4):
                    transaction.put(queue, b"%d" % each, key=b"k%d" % (each % 5))
        left = {b"%d" % number: 0 for number in range(40)}
        for at, item in enumerate(taken(queue, 25)):
            if at % 3:
                queue.ack(item)
                del left[item.data or b""]
            else:
                left[item.data] = 1
                queue.release(item)
        while 2 not in left.values():  # what is released comes again
            for item in queue.claim_many(5, wait=WAIT):
                left[item.data] += 1
                queue.release(item)
        assert set(left.values()) == {0, 1, 2}
        assert queue.depth() == len(left)
    return left


def worked_off(cluster: Kafka, topic: str, site_name: str) -> dict[bytes | None, int]:
    """All that the site still gets, with the attempts before."""
    found: dict[bytes | None, int] = {}
    with kq.Site(cluster, site_name) as site:
        queue = site.queue(topic)
        while queue.depth():
            for item in queue.claim_many(100, wait=1):
                assert item.data not in found
                found[item.data] = item.attempt - 1
                queue.ack(item)
    return found


def test_a_site_goes_on_in_the_copy_where_it_was_with_the_attempts_of_each_item(
    kq_cluster: Kafka, names: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = names
    left = worked_on(kq_cluster, source, target)
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    assert cli.main(["topics", "copy", source, target, "--state", target]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"40 records copied from '{source}' to '{target}'.\nSite '{target}' has its state there: ")
    assert cli.main(["topics", "copy", source, target, "--state", target]) == 0  # the same again
    assert worked_off(kq_cluster, target, target) == left
    assert cli.main(["topics", "copy", source, target, "--state", target]) == 2
    assert "has another state in" in capsys.readouterr().err


def test_a_queue_and_its_site_move_to_another_cluster_by_the_command_line(
    kq_cluster: Kafka, wired: Cluster, names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site_name = names[0]
    left = worked_on(kq_cluster, name, site_name)
    kq.Plan({name: kq.QueueTopic(partitions=2)}).apply(wired, quiet=True)
    (tmp_path / "other").write_text(f"bootstrap.servers={wired.bootstrap}\n")
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    assert cli.main(["topics", "copy", name, name, "--to-config", str(tmp_path / "other")]) == 0
    assert contents(wired, name) == contents(kq_cluster, name)
    assert cli.main(["topics", "copy", name, name, "--to", wired.bootstrap, "--state", site_name]) == 0
    assert worked_off(wired, name, site_name) == left


def test_a_state_whose_writing_was_cut_off_at_any_step_is_written_by_the_same_command(
    kq_cluster: Kafka, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = names
    left = worked_on(kq_cluster, source, target)
    copying.copy(kq_cluster, source, kq_cluster, target)

    def cut_off(real: Callable[..., Any], steps: Iterator[int], last: int) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if next(steps) == last:
                raise Unreachable(address="here", why="the test's accident")
            return real(*args)

        return call

    for last in (1, 2, 3):  # each try comes one step further
        with monkeypatch.context() as accident:
            steps = iter((1, 2, 3))
            accident.setattr(moving, "_commit", cut_off(moving._commit, steps, last))
            accident.setattr(Notes, "write", cut_off(Notes.write, steps, last))
            with pytest.raises(Unreachable, match="the test's accident"):
                moving.move(kq_cluster, source, kq_cluster, target, target)
    moving.move(kq_cluster, source, kq_cluster, target, target)
    assert worked_off(kq_cluster, target, target) == left


def test_what_cannot_be_copied_or_moved_is_refused_and_changes_nothing(
    kq_cluster: Kafka, names: tuple[str, str]
) -> None:
    source, target = names
    put(kq_cluster, source, 4)
    with pytest.raises(NotAllowed, match="are one topic"):
        copying.copy(kq_cluster, source, kq_cluster, source)
    with pytest.raises(NotAllowed, match="has no partition 1"):
        copying.copy(kq_cluster, source, kq_cluster, "kq.queues")
    put(kq_cluster, target, 1)
    with pytest.raises(NotAllowed, match="has records already"):
        copying.copy(kq_cluster, source, kq_cluster, target)
    with kq.Site(kq_cluster, target) as site:
        site.queue(source).claim(wait=WAIT)
        with pytest.raises(NotAllowed, match="is at work"):
            moving.move(kq_cluster, source, kq_cluster, target, target)
    with pytest.raises(NotAllowed, match="is not a copy of"):
        moving.move(kq_cluster, source, kq_cluster, target, target)
    assert sum(map(len, contents(kq_cluster, target).values())) == 1
    reader = Consumer(kq_cluster.client(group_id=target))
    assert reading.committed(kq_cluster, target, target, [0, 1]) == {}
    reader.close()


def test_options_of_copy_are_refused_without_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["topics", "show", "plan.toml", "--state", "eu"]) == 2
    assert cli.main(["topics", "copy", "football"]) == 2
    (tmp_path / "login").write_text("sasl.username=app\n")
    assert cli.main(["topics", "copy", "football", "copy", "--to-config", str(tmp_path / "login")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "kq: state goes with kq topics copy",
        "kq: where to? kq topics copy SRC DST",
        f"kq: which cluster? {tmp_path / 'login'} has no bootstrap.servers: name it with --to ADDRESS; see kq topics --help",
    ]


def test_a_copy_that_is_killed_loses_and_doubles_nothing(kq_crash: Callable[..., Report]) -> None:
    report = kq_crash([sys.executable, "-c", COPY], 3, only=["Produce:1:after", "EndTxn:1:after"])
    assert (report.clean, report.lost, report.doubled) == (True, 0, 0), str(report)


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize("program", [COPY, THERE_AND_BACK], ids=["one cluster", "two clusters"])
def test_a_copy_that_is_killed_at_any_request_loses_and_doubles_nothing(
    kq_crash: Callable[..., Report], kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setenv("KQ_OTHER", kq_cluster.bootstrap)
    report = kq_crash([sys.executable, "-c", program], 4)
    assert (report.clean, report.lost, report.doubled) == (True, 0, 0), str(report)
