"""Spark on this cluster: standings, audit, replay, quarantine.

In:  what is typed after `kq pipeline`. Out: a line of progress while it runs, the answer at the end (`--json`: for programs).
Ctrl-C and SIGTERM end a stream after saying so; its checkpoint is intact, and the same command goes on from there.
The master is KQ_SPARK_MASTER's, else this machine. `audit` ends with 1 where something is missing or doubled, `standings` and
`quarantine` where a row could not be decoded, `standings` also where one was late.
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

WORDS = {
    "standings": "games in a topic become the tables of their leagues, in a topic",
    "quarantine": "decode a topic, and put what cannot be decoded into another one, with the cause",
    "audit": "did every item of a queue get done exactly once?",
    "replay": "old records once more into another topic, or dead letters repaired and put back; dry without --yes",
}
EPILOG = """\
examples
  kq pipeline audit football --site drupal-eu --results football.results --once
  kq pipeline standings games standings --once
  kq pipeline replay games games.again --start 2026-05-01T00:00Z --yes
  kq pipeline replay football --dead --site drupal-eu --with mend.py:fix
Without --once a stream goes on until Ctrl-C. kq pipeline WORD --help says more.
Exit status: 0 all is well; 1 rows could not be decoded or were late, or items are missing or doubled; 2 error.
"""
REMOVED = (
    "retention or compaction may have removed their results before the audit, so it is unknown whether they were done"
)
HOME = "where the stream remembers how far it is; on a cluster a place that all machines share (default: kqlib's own)"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.usage = "kq pipeline WORD …"
    under = parser.add_subparsers(prog="kq pipeline", metavar="WORD", dest="word", required=True, title="words")
    add = {}
    for name, says in WORDS.items():
        made = under.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}")
        add[name] = made.add_argument
        once = "what is there now, then end" if name != "replay" else "accepted; a replay always ends"
        made.add_argument("--once", action="store_true", help=once)
    for name in ("standings", "quarantine"):
        add[name]("source", metavar="TOPIC", help="what is read")
        add[name]("target", metavar="TARGET", help="the topic for what comes out")
        add[name]("--registry", metavar="URL", help="a schema registry (default: the cluster's own topic kq.schemas)")
        add[name]("--home", metavar="DIR", help=HOME)
        add[name]("--group", metavar="NAME", help="a group that shows the lag (default: kq-WORD-TOPIC)")
        add[name]("--subject", metavar="NAME", help="its schemas' subject (default: TOPIC-value)")
    add["standings"](
        "--quarantine", metavar="TOPIC", help="for rows that cannot be decoded (default: they are counted only)"
    )
    _audit(add["audit"])
    _replay(add["replay"])


def _audit(add: Callable[..., Any]) -> None:
    add("queue", metavar="QUEUE", help="the queue, which is its topic's name")
    add("--site", required=True, metavar="NAME", help="whose work is audited: the site, or the group of other workers")
    add("--results", required=True, metavar="TOPIC", help="where its results are")
    add(
        "--of",
        default="kq-item",
        metavar="HEADER",
        help="the header that names a result's item, or key (default: kq-item)",
    )
    add("--outputs", type=int, default=1, metavar="N", help="how many results an item has (default: 1)")
    add(
        "--bucket",
        default="1 hour",
        metavar="TIME",
        help="how time is cut into pieces, with --once (default: '1 hour')",
    )
    add("--since", type=_time, metavar="TIME", help="only items put then or later, with --once")
    add("--to", metavar="TOPIC", help="a compacted topic for every verdict")
    add("--state", metavar="DIR", help="where an audit that goes on remembers how far it is (default: kqlib's own)")
    add("--every", type=float, default=5.0, metavar="SECONDS", help="between two looks (default: 5)")
    add("--json", action="store_true", help="for programs, with --once")


def _replay(add: Callable[..., Any]) -> None:
    add("source", metavar="TOPIC", help="what is read; with --dead, the queue")
    add("target", nargs="?", metavar="TARGET", help="where it is written")
    add("--start", type=_place, default="earliest", metavar="PLACE", help="earliest, a time, or offsets: 0:120,1:98")
    add("--end", type=_place, default="latest", metavar="PLACE", help="latest, a time, or offsets")
    add("--run", dest="named", metavar="NAME", help="the run's name in the header kq-replay (default: a new one)")
    add("--dead", action="store_true", help="put dead letters back instead")
    add("--site", metavar="NAME", help="whose dead letters")
    add(
        "--with",
        dest="made",
        metavar="FILE:NAME",
        help="a function: of a frame; with --dead, of an item, giving new data or None",
    )
    add("-n", type=int, metavar="N", help="at most so many dead letters")
    add("--yes", "-y", action="store_true", help="do it; without, only count")


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
    """Do it on the current cluster."""
    from kqlib.workshop.cluster import up

    with up.current() as cluster:
        doing: dict[str, Callable[[argparse.Namespace, Kafka], int]] = {
            "standings": standings,
            "quarantine": quarantine,
            "audit": audit,
            "replay": replay,
        }
        return doing[args.word](args, cluster)


# --- streams ------------------------------------------------------------------------------------------------------------


def standings(args: argparse.Namespace, cluster: Kafka) -> int:
    """Games become tables."""
    from kqlib.spark.standings import standings as begin

    how = {"registry": _registry(args, cluster), "home": _home(args, cluster), "quarantine": args.quarantine}
    how["subject"] = args.subject
    spark = _spark(cluster)
    return _stream(args, cluster, begin(spark, cluster, args.source, args.target, once=args.once, **how))


def quarantine(args: argparse.Namespace, cluster: Kafka) -> int:
    """Bad rows go into a topic of their own, as they were, with the cause in their headers."""
    from kqlib import spark as room
    from kqlib.spark import checkpoint, sinks

    cluster.partitions(args.target)  # TopicMissing, before Spark starts

    def each(good: Any, bad: Any, batch: int) -> None:
        sinks.quarantine(bad, cluster, args.target, batch)

    items = room.items(_spark(cluster), cluster, args.source, stream=True)
    subject = args.subject or f"{args.source}-value"
    place = checkpoint.claim(_spark(cluster), _home(args, cluster), cluster, args.source, args.target)
    return _stream(args, cluster, room.stream(items, _registry(args, cluster), subject, each, place, once=args.once))


def _stream(args: argparse.Namespace, cluster: Kafka, running: Any) -> int:
    """Show how it goes until it ends or somebody stops it."""
    from kqlib.spark.progress import follow, show
    from kqlib.spark.table import LATE
    from kqlib.text import how_long

    group = args.group or f"kq-{args.word}-{args.source}"
    with _stopped() as stop, follow(lambda: running.query, cluster, group):
        show(running, f"{args.word} {args.source}", stop.is_set)
    if broken := running.counted.broken:
        kept = args.target if args.word == "quarantine" else args.quarantine
        subject = f" --subject {args.subject}" if args.subject else ""
        see = f"see kq pipeline quarantine {args.source} TOPIC{subject}"
        there = f"they are in '{kept}' with their causes" if kept else see
        print(f"{broken:,} of {running.counted.rows:,} rows could not be decoded: {there}", file=sys.stderr)
    if late := running.counted.late:
        after = how_long(LATE)
        print(
            f"{late:,} of {running.counted.rows:,} rows came more than {after} late and do not count: the field 'late' "
            f"in '{args.target}' counts them by team",
            file=sys.stderr,
        )
    return _ended(stop) or int(broken > 0 or late > 0)


def _ended(stop: _Stop) -> int:
    if stop.by is not None:
        print("stopped; the same command goes on from here", file=sys.stderr)
    if stop.by == signal.SIGINT:
        raise KeyboardInterrupt  # 130, as the shell has it
    return 0


class _Stop:
    """By which signal an end was asked for. A plain value: a handler that takes a lock may wait for the very thread it interrupts."""

    by: int | None = None

    def is_set(self) -> bool:
        return self.by is not None


@contextmanager
def _stopped(also: Callable[[], None] = lambda: None) -> Iterator[_Stop]:
    """From here on Ctrl-C and SIGTERM only ask for an end; a second Ctrl-C is one as always."""
    stop = _Stop()

    def heard(number: int, frame: Any) -> None:
        if stop.by is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.by = number
        also()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _spark(cluster: Kafka) -> Any:
    """A session for this command; it ends with the process."""
    from kqlib import spark as room

    return room.session(cluster)


def _registry(args: argparse.Namespace, cluster: Kafka) -> Any:
    from kqlib.schemas import Registry

    return Registry(url=args.registry) if args.registry else Registry(cluster=cluster)


def _home(args: argparse.Namespace, cluster: Kafka) -> str:
    from kqlib.spark import checkpoint

    return args.home or str(_place_for(args.word, cluster, checkpoint.name(cluster, args.source, args.target)))


def _place_for(word: str, cluster: Kafka, name: str) -> Path:
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
        raise NotAllowed(
            f"{'--since' if args.since else '--json'} goes with --once: an audit that goes on remembers how far it is"
        )
    return (_audit_once if args.once else _audit_on)(args, cluster, _spark(cluster))


def _audit_once(args: argparse.Namespace, cluster: Kafka, spark: Any) -> int:
    from kqlib import spark as room

    how = {"results": args.results, "of": args.of, "outputs": args.outputs, "bucket": args.bucket, "since": args.since}
    with room.audit(spark, cluster, args.queue, args.site, **how) as found:
        if args.to:
            found.write(args.to)
        if args.json:
            from kqlib.text import as_json

            offending = {fault: found.ids(fault) for fault in ("missing", "doubled")}
            print(
                as_json({"counts": found.counts, "gone": found.gone, "ids": offending, "health": _rows(found.health)})
            )
        else:
            print(_said(found))
        return 0 if found.right else 1


def _rows(frame: Any) -> list[dict[str, Any]]:
    """A small frame as plain rows."""
    plain = [row.asDict() for row in frame.collect()]
    return [{n: v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()} for row in plain]


def _said(found: Any) -> str:
    """The verdict for people: counts, the first offending ids, the last buckets."""
    lines = [f"{found.asked.queue}, site {found.asked.site}"]
    for verdict, count in found.counts.items():
        if count:
            ids = found.ids(verdict) if verdict in ("missing", "doubled") else []
            more = f"  {', '.join(ids[:10])}{', …' * (len(ids) > 10)}" if ids else ""
            more = f"  {REMOVED}" if verdict == "removed" else more
            lines.append(f"  {verdict:<15}{count:>12,}{more}")
    if found.gone:
        lines.append(f"  {'left the log':<15}{found.gone:>12,}  before they were done")
    for row in found.health.collect()[-5:]:
        age = "" if row["oldest"] is None else f" · oldest {row['oldest']:.1f} s"
        took = (
            "" if row["p50"] is None else f" · p50 {row['p50']:.3f} s · p95 {row['p95']:.3f} s · p99 {row['p99']:.3f} s"
        )
        lines.append(
            f"  {row['bucket']:%Y-%m-%d %H:%M} UTC · {row['put']:,} put · {row['ended']:,} ended · {row['depth']:,} open{age}{took}"
        )
    return "\n".join(lines)


def _audit_on(args: argparse.Namespace, cluster: Kafka, spark: Any) -> int:
    from kqlib import spark as room
    from kqlib.spark.progress import Shown

    state = args.state or _place_for("audit", cluster, f"{args.queue}-{args.site}")
    how = {"results": args.results, "of": args.of, "outputs": args.outputs, "verdicts": args.to}
    watch = room.watch(spark, cluster, args.queue, args.site, state=state, **how)
    shown, last = Shown(f"audit {args.queue}"), None
    with _stopped(watch.stop) as stop:
        for last in watch.rounds(args.every):
            shown.say(repr(last), **{name.replace(" ", "_"): n for name, n in last.totals.items()})
    shown.end(**({name.replace(" ", "_"): n for name, n in last.totals.items()} if last else {}))
    _ended(stop)
    return 0 if last is None or last.right else 1


# --- replay -------------------------------------------------------------------------------------------------------------


def replay(args: argparse.Namespace, cluster: Kafka) -> int:
    """A backfill, or dead letters put back."""
    made = _function(args.made) if args.made else None
    if args.dead:
        return _dead(args, cluster, made)
    if args.target is None:
        raise NotAllowed("where to? kq pipeline replay TOPIC TARGET, or --dead for a queue's dead letters")
    from kqlib import spark as room

    where = {"start": args.start, "end": args.end, "run": args.named}
    print(room.replay(_spark(cluster), cluster, args.source, args.target, transform=made, dry=not args.yes, **where))
    return _dry(args)


def _dead(args: argparse.Namespace, cluster: Kafka, made: Any) -> int:
    from kqlib.queue import Site
    from kqlib.spark.replay import repair

    if not args.site:
        raise NotAllowed("whose dead letters? Say --site NAME")
    if args.target is not None:
        raise NotAllowed("dead letters go back to their own queue: no TARGET with --dead")
    with Site(cluster, args.site) as site:
        print(repair(site.queue(args.source), made or (lambda item: item.data), n=args.n, dry=not args.yes))
    return _dry(args)


def _dry(args: argparse.Namespace) -> int:
    if not args.yes:
        print("nothing was written; with --yes it is", file=sys.stderr)
    return 0


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
