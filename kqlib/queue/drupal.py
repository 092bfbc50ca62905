"""A queue in the words of Drupal's Queue API, for people who know them; the sites of one topic each see every item.

In:  a `Site` and a topic's name. Out: Drupal's seven verbs and `garbage_collection`.

    queue = kq.DrupalQueue(site, "football")
    queue.create_queue()                        # available to this site, if the topic exists; nothing creates one at run time
    queue.create_item({"goal": "ARS"})          # any JSON
    item = queue.claim_item(lease_time=60)      # .data .item_id .created, or None
    queue.delete_item(item)                     # or release_item(item)
    queue.delete_queue()                        # everything in it counts as done for this site; topic and records stay

Which queues a site has, and where it is in them, stands in kq.queues and in the ledgers, not in Drupal's database: it outlives
deletion, so that an item that was done never comes again when the queue is created again on the same topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kqlib.errors import BadPayload, KqError, LeaseLost, NotAllowed, NotCreated, QueueDeleted, Unreachable
from kqlib.queue import state
from kqlib.queue.item import Item
from kqlib.queue.queue import Queue
from kqlib.queue.said import as_ours, first
from kqlib.queue.site import Site

__all__ = ["DrupalItem", "DrupalQueue", "Garbage"]

AVAILABLE, DELETED = "available", "deleted"
PATIENCE = 10.0
UNREADABLE = "not JSON, which is what a Drupal queue holds"


@dataclass(frozen=True)
class DrupalItem:
    """A claimed item: what was put, its id, and when it was put, in seconds since 1970."""

    data: Any
    item_id: str
    created: int
    item: Item = field(repr=False, compare=False)  # the same in the house's words


@dataclass(frozen=True, repr=False)
class Garbage:
    """What every registered site is done with, by partition: from the log's first offset to the lowest floor."""

    queue: str
    ranges: Mapping[int, tuple[int, int]]
    holding: Mapping[int, str] = field(default_factory=dict)  # whose floor it is
    deleted: bool = False

    @property
    def records(self) -> int:
        """How many offsets these are."""
        return sum(floor - low for low, floor in self.ranges.values())

    def __repr__(self) -> str:
        done = "were deleted" if self.deleted else "can be deleted"
        lines = [f"{self.queue}: {self.records} records {done}"]
        for number, (low, floor) in self.ranges.items():
            held = f", the rest is held by '{self.holding[number]}'" if number in self.holding else ""
            lines.append(f"p{number}  {low} to {floor}{held}")
        return "\n".join(lines)


class DrupalQueue:
    """One queue of a site in Drupal's words: `kq.DrupalQueue(site, "football")`."""

    def __init__(self, site: Site, name: str) -> None:
        if not isinstance(site, Site):
            raise NotAllowed(f'a DrupalQueue belongs to a site: kq.DrupalQueue(kq.Site(cluster, "…"), …), not {site!r}')
        if not isinstance(name, str) or not name:
            raise NotAllowed(f"a queue's name is its topic's, not {name!r}")
        self.site, self.name = site, name
        self._queue: Queue | None = None

    def create_queue(self) -> None:
        """Make it available to this site; `TopicMissing` if nobody planned the topic. Twice does no harm."""
        self._queue = self.site.queue(self.name)
        if self._status() != AVAILABLE:
            self._note(AVAILABLE)

    def delete_queue(self) -> None:
        """Not available any more, and empty: whatever is in it counts as done for this site. The topic stays as it is."""
        if self._status() == AVAILABLE:
            self._note(DELETED)  # first: what is put from now on is refused
            (self._queue or self.site.queue(self.name)).purge()

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
            except ValueError:  # somebody else's record; it would come again and again
                _aside(queue, item)
                continue
            return DrupalItem(data, item.id, int(item.created.timestamp()), item)
        return None

    def delete_item(self, item: DrupalItem) -> None:
        """Done: it never comes again. `LeaseLost` if it may be somebody else's by now."""
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
        if isinstance(forget, str):
            raise NotAllowed(f"forget is a list of sites, as in forget=[{forget!r}]")
        garbage = self._garbage(set(forget))
        if not delete_records:
            return garbage
        self._check_foreign()
        self._check_idle(forget)
        self._forget(set(forget))
        parts = [TopicPartition(self.name, number, floor) for number, (_, floor) in garbage.ranges.items()]
        admin = self.site.cluster.admin
        for part, future in admin.delete_records(parts, request_timeout=PATIENCE).items():
            _answer(self.site, future, f"delete records of '{self.name}', partition {part.partition}")
        return Garbage(self.name, garbage.ranges, garbage.holding, deleted=True)

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
        """The queue, if this site has it; what others note is heard within a second."""
        status = self.site._notes.get(self.site.name, self.name, "status") or self._status()
        if status == DELETED:
            status = self._status()  # it may have been created again just now
        if status != AVAILABLE:
            raise (QueueDeleted if status == DELETED else NotCreated)(queue=self.name)
        if self._queue is None:
            self._queue = self.site.queue(self.name)
        return self._queue

    # --- garbage ---

    def _sites(self) -> set[str]:
        """The sites that are known to use this queue."""
        self.site._check_open()
        self.site._notes.catch_up()
        return {key[0] for key in self._keys()}

    def _keys(self) -> list[tuple[Any, ...]]:
        """Every note on this queue."""
        noted: list[tuple[Any, ...]] = self.site._notes.keys()
        return [key for key in noted if len(key) > 1 and key[1] == self.name]

    def _garbage(self, forgotten: set[str]) -> Garbage:
        """The lowest floor of the sites in each partition."""
        sites = self._sites()
        if unknown := forgotten - sites:
            known = ", ".join(sorted(sites)) or "none"
            raise NotAllowed(f"no site {min(unknown)!r} uses '{self.name}'; there are {known}. Nothing was changed")
        if self.site.name in forgotten:
            raise NotAllowed(f"'{self.site.name}' is this site: forget it from another one. Nothing was changed")
        parts = _partitions(self.site, self.name)
        lows, _ = state.bounds(self.site.cluster, parts)
        floors: dict[int, tuple[int, str]] = {}
        for name in sorted(sites - forgotten):
            for number, floor in self._floors(name, parts).items():
                floors[number] = min(floors.get(number, (floor, name)), (floor, name))
        ranges = {number: (lows[at, number], floors.get(number, (lows[at, number], ""))[0]) for at, number in parts}
        return Garbage(self.name, ranges, {number: name for number, (_, name) in floors.items()})

    def _floors(self, name: str, parts: list[tuple[str, int]]) -> dict[int, int]:
        """Where a site is in each partition: below its floor everything is done. Without a state that is the log's beginning."""
        looker = state.Looker(self.site.cluster, name, wait=False)
        try:
            seen = looker.look(parts)
        finally:
            looker.close()
        where = f"site '{name}' in '{self.name}'"
        return {
            number: max(each.low, state.ledger_from(each, False, "earliest", where).floor)
            for (_, number), each in seen.items()
        }

    def _check_foreign(self) -> None:
        """Refused where somebody else reads this topic: what they have not read yet would be gone."""
        admin = self.site.cluster.admin
        listed = _answer(self.site, admin.list_consumer_groups(request_timeout=PATIENCE), "list the groups")
        parts = [TopicPartition(*at) for at in _partitions(self.site, self.name)]
        foreign = sorted({group.group_id for group in listed.valid} - self._sites())
        if found := [group for group in foreign if _commits(self.site, group, parts)]:
            raise NotAllowed(
                f"{', '.join(map(repr, found))} read '{self.name}' as well and are no sites: records that they have not read yet "
                "would be gone. Nothing was deleted. Delete their offsets if they are gone for good (kq kafka consumer-groups)"
            )

    def _check_idle(self, sites: Sequence[str]) -> None:
        """A site with members is not gone."""
        admin = self.site.cluster.admin
        asked = admin.describe_consumer_groups(list(sites), request_timeout=PATIENCE) if sites else {}
        for name, future in asked.items():
            try:
                members = future.result(PATIENCE + 1).members
            except KafkaException:  # no such group: nothing can be more gone
                continue
            if members:
                raise NotAllowed(
                    f"site '{name}' is at work: {len(members)} of its processes are there. Nothing was changed"
                )

    def _forget(self, sites: set[str]) -> None:
        """Their notes and offsets go; a site that comes back later starts at the log's beginning."""
        self.site._notes.write([(key, None) for key in self._keys() if key[0] in sites], self.site._sender())
        for name in sites:
            with suppress(KqError):  # it never came so far as to commit
                named = ("--group", name, "--topic", self.name)
                self.site.cluster.kafka("consumer-groups", "--delete-offsets", *named)


def _aside(queue: Queue, item: Item) -> None:
    """To the dead letters with what cannot be read; where there are none, say so."""
    try:
        queue.bury(item, reason=UNREADABLE)
    except NotAllowed as error:
        raise BadPayload(f"{item.id} is {UNREADABLE}, and cannot be put aside: {error}") from None


def _claimed(item: Any) -> Item:
    if not isinstance(item, DrupalItem):
        raise NotAllowed(f"this takes what claim_item() gave, not {type(item).__name__}")
    return item.item


def _partitions(site: Site, name: str) -> list[tuple[str, int]]:
    return [(name, number) for number in site.cluster.partitions(name)]


def _commits(site: Site, group: str, parts: list[TopicPartition]) -> bool:
    """Has this group an offset in any of them? Asked by a consumer that never joins."""
    reader = Consumer(site.cluster.client(group_id=group, group_protocol="classic"))
    try:
        return any(part.offset >= 0 for part in reader.committed(parts, PATIENCE))
    except KafkaException as error:
        raise as_ours(
            first(error), site.cluster.bootstrap, f"look at group '{group}'", "Nothing was deleted."
        ) from None
    finally:
        reader.close()


def _answer(site: Site, future: Any, doing: str) -> Any:
    try:
        return future.result(PATIENCE + 1)
    except KafkaException as error:
        raise as_ours(first(error), site.cluster.bootstrap, doing, "What was done before stays done.") from None
    except TimeoutError:
        raise Unreachable(address=site.cluster.bootstrap, why=f"no answer (asked to {doing})") from None
