"""What threatens the queues of the current cluster: states that will be forgotten, are gone or another program's; topics.

In:  the cluster of KQ_BOOTSTRAP or `kq up`, if there is one. Out: findings; nothing is joined or changed. Topics: `topics.py`.
When a commit was made is read from Kafka's own log of commits (`__consumer_offsets`): no client can ask for it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from kqlib.errors import KqError, LedgerCorrupt, NotAllowed, Unreachable
from kqlib.text import count, how_long
from kqlib.workshop.doctor.finding import Finding, words

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.queue import Site
    from kqlib.queue.incidents import Incident, Seen

DAY = 86400.0
ENOUGH = 30 * DAY  # a site that stands still for a month has other troubles
FOR_EVER = 10 * 365 * DAY
OLD = 2 / 3  # of the retention: owners commit every day, so a state this old has no owner
OFFSETS = "__consumer_offsets"
KEEP = "offsets.retention.minutes=2147483647 in the brokers' settings keeps them for ever"
REWIND = "kq queue rewind {} --site {} puts back what is still in the log; --forget ends these reports instead"
WORK = (
    "kq queue work {} --site {} --on-lost earliest -- CMD (every item again) or latest (only new ones); "
    'in Python on_lost="earliest"'
)
State = tuple[str, str, int]  # site, queue, partition


@dataclass
class Known:
    """What earlier checks have found out about the cluster."""

    cluster: Kafka
    retention: float | None = None  # seconds; None: not known
    states: Mapping[State, Seen] | None = None  # None: they could not be read


def findings() -> Iterator[Finding]:
    """What is found on the current cluster; nothing where there is none, or none that answers: that is another check's."""
    from kqlib.workshop.cluster import up

    try:
        cluster = up.current()
    except (NotAllowed, Unreachable):
        return
    with cluster:
        yield from of(cluster)


def of(cluster: Kafka) -> Iterator[Finding]:
    """The findings. If this user may not look at something, that is a finding, and the other checks go on."""
    from confluent_kafka import KafkaException

    from kqlib.topic_rules import QUEUES

    known = Known(cluster)
    checks = {"offsets": _offsets, "ledgers": _ledgers, "topics": _topics, "expiry": _expiry}
    for name, check in checks.items():
        try:
            if name == "ledgers" and QUEUES not in cluster.describe().topics:
                yield Finding(name, True, "no queues on this cluster")
                return
            yield from check(known)
        except (KqError, KafkaException) as error:
            yield Finding(name, None, f"this check could not be finished: {words(error)}")


# --- how long commits are kept ----------------------------------------------------------------------------------------


def _offsets(known: Known) -> Iterator[Finding]:
    from confluent_kafka import KafkaException

    from kqlib.kafka.cluster import lacks
    from kqlib.queue.answers import RIGHTS, first
    from kqlib.queue.rights import Right

    try:
        known.retention = retention(known.cluster)
    except KafkaException as error:
        if first(error).code() not in RIGHTS:
            raise
        yield Finding("offsets", None, lacks(known.cluster, Right("DESCRIBE_CONFIGS", "cluster", "kafka-cluster")))
        return
    yield kept(known.retention)


def retention(cluster: Kafka) -> float:
    """Seconds after which a group's offsets are forgotten once nobody commits."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    asked, admin = ConfigResource(ResourceType.BROKER, str(cluster.brokers[0])), cluster.admin
    found = admin.describe_configs([asked], request_timeout=10)[asked].result(11)
    return float(found["offsets.retention.minutes"].value) * 60


def kept(seconds: float) -> Finding:
    """Is that long enough?"""
    if seconds >= FOR_EVER:
        return Finding("offsets", True, "where a site is in a queue is kept for ever")
    what = f"a site that does not work for {how_long(seconds)} is forgotten by the cluster: it would not know what it has done"
    return Finding("offsets", seconds >= ENOUGH, what, "" if seconds >= ENOUGH else KEEP)


# --- is each state there, and ours ------------------------------------------------------------------------------------


def _ledgers(known: Known) -> Iterator[Finding]:
    from kqlib.queue import Site, look
    from kqlib.workshop.doctor import topics

    with Site(known.cluster, "kq-doctor") as site:
        known.states = states(site)
        incidents = {at: look.untold(site._notes, at[0], at[1:], each) for at, each in known.states.items()}
        anew, dead = topics.made_anew(site, known.states), topics.dead_letters(site)
    yield ledgers(known.states, incidents)
    yield topics.finding("topic ids", anew, "every state is of the topic that is there now")
    yield dead


def states(site: Site) -> dict[State, Seen]:
    """Every site's committed state in each of its queues."""
    from kqlib.queue import state

    used = sorted({key[:2] for key in site._notes.keys() if len(key) >= 3})  # noqa: SIM118 - no dict
    ids = state.topic_ids(site.cluster, sorted({queue for _, queue in used}))
    found: dict[State, Seen] = {}
    for name in sorted({name for name, _ in used}):
        queues = [queue for user, queue in used if user == name and queue in ids]
        parts = [(queue, part) for queue in queues for part in ids[queue][1]]
        with closing(state.Looker(site.cluster, name, wait=False)) as looker:
            found |= {(name, *at): each for at, each in looker.look(parts, notes=site._notes).items()}
    return found


def wrong(seen: Seen) -> tuple[str, str]:
    """What is wrong with a state, and what to do there ({}: its queue, its site); ('', '') if nothing is."""
    from kqlib.queue.ledger import Ledger

    if seen.committed is None:
        return ("its state is gone", WORK) if seen.known else ("", "")
    if not seen.metadata:
        remedy = "let nothing else use the site's name as its group; the next owner goes on from there"
        return f"another program set its offset to {seen.committed}", remedy
    try:
        Ledger.read(seen.metadata, seen.committed)
    except LedgerCorrupt as error:
        return str(error).split(". ", 1)[0], "see who commits in this group, or update kqlib"
    return "", ""


def ledgers(found: Mapping[State, Seen], incidents: Mapping[State, Sequence[Incident]]) -> Finding:
    """Which states are gone, unreadable or another program's, and what happened to items without their site."""
    from kqlib.workshop.doctor import topics

    bad = [(at, str(each), REWIND) for at, some in incidents.items() for each in some]
    bad += [(at, *wrong(each)) for at, each in found.items() if any(wrong(each))]
    sites = len({name for name, _, _ in found})
    well = f"{count(len(found), 'partition')} of {count(sites, 'site')}, nothing lost and nothing strange"
    threats = [
        (f"site '{site}' in '{queue}', partition {part}: {what}", how.format(queue, quote(site)))
        for (site, queue, part), what, how in bad
    ]
    return topics.finding("ledgers", threats, well)


def _topics(known: Known) -> Iterator[Finding]:
    from kqlib.workshop.doctor import topics

    yield from topics.check(known.cluster, known.states)


# --- which will be forgotten soon -------------------------------------------------------------------------------------


def _expiry(known: Known) -> Iterator[Finding]:
    from kqlib.kafka.cluster import lacks
    from kqlib.queue.rights import Right

    if known.states is None or not known.retention:
        yield Finding("expiry", None, "not looked at: it needs offsets and ledgers")
        return
    there = {at for at, each in known.states.items() if each.committed is not None}
    if there and OFFSETS not in known.cluster.describe().topics:  # a commit is there, so the topic is
        yield Finding("expiry", None, lacks(known.cluster, Right("READ", "topic", OFFSETS)))
        return
    yield expiry(known.cluster, there, known.retention)


def expiry(cluster: Kafka, there: set[State], seconds: float) -> Finding:
    """Which of these states will be forgotten soon?"""
    if seconds >= FOR_EVER or not there:
        return Finding("expiry", True, "no state will be forgotten")
    fresh = committed_since(cluster, {name for name, _, _ in there}, time.time() - OLD * seconds)
    stale = sorted({f"site '{name}' in '{queue}'" for name, queue, _ in there - fresh})
    if not stale:
        return Finding("expiry", True, f"{count(len(there), 'state')}, each committed lately")
    spans = f"not committed for {how_long(OLD * seconds)}, forgotten after {how_long(seconds)}"
    what = f"{spans}: {', '.join(stale)}"
    return Finding("expiry", False, what, f"let the site work there (kq queue work), which commits; {KEEP}")


def committed_since(cluster: Kafka, groups: set[str], moment: float) -> set[State]:
    """Which (group, topic, partition) has committed since then, by Kafka's own log of commits."""
    from kqlib.kafka import reading
    from kqlib.queue import state

    numbers = {place(group, len(cluster.partitions(OFFSETS))) for group in groups}
    since = state.since(cluster, [(OFFSETS, number) for number in numbers], moment)
    found = (committed(message.key()) for message in reading.read(cluster, since))
    return {each for each in found if each}


def place(group: str, partitions: int) -> int:
    """Which partition of Kafka's log of commits has this group: Java's hash of its name."""
    number = 0
    for unit in struct.unpack(f"<{len(group.encode('utf-16-le')) // 2}H", group.encode("utf-16-le")):
        number = (31 * number + unit) & 0xFFFFFFFF
    return (number & 0x7FFFFFFF) % partitions


def committed(key: bytes | None) -> State | None:
    """The group, topic and partition of a record of that log; None if it is no commit."""
    if key is None or len(key) < 4 or struct.unpack_from(">h", key)[0] > 1:
        return None
    size = struct.unpack_from(">h", key, 2)[0]
    group, rest = key[4 : 4 + size].decode(), key[4 + size :]
    size = struct.unpack_from(">h", rest)[0]
    return group, rest[2 : 2 + size].decode(), struct.unpack_from(">i", rest, 2 + size)[0]
