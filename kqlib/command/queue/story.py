"""`kq queue story ID`: everything that the topics, the ledgers and the dead letters know of one item, as a timeline.

In:  an item's id, or a dead letter's, which leads to its item. Out: when it was put, and with what; its dead letters, and what was
put back of them; where it stands for each site of its queue.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from kqlib.command import output
from kqlib.command.output import tell
from kqlib.command.queue.site import check, owners
from kqlib.errors import KqError, LedgerCorrupt, LedgerLost, NotAllowed
from kqlib.kafka import reading
from kqlib.kafka.reading import Place
from kqlib.queue import Item, Site, gc, look, state
from kqlib.queue.dead import DEAD
from kqlib.queue.incidents import Seen
from kqlib.queue.item import AGAIN, DUE, SITE
from kqlib.queue.ledger import Ledger
from kqlib.text import as_json, count
from kqlib.workshop.cluster.up import current

SEARCH = 20.0  # seconds for looking through dead letters and later items


@dataclass(frozen=True)
class Event:
    """What happened, or how it stands now (`when` is None)."""

    when: datetime | None
    what: str
    who: str  # a site; '' for a producer
    how: str
    id: str = ""  # of another record: a dead letter, a copy


def queue_story(args: argparse.Namespace) -> int:
    """Print the item's events."""
    topic, _, _ = look.place(args.id)
    with current() as cluster:
        check(cluster, topic)
        with Site(cluster, args.site) as site:
            id_, item = _origin(site, args.id)
            events = [*_put(id_, item), *_buried(site, id_, item), *_stands(site, id_, item)]
    if args.json:
        times = [event.when and event.when.isoformat(timespec="milliseconds") for event in events]
        rows = [asdict(event) | {"when": moment} for event, moment in zip(events, times, strict=True)]
        print(as_json({"id": id_, "item": item and output.item(item), "events": rows}))
    else:
        if id_ != args.id:
            tell(f"kq: {args.id} is a dead letter of {id_}")
        shown = [(_time(event.when), event.what, event.who or "–", event.how) for event in events]
        print(output.table(shown, ("when", "what", "site", "how"), id_))
    return 0 if item or any(event.when for event in events) else 1


def _time(when: datetime | None) -> str:
    return when.astimezone().isoformat(" ", "seconds")[:19] if when else "now"


def _moment(text: bytes | None) -> datetime:
    digits = text.decode() if text and text.isdigit() and len(text) < 15 else "0"
    return datetime.fromtimestamp(int(digits) / 1000, UTC)


# --- the record -------------------------------------------------------------------------------------------------------


def _origin(site: Site, id_: str) -> tuple[str, Item | None]:
    """The id of the item that is meant, and its record if it is still in the log."""
    item = _record(site, id_)
    origin = item and item.queue.endswith(DEAD) and item.headers.get("kq-origin")
    if not origin:
        return id_, item
    first = origin.decode(errors="replace")
    return first, _record(site, first)


def _record(site: Site, id_: str) -> Item | None:
    topic, partition, offset = look.place(id_)
    partitions = site.cluster.partitions(topic)
    if partition not in partitions:
        raise NotAllowed(f"'{topic}' has no partition {partition}: it has {len(partitions)}, from 0 on")
    at = (topic, partition)
    low, end = state.bounds(site.cluster, [at])
    if not low[at] <= offset < end[at]:
        return None
    return next(_read(site, {at: offset}, {at: offset + 1}), None)


def _put(id_: str, item: Item | None) -> Iterator[Event]:
    if item is None:
        yield Event(None, "gone", "", f"{id_} is not in the log: deleted, never put, or a transaction's mark")
        return
    raw = dict(item.record.headers() or ())
    how = [f"{count(len(item.data or b''), 'byte')}: {output.short(item.data)}"]
    if item.key is not None:
        how.append(f"key {output.short(item.key, 24)}")
    if item.headers:
        how.append(f"headers {output.headers(item.headers, 80)}")
    if due := raw.get(DUE):
        how.append(f"due {_time(_moment(due))}")
    if was := raw.get(AGAIN):
        how.append(f"it was {output.short(was)} before")
    for_site = (raw.get(SITE) or b"").decode(errors="replace")
    yield Event(item.created, "put back" if for_site else "put", for_site, "; ".join(how))


# --- dead letters and what came of them -------------------------------------------------------------------------------


def _buried(site: Site, id_: str, item: Item | None) -> Iterator[Event]:
    topic, _, _ = look.place(id_)
    if f"{topic}{DEAD}" not in site.cluster.describe().topics:
        return
    since = item.created if item else datetime.fromtimestamp(0, UTC)
    for letter in _search(site, topic + DEAD, since, lambda each: each.headers.get("kq-origin") == id_.encode()):
        story = {name: (value or b"").decode(errors="replace") for name, value in letter.headers.items()}
        who, when = story.get("kq-dead-site", ""), _moment(story.get("kq-buried", "").encode())
        now, _ = _stand(site, who, letter.id)
        attempts = count(int(story.get("kq-attempts") or 0), "attempt")
        how = f"after {attempts}: {story.get('kq-reason') or 'no reason given'}; dead letter {letter.id}, {now}"
        yield Event(when, "buried", who, how, letter.id)
        if now == "done":
            yield from _back(site, id_, who, when)


def _back(site: Site, id_: str, who: str, since: datetime) -> Iterator[Event]:
    def copied(each: Item) -> bool:
        marks = dict(each.record.headers() or ())
        return (marks.get(AGAIN), marks.get(SITE)) == (id_.encode(), who.encode())

    for copy in _search(site, look.place(id_)[0], since, copied):
        now, _ = _stand(site, who, copy.id)
        yield Event(copy.created, "put back", who, f"as {copy.id}, {now}", copy.id)


def _search(site: Site, topic: str, since: datetime, chosen: Callable[[Item], bool]) -> list[Item]:
    """The chosen records since then, of those that can be read in time."""
    parts = [(topic, number) for number in site.cluster.partitions(topic)]
    starts = state.since(site.cluster, parts, since.timestamp())
    return [each for each in _read(site, starts) if chosen(each)]


def _read(site: Site, starts: dict[Place, int], ends: dict[Place, int] | None = None) -> Iterator[Item]:
    """The records from these offsets on and below `ends` (None: the ends seen now), until the time is over."""
    deadline = time.monotonic() + SEARCH
    for message in reading.read(site.cluster, starts, ends):
        yield Item(message.topic(), message.partition(), message, 0, 0.0, 0, 0)
        if time.monotonic() > deadline:
            tell(f"kq: not every record could be read within {SEARCH:g} s: there may be more events")
            return


# --- where it stands --------------------------------------------------------------------------------------------------


def _stands(site: Site, id_: str, item: Item | None) -> Iterator[Event]:
    """How it stands for each site of the queue."""
    for_site = dict(item.record.headers() or ()).get(SITE) if item else None
    sites = sorted(gc.sites(site, look.place(id_)[0]))
    if item and not sites:
        yield Event(None, "waiting", "", "no site has used this queue yet")
    for name in sites:
        if for_site and for_site != name.encode():
            yield Event(None, "not theirs", name, "it was put back for another site, and counts as done")
        else:
            word, how = _stand(site, name, id_)
            yield Event(None, word, name, f"{how}; {_owner(site, name, id_)}" if word == "open" else how)


def _owner(site: Site, name: str, id_: str) -> str:
    """Who can have it: leases are in the memory of the process that has its partition, and nowhere else."""
    topic, partition, _ = look.place(id_)
    owned = owners(site.cluster, name, topic)
    if owned is None:
        return "which process owns its partition could not be asked"
    if partition not in owned:
        return "no process owns its partition, so no worker has it: the next claim gets it"
    return f"{owned[partition]} owns its partition: only that process knows whether it is claimed, and until when"


def _stand(site: Site, name: str, id_: str) -> tuple[str, str]:
    """How it stands for a site: a word, and the details."""
    topic, partition, offset = look.place(id_)
    at = (topic, partition)
    try:
        with closing(state.Looker(site.cluster, name, wait=False)) as looker:
            seen = looker.look([at], notes=site._notes)[at]
        ledger = look.ledger_of(site._notes, name, at, seen)
    except (LedgerCorrupt, LedgerLost) as error:
        return "unknown", str(error)
    except KqError as error:
        if name == site.name:
            raise
        return "unknown", f"its state could not be read: {error}"
    mark = site._notes.mark(name, topic, partition, seen.topic_id)
    word, how = standing(ledger, seen, mark, offset)
    if word == "done" and offset >= mark:
        for incident in look.untold(site._notes, name, at, seen):
            if incident.why != "again" and incident.has(offset):
                return ("lost" if incident.why == "removed" else "skipped"), str(incident)
    return word, how


def standing(ledger: Ledger, seen: Seen, mark: int, offset: int) -> tuple[str, str]:
    """The same from plain values: a ledger, the log's bounds, a purge mark."""
    attempts, where = ledger.attempts(offset), f"floor {ledger.floor}, top {ledger.top}"
    if offset >= seen.end:
        return "not there", f"its partition ends before {seen.end}"
    if offset < mark or (attempts is None and offset < ledger.top):
        return "done", "purged" if offset < mark else where
    if offset < seen.low:
        return "lost", f"it left the log before it was done ({where})"
    if attempts is None:
        before = f"{count(offset - ledger.top, 'offset')} before it" if offset > ledger.top else "the next"
        return "waiting", f"not looked at yet: {before} in its partition ({where})"
    if attempts == 0:
        return "waiting", f"passed over (not due, its key busy), or given back unhandled ({where})"
    often = f"{attempts} or more attempts" if attempts == 15 else f"attempt {attempts}"
    return "open", f"{often} ({where})"
