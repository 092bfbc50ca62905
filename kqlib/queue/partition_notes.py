"""What kq.queues says of the partitions of this process: purge marks and rewinds to apply, incidents and states to note.

In:  the session's partitions, the notes. Out: partitions that do what was noted; notes that go with their commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from confluent_kafka import KafkaError

from kqlib.queue import incidents
from kqlib.queue.assigned import Assigned
from kqlib.queue.incidents import Stored
from kqlib.queue.item import Place
from kqlib.queue.losses import Losses
from kqlib.queue.notes import Key, Notes
from kqlib.queue.partition import Partition
from kqlib.queue.sender import Sender, Sent

NOTE_EVERY = 60.0  # seconds between two notes of a state: another program's commit is compared with the last one
NEVER = 1 << 62  # a version of the ledger that no commit reaches


@dataclass(eq=False)
class Noted:
    """What this process has noted of one partition."""

    state: bool = False  # that this site has state here
    purged: int = 0  # the purge mark that was applied
    purged_version: int = 0  # of the ledger, since when
    incidents_version: int = 0  # of the ledger, whose incidents are noted
    last: Stored | None = None
    last_at: float = float("-inf")
    sent: Sent | None = None  # how the last notes fare


class PartitionNotes:
    """The notes of the partitions of one session. Its methods are called with `changed` held."""

    def __init__(self, assigned: Assigned, notes: Notes, sender: Sender) -> None:
        self.assigned = assigned
        self.notes = notes
        self.sender = sender
        self._noted: WeakKeyDictionary[Partition, Noted] = WeakKeyDictionary()

    # --- what others have noted ---

    def purge_mark(self, at: Place, topic_id: str) -> int:
        """The purge mark that is still to be applied; 0: none."""
        return self.notes.purge_mark(self.assigned.site, *at, topic_id)

    def apply(self, partition: Partition) -> None:
        """Apply the queue's purge mark and its rewind, once."""
        if partition.dropped:
            return
        noted, mark = self._of(partition), self.purge_mark(partition.at, partition.ledger.topic)
        if mark > noted.purged:
            partition.purge(mark)
            noted.purged = mark
            noted.purged_version = partition.version
            partition.awaited = partition.version
        upto = self._rewound(partition)
        losses = partition.losses
        if upto and losses.incidents:
            back = self.notes.get(*self._key(partition, "rewind")).get("back", True)
            if partition.rewind(upto, back):
                losses.unnoted = True

    def _rewound(self, partition: Partition) -> int:
        """Up to what time incidents are put back or forgotten; 0: no rewind was asked for."""
        return self.notes.mark(self.assigned.site, *partition.at, partition.ledger.topic, kind="rewind")

    def _of(self, partition: Partition) -> Noted:
        if (noted := self._noted.get(partition)) is None:  # asked at each commit: setdefault would make one each time
            noted = self._noted[partition] = Noted()
        return noted

    # --- what we note ---

    def committed(self, partition: Partition) -> None:
        """A state was committed: note once that there is one, and that a purge mark was applied; and all the rest."""
        noted, topic_id = self._of(partition), partition.ledger.topic
        new = list[tuple[Key, Any]]()
        if not noted.state:
            noted.state = True
            key = self._key(partition, "state")
            if self.notes.get(*key) != topic_id:  # if it is missing later, it is lost
                new.append((key, topic_id))
        if noted.purged and noted.purged_version <= partition.saved:
            noted.purged_version = NEVER  # it is noted once
            new.append((self._key(partition, "purged"), {"topic": topic_id, "offset": noted.purged}))
        self.write(partition, new)

    def write(self, partition: Partition, more: Iterable[tuple[Key, Any]] = (), last: bool = False) -> None:
        """Note incidents and the last state, when they are committed. last: the partition is being given up."""
        noted, now = self._of(partition), time.monotonic()
        losses, new = partition.losses, list[tuple[Key, Any]]()
        if losses.items and losses.become_incident(self._rewound(partition)):
            partition.note_losses()
        if losses.unnoted:
            self._see_rewind_noted(losses, noted)
        if noted.incidents_version < losses.version <= partition.saved:
            note = incidents.note(partition.ledger.topic, losses.incidents)
            new.append((self._key(partition, "incidents"), note))
            noted.incidents_version = losses.version
        if partition.committed and partition.committed != noted.last and (last or now - noted.last_at > NOTE_EVERY):
            floor, text = noted.last = partition.committed
            noted.last_at = now
            new.append((self._key(partition, "last"), {"floor": floor, "text": text}))
        new += more
        if new:
            noted.sent = self.notes.post(new, self.sender, partial(self._unwritten, noted))

    def _see_rewind_noted(self, losses: Losses, noted: Noted) -> None:
        """Items that a rewind put back may go out once its note is stored. If its producer was replaced, note it once more."""
        if noted.incidents_version >= losses.version and noted.sent and noted.sent.wait(0):
            losses.unnoted = None in noted.sent.ids
            if losses.unnoted:
                noted.incidents_version = 0
            self.assigned.changed.notify_all()

    def _key(self, partition: Partition, kind: str) -> Key:
        queue, number = partition.at
        return self.assigned.site, queue, kind, number

    def write_last(self, ours: Iterable[Place]) -> None:
        """The same for partitions that are being given up in good order."""
        for at in ours:
            if (partition := self.assigned.partitions.get(at)) and not partition.dropped:
                self.write(partition, last=True)

    def _unwritten(self, noted: Noted, error: KafkaError) -> None:
        """Notes could not be written: they go with a later commit."""
        noted.state = False
        noted.purged_version = 0
        noted.incidents_version = 0
        noted.last = None
        self.assigned.complain(error)
