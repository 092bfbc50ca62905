"""Records written again: `kq pipeline replay`, and what it shares with `quarantine retry`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kqlib.command.functions import function
from kqlib.command.output import NOT_DONE
from kqlib.errors import NotAllowed

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

WITH = "--with names a file and a function in it, like mend.py:fix, not {!r}"


def replay(args: argparse.Namespace, cluster: Kafka) -> int:
    """A backfill, or dead letters put back."""
    others = {"--start": args.start != "earliest", "--end": args.end != "latest", "--run": args.named is not None}
    if wrong := [name for name, typed in (others if args.dead else {"-n": args.n is not None}).items() if typed]:
        raise NotAllowed(f"{wrong[0]} goes {'without' if args.dead else 'with'} --dead")
    made = function(args.made, WITH) if args.made else None
    if args.dead:
        return written(args, _repair(args, cluster, made))
    if args.target is None:
        raise NotAllowed("where to? kq pipeline replay TOPIC TARGET, or --dead for a queue's dead letters")
    from kqlib.spark import replay, session

    how = {"transform": made, "start": args.start, "end": args.end, "run": args.named, "dry": not args.yes}
    return written(args, replay(session(cluster), cluster, args.source, args.target, **how))


def written(args: argparse.Namespace, done: object) -> int:
    """Print what was written, or would be."""
    print(done)
    if not args.yes:
        print(NOT_DONE)
    return 0 if args.yes else 1


def _repair(args: argparse.Namespace, cluster: Kafka, fix: Any) -> object:
    from kqlib.queue import Site
    from kqlib.spark import repair

    if not args.site:
        raise NotAllowed("whose dead letters? Say --site NAME, or set KQ_SITE")
    if args.target is not None:
        raise NotAllowed("dead letters go back to their own queue: no TARGET with --dead")
    with Site(cluster, args.site) as site:
        return repair(site.queue(args.source), fix or (lambda item: item.data), n=args.n, dry=not args.yes)
