"""`kq queue list|show|depth|peek`: questions; nothing is changed and no group is joined.

In:  the arguments. Out: tables for people, the same as JSON.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace
from typing import Any, cast

from kqlib.command import said
from kqlib.command.queue.ask import noted, opened, owners, partitions, queues, say_if_new, users
from kqlib.command.said import tell
from kqlib.errors import KqError, LedgerCorrupt, LedgerLost
from kqlib.queue import Site, look, state
from kqlib.queue.dead import DEAD
from kqlib.text import as_json, count, how_long
from kqlib.workshop.cluster import up

STORY = ("kq-origin", "kq-attempts", "kq-reason")  # of a dead letter, in its table


def queue_list(args: argparse.Namespace) -> int:
    """Every queue: its size and its users."""
    with up.current() as cluster:
        topics = cluster.describe().topics
        names, rows = queues(list(topics)), []
        if names:
            with Site(cluster, args.site) as site:
                depths = look.depths(site, [*names, *(name + DEAD for name in names)])
                rows = [_row(site, name, len(topics[name].partitions), depths) for name in names]
    if args.json:
        print(as_json(rows))
    elif rows:
        shown = [[*list(row.values())[:-1], ", ".join(row["sites"]) or "–"] for row in rows]
        print(said.table(shown, ("queue", "partitions", "items", "dead", f"for {args.site}", "sites")))
    else:
        print("No queues here. Plan one and apply the plan: kq topics --help")
    return 0


def _row(site: Site, name: str, partitions: int, depths: dict[str, look.Depth]) -> dict[str, Any]:
    known = noted(site, name)
    status = site._notes.get(site.name, name, "status") or ("used" if site.name in known else "never used")
    row = {"queue": name, "partitions": partitions, "items": _depth(name, depths), "dead": _depth(name + DEAD, depths)}
    return row | {"status": status, "sites": known}


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
    print(as_json({"queue": args.queue, "site": args.site, "depth": depth}) if args.json else depth)
    return 0


# --- peek -------------------------------------------------------------------------------------------------------------


def queue_peek(args: argparse.Namespace) -> int:
    """The first items."""
    with opened(args) as site:
        say_if_new(site, args.queue)
        items = look.peek(site, args.queue, args.n or 10)
    if args.json:
        print(as_json([said.item(each) for each in items]))
    elif not items:
        print(f"'{args.queue}' is empty for site '{args.site}'.")
    elif args.queue.endswith(DEAD):
        rows = [[each.id, *(said.short(each.headers.get(name), 60) for name in STORY)] for each in items]
        rows = [[*row, said.short(each.data, 30)] for row, each in zip(rows, items, strict=True)]
        print(said.table(rows, ("dead letter", "was", "attempts", "reason", "data")))
    else:
        now = time.time()
        rows = [
            [each.id, how_long(now - each.created.timestamp()), said.short(each.key, 24), said.headers(each.headers)]
            for each in items
        ]
        rows = [[*row, said.short(each.data)] for row, each in zip(rows, items, strict=True)]
        print(said.table(rows, ("item", "age", "key", "headers", "data")))
    return 0 if items else 1


# --- show -------------------------------------------------------------------------------------------------------------


def queue_show(args: argparse.Namespace) -> int:
    """One queue, from all sides."""
    with opened(args) as site:
        say_if_new(site, args.queue)
        shown = _shown(site, args.queue)
    if args.json:
        print(as_json(shown))
        return 0
    print(f"{shown['queue']}, site {shown['site']}: {shown['status']}, {_terms(shown)}")
    oldest = f", the oldest {how_long(shown['oldest'])} old" if shown["oldest"] is not None else ""
    claimed = f"; {shown['claimed']} of them handed out or passed over" * bool(shown["claimed"])
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
    print(said.table(rows, ("partition", "low", "floor", "top", "end", "open", "tries", "who has it")))
    return 0


def _terms(shown: dict[str, Any]) -> str:
    terms = shown["terms"]
    if terms is None:
        return "nothing is remembered"
    return f"order {terms['order']}, {terms['max_attempts'] or 'no limit of'} attempts"


def _shown(site: Site, name: str) -> dict[str, Any]:
    """Everything that can be known from outside of the processes that work on it."""
    there, owned = list(partitions(site, name)), owners(site.cluster, site.name, name) or {}
    first = look.peek(site, name, 1)
    parts, told, claimed, blocked = [], list[dict[str, Any]](), 0, ""
    for number, each, floor, ledger, incidents in there:
        for one in incidents:
            told.append({"partition": number, **one.plain(), "lost": one.lost, "what": str(one)})
        claimed += ledger.open
        tries = max((attempts for _, _, attempts in ledger.runs()), default=0)
        if not ledger.room() and each.end > ledger.top:
            blocked = f"partition {number}: the ledger is full of items that are out or wait"
        who = owned.get(number, "–")
        parts.append([number, each.low, floor, ledger.top, each.end, ledger.open, tries, who])
    names = ("partition", "low", "floor", "top", "end", "open", "attempts", "owner")
    known, topics = users(site, name), site.cluster.describe().topics
    return {
        "queue": name,
        "site": site.name,
        "status": site._notes.get(site.name, name, "status") or ("used" if site.name in known else "never used"),
        "terms": site._notes.get(site.name, name, "terms"),
        "topic_id": next((each.seen.topic_id for each in there), ""),
        "depth": look.depth(site, name),
        "claimed": claimed,
        "dead": _depth(name + DEAD, look.depths(site, [name + DEAD])) if name + DEAD in topics else None,
        "oldest": time.time() - first[0].created.timestamp() if first else None,
        "lost": sum(each.pop("lost") for each in told),
        "incidents": told,
        "blocked": blocked,
        "sites": {each: _depth_for(site, each, name) for each in known},
        "partitions": [dict(zip(names, part, strict=True)) for part in parts],
    }


def _depth_for(site: Site, other: str, name: str) -> int | None:
    """How much another site has to do there: asked in its name, with our reader and notes. None, with a notice: unknown."""
    looker = state.Looker(site.cluster, other, wait=False)
    try:
        asks = SimpleNamespace(
            cluster=site.cluster,
            name=other,
            _notes=site._notes,
            _reader=site._reader,
            _looker=looker,
            _member=site._member,
        )
        return _depth(name, look.depths(cast(Site, asks), [name]))
    except KqError as error:
        if other == site.name:
            raise
        tell(f"kq: site '{other}': {error}")
        return None
    finally:
        looker.close()
