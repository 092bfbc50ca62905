"""A worker that is killed directly before or after each write of a verb to Kafka, and the process that takes over.

Nothing is lost, nothing acked comes back, a repeat does no harm. `VERBS` names every write of each verb.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from kqlib.errors import LedgerLost, NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue import look, state
from tests.patience import WAIT, until
from tests.promises.play import commit
from tests.promises.queues import Start, alone, data, drained, put, taken, topic

Killed = Generator[tuple[Any, ...], set[str]]
"""Makes a worker, yields it with the call that kills it, is sent the writes that were made, and checks the process that takes over."""


def claim(cluster: Kafka, name: str, start: Start) -> Killed:
    """Attempts are committed before an item is handed out: only then can its handler have begun."""
    put(cluster, name, b"a", b"b", b"c")
    worker = start(name)
    worker.claim(1)
    assert worker.do("ack", f"{name}/0/0") == "ok"
    done = yield worker, "claim", 1
    with alone(cluster, name) as site:
        assert drained(site.queue(name), 2) == [(b"b", 1 + ("commit" in done)), (b"c", 1)]


def first_claim(cluster: Kafka, name: str, start: Start) -> Killed:
    """Before it the process takes the partition over, with commits and notes of its own."""
    put(cluster, name, b"a", b"b")
    done = yield start(name), "claim", 1
    with alone(cluster, name) as site:
        assert drained(site.queue(name), 2) == [(b"a", 1 + ("commit #2" in done)), (b"b", 1)]
    cluster.admin.delete_consumer_groups([name])[name].result(WAIT)
    with alone(cluster, name) as site, pytest.raises(LedgerLost):  # it is noted that there was a state
        site.queue(name).claim()


def discard(cluster: Kafka, name: str, start: Start) -> Killed:
    """Whole or not at all. A letter that is left can be discarded; one that is gone is named."""
    dead = f"{name}.dead"
    put(cluster, dead, b"a", b"b", b"c")
    done = yield start(name), "discard", f"{dead}/0/1"
    with alone(cluster, name) as site:
        letters = site.queue(name).dead
        assert data(letters.peek(9)) == ([b"a", b"c"] if "commit #2" in done else [b"a", b"b", b"c"])
        if "commit #2" in done:
            with pytest.raises(NotAllowed, match="it is not there, or done already"):
                letters.discard(f"{dead}/0/1")
        else:
            letters.discard(f"{dead}/0/1")
        assert drained(letters, 2) == [(b"a", 1), (b"c", 1)] and letters.depth() == 0


def purge(cluster: Kafka, name: str, start: Start) -> Killed:
    """Everything that was there or nothing, of each partition; what came after it stays."""
    put(cluster, name, b"a", b"b")
    worker = start(name)
    worker.claim(1)
    done = yield worker, "purge"
    put(cluster, name, b"c")
    with alone(cluster, name) as site:
        queue, left = site.queue(name), [] if "note purge/0" in done else [(b"a", 2), (b"b", 1)]
        assert queue.depth() == len(left) + 1 and drained(queue, 1 + len(left)) == [*left, (b"c", 1)]
        put(cluster, name, b"d")
        queue.purge()
        put(cluster, name, b"e")
    with alone(cluster, name) as site:
        assert drained(site.queue(name)) == [(b"e", 1)]


def purge_of_two(cluster: Kafka, _: str, start: Start) -> Killed:
    """Each partition has a mark of its own."""
    name = topic(cluster, 2)
    for partition in (0, 1):
        put(cluster, name, b"%d" % partition, partition=partition)
    worker = start(name)
    worker.claim(2)
    done = yield worker, "purge"
    for partition in (0, 1):
        put(cluster, name, b"new", partition=partition)
    with alone(cluster, name) as site:
        left = [(b"%d" % each, 2) for each in (0, 1) if f"note purge/{each}" not in done]
        assert drained(site.queue(name), 2 + len(left)) == [*left, (b"new", 1), (b"new", 1)]


def skipped(cluster: Kafka, name: str) -> None:
    """a is done, and another program's commit has moved past b, another site's, c and a transaction's mark, up to d."""
    put(cluster, name, b"a")
    producer = Producer(cluster.client(transactional_id=name))
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    for value, site in ((b"b", name), (b"theirs", "another"), (b"c", name)):
        producer.produce(name, value, headers=[("kq-site", site.encode())])
    producer.commit_transaction(WAIT)
    until(lambda: state.ends(cluster, [(name, 0)])[name, 0] == 5)  # the mark is written a little later
    put(cluster, name, b"d")
    with alone(cluster, name) as here:
        queue = here.queue(name)
        queue.ack_many(taken(queue, 1))
    commit(cluster, name, name, 5)


def put_back(cluster: Kafka, name: str, done: set[str], d: int) -> None:
    """b and c come once, as soon as the rewind is noted; until then they are reported. d: the attempt of what was not skipped."""
    back = [(b"b", 1), (b"c", 1)]
    with alone(cluster, name) as site:
        queue = site.queue(name)
        if "note rewind/0" in done:
            assert drained(queue, 3) == [*back, (b"d", d)]
        else:
            assert drained(queue) == [(b"d", d)] and queue.lost == 4
            look.rewind(site, name, back=True)
            assert drained(queue, 2) == back
        assert queue.lost == queue.depth() == 0
    with alone(cluster, name) as site:
        look.rewind(site, name, back=True)
        put(cluster, name, b"e")
        assert drained(site.queue(name)) == [(b"e", 1)]


def rewind(cluster: Kafka, name: str, start: Start) -> Killed:
    """The process that rewinds owns the partition."""
    skipped(cluster, name)
    worker = start(name)
    assert worker.claim(1) == {f"{name}/0/5": 1}
    done = yield worker, "rewind"
    put_back(cluster, name, done, d=2)


def rewind_of_nobodys(cluster: Kafka, name: str, start: Start) -> Killed:
    """As `kq queue rewind` does while no process has the partition: nobody has noted yet what was skipped."""
    skipped(cluster, name)
    done = yield start(name), "rewind"
    put_back(cluster, name, done, d=1)


def rewind_of_many(cluster: Kafka, name: str, start: Start) -> Killed:
    """More than the ledger takes at a time: the rest follows, and what was put back by the dead one is not put back again."""
    with alone(cluster, name) as site:
        queue = site.queue(name)
        queue.put_many([(b"%d" % n, None) for n in range(2_001)])
        queue.ack_many(taken(queue, 1))
    commit(cluster, name, name, 2_001)
    put(cluster, name, b"new")
    worker = start(name)
    worker.claim(1)
    done = yield worker, "rewind"
    with alone(cluster, name) as site:
        came: Counter[bytes | None] = Counter()
        queue = site.queue(name)
        if "note rewind/0" not in done:
            look.rewind(site, name, back=True)
        while items := queue.claim_many(500, wait=WAIT if len(came) < 2_001 else 0.5):
            came.update(data(items))
            queue.ack_many(items)
        assert set(came.values()) == {1} and queue.lost == queue.depth() == 0


def begin_anew(cluster: Kafka, name: str, start: Start) -> Killed:
    """The state is gone. Until the first commit it is as lost as before; then it is there, and nothing is replayed again."""
    put(cluster, name, b"a", b"b")
    with alone(cluster, name) as site:
        queue = site.queue(name)
        queue.ack_many(taken(queue, 1))
    cluster.admin.delete_consumer_groups([name])[name].result(WAIT)
    done = yield start(name, on_lost="earliest"), "claim", 1
    with alone(cluster, name) as site:
        queue = site.queue(name)
        if "commit" not in done:
            with pytest.raises(LedgerLost):
                queue.claim()
            queue = site.queue(name, on_lost="earliest")
        assert drained(queue, 2) == [(b"a", 1 + ("commit #2" in done)), (b"b", 1)]
    with alone(cluster, name) as site:
        put(cluster, name, b"c")
        assert drained(site.queue(name, on_lost="earliest")) == [(b"c", 1)]


def close(cluster: Kafka, name: str, start: Start) -> Killed:
    """What was acked stays done; the rest is given back as if it had not been claimed, or its attempt counts as a crash."""
    put(cluster, name, b"a", b"b", b"c")
    worker = start(name)
    worker.claim(3)
    assert worker.do("ack", f"{name}/0/0") == "ok"
    done = yield worker, "close", f"{name}/0/1"  # acked with wait=False just before
    with alone(cluster, name) as site:
        left = [(b"c", 1)] if "commit" in done else [(b"b", 2), (b"c", 2)]
        assert drained(site.queue(name), len(left)) == left


def bury(cluster: Kafka, name: str, start: Start) -> Killed:
    """The letter and the ack, or neither."""
    put(cluster, name, b"a", b"b")
    worker = start(name)
    worker.claim(1)
    done = yield worker, "bury", f"{name}/0/0", "bad"
    with alone(cluster, name) as site:
        queue, buried = site.queue(name), "commit_transaction" in done
        left = [] if buried else [(b"a", 2)]
        assert drained(queue, 1 + len(left)) == [*left, (b"b", 1)]  # not before the broker has ended the transaction
        assert data(queue.dead.peek(9)) == [b"a"] * buried


class Verb(NamedTuple):
    """What happens, the writes before the verb returns, and those that follow on the process's own thread; each in order."""

    life: Callable[[Kafka, str, Start], Killed]
    writes: tuple[str, ...]
    later: tuple[str, ...] = ()


TAKEN = ("commit", "note last/0", "note state/0")
ENDS = ("begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")
VERBS = {
    "claim": Verb(claim, ("commit",)),
    "first claim": Verb(first_claim, (*TAKEN, "commit #2")),
    "discard": Verb(discard, ("note terms", *TAKEN, "commit #2")),
    "purge": Verb(purge, ("note purge/0",), ("commit", "note purged/0")),
    "purge of two partitions": Verb(purge_of_two, ("note purge/0", "note purge/1")),
    "rewind": Verb(rewind, ("note rewind/0",), ("commit", "note incidents/0")),
    "rewind of more than the ledger takes": Verb(rewind_of_many, ("note rewind/0",), ("commit", "note incidents/0")),
    "rewind of nobody's partition": Verb(rewind_of_nobodys, ("note incidents/0", "note rewind/0")),
    "on_lost earliest": Verb(begin_anew, ("commit", "note last/0", "commit #2")),
    "close": Verb(close, ("commit", "note last/0", "close")),
    "bury": Verb(bury, ENDS),
}
DAY = {  # the cut: of each verb the moment that is easiest to get wrong
    ("claim", "after", "commit"),
    ("discard", "before", "commit #2"),
    ("purge", "after", "note purge/0"),
    ("rewind of more than the ledger takes", "after", "commit"),
    ("on_lost earliest", "after", "commit"),
    ("close", "before", "commit"),
    ("bury", "before", "commit_transaction"),
}
CASES = [
    pytest.param(
        verb,
        (when, write),
        id=f"{verb}, {when} {write}",
        marks=[] if (verb, when, write) in DAY else [pytest.mark.nightly],
    )
    for verb, answer in VERBS.items()
    for write in answer.writes + answer.later
    for when in ("before", "after")
]


@pytest.mark.parametrize(("verb", "at"), CASES)
def test_a_verb_that_is_killed_at_a_write_has_happened_or_not_and_nothing_is_lost_or_comes_twice(
    kq_cluster: Kafka, name: str, start: Start, verb: str, at: tuple[str, str]
) -> None:
    (life, writes, later), (when, write) = VERBS[verb], at
    killed = life(kq_cluster, name, start)
    worker, *call = next(killed)
    assert worker.do("dies", write, when) == "ok"
    worker.say(*call)
    assert worker.hear() is None or write in later
    worker.process.join(WAIT)
    assert worker.process.exitcode == -signal.SIGKILL
    made = (writes + later)[: (writes + later).index(write) + (when == "after")]
    ends(killed, set(made))


@pytest.mark.nightly
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "purge of two partitions"])
def test_the_table_names_every_write_of_a_verb(
    kq_cluster: Kafka, name: str, start: Start, verb: str, within: Callable[..., float]
) -> None:
    life, writes, later = VERBS[verb]
    killed = life(kq_cluster, name, start)
    worker, *call = next(killed)
    assert worker.do("dies", "nowhere") == "ok"
    worker.do(*call)
    within(10, lambda: len(worker.do("writes")) >= len(writes + later), "there are fewer")
    time.sleep(0.5)
    assert worker.do("writes") == [*writes, *later]
    worker.end()
    ends(killed, {*writes, *later})


@pytest.mark.nightly
def test_what_a_rewind_put_back_and_was_acked_does_not_come_again_although_its_note_was_lost(
    kq_cluster: Kafka, name: str, start: Start
) -> None:
    skipped(kq_cluster, name)
    worker = start(name)
    worker.claim(1)
    assert worker.do("dies", "note incidents/0", "never") == "ok" and worker.do("rewind") == "ok"
    acked = [worker.do("ack", id_) for id_ in worker.do("claim", 1, 3)]
    worker.signal(signal.SIGKILL)
    with alone(kq_cluster, name) as site:
        left = [(b"b", 1), (b"c", 1)][len(acked) :]
        assert drained(site.queue(name), 1 + len(left)) == [*left, (b"d", 2)]


def ends(killed: Killed, made: set[str]) -> None:
    """The worker is dead: check what is there."""
    with suppress(StopIteration):
        killed.send(made)
        raise AssertionError("it has one yield")
