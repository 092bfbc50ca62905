"""`kq queue create|delete|put|redrive|purge|rewind|gc`: words that change something.

In:  the arguments. Out: what was done. `create`, `put` and `redrive` add, and act at once. What the other words would do is only
described (exit status 1) until `--yes` does it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from kqlib.command.output import NOT_DONE, answer, table, tell
from kqlib.command.queue.site import check, check_known, opened
from kqlib.errors import KqError, NotAllowed
from kqlib.queue import Put, Site, gc, look
from kqlib.queue.drupal import DrupalQueue
from kqlib.queue.put import Putting
from kqlib.queue.redrive import Redriven
from kqlib.text import as_json, count

AT_ONCE = 5_000  # items with one flush
FEW = 10  # ids that a person wants to see

# --- put --------------------------------------------------------------------------------------------------------------


def queue_put(args: argparse.Namespace) -> int:
    """An argument, a file, or the lines of stdin become items. Print the ids when the items are durable."""
    if args.data is not None and args.file:
        raise NotAllowed("either DATA or --file is the item, not both")
    if args.data is None and not args.file:
        raise NotAllowed("what shall be put? DATA, --file FILE, or - for a line of stdin each")
    key = None if args.key is None else os.fsencode(args.key)
    headers, source = _headers(args.header), _data(args)
    puts = (Put(data, key, headers, args.delay) for data in source)
    ids: list[str] = []
    with opened(args) as site:
        queue = Putting(site, args.queue, site._facts(args.queue)[0])
        while some := list(islice(puts, AT_ONCE)):
            try:
                ids += queue.put_many(some)
            except KqError as error:
                before = f" {count(len(ids), 'item')} of this call were put before." if ids else ""
                raise KqError(f"{error}{before}") from None
    if args.json:
        print(as_json(ids))
    elif len(ids) <= FEW:
        print(*ids, sep="\n", end="\n" if ids else "")
    else:
        print(f"{count(len(ids), 'item')}, the first {ids[0]}, the last {ids[-1]}")
    return 0


def _data(args: argparse.Namespace) -> Iterable[bytes]:
    """The payloads. A wrong file name is an error before a cluster is asked."""
    if args.file:
        try:
            return [Path(args.file).read_bytes()]
        except FileNotFoundError:
            raise NotAllowed(f"there is no file {args.file!r}. Nothing was put") from None
        except OSError as error:
            raise NotAllowed(f"{args.file!r} cannot be read ({error.strerror}). Nothing was put") from None
    if args.data != "-":
        return [os.fsencode(args.data)]
    if sys.stdin is None:
        raise NotAllowed("stdin is closed, and - reads its lines. Nothing was put")
    return _lines()


def _lines() -> Iterator[bytes]:
    if sys.stdin.isatty():
        tell("An item a line; Ctrl-D ends.")
    try:
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise NotAllowed(f"stdin cannot be read ({error.strerror})") from None


def _headers(given: list[str]) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise NotAllowed(f"a header is NAME=VALUE, not {text!r}")
        if name in headers:
            raise NotAllowed(f"header {name!r} is given twice, and an item has one of each name")
        headers[name] = os.fsencode(value)
    return headers


# --- what a site has --------------------------------------------------------------------------------------------------


def queue_create(args: argparse.Namespace) -> int:
    """The queue is available to this site; its order and attempts are remembered."""
    asked: dict[str, Any] = {"order": args.order} if args.order else {}
    if args.max_attempts is not ...:
        asked["max_attempts"] = args.max_attempts
    with opened(args) as site:
        queue = site.queue(args.queue, **asked)
        DrupalQueue(site, args.queue).create_queue()
        order, most = queue.terms.order, queue.terms.max_attempts
        depth = look.depth(site, args.queue)
    made = {"queue": args.queue, "site": args.site, "order": order, "max_attempts": most, "depth": depth}
    terms = f"order {order}, {most or 'no limit of'} attempts"
    answer(args, made, f"Site '{args.site}' has queue '{args.queue}': {terms}, {count(depth, 'item')} in it.")
    return 0


def queue_delete(args: argparse.Namespace) -> int:
    """Mark the queue deleted for this site."""

    def delete(site: Site) -> None:
        queue = DrupalQueue(site, args.queue)
        queue.create_queue()  # one that was used and never created has no mark yet
        queue.delete_queue()

    return _emptied(args, delete, "deleted", "'{queue}' {be} deleted for site '{site}'; its topic and records stay")


def queue_purge(args: argparse.Namespace) -> int:
    """Everything now in it counts as done."""
    return _emptied(args, lambda site: look.purge(site, args.queue), "purged", "'{queue}' {be} empty for site '{site}'")


def _emptied(args: argparse.Namespace, empty: Callable[[Site], None], what: str, sentence: str) -> int:
    """With --yes, empty the queue; without, print what that would do. sentence: with a place for 'is' or 'would be'."""
    with opened(args) as site:
        check_known(site, args.queue)
        depth = look.depth(site, args.queue)
        if args.yes:
            empty(site)
    changed = sentence.format(queue=args.queue, site=args.site, be="is" if args.yes else "would be")
    effect = "marked done." if args.yes else f"would be marked done, claimed ones included. {NOT_DONE}"
    text = f"{changed}. {count(depth, 'item')} {effect}"
    answer(args, {"queue": args.queue, "site": args.site, "items": depth, what: args.yes}, text)
    return 0 if args.yes else 1


def queue_rewind(args: argparse.Namespace) -> int:
    """Put back what another program's commit skipped (with --forget: nothing), and report these incidents no more."""
    with opened(args) as site:
        check_known(site, args.queue)
        parts = look.seen(site, args.queue).items()
        reported = {n: look.untold(site._notes, site.name, (args.queue, n), each) for n, (each, _) in parts}
        if args.yes:
            look.rewind(site, args.queue, back=not args.forget)
    found = [(number, one) for number, some in reported.items() for one in some]
    back = 0 if args.forget else sum(one.items for _, one in found if one.why == "skipped")
    if args.json:
        rows = [{"partition": number, **one.plain()} for number, one in found]
        print(as_json({"queue": args.queue, "site": args.site, "items": back, "rewound": args.yes, "incidents": rows}))
        return 0 if args.yes or not found else 1
    for number, one in found:
        print(f"partition {number}: {one}")
    items = count(back, "item")
    if not found:
        print(f"No incident is known in '{args.queue}' for site '{args.site}'.")
    elif args.yes:
        print(f"The site's next owner puts {items} back. These incidents are not reported any more.")
    else:
        print(f"{items} would be put back, and these incidents not reported any more. {NOT_DONE}")
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
    row = {"queue": args.queue, "site": args.site, "into": args.into or args.queue, "redriven": int(moved)}
    row |= {"dry_run": args.dry_run, "dead": left, "refused": moved.refused}
    where = f" into '{args.into}'" if args.into else ""
    done = "would be put back" if args.dry_run else "put back"
    answer(args, row, f"{count(moved, 'dead letter')} {done}{where}, {left} left.")
    well = bool(moved) and not moved.refused if chooses else moved == min(most, before)
    return 0 if well else 1


# --- the log ----------------------------------------------------------------------------------------------------------


def queue_gc(args: argparse.Namespace) -> int:
    """Show what every site is done with; with --yes, delete it from the log."""
    with opened(args) as site:
        ask = gc.collect if args.yes else gc.dry_run
        garbage = ask(site, args.queue, args.forget)
        strangers = [] if args.yes or not garbage.offsets else gc.strangers(site, args.queue)
    rows = [
        {"partition": number, "from": low, "to": floor, "offsets": floor - low, "held_by": garbage.holding.get(number)}
        for number, (low, floor) in garbage.ranges.items()
    ]
    if args.json:
        found = {"queue": args.queue, "offsets": garbage.offsets, "deleted": garbage.deleted, "partitions": rows}
        print(as_json(found | {"forgotten": args.forget, "strangers": strangers}))
    else:
        print(table([list(row.values()) for row in rows], ("partition", "from", "to", "offsets", "lowest floor")))
        print(_sentence(garbage, args.forget))
        for name in strangers:
            print(f"It would be refused: '{name}' reads '{args.queue}' as well and is no site.")
    return 0 if garbage.deleted or not (garbage.offsets or args.forget) else 1


def _sentence(garbage: gc.Garbage, forget: list[str]) -> str:
    records = f"Records of {count(garbage.offsets, 'offset')}"
    if garbage.deleted:
        return f"{records} deleted{''.join(f', site {name!r} is forgotten' for name in forget)}."
    if not garbage.offsets and not forget:
        return "There is nothing that every site is done with."
    forgotten = "".join(f", site {name!r} would be forgotten" for name in forget)
    return f"{records} would be deleted{forgotten}, for every reader. {NOT_DONE}"
