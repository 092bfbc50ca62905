"""The session of this process in the site's group: one thread owns the consumer, every commit and every callback.

In:  what other threads ask for (items, a commit, a transaction), left under one lock. Out: partitions with records, ledgers committed.
Other threads wait on `changed`. This thread waits in poll() while a claim waits, else for `wake`. confluent-kafka serialises a
Consumer, so a second thread in any of its methods would wait for the poll.

A partition is dropped inside the callback, on the thread that commits: so nothing is committed for a partition that was lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from kqlib.errors import Unreachable
from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.queue import state
from kqlib.queue.answers import fatal, first
from kqlib.queue.assigned import RECREATED, Assigned
from kqlib.queue.assignment_check import AssignmentCheck
from kqlib.queue.clients import RECONNECT_WITHIN, judge
from kqlib.queue.commits import STUCK, Commits, GivenUp
from kqlib.queue.endings import Endings
from kqlib.queue.fetch import SETTINGS, Fetch
from kqlib.queue.item import Place
from kqlib.queue.loader import Loader
from kqlib.queue.notes import Notes
from kqlib.queue.partition import Partition
from kqlib.queue.partition_notes import PartitionNotes
from kqlib.queue.sender import Sender
from kqlib.queue.subscriptions import LONG, Subscriptions

log = logging.getLogger("kqlib.queue")

PATIENCE = 30.0  # seconds until a verb that waits for a commit gives up
CHECK_EVERY = 0.2  # seconds between two checks of the consumer and of the notes
JOIN_AFTER = 0.5  # seconds until a new consumer joins, after one that failed
JOIN_AGAIN_AFTER = 2.0  # the same, after two that failed for the same reason
# Seconds that an assignment waits for the states of its partitions. Reading then begins at the right offset: a later seek costs 1 s.
STATES_WITHIN = 0.5
DRAIN = 3.0  # seconds for handlers to end before a partition is given up
LAST_COMMIT = 0.5  # seconds after that for what is left to be committed


class Session(Assigned):
    """This process in the site's group."""

    def __init__(self, cluster: Kafka, site: str, notes: Notes, sender: Sender, looker: state.Looker) -> None:
        super().__init__(cluster, site)
        self._loader = Loader(site, looker, notes, sender, self.wake.set)
        self.notes = PartitionNotes(self, notes, sender)
        self.subscriptions = Subscriptions()
        self.endings = Endings(self)
        self._new_consumer()
        self.begin_loading = self._loader.load
        self.closing: int | None = None  # the thread that closes
        self.give_back = True  # do the items that no handler has begun go back without a counted attempt?
        self.drain = DRAIN
        self.drained_by = float("inf")  # by when every drain is over: the site closes
        self.suspected = False  # the consumer gave no answer: is it dead?
        self._verdicts = cluster.verdicts  # when the consumer was last judged
        self._renewed_because = ""  # why the last consumer was replaced, until the group gives something to this one
        self._checked_at = 0.0
        self._stop = False

    def _new_consumer(self) -> None:
        """Make the commits, the fetching and the thread of one consumer. The consumer itself is made when it subscribes."""
        self.consumer = None
        self.group = None
        self.subscribed = set()
        self.commits = Commits(self, self.notes)
        self.fetch = Fetch(self, self.commits.run)
        self._thread = threading.Thread(target=self._run, name=f"kq-site-{self.site}", daemon=True)

    # --- asked by other threads, with `changed` held ---

    def start(self) -> None:
        """Start the thread, once."""
        if not self._thread.ident:
            self._thread.start()

    def save(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return when these ledgers are committed as they are now. Returns the partitions that were lost before that."""
        versions = [(partition, partition.version) for partition in partitions]
        for partition, version in versions:
            partition.awaited = max(partition.awaited, version)
        self.active = time.monotonic()
        self.wake.set()
        deadline = time.monotonic() + PATIENCE
        while not all(p.saved >= version or p.dropped for p, version in versions):
            if (left := deadline - time.monotonic()) <= 0:
                why = self.trouble or f"no answer to a commit in {PATIENCE:g} s"
                raise Unreachable(address=self.cluster.bootstrap, why=why)
            self.committed.wait(min(1.0, left))
            self.unstick()
        return [partition for partition, version in versions if partition.saved < version]

    def unstick(self) -> None:
        """If a commit never returns although the cluster answers, go on with another consumer and another thread."""
        commits = self.commits
        if commits.stuck() and self.closing is None:
            answers = False
            self.changed.release()
            try:
                with suppress(Unreachable):  # asked again in a second
                    answers = bool(state.topic_ids(self.cluster, sorted(self.terms), 2.0))
            finally:
                self.changed.acquire()
            if answers and commits.stuck() and commits is self.commits:
                self.renew(f"a commit was not answered for {STUCK:g} s")

    def renew(self, why: str) -> None:
        """Leave this consumer and its thread behind, drop its partitions, and join the group anew."""
        known = why == self._renewed_because
        self._renewed_because = why
        level = logging.INFO if known else logging.WARNING
        fields = {"site": self.site, "reason": why}
        log.log(level, "site %s: %s; joining anew with another consumer", self.site, why, extra=fields)
        self.commits.given_up = True
        for at in self.mine():
            self.drop(at, f"{why}, and the partition was given up")
        self.under_way = set()
        self.next_try = time.monotonic() + (JOIN_AGAIN_AFTER if known else JOIN_AFTER)
        for topic in self.joined:
            self.begun.pop(topic, None)
        self.joined = set()
        self._new_consumer()
        self._thread.start()
        self.changed.notify_all()

    def apply_marks(self) -> None:
        """Apply purges and rewinds of other processes now. Takes the lock itself."""
        with self.changed:
            for partition in self.partitions.values():
                self.notes.apply(partition)
            self.changed.notify_all()

    # --- the thread ---

    def _run(self) -> None:
        commits = self.commits
        while not self._stop:
            try:
                self._subscribe()
                self._reread()
                self._take_loaded()
                self._take_group_metadata()
                self.commits.run()
                if (why := self._check()) and self._replace_consumer(why):
                    return
                self.fetch.aim()
                self.fetch.read()
            except GivenUp:
                commits.close()
                return
            except Exception as error:  # never a silent end: the verbs that wait say why
                if fatal(error) and self._replace_consumer(first(error).str()):
                    return
                log.exception("the site's thread met something unforeseen")
                self.trouble = repr(error)
                for partition in list(self.partitions.values()):  # another thread may drop one meanwhile
                    partition.window.position = -1  # records may have been read and not kept: read them again
                time.sleep(0.05)
        self._finish()

    def _replace_consumer(self, why: str) -> bool:
        """This consumer is dead: another one joins, on another thread. False: the site closes anyway.

        Seen: INVALID_REQUEST as the answer to a heartbeat. A consumer that is reset while it shall join again goes on as if it
        had joined (librdkafka 5541).
        """
        with self.changed:
            if self.closing is not None or self._stop:
                return False
            dead = self.consumer
            self.renew(f"its consumer ended ({why})")
        with suppress(KafkaException, RuntimeError):
            dead.close()
        return True

    def _subscribe(self) -> None:
        now = time.monotonic()
        with self.changed:
            topics = self.subscriptions.topics(now, self.has_leases, self.states_saved)
        if topics == self.subscribed or now < self.next_try:
            return
        try:
            if self.consumer is None:
                self.consumer = self._consumer()
            if topics:
                how = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
                self.consumer.subscribe(sorted(topics), **how)
            else:
                self.consumer.unsubscribe()
            self.subscribed = topics
            with self.changed:
                self.joined &= topics
                self.begun = {topic: at for topic, at in self.begun.items() if topic in topics}
        except KafkaException as error:
            self.trouble = first(error).str()
            self.next_try = now + JOIN_AFTER

    def _consumer(self) -> Any:
        self.assignment_check = AssignmentCheck(self.cluster, self.site, self.decided_after + self.drain)
        own = {"group.id": self.site, "error_cb": self.complain}
        return Consumer(self.cluster.client(**own, **SETTINGS, **self.assignment_check.settings()))

    def _take_group_metadata(self) -> None:
        """Take the group's metadata for transactions while the partitions are ours: later, the broker refuses it."""
        if self.group is None and self.joined:
            group = self.consumer.consumer_group_metadata()
            with self.changed:
                self.group = group
                self.committed.notify_all()

    def _check(self) -> str:
        """Five times a second: look at the consumer and the notes. Returns why the consumer must be replaced, or ''."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_EVERY:
            return ""
        self._checked_at = now
        if why := self._why_dead():
            return why
        self.fetch.look_at_gaps()
        with self.changed:
            for partition in self.partitions.values():
                self.notes.apply(partition)
                self.notes.write(partition)
                if partition.ahead.expired(now):
                    partition.uncount()
                if now - partition.saved_at > LONG:
                    partition.changed()
                    partition.awaited = partition.version
        return ""

    def _why_dead(self) -> str:
        """Why this consumer must be replaced, although it has reported no fatal error; '' if it lives."""
        if self.suspected or self._verdicts != self.cluster.verdicts:
            dead = self.consumer is not None and judge(self.cluster, self.consumer, RECONNECT_WITHIN)
            self.suspected = False
            self._verdicts = self.cluster.verdicts
            if dead:
                return "it knows no broker any more"
        with self.changed:
            have = set(self.mine())
        missed = self.consumer is not None and self.assignment_check.missed(self.consumer, have)
        return "it missed what the coordinator gave or took" if missed else ""

    # --- what the group gives and takes, inside poll() ---

    def _on_assign(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: assigned %s", self.site, ours, extra=self._fields(ours))
        with self.changed:
            self.joined |= {topic for topic, _ in ours}  # a topic without a partition of ours may not be decided yet
            self.trouble = ""
            self._renewed_because = ""
            self.group = None
            for at in ours:  # of an assignment before this one nothing counts
                self.drop(at, RECREATED)
            self.load(ours)
        self._loader.wait(STATES_WITHIN)
        self._take_loaded()
        ready = {at: self.partitions[at] for at in ours if at in self.partitions}
        for partition in ready.values():
            partition.window.position = partition.window.target()
        begins = {at: {"offset": p.window.position, "leader_epoch": p.ledger.leader} for at, p in ready.items()}
        consumer.incremental_assign([TopicPartition(*at, **begins.get(at, {"offset": 0})) for at in ours])
        if ready:
            consumer.resume([TopicPartition(*at) for at in ready])  # a pause outlives the assignment
        self._hold([at for at in ours if at not in ready])

    def _fields(self, ours: list[Place]) -> dict[str, object]:
        """What a line of the log says beside its text."""
        return {"site": self.site, "partitions": [f"{topic}/{number}" for topic, number in ours]}

    def _hold(self, ours: list[Place]) -> None:
        """Pause these partitions until their states are known."""
        if ours:
            self.consumer.pause([TopicPartition(*at) for at in ours])
            self.paused |= set(ours)

    def _on_revoke(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: revoked %s", self.site, ours, extra=self._fields(ours))
        self.drop_deleted(ours)
        self._commit_last(self._wait_for_handlers(ours))
        with self.changed:
            self.notes.write_last(ours)
            for at in ours:
                self.drop(at, "this partition went to another process")
            self.changed.notify_all()
        consumer.incremental_unassign(parts)

    def _on_lost(self, _consumer: Any, parts: list[TopicPartition]) -> None:
        """The group went on without this process. Nothing may be committed any more, so there is nothing to drain."""
        ours = [(part.topic, part.partition) for part in parts]
        log.warning("site %s: lost %s", self.site, ours, extra=self._fields(ours))
        with self.changed:
            self.group = None
            for at in ours:
                self.drop(at, "this process was out of its group for too long, and the partition went to another")
            # the group has to assign again
            self.joined = set()
            self.begun = {}
            self.changed.notify_all()

    def _wait_for_handlers(self, ours: list[Place]) -> list[Partition]:
        """Wait until handlers and transactions have ended, at most `drain` seconds. A site that closes has one drain for all."""
        deadline = time.monotonic() + self.drain
        with self.changed:
            partitions = [self.partitions[at] for at in ours if at in self.partitions]
            for partition in partitions:
                partition.leaving = True
        while time.monotonic() < min(deadline, self.drained_by):
            self._take_group_metadata()
            self.commits.run()
            with self.changed:
                if not any(partition.at_work(self.closing) for partition in partitions):
                    return partitions
            self.wake.wait(0.01)
            self.wake.clear()
        with self.changed:
            left = [id_ for partition in partitions for id_ in partition.at_work(self.closing)]
        if left:
            some = ", ".join(left[:5]) + ", …" * (len(left) > 5)
            text = "site %s: handlers that did not end in time are left behind with %s"
            log.warning(text, self.site, some, extra={"site": self.site, "items": left})
        return partitions

    def _commit_last(self, partitions: list[Partition]) -> None:
        """Give back the items that no handler has begun. Then commit what changed, if Kafka answers."""
        deadline = time.monotonic() + LAST_COMMIT
        with self.changed:
            for partition in partitions:
                if self.give_back:
                    partition.give_back(self.closing)
                partition.uncount()
                partition.awaited = partition.version
        while any(p.saved < p.awaited and not p.dropped for p in partitions):
            if (self.commits.run() and not any(p.frozen for p in partitions)) or time.monotonic() > deadline:
                return
            time.sleep(0.02)

    # --- states that were read ---

    def _reread(self) -> None:
        """Read dropped states again. They are paused on this thread: elsewhere a pause would wait for the poll that runs."""
        for partition in [partition for partition in list(self.partitions.values()) if partition.dropped]:
            with self.changed:
                self.reload(partition, partition.dropped or "")
        if self.reloaded:
            with self.changed:
                ours = [at for at in self.reloaded if at in self.loadings]
                self.reloaded = []
            self._hold(ours)

    def _take_loaded(self) -> None:
        """Take over the partitions whose states were read."""
        while not self._loader.done.empty():
            loading = self._loader.done.get()
            with self.changed:
                mark = self.notes.purge_mark(loading.at, loading.ledger.topic) if loading.ledger else 0
                if (partition := self.take_over(loading, mark)) is not None:
                    self.notes.apply(partition)
                    partition.changed()
                    partition.awaited = partition.version  # the new epoch is committed before the first claim
                self.changed.notify_all()

    # --- the end ---

    def stop(self, seconds: float, give_back: bool) -> bool:
        """Drain, commit and leave the group. False: the thread did not end in time (the broker is down) and is left behind."""
        with self.changed:
            self.closing = threading.get_ident()
            self.give_back = give_back
            self.drained_by = time.monotonic() + self.drain
            self._stop = True
            self.wake.set()
            self.changed.notify_all()
        if self._thread.ident:
            self._thread.join(seconds)
        self.endings.close(0 if self._thread.is_alive() else LAST_COMMIT)
        self._give_up()
        self._loader.close()
        return not self._thread.is_alive()

    def _finish(self) -> None:
        try:
            partitions = self._wait_for_handlers(list(self.partitions))
            self.endings.close(LAST_COMMIT)  # a partition is frozen until its transaction has ended
            self._commit_last(partitions)
            with self.changed:
                self.notes.write_last(list(self.partitions))
            self._give_up()
            if self.consumer is not None:
                self.consumer.close()
        except Exception:
            log.exception("leaving the group")

    def _give_up(self) -> None:
        """Drop everything, and wake the verbs that wait for it."""
        with self.changed:
            for at in [*self.partitions, *self.loadings]:
                self.drop(at, "its site is closed")
            self.changed.notify_all()
