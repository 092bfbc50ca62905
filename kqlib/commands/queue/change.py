"""`kq queue create|delete|redrive|purge`: words that change what a site has.

In:  the arguments. Out: what was done. What cannot be taken back is only said (exit code 1) until `--yes` does it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kqlib.commands.queue.ask import check_known, opened
from kqlib.commands.said import as_json, many
from kqlib.queue import Site, look
from kqlib.queue.drupal import DrupalQueue


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
            f"Site '{args.site}' has queue '{args.queue}': order {terms['order']}, {tries} attempts, {many(depth, 'item')} in it."
        )
    return 0


def queue_delete(args: argparse.Namespace) -> int:
    """The site has it no more."""
    depth = _emptied(args, lambda site: DrupalQueue(site, args.queue).delete_queue())
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
    items = f"{many(depth, 'item')} of site '{args.site}'"
    if args.json:
        print(as_json({"queue": args.queue, "site": args.site, "items": depth, what: args.yes}))
    elif args.yes:
        print(f"{done}: {items} count as done.")
    else:
        print(f"{items} in '{args.queue}' would count as done, claimed ones included. Nothing was done: add --yes.")
    return 0 if args.yes else 1


def queue_redrive(args: argparse.Namespace) -> int:
    """Dead letters go back, as new items."""
    with opened(args) as site:
        check_known(site, args.queue)
        queue = site.queue(args.queue)
        before = look.depth(site, queue.dead.name)
        most = args.n or before
        moved = queue.redrive(most) if before else 0
        left = look.depth(site, queue.dead.name)
    if args.json:
        print(as_json({"queue": args.queue, "site": args.site, "redriven": moved, "dead": left}))
    else:
        print(f"{many(moved, 'dead letter')} put back, {left} left.")
    return 0 if moved == min(most, before) else 1
