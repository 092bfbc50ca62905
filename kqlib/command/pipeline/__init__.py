"""Spark on Kafka: run, backfill, audit, replay, quarantine.

In:  what is typed after `kq pipeline`. Out: a line of progress, the answer at the end (`--json`: for programs).
Ctrl-C and SIGTERM end a stream and say so. Its checkpoint stays, and the same command goes on from there.
The master is KQ_SPARK_MASTER, else this machine. `audit` ends with 1 if an item is missing or doubled. `standings` and `quarantine`
end with 1 if a row could not be decoded, `standings` also if a row was late.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from kqlib.command.output import YES
from kqlib.errors import NotAllowed

COMMANDS = {
    "run": "run the stream of a file: its topics, rules and lateness",
    "plan": "say where a stream would go on, and which state it has; nothing is started",
    "status": "say whether a stream runs, how far and how fast it is, its state, and how many rows it put aside",
    "stop": "end the process that runs a stream; run goes on from there",
    "standings": "make league tables from a topic of games, in another topic",
    "quarantine": "put a topic's rows that cannot be decoded into another topic, with the cause; or put rows back (retry)",
    "backfill": "count standings anew beside their stream, with other rules or from another start; compare; switch",
    "audit": "was every item of a queue done exactly once?",
    "replay": "write old records again into another topic, or put repaired dead letters back",
}
MODULES = {
    "audit": "audits",
    "replay": "replay",
    **dict.fromkeys(("plan", "status", "stop"), "looks"),
}  # the others are in streams
STREAMS = ("standings", "quarantine")
LOOK = ("plan", "status", "stop", "backfill")  # at a stream that has begun
EPILOG = """\
examples
  kq pipeline audit football --site drupal-eu --results football.results --once
  kq pipeline plan pipeline.toml
  kq pipeline run pipeline.toml
  kq pipeline standings games standings --once
  kq pipeline standings games standings --late games.late
  kq pipeline quarantine retry games.late games --yes
  kq pipeline backfill stricter.toml --start 2026-05-01T00:00Z --rate 10000
  kq pipeline replay games games.again --start 2026-05-01T00:00Z --yes
  kq pipeline replay football --dead --site drupal-eu --with mend.py:fix
Without --once a stream goes on until Ctrl-C. kq pipeline WORD --help says more.
Exit status: 0 success; 1 nothing was written, rows could not be decoded or
were late, items are missing or doubled, or the stream does not run (status,
stop); 2 error.
"""
HOME = (
    "the directory of the stream's state; on a Spark cluster all machines share it (default: in kqlib's own directory)"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.usage = "kq pipeline WORD …"
    under = parser.add_subparsers(prog="kq pipeline", metavar="WORD", dest="word", required=True, title="words")
    add = {}
    for name, says in COMMANDS.items():
        made = under.add_parser(name, help=says)
        add[name] = made.add_argument
        if name not in (*LOOK, "replay"):
            made.add_argument("--once", action="store_true", help="process what is there now, then end")
    add["run"]("stream", metavar="FILE", help="a file like pipeline.toml (docs/pipelines.md)")
    for name in LOOK:
        add[name](
            "stream", metavar="FILE|WORD", help="the same file; or standings or quarantine, with TOPIC and TARGET"
        )
    add["status"]("--json", action="store_true", help="print JSON, for programs")
    add["status"]("--watch", action="store_true", help="again when something changed, until the stream ends")
    text = "the first records that count: earliest, a time, or offsets: 0:120,1:98"
    add["backfill"]("--start", type=_place, default="earliest", metavar="PLACE", help=text)
    add["backfill"]("--rate", type=int, metavar="N", help="records a second at most (default: as fast as it can)")
    add["backfill"]("--switch", action="store_true", help="put it in the place of the stream's, which must not run")
    add["quarantine"](
        "retry",
        nargs="?",
        choices=["retry"],
        help="put rows back instead: TOPIC has late or quarantined rows, and TARGET gets each once",
    )
    for name in (*LOOK, *STREAMS):
        number = "?" if name in LOOK else None
        add[name]("source", nargs=number, metavar="TOPIC", help="the topic that is read")
        add[name]("target", nargs=number, metavar="TARGET", help="the topic for what comes out")
        add[name]("--home", metavar="DIR", help=HOME)
    for name in STREAMS:
        add[name]("--registry", metavar="URL", help="a schema registry (default: the cluster's own topic kq.schemas)")
        add[name](
            "--group", metavar="NAME", help="the consumer group in which the lag is shown (default: kq-WORD-TOPIC)"
        )
        add[name]("--subject", metavar="NAME", help="the subject of its schemas (default: TOPIC-value)")
        text = "the schema that reads the values: FILE.avsc or a subject (default: the latest one of its own subject)"
        add[name]("--schema", metavar="SCHEMA", help=text)
    add["standings"](
        "--quarantine", metavar="TOPIC", help="for rows that cannot be decoded (default: they are counted only)"
    )
    add["standings"](
        "--late", metavar="TOPIC", help="for late rows, which do not count (default: they are counted only)"
    )
    add["standings"]("--parquet", metavar="DIR", help="a folder for the standings as well; each batch replaces it")
    _audit(add["audit"])
    _replay(add["replay"])
    for name in ("quarantine", "replay"):
        _writing(add[name])


def _audit(add: Callable[..., Any]) -> None:
    site = os.environ.get("KQ_SITE")
    add("queue", metavar="QUEUE", help="the queue's name, which is also its topic's")
    whose = "the site whose work is audited, or the group of other workers (default: KQ_SITE)"
    add("--site", default=site, required=not site, metavar="SITE", help=whose)
    add("--results", required=True, metavar="TOPIC", help="the topic with the results")
    add(
        "--of",
        default="kq-item",
        metavar="HEADER",
        help="the header in which a result names its item; key: the record's key (default: kq-item)",
    )
    add("--outputs", type=int, default=1, metavar="N", help="how many results an item has (default: 1)")
    add(
        "--bucket",
        default="1 hour",
        metavar="TIME",
        help="with --once: numbers for each such span of time (default: '1 hour')",
    )
    add("--since", type=_time, metavar="TIME", help="only items put then or later, with --once")
    add("--to", metavar="TOPIC", help="a compacted topic that gets every verdict")
    add(
        "--state", metavar="DIR", help="the directory of a continuous audit's state (default: in kqlib's own directory)"
    )
    add("--every", type=float, default=5.0, metavar="SECONDS", help="the pause between two rounds (default: 5)")
    add("--json", action="store_true", help="print JSON, for programs; with --once")


def _replay(add: Callable[..., Any]) -> None:
    add("source", metavar="TOPIC", help="the topic that is read; with --dead, the queue")
    add("target", nargs="?", metavar="TARGET", help="the topic that is written")
    add("--start", type=_place, default="earliest", metavar="PLACE", help="earliest, a time, or offsets: 0:120,1:98")
    add("--end", type=_place, default="latest", metavar="PLACE", help="latest, a time, or offsets")
    add("--dead", action="store_true", help="put dead letters of a queue back instead")
    site = os.environ.get("KQ_SITE")
    add("--site", default=site, metavar="SITE", help="the site of the dead letters (default: KQ_SITE)")
    add("-n", type=int, metavar="N", help="at most so many dead letters")


def _writing(add: Callable[..., Any]) -> None:
    """The arguments of a replay and of a retry."""
    add("--run", dest="named", metavar="NAME", help="the run's name in the header kq-replay (default: a new one)")
    add(
        "--with",
        dest="made",
        metavar="FILE:NAME",
        help="a function of a frame that repairs it; with --dead, of an item: it returns new data or None",
    )
    add("--yes", "-y", **YES)


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise NotAllowed(f"a time looks like 2026-05-01T00:00Z, not {text!r}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _place(text: str) -> Any:
    if text in ("earliest", "latest"):
        return text
    if re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text):
        return {int(number): int(at) for number, _, at in (pair.partition(":") for pair in text.split(","))}
    try:
        return _time(text)
    except NotAllowed:
        raise NotAllowed(f"a place is earliest, latest, a time or offsets like 0:120,1:98, not {text!r}") from None


def run(args: argparse.Namespace) -> int:
    """Run the command on the current cluster."""
    from kqlib.workshop.cluster import up

    with up.current() as cluster:
        module = import_module(f"kqlib.command.pipeline.{MODULES.get(args.word, 'streams')}")
        return int(getattr(module, args.word)(args, cluster))
