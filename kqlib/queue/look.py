"""Questions about a queue that any process may ask: its depth, its first items, a purge, its numbers.

In:  a site and a queue's name. Out: answers from the topic, the committed states and kq.queues; nobody's items are touched.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kqlib.errors import LedgerCorrupt, NotAllowed, TopicMissing
from kqlib.queue import state
from kqlib.queue.granted import not_there
from kqlib.queue.item import Item, for_site
from kqlib.queue.line import View

if TYPE_CHECKING:
    from kqlib.queue.queue import Queue
    from kqlib.queue.site import Site

COUNTED = 100_000  # records of a partition that are counted one by one
BRIEFLY = 3.0  # seconds that this may take, for all partitions together


def place(id: Any) -> tuple[str, int, int]:  # noqa: A002 - the word of Item
    """topic, partition and offset of an item's id."""
    found = re.fullmatch(r"([a-zA-Z0-9._-]+)/(\d{1,9})/(\d{1,18})", id) if isinstance(id, str) else None
    if not found:
        raise NotAllowed(f"an item's id is topic/partition/offset, like 'football/3/41', not {id!r}")
    return found[1], int(found[2]), int(found[3])


def seen(site: Site, queue: str) -> dict[int, tuple[state.Seen, int]]:
    """Every partition as it is now, and the purge mark that still counts for it."""
    there = _all_seen(site, [queue])
    if queue not in there:
        raise not_there(site.cluster, queue)
    return there[queue]


def _all_seen(site: Site, queues: list[str]) -> dict[str, dict[int, tuple[state.Seen, int]]]:
    """The same of many queues, with one round of questions; one that does not exist is left out."""
    ids = state.topic_ids(site.cluster, queues)
    site._notes.catch_up()
    found = site._looker.look([(queue, number) for queue in ids for number in ids[queue][1]])
    there: dict[str, dict[int, tuple[state.Seen, int]]] = {queue: {} for queue in ids}
    for (queue, number), each in sorted(found.items()):
        there[queue][number] = each, _mark(site, queue, number, each.topic_id)
    return there


def _mark(site: Site, queue: str, partition: int, topic_id: str) -> int:
    mark = site._notes.mark(site.name, queue, partition, topic_id)
    return mark if mark > site._notes.mark(site.name, queue, partition, topic_id, kind="purged") else 0


def depth(site: Site, queue: str, own: Mapping[int, View] | None = None) -> int:
    """How many items are not acked. own: what this process knows of its partitions.

    What nobody has read yet is counted record by record, up to a hundred thousand a partition, and each only once in this process.
    Beyond, offsets are counted, and transactions' marks and other sites' items look like items: then it is at most so many.
    """
    found = depths(site, [queue], {(queue, number): view for number, view in (own or {}).items()})
    if queue not in found:
        raise TopicMissing(topic=queue)
    if isinstance(depth := found[queue], LedgerCorrupt):
        raise depth
    return depth


def depths(
    site: Site, queues: list[str], own: Mapping[tuple[str, int], View] | None = None
) -> dict[str, int | LedgerCorrupt]:
    """The depth of each queue that exists, or why it is not known. The cluster is asked once for all of them."""
    counts, unreadable = dict[str, int](), dict[str, LedgerCorrupt]()
    unread: dict[tuple[str, int], tuple[str, int, int]] = {}
    for queue, parts in _all_seen(site, queues).items():
        try:
            left = {(queue, n): _left((queue, n), *both, (own or {}).get((queue, n))) for n, both in parts.items()}
        except LedgerCorrupt as error:
            unreadable[queue] = error
            continue
        counts[queue] = sum(known + end - start for known, (_, start, end) in left.values())
        unread |= {at: part for at, (_, part) in left.items() if 0 < part[2] - part[1] <= COUNTED}
    deadline = time.monotonic() + BRIEFLY * len(queues)
    for (queue, _), others in site._reader.others(site.name, unread, partial(_ours, site=site.name), deadline).items():
        counts[queue] -= others
    return counts | unreadable


def _left(at: tuple[str, int], each: state.Seen, mark: int, view: View | None) -> tuple[int, tuple[str, int, int]]:
    """Known open items; and the topic's id, from where and to where nobody has read yet."""
    ledger = state.ledger_from(each, False, "earliest", f"'{at[0]}', partition {at[1]}")
    fresh, start = 0, ledger.top
    if view is not None and (view.ledger.epoch, view.ledger.topic) == (ledger.epoch, ledger.topic):  # it is still ours
        ledger, fresh, start = view
    ledger.purge(max(each.low, mark))
    start = max(start, ledger.top)
    return ledger.open + fresh, (each.topic_id, start, max(start, each.end))


def _ours(record: Any, site: str) -> bool:
    """Not one that another site has put back for itself."""
    return for_site(record.headers(), site)


def purge(site: Site, queue: str) -> None:
    """A mark for each partition at its present end; owners see it within a second."""
    marks = [
        ((site.name, queue, "purge", number), {"topic": each.topic_id, "offset": each.end})
        for number, (each, _) in seen(site, queue).items()
    ]
    site._notes.write(marks, site._sender())


def peek(site: Site, queue: str, n: int) -> list[Item]:
    """The first n items that are not done, partition by partition, read by a consumer in no group."""
    found: list[Item] = []
    for number, (each, mark) in seen(site, queue).items():
        found += _first(site, (queue, number), each, mark, n - len(found)) if len(found) < n else []
    return found


def _first(site: Site, at: tuple[str, int], each: state.Seen, mark: int, n: int) -> list[Item]:
    ledger = state.ledger_from(each, False, "earliest", f"'{at[0]}', partition {at[1]}")
    ledger.purge(max(each.low, mark))
    found: list[Item] = []
    for start, end in [*((start, end) for start, end, _ in ledger.runs()), (ledger.top, each.end)]:
        while start < end and len(found) < n:
            records, whole = site._reader.read(at, start, end, n - len(found))
            found += [Item(*at, record, 0, 0.0, 0, 0) for record in records if _ours(record, site.name)]
            if whole or not records:
                break
            start = records[-1].offset() + 1  # noqa: PLW2901 - another site's took places
    return found


def _oldest(queue: Queue) -> float | None:
    """Seconds since the oldest item that is not done was put."""
    parts = seen(queue.site, queue.name).items()
    first = [item for number, (each, mark) in parts for item in _first(queue.site, (queue.name, number), each, mark, 1)]
    return time.time() - min(item.created.timestamp() for item in first) if first else None


class Stats(dict[str, Any]):
    """A queue's numbers. What is shown leaves out what no two runs have alike: ages and rates."""

    def __repr__(self) -> str:
        said = [
            f"{name} {self[name]}" for name in ("depth", "claimed", "delayed", "dead", "lost") if self[name] is not None
        ]
        return f"Stats({', '.join(said)}{', blocked' * bool(self['blocked'])})"


def stats(queue: Queue) -> Stats:
    """The numbers of a queue: of all its partitions, then of what this process has."""
    member = queue._member
    with member.changed:
        owners = member.owners_of(queue.name)
        counts = [owner.counts() for owner in owners]
        own: dict[str, Any] = {name: sum(each[name] for each in counts) for name in ("claimed", "delayed")}
        own |= {"lost": queue.lost, "partitions": len(owners), "blocked": queue.blocked}
        own |= queue.terms.rates.a_second(time.monotonic())
    dead = None
    with suppress(TopicMissing):  # deleted meanwhile; `blocked` says so once something is to be buried
        dead = depth(queue.site, f"{queue.name}.dead") if queue.dead_facts else None
    return Stats(depth=queue.depth(), dead=dead, oldest=_oldest(queue), **own)
