"""Make seasons of games, in a topic or on the screen.

In:  how many rows, and how much goes wrong. Out: a topic full of them (`produce`), or a line of JSON for each (`show`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

FAULTS = {
    "late": "sent hours late, such as 0.01",
    "doubled": "sent twice",
    "broken": "followed by a broken copy",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Define what can be typed after `kq games`."""
    under = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    text = "Put a season into a topic. A topic that is not there is created; its records are kept for ever, because the games are old."
    produce = under.add_parser("produce", description=text, help="put a season into a topic")
    produce.add_argument("--topic", default="games", metavar="NAME", help="the topic (default: games)")
    produce.add_argument(
        "--partitions", type=int, default=4, metavar="N", help="partitions of a new topic (default: 4)"
    )
    text = "Print a season as lines of JSON, one for each row."
    show = under.add_parser("show", description=text, help="print a season as lines of JSON")
    for each in (produce, show):
        _season(each)


def _season(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rows", type=_many, required=True, metavar="N", help="how many rows")
    add("--sport", choices=("football", "basketball"), help="one of the two (default: both)")
    add("--seed", type=int, default=7, metavar="N", help="another seed gives other games (default: 7)")
    for name, what in FAULTS.items():
        add(f"--{name}", type=float, default=0.0, metavar="SHARE", help=f"the share of events that are {what}")


def _many(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number from 0, not {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Make the season."""
    from kqlib.workshop.games import seasons

    shares = {name: getattr(args, name) for name in FAULTS}
    season = seasons.rows(args.rows, args.seed, args.sport, **shares)
    if args.what == "show":
        for each in season:
            row = {"version": each.version, "sent": each.sent, "damage": each.damage, **seasons.value(each)}
            print(json.dumps(row))
        return 0
    from tqdm import tqdm

    from kqlib.schemas import Registry
    from kqlib.workshop.cluster.up import current

    with current() as cluster:
        _check(cluster, args.topic, args.partitions)
        messages = seasons.messages(season, Registry(cluster=cluster), f"{args.topic}-value")
        pace = 0.2 if sys.stderr.isatty() else 10  # a log file gets a line now and then
        bar = {"total": args.rows, "unit": "row", "unit_scale": True, "mininterval": pace, "dynamic_ncols": True}
        started = time.monotonic()
        seasons.produce(cluster, args.topic, tqdm(messages, **bar))
        took = time.monotonic() - started
        print(f"{args.rows:,} rows are in '{args.topic}' ({args.rows / max(took, 0.001):,.0f} a second).")
    return 0


def _check(cluster: Kafka, topic: str, partitions: int) -> None:
    """Create the topic if it is not there. One that would delete the games at once is `NotAllowed`."""
    from kqlib.topics import Plan, Topic, existing
    from kqlib.workshop.games import seasons

    there = existing(cluster, [topic]).get(topic)
    if there is None:
        Plan({topic: Topic(partitions, config=seasons.FOR_EVER)}).apply(cluster, quiet=True)
    elif (kept := there.config["retention.ms"]) != seasons.FOR_EVER["retention.ms"]:
        why = f"'{topic}' keeps records for {int(kept) / 3_600_000:g} h, and these games were played years ago"
        raise NotAllowed(f"{why}: Kafka would delete them at once. Name another topic, or set retention.ms=-1 on it")
