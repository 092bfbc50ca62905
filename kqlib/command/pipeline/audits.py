"""`kq pipeline audit`: once over everything, or again and again over what is new."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kqlib.command.output import tell
from kqlib.command.pipeline.streams import ended, state_directory, stop_signals
from kqlib.errors import NotAllowed

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

REMOVED = (
    "retention or compaction may have removed their results before the audit, so it is unknown whether they were done"
)


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
        if not found.begun:
            tell(
                f"kq: site '{args.site}' has no state of '{args.queue}': it has done nothing yet, or its name is another one"
            )
        if args.to:
            found.write(args.to)
        if args.json:
            ids = {fault: found.ids(fault) for fault in ("missing", "doubled")}
            print(as_json({"counts": found.counts, "gone": found.gone, "ids": ids, "health": _plain(found.health)}))
        else:
            print(_report(found))
        return 0 if found.right else 1


def _plain(frame: Any) -> list[dict[str, Any]]:
    """The rows of a small frame for JSON. PySpark gives times of this machine's zone, without the zone."""
    rows = [row.asDict() for row in frame.collect()]
    return [
        {n: v.astimezone(UTC).isoformat() if isinstance(v, datetime) else v for n, v in row.items()} for row in rows
    ]


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
        parts = [
            f"{row['bucket'].astimezone(UTC):%Y-%m-%d %H:%M} UTC",
            f"{row['put']:,} put",
            f"{row['ended']:,} ended",
        ]
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

    state = args.state or state_directory("audit", cluster, f"{args.queue}-{args.site}")
    how = {"results": args.results, "of": args.of, "outputs": args.outputs, "verdicts": args.to}
    watching = watch(session(cluster), cluster, args.queue, args.site, state=state, **how)
    line, last = ProgressLine(f"audit {args.queue}"), None
    with stop_signals(watching.stop) as stop:
        for last in watching.rounds(args.every):
            line.update(repr(last), last.totals)
    line.end(last.totals if last else {})
    ended(stop)
    return 0 if last is None or last.right else 1
