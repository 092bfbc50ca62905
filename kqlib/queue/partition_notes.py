"""What kq.queues says of the partitions of this process: purge marks and rewinds to apply, incidents and states to note.

In:  the session's partitions, the notes. Out: partitions that do what was noted; notes that go with their commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from kqlib.queue import incidents
from kqlib.queue.assigned import Assigned, At
from kqlib.queue.incidents import Incident
from kqlib.queue.notes import Key, Notes
from kqlib.queue.partition import Partition
from kqlib.queue.sender import Sender

NOTED = (
    60.0  # seconds after which a state that changed is noted again, for another program's commit to be compared with
)


class PartitionNotes:
    """The notes of the partitions of one session. Its methods are called with `changed` held."""

    def __init__(self, assigned: Assigned, notes: Notes, sender: Sender) -> None:
        self.assigned, self.notes, self.sender = assigned, notes, sender

    # --- what others have noted ---

    def mark_for(self, at: At, topic_id: str) -> int:
        """The purge mark that is still to be applied; 0: none."""
        return self.notes.purge_mark(self.assigned.site, *at, topic_id)

    def apply(self, at: At, owner: Partition) -> None:
        """Apply the queue's purge mark and its rewind, once."""
        if owner.dropped:
            return
        mark = self.mark_for(at, owner.ledger.topic)
        if mark > owner.purged:
            owner.purge(mark)
            owner.purged, owner.purged_version = mark, owner.version
            owner.wanted = owner.version
        upto = self._rewound(at, owner)
        if upto and owner.incidents:
            before = owner.incidents
            owner.rewind(upto, self.notes.get(self.assigned.site, at[0], "rewind", at[1]).get("back", True))
            owner.unnoted = owner.unnoted or owner.incidents != before

    def _rewound(self, at: At, owner: Partition) -> int:
        return self.notes.mark(self.assigned.site, *at, owner.ledger.topic, kind="rewind")

    # --- what we note ---

    def write(self, at: At, owner: Partition, last: bool = False) -> None:
        """Note what must be known beside the ledger, when it is committed. last: the partition is being given up."""
        site, new, now = self.assigned.site, list[tuple[Key, Any]](), time.monotonic()
        if owner.lost:
            lost = Incident("removed", *owner.lost_between, owner.lost, int(time.time() * 1000))
            owner.lost = 0
            owner.set_incidents(incidents.together(owner.incidents, [lost], self._rewound(at, owner)))
        if owner.unnoted and owner.incidents_noted >= owner.incidents_version and owner.noting.wait(0):
            owner.unnoted = None in owner.noting.ids
            owner.incidents_noted *= not owner.unnoted  # its producer was replaced: once more
            self.assigned.changed.notify_all()
        if owner.incidents_noted < owner.incidents_version <= owner.saved:
            new.append(((site, at[0], "incidents", at[1]), incidents.note(owner.ledger.topic, owner.incidents)))
            owner.incidents_noted = owner.incidents_version
        if owner.committed and owner.committed != owner.last_noted and (last or now - owner.last_noted_at > NOTED):
            floor, text = owner.last_noted = owner.committed
            owner.last_noted_at = now
            new.append(((site, at[0], "last", at[1]), {"floor": floor, "text": text}))
        if new:
            owner.noting = self.notes.post(new, self.sender, partial(self._unwritten, owner))

    def write_last(self, ours: Iterable[At]) -> None:
        """The same for partitions that are being given up in good order."""
        for at in ours:
            if (owner := self.assigned.owners.get(at)) and not owner.dropped:
                self.write(at, owner, last=True)

    def committed(self, at: At, owner: Partition, version: int) -> None:
        """This version was committed: note that there is a state, and that a purge mark was applied, once each."""
        site, topic, new = self.assigned.site, owner.ledger.topic, list[tuple[Key, Any]]()
        if not owner.noted:
            owner.noted, key = True, (site, at[0], "state", at[1])
            if self.notes.get(*key) != topic:  # missing, it is lost: from now on
                new.append((key, topic))
        if owner.purged and owner.purged_version <= version:
            owner.purged_version = 1 << 62  # noted once
            new.append(((site, at[0], "purged", at[1]), {"topic": topic, "offset": owner.purged}))
        if new:
            self.notes.post(new, self.sender, partial(self._unwritten, owner))
        self.write(at, owner)

    def _unwritten(self, owner: Partition, error: KafkaError) -> None:
        """Notes could not be written: they go with a later commit."""
        owner.incidents_noted, owner.last_noted = 0, None
        owner.noted, owner.purged_version = False, 0
        self.assigned.complain(error)
