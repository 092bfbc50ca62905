"""`kq queue create|delete|redrive|purge`: words that change what a site has.

In:  the arguments. Out: what was done. What cannot be taken back is only said (exit code 1) until `--yes` does it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from kqlib.command.queue.ask import check, check_known, opened
from kqlib.queue import Site, look
from kqlib.queue.drupal import DrupalQueue
from kqlib.queue.redrive import Redriven
from kqlib.text import as_json, count


def queue_create(args: argparse.Namespace) -> int:
    """Available to this site; its order and attempts are remembered."""
    said = {"order": args.order} if args.order else {}
    if args.max_attempts is not ...:
        said["max_attempts"] = args.max_attempts
    with opened(args) as site:
        queue = site.queue(args.queue, **said)
        DrupalQueue(site, args.queue).create_queue()
        terms = {"order": queue.terms.order, "max_attempts": queue.terms.max_attempts}
        depth = look.depth(site, args.queue)
    if args.json:
        print(as_json({"queue": args.queue, "site": args.site, **terms, "depth": depth}))
    else:
        tries = terms["max_attempts"] or "no limit of"
        print(
            f"Site '{args.site}' has queue '{args.queue}': order {terms['order']}, {tries} attempts, {count(depth, 'item')} in it."
        )
    return 0


def queue_delete(args: argparse.Namespace) -> int:
    """The site has it no more."""

    def delete(site: Site) -> None:
        queue = DrupalQueue(site, args.queue)
        queue.create_queue()  # one that was used and never created has no mark yet
        queue.delete_queue()

    depth = _emptied(args, delete)
    done = f"'{args.queue}' is deleted for site '{args.site}'; its topic and records stay"
    return _said(args, depth, "deleted", done)


def queue_purge(args: argparse.Namespace) -> int:
    """Everything now in it counts as done."""
    depth = _emptied(args, lambda site: look.purge(site, args.queue))
    return _said(args, depth, "purged", f"'{args.queue}' is empty for site '{args.site}'")


def _emptied(args: argparse.Namespace, empty: Callable[[Site], None]) -> int:
    """How many items that concerns; done with --yes only."""
    with opened(args) as site:
        check_known(site, args.queue)
        depth = look.depth(site, args.queue)
        if args.yes:
            empty(site)
    return depth


def _said(args: argparse.Namespace, depth: int, what: str, done: str) -> int:
    items = f"{count(depth, 'item')} of site '{args.site}'"
    if args.json:
        print(as_json({"queue": args.queue, "site": args.site, "items": depth, what: args.yes}))
    elif args.yes:
        print(f"{done}: {items} count as done.")
    else:
        print(f"{items} in '{args.queue}' would count as done, claimed ones included. Nothing was done: add --yes.")
    return 0 if args.yes else 1


def queue_rewind(args: argparse.Namespace) -> int:
    """What somebody else's commit skipped is open again; with --forget nothing is put back. Then it is not told any more."""
    with opened(args) as site:
        check_known(site, args.queue)
        parts = look.seen(site, args.queue).items()
        told = {number: look.untold(site._notes, site.name, (args.queue, number), each) for number, (each, _) in parts}
        if args.yes:
            look.rewind(site, args.queue, back=not args.forget)
    found = [(number, one) for number, some in told.items() for one in some]
    back = 0 if args.forget else sum(one.items for _, one in found if one.why == "skipped")
    if args.json:
        rows = [{"partition": number, **one.plain()} for number, one in found]
        print(as_json({"queue": args.queue, "site": args.site, "items": back, "rewound": args.yes, "incidents": rows}))
        return 0 if args.yes or not found else 1
    for number, one in found:
        print(f"partition {number}: {one}")
    if not found:
        print(f"No incident is known in '{args.queue}' for site '{args.site}'.")
    elif args.yes:
        print(f"The site's next owner puts {count(back, 'item')} back. These incidents are not reported any more.")
    else:
        print(
            f"{count(back, 'item')} would be put back, and these incidents not reported any more. Nothing was done: add --yes."
        )
    return 0 if args.yes or not found else 1


def queue_redrive(args: argparse.Namespace) -> int:
    """Dead letters go back, as new items."""
    how: dict[str, Any] = {"ids": args.id or None, "reason": args.reason, "since": args.since}
    chooses = any(how.values())
    with opened(args) as site:
        check_known(site, args.queue)
        queue, into = site.queue(args.queue), None
        if args.into:
            check(site.cluster, args.into)
            check_known(site, args.into)
            into = site.queue(args.into)
        before = look.depth(site, queue.dead.name)
        most = args.n or max(1, before)
        how |= {"into": into, "dry_run": args.dry_run, "force": args.force}
        moved = queue.redrive(most, **how) if before or chooses else Redriven(0, {})
        left = look.depth(site, queue.dead.name)
    if args.json:
        said = {"queue": args.queue, "site": args.site, "into": args.into or args.queue, "redriven": int(moved)}
        print(as_json({**said, "dry_run": args.dry_run, "dead": left, "refused": moved.refused}))
    else:
        where = f" into '{args.into}'" if args.into else ""
        done = "would be put back" if args.dry_run else "put back"
        print(f"{count(moved, 'dead letter')} {done}{where}, {left} left.")
    well = bool(moved) and not moved.refused if chooses else moved == min(most, before)
    return 0 if well else 1
