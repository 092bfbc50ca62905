"""The broker of a small world: one partition of one group, as a few values.

In:  requests, members that come and go. Out: what Kafka does:

    a commit        refused if its member is out, or has a newer epoch. Whose the partition is, is not checked
    a transaction   its offsets are checked in the same way. A plain commit between them and the end wins
    a member        that is silent for its session is put out; one that is to give the partition up is waited for
    requests        of one member arrive in the order in which they were sent
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from confluent_kafka import KafkaError

from kqlib.queue.incidents import Stored
from kqlib.queue.ledger import Ledger
from tests.unit.small_process import Request


class Broker:
    """What it has stored, and the group."""

    def __init__(self, items: int) -> None:
        self.network: list[Request] = []
        self.stored: Stored | None = None
        self.members: dict[str, int] = {}  # id -> epoch
        self.epoch = 0  # of the group
        self.owner = self.next_owner = ""  # the id of the member that has the partition, and of one that shall have it
        self.pending: Request | None = None  # a transaction's offsets
        self.pending_item = -1
        self.overtaken = False  # a plain commit was stored since
        self.written = [0] * items  # how often the outputs of each

    def key(self) -> Any:
        """Equal for brokers that go on alike."""
        return sorted(self.members.items()), [value for name, value in vars(self).items() if name != "members"]

    # --- states ---

    def store(self, request: Request) -> int:
        """Store this state, or refuse it. Kafka's code; 0: it is stored."""
        epoch = self.members.get(request.member)
        if epoch is None:
            return KafkaError.UNKNOWN_MEMBER_ID
        if epoch != request.epoch:
            return KafkaError.STALE_MEMBER_EPOCH
        self.stored = request.state
        self.overtaken = self.pending is not None
        return 0

    def pend(self, request: Request, item: int) -> bool:
        """Take a transaction's offsets, which become the state when it is committed. False: they are refused."""
        if self.pending or self.members.get(request.member) != request.epoch:
            return False
        self.pending, self.pending_item, self.overtaken = request, item, False
        return True

    def commit(self) -> tuple[Request, int]:
        """Commit the transaction: its outputs and its offsets. These, and the item."""
        request = self.abort()
        if not self.overtaken:
            self.stored = request.state
        self.written[self.pending_item] += 1
        return request, self.pending_item

    def abort(self) -> Request:
        """Forget the transaction's offsets."""
        assert self.pending is not None
        request, self.pending = self.pending, None
        return request

    # --- the group ---

    def join(self, member: str) -> int:
        """Take a member in. Its epoch."""
        self.epoch += 1
        self.members[member] = self.epoch
        self.owner = self.owner or member
        return self.epoch

    def moved(self, member: str) -> int:
        """This member has given the partition up. Its epoch from now on."""
        self.epoch += 1
        self.members[member] = self.epoch
        self.owner, self.next_owner = self.next_owner or self.owner, ""
        return self.epoch

    def put_out(self, member: str) -> None:
        """End its membership; another member gets what it had."""
        del self.members[member]
        if self.owner == member:
            self.owner = self.next_owner or next(iter(self.members), "")
        if member in (self.owner, self.next_owner) or self.owner == self.next_owner:
            self.next_owner = ""


@lru_cache(maxsize=10_000)
def done(stored: Stored | None, items: int) -> frozenset[int]:
    """The items that are done in this state."""
    if stored is None:
        return frozenset()
    ledger = Ledger.read(stored[1], stored[0])
    return frozenset(n for n in range(items) if n < ledger.top and ledger.attempts(n) is None)


def words(stored: Stored | None) -> str:
    """What this state says."""
    if stored is None:
        return "there is none"
    ledger = Ledger.read(stored[1], stored[0])
    open_ = [f"{n} (attempt {made})" for start, end, made in ledger.runs() for n in range(start, end)]
    return f"floor {ledger.floor}, open {', '.join(open_) or 'nothing'}, epoch {ledger.epoch}"
