"""Membership and all talk with the group's coordinator: one thread a site owns the Consumer, every commit and every callback.

In:  what other threads want (items, a commit, an ending), left under one lock. Out: owners with records, ledgers committed.
Others wait on `changed`; this thread waits in poll() while somebody is hungry, else for `wake`. confluent-kafka serialises a
Consumer, so a second thread in any of its methods would wait for the poll (FACTS, queue 1). It also closes a zombie's way:
owners are dropped inside the rebalance callbacks, on the thread that commits, so nothing is committed for a partition that
this process has lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kqlib.broker.kafka import Kafka
from kqlib.errors import KqError, NotAllowed, Unreachable
from kqlib.queue.ending import Endings
from kqlib.queue.fetch import Fetch
from kqlib.queue.loader import At, Loader, Loading
from kqlib.queue.notes import Notes
from kqlib.queue.owner import Owner, Terms
from kqlib.queue.said import GIVE_UP, first
from kqlib.queue.sender import Sender

log = logging.getLogger("kqlib.queue")

RIDE = 0.05  # seconds that a riding ack waits for another commit to ride on
SOON = 0.5  # seconds that an assignment waits for its states: then reading begins where it should; a later seek costs 1 s more
TOLD = 6.5  # a heartbeat (5 s), and the second within which the group decides (group.consumer.assignment.interval.ms)
DRAIN = 3.0  # seconds for handlers to end before a partition is given up
IDLE = 60.0  # seconds without a claim until a subscription is dropped
PATIENCE = 30.0  # seconds until somebody who waits for a commit is told
LONG = 24 * 3600.0  # a state is committed again after that, lest Kafka forgets it


class Member:
    """This process in the site's group."""

    def __init__(
        self, cluster: Kafka, site: str, notes: Notes, sender: Sender, loader: Callable[[Member], Loader]
    ) -> None:
        self.cluster, self.site, self.notes, self.sender = cluster, site, notes, sender
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)  # the site's one lock; items and partitions come and go
        self.committed = threading.Condition(self._lock)  # the same lock: commits
        self.wake = threading.Event()
        self.owners: dict[At, Owner] = {}
        self.terms: dict[str, Terms] = {}
        self.on_lost: dict[str, str] = {}
        self.claimed_at: dict[str, float] = {}  # topic -> when a claim last came: the subscription that is wanted
        self.joined: set[str] = set()  # topics of which the group has said what is ours
        self.broken: dict[At, KqError] = {}
        self.hungry: dict[str, int] = defaultdict(int)  # topic -> claims that wait
        self.endings = Endings(self)
        self.trouble = ""  # what Kafka last complained about
        self.closing: int | None = None  # the thread that closes
        self.consumer: Any = None
        self._loader = loader(self)
        self._loading: dict[At, Loading] = {}
        self._subscribed: set[str] = set()
        self.fetch = Fetch(self)
        self._active = 0.0  # when something last moved
        self._next_try = 0.0
        self._minded = 0.0
        self._stop = False
        self.give_back, self.drain = True, DRAIN
        self.told = TOLD  # seconds after which the group has said what is ours, if anything is
        self._thread = threading.Thread(target=self._run, name=f"kq-site-{site}", daemon=True)

    # --- asked by other threads, with `changed` held ---

    def start(self) -> None:
        """Begin, once."""
        if not self._thread.ident:
            self._thread.start()

    def owners_of(self, topic: str) -> list[Owner]:
        """The partitions of a topic that this process owns and may hand out from."""
        return [owner for (name, _), owner in self.owners.items() if name == topic and owner.saved]

    def settled(self, topic: str) -> bool:
        """Has the group said what is ours, and is some of it loaded, if there is any?"""
        return topic in self.joined and (bool(self.owners_of(topic)) or not self.loading(topic))

    def loading(self, topic: str) -> bool:
        """Are there partitions of ours whose state is still being read?"""
        unsaved = any(not owner.saved for (name, _), owner in self.owners.items() if name == topic)
        return unsaved or any(name == topic for name, _ in self._loading)

    def why_unsettled(self, topic: str) -> str:
        """What is in the way; '' if nothing is known to be."""
        said = [each.trouble for each in self._loading.values() if each.at[0] == topic and each.trouble]
        return (said or [self.trouble])[0] or ("the state could not be read in time" if self.loading(topic) else "")

    def load_again(self, broken: list[At]) -> None:
        """What could not be loaded is tried again, now that somebody has said what to do."""
        for at in broken:
            self.broken.pop(at, None)
            self._loading[at] = each = Loading(at, self.on_lost.get(at[0], "raise"))
            self._loader.load([each])

    def save(self, owners: Iterable[Owner]) -> None:
        """Return when what the ledgers say now is committed; a partition lost meanwhile is the caller's to notice."""
        wanted = [(owner, owner.version) for owner in owners]
        for owner, version in wanted:
            owner.wanted = max(owner.wanted, version)
        self._active = time.monotonic()
        self.wake.set()
        if not self.committed.wait_for(lambda: all(o.saved >= v or o.dropped for o, v in wanted), PATIENCE):
            raise Unreachable(
                address=self.cluster.bootstrap, why=self.trouble or f"no answer to a commit in {PATIENCE:g} s"
            )

    # --- the thread ---

    def _run(self) -> None:
        while not self._stop:
            try:
                self._subscribe()
                self._take_loaded()
                self.endings.run()
                self._commit()
                self._mind()
                self.fetch.aim()
                self.fetch.read()
            except Exception as error:  # never a silent end: those who wait are told why
                log.exception("the site's thread met something unforeseen")
                self.trouble = repr(error)
                for owner in self.owners.values():
                    owner.position = -1  # records may have been read and not kept: read them again
                time.sleep(0.05)
        self._finish()

    def _subscribe(self) -> None:
        now = time.monotonic()
        with self.changed:
            for topic in [t for t, at in self.claimed_at.items() if now - at > IDLE and not self._leases(t)]:
                del self.claimed_at[topic]
            wanted = set(self.claimed_at)
        if wanted == self._subscribed or now < self._next_try:
            return
        try:
            if self.consumer is None:
                self.consumer = self._consumer()
            if wanted:
                how = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
                self.consumer.subscribe(sorted(wanted), **how)
            else:
                self.consumer.unsubscribe()
            self._subscribed = wanted
            with self.changed:
                self.joined &= wanted
        except KafkaException as error:
            self.trouble, self._next_try = first(error).str(), now + 0.5

    def _leases(self, topic: str) -> bool:
        return any(bool(o.leases or o.ending) for (name, _), o in self.owners.items() if name == topic)

    def _consumer(self) -> Any:
        settings = {
            "group.id": self.site,
            "group.protocol": "consumer",
            "enable.partition.eof": True,  # its offset lies past a transaction's marks, which are no items
            "isolation.level": "read_committed",
            "socket.nagle.disable": True,  # a commit after a pause took 45 ms, and 1 without waiting for the last packet's answer
            "fetch.wait.max.ms": 100,  # a seek, and the word that the log ends here, wait for the last answer
            "fetch.queue.backoff.ms": 5,  # after a full buffer; by default a second without a record
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 16_384,
            "error_cb": self._complaint,
        }
        return Consumer(self.cluster.client(**settings))

    def _complaint(self, error: KafkaError) -> None:
        self.trouble = error.str()

    # --- rebalances: inside poll(), on this thread ---

    def _on_assign(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: assigned %s", self.site, ours)
        with self.changed:
            self.joined |= {topic for topic, _ in ours}  # told nothing, it may not have been decided yet
            self.trouble = ""
            for at in ours:  # assigned although we have it: the topic was deleted and made again
                self._drop(at, "its topic was made anew")
            self._load(ours)
        self._loader.wait(SOON)
        self._take_loaded()
        ready = {at: owner for at, owner in self.owners.items() if at in ours}
        for owner in ready.values():
            owner.position = owner.target()
        consumer.incremental_assign([TopicPartition(*at, ready[at].position if at in ready else 0) for at in ours])
        if ready:
            consumer.resume([TopicPartition(*at) for at in ready])  # a pause outlives the assignment
        self._hold([at for at in ours if at not in ready])

    def _hold(self, ours: list[At]) -> None:
        """Not to be read before their state is known."""
        if ours:
            self.consumer.pause([TopicPartition(*at) for at in ours])
            self.fetch.paused |= set(ours)

    def _load(self, ours: list[At]) -> None:
        new = [Loading(at, self.on_lost.get(at[0], "raise")) for at in ours]
        for each in new:
            self._loading[each.at] = each
        self._loader.load(new)

    def _on_revoke(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: revoked %s", self.site, ours)
        self._drain(ours)
        with self.changed:
            for at in ours:
                self._drop(at, "this partition went to another process")
            self.changed.notify_all()
        consumer.incremental_unassign(parts)

    def _on_lost(self, _consumer: Any, parts: list[TopicPartition]) -> None:
        """The group goes on without us: nothing may be committed any more, so there is nothing to drain."""
        ours = [(part.topic, part.partition) for part in parts]
        log.warning("site %s: lost %s", self.site, ours)
        with self.changed:
            for at in ours:
                self._drop(at, "this process was out of its group for too long, and the partition went to another")
            self.changed.notify_all()

    def _drop(self, at: At, why: str) -> None:
        """No longer ours: its leases are void, its ledger is never committed again."""
        if loading := self._loading.pop(at, None):
            loading.wanted = False
        self.broken.pop(at, None)
        self.fetch.paused.discard(at)
        if owner := self.owners.pop(at, None):
            owner.dropped = why
            self.committed.notify_all()

    def reload(self, owner: Owner, why: str) -> None:
        """What is committed is not known here: give it up and read it again; `changed` is held, this thread runs."""
        at = (owner.terms.queue, owner.partition)
        if self.owners.get(at) is owner:
            self._drop(at, why)
            self._load([at])
            self._hold([at])

    def _drain(self, ours: list[At]) -> None:
        """Let handlers end, then commit what they did; claims that nobody was given yet are taken back."""
        deadline = time.monotonic() + self.drain
        with self.changed:
            owners = [self.owners[at] for at in ours if at in self.owners]
            for owner in owners:
                owner.leaving = True
        while time.monotonic() < deadline:
            self.endings.run()
            self._commit()
            with self.changed:
                if not any(owner.busy_elsewhere(self.closing) for owner in owners):
                    break
            self.wake.wait(0.01)
            self.wake.clear()
        with self.changed:
            for owner in owners:
                if self.give_back:
                    owner.give_back(self.closing)
                owner.wanted = owner.version
        while any(o.saved < o.wanted for o in owners) and not self._commit() and time.monotonic() < deadline:
            time.sleep(0.02)

    # --- loading ---

    def _take_loaded(self) -> None:
        while not self._loader.done.empty():
            each = self._loader.done.get()
            with self.changed:
                if self._loading.get(each.at) is not each:
                    continue
                del self._loading[each.at]
                if each.error or each.ledger is None:
                    self.broken[each.at] = each.error or KqError("it could not be loaded")
                else:
                    each.ledger.epoch += 1
                    owner = self.owners[each.at] = Owner(self.terms[each.at[0]], each.at[1], each.ledger, each.low)
                    self._mark(each.at, owner)
                    owner.changed()
                    owner.wanted = owner.version  # the new epoch is committed before the first claim
                self.changed.notify_all()

    def _mark(self, at: At, owner: Owner) -> None:
        """Apply the queue's purge mark, once."""
        topic_id = owner.ledger.topic
        where = (self.site, at[0], at[1], topic_id)
        mark = self.notes.mark(*where)
        if mark > max(owner.purged, self.notes.mark(*where, kind="purged")):
            owner.purge(mark)
            owner.purged, owner.purged_version = mark, owner.version
            owner.wanted = owner.version

    # --- commits ---

    def _commit(self) -> bool:
        """Commit every ledger that changed, if somebody waits for one of them or a riding ack has waited long enough."""
        now = time.monotonic()
        with self.changed:
            dirty = [(at, owner, owner.version) for at, owner in self.owners.items() if owner.version > owner.saved]
            due = any(o.wanted > o.saved or now - (o.dirty_since or now) >= RIDE for _, o, _ in dirty)
            if not due or now < self._next_try:
                return not due
            parts = [TopicPartition(*at, o.ledger.floor, metadata=o.ledger.text()) for at, o, _ in dirty]
        try:
            said = self.consumer.commit(offsets=parts, asynchronous=False)
            errors = {(part.topic, part.partition): part.error for part in said if part.error is not None}
        except (
            KafkaException
        ) as error:  # whether it was written is not known; the next one carries the whole state again
            errors = {at: first(error) for at, _, _ in dirty}
        with self.changed:
            new = any(not owner.saved for _, owner, _ in dirty)
            for at, owner, version in dirty:
                self._committed(at, owner, version, errors.get(at), now)
            self.committed.notify_all()
            if new or errors:
                self.changed.notify_all()
        if errors:
            self._next_try = time.monotonic() + 0.02
        return not errors

    def _committed(self, at: At, owner: Owner, version: int, error: KafkaError | None, now: float) -> None:
        if error is not None:
            self.trouble = error.str()
            if error.code() in GIVE_UP and self.owners.get(at) is owner:
                self._drop(at, self.trouble)
                self.broken[at] = NotAllowed(f"The state of '{at[0]}' could not be committed: {self.trouble}")
            return
        owner.saved = version
        owner.saved_at = now
        owner.dirty_since = None if owner.version == version else now
        self.trouble = ""
        if owner.purged and owner.purged_version <= version:
            note = ((self.site, at[0], "purged", at[1]), {"topic": owner.ledger.topic, "offset": owner.purged})
            self.notes.post([note], self.sender)
            owner.purged_version = 1 << 62  # said once

    # --- now and then ---

    def _mind(self) -> None:
        now = time.monotonic()
        if now - self._minded < 0.2:
            return
        self._minded = now
        with self.changed:
            for at, owner in self.owners.items():
                self._mark(at, owner)
                if now - owner.saved_at > LONG:
                    owner.changed()
                    owner.wanted = owner.version

    # --- the end ---

    def stop(self, seconds: float, give_back: bool) -> bool:
        """Drain, commit, leave the group; False: it did not come to its end in time (the broker is down) and is left behind."""
        with self.changed:
            self.closing, self.give_back = threading.get_ident(), give_back
            self._stop = True
            self.wake.set()
            self.changed.notify_all()
        if self._thread.ident:
            self._thread.join(seconds)
        self._loader.close()
        return not self._thread.is_alive()

    def _finish(self) -> None:
        try:
            self._drain(list(self.owners))
            with self.changed:
                for at in [*self.owners, *self._loading]:
                    self._drop(at, "its site is closed")
                self.changed.notify_all()
            if self.consumer is not None:
                self.consumer.close()
        except Exception:
            log.exception("leaving the group")
        finally:
            self.endings.close()
