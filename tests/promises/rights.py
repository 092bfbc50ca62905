"""A user of few rights: what `app` may do on a secure cluster, rule by rule.

In:  a secure cluster, rules as text. Out: `app` may do exactly that.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kqlib.workshop.cluster import Cluster
from tests.patience import WAIT, until

KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
USER = "User:app"
OPERATIONS = {
    "topic": ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"),
    "group": ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
    "transactional-id": ("WRITE", "DESCRIBE"),
}
USUAL = [f"{each} {kind} *" for kind, operations in OPERATIONS.items() for each in operations]  # of a new cluster


def may(cluster: Cluster, *rules: str) -> None:
    """From now on `app` may do exactly this. A rule: "WRITE topic football", or "WRITE transactional-id kq-fans-*" for a prefix.

    What stays is not taken away for a moment: in it a client of the test would be refused something that the test does not mean.
    """
    ours = (None, ResourcePatternType.ANY, USER, None, AclOperation.ANY, AclPermissionType.ANY)
    known, expected = AclBindingFilter(ResourceType.ANY, *ours), {_binding(rule) for rule in rules}
    old = set(cluster.admin.describe_acls(known).result(WAIT))
    if expected - old:
        for made in cluster.admin.create_acls([*expected - old]).values():
            made.result(WAIT)
    if old - expected:
        for done in cluster.admin.delete_acls([the_one(rule) for rule in old - expected]).values():
            done.result(WAIT)
    until(lambda: set(cluster.admin.describe_acls(known).result(WAIT)) == expected)


def the_one(rule: AclBinding) -> AclBindingFilter:
    """What finds this rule alone."""
    kind = (rule.restype, rule.name, rule.resource_pattern_type)
    return AclBindingFilter(*kind, rule.principal, rule.host, rule.operation, rule.permission_type)


def _binding(rule: str) -> AclBinding:
    operation, kind, name = rule.split(" ", 2)
    prefixed = name.endswith("*") and name != "*"
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    who: tuple[Any, ...] = (USER, "*", AclOperation[operation], AclPermissionType.ALLOW)
    return AclBinding(KINDS[kind], name.removesuffix("*") if prefixed else name, pattern, *who)
