"""Writes a site's state anew for the copy of its queue, from the map of offsets.

In:  the queue and its complete copy (`copying`), a site of which no process runs. Out: the commits and notes of that site on the
target, so that it goes on there: what was done is done, what was open is open, with the same attempts.

The same state is written again if this was killed in the middle. Once the site has worked on the target, nothing is written any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from kqlib.errors import LedgerCorrupt, NotAllowed
from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import described
from kqlib.queue import copying, ledger_text, state
from kqlib.queue.answers import as_ours, first
from kqlib.queue.incidents import Run
from kqlib.queue.ledger import Ledger
from kqlib.queue.site import Site


@dataclass(frozen=True)
class Moved:
    """What was written: in how many partitions the site has state, and how many of its items are open below top."""

    partitions: int
    open: int


def move(source: Kafka, topic: str, target: Kafka, name: str, site: str) -> Moved:
    """Write the site's state on the target; copy first."""
    for cluster in (source, target):
        if described(cluster, site):
            raise NotAllowed(
                f"site '{site}' is at work at {cluster.bootstrap}. Stop its processes. No state was written"
            )
    with Site(source, site) as old:
        ledgers = _ledgers(old, topic)
        notes = {kind: old._notes.get(site, topic, kind) for kind in ("terms", "status")}
    offsets = copying.pairs(source, topic, target, name, {n: ledger.floor for n, ledger in ledgers.items()})
    topic_id = state.topic_ids(target, [name])[name][0]
    ends = state.ends(target, [(name, n) for n in ledgers])
    states = {n: _anew(ledger, offsets[n], ends[name, n], topic_id) for n, ledger in ledgers.items()}
    parts = [TopicPartition(name, n, each.floor, _text(each, n)) for n, each in states.items()]
    with Site(target, site) as new:
        _refuse_other(new, parts)
        _commit(target, site, parts)
        known = [((site, name, kind), note) for kind, note in notes.items() if note is not None]
        new._notes.write(known, new._sender())
        new._notes.write([((site, name, "state", n), topic_id) for n in states], new._sender())
    return Moved(len(states), sum(end - start for each in states.values() for start, end, _ in each.runs))


def _ledgers(site: Site, topic: str) -> dict[int, Ledger]:
    """What the site has of each partition in which it has worked, purge marks applied."""
    seen = site._waiter.look([(topic, n) for n in site.cluster.partitions(topic)], notes=site._notes)
    found = {}
    for (_, n), each in seen.items():
        ledger = state.ledger_from(each, "raise", f"'{topic}', partition {n}")
        mark = site._notes.purge_mark(site.name, topic, n, each.topic_id)
        if each.committed is not None or mark:
            ledger.purge(mark)
            found[n] = ledger
    return found


def _anew(ledger: Ledger, offsets: dict[int, int], end: int, topic_id: str) -> ledger_text.State:
    """The same state with the copy's offsets. end: of the copy. A record that is gone from the log is not open."""
    top = next((copy for original, copy in offsets.items() if original >= ledger.top), end)
    opened = [
        (offsets[at], tries) for start, stop, tries in ledger.runs() for at in range(start, stop) if at in offsets
    ]
    runs = list(_runs(opened))
    return ledger_text.State(runs[0][0] if runs else top, top, ledger.epoch, topic_id, runs)


def _runs(opened: Iterable[tuple[int, int]]) -> Iterable[Run]:
    """Neighbours with the same attempts as one run."""
    run: Run | None = None
    for offset, attempts in opened:
        if run and run[1] == offset and run[2] == attempts:
            run = (run[0], offset + 1, attempts)
            continue
        if run:
            yield run
        run = (offset, offset + 1, attempts)
    if run:
        yield run


def _text(new: ledger_text.State, n: int) -> str:
    """The state as it is committed. `NotAllowed` if its next owner could not read it."""
    text = ledger_text.write(new, ledger_text.VERSION)
    try:
        Ledger.read(text, new.floor)
    except LedgerCorrupt:
        raise NotAllowed(
            f"partition {n} has too many open items between done ones: their state is too long for a commit. "
            "No state was written. Let the site work some of them off, and stop it"
        ) from None
    return text


def _refuse_other(site: Site, parts: list[TopicPartition]) -> None:
    """Has the site worked on the target already?"""
    there = site._waiter.committed([(part.topic, part.partition) for part in parts])
    for part in parts:
        if there[part.topic, part.partition] not in ((None, ""), (part.offset, part.metadata)):
            raise NotAllowed(f"site '{site.name}' has another state in '{part.topic}' already. No state was written")


def _commit(target: Kafka, site: str, parts: list[TopicPartition]) -> None:
    """All partitions in one commit."""
    if not parts:
        return
    with closing(Consumer(target.client(group_id=site, group_protocol="classic"))) as committer:
        try:
            errors = [part.error for part in committer.commit(offsets=parts, asynchronous=False) if part.error]
        except KafkaException as error:
            errors = [first(error)]
    if errors:
        raise as_ours(errors[0], target.bootstrap, "commit the state", "The same command writes it again.") from None
