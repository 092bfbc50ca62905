"""Which partitions this process has: the group gives them, their states are loaded, and the group takes them away.

In:  what the group says, inside poll(), on the member's thread; what the loader has read. Out: owners; claims look at them.
An owner is dropped inside the callback, on the thread that commits: so nothing is committed for a partition that was lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition

from kqlib.errors import KqError
from kqlib.kafka.cluster import Kafka
from kqlib.queue import incidents, state
from kqlib.queue.incidents import Incident, Stored
from kqlib.queue.loader import ANEW, At, Loader, Loading
from kqlib.queue.notes import Key, Notes
from kqlib.queue.partition import Partition
from kqlib.queue.said import RIGHTS, fatal
from kqlib.queue.sender import Sender
from kqlib.queue.terms import Terms

if TYPE_CHECKING:
    from kqlib.queue.commits import Commits
    from kqlib.queue.ending import Endings
    from kqlib.queue.fetch import Fetch

log = logging.getLogger("kqlib.queue")

SOON = 0.5  # seconds that an assignment waits for its states: then reading begins where it should; a later seek costs 1 s more
TOLD = 6.5  # a heartbeat (5 s), and the second within which the group decides (group.consumer.assignment.interval.ms)
DRAIN = 3.0  # seconds for handlers to end before a partition is given up
LAST = 0.5  # seconds after that for what is left to be committed
ASKED = 0.3  # seconds for an answer about a topic
NOTED = (
    60.0  # seconds after which a state that changed is noted again, for another program's commit to be compared with
)


def condition(lock: Any) -> threading.Condition:
    """A condition that `with` leaves by the lock's own method, in C. Ctrl-C at the first line of Python's leaves the lock held."""
    own = {"__enter__": lock.__enter__, "__exit__": lock.__exit__}
    return type("Condition", (threading.Condition,), own)(lock)


class Partitions:
    """What is ours of each topic."""

    begun: dict[str, float]
    fetch: Fetch
    commits: Commits
    endings: Endings
    sender: Sender

    def __init__(self, cluster: Kafka, site: str, notes: Notes, loader: Callable[[Partitions], Loader]) -> None:
        self.cluster, self.site, self.notes = cluster, site, notes
        self._lock = threading.RLock()
        self.changed = condition(self._lock)  # the site's one lock; items and partitions come and go
        self.committed = threading.Condition(self._lock)  # the same lock: commits
        self.wake = threading.Event()
        self.consumer: Any = None
        self.group: Any = None  # the group's metadata while our partitions were ours; None: to be asked for
        self.owners: dict[At, Partition] = {}
        self.terms: dict[str, Terms] = {}
        self.on_lost: dict[str, str] = {}
        self.latest: dict[At, int] = {}  # where each log ended when on_lost="latest" was chosen
        self.lost: Counter[str] = (
            Counter()
        )  # items that on_lost="latest" skipped in partitions which are not here any more
        self.last: dict[At, Stored] = {}  # the last state that was committed of partitions which were here
        self.joined: set[str] = set()  # topics of which the group has said what is ours
        self.broken: dict[At, KqError] = {}
        self.ended: dict[At, str] = {}  # the ids of topics that were deleted while a partition of theirs was ours
        self.trouble = ""  # what Kafka last complained about
        self.complaints = 0  # how often that may have been about a right
        self.left = ""  # why the last consumer was left, until the group gives something to its successor
        self.closing: int | None = None  # the thread that closes
        self.give_back, self.drain = True, DRAIN
        self.drained_by = float("inf")  # by when every drain is over: the site closes
        self.told = TOLD  # seconds after which the group has said what is ours, if anything is
        self._loading: dict[At, Loading] = {}
        self._reloaded: list[At] = []  # not to be read before their states are known again
        self._loader = loader(self)

    def complain(self, error: KafkaError) -> None:
        """Kafka complains: kept for whoever waits. If it is about a right, claims ask which one is missing. From any thread."""
        self.trouble = error.str()
        # The error that ends a consumer has a code of its own, and names the right in its text only. One that is not about a right
        # must not lead to a question: a group's coordinator that dies meanwhile ends the process (librdkafka 4605, 5397).
        self.complaints += error.code() in RIGHTS or (fatal(error) and "authorization failed" in error.str())

    # --- asked by other threads, with `changed` held ---

    def owners_of(self, topic: str) -> list[Partition]:
        """The partitions of a topic that this process owns and may hand out from."""
        return [
            owner for (name, _), owner in self.owners.items() if name == topic and owner.saved and not owner.dropped
        ]

    def settled(self, topic: str) -> bool:
        """Has the group said what is ours, and is some of it loaded, if there is any?"""
        return topic in self.joined and (bool(self.owners_of(topic)) or self.loading(topic) is None)

    def loading(self, topic: str) -> float | None:
        """Since when the state of a partition of ours is being read; None: all of them are known."""
        ours = [owner for (name, _), owner in self.owners.items() if name == topic]
        unsaved = [owner.saved_at for owner in ours if not owner.saved or owner.dropped]
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
        if broken:
            self._load(broken)

    # --- rebalances ---

    def _on_assign(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: assigned %s", self.site, ours)
        with self.changed:
            self.joined |= {topic for topic, _ in ours}  # told nothing, it may not have been decided yet
            self.trouble, self.left, self.group = "", "", None
            for at in ours:  # of an assignment before this one nothing counts
                self._drop(at, ANEW)
            self._load(ours)
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
        """Not to be read before their state is known."""
        if ours:
            self.consumer.pause([TopicPartition(*at) for at in ours])
            self.fetch.paused |= set(ours)

    def _load(self, ours: list[At], was: str = "") -> None:
        lost = self.on_lost
        new = [
            Loading(
                at,
                lost.get(at[0], "raise"),
                was,
                self.ended.pop(at, ""),
                self.told,
                self.latest.get(at, 0),
                self.last.get(at),
            )
            for at in ours
        ]
        for each in new:
            self._loading[each.at] = each
        self._loader.load(new)

    def _on_revoke(self, consumer: Any, parts: list[TopicPartition]) -> None:
        ours = [(part.topic, part.partition) for part in parts]
        log.info("site %s: revoked %s", self.site, ours)
        self._end_of_topics(ours)
        self._store(self._let_end(ours))
        with self.changed:
            self.note_all(ours)
            for at in ours:
                self._drop(at, "this partition went to another process")
            self.changed.notify_all()
        consumer.incremental_unassign(parts)

    def _on_lost(self, _consumer: Any, parts: list[TopicPartition]) -> None:
        """The group goes on without us: nothing may be committed any more, so there is nothing to drain."""
        ours = [(part.topic, part.partition) for part in parts]
        log.warning("site %s: lost %s", self.site, ours)
        with self.changed:
            self.group = None
            for at in ours:
                self._drop(at, "this process was out of its group for too long, and the partition went to another")
            self.joined, self.begun = set(), {}  # what is ours is not known before the group has said it again
            self.changed.notify_all()

    def _drop(self, at: At, why: str) -> None:
        """No longer ours: its leases are void, its ledger is never committed again."""
        if loading := self._loading.pop(at, None):
            loading.wanted = False
        self.broken.pop(at, None)
        self.fetch.paused.discard(at)
        if owner := self.owners.pop(at, None):
            owner.dropped = why
            if owner in self.commits.under_way:
                owner.unsure = owner.version
            self.lost[at[0]] += owner.chosen if owner.saved else 0
            if owner.committed:
                self.last[at] = owner.committed
            self.committed.notify_all()

    def reload(self, owner: Partition, why: str) -> None:
        """What is committed is not known here: give it up and read it again; `changed` is held."""
        at = (owner.terms.queue, owner.partition)
        if self.owners.get(at) is owner:
            self._drop(at, why)
            self._load([at], owner.ledger.topic)
            self._reloaded.append(at)

    def _reread(self) -> None:
        """What is not known any more is read again. Held on this thread: elsewhere a pause would wait for the poll that runs."""
        for owner in [owner for owner in list(self.owners.values()) if owner.dropped]:
            with self.changed:
                self.reload(owner, owner.dropped or "")
        if self._reloaded:
            with self.changed:
                ours, self._reloaded = [at for at in self._reloaded if at in self._loading], []
            self._hold(ours)

    def _introduce(self) -> None:
        """Who we are in the group, for transactions: known while what is ours is ours, so that it is refused afterwards."""
        if self.group is None and self.joined:
            group = self.consumer.consumer_group_metadata()
            with self.changed:
                self.group = group
                self.committed.notify_all()

    def _end_of_topics(self, ours: list[At]) -> None:
        """What is taken away because its topic is gone: nothing of that can be stored any more, and nobody else has it."""
        with self.changed:
            had = {at: self.owners[at].ledger.topic for at in ours if at in self.owners}
            had |= {at: self._loading[at].was for at in ours if at in self._loading and self._loading[at].was}
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

    def _let_end(self, ours: list[At]) -> list[Partition]:
        """Give handlers and transactions the time of a drain, or what is left of it when the site closes."""
        deadline = time.monotonic() + self.drain
        with self.changed:
            owners = [self.owners[at] for at in ours if at in self.owners]
            for owner in owners:
                owner.leaving = True
        while time.monotonic() < min(deadline, self.drained_by):
            self._introduce()
            self.commits.run()
            with self.changed:
                if not any(owner.busy_elsewhere(self.closing) for owner in owners):
                    return owners
            self.wake.wait(0.01)
            self.wake.clear()
        left = [id_ for owner in owners for id_ in owner.at_work(self.closing)]
        if left:
            some = ", ".join(left[:5]) + ", …" * (len(left) > 5)
            log.warning("site %s: handlers that did not end in time are left behind with %s", self.site, some)
        return owners

    def _store(self, owners: list[Partition]) -> None:
        """What was begun by nobody is given back; then what there is to commit is committed, if Kafka answers."""
        deadline = time.monotonic() + LAST
        with self.changed:
            for owner in owners:
                if self.give_back:
                    owner.give_back(self.closing)
                owner.wanted = owner.version
        while any(o.saved < o.wanted and not o.dropped for o in owners):
            if (self.commits.run() and not any(o.frozen for o in owners)) or time.monotonic() > deadline:
                return
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
                    owner = Partition(self.terms[each.at[0]], each.at[1], each.ledger, each.low, mark)
                    owner.incidents, owner.chosen, owner.lost = each.incidents, max(0, owner.lost - each.gone), 0
                    self.owners[each.at] = owner
                    self._mark(each.at, owner)
                    owner.changed()
                    owner.wanted = owner.version  # the new epoch is committed before the first claim
                self.changed.notify_all()

    def apply_marks(self) -> None:
        """What somebody has purged is not there any more, in this process too."""
        with self.changed:
            for at, owner in self.owners.items():
                self._mark(at, owner)
            self.changed.notify_all()

    def _mark(self, at: At, owner: Partition) -> None:
        """Apply the queue's purge mark and its rewind, once."""
        mark = self._mark_for(at, owner.ledger.topic)
        if mark > owner.purged and not owner.dropped:
            owner.purge(mark)
            owner.purged, owner.purged_version = mark, owner.version
            owner.wanted = owner.version
        rewind = self.notes.mark(self.site, *at, owner.ledger.topic, kind="rewind")
        if rewind and owner.incidents and not owner.dropped:
            before = owner.incidents
            owner.rewind(rewind, self.notes.get(self.site, at[0], "rewind", at[1]).get("back", True))
            owner.unnoted = owner.unnoted or owner.incidents != before

    def note(self, at: At, owner: Partition, last: bool = False) -> None:
        """Note what must be known beside the ledger, when it is committed. last: the partition is being given up."""
        site, notes, now = self.site, list[tuple[Key, Any]](), time.monotonic()
        if owner.lost:
            lost = Incident("removed", *owner.lost_between, owner.lost, int(time.time() * 1000))
            after = self.notes.mark(site, *at, owner.ledger.topic, kind="rewind")
            owner.lost = 0
            owner.set_incidents(incidents.together(owner.incidents, [lost], after))
        if owner.unnoted and owner.incidents_noted >= owner.incidents_version and owner.noting.wait(0):
            owner.unnoted = None in owner.noting.ids
            owner.incidents_noted *= not owner.unnoted  # its producer was replaced: once more
            self.changed.notify_all()
        if owner.incidents_noted < owner.incidents_version <= owner.saved:
            notes.append(((site, at[0], "incidents", at[1]), incidents.note(owner.ledger.topic, owner.incidents)))
            owner.incidents_noted = owner.incidents_version
        if owner.committed and owner.committed != owner.last_noted and (last or now - owner.last_noted_at > NOTED):
            floor, text = owner.last_noted = owner.committed
            owner.last_noted_at = now
            notes.append(((site, at[0], "last", at[1]), {"floor": floor, "text": text}))
        if notes:
            owner.noting = self.notes.post(notes, self.sender, partial(self._unnoted, owner))

    def _unnoted(self, owner: Partition, error: KafkaError) -> None:
        """These notes could not be written: they go with a later commit."""
        owner.incidents_noted, owner.last_noted = 0, None
        self.complain(error)

    def note_all(self, ours: Iterable[At]) -> None:
        """The same for partitions that are being given up in good order; `changed` is held."""
        for at in ours:
            if (owner := self.owners.get(at)) and not owner.dropped:
                self.note(at, owner, last=True)

    def _mark_for(self, at: At, topic_id: str) -> int:
        """The purge mark that is still to be applied; 0: none."""
        where = (self.site, at[0], at[1], topic_id)
        mark = self.notes.mark(*where)
        return mark if mark > self.notes.mark(*where, kind="purged") else 0
