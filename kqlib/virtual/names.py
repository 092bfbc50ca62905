"""Names of virtual queues: their three topics, valid names, the partition of a queue. Pure.

T              the records of every queue; a record's key is its queue. Not compacted: that would keep one item a queue
T.offsets      what consumers have done, in the partition of the same number; compacted
T.partitions   which node owns which partition, at which address; compacted
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kqlib import keys
from kqlib.errors import NotAllowed
from kqlib.topic_rules import DEAD_MORE_BYTES, FOR_EVER, RECORD_BYTES, VIRTUAL, Topic, check_name

OFFSETS, PARTITIONS = VIRTUAL
DEAD = ".dead"  # the queue of a queue's dead letters
FORM = r"[A-Za-z0-9_:@~-][A-Za-z0-9_:@~.-]{0,199}"
CLOCK = {"message.timestamp.type": "LogAppendTime"}  # Kafka's own: nodes' clocks may differ
MOST = 1_000  # partitions; each one that a node owns is a thread and a producer


def topics(
    name: str, partitions: int, replicas: int | None = None, config: Mapping[str, Any] | None = None
) -> dict[str, Topic]:
    """The three topics of a set of virtual queues, for a plan: `Plan(topics("games", partitions=6))`."""
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 1 <= partitions <= MOST:
        raise NotAllowed(f"partitions is a whole number from 1 to {MOST:,}, not {partitions!r}")
    if "compact" in str((config or {}).get("cleanup.policy", "")):
        raise NotAllowed(f"'{name}' cannot be compacted: of each queue only the last item would stay")
    data = {**FOR_EVER, **CLOCK, "max.message.bytes": RECORD_BYTES + DEAD_MORE_BYTES, **(config or {})}
    return {
        check_name(name): Topic(partitions, replicas=replicas, config=data),
        check_name(name + OFFSETS): Topic(partitions, compact=True, replicas=replicas, config=CLOCK),
        check_name(name + PARTITIONS): Topic(1, compact=True, replicas=replicas),
    }


def checked(what: str, name: Any) -> str:
    """A queue's or a consumer's name; `NotAllowed` if it cannot be one."""
    if not isinstance(name, str) or not re.fullmatch(FORM, name):
        why = "1 to 200 of a-z A-Z 0-9 _ : @ ~ . - and does not begin with a dot"
        raise NotAllowed(f"a {what}'s name has {why}: not {name!r}")
    return name


def checked_token(token: Any) -> str | None:
    """The token that a client shows to a node; None: a node asks for none."""
    if token is not None and (not isinstance(token, str) or not re.fullmatch(r"[!-~]{8,1000}", token)):
        raise NotAllowed("a token is at least 8 ASCII characters without spaces (its value is not shown)")
    return token


def queue_of(key: bytes | None) -> str | None:
    """The queue of a record; None: its key is not the name of a queue."""
    try:
        name = key.decode() if key else ""
    except UnicodeDecodeError:
        return None
    return name if re.fullmatch(FORM, name) else None


@lru_cache(10_000)
def partition_of(queue: str, partitions: int) -> int:
    """partition = murmur2(name) without its sign % partitions, as Java's clients and all of kqlib's compute it."""
    return keys.partition(queue.encode(), partitions)
