"""The streams: `standings` and `quarantine`; `run` takes a file that says which stream; `backfill` counts standings anew.

In:  what was typed. Out: lines on stdout and stderr, an exit status.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.command.functions import function
from kqlib.command.output import tell
from kqlib.command.pipeline.replay import WITH, written
from kqlib.errors import NotAllowed, UnknownSchema

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.spark import Progress


def run(args: argparse.Namespace, cluster: Kafka) -> int:
    """Run the stream of a file."""
    filled(args)
    args.retry = None
    return standings(args, cluster) if args.word == "standings" else quarantine(args, cluster)


def _bad_rows(args: argparse.Namespace) -> str | None:
    """The topic for rows that are put aside because they are bad."""
    topic: str | None = args.target if args.word == "quarantine" else args.quarantine
    return topic


def aside(args: argparse.Namespace) -> list[str]:
    """The topics for rows that are put aside."""
    return [topic for topic in (_bad_rows(args), args.late) if topic]


def filled(args: argparse.Namespace) -> None:
    """Give `args` all settings of its stream: as its file says, as they were typed, or as they are by default."""
    from kqlib.spark import pipeline_file
    from kqlib.text import near

    typed = {name: value for name, value in vars(args).items() if value is not None}
    if "stream" not in typed:
        found = pipeline_file.PipelineFile(args.word, args.source, args.target)
    elif args.stream in pipeline_file.STREAMS:
        if not {"source", "target"} <= set(typed):
            word = args.stream if args.word == "run" else f"{args.word} {args.stream}"
            raise NotAllowed(f"which topics? Type kq pipeline {word} TOPIC TARGET, or name a file like pipeline.toml")
        found = pipeline_file.PipelineFile(args.stream, args.source, args.target)
    elif typed.get("source") or typed.get("home"):
        meant = near(args.stream, pipeline_file.STREAMS)
        raise NotAllowed(f"the file {args.stream} names the topics and the directory: type nothing after it{meant}")
    else:
        found = pipeline_file.read(args.stream)
    vars(args).update(vars(found) | typed | {"stream": found.stream, "word": found.stream})


def standings(args: argparse.Namespace, cluster: Kafka) -> int:
    """Games become league tables."""
    from kqlib.spark import session, standings as begin
    from kqlib.spark.running import alone
    from kqlib.spark.snapshot import check_topics

    filled(args)
    home = home_of(args, cluster)
    check_topics(cluster, args.source, args.target, args.quarantine, args.late)
    how = {"registry": registry_of(args, cluster), "home": home, "quarantine": args.quarantine, "subject": args.subject}
    how |= {"late": args.lateness, "late_topic": args.late, "rules": args.rules, "parquet": args.parquet}
    how["schema"] = schema_of(args, how["registry"])
    with alone(home):
        return _stream(
            args, cluster, home, begin(session(cluster), cluster, args.source, args.target, once=args.once, **how)
        )


def quarantine(args: argparse.Namespace, cluster: Kafka) -> int:
    """Bad rows go into a topic of their own, as they are, with the cause in their headers; or they are put back."""
    from kqlib.spark import frames, session, stream
    from kqlib.spark.aside import put_aside, put_back
    from kqlib.spark.running import alone
    from kqlib.spark.snapshot import claim

    if args.source == "retry" and "stream" not in vars(args):
        raise NotAllowed(f"which topic gets the rows back? Type: kq pipeline quarantine retry {args.target} TARGET")
    if not args.retry and any(vars(args).get(name) for name in ("yes", "named", "made")):
        way = f"kq pipeline quarantine retry {args.source} {args.target}"
        raise NotAllowed(f"--yes, --run and --with go with a retry: {way}")
    own = ("once", "home", "registry", "group", "subject", "schema")
    if args.retry and (typed := [name for name in own if vars(args).get(name)]):
        raise NotAllowed(f"--{typed[0]} goes without retry")
    cluster.partitions(args.target)  # TopicMissing, before Spark starts
    if args.retry:
        back = {"mend": function(args.made, WITH) if args.made else None, "run": args.named, "dry": not args.yes}
        return written(args, put_back(session(cluster), cluster, args.source, args.target, **back))

    def each(good: Any, bad: Any, batch: int) -> None:
        put_aside(bad, cluster, args.target)

    filled(args)
    home, subject = home_of(args, cluster), args.subject or f"{args.source}-value"
    registry = registry_of(args, cluster)
    how: dict[str, Any] = {"once": args.once, "rules": args.rules, "schema": schema_of(args, registry)}
    with alone(home):
        spark = session(cluster)
        place = claim(spark, home, cluster, args.source, args.target)
        rows = frames.read(spark, cluster, args.source, stream=True)
        return _stream(args, cluster, home, stream(rows, registry, subject, each, place, **how))


def backfill(args: argparse.Namespace, cluster: Kafka) -> int:
    """Standings counted anew beside their stream; with --switch they take the place of the old ones."""
    from kqlib.queue.arguments import count
    from kqlib.spark import backfill, session
    from kqlib.spark.running import alone

    filled(args)
    if args.word != "standings":
        raise NotAllowed("a backfill counts standings anew; a quarantine counts nothing")
    if args.rate is not None:
        count("rate", args.rate)  # before Spark starts
    home = home_of(args, cluster)
    how = {"registry": registry_of(args, cluster), "home": home, "subject": args.subject, "late": args.lateness}
    how["schema"] = schema_of(args, how["registry"])
    how |= {"rules": args.rules, "start": args.start, "rate": args.rate, "switch": args.switch, "tell": tell}
    with alone(home) if args.switch else nullcontext(), alone(f"{home}/next"):
        print(backfill(session(cluster), cluster, args.source, args.target, **how))
    if not args.switch:
        tell("to switch: end the stream (kq pipeline stop), then run this again with --switch")
    return 0


def _stream(args: argparse.Namespace, cluster: Kafka, home: str, running: Any) -> int:
    """Show the progress until the stream ends or is stopped."""
    from kqlib.spark import follow, show
    from kqlib.spark.progress import broken
    from kqlib.text import how_long

    group = args.group or f"kq-{args.word}-{args.source}"
    with stop_signals() as stop, follow(lambda: running.query, cluster, group):
        show(running, f"{args.word} {args.source}", stop.is_set, _noting(args, home))
    counted = running.counted
    if counted.broken:
        kept = _bad_rows(args)
        subject = f" --subject {args.subject}" if args.subject else ""
        see = f"see kq pipeline quarantine {args.source} TOPIC{subject}"
        where = f"they are in '{kept}' with their causes" if kept else see
        ruled = " or broke a rule" if running.broke else ""
        print(f"{counted.broken:,} of {counted.rows:,} rows could not be decoded{ruled}: {where}", file=sys.stderr)
    for broke in broken(running):
        print(repr(broke), file=sys.stderr)
    if counted.late:
        late = (
            f"{counted.late:,} of {counted.rows:,} rows came more than {how_long(args.lateness)} late and do not count"
        )
        retry = f"; to put them back: kq pipeline quarantine retry {args.late} {args.source}" if args.late else ""
        print(f"{late}: the field 'late' in '{args.target}' counts them by team{retry}", file=sys.stderr)
    return ended(stop) or int(counted.broken > 0 or counted.late > 0)


def _noting(args: argparse.Namespace, home: str) -> Callable[[Progress], None]:
    """What notes the progress for `status` and `kq metrics`. The directory's starts before this one count as restarts."""
    from kqlib.spark import Progress, running

    before = running.noted(home).get("progress")
    restarts = Progress.noted(before).restarts + 1 if before else 0
    which = {"stream": args.word, "source": args.source, "target": args.target, "aside": aside(args)}

    def note(now: Progress) -> None:
        running.note(home, **which, progress=asdict(replace(now, restarts=restarts + now.restarts)))

    note(Progress())
    return note


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


def registry_of(args: argparse.Namespace, cluster: Kafka) -> Any:
    """The registry of the schemas. Nothing is created: without schemas no value can be read."""
    from kqlib.schemas import Registry
    from kqlib.schemas.store import TOPIC

    if not args.registry and TOPIC not in cluster.describe().topics:
        raise UnknownSchema(
            f"this cluster has no schemas: there is no topic '{TOPIC}'. A schema registry is named by --registry URL"
        )
    return Registry(url=args.registry) if args.registry else Registry(cluster=cluster)


def schema_of(args: argparse.Namespace, registry: Any) -> str | None:
    """The schema that reads the values, if the settings name a file or a subject; `NotAllowed` if it, or the latest, does not fit."""
    from kqlib.schemas import form
    from kqlib.spark.decode import readable
    from kqlib.spark.pipeline_file import AVSC
    from kqlib.spark.table import NEEDED

    subject = args.subject or f"{args.source}-value"
    name = args.schema or subject
    if args.schema is None or not name.endswith(AVSC):
        text = registry.latest(name).schema
    else:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise NotAllowed(f"the schema {name} cannot be read: {error}") from None
    try:
        found = form.canonical(text)
    except NotAllowed as error:
        raise NotAllowed(f"{name}: {error}") from None
    tree = json.loads(found)
    fields = tree.get("fields", ()) if isinstance(tree, dict) else ()
    if args.word == "standings" and (lacking := sorted(NEEDED - {each["name"] for each in fields})):
        raise NotAllowed(f"the schema {name} has no field '{lacking[0]}', which standings need")
    readable(registry, subject, found)
    return found if args.schema else None


def home_of(args: argparse.Namespace, cluster: Kafka) -> str:
    from kqlib.spark import snapshot

    snapshot.check_topics(cluster, args.source, args.target)
    ids = snapshot.identity(cluster, args.source, args.target)["topics"].values()  # a recreated topic has another id
    return args.home or str(state_directory(args.word, cluster, "-".join(ids)))


def state_directory(word: str, cluster: Kafka, name: str) -> Path:
    from kqlib.runtime import places

    return places.state() / "pipeline" / str(cluster.describe().cluster_id) / f"{word}-{name}"
