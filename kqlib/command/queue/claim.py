"""`kq queue claim`: one item, held until you type what became of it.

In:  lines of stdin: ack, release [SECONDS], bury [REASON], show. Out: what was done. Its lease is prolonged while you think;
the end of stdin, Ctrl-C, SIGTERM and a closed terminal release it.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kqlib.command import near, said
from kqlib.command.queue.ask import opened, say_if_new
from kqlib.command.said import tell
from kqlib.errors import KqError, LeaseLost, NotAllowed
from kqlib.queue import Item, Queue
from kqlib.queue import arguments as rules
from kqlib.text import as_json, how_long

WORDS = ("ack", "release", "bury", "show")
HELP = "ack: done · release [SECONDS]: not done, back to the front or due later · bury [REASON]: to the dead letters · show"


def queue_claim(args: argparse.Namespace) -> int:
    """Claim, ask, do."""
    if sys.stdin is None:
        raise NotAllowed("stdin is closed, and there you say what became of the item. Nothing was claimed")
    with opened(args) as site:
        say_if_new(site, args.queue)
        queue = site.queue(args.queue, on_lost=args.on_lost, **({"lease": args.lease} if args.lease else {}))
        item = queue.claim(wait=args.wait)
        if item is None:
            print("null" if args.json else f"There is nothing to claim in '{args.queue}' for site '{args.site}' now.")
            return 1
        _show(item, args.json)
        with leaving():
            done = _decide(queue, item)
    print(as_json({"id": item.id, "done": done}) if args.json else f"{item.id}: {done}.")
    return 0


def _show(item: Item, json: bool) -> None:
    if json:
        print(as_json(said.item(item)), flush=True)
        return
    print(f"{item.id}, attempt {item.attempt}, put {how_long(time.time() - item.created.timestamp())} ago")
    if item.key is not None:
        print(f"  key      {said.short(item.key)}")
    for name, value in item.headers.items():
        print(f"  {name:<8} {said.short(value, 100)}")
    print(f"  data     {said.short(item.data, 2_000)}", flush=True)


def _decide(queue: Queue, item: Item) -> str:
    """What became of it: the first line that can be done; else it is released."""
    lines = Lines(lambda: queue.extend(item), queue.lease / 3)
    if sys.stdin.isatty():
        tell(HELP)
    try:
        while (line := lines.next("> ")) is not None:
            word, _, rest = line.strip().partition(" ")
            if not word:
                continue
            if word == "show":
                _show(item, json=False)
                continue
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


@contextmanager
def leaving() -> Iterator[None]:
    """Who ends us, and a terminal that is closed, are heard like Ctrl-C; else the item would stay out until the session is over."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, how in before.items():
            signal.signal(number, how)


def _do(queue: Queue, item: Item, word: str, rest: str) -> str:
    """'' when there is no such word."""
    if word == "ack":
        queue.ack(item)
        return "acked"
    if word == "release":
        delay = rules.delay(float(rest) if rest.replace(".", "", 1).isdecimal() else rest) if rest else 0.0
        queue.release(item, delay)
        return "released" + f", due in {delay:g} s while this site is at work" * bool(delay)
    if word == "bury":
        queue.bury(item, rest or "buried by hand")
        return f"buried, see {queue.name}.dead"
    tell(f"kq: there is no {word!r} here{near(word, WORDS)}\n{HELP}")
    return ""


class Lines:
    """Lines of stdin, with something to be done again and again while none comes; what is done may raise and so end the waiting."""

    def __init__(self, meanwhile: Callable[[], object], every: float) -> None:
        self._meanwhile, self._every, self._last = meanwhile, every, time.monotonic()
        self._rest = b""

    def next(self, prompt: str) -> str | None:
        """The next line; None at the end."""
        if sys.stdin.isatty():
            print(prompt, end="", file=sys.stderr, flush=True)
        while b"\n" not in self._rest:
            if select.select([sys.stdin], [], [], min(0.5, self._every))[0]:
                more = os.read(
                    sys.stdin.fileno(), 4096
                )  # not readline: that would keep lines which select does not see
                if not more:
                    line, self._rest = self._rest, b""
                    return line.decode(errors="replace") if line else None
                self._rest += more
            if time.monotonic() - self._last > self._every:
                self._last = time.monotonic()
                self._meanwhile()
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")
