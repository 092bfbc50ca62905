"""Questions about a queue that any process may ask: its depth, its first items, a purge, its numbers.

In:  a site and a queue's name. Out: answers from the topic, the committed states and kq.queues; nobody's items are touched.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kqlib.errors import LedgerCorrupt, LedgerLost, NotAllowed, TopicMissing
from kqlib.queue import incidents, state
from kqlib.queue.answers import not_there
from kqlib.queue.connection import Connection
from kqlib.queue.dead import DEAD
from kqlib.queue.incidents import Incident
from kqlib.queue.item import Item, Place, for_site
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import View

if TYPE_CHECKING:
    from kqlib.queue.notes import Key, Notes

COUNTED = 100_000  # records of a partition that are counted one by one
COUNT_WITHIN = 3.0  # seconds that this may take, for all partitions together

Depth = int | LedgerCorrupt | LedgerLost  # or why it is not known


def place(id: Any) -> tuple[str, int, int]:  # noqa: A002 - the word of Item
    """topic, partition and offset of an item's id."""
    found = re.fullmatch(r"([a-zA-Z0-9._-]+)/(\d{1,9})/(\d{1,18})", id) if isinstance(id, str) else None
    if not found:
        raise NotAllowed(f"an item's id is topic/partition/offset, like 'football/3/41', not {id!r}")
    return found[1], int(found[2]), int(found[3])


def seen(site: Connection, queue: str) -> dict[int, tuple[incidents.Seen, int]]:
    """Every partition as it is now, and the purge mark that is not applied yet."""
    there = _all_seen(site, [queue])
    if queue not in there:
        raise not_there(site.cluster, queue)
    return there[queue]


def _all_seen(site: Connection, queues: list[str]) -> dict[str, dict[int, tuple[incidents.Seen, int]]]:
    """The same for many queues, with one round of questions. A queue that does not exist is left out."""
    site.see_letters()
    ids = state.topic_ids(site.cluster, queues)
    site._notes.catch_up()
    places = [(queue, number) for queue in ids for number in ids[queue][1]]
    # The marks before the states: an owner notes that it applied a mark once its state is committed. Read in the other order, an old
    # state and that note would say that nothing was purged.
    marks = {at: site._notes.purge_mark(site.name, *at, ids[at[0]][0]) for at in places}
    found = site._looker.look(places, notes=site._notes)
    there: dict[str, dict[int, tuple[incidents.Seen, int]]] = {queue: {} for queue in ids}
    for (queue, number), each in sorted(found.items()):
        there[queue][number] = each, marks[queue, number] if each.topic_id == ids[queue][0] else 0
    return there


def ledger_of(notes: Notes, site: str, at: Place, each: incidents.Seen, on_lost: str = "raise") -> Ledger:
    """What is open for a site, as its next owner will find it. A state that is gone is `LedgerLost`, unless `on_lost` has a choice."""
    ledger = state.ledger_from(each, on_lost, f"'{at[0]}', partition {at[1]}")
    upto, back = _rewind(notes, site, at, each.topic_id)
    for incident in happened(notes, site, at, each) if back else ():
        if incident.why == "skipped" and incident.at <= upto:  # on its way back
            for run in incident.runs():
                ledger.reopen(*run, most=each.end)
    return ledger


def _ledger(site: Connection, at: Place, each: incidents.Seen, mark: int) -> Ledger:
    chosen = site._session.on_lost
    on_lost = chosen.get(at[0]) or chosen.get(at[0].removesuffix(DEAD), "raise")
    ledger = ledger_of(site._notes, site.name, at, each, on_lost)
    ledger.purge(max(each.low, mark))
    return ledger


def happened(notes: Notes, site: str, at: Place, each: incidents.Seen) -> list[Incident]:
    """What happened to a site's partition without it: what is noted, and what no owner has seen yet."""
    try:
        ledger = state.ledger_from(each, "earliest", "")
    except LedgerCorrupt:  # a state that cannot be read shows nothing
        return incidents.noted(notes.get(site, at[0], "incidents", at[1]), each.topic_id, each.low)
    return state.happened(notes, site, at, each, ledger).known


def untold(notes: Notes, site: str, at: Place, each: incidents.Seen) -> list[Incident]:
    """The same, without the incidents that a rewind already puts back or forgets."""
    return [one for one in happened(notes, site, at, each) if one.at > _rewind(notes, site, at, each.topic_id)[0]]


def noted(site: Connection, queue: str, partition: int) -> list[Incident]:
    """The same, of what kq.queues says. The cluster is not asked."""
    topic_id = site._notes.get(site.name, queue, "state", partition)
    found = incidents.noted(site._notes.get(site.name, queue, "incidents", partition), topic_id)
    return [one for one in found if one.at > _rewind(site._notes, site.name, (queue, partition), topic_id)[0]]


def _rewind(notes: Notes, site: str, at: Place, topic_id: str) -> tuple[int, bool]:
    """Up to what time the owner puts incidents back (True) or forgets them; 0: no rewind was asked for."""
    back = (notes.get(site, at[0], "rewind", at[1]) or {}).get("back", True)
    return notes.mark(site, *at, topic_id, kind="rewind"), back


def rewind(site: Connection, queue: str, back: bool) -> None:
    """Put back the items of all incidents that are still in the log, or forget them (back=False). Owners see it within a second."""
    notes: list[tuple[Any, Any]] = []
    for number, (each, _) in seen(site, queue).items():
        if found := happened(site._notes, site.name, (queue, number), each):
            key = (site.name, queue, "incidents", number)
            if found != incidents.noted(site._notes.get(*key), each.topic_id, each.low):  # no owner has seen it yet
                notes.append((key, incidents.note(each.topic_id, found)))
            mark = {"topic": each.topic_id, "offset": max(one.at for one in found), "back": back}
            notes.append(((site.name, queue, "rewind", number), mark))
    site._notes.write(notes, site._sender())


def depth(site: Connection, queue: str, own: Mapping[int, View] | None = None) -> int:
    """How many items are not acked. own: what this process knows of its partitions.

    What nobody has read yet is counted record by record, up to a hundred thousand a partition, and each only once in this process.
    Beyond, offsets are counted, and transactions' marks and other sites' items look like items: then it is at most so many.
    """
    found = depths(site, [queue], {(queue, number): view for number, view in (own or {}).items()})
    if queue not in found:
        raise TopicMissing(topic=queue)
    if isinstance(depth := found[queue], LedgerCorrupt | LedgerLost):
        raise depth
    return depth


def depths(site: Connection, queues: list[str], own: Mapping[Place, View] | None = None) -> dict[str, Depth]:
    """The depth of each queue that exists, or why it is not known. The cluster is asked once for all of them."""
    counts, unreadable = dict[str, int](), dict[str, LedgerCorrupt | LedgerLost]()
    unread: dict[Place, tuple[str, int, int]] = {}
    for queue, parts in _all_seen(site, queues).items():
        try:
            places = {(queue, n): both for n, both in parts.items()}
            left = {at: _known_and_unread(site, at, *both, (own or {}).get(at)) for at, both in places.items()}
        except (LedgerCorrupt, LedgerLost) as error:
            unreadable[queue] = error
            continue
        counts[queue] = sum(known + end - start for known, (_, start, end) in left.values())
        unread |= {at: part for at, (_, part) in left.items() if 0 < part[2] - part[1] <= COUNTED}
    deadline = time.monotonic() + COUNT_WITHIN * len(queues)
    found = site._reader.others(site.name, unread, lambda record: for_site(record.headers(), site.name), deadline)
    for (queue, _), others in found.items():
        counts[queue] -= others
    return counts | unreadable


def _known_and_unread(
    site: Connection, at: Place, each: incidents.Seen, mark: int, view: View | None
) -> tuple[int, tuple[str, int, int]]:
    """How many items are known to be open. And the part that was not read yet: the topic's id, its start, its end."""
    ledger = _ledger(site, at, each, mark)
    fresh, start = 0, ledger.top
    if view is not None and (view.ledger.epoch, view.ledger.topic) == (ledger.epoch, ledger.topic):  # it is still ours
        ledger, fresh, start = view
        ledger.purge(max(each.low, mark))
    start = max(start, ledger.top)
    return ledger.open + fresh, (each.topic_id, start, max(start, each.end))


def purge(site: Connection, queue: str, *more: tuple[Key, Any]) -> None:
    """A mark for each partition at its present end; other owners see it within a second. more: notes to write after the marks."""
    marks = [
        ((site.name, queue, "purge", number), {"topic": each.topic_id, "offset": each.end})
        for number, (each, _) in seen(site, queue).items()
    ]
    site._notes.write([*marks, *more], site._sender())
    site._session.apply_marks()


def peek(site: Connection, queue: str, n: int) -> list[Item]:
    """The first n items that are not done, partition by partition, read by a consumer in no group."""
    found: list[Item] = []
    for number, (each, mark) in seen(site, queue).items():
        found += _first(site, (queue, number), each, mark, n - len(found)) if len(found) < n else []
    return found


def _first(site: Connection, at: Place, each: incidents.Seen, mark: int, n: int) -> list[Item]:
    ledger = _ledger(site, at, each, mark)
    found: list[Item] = []
    for start, end in [*((start, end) for start, end, _ in ledger.runs()), (ledger.top, each.end)]:
        while start < end and len(found) < n:
            records, whole = site._reader.read(at, start, end, n - len(found))
            found += [Item(*at, record, 0, 0.0, 0, 0) for record in records if for_site(record.headers(), site.name)]
            if whole or not records:
                break
            start = records[-1].offset() + 1  # noqa: PLW2901 - another site's took places
    return found


def oldest(site: Connection, queue: str) -> float | None:
    """Seconds since the oldest item that is not done was put."""
    parts = seen(site, queue).items()
    first = [item for number, (each, mark) in parts for item in _first(site, (queue, number), each, mark, 1)]
    return time.time() - min(item.created.timestamp() for item in first) if first else None


class Stats(dict[str, Any]):
    """A queue's numbers. What is shown leaves out what no two runs have alike: ages and rates."""

    def __repr__(self) -> str:
        shown = [
            f"{name} {self[name]}" for name in ("depth", "claimed", "delayed", "dead", "lost") if self[name] is not None
        ]
        return f"Stats({', '.join(shown)}{', blocked' * bool(self['blocked'])})"
