"""Claiming: take under the lock, have the attempts committed, hand out. Waits for records, due times and ended leases.

In:  claims from any thread. Out: items, each with a lease in this process; or none, after the log's end was seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, Unreachable
from kqlib.queue import arguments, dead, state
from kqlib.queue.ending import Ending
from kqlib.queue.item import Item
from kqlib.queue.line import Terms
from kqlib.queue.owner import Lease, Owner
from kqlib.queue.put import Putting, TopicFacts
from kqlib.queue.sender import Out

if TYPE_CHECKING:
    from kqlib.queue.site import Site

FIRST = 10.0  # seconds that the first claim waits for its partitions
SEEN = 1.0  # seconds that a claim takes at most to read to the end it saw
LOOK = 0.05  # seconds after which a waiting thread looks again, whatever happened: a clock of somebody's own may have moved


class Claiming(Putting):
    """A queue as who claims sees it."""

    def __init__(
        self, site: Site, terms: Terms, lease: float, facts: TopicFacts, dead_facts: TopicFacts | None
    ) -> None:
        super().__init__(site, terms.queue, facts)
        self.lease, self.terms, self.dead_facts = lease, terms, dead_facts
        self._member, self._turn = site._member, 0

    def claim(self, lease: float | None = None, wait: float = 0) -> Item | None:
        """The next item, yours until its lease ends; None if there is none after `wait` seconds."""
        found = self.claim_many(1, lease, wait)
        return found[0] if found else None

    def claim_many(self, n: int, lease: float | None = None, wait: float = 0) -> list[Item]:
        """Up to n items, as soon as there is one; [] if there is none after `wait` seconds."""
        arguments.count("n", n)
        seconds = self.lease if lease is None else arguments.lease(lease)
        until = time.monotonic() + arguments.wait(wait)
        ends: dict[tuple[str, int], int] | None = (
            None if wait < SEEN else {}
        )  # a second of waiting sees the end by itself
        readable = time.monotonic() + FIRST  # a partition of ours that is still being loaded is waited for so long
        with self._member.changed:
            self._join()
            while True:
                self._usable_here()
                if taken := self._take(n):
                    if items := self._hand_out(taken, seconds):
                        return items
                elif ends is None:
                    ends = self._ends()
                    seen = time.monotonic() + SEEN
                elif time.monotonic() < until:
                    self._wait(until)
                elif self._behind(ends) and time.monotonic() < seen:
                    self._wait(seen)
                elif self._member.loading(self.name) and time.monotonic() < readable:
                    self._wait(readable)
                    ends = None
                else:
                    return []

    def _join(self) -> None:
        """Be in the group, and wait for what it gives us; `changed` is held."""
        member, deadline = self._member, time.monotonic() + FIRST
        member.terms[self.name] = self.terms
        member.claimed_at[self.name] = member._active = time.monotonic()
        if member.settled(self.name):
            return
        member.start()
        member.trouble, nothing = "", time.monotonic() + member.told
        while not member.settled(self.name):
            self._usable_here()
            member.wake.set()
            if time.monotonic() > nothing and not member.trouble:
                member.joined.add(self.name)  # who gets nothing is told nothing: it would have been said by now
            if time.monotonic() > deadline:
                if why := member.why_unsettled(self.name):
                    raise Unreachable(address=self.site.cluster.bootstrap, why=f"{why}. Nothing was claimed")
                member.joined.add(self.name)
                return
            member.changed.wait(LOOK)

    def _usable_here(self) -> None:
        self._usable()
        if self._member.closing is not None:
            raise Closed(thing=f"site '{self.site.name}'")
        for (topic, _), error in self._member.broken.items():
            if topic == self.name:
                raise error

    def _take(self, n: int) -> list[tuple[Owner, Lease, list[tuple[int, int]]]]:
        """From the partitions in turn, what is at hand."""
        owners = self._member.owners_of(self.name)
        taken: list[tuple[Owner, Lease, list[tuple[int, int]]]] = []
        self._turn += 1
        for place in range(len(owners)):
            owner = owners[(self._turn + place) % len(owners)]
            lease, given = owner.claim(n - sum(len(some) for _, _, some in taken))
            if owner.used_up:
                self._bury_used_up(owner)
            if given:
                taken.append((owner, lease, given))
            if sum(len(some) for _, _, some in taken) >= n:
                break
        return taken

    def _hand_out(self, taken: list[tuple[Owner, Lease, list[tuple[int, int]]]], seconds: float) -> list[Item]:
        """Attempts are committed before anybody sees an item; a claim that could not be is taken back."""
        try:
            self._member.save([owner for owner, _, _ in taken])
        except BaseException:  # Unreachable, or Ctrl-C in a cell
            for owner, lease, given in taken:
                owner.undo(lease, [offset for offset, _ in given])
            raise
        items = []
        for owner, lease, given in taken:
            offsets = [offset for offset, _ in given]
            if owner.dropped:
                continue
            if owner.leaving:
                owner.undo(lease, offsets)
                continue
            deadline = owner.start(lease, offsets, seconds)
            name, partition, records, epoch = self.name, owner.partition, owner.records, owner.ledger.epoch
            items += [
                Item(name, partition, records[offset], attempt, deadline, epoch, lease.number)
                for offset, attempt in given
                if owner.leases.get(offset) is lease  # a purge may have taken it meanwhile
            ]
        return items

    def _wait(self, until: float) -> None:
        """Until records come, something is due or a lease ends; `changed` is held."""
        member, owners = self._member, self._member.owners_of(self.name)
        clock = self.terms.clock
        change = min((owner.next_change() for owner in owners), default=float("inf")) - clock()
        own_clock = LOOK if clock is not time.monotonic else 1.0
        member.hungry[self.name] += 1
        member.claimed_at[self.name] = time.monotonic()
        member.wake.set()
        try:
            member.changed.wait(max(0.001, min(until - time.monotonic(), change, own_clock)))
        finally:
            member.hungry[self.name] -= 1

    def _ends(self) -> dict[tuple[str, int], int]:
        """Where my partitions end now: read-committed. Asked without the lock: nobody waits for it but us."""
        owned = [(self.name, owner.partition) for owner in self._member.owners_of(self.name)]
        try:
            return self._unlocked(lambda: state.ends(self.site.cluster, owned)) if owned else {}
        except Unreachable:
            return {}  # who cannot be asked has nothing for us now

    def _unlocked(self, ask: Callable[[], Any]) -> Any:
        self._member.changed.release()
        try:
            return ask()
        finally:
            self._member.changed.acquire()

    def _behind(self, ends: dict[tuple[str, int], int]) -> bool:
        """Is there a part of my log that I have not read, of what was there when the claim began?"""
        owners = self._member.owners
        return any(owners[at].target() < end for at, end in ends.items() if at in owners)

    def _bury_used_up(self, owner: Owner) -> None:
        """Nobody gets it again: its attempts are used up, by releases or by crashes."""
        offsets, owner.used_up = owner.used_up, []
        for offset in offsets:
            out = self._letter(owner, offset, "its attempts are used up")
            self._member.endings.ask(Ending([out], [(owner, offset, 0)]))

    def _letter(self, owner: Owner, offset: int, reason: str) -> Out:
        facts = self.dead_facts
        assert facts is not None  # checked before
        origin, attempts = f"{self.name}/{owner.partition}/{offset}", owner.ledger.attempts(offset) or 0
        record = owner.records[offset]
        return dead.letter(
            record,
            origin=origin,
            site=self.site.name,
            attempts=attempts,
            reason=reason,
            partitions=facts.partitions,
            limit=facts.limit,
        )
