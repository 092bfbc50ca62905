"""`kq queue list|show|depth|peek`: questions. Nothing is changed, and no group is joined.

In:  the arguments. Out: tables for people, the same as JSON.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from kqlib.command import output
from kqlib.command.output import answer, tell
from kqlib.command.queue.site import opened, owners, partitions, queues, say_if_new, users
from kqlib.errors import KqError, LedgerCorrupt, LedgerLost
from kqlib.queue import Item, Site, look
from kqlib.queue.dead import DEAD
from kqlib.text import as_json, count, how_long
from kqlib.workshop.cluster.up import current

LETTER = ("kq-origin", "kq-attempts", "kq-reason")  # headers of a dead letter, in its table
PARTITION = ("partition", "low", "floor", "top", "end", "open", "attempts", "owner")


def queue_list(args: argparse.Namespace) -> int:
    """Every queue: its size and its users."""
    with current() as cluster:
        topics = cluster.describe().topics
        names, rows = queues(list(topics)), []
        if names:
            with Site(cluster, args.site) as site:
                depths = look.depths(site, [*names, *(name + DEAD for name in names)])
                rows = [_row(site, name, len(topics[name].partitions), depths) for name in names]
    shown = [[*list(row.values())[:-1], ", ".join(row["sites"]) or "–"] for row in rows]
    table = output.table(shown, ("queue", "partitions", "items", "dead", f"for {args.site}", "sites"))
    answer(args, rows, table if rows else "No queues here. Plan one and apply the plan: kq topics --help")
    return 0


def _row(site: Site, name: str, partitions: int, depths: dict[str, look.Depth]) -> dict[str, Any]:
    there = users(site, name)
    dead = _depth(name + DEAD, depths) if site.name in there else None  # letters are those of a site
    row = {"queue": name, "partitions": partitions, "items": _depth(name, depths), "dead": dead}
    return row | {"status": _status(site, name), "sites": there}


def _status(site: Site, name: str) -> str:
    used = "used" if site.name in users(site, name) else "never used"
    return str(site._notes.get(site.name, name, "status") or used)


def _depth(name: str, depths: dict[str, look.Depth]) -> int | None:
    """None, with a notice, where a state is gone or cannot be read: the other queues can."""
    if isinstance(depth := depths.get(name), LedgerCorrupt | LedgerLost):
        tell(f"kq: '{name}': {depth}")
        return None
    return depth


def queue_depth(args: argparse.Namespace) -> int:
    """A number."""
    with opened(args) as site:
        say_if_new(site, args.queue)
        depth = look.depth(site, args.queue)
    answer(args, {"queue": args.queue, "site": args.site, "depth": depth}, depth)
    return 0


# --- peek -------------------------------------------------------------------------------------------------------------


def queue_peek(args: argparse.Namespace) -> int:
    """The first items."""
    with opened(args) as site:
        say_if_new(site, args.queue)
        items = look.peek(site, args.queue, args.n or 10)
    if args.queue.endswith(DEAD):
        rows, columns = [_letter_row(each) for each in items], ("dead letter", "was", "attempts", "reason", "data")
    else:
        rows, columns = [_item_row(each) for each in items], ("item", "age", "key", "headers", "data")
    empty = f"'{args.queue}' is empty for site '{args.site}'."
    answer(args, [output.item(each) for each in items], output.table(rows, columns) if items else empty)
    return 0 if items else 1


def _letter_row(item: Item) -> list[str]:
    headers = [output.short(item.headers.get(name), 60) for name in LETTER]
    return [item.id, *headers, output.short(item.data, 30)]


def _item_row(item: Item) -> list[str]:
    age = how_long(time.time() - item.created.timestamp())
    return [item.id, age, output.short(item.key, 24), output.headers(item.headers), output.short(item.data)]


# --- show -------------------------------------------------------------------------------------------------------------


def queue_show(args: argparse.Namespace) -> int:
    """One queue, from all sides."""
    with opened(args) as site:
        say_if_new(site, args.queue)
        shown = _shown(site, args.queue)
    if args.json:
        print(as_json(shown))
        return 0
    terms = shown["terms"]
    remembered = f"order {terms['order']}, {terms['max_attempts'] or 'no limit of'} attempts" if terms else ""
    print(f"{shown['queue']}, site {shown['site']}: {shown['status']}, {remembered or 'nothing is remembered'}")
    oldest = f", the oldest {how_long(shown['oldest'])} old" if shown["oldest"] is not None else ""
    claimed = f"; {shown['claimed']} of them handed out or passed over" if shown["claimed"] else ""
    print(f"  items    {shown['depth']}{oldest}{claimed}")
    if shown["dead"] is not None:
        print(f"  dead     {shown['dead']}")
    print(f"  lost     {shown['lost']}")
    for each in shown["incidents"]:
        print(f"           partition {each['partition']}: {each['what']}")
    if shown["incidents"]:
        print(f"           → kq queue rewind {shown['queue']} --site {shown['site']}")
    if shown["blocked"]:
        print(f"  blocked  {shown['blocked']}")
    for name, depth in shown["sites"].items():
        if name != shown["site"]:
            print(f"  site     {name}: {'its state could not be read' if depth is None else count(depth, 'item')}")
    rows = [list(part.values()) for part in shown["partitions"]]
    print(output.table(rows, (*PARTITION[:6], "tries", "owner")))
    return 0


def _shown(site: Site, name: str) -> dict[str, Any]:
    """Everything that any process can see."""
    there, owned = list(partitions(site, name)), owners(site.cluster, site.name, name) or {}
    depths = look.depths(site, [name, name + DEAD])
    sites = {each: _depth_for(site, each, name) for each in users(site, name)}
    incidents = [(part.number, one) for part in there for one in part.incidents]
    full = [part.number for part in there if not part.ledger.space() and part.seen.end > part.ledger.top]
    parts = []
    for number, seen, floor, ledger, _ in there:
        tries = max((attempts for _, _, attempts in ledger.runs()), default=0)
        row = (number, seen.low, floor, ledger.top, seen.end, ledger.open, tries, owned.get(number, "–"))
        parts.append(dict(zip(PARTITION, row, strict=True)))
    return {
        "queue": name,
        "site": site.name,
        "status": _status(site, name),
        "terms": site._notes.get(site.name, name, "terms"),
        "topic_id": next((part.seen.topic_id for part in there), ""),
        "depth": look.depth(site, name),
        "claimed": sum(part.ledger.open for part in there),
        "dead": _depth(name + DEAD, depths),
        "oldest": look.oldest(site, name),
        "lost": sum(one.lost for _, one in incidents),
        "incidents": [{"partition": number, **one.plain(), "what": str(one)} for number, one in incidents],
        "blocked": f"partition {full[0]}: the ledger is full of items that are out or wait" if full else "",
        "sites": sites,
        "partitions": parts,
    }


def _depth_for(site: Site, other: str, name: str) -> int | None:
    """The depth for one of its sites; None, with a notice, if it cannot be known."""
    if other == site.name:
        return look.depth(site, name)
    try:
        with Site(site.cluster, other) as theirs:
            return _depth(name, look.depths(theirs, [name]))
    except KqError as error:
        tell(f"kq: site '{other}': {error}")
        return None
