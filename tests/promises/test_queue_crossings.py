"""Verbs that cross: a step and a rebalance, a purge and steps that end, a redrive and a crash, a close and those who wait.

Real processes and a real broker. Each of them happens as a whole or not at all, and says which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from kqlib.errors import KqError, LeaseLost, QueueDeleted, Unreachable
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site
from kqlib.queue.drupal import DrupalQueue
from tests.patience import PATIENCE, WAIT, until
from tests.promises.play import claimed
from tests.promises.queues import SESSION, Start, alone, drained, put, taken, topic


def test_a_step_whose_partition_goes_meanwhile_writes_nothing(kq_cluster: Kafka, start: Start) -> None:
    name, outputs = topic(kq_cluster, 2), topic(kq_cluster)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue, out = site.queue(name, lease=60), site.queue(outputs)
        queue.put_many([(b"%d" % n, b"%d" % n) for n in range(40)])
        items = taken(queue, 40)
        steps = [(item, queue.step(item)) for item in items]  # begun while all of them are ours
        worker = start(name)
        theirs = worker.do("claim", 40)  # one of the two partitions went to it
        gone = {int(id_.split("/")[1]) for id_ in theirs}
        theirs |= worker.claim(sum(item.partition in gone for item in items) - len(theirs))
        assert set(theirs.values()) == {2}
        done = set()
        for item, begun in steps:
            try:
                with begun as step:
                    step.put(out, item.data)
            except LeaseLost:
                continue
            done.add(item.id)
        assert done == {item.id for item in items} - set(theirs)
        assert out.depth() == len(done)
        for id_ in theirs:
            assert worker.do("ack", id_) == "ok"
        worker.do("close")
        assert drained(queue, 0, wait=4) == [] and queue.depth() == 0


def test_a_lease_that_is_extended_while_its_partition_goes_holds_until_the_drain_is_over_and_no_longer(
    kq_cluster: Kafka, start: Start, within: Callable[..., float]
) -> None:
    name = topic(kq_cluster, 2)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue, drain = site.queue(name, lease=60), 2.0 * PATIENCE
        site._session.drain = drain
        queue.put_many([(b"%d" % n, b"%d" % n) for n in range(40)])
        items = taken(queue, 40)
        worker, owners = start(name), site._session.partitions

        begun = 0.0

        def leaving() -> set[int]:
            nonlocal begun
            now, found = time.monotonic(), {owner.number for owner in list(owners.values()) if owner.leaving}
            begun = begun if found else now  # the last look at which none was leaving
            return found

        worker.say("claim", 40)
        within(20, leaving, "no partition is taken away")
        gone = leaving()
        first, *going = [queue.extend(item, 60) for item in items if item.partition in gone]
        queue.ack(first)
        theirs = worker.hear()
        assert drain - 0.5 < time.monotonic() - begun < drain + SESSION + 2 * PATIENCE
        theirs |= worker.claim(len(going) - len(theirs))
        assert theirs == {item.id: 2 for item in going}
        for verb in (queue.extend, queue.ack):
            with pytest.raises(LeaseLost, match="does not have its partition"):
                verb(going[0])
        queue.ack_many([item for item in items if item.partition not in gone])
        for id_ in theirs:
            assert worker.do("ack", id_) == "ok"
        assert queue.depth() == 0


def test_a_purge_while_steps_end_leaves_nothing_behind_and_nothing_half_done(
    kq_cluster: Kafka, within: Callable[..., float]
) -> None:
    name, outputs = topic(kq_cluster), topic(kq_cluster)
    with alone(kq_cluster, name) as site:
        queue, out = site.queue(name, lease=60), site.queue(outputs)
        ids = queue.put_many([(b"%d" % n, None) for n in range(60)])
        items, done, refused = taken(queue, 60), list[str](), list[str]()
        purged = threading.Event()

        def steps(some: list[Any]) -> None:
            for item in some:
                try:
                    with queue.step(item) as step:
                        step.put(out, item.id.encode())
                        if item is some[-1]:  # this step is open while the purge happens
                            assert purged.wait(WAIT)
                    done.append(item.id)
                except LeaseLost:
                    refused.append(item.id)

        threads = [threading.Thread(target=steps, args=(items[n::3],)) for n in range(3)]
        for thread in threads:
            thread.start()
        within(60, lambda: len(done) >= 10, "the steps do not end")
        queue.purge()
        purged.set()
        for thread in threads:
            thread.join()
        written = [data.decode() for data, _ in drained(out, len(done)) if data]
        assert sorted(written) == sorted(done)
        assert sorted(done + refused) == sorted(ids) and len(refused) >= 3
        assert queue.depth() == 0
        queue.put(b"after")
        assert drained(queue) == [(b"after", 1)]


def buried(queue: Queue, many: int) -> None:
    """So many letters: 0, 1, 2 and so on."""
    queue.put_many([(b"%d" % n, None) for n in range(many)])
    for item in taken(queue, many):
        queue.bury(item, "bad")


@pytest.mark.parametrize("place", ["send_offsets_to_transaction", "commit_transaction"])
def test_letters_whose_redrive_dies_are_put_back_once(kq_cluster: Kafka, start: Start, place: str) -> None:
    name = topic(kq_cluster)
    worker = start(name)
    with alone(kq_cluster, name) as site:
        queue = site.queue(name)
        buried(queue, 5)
    assert worker.do("dies", place) == "ok" and worker.do("redrive", 5) is None
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        moved = [until(lambda: queue.redrive(5))]  # not before the broker has ended the dead one's transaction
        while sum(moved) < 5:
            moved.append(until(lambda: queue.redrive(5)))
        assert (sum(moved), queue.redrive(5)) == (5, 0)
        assert drained(queue, 5) == [(b"%d" % n, 1) for n in range(5)] and queue.dead.depth() == 0


def test_letters_that_a_redrive_did_not_move_are_there_for_the_next_one_at_once(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(kq_cluster)
    with alone(kq_cluster, name) as site:
        queue = site.queue(name)
        buried(queue, 3)

        def refused(_: Any) -> None:
            raise Unreachable(address="nowhere", why="Nothing of it happened")

        with monkeypatch.context() as patch, pytest.raises(Unreachable):
            patch.setattr(site, "_end", refused)
            queue.redrive(5)
        again = taken(queue.dead, 3)
        assert [(item.data, item.attempt) for item in again] == [(b"%d" % n, 1) for n in range(3)]
        for item in again:
            queue.dead.release(item)
        assert queue.redrive(5) == 3 and len(drained(queue, 3)) == 3


def test_steps_while_partitions_are_added_put_everything_once(kq_cluster: Kafka) -> None:
    name, outputs = topic(kq_cluster), topic(kq_cluster)
    with alone(kq_cluster, name) as site:
        queue, out, done = site.queue(name), site.queue(outputs), list[bytes]()
        queue.put_many([(b"%d" % n, None) for n in range(150)])
        at_work, grown, until = threading.Event(), threading.Event(), time.monotonic() + WAIT

        def handle(item: Any) -> None:
            with queue.step(item) as step:
                if item.data == b"50":  # this step is open while partitions are added
                    at_work.set()
                    assert grown.wait(WAIT)
                step.put(out, item.data)
            done.append(item.data)

        def over() -> bool:
            """Everything is done, and the new partitions are ours; or they never are."""
            at_home = len(done) >= 152 and len(site._session.partitions_of(name)) == 3
            return at_home or time.monotonic() > until

        working = threading.Thread(target=lambda: queue.work(handle, threads=4, until=over))
        working.start()
        assert at_work.wait(WAIT)
        for each in (name, outputs):
            kq_cluster.admin.create_partitions([NewPartitions(each, 3)])[each].result(WAIT)
        kq_cluster.wait_for_topic(name, 3, WAIT)
        for partition in (1, 2):
            put(kq_cluster, name, b"%d" % (149 + partition), partition=partition)
        grown.set()
        working.join()
        assert queue.depth() == 0 and len(site._session.partitions_of(name)) == 3
        assert [data for data, _ in drained(out, 152)] == sorted(b"%d" % n for n in range(152))


def test_a_queue_that_is_deleted_under_its_handlers_ends_the_work_and_nothing_comes_back(kq_cluster: Kafka) -> None:
    name = topic(kq_cluster)
    with Site(kq_cluster, name, session=SESSION) as site:
        drupal = DrupalQueue(site, name)
        drupal.create_queue()
        for n in range(20):
            drupal.create_item(n)
        queue, held = site.queue(name), threading.Semaphore(0)

        def handle(_: Any) -> None:
            held.release()
            time.sleep(1)

        answer: list[Any] = []

        def work() -> None:
            try:
                answer.append(queue.work(handle, threads=4))
            except KqError as error:
                answer.append(type(error))

        working = threading.Thread(target=work)
        working.start()
        for _ in range(4):
            assert held.acquire(timeout=WAIT)
        drupal.delete_queue()
        working.join(WAIT)
        assert answer == [QueueDeleted]
        drupal.create_queue()
        assert drupal.number_of_items() == 0 and drupal.claim_item() is None
        drupal.create_item("new")
        assert claimed(drupal).data == "new"


def test_a_queue_that_was_deleted_since_the_put_takes_nothing_from_a_transaction(kq_cluster: Kafka) -> None:
    name, outputs = topic(kq_cluster), topic(kq_cluster)
    with alone(kq_cluster, name) as site:
        queue, out = site.queue(name), DrupalQueue(site, outputs)
        out.create_queue()
        queue.put(b"a")
        item = queue.claim(wait=WAIT)
        with pytest.raises(QueueDeleted), queue.step(item) as step:
            step.put(site.queue(outputs), b"output")
            out.delete_queue()
        with pytest.raises(QueueDeleted), site.transaction() as both:
            out.create_queue()
            both.put(queue, b"b")
            both.put(site.queue(outputs), b"output")
            out.delete_queue()
        assert queue.depth() == 1
        queue.ack(item)  # the step was refused whole: its item is still claimed
        out.create_queue()
        assert out.number_of_items() == 0


@pytest.mark.parametrize("ask", ["depth", "peek"])
def test_a_state_that_is_committed_while_it_is_asked_for_is_not_called_lost(
    kq_cluster: Kafka, name: str, here: Site, *, within: Callable[..., float], monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    queue, look = here.queue(name), here._looker.look
    queue.put(b"a")

    def early(*asked: Any, **how: Any) -> Any:
        found = look(*asked, **how)  # there is no commit yet
        monkeypatch.undo()
        assert queue.claim(wait=WAIT) is not None
        within(WAIT, lambda: here._notes.get(name, name, "state", 0), "the state is not noted")
        return found

    monkeypatch.setattr(here._looker, "look", early)
    getattr(queue, ask)()
    assert queue.depth() == 1
