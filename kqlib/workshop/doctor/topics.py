"""What threatens the items of queues: settings that lose or refuse records, topics that were made anew, dead letters.

In:  a cluster, the states of its sites. Out: a finding each; what this user may not look at is named. Nothing is joined or changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed, TopicMissing
from kqlib.kafka.cluster import lacks
from kqlib.queue.answers import RIGHTS, first, granted
from kqlib.queue.dead import DEAD
from kqlib.queue.item import size
from kqlib.queue.rights import Right
from kqlib.text import count, how_long
from kqlib.workshop.doctor.finding import Finding, words

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.queue import Site
    from kqlib.queue.incidents import Seen

SECONDS = 2.0  # for reading what waits: its age and its size
ALTER = "kq kafka configs --alter --entity-type topics --entity-name {topic} --add-config {setting}"
State = tuple[str, str, int]  # site, queue, partition
Threat = tuple[str, str]  # what, and what to do


@dataclass
class Waiting:
    """What waits in a topic, as far as it was read."""

    since: float = float("inf")  # when its oldest item was put, in seconds since 1970
    largest: int = 0  # bytes of a record


def check(cluster: Kafka, states: Mapping[State, Seen] | None) -> Iterator[Finding]:
    """A finding for each kind of threat by a topic's settings. states: None if they could not be read."""
    there = cluster.describe().topics
    names = [each for name in sorted(there) if f"{name}{DEAD}" in there for each in (name, name + DEAD)]
    settings, hidden = _settings(cluster, names)
    if hidden:
        yield Finding("settings", None, lacks(cluster, *(Right("DESCRIBE_CONFIGS", "topic", each) for each in hidden)))
    if hidden and not settings:
        return
    try:
        waiting = {} if states is None else _waiting(cluster, names, states)
    except Exception as error:  # of Kafka or kqlib: the settings alone say enough
        yield Finding("waiting", None, f"what waits could not be read: {words(error)}")
        waiting = {}
    yield retention(settings, waiting)
    yield finding("compaction", _compacted(settings), "no queue is compacted")
    yield finding("replicas", too_few(settings, there), "every partition has the replicas in sync that a put needs")
    yield finding("sizes", _too_small(settings, waiting), "what waits can be buried and put back")


def finding(name: str, threats: Iterable[Threat], well: str) -> Finding:
    """A line for each threat, and each remedy once; without a threat, that all is well."""
    found = list(threats)
    if not found:
        return Finding(name, True, well)
    remedies = dict.fromkeys(how for _, how in found)
    return Finding(name, False, "\n".join(what for what, _ in found), "\n".join(remedies))


def _settings(cluster: Kafka, names: list[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The settings of each topic, and the topics whose settings this user may not see."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    admin, found, hidden = cluster.admin, dict[str, dict[str, str]](), list[str]()
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    for resource, answer in admin.describe_configs(asked, request_timeout=10).items() if asked else ():
        try:
            found[resource.name] = {key: str(entry.value) for key, entry in answer.result(11).items()}
        except KafkaException as error:
            if first(error).code() not in RIGHTS:
                raise
            hidden.append(resource.name)
    return found, sorted(hidden)


def _waiting(cluster: Kafka, names: list[str], states: Mapping[State, Seen]) -> dict[str, Waiting]:
    """The age and the size of what a site has not done, from the lowest floor on; a topic without a site is all waiting."""
    from kqlib.kafka import reading
    from kqlib.queue import state

    there = cluster.describe().topics
    parts = [(name, number) for name in names for number in there[name].partitions]
    starts, ends = state.bounds(cluster, parts)
    for at in parts:
        floors = [max(seen.low, seen.committed or 0) for (_, queue, n), seen in states.items() if (queue, n) == at]
        starts[at] = max(starts[at], min(floors, default=0))
    found = {name: Waiting() for name in names}
    deadline = time.monotonic() + SECONDS
    for message in reading.read(cluster, starts, ends):
        each = found[message.topic()]
        each.since = min(each.since, message.timestamp()[1] / 1000)
        each.largest = max(each.largest, size(message.value(), message.key(), message.headers() or []))
        if time.monotonic() > deadline:
            break
    return found


def retention(settings: Mapping[str, dict[str, str]], waiting: Mapping[str, Waiting]) -> Finding:
    """A limit is no threat while nothing waits for long. Where it is not known what waits, that is not known either."""
    kept = {name: each for name, each in settings.items() if _finite(each)}
    if not kept:
        return Finding("retention", True, "no topic deletes items before they are done")
    limits = "; ".join(f"'{name}' deletes records {_finite(each)}, done or not" for name, each in kept.items())
    if not waiting:
        return Finding("retention", None, f"{limits}; how long its items wait is not known")
    return finding("retention", _vanish(kept, waiting), f"{limits}; no item has waited for half of that")


def _finite(settings: dict[str, str]) -> str:
    """When a topic deletes records by age or size; '' if it never does."""
    if "delete" not in settings["cleanup.policy"]:
        return ""
    age, most = settings["retention.ms"], settings["retention.bytes"]
    limits = [f"after {how_long(int(age) / 1000)}"] if age != "-1" else []
    return " and ".join([*limits, f"above {most} bytes a partition"] if most != "-1" else limits)


def _vanish(kept: Mapping[str, dict[str, str]], waiting: Mapping[str, Waiting]) -> Iterator[Threat]:
    """A limit by age threatens once the oldest item has waited for half of it; one by size does with the next burst of puts."""
    for name, settings in kept.items():
        milliseconds, since = int(settings["retention.ms"]), waiting.get(name, Waiting()).since
        age = time.time() - since if since < float("inf") else 0.0
        if milliseconds != -1 and age > milliseconds / 2000:
            what = f"'{name}' deletes records after {how_long(milliseconds / 1000)}; its oldest item waits for {how_long(age)}"
            yield what, ALTER.format(topic=name, setting="retention.ms=-1")
        if settings["retention.bytes"] != "-1" and since < float("inf"):
            what = f"'{name}' deletes records above {settings['retention.bytes']} bytes a partition, done or not"
            yield what, ALTER.format(topic=name, setting="retention.bytes=-1")


def _compacted(settings: Mapping[str, dict[str, str]]) -> Iterator[Threat]:
    for name, each in settings.items():
        if "compact" in each["cleanup.policy"]:
            what = f"'{name}' is compacted: an item is gone as soon as a later one has its key"
            yield what, ALTER.format(topic=name, setting="cleanup.policy=delete")


def too_few(settings: Mapping[str, dict[str, str]], there: Mapping[str, Any]) -> Iterator[Threat]:
    """A broker asks for as many in sync as min.insync.replicas says, but never for more than there are replicas."""
    for name, each in settings.items():
        for part in there[name].partitions.values():
            needs = min(int(each["min.insync.replicas"]), len(part.replicas))
            if len(part.isrs) < needs:
                in_sync = f"partition {part.id} has {len(part.isrs)} replicas in sync and needs {needs}"
                names = f"kq kafka topics --describe --topic {name}"
                remedy = f"start the brokers that are down; this names them: {names}"
                yield f"puts into '{name}' fail now: {in_sync}", remedy
                break


def _too_small(settings: Mapping[str, dict[str, str]], waiting: Mapping[str, Waiting]) -> Iterator[Threat]:
    """What waits in a queue is buried into `.dead`; what waits there is put back into the queue."""
    for name, each in settings.items():
        into, verb = (name.removesuffix(DEAD), "put back") if name.endswith(DEAD) else (name + DEAD, "buried whole")
        largest = waiting.get(name, Waiting()).largest
        if into in settings and largest > (limit := int(settings[into]["max.message.bytes"])):
            what = f"'{into}' takes records of {limit} bytes; one of {largest} waits in '{name}' and cannot be {verb}"
            more = int(each["max.message.bytes"])
            yield what, ALTER.format(topic=into, setting=f"max.message.bytes={max(more, largest)}")


def made_anew(site: Site, states: Mapping[State, Seen]) -> list[Threat]:
    """Topics that are not those of which the notes say that a site has state there: Kafka deletes the commits with a topic."""
    found: dict[tuple[str, str], Threat] = {}
    for (name, queue, part), seen in states.items():
        if site._notes.get(name, queue, "state", part) not in (None, seen.topic_id):
            what = f"'{queue}' was made anew: site '{name}' has state of the old topic only, and starts again"
            work = f"kq queue work {queue} --site {name} -- CMD"
            found[name, queue] = what, f"if that was meant: {work}; else ask who deleted the old topic"
    return list(found.values())


def dead_letters(site: Site) -> Finding:
    """Can each queue bury? Its topic, its limit and this user's right to write are looked at.

    Only the process that works on a queue knows why an item waits: `queue.blocked`, and its log.
    """
    keys = [key for key in site._notes.keys() if key[2:] == ("terms",)]  # noqa: SIM118 - no dict
    queues = sorted({key[1] for key in keys if site._notes.get(*key)["max_attempts"] is not None})
    found = (each for queue in queues for each in _cannot_bury(site, queue))
    return finding("dead letters", found, f"{count(len(queues), 'queue')}, each can bury what fails for good")


def _cannot_bury(site: Site, queue: str) -> Iterator[Threat]:
    dead = queue + DEAD
    try:
        facts, letters = site._facts(queue)
    except (TopicMissing, NotAllowed):  # the queue itself was deleted, or this user may not see it
        return
    if letters is None:
        remedy = f"add '{queue}' to the plan as a QueueTopic and apply it (kq topics apply)"
        yield f"'{dead}' does not exist: what fails for good in '{queue}' waits", remedy
        return
    if letters.limit < facts.limit:
        limits = f"'{dead}' takes records of {letters.limit:,} bytes and '{queue}' {facts.limit:,}"
        yield f"{limits}: letters are cut, or wait", f"raise max.message.bytes of '{dead}' to {facts.limit}"
    write = Right("WRITE", "topic", dead)
    if granted(site.cluster, [write])[write] is False:
        yield f"{lacks(site.cluster, write)}: what it gives up in '{queue}' waits", f"grant {write}"
