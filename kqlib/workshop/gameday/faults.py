"""The faults of a game: what each does to the system, the trace that it leaves, how it is repaired.

In:  a `System`, a `Random`. Out: `Made`: what good evidence names, and whether the fault is repaired.
A fault is a function. Its first line is the cause, and `@fault` has what else a person reads in the debrief. Of the faults that
touch the same part of the system a game has one at most. Evidence is good if each pattern of `proof` is found in it: patterns are of
values that the seed has drawn, so that only the trace shows them.
The certificate that expires is the node's: the brokers have no TLS, so that each tool works without a login. A killed mover stands
for a mirror or a connector: it has the same gap, and costs no Java.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from kqlib.errors import NotAllowed
from kqlib.kafka.writing import settled, write
from kqlib.queue import look, state
from kqlib.queue.broker_settings import topic_settings
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.topics import Plan
from kqlib.workshop.gameday.system import ARCHIVE, DAY, QUEUE, SCORES, SITES, System

ANSWER = 10.0 * PATIENCE  # seconds for one answer of the cluster
BEHIND = 20  # items in the log that a site has not done when its offsets are reset
OFFSETS = "__consumer_offsets"
TRANSACTION = 900_000  # milliseconds: the longest that a broker allows by default
UNLIMITED = 10_000  # bytes a second, and more: no quota that this system would meet


@dataclass(frozen=True)
class Made:
    """A fault that was made."""

    proof: tuple[str, ...]
    repaired: Callable[[], bool]


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    cause: str
    trace: str
    repair: str
    touches: str
    make: Callable[[System, Random], Made]


Make = Callable[[System, Random], Made]
FAULTS: dict[str, Fault] = {}


def fault(touches: str, trace: str, repair: str) -> Callable[[Make], Make]:
    """Put a function into `FAULTS`."""

    def add(make: Make) -> Make:
        name = make.__name__.replace("_", "-")
        FAULTS[name] = Fault(name, make.__doc__ or "", trace, repair, touches, make)
        return make

    return add


RESTART, APPLY = "kq gameday restart broker-N", "kq topics apply plan.toml"
ASIDE = f"{APPLY}, then kq gameday restart mover: its jobs went aside"

# --- brokers ----------------------------------------------------------------------------------------------------------


@fault(
    "brokers", "kq gameday status; kq kafka topics --describe --under-min-isr-partitions", f"{RESTART}, then {APPLY}"
)
def dead_broker(system: System, chance: Random) -> Made:
    """A broker was killed, and 'football' wants all three replicas in sync: nothing can be put."""
    number = chance.choice(system.cluster.running)
    _set(system, QUEUE, "min.insync.replicas", 3)
    system.cluster.broker(number).kill()
    return Made((_without(number),), lambda: number in _isr(system, QUEUE))


@fault(
    "brokers", "kq gameday status; 'File too large' in the log of the broker", f"{RESTART}, which finds a larger disk"
)
def full_disk(system: System, chance: Random) -> Made:
    """A broker's disk was full: a log segment could not grow, and the broker ended."""
    if not hasattr(resource, "prlimit"):
        raise NotAllowed("only Linux can limit the files of another process: this fault does not come here")
    victim = system.cluster.broker(system.cluster.leader(ARCHIVE, 0) or 1)
    largest = max(file.stat().st_size for file in victim.node.data.glob(f"{ARCHIVE}-0/*.log"))
    resource.prlimit(victim.pid or 0, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    system.archive(10)
    wait_for(lambda: not victim.alive, 3 * ANSWER, f"broker {victim.id} to meet the end of its disk")
    return Made(("File too large",), lambda: victim.id in _isr(system, ARCHIVE))


@fault("brokers", "kq kafka topics --describe --under-replicated-partitions, while its process runs", RESTART)
def coordinator_gone(system: System, chance: Random) -> Made:
    """The broker that coordinates all groups hangs: its process runs, and answers nothing."""
    victim = system.cluster.broker(system.cluster.leader(OFFSETS, 0) or 1).pause()
    return Made((OFFSETS, _without(victim.id)), lambda: victim.id in _isr(system, OFFSETS))


# --- clients and programs ---------------------------------------------------------------------------------------------


@fault(
    "mover",
    "kq kafka configs --describe --entity-type clients",
    "kq kafka configs --alter --entity-type clients --entity-name mover --delete-config producer_byte_rate",
)
def quota(system: System, chance: Random) -> Made:
    """The client 'mover' has a quota of some hundred bytes a second."""
    rate, entity = chance.randrange(100, 200), ("--entity-type", "clients", "--entity-name", "mover")
    system.cluster.kafka("configs", "--alter", *entity, "--add-config", f"producer_byte_rate={rate}")

    def gone() -> bool:
        shown = system.cluster.kafka("configs", "--describe", *entity)
        return all(float(each) >= UNLIMITED for each in re.findall(r"producer_byte_rate=([\d.]+)", shown))

    return Made((rf"producer_byte_rate={rate}\b",), gone)


@fault("mover", "kq gameday status: jobs wait in the outbox, and the mover is stopped", "kq gameday restart mover")
def mover_killed(system: System, chance: Random) -> Made:
    """The mover was killed: jobs stay in the outbox."""
    system.programs["mover"].kill()
    return Made((r"mover\s+stopped",), lambda: system.running("mover"))


@fault(
    "workers",
    "kq kafka consumer-groups --describe --members --group SITE: a program that runs is no member",
    "kq gameday restart SITE-N",
)
def worker_hangs(system: System, chance: Random) -> Made:
    """A worker hangs: its process runs, and the group has put it out."""
    site, number = chance.choice(SITES), chance.choice((1, 2))
    system.programs[f"{site}-{number}"].pause()
    member = r"/\S+[ \t]+{}-{}\b"  # the host and the client id of a row
    proof = rf"(?s)\A(?!.*{member.format(site, number)}).*{member.format(site, 3 - number)}"  # one row is there, and not the other
    return Made((proof,), lambda: len(system.cluster.describe_group(site).members) == 2)


@fault("workers", "kq doctor, or kq queue show football --site SITE", "kq queue rewind football --site SITE --yes")
def group_reset(system: System, chance: Random) -> Made:
    """A person reset the offsets of a site to the end of the log: items were skipped."""
    name = chance.choice(SITES)
    site = system.sites[name]
    workers = [each for each in system.programs if each.startswith(name)]
    for each in workers:
        system.stop(each)
    try:
        wait_for(lambda: look.depth(site, QUEUE) > BEHIND, 3 * ANSWER, f"work for {name}")
        how = ("--reset-offsets", "--to-latest", "--group", name, "--topic", QUEUE, "--execute")
        shown = system.cluster.kafka("consumer-groups", *how)
        if "NEW-OFFSET" not in shown:
            raise NotAllowed(f"the offsets of {name} cannot be reset: {shown}")
    finally:
        for each in workers:
            system.start(each)

    def back() -> bool:
        there = [((QUEUE, part), each) for part, (each, _) in look.seen(site, QUEUE).items()]
        found = [one for at, each in there for one in look.untold(site._notes, name, at, each)]
        return not any(one.why == "skipped" for one in found)

    return Made(("skipped by another program",), back)


@fault(
    "node",
    "the standings fall behind; the log of alerts; openssl verify -CAfile tls/ca.pem tls/node.pem",
    "copy tls/renewed.pem over tls/node.pem, then kq gameday restart node: it reads the file at its start",
)
def expired_certificate(system: System, chance: Random) -> Made:
    """The certificate of the node has expired, and nobody has put the renewed one in its place."""
    (system.tls / "node.pem").write_bytes(system.expired)
    system.restart("node")
    return Made(("certificate has expired",), system.node_answers)


# --- the queue --------------------------------------------------------------------------------------------------------


@fault("football", "kq topics diff plan.toml", ASIDE)
def topic_deleted(system: System, chance: Random) -> Made:
    """A person deleted the topic 'football'."""
    settled(system.cluster.admin.delete_topics([QUEUE], request_timeout=ANSWER), "deleted", 2 * ANSWER)
    return Made((r"\+ football\b|football.*does not exist",), lambda: QUEUE in system.cluster.describe(5).topics)


@fault("football", "kq topics diff plan.toml", APPLY)
def short_retention(system: System, chance: Random) -> Made:
    """The retention of 'football' is a second or two: items that wait leave the log."""
    return _changed(system, QUEUE, "retention.ms", chance.randrange(1000, 2000), lambda value: value == -1)


@fault("football", "kq topics diff plan.toml; jobs are aside", ASIDE)
def small_messages(system: System, chance: Random) -> Made:
    """'football' takes only very small records: the mover's jobs are refused."""
    return _changed(system, QUEUE, "max.message.bytes", chance.randrange(50, 90), lambda value: value > 1000)


@fault("football", "kq topics diff plan.toml", "write the new number into plan.toml: partitions cannot be taken away")
def partitions_added(system: System, chance: Random) -> Made:
    """Partitions were added to 'football' while it had work: keys moved, and the plan does not know it."""
    many = chance.randrange(4, 8)
    asked = system.cluster.admin.create_partitions([NewPartitions(QUEUE, many)], request_timeout=ANSWER)
    settled(asked, "grown", 2 * ANSWER)
    proof = (QUEUE, rf"\b{many} partitions|PartitionCount: {many}\b")
    return Made(proof, lambda: Plan.read(system.plan).all[QUEUE].partitions == many)


@fault(
    "football",
    "kq kafka transactions list; kq kafka transactions describe-producers --topic football --partition N",
    "kq kafka transactions abort --topic football --partition N --start-offset M",
)
def stuck_transaction(system: System, chance: Random) -> Made:
    """A program left a transaction open: what was put behind it is not handed out."""
    name, part, placed = f"import-{chance.randrange(100, 1000)}", chance.randrange(3), list[int]()
    producer = Producer(system.cluster.client(transactional_id=name, transaction_timeout_ms=TRANSACTION))
    producer.init_transactions(ANSWER)
    producer.begin_transaction()
    producer.produce(QUEUE, b"{}", partition=part, on_delivery=lambda _, one: placed.append(one.offset()))
    producer.flush(ANSWER)
    system.producers.append(producer)
    if not placed or placed[0] < 0:
        raise NotAllowed("the record of the open transaction was not stored")
    at = (QUEUE, part)
    return Made((rf"{name}\b",), lambda: state.ends(system.cluster, [at])[at] > placed[0])


@fault("items", "kq queue peek football.dead --site SITE", "kq queue purge football.dead --site SITE --yes, both sites")
def poison_item(system: System, chance: Random) -> Made:
    """An item that no worker can read was put."""
    text = f"rubbish {chance.randrange(100, 1000)}"
    item = {"topic": QUEUE, "value": text, "key": f"game-{chance.randrange(12)}"}
    if why := write(system.cluster, [item], ANSWER):
        raise NotAllowed(f"the item was not stored: {why}")
    dead = f"{QUEUE}.dead"
    return Made((text,), lambda: not any(look.depth(site, dead) for site in system.sites.values()))


# --- other topics -----------------------------------------------------------------------------------------------------


@fault("scores", "kq topics diff plan.toml", APPLY)
def early_compaction(system: System, chance: Random) -> Made:
    """'scores' keeps a deletion for some milliseconds: a reader that was away never learns of it."""
    return _changed(system, SCORES, "delete.retention.ms", chance.randrange(1, 100), lambda value: value >= DAY)


@fault(
    "archive",
    "kq kafka reassign-partitions --list; kq kafka configs --describe --entity-type brokers",
    "the same move with --execute --additional --throttle 100000000, then --verify; or --cancel",
)
def slow_move(system: System, chance: Random) -> Made:
    """A replica of 'archive' moves with a throttle so low that the move does not end."""
    rate = chance.randrange(1000, 2000)
    old = list(system.cluster.partitions(ARCHIVE)[0].replicas)
    new = [*({1, 2, 3} - set(old)), old[1]]
    move = f'{{"version": 1, "partitions": [{{"topic": "{ARCHIVE}", "partition": 0, "replicas": {new}}}]}}'
    file = system.folder / "move.json"
    file.write_text(move)
    how = ("--reassignment-json-file", str(file), "--execute", "--throttle", str(rate))
    system.cluster.kafka("reassign-partitions", *how)

    def ended() -> bool:
        return len(system.cluster.partitions(ARCHIVE)[0].replicas) == 2 and not _throttled(system)

    return Made((rf"throttled\.rate={rate}\b",), ended)


# --- questions and changes --------------------------------------------------------------------------------------------


def _set(system: System, topic: str, key: str, value: int) -> None:
    entry = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    system.cluster.admin.incremental_alter_configs([resource], request_timeout=ANSWER)[resource].result(2 * ANSWER)


def _changed(system: System, topic: str, key: str, value: int, good: Callable[[int], bool]) -> Made:
    """A setting of a topic is changed. It is repaired when its value is good."""
    _set(system, topic, key, value)

    def repaired() -> bool:
        return good(int(topic_settings(system.cluster, [topic]).get(topic, {}).get(key, value)))

    return Made((rf"\b{re.escape(key)}\D+{value}\b",), repaired)


def _isr(system: System, topic: str) -> set[int]:
    """The brokers that are in sync in every partition of a topic, and answer."""
    there = system.cluster.describe(5)
    parts = there.topics[topic].partitions.values() if topic in there.topics else []
    return set(there.brokers).intersection(*(part.isrs for part in parts)) if parts else set()


def _without(number: int) -> str:
    """A pattern of lines of `kafka-topics --describe` in which this broker is not in sync."""
    return rf"Isr: (?!\S*\b{number}\b)\d|broker-?\s*{number}\s+(down|stopped)"


def _throttled(system: System) -> bool:
    """Has any broker the throttle of a move?"""
    found = []
    for number in system.cluster.brokers:  # a request of librdkafka's is for one broker
        asked = ConfigResource(ResourceType.BROKER, str(number))
        answers = system.cluster.admin.describe_configs([asked], request_timeout=ANSWER)
        found.append(answers[asked].result(ANSWER).get("leader.replication.throttled.rate"))
    return any(each is not None and not each.is_default and int(each.value) < 2**62 for each in found)
