"""Which partitions this process has: the group gives them, their states are loaded, and the group takes them away.

In:  what the group says, inside poll(), on the member's thread; what the loader has read. Out: owners; claims look at them.
An owner is dropped inside the callback, on the thread that commits: so nothing is committed for a partition that was lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from kqlib.broker.kafka import Kafka
from kqlib.errors import KqError
from kqlib.queue import state
from kqlib.queue.loader import ANEW, At, Loader, Loading
from kqlib.queue.notes import Notes
from kqlib.queue.owner import Owner, Terms

if TYPE_CHECKING:
    from kqlib.queue.commits import Commits
    from kqlib.queue.ending import Endings
    from kqlib.queue.fetch import Fetch

log = logging.getLogger("kqlib.queue")

SOON = 0.5  # seconds that an assignment waits for its states: then reading begins where it should; a later seek costs 1 s more
TOLD = 6.5  # a heartbeat (5 s), and the second within which the group decides (group.consumer.assignment.interval.ms)
DRAIN = 3.0  # seconds for handlers to end before a partition is given up
ASKED = 0.3  # seconds for an answer about a topic


class Partitions:
    """What is ours of each topic."""

    fetch: Fetch
    commits: Commits
    endings: Endings

    def __init__(self, cluster: Kafka, site: str, notes: Notes, loader: Callable[[Partitions], Loader]) -> None:
        self.cluster, self.site, self.notes = cluster, site, notes
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)  # the site's one lock; items and partitions come and go
        self.committed = threading.Condition(self._lock)  # the same lock: commits
        self.wake = threading.Event()
        self.consumer: Any = None
        self.owners: dict[At, Owner] = {}
        self.terms: dict[str, Terms] = {}
        self.on_lost: dict[str, str] = {}
        self.joined: set[str] = set()  # topics of which the group has said what is ours
        self.broken: dict[At, KqError] = {}
        self.ended: dict[At, str] = {}  # the ids of topics that were deleted while a partition of theirs was ours
        self.trouble = ""  # what Kafka last complained about
        self.closing: int | None = None  # the thread that closes
        self.give_back, self.drain = True, DRAIN
        self.told = TOLD  # seconds after which the group has said what is ours, if anything is
        self._loading: dict[At, Loading] = {}
        self._loader = loader(self)

    # --- asked by other threads, with `changed` held ---

    def owners_of(self, topic: str) -> list[Owner]:
        """The partitions of a topic that this process owns and may hand out from."""
        return [owner for (name, _), owner in self.owners.items() if name == topic and owner.saved]

    def settled(self, topic: str) -> bool:
        """Has the group said what is ours, and is some of it loaded, if there is any?"""
        return topic in self.joined and (bool(self.owners_of(topic)) or self.loading(topic) is None)

    def loading(self, topic: str) -> float | None:
        """Since when the state of a partition of ours is being read; None: all of them are known."""
        unsaved = [owner.saved_at for (name, _), owner in self.owners.items() if name == topic and not owner.saved]
        return min(
            [*unsaved, *(each.since for (name, _), each in self._loading.items() if name == topic)], default=None
        )

    def why_unsettled(self, topic: str) -> str:
        """What is in the way; '' if nothing is known to be."""
        said = [each.trouble for each in self._loading.values() if each.at[0] == topic and each.trouble]
        return (said or [self.trouble])[0] or (
            "" if self.loading(topic) is None else "the state could not be read in time"
        )

    def load_again(self, broken: list[At]) -> None:
        """What could not be loaded is tried again, now that somebody has said what to do."""
        for at in broken:
            self.broken.pop(at, None)
        self._load(broken)

    # --- rebalances ---

    def _on_assign(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: assigned %s", self.site, ours)
        with self.changed:
            self.joined |= {topic for topic, _ in ours}  # told nothing, it may not have been decided yet
            self.trouble = ""
            for at in ours:  # of an assignment before this one nothing counts
                self._drop(at, ANEW)
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

    def _load(self, ours: list[At], was: str = "") -> None:
        lost = self.on_lost
        new = [Loading(at, lost.get(at[0], "raise"), was, self.ended.pop(at, ""), self.told) for at in ours]
        for each in new:
            self._loading[each.at] = each
        self._loader.load(new)

    def _on_revoke(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: revoked %s", self.site, ours)
        self._end_of_topics(ours)
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
            self._load([at], owner.ledger.topic)
            self._hold([at])

    def _end_of_topics(self, ours: list[At]) -> None:
        """What is taken away because its topic is gone: nothing of that can be stored any more, and nobody else has it."""
        with self.changed:
            had = {at: owner.ledger.topic for at, owner in self.owners.items() if at in ours}
            had |= {at: each.was for at, each in self._loading.items() if at in ours and each.was}
        there = self.ids_of({topic for topic, _ in had})
        with self.changed:
            for at, topic_id in had.items():
                if there is not None and there.get(at[0]) != topic_id:
                    self.ended[at] = topic_id
                    self._drop(at, ANEW)

    def ids_of(self, topics: Iterable[str]) -> dict[str, str] | None:
        """The ids of those that are there; None: nobody says so in time, for this thread has other things to do."""
        with suppress(KqError):
            return {name: said[0] for name, said in state.topic_ids(self.cluster, sorted(topics), ASKED).items()}
        return None

    def _drain(self, ours: list[At]) -> None:
        """Let handlers end, then commit what they did; claims that nobody was given yet are taken back."""
        deadline = time.monotonic() + self.drain
        with self.changed:
            owners = [self.owners[at] for at in ours if at in self.owners]
            for owner in owners:
                owner.leaving = True
        while time.monotonic() < deadline:
            self.endings.run()
            self.commits.run()
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
        while any(o.saved < o.wanted for o in owners) and not self.commits.run() and time.monotonic() < deadline:
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
                    mark = self._mark_for(each.at, each.ledger.topic)
                    owner = Owner(self.terms[each.at[0]], each.at[1], each.ledger, each.low, mark)
                    self.owners[each.at] = owner
                    self._mark(each.at, owner)
                    owner.changed()
                    owner.wanted = owner.version  # the new epoch is committed before the first claim
                self.changed.notify_all()

    def _mark(self, at: At, owner: Owner) -> None:
        """Apply the queue's purge mark, once."""
        mark = self._mark_for(at, owner.ledger.topic)
        if mark > owner.purged:
            owner.purge(mark)
            owner.purged, owner.purged_version = mark, owner.version
            owner.wanted = owner.version

    def _mark_for(self, at: At, topic_id: str) -> int:
        """The purge mark that is still to be applied; 0: none."""
        where = (self.site, at[0], at[1], topic_id)
        mark = self.notes.mark(*where)
        return mark if mark > self.notes.mark(*where, kind="purged") else 0
