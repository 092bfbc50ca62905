"""Which of Kafka's rights each verb of a queue needs: one table, from which errors, `kq doctor --rights` and docs/rights.md come.

In:  a queue's and a site's name. Out: `Right` values by verb, and Kafka's own commands that grant them. Pure: no Kafka here.
READ and WRITE include DESCRIBE, so DESCRIBE stands here only where neither of the two is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from shlex import quote

from kqlib.queue.dead import DEAD
from kqlib.topic_rules import QUEUES


@dataclass(frozen=True)
class Right:
    """One operation on one resource, as Kafka's ACLs have it. In the table `{queue}` and `{site}` stand for names."""

    operation: str
    kind: str  # topic, group or transactional-id
    name: str
    prefixed: bool = False  # of every name that begins so

    def of(self, queue: str, site: str) -> Right:
        """The same right for a real queue and site."""
        return replace(self, name=self.name.replace("{queue}", queue).replace("{site}", site))

    @property
    def resource(self) -> str:
        """What it is about, in words."""
        kind = self.kind.replace("-", " ")
        return f"{kind}s that begin with '{self.name}'" if self.prefixed else f"{kind} '{self.name}'"

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource}"


READ_NOTES, WRITE_NOTES = Right("READ", "topic", QUEUES), Right("WRITE", "topic", QUEUES)
READ_QUEUE, WRITE_QUEUE = Right("READ", "topic", "{queue}"), Right("WRITE", "topic", "{queue}")
READ_DEAD, WRITE_DEAD = Right("READ", "topic", "{queue}" + DEAD), Right("WRITE", "topic", "{queue}" + DEAD)
READ_GROUP, SEE_GROUP = Right("READ", "group", "{site}"), Right("DESCRIBE", "group", "{site}")
BEGIN = Right("WRITE", "transactional-id", "kq-{site}-", prefixed=True)

OPEN = (READ_NOTES, Right("DESCRIBE", "topic", "{queue}"), Right("DESCRIBE", "topic", "{queue}" + DEAD))  # site.queue()
CLAIM = (READ_QUEUE, READ_GROUP, WRITE_NOTES)
VERBS: dict[str, tuple[Right, ...]] = {  # beside OPEN, which each of them begins with
    "put": (WRITE_QUEUE,),
    "transaction": (WRITE_QUEUE, BEGIN),
    "claim": CLAIM,
    "ack": CLAIM,
    "bury": (*CLAIM, WRITE_DEAD, BEGIN),
    "step": (*CLAIM, WRITE_QUEUE, BEGIN),
    "redrive": (READ_DEAD, READ_GROUP, WRITE_NOTES, WRITE_QUEUE, BEGIN),
    "depth": (READ_QUEUE, SEE_GROUP),
    "peek": (READ_QUEUE, SEE_GROUP),
    "stats": (READ_QUEUE, READ_DEAD, SEE_GROUP),
    "purge": (SEE_GROUP, WRITE_NOTES),
}
IN_TABLE = {(right.operation, right.kind) for some in (OPEN, *VERBS.values()) for right in some}
ROLES = {"a user that only puts": ("put",), "a user that works": tuple(VERBS)}


def needed(verb: str, queue: str, site: str) -> list[Right]:
    """What a verb needs beside an open queue."""
    return [right.of(queue, site) for right in VERBS[verb]]


def table(queue: str, site: str) -> dict[str, list[Right]]:
    """By verb, everything that it needs. What another right includes is left out."""
    return {verb: _least([*(right.of(queue, site) for right in OPEN), *needed(verb, queue, site)]) for verb in VERBS}


def _least(rights: Iterable[Right]) -> list[Right]:
    """Each right once, and no DESCRIBE of what may be read or written."""
    once = list(dict.fromkeys(rights))
    seen = {(right.kind, right.name) for right in once if right.operation != "DESCRIBE"}
    return [right for right in once if right.operation != "DESCRIBE" or (right.kind, right.name) not in seen]


def commands(verbs: Iterable[str], queue: str, site: str, user: str) -> list[str]:
    """Kafka's own commands that give a user what these verbs need: one for each resource."""
    by = table(queue, site)
    operations: dict[tuple[str, str, bool], list[str]] = {}
    for right in _least(right for verb in verbs for right in by[verb]):
        operations.setdefault((right.kind, right.name, right.prefixed), []).append(right.operation)
    found = list[str]()
    for (kind, name, prefixed), some in operations.items():
        what = "".join(f"--operation {each} " for each in some) + f"--{kind} {quote(name)}"
        pattern = " --resource-pattern-type prefixed" * prefixed
        found.append(f"kq kafka acls --add --allow-principal {quote(f'User:{user}')} {what}{pattern}")
    return found
