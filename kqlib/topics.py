"""Topics are planned: named by rule, sized before they are needed, created by deployment.

In:  a plan (Python, or a small TOML file) and a cluster.
Out: a `Diff` that says what would happen, and the topics, created or grown; never shrunk, never deleted.

    plan = Plan({"football": QueueTopic(web_servers=2), "scores": Topic(partitions=3, compact=True)})
    plan.diff(cluster)      # + football: create, 4 partitions, kept for ever ...
    plan.apply(cluster)     # prints the same, then does it; a second time there is nothing to do

A queue brings `<name>.dead` along, where its dead letters go, and once a plan `kq.queues`.
What may be planned and what differs is decided without Kafka, in `topic_rules.py`.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition, admin as ka

from kqlib import errors
from kqlib.kafka.cluster import lacks
from kqlib.runtime.patience import PATIENCE
from kqlib.topic_rules import (
    QUEUES,
    Diff,
    Existing,
    QueueTopic,
    Topic,
    alike,
    check_name,
    compare,
    described,
    metric,
    stated,
)

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

__all__ = ["Diff", "Existing", "Plan", "QueueTopic", "Topic", "check_name", "compare", "existing", "partitions_of"]
ANSWER = 10.0 * PATIENCE  # seconds for one answer of the cluster
EACH = 0.2 * PATIENCE  # seconds more for each change that is asked for: a broker makes one topic after the other
TOGETHER = 100  # new partitions in one request, or one topic; Kafka refuses more than 10,000
ASKED = 1_000  # topics in one question: of many thousands a broker has no answer in time
APPLIED = 30.0 * PATIENCE  # seconds until a plan is in force everywhere
AGREED = 8  # looks in a row that must see what was done: each asks some broker, and brokers learn of it a little apart


@dataclass(frozen=True)
class Plan:
    """Which topics shall exist: `Plan({"football": QueueTopic(web_servers=2), "scores": Topic(partitions=3)})`."""

    topics: Mapping[str, Topic | QueueTopic]

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", dict(self.topics))
        for name, topic in self.topics.items():
            if not isinstance(topic, Topic | QueueTopic):
                raise errors.BadConfig(source=f"Plan: {name}", why=f"a plan has Topic and QueueTopic, not {topic!r}")
            if isinstance(topic, QueueTopic) and check_name(name).endswith(".dead"):
                raise errors.BadTopicName(topic=name, why="dead letters' topics end in .dead, a queue does not")
        first: dict[str, str] = {}
        for name in [*self.topics, *self._deads]:
            if other := first.get(metric(check_name(name))):
                raise errors.BadTopicName(topic=name, why=f"this plan makes '{other}' too{alike(name, other)}")
            first[metric(name)] = name

    @property
    def _deads(self) -> dict[str, Topic]:
        return {f"{name}.dead": topic.dead for name, topic in self.topics.items() if isinstance(topic, QueueTopic)}

    @property
    def all(self) -> dict[str, Topic]:
        """Every topic that will exist, as plain topics: the stated ones, then those that come with the queues."""
        stated = {name: topic if isinstance(topic, Topic) else topic.topic for name, topic in self.topics.items()}
        replicas = max((dead.replicas or 0 for dead in self._deads.values()), default=0) or None
        return stated | self._deads | ({QUEUES: Topic(1, compact=True, replicas=replicas)} if self._deads else {})

    def diff(self, cluster: Kafka) -> Diff:
        """What `apply` would do now; changes nothing."""
        topics = cluster.describe(ANSWER).topics  # first: after it the client knows a broker that is there
        return compare(self.all, existing(cluster, list(self.all)), topics)

    def apply(self, cluster: Kafka, quiet: bool = False) -> Diff | None:
        """Print what will be done, do it, wait until each partition has a leader. quiet: print nothing, return it.

        What can never be done (shrinking, a refused name, a missing right) is found before anything is changed.
        """
        first = now = self.diff(cluster)
        if not quiet:
            print(first)
        limit = APPLIED + EACH * len(first.waits)
        deadline = time.monotonic() + limit
        faster = ""
        agreed = 0
        while True:
            if now.refusals:
                raise now.refusals[0]
            agreed = 0 if now.waits else agreed + 1
            if agreed == (AGREED if first.waits else 1) or (agreed and self._served(cluster, first)):
                return first if quiet else None
            if time.monotonic() > deadline:
                last = faster or f"not yet so: {', '.join(now.waits)}"
                raise errors.NotInTime(seconds=limit, why="the planned topics and all their leaders", last=last)
            faster = _send(cluster, now, trial=True) or _send(cluster, now, trial=False)
            time.sleep(0.02)
            now = self.diff(cluster)

    def _served(self, cluster: Kafka, diff: Diff) -> bool:
        """Were topics only created, and does the cluster's one broker serve them? Then no other broker learns of them later.

        A leader is named a moment before it serves, so each partition is asked for its end.
        """
        if diff.grow or diff.alter or len(cluster.brokers) > 1:
            return False
        latest = {
            TopicPartition(name, number): ka.OffsetSpec.latest()
            for name, topic in diff.create.items()
            for number in range(topic.partitions)
        }
        answers = cluster.admin.list_offsets(latest, request_timeout=ANSWER) if latest else {}
        return all(answer.exception() is None for answer in answers.values())

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """The plan in a TOML file. `BadConfig` says what is wrong with it, and where."""
        try:
            tables = tomllib.loads(Path(path).read_text("utf-8"))
            return cls({name: _from_table(f"{path}: [{_header(name)}]", table) for name, table in tables.items()})
        except (OSError, ValueError, errors.BadTopicName) as error:  # ValueError: no TOML, no UTF-8
            raise errors.BadConfig(source=str(path), why=getattr(error, "strerror", None) or str(error)) from error

    def write(self, path: str | Path) -> None:
        """Keep the plan in a TOML file, for deployment."""
        tables = [_to_table(name, topic) for name, topic in self.topics.items()]
        Path(path).write_text("\n".join([_HEAD.format(file=Path(path).name), *tables]), "utf-8")

    def show(self) -> str:
        """A table of every topic that will exist."""
        rows = [("topic", "partitions", "kept and set", "why")]
        for name, topic in self.all.items():
            comes = "which site has which queue" if name == QUEUES else f"dead letters of {name[:-5]}"
            how = ", ".join(described(topic)) or "as the cluster does"
            rows.append((name, str(topic.partitions), how, "planned" if name in self.topics else comes))
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, wide)).rstrip() for row in rows)


# --- the plan as a file ----------------------------------------------------------------------------------------------

_HEAD = """\
# The topics of a cluster, planned with kqlib. Applied by `kq topics apply {file}`: topics are created and grown,
# never shrunk or deleted. `kq topics show {file}` lists what it makes, `kq topics diff {file}` what would change.
# A section with web_servers (two partitions each) or queue = true is a queue: kept for ever, with NAME.dead.
"""


def _header(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _to_table(name: str, topic: Topic | QueueTopic) -> str:
    values = stated(topic)
    values |= {f'config."{key}"': value for key, value in values.pop("config", {}).items()}
    queue = {"queue": True} if isinstance(topic, QueueTopic) and "web_servers" not in values else {}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in {**queue, **values}.items()]
    return "\n".join([f"[{_header(name)}]", *lines, ""])


def _from_table(source: str, table: Any) -> Topic | QueueTopic:
    if not isinstance(table, dict):
        raise errors.BadConfig(source=source, why="this value is outside of a topic's section")
    values = dict(table)
    if isinstance(values.get("config"), dict):
        values["config"] = dict(_flat(values["config"]))
    queue = values.pop("queue", "web_servers" in values)
    if not isinstance(queue, bool):
        raise errors.BadConfig(source=source, why=f"queue is true or false, not {queue!r}")
    kind = QueueTopic if queue else Topic
    keys = [*(each.name for each in fields(kind)), "queue"]
    if unknown := [key for key in values if key not in keys]:
        hint = '. A name with dots is quoted: ["a.b"]' if isinstance(values[unknown[0]], dict) else ""
        why = f"unknown key {unknown[0]!r}; a {kind.__name__} has {', '.join(keys)}{hint}"
        raise errors.BadConfig(source=source, why=why)
    try:
        return kind(**values)
    except errors.BadConfig as error:
        raise errors.BadConfig(source=source, why=error.facts["why"]) from error


def _flat(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """TOML reads an unquoted retention.ms as a table in a table: here it is one name again."""
    for key, value in table.items():
        yield from _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(f"{before}{key}", value)]


# --- the cluster: questions and changes -------------------------------------------------------------------------------

_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}  # the second: no topic can have this name
_FASTER = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS, KafkaError.UNKNOWN_TOPIC_OR_PART}
_RIGHTS = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_ASK = "Ask your administrator to apply the plan: `kq topics show plan.toml` says what it makes."


def partitions_of(cluster: Kafka, topic: str) -> int:
    """How many partitions a topic has; `TopicMissing` if there is no such topic. Never creates it."""
    if topic and (found := _describe(cluster, [topic])):
        return len(found[topic].partitions)
    raise errors.TopicMissing(topic=topic)


def existing(cluster: Kafka, names: list[str]) -> dict[str, Existing]:
    """What the cluster has of these topics."""
    parts = [names[first : first + ASKED] for first in range(0, len(names), ASKED)]
    return {name: found for part in parts for name, found in _existing(cluster, part).items()}


def _existing(cluster: Kafka, names: list[str]) -> dict[str, Existing]:
    topics = _describe(cluster, names)
    asked = [ka.ConfigResource(ka.ResourceType.TOPIC, name) for name in topics]
    answers = cluster.admin.describe_configs(asked, request_timeout=ANSWER) if asked else {}
    there = {}
    for name, entries in _answers(cluster, answers, "DESCRIBE_CONFIGS").items():
        config = {key: entry.value or "" for key, entry in entries.items()}
        partitions = topics[name].partitions
        leaderless = sum(each.leader is None or each.leader.id < 0 for each in partitions)
        there[name] = Existing(len(partitions), len(partitions[0].replicas), config, leaderless)
    return there


def _describe(cluster: Kafka, names: list[str]) -> dict[str, Any]:
    """What exists of these. `list_topics(name)` would create it where the brokers allow that; this does not."""
    admin = cluster.admin  # held while it works: a temporary one may never answer

    def ask() -> dict[str, Any]:
        return _answers(cluster, admin.describe_topics(TopicCollection(names), request_timeout=ANSWER / 4), "DESCRIBE")

    try:
        return ask()
    except errors.Unreachable:
        # The client may take a broker that is away for the controller. After this it knows another one.
        cluster.describe(ANSWER)
        return ask()


def _answers(cluster: Kafka, futures: Mapping[Any, Any], right: str) -> dict[str, Any]:
    """By topic, what was asked; a topic that is not there, or not yet on the broker that answered, is left out."""
    found = {}
    for one, future in futures.items():
        name = getattr(one, "name", one)
        try:
            found[name] = future.result()
        except KafkaException as error:
            if error.args[0].code() not in _MISSING:
                raise _refused(cluster, error, f"look at '{name}'", f"{right} on topic '{name}'") from None
    return found


def _send(cluster: Kafka, diff: Diff, trial: bool) -> str:
    """Ask for every change; on trial only whether it would be accepted. Returns where another process was faster, if so."""
    seconds = ANSWER + EACH * max(TOGETHER, len(diff.grow) + len(diff.alter))
    admin, how = cluster.admin, {"validate_only": trial, "request_timeout": seconds}
    asked = {}  # by what is asked, and the right that it needs
    for new in _together(diff.create):
        for name, future in admin.create_topics(new, **how).items():
            future.exception()  # it waits: of many requests at once a controller answers the last ones too late
            asked[f"create '{name}'", f"CREATE on topic '{name}'"] = future
    for name, count in diff.grow.items():
        key = f"grow '{name}'", f"ALTER on topic '{name}'"
        asked[key] = admin.create_partitions([ka.NewPartitions(name, count)], **how)[name]
    for name, config in diff.alter.items():
        entries = [
            ka.ConfigEntry(key, value, incremental_operation=ka.AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ka.ConfigResource(ka.ResourceType.TOPIC, name, incremental_configs=entries)
        key = f"set {', '.join(config)} of '{name}'", f"ALTER_CONFIGS on topic '{name}'"
        asked[key] = admin.incremental_alter_configs([resource], **how)[resource]
    faster = ""
    done = []
    refused = []
    for (doing, right), future in asked.items():
        try:
            future.result()
            done.append(doing)
        except KafkaException as error:
            if error.args[0].code() in _FASTER:
                faster = f"{doing}: {error.args[0].str()}"
            else:
                refused.append((error, doing, right))
    if refused:
        known = f"Known to be done: {', '.join(done) or 'nothing'}. Applying again is safe."
        raise _refused(cluster, *refused[0], "Nothing was changed." if trial else known) from None
    return faster


def _together(create: Mapping[str, Topic]) -> Iterator[list[ka.NewTopic]]:
    """The new topics of each request. A request for each, all at once, is more than a controller answers in time."""
    some, partitions = list[ka.NewTopic](), 0
    for name, topic in create.items():
        if some and partitions + topic.partitions > TOGETHER:
            yield some
            some, partitions = [], 0
        some.append(ka.NewTopic(name, topic.partitions, topic.replicas or -1, config=topic.settings))
        partitions += topic.partitions
    if some:
        yield some


def _refused(cluster: Kafka, error: KafkaException, doing: str, right: str, safe: str = "") -> errors.KqError:
    """The cluster's answer as an error of ours, in the cluster's words."""
    code, words = error.args[0].code(), error.args[0].str().rstrip(".")
    if code < 0 or code == KafkaError.REQUEST_TIMED_OUT:  # below 0 are the client's own: no answer came
        return errors.Unreachable(address=cluster.bootstrap, why=f"{words} (asked to {doing}). {safe}".rstrip(". "))
    if code in _RIGHTS:
        return errors.NotAllowed(" ".join(filter(None, [f"{lacks(cluster, right)}.", safe, _ASK])))
    return errors.NotAllowed(f"The cluster refuses to {doing}: {words}. {safe}".rstrip())
