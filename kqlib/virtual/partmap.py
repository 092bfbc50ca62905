"""The map: which node has which partition, as T.partitions says it. Every node answers with it, every client keeps one.

In:  records of that topic, in order. Out: owners by partition; the greater version is the newer map. Pure.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Owner:
    """Who has a partition: a node's id, its address, and the how many-eth owner it is."""

    node: str
    url: str
    epoch: int


class PartitionMap:
    """Partition -> its owner, or nobody."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions, self.version = topic, partitions, -1
        self.owners: dict[int, Owner] = {}

    def heard(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """A record of T.partitions; one that was heard before says nothing new."""
        if offset <= self.version:
            return
        with suppress(ValueError, TypeError, KeyError):  # somebody else's line
            partition, said = int(key or b""), json.loads(value or b"null")
            if said is None or not said["url"]:
                self.owners.pop(partition, None)
            else:
                self.owners[partition] = Owner(said["node"], said["url"], said["epoch"])
        self.version = offset

    def answer(self) -> dict[str, Any]:
        """The map as it is answered."""
        owners = {str(number): _plain(self.owners.get(number)) for number in range(self.partitions)}
        return {"topic": self.topic, "partitions": self.partitions, "version": self.version, "owners": owners}


def record(partition: int, owner: Owner | None, epoch: int = 0) -> tuple[bytes, bytes]:
    """Key and value of the record that says who has a partition; None: nobody."""
    said = _plain(owner) or {"node": "", "url": "", "epoch": epoch}
    return str(partition).encode(), json.dumps(said).encode()


def _plain(owner: Owner | None) -> dict[str, Any] | None:
    """An owner as plain values."""
    return None if owner is None else {"node": owner.node, "url": owner.url, "epoch": owner.epoch}
