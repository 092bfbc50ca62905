"""Garbage collection: delete records from the log that are done for every site of a queue.

In:  a site (any one: it is who asks), a queue's name, sites that are gone for good. Out: `Garbage`, that can be or was deleted.
Nothing is deleted above the lowest floor of all sites that kq.queues knows, nor under a reader that is no site: a group with
offsets there, or a share group. What commits nowhere (Spark keeps its offsets in its checkpoint) cannot be seen: ask its people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation

from kqlib.errors import KqError, NotAllowed, Unreachable
from kqlib.kafka.reading import described
from kqlib.queue import state
from kqlib.queue.answers import first, not_allowed, refused
from kqlib.queue.dead import DEAD
from kqlib.queue.item import Place
from kqlib.queue.look import happened
from kqlib.queue.rights import Right
from kqlib.queue.site import Site
from kqlib.text import count

PATIENCE = 10.0
SEE_GROUPS = Right("DESCRIBE", "cluster", "kafka-cluster")
OLD_BROKER = "UnsupportedVersion"  # one before 4.0 has no share groups


@dataclass(frozen=True, repr=False)
class Garbage:
    """What every registered site is done with, by partition: from the log's first offset to the lowest floor."""

    queue: str
    ranges: Mapping[int, tuple[int, int]]
    holding: Mapping[int, str] = field(default_factory=dict)  # whose floor it is
    deleted: bool = False

    @property
    def offsets(self) -> int:
        """How many offsets these are. Their records may be fewer: compaction and transactions leave gaps."""
        return sum(floor - low for low, floor in self.ranges.values())

    def __repr__(self) -> str:
        done = "were deleted" if self.deleted else "can be deleted"
        lines = [f"{self.queue}: records of {count(self.offsets, 'offset')} {done}"]
        for number, (low, floor) in self.ranges.items():
            held = f", the rest is held by '{self.holding[number]}'" if number in self.holding else ""
            lines.append(f"p{number}  {low} to {floor}{held}")
        return "\n".join(lines)


def dry_run(site: Site, queue: str, forget: Sequence[str] = ()) -> Garbage:
    """What could be deleted; changes nothing. forget: sites that are gone for good, which else hold everything for ever."""
    if isinstance(forget, str):
        raise NotAllowed(f"forget is a list of sites, as in forget=[{forget!r}]")
    site._check_open()
    known, forgotten = sites(site, queue), set(forget)
    if unknown := forgotten - known:
        there = ", ".join(sorted(known)) or "none"
        raise NotAllowed(f"no site {min(unknown)!r} uses '{queue}'; there are {there}. Nothing was changed")
    if site.name in forgotten:
        raise NotAllowed(f"'{site.name}' is this site: forget it from another one. Nothing was changed")
    parts = [(queue, number) for number in site.cluster.partitions(queue)]
    lows, _ = state.bounds(site.cluster, parts)
    floors: dict[int, tuple[int, str]] = {}
    for name in sorted(known - forgotten):
        for number, floor in _floors(site, name, parts).items():
            floors[number] = min(floors.get(number, (floor, name)), (floor, name))
    ranges = {number: (lows[at, number], floors.get(number, (lows[at, number], ""))[0]) for at, number in parts}
    return Garbage(queue, ranges, {number: name for number, (_, name) in floors.items()})


def collect(site: Site, queue: str, forget: Sequence[str] = ()) -> Garbage:
    """Delete it, for every reader, and forget who is gone; refused under a reader that is no site. `dry_run` first."""
    garbage = dry_run(site, queue, forget)
    if found := strangers(site, queue):
        raise NotAllowed(
            f"{', '.join(map(repr, found))} read '{queue}' as well and are no sites: records that they have not read yet would be "
            "gone. Nothing was deleted. Delete their offsets if they are gone for good (kq kafka consumer-groups, share-groups)"
        )
    for name in forget:
        if members := described(site.cluster, name):
            raise NotAllowed(
                f"site '{name}' is at work: {len(members)} of its processes are there. Nothing was changed"
            )
    _forget(site, queue, set(forget))
    parts = [TopicPartition(queue, number, floor) for number, (_, floor) in garbage.ranges.items()]
    admin = site.cluster.admin
    for part, future in admin.delete_records(parts, request_timeout=PATIENCE).items():
        doing = f"delete records of '{queue}', partition {part.partition}"
        _answer(site, future, doing, Right("DELETE", "topic", queue))
    return Garbage(queue, garbage.ranges, garbage.holding, deleted=True)


def sites(site: Site, queue: str) -> set[str]:
    """The sites that use it. A queue's sites have letters in its .dead topic too, even if they never looked there."""
    site._notes.catch_up()
    names = {queue, queue.removesuffix(DEAD)}
    return {key[0] for key in site._notes.keys() if len(key) > 1 and key[1] in names}  # noqa: SIM118 - no dict


def strangers(site: Site, queue: str) -> list[str]:
    """Who else reads it: groups with offsets there, and share groups, that are no sites.

    Kafka lists the groups that one may see; all of them to a user with DESCRIBE on the cluster. One that is hidden may read it too.
    """
    admin, known = site.cluster.admin, sites(site, queue)
    asked = admin.describe_cluster(include_authorized_operations=True, request_timeout=PATIENCE)
    if AclOperation.DESCRIBE not in (_answer(site, asked, "list the groups", SEE_GROUPS).authorized_operations or ()):
        raise not_allowed(SEE_GROUPS, site.cluster, "Nothing was deleted.", queue, site.name)
    listed = _answer(site, admin.list_consumer_groups(request_timeout=PATIENCE), "list the groups", SEE_GROUPS)
    parts = [(queue, number) for number in site.cluster.partitions(queue)]
    foreign = {group.group_id for group in listed.valid} - known
    return sorted({group for group in foreign if _commits(site, group, parts)} | _sharing(site, queue))


def _sharing(site: Site, queue: str) -> set[str]:
    """Share groups that read it. Asked of Kafka's own tool: clients list groups that commit, and these do not."""
    try:
        if not site.cluster.kafka("share-groups", "--list").strip():
            return set()
        rows = site.cluster.kafka("share-groups", "--describe", "--all-groups", "--offsets").splitlines()
    except KqError as error:
        if OLD_BROKER in str(error):
            return set()
        raise
    return {words[0] for words in map(str.split, rows) if words[1:2] == [queue]}


def _floors(site: Site, name: str, parts: list[Place]) -> dict[int, int]:
    """Where a site is in each partition: below its floor everything is done, except items that
    another program's commit skipped.

    Without a state that is the log's beginning.
    """
    with closing(state.Looker(site.cluster, name, wait=False)) as looker:
        seen = looker.look(parts)
    return {
        number: min(
            [
                max(each.low, state.ledger_from(each, "earliest", f"site '{name}' in '{queue}'").floor),
                *(one.start for one in happened(site._notes, name, (queue, number), each) if one.why == "skipped"),
            ]
        )
        for (queue, number), each in seen.items()
    }


def _commits(site: Site, group: str, parts: list[Place]) -> bool:
    """Has this group an offset in any of them? Asked by a consumer that never joins."""
    with closing(state.Looker(site.cluster, group, wait=False)) as looker:
        return any(offset is not None for offset, _ in looker.committed(parts, PATIENCE).values())


def _forget(site: Site, queue: str, names: set[str]) -> None:
    """Their offsets and notes go; a site that comes back later starts at the log's beginning.

    The notes last: without them its offsets would be a stranger's, whom no second try can forget.
    """
    for name in names:
        with suppress(KqError):  # it never came so far as to commit
            site.cluster.kafka("consumer-groups", "--delete-offsets", "--group", name, "--topic", queue)
    keys = [key for key in site._notes.keys() if len(key) > 1 and key[1] == queue and key[0] in names]  # noqa: SIM118
    site._notes.write([(key, None) for key in keys], site._sender())


def _answer(site: Site, future: Any, doing: str, right: Right) -> Any:
    try:
        return future.result(PATIENCE + 1)
    except KafkaException as error:
        safe = "What was done before stays done."
        raise refused(first(error), site.cluster, doing, right, safe, site=site.name) from None
    except TimeoutError:
        raise Unreachable(address=site.cluster.bootstrap, why=f"no answer (asked to {doing})") from None
