"""Looks at a stream from another process: `kq pipeline plan`, `status` and `stop`, and the gauges of `kq metrics`.

In:  a file or words that say which stream, or the directories of streams. Out: lines, or gauges. Spark is not started.
The process that runs the stream notes how far it is (`running.note`). The rest comes from the checkpoint and from Kafka.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.command.output import tell
from kqlib.command.pipeline import streams
from kqlib.errors import KqError
from kqlib.text import Metric, near

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.spark.rules import Rule

EVERY = 1.0  # seconds between two looks of `status --watch`


def plan(args: argparse.Namespace, cluster: Kafka) -> int:
    """Where a stream would go on; it is not started."""
    from kqlib.spark.plan import plan
    from kqlib.spark.snapshot import LocalFiles, check_topics
    from kqlib.spark.standings import check_folder

    home, registry = _home(args, cluster), streams.registry_of(args, cluster)
    check_topics(cluster, args.source, args.target, args.quarantine, args.late)
    schema = streams.schema_of(args, registry)  # NotAllowed
    if args.parquet:
        check_folder(LocalFiles(args.parquet), home)
    print(repr(plan(cluster, home, args.source, args.target, tables=args.word == "standings")))
    print(f"reads values with {args.schema or 'the latest schema of ' + (args.subject or args.source + '-value')}")
    print(f"writes {', '.join(filter(None, (args.target, args.parquet, args.quarantine, args.late)))}")
    if args.rules:
        _doubts(args.rules, schema or registry.latest(args.subject or f"{args.source}-value").schema)
    return 0


def _doubts(rules: Iterable[Rule], schema: str) -> None:
    """Name what a rule uses and the schema does not have. Only Spark can say that a rule fits, and it is not started."""
    from kqlib.spark.rules import unknown

    tree = json.loads(schema)
    fields = [each["name"] for each in tree["fields"]] if isinstance(tree, dict) and "fields" in tree else []
    for rule in rules:
        for name in unknown(rule.that, fields):
            guess = near(name, fields)
            tell(
                f"kq: rule '{rule.name}': the schema has no field '{name}'{guess or '.'} If Spark does not know it either, run refuses"
            )


def status(args: argparse.Namespace, cluster: Kafka) -> int:
    """Does a stream run, where is it, and how much did it put aside? watch: again when it changed, until the stream ends."""
    from kqlib.text import as_json

    home, last = _home(args, cluster), ""
    while True:
        found = _look(cluster, home, args.source, args.target, streams.aside(args))
        where = found.pop("plan")
        text = as_json(found) if args.json else f"{args.source} -> {args.target}: {_text(found, where)}"
        if text != last:
            print(text, flush=True)
        if not args.watch or not found["running"]:
            return 0 if found["running"] or last else 1
        last = text
        time.sleep(EVERY)


def stop(args: argparse.Namespace, cluster: Kafka) -> int:
    """End the process that runs a stream. A batch that is not finished comes again at the next start."""
    from kqlib.spark import running

    streams.filled(args)
    ended = running.stop(args.home or streams.home_of(args, cluster))  # also if a topic is gone
    print("stopped" if ended else "it does not run")
    return 0 if ended else 1


def _home(args: argparse.Namespace, cluster: Kafka) -> str:
    streams.filled(args)
    return streams.home_of(args, cluster)


def _look(cluster: Kafka, home: str, source: str, target: str, topics: Iterable[str]) -> dict[str, Any]:
    """All that another process can know of a stream. progress: what its process noted last."""
    from kqlib.spark import running
    from kqlib.spark.plan import plan

    found = plan(cluster, home, source, target)
    return {
        "running": running.runner(home),
        "home": home,
        "batch": found.done,
        "lag": {number: end - begin for number, (begin, end) in found.offsets.items()},
        "aside": {topic: _records(cluster, topic) for topic in topics},
        "progress": running.noted(home).get("progress"),
        "plan": repr(found),
    }


def _records(cluster: Kafka, topic: str) -> int:
    from kqlib.kafka import reading

    return sum(end - low for low, end in reading.bounds(cluster, topic).values())


def _text(found: dict[str, Any], where: str) -> str:
    """For people, on several lines."""
    from kqlib.spark.progress import Progress

    now = Progress.noted(found["progress"])
    last = [f"last seen: {now!r} · {now.details}"] if now.batch >= 0 else []
    kept = [f"{topic}: {count:,} records" for topic, count in found["aside"].items()]
    return "\n".join([found["running"] or "does not run", where, *last, *kept, *map(repr, now.broke)])


# --- kq metrics ---------------------------------------------------------------------------------------------------------


def homes(cluster: Kafka) -> list[str]:
    """The directories of this machine's streams on this cluster, of those without a HOME of their own."""
    return sorted(
        str(path.parent) for path in streams.state_directory("x", cluster, "x").parent.glob("*/progress.json")
    )


def gauges(cluster: Kafka, home: str) -> Iterator[Metric]:
    """The gauges of the stream in this directory. How fast it is and its state are those of a process that runs."""
    from kqlib.spark import running
    from kqlib.spark.progress import Progress

    noted = running.noted(home)
    if not noted:
        tell(f"kq: no stream has run in {Path(home)}")
        return
    labels = {each: str(noted[each]) for each in ("stream", "source", "target")}
    try:
        found = _look(cluster, home, noted["source"], noted["target"], noted["aside"])
    except KqError as error:
        tell(f"kq: {error}")
        return
    yield "pipeline_running", labels, bool(found["running"])
    for number, lag in found["lag"].items():
        yield "pipeline_lag_records", labels | {"partition": str(number)}, lag
    for topic, count in found["aside"].items():
        yield "pipeline_aside_records", labels | {"topic": topic}, count
    now = Progress.noted(noted["progress"])
    yield "pipeline_restarts", labels, now.restarts
    for each in now.broke:
        version = "" if each.version is None else str(each.version)
        yield (
            "pipeline_broken_rows",
            labels | {"rule": each.rule, "schema": str(each.schema), "version": version},
            each.rows,
        )
    if found["running"] and now.batch >= 0:
        yield "pipeline_rows_per_second", labels, now.rate
        yield "pipeline_batch_seconds", labels, now.seconds
        yield "pipeline_state_rows", labels, now.state_rows
        yield "pipeline_state_bytes", labels, now.state_bytes
        if now.watermark:
            yield "pipeline_watermark_seconds", labels, datetime.fromisoformat(now.watermark).timestamp()
