"""`kq queue claim`: one item, held until you type ack, release or bury.

In:  lines of stdin: ack, release [SECONDS], bury [REASON], show. Out: what was done. Meanwhile the lease is extended.
The end of stdin, Ctrl-C, SIGTERM and a closed terminal release the item.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from kqlib.command import output
from kqlib.command.output import answer, tell
from kqlib.command.queue.site import opened, say_if_new
from kqlib.errors import KqError, LeaseLost, NotAllowed
from kqlib.queue import Item, Queue, arguments as rules
from kqlib.text import as_json, how_long, near

WORDS = ("ack", "release", "bury", "show")
HELP = "ack: done · release [SECONDS]: not done, back to the front or due later · bury [REASON]: to the dead letters · show"


def queue_claim(args: argparse.Namespace) -> int:
    """Claim an item, and do with it what is typed."""
    if sys.stdin is None:
        raise NotAllowed("stdin is closed, and it says what became of the item. Nothing was claimed")
    with opened(args) as site:
        say_if_new(site, args.queue)
        queue = site.queue(args.queue, on_lost=args.on_lost, **({"lease": args.lease} if args.lease else {}))
        item = queue.claim()
        if item is None:
            print("null" if args.json else f"There is nothing to claim in '{args.queue}' for site '{args.site}' now.")
            return 1
        _show(item, args.json)
        for number in (signal.SIGTERM, signal.SIGHUP):  # else the item would stay claimed until the session is over
            signal.signal(number, signal.default_int_handler)
        done = _decide(queue, item)
    answer(args, {"id": item.id, "done": done}, f"{item.id}: {done}.")
    return 0


def _show(item: Item, json: bool) -> None:
    if json:
        print(as_json(output.item(item)), flush=True)
        return
    print(f"{item.id}, attempt {item.attempt}, put {how_long(time.time() - item.created.timestamp())} ago")
    if item.key is not None:
        print(f"  key      {output.short(item.key)}")
    for name, value in item.headers.items():
        print(f"  {name:<8} {output.short(value, 100)}")
    print(f"  data     {output.short(item.data, 2_000)}", flush=True)


def _decide(queue: Queue, item: Item) -> str:
    """Read lines until one of them ends the claim. At the end of stdin, release the item. Returns what was done."""
    lines = Lines(lambda: queue.extend(item), queue.lease / 3)
    if sys.stdin.isatty():
        tell(HELP)
    try:
        while (line := lines.next()) is not None:
            word, _, rest = line.strip().partition(" ")
            try:
                if done := _do(queue, item, word, rest.strip()):
                    return done
            except LeaseLost:
                raise
            except KqError as error:
                tell(f"kq: {error}")
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            tell("")
    queue.release(item)
    return "released, since nothing was decided"


def _do(queue: Queue, item: Item, word: str, rest: str) -> str:
    """What was done; '' if that decides nothing."""
    if word == "ack":
        queue.ack(item)
        return "acked"
    if word == "release":
        delay = rules.delay(float(rest) if rest.replace(".", "", 1).isdecimal() else rest) if rest else 0.0
        queue.release(item, delay)
        return f"released, due in {delay:g} s while this site is at work" if delay else "released"
    if word == "bury":
        queue.bury(item, rest or "buried by hand")
        return f"buried, see {queue.name}.dead"
    if word == "show":
        _show(item, json=False)
    elif word:
        tell(f"kq: there is no {word!r} here{near(word, WORDS)}\n{HELP}")
    return ""


class Lines:
    """Lines of stdin. While none comes, `meanwhile` is called every so many seconds; if it raises, the waiting ends."""

    def __init__(self, meanwhile: Callable[[], object], every: float) -> None:
        self._meanwhile, self._every = meanwhile, every
        self._due = time.monotonic() + every
        self._rest = b""

    def next(self) -> str | None:
        """The next line; None at the end."""
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        while b"\n" not in self._rest:
            if select.select([sys.stdin], [], [], min(0.5, self._every))[0]:
                # not readline: it would keep lines that select does not see
                more = os.read(sys.stdin.fileno(), 4096)
                if not more:
                    line, self._rest = self._rest, b""
                    return line.decode(errors="replace") if line else None
                self._rest += more
            if time.monotonic() > self._due:
                self._due = time.monotonic() + self._every
                self._meanwhile()
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")
