"""Put items into queues, see, claim and work on them.

In:  what is typed after `kq queue`. Out: answers on stdout (`--json`: for programs), notices on stderr, an exit status.
This module defines what can be typed. The function `queue_WORD` of the module that `WORDS` names does it.
The site is `--site`, then KQ_SITE, then "default". Depth and state belong to a site. A command that only puts or looks does not make
the site a user of the queue.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any

from kqlib.command.output import YES
from kqlib.errors import NotAllowed

WORDS = {
    "list": ("look", "every queue here: how much is in it, and which sites use it"),
    "show": ("look", "one queue: its settings, its partitions, and who owns them"),
    "depth": ("look", "how many items are not done, claimed ones included"),
    "peek": ("look", "the first items, without claiming them"),
    "story": ("story", "everything that is known about one item, as a timeline"),
    "create": ("change", "make a planned queue available to a site"),
    "delete": ("change", "mark a queue deleted for a site; its items count as done"),
    "put": ("change", "put an item, a file as one item, or each line of stdin as one"),
    "claim": ("claim", "claim one item; you type ack, release or bury"),
    "work": ("work", "run a command for each item"),
    "redrive": ("change", "put dead letters back"),
    "purge": ("change", "mark every item that is in it now as done"),
    "rewind": ("change", "put back items that another program's commit skipped"),
    "gc": ("change", "delete records from the log that every site is done with"),
}
EPILOG = """\
examples
  kq queue put football '{"goal": "ARS"}' --key ARS-CHE
  seq 1000 | kq queue put football -
  kq queue work football --threads 4 -- ./score.sh
  kq queue story football/0/41
The site is --site, then KQ_SITE, then "default".
"""
PLANNED = "The topic must be there: plan it and apply the plan (kq topics --help). Nothing creates topics at run time."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Define what can be typed after `kq queue`."""
    parser.usage = "kq queue WORD …"
    under = parser.add_subparsers(prog="kq queue", metavar="WORD", dest="word", required=True, title="words")
    add = {name: _word(under, name, text) for name, (_, text) in WORDS.items()}
    for name, queue in add.items():
        if name == "story":
            queue("id", metavar="ID", help="topic/partition/offset, as put and peek show it")
        elif name != "list":
            queue("queue", metavar="QUEUE", help="the queue's name, which is also its topic's")
    for name in ("delete", "purge", "rewind", "gc"):
        add[name]("--yes", "-y", **YES)
    for name in ("peek", "redrive"):
        most = "how many at most (default: 10)" if name == "peek" else "how many at most (default: all)"
        add[name]("-n", dest="n", type=_rule("count", _whole, "n"), metavar="N", help=most)
    add["create"]("--order", choices=("any", "key"), help="key: at most one item of a key is out (default: any)")
    text = "after so many attempts an item becomes a dead letter; none: never (default: 5)"
    add["create"]("--max-attempts", type=_rule("max_attempts", _attempts), default=..., metavar="N", help=text)
    text = "put nothing back; stop reporting these incidents"
    add["rewind"]("--forget", action="store_true", help=text)
    text = "do not wait for this site, which is gone for good; repeatable"
    add["gc"]("--forget", action="append", default=[], metavar="SITE", help=text)
    _put(add["put"])
    _choose(add["redrive"])
    _take(add["claim"], add["work"])


def _word(under: Any, name: str, text: str) -> Callable[..., Any]:
    """A parser with what all words take; how to add an argument to it."""
    more = {"usage": "kq queue work [options] QUEUE -- CMD [ARGS…]"} if name == "work" else {}
    epilog = PLANNED if name == "create" else None
    parser = under.add_parser(name, help=text, epilog=epilog, **more)
    site = os.environ.get("KQ_SITE") or "default"
    parser.add_argument("--site", default=site, type=_rule("site_name"), metavar="SITE", help=f"the site (now: {site})")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add: Callable[..., Any] = parser.add_argument
    return add


def _put(add: Callable[..., Any]) -> None:
    add("data", nargs="?", metavar="DATA", help="the item; - takes each line of stdin as an item")
    add("--file", metavar="FILE", help="this file's content is the item")
    add("--key", help="items with the same key go to the same partition")
    add("--header", action="append", default=[], metavar="NAME=VALUE", help="a header of the item; repeatable")
    add(
        "--delay",
        type=_rule("delay", _number),
        default=0.0,
        metavar="SECONDS",
        help="no claim gets it earlier; at most 900",
    )


def _choose(add: Callable[..., Any]) -> None:
    text = "the id of a dead letter or of its item; repeatable"
    add("--id", action="append", default=[], type=_id, metavar="ID", help=text)
    add("--reason", metavar="TEXT", help="only those whose reason has this text, such as an exception's name")
    add("--since", type=_moment, metavar="TIME", help="only those buried since then, as in 2026-05-01T18:30")
    add("--into", metavar="QUEUE", help="put them into another queue")
    add("--dry-run", action="store_true", help="change nothing, print how many")
    add("--force", action="store_true", help="also those that were dead three times")


def _take(claim: Callable[..., Any], work: Callable[..., Any]) -> None:
    text = "if the site's state is lost: earliest takes every item in the log, latest only new ones (default: an error)"
    for add in (claim, work):
        add("--on-lost", choices=("earliest", "latest"), default="raise", help=text)
    claim("--lease", type=_rule("lease", _number), metavar="SECONDS", help="extended until you decide (default: 30)")
    text = "commands that run at the same time (default: 1)"
    work("--threads", type=_rule("count", _whole, "threads"), default=1, metavar="N", help=text)
    text = "wait before the second attempt, doubled each time (default: 1)"
    work("--retry", type=_rule("delay", _number), default=1.0, metavar="SECONDS", help=text)
    text = "bury after so many attempts (default: the queue's own number)"
    work("--max-attempts", type=_rule("max_attempts", _attempts), metavar="N", help=text)
    work("--until-empty", action="store_true", help="end when nothing is left (default: at SIGTERM or Ctrl-C)")


# --- numbers and names, checked before a cluster is asked: the queue's own sentences ----------------------------------


def _rule(name: str, read: Callable[[str], Any] = str, *what: str) -> Callable[[str], Any]:
    """An argument's type: one of the queue's own rules, which is imported when it is used."""

    def checked(text: str) -> Any:
        from kqlib.queue import arguments as rules

        return getattr(rules, name)(*what, read(text))

    return checked


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _whole(text: str) -> Any:
    return int(text) if text.isdecimal() else text


def _attempts(text: str) -> Any:
    return None if text == "none" else _whole(text)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()  # without a zone it is this machine's time
    except (ValueError, OverflowError):
        raise NotAllowed(f"since is a time like 2026-05-01T18:30 or 2026-05-01T18:30+02:00, not {text!r}") from None


def _id(text: str) -> str:
    from kqlib.queue import look

    look.place(text)
    return text


def run(args: argparse.Namespace) -> int:
    """Do what was typed."""
    module = import_module(f"{__name__}.{WORDS[args.word][0]}")
    code: int = getattr(module, f"queue_{args.word}")(args)
    return code
