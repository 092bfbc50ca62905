"""Kill a worker at each of its requests to Kafka, and judge it.

In:  a command behind `--`, which reads KQ_TOPIC and writes its results to KQ_RESULTS through KQ_BOOTSTRAP. Out: a table, notes, and
the shortest failing history. Exit status: 0 nothing went wrong, 1 something did (lost, doubled, out of order,
died, or what the user's judge says), 2 an error, or a run that could not be judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kqlib.command.output import tell
from kqlib.errors import NotAllowed

EPILOG = """\
The command finds its work in the environment: KQ_BOOTSTRAP, KQ_TOPIC,
KQ_RESULTS, KQ_GROUP, KQ_TXN (a transactional id).
example: kq crash -- python worker.py
A result belongs to the item that the last whole number in its value names.
"""
NAMED = "{!r} names no function; write the file and the name, as in my.py:judge"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Define what can be typed after `kq crash`."""
    parser.usage = "kq crash [OPTIONS] -- COMMAND …"
    add = parser.add_argument
    add("--items", type=int, default=4, metavar="N", help="how many items each run has (default: 4)")
    kinds = ("kill", "stop", "drop-answer", "cut", "error")
    add("--accident", choices=kinds, default="kill", help="what happens at each request (default: kill)")
    add("--points", action="store_true", help="only list the points, one run for each")
    add("--only", action="append", default=[], metavar="POINT", help="only this one, like Produce:2:after; repeatable")
    add("--sample", type=int, metavar="N", help="only so many, drawn at random")
    add("--seed", type=int, default=0, metavar="N", help="another number draws others (default: 0)")
    add("--all", action="store_true", help="also at all other kinds of requests: polls, heartbeats, metadata")
    add("--twice", action="store_true", help="a second accident after each first one (50 pairs, unless --sample says)")
    add(
        "--quiet",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="a run without work for so long is over (default: 3); KQ_PATIENCE multiplies it",
    )
    add("--pause", type=float, default=20.0, metavar="SECONDS", help="with --accident stop: for how long (default: 20)")
    add("--takeover", action="store_true", help="with --accident stop: a second worker starts meanwhile")
    add("--patient", action="store_true", help="wait for the session of a dead member instead of leaving in its name")
    add("--at-once", type=int, metavar="N", help="runs side by side (default: as many as cores)")
    add(
        "--allow", default="", metavar="WHAT", help="what is no failure: lost, doubled, order, judge, died; with commas"
    )
    add("--id", metavar="FILE:NAME", help="a function of a result's value: the number of its item")
    add(
        "--judge",
        metavar="FILE:NAME",
        help="a function of items and results, (key, value) each: complaints, or nothing",
    )
    add("--html", metavar="FILE", help="write the report as one page")
    add("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Run it all, print the report."""
    if not args.rest:
        raise NotAllowed("which command? It stands behind --, as in: kq crash -- python worker.py")
    if args.html and not Path(args.html).parent.is_dir():
        raise NotAllowed(f"there is no directory {Path(args.html).parent} for the report")
    from kqlib.command.functions import function
    from kqlib.workshop.crash import crash
    from kqlib.workshop.crash.verdict import last_number

    report = crash(
        args.rest,
        args.items,
        accident=args.accident,
        only=args.only,
        sample=args.sample,
        seed=args.seed,
        every=args.all,
        twice=args.twice,
        quiet=args.quiet,
        pause=args.pause,
        takeover=args.takeover,
        patient=args.patient,
        allow=[word.strip() for word in args.allow.split(",") if word.strip()],
        item_of=function(args.id, NAMED) if args.id else last_number,
        judge=function(args.judge, NAMED) if args.judge else None,
        at_once=args.at_once,
        points_only=args.points,
    )
    if args.html:
        Path(args.html).write_text(report.page(), encoding="utf-8")
        tell(f"Written: {args.html}")
    if args.json:
        print(report.as_json())
    elif args.points:
        print("\n".join("+".join(map(str, points)) for points in report.points))
    else:
        print(report)
    return 0 if args.points else report.status
