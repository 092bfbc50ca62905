"""The partitions that the group has given to this process, behind the site's one lock.

In:  what the group assigns, what the loader read. Out: partitions to claim from, those that are being loaded, those that failed.
`Session` extends this, and its parts get the session under this type.
Verbs wait on `changed` and `committed`. The session's thread waits for `wake`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from kqlib.errors import KqError
from kqlib.kafka.cluster import Kafka
from kqlib.queue import state
from kqlib.queue.answers import RIGHTS, fatal
from kqlib.queue.incidents import Incident, Stored
from kqlib.queue.item import Place
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import Partition
from kqlib.queue.terms import Terms

RECREATED = "its topic was deleted, and one of the same name is another queue"
# Seconds: a heartbeat (5 s), and the second within which the group decides (group.consumer.assignment.interval.ms).
DECIDED_AFTER = 6.5
TOPICS_WITHIN = 0.3  # seconds for an answer about topics


@dataclass(eq=False)
class Loading:
    """A partition whose state is being read. A newer assignment of the same one is another object."""

    at: Place
    on_lost: str
    # The topic's id, if the state is read again under the same assignment. With another id it is not ours.
    was: str = ""
    ended: str = ""  # the id of a topic that was deleted while the partition was ours: no other process has it
    decided_after: float = 0.0  # seconds; then other processes know that their topic was deleted
    latest: int = 0  # where its log ended when on_lost="latest" was chosen
    last: Stored | None = None  # the last state that this process committed
    incidents: list[Incident] = field(default_factory=list)
    gone: int = 0  # items that had left the log, as the incidents say
    ledger: Ledger | None = None
    low: int = 0  # where the log begins: what is open below is lost
    error: KqError | None = None
    trouble: str = ""  # why it takes so long
    since: float = field(default_factory=time.monotonic)
    cancelled: bool = False

    @property
    def over(self) -> bool:
        """Is it loaded, or has it failed?"""
        return self.ledger is not None or self.error is not None


def condition(lock: Any) -> threading.Condition:
    """A condition whose `with` block uses the lock's own methods, which are in C. In Python's own, Ctrl-C can leave the lock held."""
    own = {"__enter__": lock.__enter__, "__exit__": lock.__exit__}
    return type("Condition", (threading.Condition,), own)(lock)


class Assigned:
    """The partitions of this process, by topic. Its methods are called with `changed` held."""

    def __init__(self, cluster: Kafka, site: str) -> None:
        self.cluster = cluster
        self.site = site
        self._lock = threading.RLock()
        self.changed = condition(self._lock)  # items and partitions come and go
        self.committed = threading.Condition(self._lock)  # the same lock: commits
        self.wake = threading.Event()
        self.consumer: Any = None
        self.group: Any = None  # the group's metadata while our partitions were ours; None: to be asked for
        self.partitions: dict[Place, Partition] = {}
        self.paused: set[Place] = set()
        self.under_way: set[Partition] = set()  # whose states a commit carries now
        self.terms: dict[str, Terms] = {}
        self.on_lost: dict[str, str] = {}
        self.latest: dict[Place, int] = {}  # where each log ended when on_lost="latest" was chosen
        self.lost: Counter[str] = Counter()  # items that on_lost="latest" skipped in partitions that were ours
        self.last: dict[Place, Stored] = {}  # the last committed states of partitions that are not ours any more
        self.subscribed: set[str] = set()
        self.joined: set[str] = set()  # topics whose assignment is known
        self.begun: dict[str, float] = {}  # topic -> when its first claim began to wait for what the group says
        self.hungry: dict[str, int] = defaultdict(int)  # topic -> claims that wait
        self.broken: dict[Place, KqError] = {}  # why these could not be loaded, or stored
        self.ended: dict[Place, str] = {}  # the ids of topics that were deleted while a partition of theirs was ours
        self.trouble = ""  # what Kafka last complained about
        self.complaints = 0  # how often that may have been about a right
        self.decided_after = DECIDED_AFTER  # seconds after which the group has decided what is ours
        self.active = 0.0  # when something last moved
        self.next_try = 0.0  # of a commit or a subscription, after one that failed
        self.begin_loading: Callable[[list[Loading]], None]  # of the session's loader
        self.loadings: dict[Place, Loading] = {}
        self.reloaded: list[Place] = []  # not to be read before their states are known again

    def complain(self, error: KafkaError) -> None:
        """Keep what Kafka complains about, for the verbs. If it is about a right, claims ask which one is missing. From any thread."""
        self.trouble = error.str()
        # The error that ends a consumer has a code of its own, and names the right in its text only.
        self.complaints += error.code() in RIGHTS or (fatal(error) and "authorization failed" in error.str())

    # --- what is known ---

    def partitions_of(self, topic: str) -> list[Partition]:
        """The partitions of a topic that this process owns and may hand out from."""
        return [
            partition
            for (name, _), partition in self.partitions.items()
            if name == topic and partition.saved and not partition.dropped
        ]

    def settled(self, topic: str) -> bool:
        """Is the assignment known, and is some of it loaded, if there is any?"""
        return topic in self.joined and (bool(self.partitions_of(topic)) or self.loading(topic) is None)

    def loading(self, topic: str) -> float | None:
        """Since when the state of a partition of ours is being read; None: all of them are known."""
        ours = [partition for (name, _), partition in self.partitions.items() if name == topic]
        unsaved = [partition.saved_at for partition in ours if not partition.saved or partition.dropped]
        return min(
            [*unsaved, *(each.since for (name, _), each in self.loadings.items() if name == topic)], default=None
        )

    def states_saved(self, topic: str) -> bool:
        """Is there a partition of ours, and are the states of all of them committed?"""
        return bool(self.partitions_of(topic)) and self.loading(topic) is None

    def has_leases(self, topic: str) -> bool:
        """Is an item of ours handed out?"""
        return any(bool(p.leases or p.ending) for (name, _), p in self.partitions.items() if name == topic)

    def why_unsettled(self, topic: str) -> str:
        """Why the assignment or a state is not known yet; '' if there is no known reason."""
        troubles = [each.trouble for each in self.loadings.values() if each.at[0] == topic and each.trouble]
        return (troubles or [self.trouble])[0] or (
            "" if self.loading(topic) is None else "the state could not be read in time"
        )

    def mine(self) -> list[Place]:
        """All that the group has given to this process."""
        return [*self.partitions, *self.loadings, *self.broken]

    def ids_of(self, topics: Iterable[str]) -> dict[str, str] | None:
        """The ids of those topics that exist; None: no answer in time. Asked without the lock."""
        with suppress(KqError):
            found = state.topic_ids(self.cluster, sorted(topics), TOPICS_WITHIN)
            return {name: topic_id for name, (topic_id, _) in found.items()}
        return None

    # --- loading and dropping ---

    def load(self, ours: Iterable[Place], was: str = "") -> None:
        """Begin to read the states of these."""
        new = list[Loading]()
        for at in ours:
            chosen, ended, latest = self.on_lost.get(at[0], "raise"), self.ended.pop(at, ""), self.latest.get(at, 0)
            new.append(Loading(at, chosen, was, ended, self.decided_after, latest, self.last.get(at)))
        self.loadings |= {each.at: each for each in new}
        self.begin_loading(new)

    def load_again(self, broken: list[Place]) -> None:
        """Try again what could not be loaded: a right was given, or on_lost was chosen."""
        for at in broken:
            self.broken.pop(at, None)
        if broken:
            self.load(broken)

    def take_over(self, loading: Loading, mark: int) -> Partition | None:
        """Own this partition from now on. None: its state could not be read, or it was dropped meanwhile.

        mark: up to where it was purged.
        """
        at, ledger = loading.at, loading.ledger
        if self.loadings.get(at) is not loading:
            return None
        del self.loadings[at]
        if loading.error or ledger is None:
            self.broken[at] = loading.error or KqError("it could not be loaded")
            return None
        ledger.epoch += 1
        partition = self.partitions[at] = Partition(self.terms[at[0]], at[1], ledger, loading.low, mark)
        partition.losses.take_over(loading.incidents, loading.gone)
        return partition

    def drop(self, at: Place, why: str) -> None:
        """This partition is not ours any more: its leases are void, its ledger is never committed again."""
        if loading := self.loadings.pop(at, None):
            loading.cancelled = True
        self.broken.pop(at, None)
        self.paused.discard(at)
        if partition := self.partitions.pop(at, None):
            partition.dropped = why
            if partition in self.under_way or partition.frozen:  # a commit or a transaction may still store it
                partition.unsure = partition.version
            self.lost[at[0]] += partition.losses.chosen if partition.saved else 0
            if partition.committed:
                self.last[at] = partition.committed
            self.committed.notify_all()

    def reload(self, partition: Partition, why: str) -> None:
        """The committed state is not known here: drop the partition, and read it again."""
        at = partition.at
        if self.partitions.get(at) is partition:
            self.drop(at, why)
            self.load([at], partition.ledger.topic)
            self.reloaded.append(at)

    def drop_deleted(self, ours: Iterable[Place]) -> None:
        """Drop those whose topic was deleted: their states cannot be stored, and no other process has them. Takes the lock itself."""
        with self.changed:
            had = {at: self.partitions[at].ledger.topic for at in ours if at in self.partitions}
            had |= {at: self.loadings[at].was for at in ours if at in self.loadings and self.loadings[at].was}
        there = self.ids_of({topic for topic, _ in had})
        with self.changed:
            for at, topic_id in had.items():
                if there is not None and there.get(at[0]) != topic_id:
                    self.ended[at] = topic_id
                    self.drop(at, RECREATED)
