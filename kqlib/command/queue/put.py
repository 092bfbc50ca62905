"""`kq queue put`: an argument, a file, or the lines of stdin become items.

In:  the arguments. Out: the ids, when the items are durable. Who only puts does not become one of the queue's sites.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from kqlib.command.queue.ask import opened
from kqlib.command.said import tell
from kqlib.errors import KqError, NotAllowed
from kqlib.queue import Put
from kqlib.queue.put import Putting
from kqlib.text import as_json, count

AT_ONCE = 5_000  # items with one flush
FEW = 10  # ids that a person wants to see


def queue_put(args: argparse.Namespace) -> int:
    """Put what was given, and say the ids."""
    if args.data is not None and args.file:
        raise NotAllowed("either DATA or --file is the item, not both")
    if args.data is None and not args.file:
        raise NotAllowed("what shall be put? DATA, --file FILE, or - for a line of stdin each")
    key = None if args.key is None else os.fsencode(args.key)
    headers, source = _headers(args.header), _data(args)
    puts = (Put(data, key, headers, args.delay) for data in source for _ in range(args.count))
    ids: list[str] = []
    with opened(args) as site:
        queue = Putting(site, args.queue, site._facts(args.queue)[0])
        while some := list(islice(puts, AT_ONCE)):
            try:
                ids += queue.put_many(some)
            except KqError as error:
                before = f" {count(len(ids), 'item')} of this call were put before." * bool(ids)
                raise KqError(f"{error}{before}") from None
    if args.json:
        print(as_json(ids))
    elif len(ids) <= FEW:
        print(*ids, sep="\n", end="\n" if ids else "")
    else:
        print(f"{count(len(ids), 'item')}, the first {ids[0]}, the last {ids[-1]}")
    return 0


def _data(args: argparse.Namespace) -> Iterable[bytes]:
    if args.file:
        return [_held(args.file)]
    if args.data != "-":
        return [os.fsencode(args.data)]
    if sys.stdin is None:
        raise NotAllowed("stdin is closed, and - reads its lines. Nothing was put")
    return _lines()


def _held(file: str) -> bytes:
    """What the file holds; a wrong name is heard of before a cluster is asked."""
    try:
        return Path(file).read_bytes()
    except FileNotFoundError:
        why = f"there is no file {file!r}"
    except OSError as error:
        why = f"{file!r} cannot be read ({error.strerror})"
    raise NotAllowed(f"{why}. Nothing was put")


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
