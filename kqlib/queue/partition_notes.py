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
from kqlib.queue.assigned import Assigned, At
from kqlib.queue.incidents import Incident, Stored
from kqlib.queue.notes import Key, Notes
from kqlib.queue.partition import Partition
from kqlib.queue.sender import Sender, Sent

NOTED = (
    60.0  # seconds after which a state that changed is noted again, for another program's commit to be compared with
)


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
        self.assigned, self.notes, self.sender = assigned, notes, sender
        self._noted: WeakKeyDictionary[Partition, Noted] = WeakKeyDictionary()

    # --- what others have noted ---

    def mark_for(self, at: At, topic_id: str) -> int:
        """The purge mark that is still to be applied; 0: none."""
        return self.notes.purge_mark(self.assigned.site, *at, topic_id)

    def apply(self, at: At, owner: Partition) -> None:
        """Apply the queue's purge mark and its rewind, once."""
        if owner.dropped:
            return
        noted, mark = self._of(owner), self.mark_for(at, owner.ledger.topic)
        if mark > noted.purged:
            owner.purge(mark)
            noted.purged, noted.purged_version = mark, owner.version
            owner.awaited = owner.version
        upto = self._rewound(at, owner)
        if upto and owner.incidents:
            before = owner.incidents
            owner.rewind(upto, self.notes.get(self.assigned.site, at[0], "rewind", at[1]).get("back", True))
            owner.unnoted = owner.unnoted or owner.incidents != before

    def _rewound(self, at: At, owner: Partition) -> int:
        return self.notes.mark(self.assigned.site, *at, owner.ledger.topic, kind="rewind")

    def _of(self, owner: Partition) -> Noted:
        if (noted := self._noted.get(owner)) is None:  # asked at each commit: setdefault would make one each time
            noted = self._noted[owner] = Noted()
        return noted

    # --- what we note ---

    def committed(self, at: At, owner: Partition) -> None:
        """A state was committed: note once that there is one, and that a purge mark was applied; and all the rest."""
        site, topic, noted, new = self.assigned.site, owner.ledger.topic, self._of(owner), list[tuple[Key, Any]]()
        if not noted.state:
            noted.state, key = True, (site, at[0], "state", at[1])
            if self.notes.get(*key) != topic:  # missing, it is lost: from now on
                new.append((key, topic))
        if noted.purged and noted.purged_version <= owner.saved:
            noted.purged_version = 1 << 62  # noted once
            new.append(((site, at[0], "purged", at[1]), {"topic": topic, "offset": noted.purged}))
        self.write(at, owner, new)

    def write(self, at: At, owner: Partition, more: Iterable[tuple[Key, Any]] = (), last: bool = False) -> None:
        """Note incidents and the last state, when they are committed. last: the partition is being given up."""
        site, noted, new, now = self.assigned.site, self._of(owner), list[tuple[Key, Any]](), time.monotonic()
        if owner.lost:
            lost = Incident("removed", *owner.lost_between, owner.lost, int(time.time() * 1000))
            owner.lost = 0
            owner.set_incidents(incidents.together(owner.incidents, [lost], self._rewound(at, owner)))
        if owner.unnoted and noted.incidents_version >= owner.incidents_version and noted.sent and noted.sent.wait(0):
            owner.unnoted = None in noted.sent.ids
            noted.incidents_version *= not owner.unnoted  # its producer was replaced: once more
            self.assigned.changed.notify_all()
        if noted.incidents_version < owner.incidents_version <= owner.saved:
            new.append(((site, at[0], "incidents", at[1]), incidents.note(owner.ledger.topic, owner.incidents)))
            noted.incidents_version = owner.incidents_version
        if owner.committed and owner.committed != noted.last and (last or now - noted.last_at > NOTED):
            floor, text = noted.last = owner.committed
            noted.last_at = now
            new.append(((site, at[0], "last", at[1]), {"floor": floor, "text": text}))
        if new := [*new, *more]:
            noted.sent = self.notes.post(new, self.sender, partial(self._unwritten, noted))

    def write_last(self, ours: Iterable[At]) -> None:
        """The same for partitions that are being given up in good order."""
        for at in ours:
            if (owner := self.assigned.owners.get(at)) and not owner.dropped:
                self.write(at, owner, last=True)

    def _unwritten(self, noted: Noted, error: KafkaError) -> None:
        """Notes could not be written: they go with a later commit."""
        noted.state, noted.purged_version, noted.incidents_version, noted.last = False, 0, 0, None
        self.assigned.complain(error)
