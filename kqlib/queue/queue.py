"""The verbs of a queue. Each one is a few lines over owners: take under the lock, have it committed, hand out.

In:  calls from any thread. Out: items, and errors that say what is safe. Made by `site.queue(name)`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, LeaseLost, NotAllowed, NotClaimed, Unreachable
from kqlib.queue import arguments, dead, look, state
from kqlib.queue.ending import Ending
from kqlib.queue.item import Item
from kqlib.queue.owner import Lease, Owner, Terms
from kqlib.queue.put import Putting, TopicFacts
from kqlib.queue.sender import Out
from kqlib.queue.step import Step

if TYPE_CHECKING:
    from kqlib.queue.retry import Retry
    from kqlib.queue.site import Site

FIRST = 10.0  # seconds that the first claim waits for its partitions
SEEN = 1.0  # seconds that a claim takes at most to read to the end it saw
LOOK = 0.05  # seconds after which a waiting thread looks again, whatever happened: a clock of somebody's own may have moved


class Queue(Putting):
    """A queue of one site: put, claim, ack."""

    def __init__(
        self, site: Site, terms: Terms, lease: float, facts: TopicFacts, dead_facts: TopicFacts | None
    ) -> None:
        super().__init__(site, terms.queue, facts)
        self.lease, self.terms, self.dead_facts = lease, terms, dead_facts
        self._member, self._turn = site._member, 0
        self._dead: Queue | None = None

    # --- out ---

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
        ask = time.monotonic() + 1
        while not member.settled(self.name):
            self._usable_here()
            member.wake.set()
            if time.monotonic() > ask:  # who gets nothing is told nothing: the group itself knows
                ask = time.monotonic() + 0.5
                nothing = self._unlocked(
                    lambda: state.given_nothing(self.site.cluster, self.site.name, member.id, self.name)
                )
                if nothing and not member.settled(self.name):
                    member.joined.add(self.name)
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

    # --- done, or not ---

    def ack(self, item: Item, wait: bool = True) -> None:
        """Done: it never comes again. Durable when it returns; wait=False: within 50 ms."""
        with self._member.changed:
            owner = self._held(item)
            owner.ack([item.offset])
            self._freed([owner])
            self._save([owner], wait, "The ack is noted, and stored with the next commit that succeeds")

    def ack_many(self, items: Sequence[Item], wait: bool = True) -> None:
        """All of them done with one commit. Those whose lease is lost are in the error's `.items`; the others are done."""
        by: dict[Owner, list[int]] = defaultdict(list)
        refused, why, seen = [], "", set()
        with self._member.changed:
            for item in items:
                try:
                    owner = self._held(item)
                except LeaseLost as error:
                    refused.append(item)
                    why = why or str(error)
                    continue
                at = (owner, item.offset)
                if at in seen:
                    refused.append(item)
                    why = why or f"{item.id}: it is twice in this call"
                    continue
                seen.add(at)
                by[owner].append(item.offset)
            for owner, offsets in by.items():
                owner.ack(offsets)
            self._freed(list(by))
            self._save(list(by), wait, "The acks are noted, and stored with the next commit that succeeds")
        if refused:
            said = f"{len(refused)} of {len(items)} were not acked; the others are. The first: {why}"
            raise LeaseLost(said, items=refused)

    def _freed(self, owners: list[Owner]) -> None:
        """What is done may let another go: the next of its key, or all that an item on its last attempts held up."""
        if self._member.hungry[self.name] and any(owner.claimable() for owner in owners):
            self._member.changed.notify_all()

    def release(self, item: Item, delay: float = 0) -> None:
        """Not done: back to the front, or due after `delay` seconds. The attempt counts."""
        seconds = arguments.delay(delay)
        with self._member.changed:
            self._held(item).release(item.offset, seconds)
            self._member.changed.notify_all()

    def extend(self, item: Item, lease: float | None = None) -> Item:
        """Yours for longer: `lease` seconds from now. Both values ack."""
        seconds = self.lease if lease is None else arguments.lease(lease)
        with self._member.changed:
            deadline = self._held(item).extend(item.offset, seconds)
        return Item(item.queue, item.partition, item.record, item.attempt, deadline, item.epoch, item.lease)

    def bury(self, item: Item, reason: str = "") -> None:
        """To the dead letters, with its whole story: written there and done here at once, or neither."""
        if not isinstance(reason, str):
            raise NotAllowed(f"a reason is text, not {type(reason).__name__}")
        self._check_bury()
        with self._member.changed:
            owner = self._held(item)
            out = self._letter(owner, item.offset, reason)
            self.site._end(Ending([out], [(owner, item.offset, item.lease)]))

    def _check_bury(self) -> None:
        if self.name.endswith(dead.DEAD):
            raise NotAllowed(f"'{self.name}' holds dead letters already: ack, discard or redrive one")
        if self.dead_facts is None:
            why = f"'{self.name}{dead.DEAD}' does not exist, so nothing can be buried. Add '{self.name}' to the plan as a QueueTopic"
            raise NotAllowed(why)

    def step(self, item: Item) -> AbstractContextManager[Step]:
        """`with queue.step(item) as step: step.put(other, data)`: outputs and the ack, all or nothing."""
        with self._member.changed:
            owner = self._held(item)
        return Step(self.site, [(owner, item.offset, item.lease)])

    def _held(self, item: Item) -> Owner:
        """The owner of a claimed item, if its lease holds; else the error that says why not."""
        if not isinstance(item, Item):
            raise NotAllowed(f"this takes an Item that claim() gave, not {type(item).__name__}")
        if item.queue != self.name:
            raise NotAllowed(f"{item.id} is not an item of '{self.name}'")
        if not item.lease:
            raise NotClaimed(f"{item.id} was only looked at (peek). Claim it first")
        self.site._check_open()
        owner = self._member.owners.get((self.name, item.partition))
        why = (
            owner.why_not(item.offset, item.epoch, item.lease)
            if owner
            else "this process does not have its partition (any more)"
        )
        if why or owner is None:
            raise LeaseLost(f"{item.id}: {why}. Nothing was changed; leave it, it comes again if it was not done")
        return owner

    def _save(self, owners: list[Owner], wait: bool, safe: str) -> None:
        if not wait:
            return
        try:
            self._member.save(owners)
        except Unreachable as error:
            raise Unreachable(address=self.site.cluster.bootstrap, why=f"{error.facts['why']}. {safe}") from None
        for owner in owners:
            if owner.dropped and owner.saved < owner.version:
                raise LeaseLost(
                    f"'{self.name}': {owner.dropped}, while the ack was on its way: it may not have been stored"
                )

    def _handled(self, item: Item) -> None:
        """A handler begins with it: a drain waits for that, and its attempt counts."""
        with self._member.changed:
            self._held(item).handle(item.offset)

    # --- what a person may ask ---

    def depth(self) -> int:
        """How many items are not acked, claimed ones included; from any process."""
        self.site._check_open()
        self.site._flush(self.name)
        return look.depth(self.site, self.name)

    def purge(self) -> None:
        """Everything now in it counts as done, whoever owns it. Durable when it returns."""
        self.site._check_open()
        look.purge(self.site, self.name)
        with self._member.changed:
            for (topic, partition), owner in self._member.owners.items():
                if topic == self.name:
                    self._member._mark((topic, partition), owner)
            self._member.changed.notify_all()

    def peek(self, n: int = 10) -> list[Item]:
        """The first n items that are not done, without claiming them."""
        self.site._check_open()
        self.site._flush(self.name)
        return look.peek(self.site, self.name, arguments.count("n", n))

    def discard(self, id: str) -> None:  # noqa: A002 - the word of Item
        """Done without having been claimed: an item that nobody has out, in a partition of this process."""
        topic, partition, offset = look.place(id)
        if topic != self.name:
            raise NotAllowed(f"{id} is not an item of '{self.name}'")
        self._usable()
        with self._member.changed:
            self._join()
            self._usable_here()
            owner = self._member.owners.get((self.name, partition))
            if owner is None:
                raise NotAllowed(f"{id}: another process has its partition; discard it there, or close that one")
            self._member.changed.wait_for(lambda: owner.target() > offset or bool(owner.dropped), SEEN)
            if why := owner.dropped or owner.discard(offset):
                raise NotAllowed(f"{id}: {why}. Nothing was changed")
            self._save([owner], True, "The discard is noted, and stored with the next commit that succeeds")

    @property
    def dead(self) -> Queue:
        """Its dead letters: a queue as well."""
        self._check_bury()
        if self._dead is None:
            self._dead = self.site.queue(self.name + dead.DEAD, lease=self.lease, max_attempts=None)
        return self._dead

    def redrive(self, n: int = 1) -> int:
        """Put up to n dead items back, as new ones: last in line, attempt 1. How many."""
        arguments.count("n", n)
        letters, moved = self.dead, 0
        while moved < n and (items := letters.claim_many(min(500, n - moved))):
            with self._member.changed:
                held = [(letters._held(item), item.offset, item.lease) for item in items]
                outs = [dead.back(item.record, self.name, self.site.name) for item in items]
                self.site._end(Ending(outs, held))
            moved += len(items)
        return moved

    @property
    def lost(self) -> int:
        """Open items that left the log (retention) before they were done; seen by this process."""
        with self._member.changed:
            return sum(owner.lost for owner in self._member.owners_of(self.name))

    @property
    def blocked(self) -> str:
        """Why nothing new is handed out although there is something; '' if nothing is in the way."""
        with self._member.changed:
            return next((owner.blocked for owner in self._member.owners_of(self.name) if owner.blocked), "")

    def stats(self) -> dict[str, Any]:
        """Numbers a person can ask for: depth, claimed, delayed, dead, oldest, blocked, lost."""
        return look.stats(self)

    def work(self, handler: Callable[[Item], object], threads: int = 1, retry: Retry | None = None, **how: Any) -> Any:
        """Claim, handle, ack, in `threads` threads, until told otherwise; see `kqlib.queue.work`."""
        from kqlib.queue.work import work

        return work(self, handler, threads, retry, **how)

    def __repr__(self) -> str:
        return f"Queue('{self.name}', site '{self.site.name}')"
