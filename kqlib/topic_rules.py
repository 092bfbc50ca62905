"""The rules of topics, without Kafka: what may be a name, what a topic states, what differs from what exists.

In:  names, `Topic` and `QueueTopic` values, and what a cluster has, as plain values.
Out: the same values checked, and a `Diff` in words and in steps. Plans, files and clusters are in `topics.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kqlib import errors
from kqlib.text import count

QUEUES = "kq.queues"  # compacted: which site has which queue
KAFKAS = ("consumer_offsets", "transaction_state", "share_group_state", "cluster_metadata", "remote_log_metadata")
RESERVED = {f"__{name}": "Kafka" for name in KAFKAS} | dict.fromkeys((QUEUES, "kq.schemas", "kq.labs"), "kqlib")
LONGEST = 249  # a partition's directory is NAME-NUMBER, and file systems stop at 255
MOST_PARTITIONS = 10_000  # the controller refuses more in one request
VIRTUAL = (".offsets", ".partitions")  # a topic with such companions holds virtual queues
FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
RECORD_BYTES = 1_048_588  # Kafka's default for max.message.bytes
DEAD_MORE_BYTES = 65_536  # a dead letter carries its whole story in headers


def check_name(name: str) -> str:
    """The name back, if Kafka and kqlib take it for a new topic; else `BadTopicName` says why not."""
    if why := _wrong(name):
        raise errors.BadTopicName(topic=name, why=why)
    return name


def _wrong(name: Any) -> str | None:
    if not isinstance(name, str):
        return f"a name is text, not {type(name).__name__}"
    if name in {"", ".", ".."}:
        return "it becomes a directory's name" if name else "it is empty"
    if bad := re.search(r"[^a-zA-Z0-9._-]", name):
        return f"Kafka takes a-z A-Z 0-9 . _ - and not {bad[0]!r}"
    if len(name) > LONGEST:
        return f"it has {len(name)} characters and Kafka takes {LONGEST}"
    taken = next((taken for taken in RESERVED if metric(taken) == metric(name)), None)
    return taken and f"{RESERVED[taken]} keeps '{taken}' for itself{alike(name, taken)}"


def metric(name: str) -> str:
    """A topic's name as Kafka's metrics write it; Kafka takes only one topic of each."""
    return name.replace(".", "_")


def alike(name: str, other: str) -> str:
    return "" if name == other else ", and Kafka's metrics write '.' as '_'"


# --- what a plan is made of ------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Topic:
    """A topic as it should be; what is not stated (replicas, config) is left to the cluster."""

    partitions: int = 1
    compact: bool = False  # keep the last record of each key
    replicas: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)  # Kafka's own settings

    def __post_init__(self) -> None:
        _check(self)
        if not isinstance(self.compact, bool):
            raise errors.BadConfig(source="Topic", why=f"compact is True or False, not {self.compact!r}")
        if self.compact and "cleanup.policy" in self.config:
            raise errors.BadConfig(source="Topic", why="give compact or cleanup.policy, not both")

    @property
    def settings(self) -> dict[str, str]:
        """The settings that this topic states; all others are the cluster's."""
        return {**self.config, **({"cleanup.policy": "compact"} if self.compact else {})}

    def __repr__(self) -> str:
        return _shown(self)


@dataclass(frozen=True, repr=False)
class QueueTopic:
    """A queue's topic: two partitions a web server (or so many), kept for ever; `<name>.dead` comes with it."""

    web_servers: int | None = field(default=None, compare=False)  # another way to give the number of partitions
    partitions: int = 0
    replicas: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (self.web_servers is None) == (self.partitions == 0):
            why = "give web_servers or partitions, one of the two, at least 1"
            raise errors.BadConfig(source="QueueTopic", why=why)
        if self.web_servers is not None:
            _check_whole("QueueTopic", "web_servers", self.web_servers, MOST_PARTITIONS // 2)
            object.__setattr__(self, "partitions", 2 * self.web_servers)
        _check(self)
        if forgets := sorted(self.config.keys() & FOR_EVER.keys()):
            raise errors.BadConfig(source="QueueTopic", why=f"a queue is kept for ever: leave {forgets[0]} out")
        size = self.config.get("max.message.bytes", "1")
        if not re.fullmatch(r"[0-9]{1,10}", size) or int(size) >= 2**31 - DEAD_MORE_BYTES:
            raise errors.BadConfig(source="QueueTopic", why=f"max.message.bytes cannot be {size}")

    @property
    def topic(self) -> Topic:
        """The queue as a plain topic; the size of a record is stated, so that a dead letter's can be larger."""
        config = {"max.message.bytes": RECORD_BYTES, **self.config, **FOR_EVER}
        return Topic(self.partitions, replicas=self.replicas, config=config)

    @property
    def dead(self) -> Topic:
        """The topic of its dead letters: the same, for larger records."""
        size = int(self.topic.config["max.message.bytes"]) + DEAD_MORE_BYTES
        return replace(self.topic, config={**self.topic.config, "max.message.bytes": size})

    def __repr__(self) -> str:
        return _shown(self)


def _check_whole(kind: str, what: str, value: Any, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise errors.BadConfig(source=kind, why=f"{what} is a whole number from 1 to {most:,}, not {value!r}")


def _check(topic: Topic | QueueTopic) -> None:
    """Numbers are numbers; settings become text, sorted."""
    kind, config = type(topic).__name__, {} if topic.config is None else topic.config
    _check_whole(kind, "partitions", topic.partitions, MOST_PARTITIONS)
    if topic.replicas is not None:
        _check_whole(kind, "replicas", topic.replicas, 32_767)
    if not isinstance(config, Mapping):
        raise errors.BadConfig(source=kind, why=f"config is a table of Kafka's settings, not {config!r}")
    for key, value in config.items():
        if not re.fullmatch(r"preallocate|[a-z]+(\.[a-z]+)+", str(key)):
            raise errors.BadConfig(source=kind, why=f"{key!r} is no setting of Kafka's (like 'retention.ms')")
        if not isinstance(value, str | int | float) or not str(value).isprintable():
            raise errors.BadConfig(source=kind, why=f"{key} is a text, a number, True or False, not {value!r}")
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()}
    object.__setattr__(topic, "config", dict(sorted(texts.items())))


def stated(topic: Topic | QueueTopic) -> dict[str, Any]:
    """The arguments that make this topic again; what is left at its default is left out."""
    values = {each.name: value for each in fields(topic) if (value := getattr(topic, each.name))}
    if "web_servers" in values:
        del values["partitions"]
    return values


def _shown(topic: Topic | QueueTopic) -> str:
    return f"{type(topic).__name__}({', '.join(f'{key}={value!r}' for key, value in stated(topic).items())})"


# --- what differs: pure ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Existing:
    """A topic as the cluster has it."""

    partitions: int
    replicas: int = 1
    config: Mapping[str, str] = field(default_factory=dict, hash=False)
    leaderless: int = 0  # partitions that nobody leads at this moment


@dataclass(frozen=True, repr=False)
class Diff:
    """What applying a plan does: + create, ~ change, = nothing, ≠ differs and stays so, ! cannot be done."""

    lines: list[str] = field(default_factory=list)
    create: dict[str, Topic] = field(default_factory=dict)
    grow: dict[str, int] = field(default_factory=dict)
    alter: dict[str, dict[str, str]] = field(default_factory=dict)
    leaderless: list[str] = field(default_factory=list)
    refusals: list[errors.KqError] = field(default_factory=list)

    @property
    def waits(self) -> list[str]:
        """The topics that are not yet as planned."""
        return list(dict.fromkeys([*self.create, *self.grow, *self.alter, *self.leaderless]))

    @property
    def stays(self) -> bool:
        """Is there a difference that applying the plan does not end?"""
        return any(line.startswith("≠") for line in self.lines)

    def __repr__(self) -> str:
        return "\n".join(self.lines) or "An empty plan: nothing to do."


def compare(plan: Mapping[str, Topic], there: Mapping[str, Existing], names: Iterable[str] = ()) -> Diff:
    """What it takes to have the topics of `plan`. there: what exists of them; names: every topic of the cluster."""
    diff, names = Diff(), list(names)
    strangers = [name for name in names if name not in plan and name not in RESERVED]
    rivals = {metric(name): name for name in strangers}
    known = {*names, *there}
    for name, want in plan.items():
        rival = rivals.get(metric(name))
        if have := there.get(name):
            virtual = known.issuperset(name + end for end in VIRTUAL)
            diff.lines.extend(_compare_one(diff, name, want, have, virtual) or [f"= {name}: as planned"])
        elif rival:
            why = f"it collides with '{rival}', which is on the cluster{alike(name, rival)}"
            diff.refusals.append(errors.BadTopicName(topic=name, why=why))
            diff.lines.append(f"! {name}: collides with '{rival}' on the cluster (BadTopicName)")
        else:
            diff.create[name] = want
            words = ", ".join([count(want.partitions, "partition"), *described(want)])
            diff.lines.append(f"+ {name}: create, {words}")
    if strangers:
        diff.lines.append(f"{count(len(strangers), 'other topic')} on this cluster: left alone.")
    return diff


def _compare_one(diff: Diff, name: str, want: Topic, have: Existing, virtual: bool) -> list[str]:
    lines = []
    if have.leaderless:
        diff.leaderless.append(name)
    if have.partitions > want.partitions:
        diff.refusals.append(errors.CannotShrink(topic=name, have=have.partitions, want=want.partitions))
        lines.append(f"! {name}: has {have.partitions} partitions, the plan says {want.partitions} (CannotShrink)")
    if have.partitions < want.partitions and virtual:
        why = (
            f"'{name}' has virtual queues in {count(have.partitions, 'partition')}, and the plan says {want.partitions}. "
            "partition = hash(queue) % partitions, so most queues would not find their records, and no node would serve any. "
            f"Keep {have.partitions}, or make new topics of another name and put the items there."
        )
        diff.refusals.append(errors.NotAllowed(why))
        lines.append(
            f"! {name}: its virtual queues have {have.partitions} partitions, the plan says {want.partitions} (NotAllowed)"
        )
    elif have.partitions < want.partitions:
        diff.grow[name] = want.partitions
        lines.append(f"~ {name}: {have.partitions} → {want.partitions} partitions; keys move to others (notebook 03)")
    for key, value in want.settings.items():
        now = have.config.get(key, "")
        if now != value and _plain(now) != _plain(value):  # as texts first: the number nan is not equal to itself
            diff.alter.setdefault(name, {})[key] = value
            lines.append(f"~ {name}: {key} {have.config.get(key, '(not set)')} → {value}")
    if want.replicas not in {None, have.replicas}:
        has = count(have.replicas, "replica")
        lines.append(f"≠ {name}: has {has}, the plan says {want.replicas}; a plan does not move replicas")
    if "compact" in have.config.get("cleanup.policy", "") and "cleanup.policy" not in want.settings:
        lines.append(f"≠ {name}: is compacted, the plan does not say so; left as it is")
    return lines


def _plain(value: str) -> float | list[str]:
    """A setting's value, so that 0.50 is 0.5 and 'compact, delete' is 'delete,compact'."""
    try:
        return float(value)
    except ValueError:
        return sorted(part.strip().lower() for part in value.split(","))


def described(topic: Topic) -> list[str]:
    """How a topic keeps its records and what else it states, in words; Kafka's own record size is not worth one."""
    settings = {key: value for key, value in topic.settings.items() if value != str(RECORD_BYTES)}
    words = [] if topic.replicas is None else [count(topic.replicas, "replica")]
    for kept, word in ((FOR_EVER, "kept for ever"), ({"cleanup.policy": "compact"}, "compacted")):
        if kept.items() <= settings.items():
            words.append(word)
            settings = {key: value for key, value in settings.items() if key not in kept}
    return words + [f"{key}={value}" for key, value in settings.items()]
