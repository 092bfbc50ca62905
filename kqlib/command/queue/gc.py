"""`kq queue gc`: what every site is done with goes out of the log; said first, done with `--yes`.

In:  the arguments. Out: from which offset to which, by partition, and who holds the rest.
"""

from __future__ import annotations

import argparse

from kqlib.command.queue.ask import opened
from kqlib.command.said import table
from kqlib.queue import gc
from kqlib.text import as_json, count


def queue_gc(args: argparse.Namespace) -> int:
    """Look, and with --yes delete."""
    with opened(args) as site:
        ask = gc.collect if args.yes else gc.look
        garbage = ask(site, args.queue, args.forget)
        strangers = [] if args.yes or not garbage.records else gc.strangers(site, args.queue)
    rows = [
        {"partition": number, "from": low, "to": floor, "records": floor - low, "held_by": garbage.holding.get(number)}
        for number, (low, floor) in garbage.ranges.items()
    ]
    if args.json:
        said = {"queue": args.queue, "records": garbage.records, "deleted": garbage.deleted, "partitions": rows}
        print(as_json(said | {"forgotten": args.forget, "strangers": strangers}))
    else:
        print(table([list(row.values()) for row in rows], ("partition", "from", "to", "records", "lowest floor")))
        print(_sentence(args, garbage))
        for name in strangers:
            print(f"It would be refused: '{name}' reads '{args.queue}' as well and is no site.")
    return 0 if garbage.deleted or not (garbage.records or args.forget) else 1


def _sentence(args: argparse.Namespace, garbage: gc.Garbage) -> str:
    forgotten = "".join(f", site '{name}' {{}} forgotten" for name in args.forget)
    if garbage.deleted:
        return f"{count(garbage.records, 'record')} deleted{forgotten.format(*['is'] * len(args.forget))}."
    if not garbage.records and not args.forget:
        return "There is nothing that every site is done with."
    would = forgotten.format(*["would be"] * len(args.forget))
    return f"{count(garbage.records, 'record')} would be deleted{would}, for every reader. Nothing was done: add --yes."
