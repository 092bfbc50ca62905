"""The verbs of a queue. Each takes the lock, checks the receipt, changes the partition, and waits until that is committed.

In:  calls from any thread. Out: items, and errors that say what is safe. `site.queue(name)` makes a `Queue`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any, cast

from kqlib.errors import Closed, KqError, LeaseLost, NotAllowed, TopicMissing, Unreachable
from kqlib.queue import arguments, dead, look
from kqlib.queue.claim import ASSIGNED_WITHIN, READ_WITHIN, Claiming, unsure
from kqlib.queue.connection import Connection, TopicFacts
from kqlib.queue.item import Item, Job, Outcome, maybe_acked, not_acked
from kqlib.queue.partition import Partition
from kqlib.queue.put import Step
from kqlib.queue.redrive import Choice, Redrive, Redriven, chosen, into_queue
from kqlib.queue.terms import Terms
from kqlib.queue.work import WorkMixin

log = logging.getLogger("kqlib.queue")
AT_ONCE = 5  # attempts without a wait between them, where nothing can be buried
RIDING = "What was acked is noted, and stored with the next commit that succeeds"


class Queue(Claiming, WorkMixin):
    """A queue of one site: put, claim, ack."""

    def __init__(
        self,
        site: Connection,
        terms: Terms,
        lease: float,
        facts: TopicFacts,
        dead_facts: TopicFacts | None,
        *,
        open_dead: Callable[..., Queue],
    ) -> None:
        super().__init__(site, terms, lease, facts, dead_facts)
        self._open_dead = open_dead
        self._dead = cast("Queue | None", None)

    # --- done, or not ---

    def ack(self, item: Item, wait: bool = True) -> None:
        """Done: it never comes again. Durable when it returns; wait=False: within 50 ms."""
        with self._session.changed:
            partition = self._held(item)
            partition.ack([item.offset])
            self._freed([partition])
            if wait and (lost := self._save([partition], RIDING)):
                raise self._not_stored_in(lost)

    def ack_many(self, items: Iterable[Item], wait: bool = True) -> None:
        """All of them done with one commit. What cannot be acked is in the error's `.items`; the others are done.

        `Unreachable`: what is in its `.unknown` may have been acked, or not.
        """
        items = list(items)
        refused = list[Item]()
        unknown = list[Item]()
        why = ""
        with self._session.changed:
            self.site._check_open()
            by = self._all_held(items)
            if sum(map(len, by.values())) < len(items):  # some are not held: which, and why?
                by, refused, why = self._one_by_one(items)
            for partition, offsets in by.items():
                partition.ack(sorted(offsets))
            self._freed(list(by))
            if wait and (lost := self._save(list(by), RIDING)):
                gone, error = {partition.number: partition for partition in lost}, self._not_stored_in(lost)
                why, named = why or str(error.facts["why"]), set(map(id, refused))
                held = [item for item in items if id(item) not in named and item.partition in gone]
                unknown = [item for item in held if unsure(gone[item.partition])]
                refused += [item for item in held if not unsure(gone[item.partition])]
        if unknown:
            raise maybe_acked(len(items), refused, unknown, why, self.site.cluster.bootstrap)
        if len(refused) == len(items) > 0:
            with self._session.changed:
                self._allowed("Nothing was changed.")
        if refused:
            raise not_acked(len(items), refused, why)

    def _one_by_one(self, items: Sequence[Item]) -> tuple[dict[Partition, set[int]], list[Item], str]:
        """By partition, the offsets of those whose lease holds; the other items, and what is wrong with the first."""
        by = defaultdict[Partition, set[int]](set)
        refused = list[Item]()
        why = ""
        for item in items:
            try:
                offsets = by[self._partition_of(item)]
            except KqError as error:  # its lease is lost, or it is another queue's, or nobody claimed it
                refused.append(item)
                why = why or str(error)
                continue
            if item.offset in offsets:
                refused.append(item)
                why = why or f"{item.id}: it is twice in this call"
            offsets.add(item.offset)
        return by, refused, why

    def _all_held(self, items: Sequence[Item]) -> dict[Partition, set[int]]:
        """By partition, the offsets of those whose lease holds: the quick way of `_held`."""
        now = self.terms.clock()
        ours = defaultdict[int, list[Item]](list)
        for item in items:
            if isinstance(item, Item) and item.queue == self.name:
                ours[item.partition].append(item)
        partitions = self._session.partitions_of(self.name)
        return {each: set(each.holding(ours[each.number], now)) for each in partitions if each.number in ours}

    def _freed(self, partitions: list[Partition]) -> None:
        """Wake claims: with an item done, the next one of its key can go, or the others if it went alone."""
        if self._session.hungry[self.name] and any(partition.claimable() for partition in partitions):
            self._session.changed.notify_all()

    def release(self, item: Item, delay: float = 0) -> None:
        """Not done: back to the front, or due after `delay` seconds. The attempt counts.

        Of items that are ready again (by a release, a delay that is over, a lease that ended) the older offset goes first.
        """
        seconds = arguments.delay(delay)
        with self._session.changed:
            self._held(item).release(item.offset, seconds)
            self._session.changed.notify_all()

    def _set_aside(self, item: Item, why: KqError, given_up: bool) -> None:
        """The item cannot be buried: let it wait. `blocked` says why."""
        with self._session.changed:
            self._held(item).set_aside(item.offset, why, given_up)

    def extend(self, item: Item, lease: float | None = None) -> Item:
        """Yours for longer: `lease` seconds from now. Both values ack."""
        seconds = self.lease if lease is None else arguments.lease(lease)
        with self._session.changed:
            deadline = self._held(item).extend(item.offset, seconds)
        return item._replace(deadline=deadline)

    def bury(self, item: Item, reason: str = "") -> None:
        """To the dead letters, with its whole story: written there and done here at once, or neither.

        `TopicMissing`, `NotAllowed`, `PayloadTooLarge`: it cannot be written there, and its lease holds as before.
        """
        arguments.reason(reason)
        self._check_bury()
        with self._session.changed:
            partition = self._held(item)
            job = partition.leases[item.offset].job
            self.site._end(self._burial(partition, item.offset, reason, item.lease))
            if job is not None:
                job.outcome = Outcome.BURIED

    def _check_bury(self) -> None:
        if self.dead_facts is None:
            raise self._no_letters()

    def _no_letters(self) -> NotAllowed:
        if self.name.endswith(dead.DEAD):
            return NotAllowed(f"'{self.name}' holds dead letters already: ack, discard or redrive one")
        why = "there is no dead-letter topic, so nothing can be buried"
        return NotAllowed(
            f"'{self.name}{dead.DEAD}' does not exist: {why}. Add '{self.name}' to the plan as a QueueTopic"
        )

    def step(self, item: Item) -> AbstractContextManager[Step]:
        """`with queue.step(item) as step: step.put(other, data)`: outputs and the ack, all or nothing."""
        with self._session.changed:
            partition = self._held(item)
        return Step(self.site, partition, item)

    # --- for `work` ---

    def _ahead(self, ahead: int | None) -> int | None:
        """Not where the first attempt is the last: a crash counts an attempt for all items that are claimed."""
        return 0 if ahead is None and self.terms.max_attempts == 1 else ahead

    def _jobs_at_hand(self, n: int) -> list[Job]:
        jobs = list[Job]()
        with self._session.changed:
            if not self._broken():  # a claim tries to load it again
                self._usable_here()
                self._session.subscriptions.claim(self.name, time.monotonic())
                self._take(n, self.lease, jobs)
        return jobs

    def _claim_jobs(
        self, n: int, wait: float, stop: Callable[[], bool], empty: Callable[[list[KqError]], None] | None
    ) -> list[Job]:
        jobs = list[Job]()
        self._claim(n, self.lease, wait, jobs, stop, empty=empty)
        return jobs

    def _may_come(self) -> bool:
        with self._session.changed:
            return any(partition.in_hand() for partition in self._session.partitions_of(self.name))

    def _may_begin(self, job: Job, stopping: bool) -> bool:
        """Not if `work` stops, or if the partition is being given up.

        `begun` is set before `leaving` is read. A drain sets `leaving` before it reads `begun`. So one of the two sees the other.
        """
        job.begun = not stopping
        return not (stopping or job.partition.leaving or job.partition.dropped)

    def _job_done(self, job: Job) -> None:
        """`_ack_jobs` acks it, together with others."""

    def _job_failed(self, job: Job, wait: float | None, story: str) -> None:
        """Release it for a later attempt, or bury it. If it cannot be buried it waits, and holds no other item up."""
        item = job.item
        most = self.terms.max_attempts
        no_dead = self.dead_facts is None
        over = wait is None or (most is not None and item.attempt >= most)
        if over and not no_dead:
            try:
                self.bury(item, story)
            except (Closed, LeaseLost, Unreachable):
                raise
            except KqError as why:
                self._set_aside(item, why, given_up=True)
        elif over or (no_dead and not wait and item.attempt >= AT_ONCE):
            self._set_aside(item, self._no_letters(), given_up=over)
        else:
            self.release(item, wait or 0.0)

    def _ack_jobs(self, jobs: Iterable[Job]) -> None:
        """Ack those that have no outcome yet, if their leases hold. The next commit stores that."""
        by: dict[Partition, list[int]] = defaultdict(list)
        with self._session.changed:
            for job in jobs:
                if job.outcome is None and job.partition.holds(job):
                    by[job.partition].append(job.item.offset)
            for partition, offsets in by.items():
                partition.ack(offsets)
            self._freed(list(by))

    def _give_back(self, job: Job) -> None:
        """No handler began with it: make it ready again, and do not count the attempt."""
        with self._session.changed:
            if job.partition.holds(job):
                job.partition.unclaim(job.item.offset)
                self._session.changed.notify_all()

    def _commit_soon(self) -> None:
        with self._session.changed:
            for partition in self._session.partitions_of(self.name):
                partition.awaited = partition.version
            self._session.wake.set()

    def _flush(self) -> None:
        with self._session.changed:
            partitions = [p for p in self._session.partitions_of(self.name) if p.version > p.saved]
            if lost := self._save(partitions, RIDING):  # a partition went to another process meanwhile
                log.warning("%s", self._not_stored_in(lost), extra={"queue": self.name})

    def _wake(self) -> None:
        with self._session.changed:
            self._session.changed.notify_all()

    # --- what a person may ask ---

    def depth(self) -> int:
        """How many items are not acked, claimed ones included; from any process."""
        self.site._check_open()
        self.site._notes.catch_up()
        self._session.apply_marks()
        with self._session.changed:  # of the offsets that this process has read it knows which are items
            own = {partition.number: partition.view() for partition in self._mine()}
        self._flush()
        return look.depth(self.site, self.name, own)

    def purge(self) -> None:
        """Everything now in it counts as done, in every process. Durable when it returns."""
        self.site._check_open()
        look.purge(self.site, self.name)

    def peek(self, n: int = 10) -> list[Item]:
        """The first n items that are not done, without claiming them."""
        self.site._check_open()
        self._flush()
        return look.peek(self.site, self.name, arguments.count("n", n))

    def discard(self, id: str) -> None:  # noqa: A002 - the word of Item
        """Count an item as done that nobody has claimed. Its partition must be one of this process."""
        topic, number, offset = look.place(id)
        if topic != self.name:
            raise NotAllowed(f"{id} is not an item of '{self.name}'")
        self._usable()
        with self._session.changed:
            self._join()
            while loading := self._session.loadings.get((self.name, number)):
                self._wait_for(loading.since + ASSIGNED_WITHIN)
            self._usable_here()
            partition = self._session.partitions.get((self.name, number))
            if partition is None:
                raise NotAllowed(f"{id}: another process has its partition; discard it there, or close that one")
            unread = "it is not there, or done already"
            if offset < self._ends({partition}).get(partition, 0):
                read = self._session.changed.wait_for(
                    lambda: partition.window.target() > offset or bool(partition.dropped), READ_WITHIN
                )
                unread = "" if read else f"it could not be read: {partition.full or 'no answer'}"
            if why := partition.dropped or unread or partition.discard(offset):
                raise NotAllowed(f"{id}: {why}. Nothing was changed")
            if lost := self._save([partition], "The discard is noted, and stored with the next commit that succeeds"):
                raise self._not_stored_in(lost)

    @property
    def dead(self) -> Queue:
        """Its dead letters: a queue as well."""
        self._check_bury()
        if self._dead is None:
            self._dead = self._open_dead(on_lost=self._session.on_lost[self.name])
        return self._dead

    def redrive(
        self,
        n: int | None = None,
        *,
        ids: Collection[str] | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        into: Queue | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Redriven:
        """Put dead items back, as new ones: last in line, attempt 1. How many; `.refused`: the chosen that stay dead, and why.

        n: at most so many; else one, or all that are chosen. They are chosen by ids (a letter's, or that of the item that it was),
        by a text in their reason (an exception's name is one) and by when they were buried. into: another queue of this site.
        dry_run: only count them. force: also what was dead three times. Works on the partitions of this process.
        """
        choice = chosen(ids, reason, since)
        most = arguments.count("n", n) if n is not None else 1 if choice == Choice() else sys.maxsize
        return Redrive(self.dead, into_queue(self, into), choice, dry_run=dry_run, force=force).run(most)

    @property
    def lost(self) -> int:
        """Items that nobody gets, of all partitions, as every process of the site sees it; until `kq queue rewind` deals with them.

        They left the log before they were done (retention), they were cut off with its end (an unclean election), or another
        program's commit skipped them. What on_lost="latest" skipped is counted by the process that chose it.
        """
        keys = self.site._notes.keys()
        numbers = [key[-1] for key in keys if key[:-1] == (self.site.name, self.name, "incidents")]
        with self._session.changed:
            own = {partition.number: partition for partition in self._session.partitions_of(self.name)}
            here = sum(each.losses.items + each.losses.chosen for each in own.values()) + self._session.lost[self.name]
            noted = [each.losses.incidents for each in own.values()]
            noted += [look.noted(self.site, self.name, each) for each in numbers if each not in own]
        return here + sum(each.lost for some in noted for each in some)

    def stats(self) -> look.Stats:
        """Numbers a person can ask for.

        Of the whole queue: depth, dead, lost, oldest (seconds since the oldest open item was put). Of the `partitions` of this
        process: claimed, delayed, blocked, and puts, claims, acks a second over the last minute.
        Kafka's own tools (kq kafka consumer-groups --describe) know of this group only the floor: their lag is end - floor. It is
        never less than the depth; what was done above the floor, and the marks of transactions, still count in it.
        """
        self.site._check_open()
        with self._session.changed:
            partitions = self._session.partitions_of(self.name)
            counts = [partition.counts() for partition in partitions]
            own: dict[str, Any] = {name: sum(each[name] for each in counts) for name in ("claimed", "delayed")}
            own |= {"partitions": len(partitions), "blocked": self.blocked}
            own |= self.terms.rates.a_second(time.monotonic())
        letters = None
        with suppress(TopicMissing):  # deleted meanwhile; `blocked` says so once something is to be buried
            letters = look.depth(self.site, self.name + dead.DEAD) if self.dead_facts else None
        oldest = look.oldest(self.site, self.name)
        return look.Stats(depth=self.depth(), dead=letters, oldest=oldest, lost=self.lost, **own)

    def __repr__(self) -> str:
        return f"Queue('{self.name}', site '{self.site.name}')"
