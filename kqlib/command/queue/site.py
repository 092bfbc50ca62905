"""What every word of `kq queue` begins with: the cluster, the site, and whether there is such a queue.

In:  the arguments. Out: an open `Site` that has joined nothing; errors that name what was probably meant.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kqlib.command.output import tell
from kqlib.errors import KqError, NotAllowed
from kqlib.kafka import Kafka
from kqlib.kafka.reading import described
from kqlib.queue import Site, look
from kqlib.queue.answers import not_there
from kqlib.queue.connection import Connection
from kqlib.queue.dead import DEAD
from kqlib.queue.incidents import Incident, Seen
from kqlib.queue.ledger import Ledger
from kqlib.text import near
from kqlib.topic_rules import RESERVED
from kqlib.workshop.cluster.up import current


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Site]:
    """The site of this command. `args.queue`, if there is one, exists."""
    with current() as cluster:
        if name := getattr(args, "queue", None):
            check(cluster, name)
        with warnings_shown(), Site(cluster, args.site) as site:
            yield site


@contextmanager
def warnings_shown() -> Iterator[None]:
    """The queue's warnings (Kafka is away, a lease was lost) are notices of this command."""
    notices = logging.StreamHandler()
    notices.setLevel(logging.WARNING)
    notices.setFormatter(logging.Formatter("kq: %(message)s"))
    log = logging.getLogger("kqlib")
    log.addHandler(notices)
    try:
        yield
    finally:
        log.removeHandler(notices)


def check(cluster: Kafka, name: str) -> None:
    """Raise unless there is a topic of this name that can be a queue."""
    if name in RESERVED:
        raise NotAllowed(f"'{name}' is no queue: {RESERVED[name]} keeps it for itself")
    topics = [topic for topic in cluster.describe().topics if topic not in RESERVED]
    if name in topics:
        return
    guess = near(name, queues(topics)) or near(name, topics)
    why = str(not_there(cluster, name)).rstrip(".")
    raise KqError(f"{why}.{guess.replace('; did', ' Did', 1)}")


class Partition(NamedTuple):
    """A partition of a queue as any process can see it."""

    number: int
    seen: Seen
    floor: int  # below it all is done, purged items aside
    ledger: Ledger
    incidents: list[Incident]


def partitions(site: Connection, queue: str) -> Iterator[Partition]:
    """Each partition of a queue, as it is for a site."""
    for number, (each, mark) in look.seen(site, queue).items():
        at = (queue, number)
        ledger = look.ledger_of(site._notes, site.name, at, each)
        floor = ledger.floor
        ledger.purge(max(each.low, mark))
        yield Partition(number, each, floor, ledger, look.untold(site._notes, site.name, at, each))


def queues(topics: list[str]) -> list[str]:
    """Those that are queues: they have a topic for dead letters."""
    return sorted(name for name in topics if f"{name}{DEAD}" in topics)


def users(site: Connection, queue: str) -> list[str]:
    """The sites that have used a queue, by the notes that were read last."""
    return sorted({key[0] for key in site._notes.keys() if len(key) > 1 and key[1] == queue})  # noqa: SIM118 - no dict


def owners(cluster: Kafka, site: str, queue: str) -> dict[int, str] | None:
    """Which member of a site has which partition; None: this user may not ask. A dead one is a member until its session is over."""
    try:
        members = described(cluster, site)
    except KqError:
        return None
    found: dict[int, str] = {}
    for member in members:
        for topic, number in member.assignment:
            if topic == queue:
                found[number] = f"{member.member_id[:8]} at {member.host.lstrip('/')}"
    return found


def check_known(site: Site, queue: str) -> None:
    """Refuse to change anything for a site that has never used this queue: its name is probably a typo."""
    if why := _never_used(site, queue):
        raise NotAllowed(f"{why}. Nothing was changed")


def say_if_new(site: Site, queue: str) -> None:
    """For a site that has never used this queue every item is waiting: say so."""
    if (why := _never_used(site, queue)) and users(site, queue):
        tell(f"kq: {why}: for it nothing is done yet")


def _never_used(site: Site, queue: str) -> str:
    site._notes.catch_up()
    known = users(site, queue)
    if site.name in known:
        return ""
    others = f"{', '.join(known)} {'has' if len(known) == 1 else 'have'}" if known else "no site has"
    return f"site '{site.name}' has never used '{queue}' ({others}; --site or KQ_SITE names the site that is meant)"
