"""A running system with hidden faults: find them, repair them.

In:  a seed, then answers. Out: what runs, and a debrief. The system is on a cluster of its own, that of `kq up`, until `end`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kqlib.command.output import answer, tell
from kqlib.errors import NotAllowed

EPILOG = """\
example
  kq gameday start --seed 7
  kq gameday status
  kq gameday answer quota --evidence \\
    "$(kq kafka configs --describe --entity-type clients)"
  kq gameday restart mover
  kq gameday end --html debrief.html
All commands of `kq` work on the game's cluster. The rules:
docs/how-to/game-day.md
"""
STORY = """\
A system runs: three brokers, a feed with an outbox, the queue football, two sites with two workers each, virtual queues, standings.
{faults} in {minutes:g} minutes. Find each, say what you found (kq gameday answer), repair it. See first: kq gameday status
Commands of kq find the cluster unless KQ_BOOTSTRAP names another one. This line names the game's, for all programs:"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Define what can be typed after `kq gameday`."""
    parser.usage = "kq gameday WORD …"
    under = parser.add_subparsers(prog="kq gameday", title="words", metavar="WORD", dest="word", required=True)
    add = under.add_parser("start", help="start the system").add_argument
    add("--seed", type=int, default=7, metavar="N", help="another number hides other faults (default: 7)")
    add("--faults", type=int, default=3, metavar="N", help="how many (default: 3)")
    add("--minutes", type=float, default=30.0, metavar="M", help="how long the game is (default: 30)")
    under.add_parser("status", help="print the time, what was counted, and which processes run")
    add = under.add_parser("answer", help="say what you found").add_argument
    add("fault", metavar="FAULT", help="its name, as kq gameday status lists them")
    add("--by", default="", metavar="NAME", help="who found it: the debrief counts what each player found first")
    add("--evidence", required=True, metavar="TEXT", help="what shows it: the output of a command. - reads stdin")
    add = under.add_parser("restart", help="start a program or a broker anew").add_argument
    add("program", metavar="PROGRAM", help="as kq gameday status lists it: mover, eu-1, broker-2")
    add = under.add_parser("end", help="end the game, and print the debrief").add_argument
    add("--html", metavar="FILE", help="write the debrief as one page")
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """Start a game, or ask the one that runs."""
    from kqlib.workshop.gameday import holder

    if args.word == "start":
        return _start(args)
    if args.word == "end":
        return _end(args)
    if args.word == "answer":
        evidence = sys.stdin.read() if args.evidence == "-" else args.evidence
        if not evidence.strip():
            raise NotAllowed("the evidence is empty: did its command fail? Nothing was noted")
        print(holder.ask("answer", args.fault, evidence, args.by))
    elif args.word == "restart":
        print(holder.ask("restart", args.program))
    else:
        print(holder.ask("status"))
    return 0


def _start(args: argparse.Namespace) -> int:
    from kqlib.extras import check
    from kqlib.text import count
    from kqlib.workshop.cluster import up
    from kqlib.workshop.gameday import game, holder

    check("virtual", "kq gameday", "fastapi", "httpx", "uvicorn")
    game.draw(args.seed, args.faults, args.minutes)  # wrong arguments are found before anything is started
    if not up.find():  # else `holder.start` refuses
        tell("Three brokers and nine programs start. This takes up to a minute.")
    running = holder.start(args.seed, args.faults, args.minutes)
    tell(STORY.format(faults=count(args.faults, "fault"), minutes=args.minutes))
    print(running.export)
    return 0


def _end(args: argparse.Namespace) -> int:
    from kqlib.workshop.cluster import up
    from kqlib.workshop.gameday import holder

    if args.html and not Path(args.html).absolute().parent.is_dir():
        raise NotAllowed(f"there is no directory {Path(args.html).parent} for the debrief")
    holder.ask("status")  # without a game this line raises, and nothing is printed before its error
    tell("The feed ends, and what was put is worked on. This takes up to a minute.")
    report = holder.ask("end")
    if args.html:
        Path(args.html).write_text(report.page, encoding="utf-8")
    try:
        answer(args, report.plain(), report)
    finally:
        up.stop()
    return 0
