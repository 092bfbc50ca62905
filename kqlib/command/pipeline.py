"""Spark on Kafka: plan, standings, audit, replay, quarantine.

In:  what is typed after `kq pipeline`. Out: a line of progress, the answer at the end (`--json`: for programs).
Ctrl-C and SIGTERM end a stream and say so. Its checkpoint stays, and the same command goes on from there.
The master is KQ_SPARK_MASTER, else this machine. `audit` ends with 1 if an item is missing or doubled. `standings` and `quarantine`
end with 1 if a row could not be decoded, `standings` also if a row was late.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

COMMANDS = {
    "plan": "say where a stream would go on, and which state it has; nothing is started",
    "standings": "make league tables from a topic of games, in another topic",
    "quarantine": "put a topic's rows that cannot be decoded into another topic, with the cause; or put rows back (retry)",
    "audit": "was every item of a queue done exactly once?",
    "replay": "write old records again into another topic, or put repaired dead letters back; dry without --yes",
}
STREAMS = ("standings", "quarantine")
EPILOG = """\
examples
  kq pipeline audit football --site drupal-eu --results football.results --once
  kq pipeline plan standings games standings
  kq pipeline standings games standings --once
  kq pipeline standings games standings --late games.late
  kq pipeline quarantine retry games.late games --yes
  kq pipeline replay games games.again --start 2026-05-01T00:00Z --yes
  kq pipeline replay football --dead --site drupal-eu --with mend.py:fix
Without --once a stream goes on until Ctrl-C. kq pipeline WORD --help says more.
Exit status: 0 success; 1 rows could not be decoded or were late, or items are missing or doubled; 2 error.
"""
REMOVED = (
    "retention or compaction may have removed their results before the audit, so it is unknown whether they were done"
)
HOME = (
    "the directory of the stream's state; on a Spark cluster all machines share it (default: in kqlib's own directory)"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.usage = "kq pipeline WORD …"
    under = parser.add_subparsers(prog="kq pipeline", metavar="WORD", dest="word", required=True, title="words")
    add = {}
    for name, says in COMMANDS.items():
        made = under.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}")
        add[name] = made.add_argument
        if name not in ("plan", "replay"):
            made.add_argument("--once", action="store_true", help="process what is there now, then end")
    add["plan"]("stream", metavar="WORD", choices=STREAMS, help="standings or quarantine")
    add["quarantine"](
        "retry",
        nargs="?",
        choices=["retry"],
        help="put rows back instead: TOPIC has late or quarantined rows, and TARGET gets each once; dry without --yes",
    )
    for name in ("plan", *STREAMS):
        add[name]("source", metavar="TOPIC", help="the topic that is read")
        add[name]("target", metavar="TARGET", help="the topic for what comes out")
        add[name]("--home", metavar="DIR", help=HOME)
    for name in STREAMS:
        add[name]("--registry", metavar="URL", help="a schema registry (default: the cluster's own topic kq.schemas)")
        add[name](
            "--group", metavar="NAME", help="the consumer group in which the lag is shown (default: kq-WORD-TOPIC)"
        )
        add[name]("--subject", metavar="NAME", help="the subject of its schemas (default: TOPIC-value)")
    add["standings"](
        "--quarantine", metavar="TOPIC", help="for rows that cannot be decoded (default: they are counted only)"
    )
    add["standings"](
        "--late", metavar="TOPIC", help="for late rows, which do not count (default: they are counted only)"
    )
    _audit(add["audit"])
    _replay(add["replay"])
    for name in ("quarantine", "replay"):
        _writing(add[name])


def _audit(add: Callable[..., Any]) -> None:
    add("queue", metavar="QUEUE", help="the queue's name, which is also its topic's")
    add("--site", required=True, metavar="NAME", help="the site whose work is audited, or the group of other workers")
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
    add("--site", metavar="NAME", help="the site of the dead letters")
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
    add("--yes", "-y", action="store_true", help="do it; without it, only count")


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
    return _time(text)


def run(args: argparse.Namespace) -> int:
    """Run the command on the current cluster."""
    from kqlib.workshop.cluster import up

    with up.current() as cluster:
        commands: dict[str, Callable[[argparse.Namespace, Kafka], int]] = {
            "plan": plan,
            "standings": standings,
            "quarantine": quarantine,
            "audit": audit,
            "replay": replay,
        }
        return commands[args.word](args, cluster)


# --- streams ------------------------------------------------------------------------------------------------------------


def plan(args: argparse.Namespace, cluster: Kafka) -> int:
    """Where a stream would go on; it is not started."""
    from kqlib.spark.plan import plan

    for topic in (args.source, args.target):
        cluster.partitions(topic)  # TopicMissing
    args.word = args.stream  # the state is in the directory of that stream
    print(repr(plan(cluster, _home(args, cluster), args.source, args.target)))
    return 0


def standings(args: argparse.Namespace, cluster: Kafka) -> int:
    """Games become league tables."""
    from kqlib.spark import session
    from kqlib.spark import standings as begin

    how = {"registry": _registry(args, cluster), "home": _home(args, cluster), "quarantine": args.quarantine}
    how |= {"subject": args.subject, "late_topic": args.late}
    return _stream(args, cluster, begin(session(cluster), cluster, args.source, args.target, once=args.once, **how))


def quarantine(args: argparse.Namespace, cluster: Kafka) -> int:
    """Bad rows go into a topic of their own, as they are, with the cause in their headers; or they are put back."""
    from kqlib.spark import aside, frames, session, stream
    from kqlib.spark.snapshot import claim

    cluster.partitions(args.target)  # TopicMissing, before Spark starts
    if args.retry:
        how = {"mend": _function(args.made) if args.made else None, "run": args.named, "dry": not args.yes}
        return _written(args, aside.put_back(session(cluster), cluster, args.source, args.target, **how))

    def each(good: Any, bad: Any, batch: int) -> None:
        aside.put_aside(bad, cluster, args.target)

    spark, subject = session(cluster), args.subject or f"{args.source}-value"
    place = claim(spark, _home(args, cluster), cluster, args.source, args.target)
    rows = frames.read(spark, cluster, args.source, stream=True)
    return _stream(args, cluster, stream(rows, _registry(args, cluster), subject, each, place, once=args.once))


def _stream(args: argparse.Namespace, cluster: Kafka, running: Any) -> int:
    """Show the progress until the stream ends or is stopped."""
    from kqlib.spark import follow, show
    from kqlib.spark.table import LATE
    from kqlib.text import how_long

    group = args.group or f"kq-{args.word}-{args.source}"
    with _stop_signals() as stop, follow(lambda: running.query, cluster, group):
        show(running, f"{args.word} {args.source}", stop.is_set)
    counted = running.counted
    if counted.broken:
        kept = args.target if args.word == "quarantine" else args.quarantine
        subject = f" --subject {args.subject}" if args.subject else ""
        see = f"see kq pipeline quarantine {args.source} TOPIC{subject}"
        where = f"they are in '{kept}' with their causes" if kept else see
        print(f"{counted.broken:,} of {counted.rows:,} rows could not be decoded: {where}", file=sys.stderr)
    if counted.late:
        late = f"{counted.late:,} of {counted.rows:,} rows came more than {how_long(LATE)} late and do not count"
        retry = f"; to put them back: kq pipeline quarantine retry {args.late} {args.source}" if args.late else ""
        print(f"{late}: the field 'late' in '{args.target}' counts them by team{retry}", file=sys.stderr)
    return _ended(stop) or int(counted.broken > 0 or counted.late > 0)


def _ended(stop: _Stop) -> int:
    if stop.by is not None:
        print("stopped; the same command goes on from here", file=sys.stderr)
    if stop.by == signal.SIGINT:
        raise KeyboardInterrupt  # 130, as the shell has it
    return 0


class _Stop:
    """The signal that asked for an end. It has no lock, for which a signal handler could wait for ever."""

    by: int | None = None

    def is_set(self) -> bool:
        return self.by is not None


@contextmanager
def _stop_signals(also: Callable[[], None] = lambda: None) -> Iterator[_Stop]:
    """Inside, Ctrl-C and SIGTERM only ask for an end. A second Ctrl-C interrupts as always."""
    stop = _Stop()

    def handle(number: int, frame: Any) -> None:
        if stop.by is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.by = number
        also()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _registry(args: argparse.Namespace, cluster: Kafka) -> Any:
    from kqlib.schemas import Registry

    return Registry(url=args.registry) if args.registry else Registry(cluster=cluster)


def _home(args: argparse.Namespace, cluster: Kafka) -> str:
    from kqlib.spark import snapshot

    ids = snapshot.identity(cluster, args.source, args.target)["topics"].values()  # a recreated topic has another id
    return args.home or str(_state_directory(args.word, cluster, "-".join(ids)))


def _state_directory(word: str, cluster: Kafka, name: str) -> Path:
    from kqlib.runtime import places

    home = places.state() / "pipeline" / str(cluster.describe().cluster_id) / f"{word}-{name}"
    home.parent.mkdir(parents=True, exist_ok=True)
    return home


# --- audit --------------------------------------------------------------------------------------------------------------


def audit(args: argparse.Namespace, cluster: Kafka) -> int:
    """Once over everything, or again and again over what is new."""
    for topic in filter(None, (args.queue, args.results, args.to)):
        cluster.partitions(topic)  # TopicMissing, before Spark starts
    if (args.since or args.json) and not args.once:
        option = "--since" if args.since else "--json"
        raise NotAllowed(f"{option} goes with --once: a continuous audit goes on where it was")
    return _audit_once(args, cluster) if args.once else _watch(args, cluster)


def _audit_once(args: argparse.Namespace, cluster: Kafka) -> int:
    from kqlib.spark import audit, session
    from kqlib.text import as_json

    how = {"results": args.results, "of": args.of, "outputs": args.outputs, "bucket": args.bucket, "since": args.since}
    with audit(session(cluster), cluster, args.queue, args.site, **how) as found:
        if args.to:
            found.write(args.to)
        if args.json:
            ids = {fault: found.ids(fault) for fault in ("missing", "doubled")}
            print(as_json({"counts": found.counts, "gone": found.gone, "ids": ids, "health": _plain(found.health)}))
        else:
            print(_report(found))
        return 0 if found.right else 1


def _plain(frame: Any) -> list[dict[str, Any]]:
    """The rows of a small frame for JSON."""
    rows = [row.asDict() for row in frame.collect()]
    return [{n: v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()} for row in rows]


def _report(found: Any) -> str:
    """The audit for people: counts, the first ids of faulty items, the last buckets."""
    lines = [f"{found.asked.queue}, site {found.asked.site}"]
    for verdict, count in found.counts.items():
        if count:
            ids = found.ids(verdict) if verdict in ("missing", "doubled") else []
            shown = [*ids[:10], "…"] if len(ids) > 10 else ids
            more = f"  {', '.join(shown)}" if shown else ""
            more = f"  {REMOVED}" if verdict == "removed" else more
            lines.append(f"  {verdict:<15}{count:>12,}{more}")
    if found.gone:
        lines.append(f"  {'left the log':<15}{found.gone:>12,}  before they were done")
    for row in found.health.collect()[-5:]:
        parts = [f"{row['bucket']:%Y-%m-%d %H:%M} UTC", f"{row['put']:,} put", f"{row['ended']:,} ended"]
        parts.append(f"{row['depth']:,} open")
        if row["oldest"] is not None:
            parts.append(f"oldest {row['oldest']:.1f} s")
        if row["p50"] is not None:
            parts += [f"{name} {row[name]:.3f} s" for name in ("p50", "p95", "p99")]
        lines.append("  " + " · ".join(parts))
    return "\n".join(lines)


def _watch(args: argparse.Namespace, cluster: Kafka) -> int:
    from kqlib.spark import session, watch
    from kqlib.spark.progress import ProgressLine

    state = args.state or _state_directory("audit", cluster, f"{args.queue}-{args.site}")
    how = {"results": args.results, "of": args.of, "outputs": args.outputs, "verdicts": args.to}
    watching = watch(session(cluster), cluster, args.queue, args.site, state=state, **how)
    line, last = ProgressLine(f"audit {args.queue}"), None
    with _stop_signals(watching.stop) as stop:
        for last in watching.rounds(args.every):
            line.update(repr(last), last.totals)
    line.end(last.totals if last else {})
    _ended(stop)
    return 0 if last is None or last.right else 1


# --- replay -------------------------------------------------------------------------------------------------------------


def replay(args: argparse.Namespace, cluster: Kafka) -> int:
    """A backfill, or dead letters put back."""
    function = _function(args.made) if args.made else None
    if args.dead:
        return _written(args, _repair(args, cluster, function))
    if args.target is None:
        raise NotAllowed("where to? kq pipeline replay TOPIC TARGET, or --dead for a queue's dead letters")
    from kqlib.spark import replay, session

    how = {"transform": function, "start": args.start, "end": args.end, "run": args.named, "dry": not args.yes}
    return _written(args, replay(session(cluster), cluster, args.source, args.target, **how))


def _written(args: argparse.Namespace, done: object) -> int:
    """Print what was written, or would be."""
    print(done)
    if not args.yes:
        print("nothing was written; with --yes it is", file=sys.stderr)
    return 0


def _repair(args: argparse.Namespace, cluster: Kafka, fix: Any) -> object:
    from kqlib.queue import Site
    from kqlib.spark import repair

    if not args.site:
        raise NotAllowed("whose dead letters? Say --site NAME")
    if args.target is not None:
        raise NotAllowed("dead letters go back to their own queue: no TARGET with --dead")
    with Site(cluster, args.site) as site:
        return repair(site.queue(args.source), fix or (lambda item: item.data), n=args.n, dry=not args.yes)


def _function(text: str) -> Any:
    """A function out of a file: mend.py:fix."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise NotAllowed(f"--with names a file and a function in it, like mend.py:fix, not {text!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise NotAllowed(f"{path.name} has no function {name!r}")
    return found
