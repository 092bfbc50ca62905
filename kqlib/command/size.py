"""How large a queue must be: say its load.

In:  a load, as --items 2000/s --bytes 900 --keep 7d --handler 40ms. Out: partitions, brokers, disk, processes and threads,
each with its formula, and what limits first. It asks no cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from kqlib.command.output import answer
from kqlib.errors import NotAllowed

T = TypeVar("T")

EPILOG = """\
example: kq size --items 2000/s --bytes 900 --keep 7d --handler 40ms --sites 2
The constants, and where they were measured: docs/costs.md.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Define what can be typed after `kq size`."""
    add = parser.add_argument
    add("--items", required=True, metavar="RATE", help="items at the busiest time: 2000/s, 90/min, 500/h or 1000000/d")
    add("--bytes", required=True, metavar="SIZE", help="the data of an item: 900, 20kB or 1MB")
    add("--keep", required=True, metavar="TIME", help="how long an item stays in the log: 12h or 7d")
    add("--handler", required=True, metavar="TIME", help="how long a worker takes for an item: 40ms or 5min")
    add("--sites", type=int, default=1, metavar="N", help="how many sites work on every item (default: 1)")
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """Compute it and print it."""
    from kqlib.sizing import Load, data, rate, size, span

    if not 1 <= args.sites < 1e15:
        raise NotAllowed(f"--sites: a whole number from 1, below 1e15, not {args.sites}")
    items, keep, handler = _read(args, "items", rate), _read(args, "keep", span), _read(args, "handler", span)
    found = size(Load(items, _read(args, "bytes", data), keep, handler, args.sites))
    answer(args, found.as_dict(), found)
    return 0


def _read(args: argparse.Namespace, name: str, read: Callable[[str], T]) -> T:
    """An option's value; an error names the option."""
    try:
        return read(getattr(args, name))
    except NotAllowed as error:
        raise NotAllowed(f"--{name}: {error}") from None
