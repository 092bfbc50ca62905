"""`kq queue put`: an argument, a file, or the lines of stdin become items.

In:  the arguments. Out: the ids, when the items are durable. Who only puts does not become one of the queue's sites.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from kqlib.commands.queue.ask import opened
from kqlib.commands.said import as_json, many, tell
from kqlib.errors import KqError, NotAllowed
from kqlib.queue import Put
from kqlib.queue.put import Putting

AT_ONCE = 5_000  # items with one flush
FEW = 10  # ids that a person wants to see


def queue_put(args: argparse.Namespace) -> int:
    """Put what was given, and say the ids."""
    if args.data is not None and args.file:
        raise NotAllowed("either DATA or --file is the item, not both")
    if args.data is None and not args.file:
        raise NotAllowed("what shall be put? DATA, --file FILE, or - for a line of stdin each")
    key = None if args.key is None else os.fsencode(args.key)
    headers = dict(_header(each) for each in args.header)
    puts = (Put(data, key, headers, args.delay) for data in _data(args) for _ in range(args.count))
    ids: list[str] = []
    with opened(args) as site:
        queue = Putting(site, args.queue, site._facts(args.queue)[0])
        while some := list(islice(puts, AT_ONCE)):
            try:
                ids += queue.put_many(some)
            except KqError as error:
                before = f" {many(len(ids), 'item')} of this call were put before." * bool(ids)
                raise KqError(f"{error}{before}") from None
    if args.json:
        print(as_json(ids))
    elif len(ids) <= FEW:
        print(*ids, sep="\n", end="\n" if ids else "")
    else:
        print(f"{many(len(ids), 'item')}, the first {ids[0]}, the last {ids[-1]}")
    return 0


def _data(args: argparse.Namespace) -> Iterator[bytes]:
    if args.file:
        yield Path(args.file).read_bytes()
    elif args.data != "-":
        yield os.fsencode(args.data)
    else:
        if sys.stdin.isatty():
            tell("An item a line; Ctrl-D ends.")
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise NotAllowed(f"a header is NAME=VALUE, not {text!r}")
    return name, os.fsencode(value)
