"""The streams: where one would go on, `standings`, `quarantine`; how one is stopped.

In:  what was typed. Out: lines on stdout and stderr, an exit status.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.command.pipeline.again import function, written

if TYPE_CHECKING:
    from kqlib.kafka import Kafka


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
        how = {"mend": function(args.made) if args.made else None, "run": args.named, "dry": not args.yes}
        return written(args, aside.put_back(session(cluster), cluster, args.source, args.target, **how))

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
    with stop_signals() as stop, follow(lambda: running.query, cluster, group):
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
    return ended(stop) or int(counted.broken > 0 or counted.late > 0)


def ended(stop: _Stop) -> int:
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
def stop_signals(also: Callable[[], None] = lambda: None) -> Iterator[_Stop]:
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
    return args.home or str(state_directory(args.word, cluster, "-".join(ids)))


def state_directory(word: str, cluster: Kafka, name: str) -> Path:
    from kqlib.runtime import places

    home = places.state() / "pipeline" / str(cluster.describe().cluster_id) / f"{word}-{name}"
    home.parent.mkdir(parents=True, exist_ok=True)
    return home
