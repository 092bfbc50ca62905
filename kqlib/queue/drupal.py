"""A queue with the verbs of Drupal's Queue API. Each site of a topic gets every item.

In:  a `Site` and a topic's name. Out: Drupal's seven verbs and `garbage_collection`. `kq queue create|delete` use it.

    queue = kq.DrupalQueue(site, "football")
    queue.create_queue()                        # available to this site, if the topic exists; nothing creates one at run time
    queue.create_item({"goal": "ARS"})          # any JSON
    item = queue.claim_item(lease_time=60)      # .data .item_id .created, or None
    queue.delete_item(item)                     # or release_item(item)
    queue.delete_queue()                        # everything in it counts as done for this site; topic and records stay

kq.queues and the ledgers say which queues a site has and what is done there; Drupal's database does not. That outlives deletion: if a
queue is created again on the same topic, an item that was done does not come again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kqlib.errors import BadPayload, LeaseLost, NotAllowed, NotCreated, QueueDeleted, TopicMissing
from kqlib.queue import gc, look
from kqlib.queue.gc import Garbage
from kqlib.queue.item import Item
from kqlib.queue.queue import Queue
from kqlib.queue.site import Site

__all__ = ["DrupalItem", "DrupalQueue", "Garbage"]

AVAILABLE, DELETED = "available", "deleted"
UNREADABLE = "not JSON, which is what a Drupal queue holds"


@dataclass(frozen=True)
class DrupalItem:
    """A claimed item: what was put, its id, and when it was put, in seconds since 1970."""

    data: Any
    item_id: str
    created: int
    item: Item = field(repr=False, compare=False)  # the same as `Queue` has it


class DrupalQueue:
    """One queue of a site in Drupal's words: `kq.DrupalQueue(site, "football")`."""

    def __init__(self, site: Site, name: str) -> None:
        if not isinstance(site, Site):
            raise NotAllowed(f'a DrupalQueue belongs to a site: kq.DrupalQueue(kq.Site(cluster, "…"), …), not {site!r}')
        if not isinstance(name, str) or not name:
            raise NotAllowed(f"a queue's name is its topic's, not {name!r}")
        self.site = site
        self.name = name
        self._queue: Queue | None = None

    def create_queue(self) -> None:
        """Make it available to this site; `TopicMissing` if nobody planned the topic. Twice does no harm."""
        self._queue = self.site.queue(self.name)
        if self._status() != AVAILABLE:
            self._note(AVAILABLE)

    def delete_queue(self) -> None:
        """Not available any more, and empty: whatever is in it counts as done for this site. The topic stays as it is.

        A second call: what was put since counts as done as well. If the topic is gone, the queue is deleted all the same.
        """
        if self._status() is not None:
            note = (self.site.name, self.name, "status"), DELETED  # after the marks: what is marked deleted is empty
            try:
                look.purge(self.site, self.name, note)
            except TopicMissing:
                self._note(DELETED)

    def number_of_items(self) -> int:
        """How many are not deleted, claimed ones included."""
        return self.site.queue(self.name).depth() if self._queue is None else self._queue.depth()

    def create_item(self, data: Any) -> str:
        """Put something, anything that is JSON; its id, when it is durable."""
        try:
            payload = json.dumps(data, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadPayload(f"an item of a Drupal queue is JSON, and this is not: {error}. Nothing was put") from None
        return self._open().put(payload)

    def claim_item(self, lease_time: float = 30) -> DrupalItem | None:
        """The next item, yours for so many seconds; None if there is none now."""
        queue = self._open()
        while (item := queue.claim(lease=lease_time)) is not None:
            try:
                data = json.loads(b"null" if item.data is None else item.data)
            except (ValueError, RecursionError):  # another program's record; it would come again and again
                _aside(queue, item)
                continue
            return DrupalItem(data, item.id, int(item.created.timestamp()), item)
        return None

    def delete_item(self, item: DrupalItem) -> None:
        """Done: it never comes again. `LeaseLost` if another process may have it by now."""
        self._open().ack(_claimed(item))

    def release_item(self, item: DrupalItem) -> bool:
        """Give it back, to be claimed at once; False if its lease is over, and it has come back by itself."""
        try:
            self._open().release(_claimed(item))
        except LeaseLost:
            return False
        return True

    def garbage_collection(self, delete_records: bool = False, forget: Sequence[str] = ()) -> Garbage:
        """What all sites are done with. delete_records: take it out of the log, for every reader; look at a run without first.

        forget: sites that are gone for good, which else would hold everything for ever.
        """
        return (gc.collect if delete_records else gc.dry_run)(self.site, self.name, forget)

    def __repr__(self) -> str:
        return f"DrupalQueue({self.site!r}, '{self.name}')"

    # --- what kq.queues says ---

    def _status(self) -> str | None:
        """What is noted of this queue; read to its end, since another web server may have created or deleted it."""
        self.site._check_open()
        self.site._notes.catch_up()
        return self.site._notes.get(self.site.name, self.name, "status")

    def _note(self, status: str) -> None:
        self.site._notes.write([((self.site.name, self.name, "status"), status)], self.site._sender())

    def _open(self) -> Queue:
        """The queue, if this site has it; notes of other processes arrive within a second."""
        status = self.site._notes.get(self.site.name, self.name, "status") or self._status()
        if status == DELETED:
            status = self._status()  # it may have been created again just now
        if status != AVAILABLE:
            raise (QueueDeleted if status == DELETED else NotCreated)(queue=self.name)
        if self._queue is None:
            self._queue = self.site.queue(self.name)
        return self._queue


def _aside(queue: Queue, item: Item) -> None:
    """Bury an item that cannot be read; an error if there are no dead letters."""
    try:
        queue.bury(item, reason=UNREADABLE)
    except NotAllowed as error:
        raise BadPayload(f"{item.id} is {UNREADABLE}, and cannot be put aside: {error}") from None


def _claimed(item: Any) -> Item:
    if not isinstance(item, DrupalItem):
        raise NotAllowed(f"this takes what claim_item() gave, not {type(item).__name__}")
    return item.item
