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

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.errors import KqError, Unreachable
from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.queue import state
from kqlib.queue.answers import fatal, first
from kqlib.queue.assigned import ANEW, Assigned, At, Loading
from kqlib.queue.clients import HOLDS, judge
from kqlib.queue.commits import STUCK, Commits, GivenUp
from kqlib.queue.endings import Endings
from kqlib.queue.fetch import SETTINGS, Fetch
from kqlib.queue.heartbeats import Heartbeats
from kqlib.queue.loader import Loader
from kqlib.queue.notes import Notes
from kqlib.queue.partition import Partition
from kqlib.queue.partition_notes import PartitionNotes
from kqlib.queue.sender import Sender
from kqlib.queue.subscriptions import LONG, Subscriptions

log = logging.getLogger("kqlib.queue")

AGAIN = 2.0  # seconds until the next consumer, after two that ended for the same reason
PATIENCE = 30.0  # seconds until a verb that waits for a commit gives up
SOON = 0.5  # seconds that an assignment waits for its states: then reading begins where it should; a later seek costs 1 s more
DRAIN = 3.0  # seconds for handlers to end before a partition is given up
LAST = 0.5  # seconds after that for what is left to be committed


class Session(Assigned):
    """This process in the site's group."""

    def __init__(self, cluster: Kafka, site: str, notes: Notes, sender: Sender, looker: state.Looker) -> None:
        super().__init__(cluster, site)
        self._loader = Loader(site, looker, notes, sender, self.wake.set)
        self.notes = PartitionNotes(self, notes, sender)
        self.subscriptions = Subscriptions()
        self.endings = Endings(self)
        self._new_consumer()
        self.closing: int | None = None  # the thread that closes
        self.give_back, self.drain = True, DRAIN
        self.drained_by = float("inf")  # by when every drain is over: the site closes
        self.doubted, self._turn = False, cluster.turn  # doubted: this thread is to judge its consumer
        self._left = ""  # why the last consumer was left, until the group gives something to its successor
        self._checked = 0.0
        self._stop = False

    def begin_loading(self, new: list[Loading]) -> None:
        """Read the states of these partitions."""
        self._loader.load(new)

    def _new_consumer(self) -> None:
        """Make the commits, the fetching and the thread of one consumer. The consumer itself is made when it subscribes."""
        self.consumer, self.group, self.subscribed = None, None, set()
        self.commits = Commits(self, self.notes)
        self.fetch = Fetch(self, self.commits.run)
        self._thread = threading.Thread(target=self._run, name=f"kq-site-{self.site}", daemon=True)

    # --- asked by other threads, with `changed` held ---

    def start(self) -> None:
        """Start the thread, once."""
        if not self._thread.ident:
            self._thread.start()

    def save(self, owners: Iterable[Partition]) -> None:
        """Return when these ledgers are committed as they are now. The caller checks which partitions were lost meanwhile."""
        versions = [(owner, owner.version) for owner in owners]
        for owner, version in versions:
            owner.awaited = max(owner.awaited, version)
        self.active = time.monotonic()
        self.wake.set()
        deadline = time.monotonic() + PATIENCE
        while not all(o.saved >= version or o.dropped for o, version in versions):
            if (left := deadline - time.monotonic()) <= 0:
                why = self.trouble or f"no answer to a commit in {PATIENCE:g} s"
                raise Unreachable(address=self.cluster.bootstrap, why=why)
            self.committed.wait(min(1.0, left))
            self.unstick()

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
        known, self._left = self._left == why, why
        level = logging.INFO if known else logging.WARNING
        log.log(level, "site %s: %s; joining anew with another consumer", self.site, why)
        self.commits.given_up = True
        for at in self.mine():
            self.drop(at, f"{why}, and the partition was given up")
        self.under_way = set()
        self.next_try = time.monotonic() + (AGAIN if known else 0.5)
        for topic in self.joined:
            self.begun.pop(topic, None)
        self.joined = set()
        self._new_consumer()
        self._thread.start()
        self.changed.notify_all()

    def apply_marks(self) -> None:
        """Apply purges and rewinds of other processes now. Takes the lock itself."""
        with self.changed:
            for at, owner in self.owners.items():
                self.notes.apply(at, owner)
            self.changed.notify_all()

    # --- the thread ---

    def _run(self) -> None:
        commits = self.commits
        while not self._stop:
            try:
                self._subscribe()
                self._reread()
                self._take_loaded()
                self._introduce()
                self.commits.run()
                self._check()
                self.fetch.aim()
                self.fetch.read()
            except GivenUp:
                commits.close()
                return
            except Exception as error:  # never a silent end: the verbs that wait say why
                if fatal(error) and self._leave(error):
                    return
                log.exception("the site's thread met something unforeseen")
                self.trouble = repr(error)
                for owner in list(self.owners.values()):  # another thread may drop one meanwhile
                    owner.window.position = -1  # records may have been read and not kept: read them again
                time.sleep(0.05)
        self._finish()

    def _leave(self, error: Exception) -> bool:
        """The client says that this consumer is dead: another one, on another thread. Not when the site closes anyway.

        Seen: INVALID_REQUEST to a heartbeat. Reset while it is to join again, it goes on as if it had (librdkafka 5541).
        """
        with self.changed:
            if self.closing is not None or self._stop:
                return False
            dead = self.consumer
            self.renew(f"its consumer ended ({error.args[0].str()})")
        with suppress(KafkaException, RuntimeError):
            dead.close()
        return True

    def _subscribe(self) -> None:
        now = time.monotonic()
        with self.changed:
            topics = self.subscriptions.topics(now, self._leases, self._stored)
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
            self.trouble, self.next_try = first(error).str(), now + 0.5

    def _stored(self, topic: str) -> bool:
        return bool(self.owners_of(topic)) and self.loading(topic) is None

    def _leases(self, topic: str) -> bool:
        return any(bool(o.leases or o.ending) for (name, _), o in self.owners.items() if name == topic)

    def _consumer(self) -> Any:
        self.heartbeats = Heartbeats(self.cluster, self.site, self.decided_after + self.drain)
        own = {"group.id": self.site, "error_cb": self.complain}
        return Consumer(self.cluster.client(**own, **SETTINGS, **self.heartbeats.settings()))

    def _introduce(self) -> None:
        """Take the group's metadata for transactions while the partitions are ours: later, the broker refuses it."""
        if self.group is None and self.joined:
            group = self.consumer.consumer_group_metadata()
            with self.changed:
                self.group = group
                self.committed.notify_all()

    def _check(self) -> None:
        """Five times a second: check the consumer, apply what others noted, write notes, commit old states again."""
        now = time.monotonic()
        if now - self._checked < 0.2:
            return
        self._checked = now
        if self.doubted or self._turn != self.cluster.turn:
            self._judge()
        with self.changed:
            have = set(self.mine())
        if self.consumer is not None and self.heartbeats.missed(self.consumer, have):
            raise KafkaException(KafkaError(KafkaError._FATAL, "it missed what the coordinator gave or took"))
        self.fetch.look_at_gaps()
        with self.changed:
            for at, owner in self.owners.items():
                self.notes.apply(at, owner)
                self.notes.write(at, owner)
                if now - owner.saved_at > LONG:
                    owner.changed()
                    owner.awaited = owner.version

    def _judge(self) -> None:
        """Is this consumer dead without having reported it? Then another one takes its place."""
        dead = self.consumer is not None and judge(self.cluster, self.consumer, HOLDS)
        self.doubted, self._turn = False, self.cluster.turn
        if dead:
            raise KafkaException(KafkaError(KafkaError._FATAL, "it knows no broker any more"))

    # --- what the group gives and takes, inside poll() ---

    def _on_assign(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: assigned %s", self.site, ours)
        with self.changed:
            self.joined |= {topic for topic, _ in ours}  # a topic without a partition of ours may not be decided yet
            self.trouble, self._left, self.group = "", "", None
            for at in ours:  # of an assignment before this one nothing counts
                self.drop(at, ANEW)
            self.load(ours)
        self._loader.wait(SOON)
        self._take_loaded()
        ready = {at: self.owners[at] for at in ours if at in self.owners}
        for owner in ready.values():
            owner.window.position = owner.target()
        begins = {at: {"offset": o.window.position, "leader_epoch": o.ledger.leader} for at, o in ready.items()}
        consumer.incremental_assign([TopicPartition(*at, **begins.get(at, {"offset": 0})) for at in ours])
        if ready:
            consumer.resume([TopicPartition(*at) for at in ready])  # a pause outlives the assignment
        self._hold([at for at in ours if at not in ready])

    def _hold(self, ours: list[At]) -> None:
        """Pause these partitions until their states are known."""
        if ours:
            self.consumer.pause([TopicPartition(*at) for at in ours])
            self.paused |= set(ours)

    def _on_revoke(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: revoked %s", self.site, ours)
        self._end_of_topics(ours)
        self._store(self._let_end(ours))
        with self.changed:
            self.notes.write_last(ours)
            for at in ours:
                self.drop(at, "this partition went to another process")
            self.changed.notify_all()
        consumer.incremental_unassign(parts)

    def _on_lost(self, _consumer: Any, parts: list[TopicPartition]) -> None:
        """The group went on without this process. Nothing may be committed any more, so there is nothing to drain."""
        ours = [(part.topic, part.partition) for part in parts]
        log.warning("site %s: lost %s", self.site, ours)
        with self.changed:
            self.group = None
            for at in ours:
                self.drop(at, "this process was out of its group for too long, and the partition went to another")
            self.joined, self.begun = set(), {}  # the group has to assign again
            self.changed.notify_all()

    def _end_of_topics(self, ours: list[At]) -> None:
        """Drop the partitions whose topic was deleted: their states cannot be stored, and no other process has them."""
        with self.changed:
            had = {at: self.owners[at].ledger.topic for at in ours if at in self.owners}
            had |= {at: self.loadings[at].was for at in ours if at in self.loadings and self.loadings[at].was}
        there = self.ids_of({topic for topic, _ in had})
        with self.changed:
            for at, topic_id in had.items():
                if there is not None and there.get(at[0]) != topic_id:
                    self.ended[at] = topic_id
                    self.drop(at, ANEW)

    def _let_end(self, ours: list[At]) -> list[Partition]:
        """Wait until handlers and transactions have ended, at most for a drain, or what is left of it when the site closes."""
        deadline = time.monotonic() + self.drain
        with self.changed:
            owners = [self.owners[at] for at in ours if at in self.owners]
            for owner in owners:
                owner.leaving = True
        while time.monotonic() < min(deadline, self.drained_by):
            self._introduce()
            self.commits.run()
            with self.changed:
                if not any(owner.at_work(self.closing) for owner in owners):
                    return owners
            self.wake.wait(0.01)
            self.wake.clear()
        with self.changed:
            left = [id_ for owner in owners for id_ in owner.at_work(self.closing)]
        if left:
            some = ", ".join(left[:5]) + ", …" * (len(left) > 5)
            log.warning("site %s: handlers that did not end in time are left behind with %s", self.site, some)
        return owners

    def _store(self, owners: list[Partition]) -> None:
        """Give back the items that no handler has begun. Then commit what changed, if Kafka answers."""
        deadline = time.monotonic() + LAST
        with self.changed:
            for owner in owners:
                if self.give_back:
                    owner.give_back(self.closing)
                owner.awaited = owner.version
        while any(o.saved < o.awaited and not o.dropped for o in owners):
            if (self.commits.run() and not any(o.frozen for o in owners)) or time.monotonic() > deadline:
                return
            time.sleep(0.02)

    # --- states that were read ---

    def _reread(self) -> None:
        """Read dropped states again. They are paused on this thread: elsewhere a pause would wait for the poll that runs."""
        for owner in [owner for owner in list(self.owners.values()) if owner.dropped]:
            with self.changed:
                self.reload(owner, owner.dropped or "")
        if self.reloaded:
            with self.changed:
                ours, self.reloaded = [at for at in self.reloaded if at in self.loadings], []
            self._hold(ours)

    def _take_loaded(self) -> None:
        while not self._loader.done.empty():
            each = self._loader.done.get()
            with self.changed:
                if self.loadings.get(each.at) is not each:
                    continue
                del self.loadings[each.at]
                if each.error or each.ledger is None:
                    self.broken[each.at] = each.error or KqError("it could not be loaded")
                else:
                    each.ledger.epoch += 1
                    mark = self.notes.mark_for(each.at, each.ledger.topic)
                    owner = Partition(self.terms[each.at[0]], each.at[1], each.ledger, each.low, mark)
                    owner.incidents, owner.chosen, owner.lost = each.incidents, max(0, owner.lost - each.gone), 0
                    self.owners[each.at] = owner
                    self.notes.apply(each.at, owner)
                    owner.changed()
                    owner.awaited = owner.version  # the new epoch is committed before the first claim
                self.changed.notify_all()

    # --- the end ---

    def stop(self, seconds: float, give_back: bool) -> bool:
        """Drain, commit and leave the group. False: the thread did not end in time (the broker is down) and is left behind."""
        with self.changed:
            self.closing, self.give_back = threading.get_ident(), give_back
            self.drained_by = time.monotonic() + self.drain
            self._stop = True
            self.wake.set()
            self.changed.notify_all()
        if self._thread.ident:
            self._thread.join(seconds)
        self.endings.close(0 if self._thread.is_alive() else LAST)
        self._give_up()
        self._loader.close()
        return not self._thread.is_alive()

    def _finish(self) -> None:
        try:
            owners = self._let_end(list(self.owners))
            self.endings.close(LAST)  # its partitions are frozen until a transaction has ended
            self._store(owners)
            with self.changed:
                self.notes.write_last(list(self.owners))
            self._give_up()
            if self.consumer is not None:
                self.consumer.close()
        except Exception:
            log.exception("leaving the group")

    def _give_up(self) -> None:
        """Drop everything, and wake the verbs that wait for it."""
        with self.changed:
            for at in [*self.owners, *self.loadings]:
                self.drop(at, "its site is closed")
            self.changed.notify_all()
