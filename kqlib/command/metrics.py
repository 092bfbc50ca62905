"""Print numbers of queues, sites and pipelines for Prometheus.

In:  the names of sites, or none for all of them. Out: gauges on stdout. Those of queues come from Kafka alone: no process that works
on a queue is asked, and none has to run. A queue whose state cannot be read has `kqlib_queue_state_readable` 0 and no other number;
so has a queue whose topic is gone, unless the site deleted the queue.
Those of pipelines come from Kafka and from what their processes note in their directories, on this machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kqlib.command.output import tell
from kqlib.text import Metric, as_metrics

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.queue.connection import Connection

HELP = {
    "queue_items": "Items that are not acknowledged, claimed ones included.",
    "queue_dead_letters": "Items in the queue's dead-letter topic.",
    "queue_claimed_items": "Items that are handed out, wait until they are due, or wait for another item of their key.",
    "queue_oldest_item_age_seconds": "Time since the oldest item that is not acknowledged was put.",
    "queue_lost_items": "Items that no worker will get: their records or the site's commits were changed by others.",
    "queue_state_readable": "1 if the site's state of this queue can be read, else 0.",
    "site_members": "Processes in the site's consumer group.",
    "pipeline_running": "1 if a process runs the stream, else 0.",
    "pipeline_rows_per_second": "Rows a second in the last batch that had rows.",
    "pipeline_batch_seconds": "Time that this batch took.",
    "pipeline_watermark_seconds": "The watermark, as seconds since 1970; absent if the stream has none.",
    "pipeline_state_rows": "Rows in the stream's state.",
    "pipeline_state_bytes": "Bytes of the stream's state.",
    "pipeline_lag_records": "Records of a partition that no committed batch has read.",
    "pipeline_aside_records": "Records in a topic for rows that were put aside: quarantined or late ones.",
    "pipeline_broken_rows": "Rows that broke a rule since the stream's process was started, by the schema's id and version.",
    "pipeline_restarts": "How often the stream was started again, by hand or for a new schema.",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `kq metrics`."""
    text = "print the numbers of this site alone; may be repeated (default: every site that has used a queue)"
    parser.add_argument("--site", action="append", default=[], metavar="SITE", help=text)
    text = "the HOME of a stream; may be repeated (default: without --site, every stream of this machine that was started without one)"
    parser.add_argument("--pipeline", action="append", default=[], metavar="DIR", help=text)


def run(args: argparse.Namespace) -> int:
    """Print them."""
    from kqlib.command.pipeline import looks
    from kqlib.workshop.cluster.up import current

    with current() as cluster:
        rows = list(measured(cluster, args.site))
        for home in [*([] if args.site else looks.homes(cluster)), *args.pipeline]:
            rows += looks.gauges(cluster, home)
        print(exposed(rows), end="")
    return 0


def measured(cluster: Kafka, sites: list[str]) -> Iterator[Metric]:
    """The gauges of these sites, or of all that are known."""
    from kqlib.command.queue.site import queues, users
    from kqlib.errors import KqError
    from kqlib.kafka.reading import described

    topics = cluster.describe().topics
    names = queues(list(topics))
    with _looking(cluster, sites[0] if sites else "kq-metrics") as site:
        site._notes.catch_up()
        used = {name: users(site, name) for name in names}
        gone = _gone(site, topics)
    for each, name in gone:
        if not sites or each in sites:
            yield "queue_state_readable", {"queue": name, "site": each}, 0
            tell(
                f"kq: '{name}': site '{each}' has used it, and there is no such topic, or this user may not see it. Other queues are "
                "counted. See kq topics diff --help"
            )
    for each in sites or sorted({site for some in used.values() for site in some}):
        try:
            yield "site_members", {"site": each}, len(described(cluster, each))
        except KqError as error:
            tell(f"kq: {error}")
        with _looking(cluster, each) as site:
            yield from _of_site(site, [name for name in names if each in used[name]])


@contextmanager
def _looking(cluster: Kafka, name: str) -> Iterator[Connection]:
    """What a look at a site needs. A `Site` would close the one of this name that this process has open."""
    from kqlib.queue import arguments
    from kqlib.queue.connection import Connection

    arguments.site_name(name)
    site = Connection(cluster, name)
    try:
        yield site
    finally:
        site._disconnect(give_back=True)


def _gone(site: Connection, topics: Container[str]) -> list[tuple[str, str]]:
    """Sites and queues, by the notes that were read last: the site has a state of the queue, and there is no topic."""
    from kqlib.queue.dead import DEAD

    states = {(key[0], key[1]) for key in site._notes.keys() if key[2:3] == ("state",)}  # noqa: SIM118 - no dict
    gone = (each for each in states if each[1] not in topics and not each[1].endswith(DEAD))
    return sorted(each for each in gone if site._notes.get(*each, "status") != "deleted")


def _of_site(site: Connection, names: list[str]) -> Iterator[Metric]:
    from kqlib.command.queue.site import partitions
    from kqlib.queue import look
    from kqlib.queue.dead import DEAD

    depths = look.depths(site, [*names, *(name + DEAD for name in names)])
    for name in names:
        labels = {"queue": name, "site": site.name}
        depth, dead = depths.get(name), depths.get(name + DEAD)
        yield "queue_state_readable", labels, isinstance(depth, int)
        if isinstance(depth, int):
            parts = list(partitions(site, name))
            yield "queue_items", labels, depth
            yield "queue_claimed_items", labels, sum(part.ledger.open for part in parts)
            yield "queue_lost_items", labels, sum(one.lost for part in parts for one in part.incidents)
            if (age := look.oldest(site, name)) is not None:
                yield "queue_oldest_item_age_seconds", labels, age
        elif depth is not None:
            tell(f"kq: '{name}': {depth}")
        if isinstance(dead, int):
            yield "queue_dead_letters", labels, dead


def exposed(rows: list[Metric]) -> str:
    """The rows in Prometheus' text format."""
    return as_metrics(rows, HELP)
