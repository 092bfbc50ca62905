"""One partition in one process: who has what until when, what is due later, what comes next.

In:  records as they are read, verbs as they are called, the time. Out: what to hand out, and a `Ledger` that says it all.
No Kafka here: `member` reads and commits. Not locked: the site's lock is held by whoever calls.

An item is in one of these places:
    fresh       read, at or above the ledger's top, nobody has looked at it yet
    back        open and ready: released, expired, due, its key became free. Goes before what is fresh, the older offset first
    later       open, due at a time
    waiting     open, its key is busy (order="key")
    leases      handed out
    ending      its last transaction runs: acked when that is committed
    missing     open, its record must be read (again)
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from kqlib.errors import KqError, Unreachable
from kqlib.queue.incidents import Incident, Stored
from kqlib.queue.item import Item
from kqlib.queue.lease import Claimed, Handled, Lease
from kqlib.queue.ledger import Ledger
from kqlib.queue.line import Line, Terms, warn_once

TORN = "a change of its state was broken off (Ctrl-C), and it is read again"
ALONE = (
    "an item on its last two attempts goes out alone, because it may have killed its earlier workers: the others wait"
)
UNNOTED = "what a rewind put back waits until kq.queues says so: after a crash it would be put back again"
AGAIN = 20.0  # seconds until an item that could not be buried is tried again
UNBURIED = f"what failed for good cannot be buried: it waits, and is tried again every {AGAIN:.0f} s. {{}}"
Change = TypeVar("Change", bound=Callable[..., Any])


def whole(change: Change) -> Change:
    """A change that Ctrl-C strikes in the middle leaves a state that nobody knows: it is given up, and never committed."""

    @wraps(change)
    def run(self: Owner, *words: Any, **named: Any) -> Any:
        try:
            return change(self, *words, **named)
        except BaseException:
            self.dropped = self.dropped or TORN
            self.saved_at = time.monotonic()  # from now on it is to be read again
            raise

    return cast(Change, run)


class Owner(Line):
    """One partition that this process owns."""

    def __init__(self, terms: Terms, partition: int, ledger: Ledger, low: int = 0, mark: int = 0) -> None:
        """low: where the log begins. mark: up to where the queue was purged, which is no loss."""
        ledger.purge(mark)
        unread = max(0, low - ledger.top)
        lost = ledger.purge(low) + unread  # no longer in the log, and not done: retention was faster
        missing = [offset for start, end, _ in ledger.runs() for offset in range(start, end)]
        super().__init__(terms, ledger, missing)
        self._inherited = {offset for offset in missing if ledger.attempts(offset)}  # who had them may have died of one
        self.partition = partition
        self.lost = lost  # what left the log before it was done, and is no incident yet; between these offsets
        self.lost_from, self.lost_to = ledger.floor, ledger.floor
        self.chosen = 0  # what on_lost="latest" skipped
        self.incidents: list[Incident] = []
        self.incidents_version = 0  # of the ledger, that goes with them
        self.incidents_noted = 0  # the one whose incidents are in kq.queues
        self.unnoted = False  # a rewind changed them, and the note of that is not there yet
        self.noting: Any = None  # how the last notes fare
        self.committed: Stored | None = None  # the state as it was last committed
        self.sent: Stored | None = None  # as a transaction commits it now
        self.last_noted: Stored | None = None  # as kq.queues has it
        self.last_noted_at = float("-inf")
        self.version = self.saved = self.wanted = 0  # of the ledger: now, committed, somebody waits for
        self.unsure = 0  # up to this version a commit may have been stored, although its answer did not come
        self.frozen = 0  # the version that a transaction commits now; until it ends nothing else is committed. 0: none
        self.dirty_since: float | None = None
        self.dropped: str | None = None  # why it is no longer ours
        self.leaving = False  # being given up: hands out nothing
        self.full = ""  # why no more is read now
        self.saved_at = self.heard_at = time.monotonic()  # when its state was stored or given up, and when records came
        self.noted = False  # that this site has state here: known to all, or on its way
        self.purged = self.purged_version = 0  # the mark that was applied, and since when
        self.leases: dict[int, Lease] = {}
        self.ending: dict[int, Lease | None] = {}
        self.used_up: list[int] = []  # to be buried by the member
        # what could not be buried and is due later: why, and whether it was given up
        self._aside: dict[int, tuple[KqError, bool]] = {}
        self._expiring: list[tuple[float, list[int]]] = []  # a claim's offsets together: one entry, however many
        self._listed = 0  # offsets in there
        self._alone: int | None = None  # an item that is out, and nothing else goes out beside it
        self._number = 0

    # --- records come in ---

    def _found(self, offset: int) -> None:
        if self._foreign(offset):  # a rewind put it back with the others
            self._done([offset])
        else:
            super()._found(offset)

    def _gone(self, offset: int) -> None:
        if self.ledger.attempts(offset):
            self._lose(offset, offset + 1)
        else:  # perhaps a transaction's mark, which a rewind put back: then it lies above the log's beginning
            self.gaps.append((offset, offset + 1))
        self._done([offset])

    def log_begins(self, low: int) -> None:
        """Gaps below the log's beginning are what retention took before anybody read it."""
        for start, end in self.gaps:
            self._lose(start, min(end, low))
        self.gaps.clear()

    def _lose(self, start: int, end: int) -> None:
        if start < end:
            self.lost_from = min(self.lost_from, start) if self.lost else start
            self.lost_to = max(self.lost_to, end) if self.lost else end
            self.lost += end - start

    # --- incidents ---

    def lost_is_noted(self, incidents: list[Incident]) -> None:
        """What was lost is one of these now."""
        self.lost = 0
        self._now(incidents)

    @whole
    def rewind(self, upto: int, back: bool) -> None:
        """Incidents up to this time are over: their items are put back, as far as the ledger has room now, or forgotten."""
        left = [each for each in self.incidents if each.at > upto]
        for each in self.incidents:
            if back and each.at <= upto and each.why == "skipped" and (rest := self._reopen(each)):
                left.append(rest)
        if left != self.incidents:
            self._now(sorted(left, key=lambda each: each.at))

    def _now(self, incidents: list[Incident]) -> None:
        self.incidents = incidents
        self.changed()
        self.wanted = self.incidents_version = self.version

    def _reopen(self, incident: Incident) -> Incident | None:
        """What the ledger has no room for yet. What is open already, an owner that died before it noted that has put back."""
        for start, end, attempts in incident.runs():
            room = self.ledger.room_again()
            new = self.ledger.reopen(start, end, attempts, room)
            for offset in (offset for first, last in new for offset in range(first, last)):
                self._seek(offset)
            if sum(last - first for first, last in new) == room:
                return replace(incident, start=self.ledger.open_until(start)).from_(0)
        return None

    # --- handing out ---

    @whole
    def claim(self, most: int) -> Claimed:
        """Up to `most` items, in order. Counted in the ledger, not yet committed."""
        self.tidy()
        self._number += 1
        claimed = Claimed(Lease(self._number, float("inf")), [], [])
        given = claimed.offsets
        self.blocked = ALONE if self._alone is not None else UNNOTED if self.unnoted else ""
        if self.blocked or self._loading or self.leaving or self.dropped:
            return claimed
        pending = self._plain(most) if not self._back else []
        while len(given) + len(pending) < most and not self.blocked:
            if (offset := self._next_back()) is None and (offset := self._next_fresh(claimed, pending)) is None:
                break
            alone = self._goes_alone(offset)
            if alone and (self.leases or self.ending or given or pending):
                self._put_back([offset])
                self.blocked = ALONE
                break
            pending.append(offset)
            if alone:
                self._alone, self.blocked = offset, ALONE
                break
        self._hand_out(claimed, pending)
        if given:
            self.leases.update(dict.fromkeys(given, claimed.lease))
            self.changed()
        if self._alone is not None and self._alone not in self.leases:
            self._alone = None
        self._skip()
        return claimed

    def _hand_out(self, claimed: Claimed, pending: list[int]) -> None:
        attempts = self.ledger.claim(pending)
        claimed.offsets.extend(pending[: len(attempts)])
        claimed.attempts.extend(attempts)
        if len(attempts) < len(pending):
            self.blocked = "the ledger is full: items that wait or are out leave no room for more"
            self._put_back(pending[len(attempts) :])
        pending.clear()

    def _next_back(self) -> int | None:
        while self._back:
            offset = heapq.heappop(self._back)
            if self.ledger.attempts(offset) is None or offset in self.leases:
                continue
            if offset not in self.records:  # given up for space: read again
                self._seek(offset)
            elif self._spent(offset):
                self.ending[offset] = None
                self.used_up.append(offset)
            else:
                return offset
        return None

    def _spent(self, offset: int) -> bool:
        most = self.terms.max_attempts
        return most is not None and (self.ledger.attempts(offset) or 0) >= most

    def _goes_alone(self, offset: int) -> bool:
        """Is the coming attempt one of its last two, and did a dead owner make the earlier ones?

        A poison item then takes nobody with it. One that was not out yet, or that a living process released, has killed nobody.
        """
        most, made = self.terms.max_attempts, self.ledger.attempts(offset) or 0
        return most is not None and made + 1 >= most - 1 and offset in self._inherited

    @whole
    def start(self, claimed: Claimed, seconds: float) -> float:
        """The claim is committed: the lease begins. Its deadline."""
        lease, offsets, _ = claimed
        lease.deadline = self.terms.clock() + seconds
        self.terms.rates.note("claims", len(offsets), time.monotonic())
        self._expires(lease.deadline, offsets)
        return lease.deadline

    def _expires(self, deadline: float, offsets: list[int]) -> None:
        heapq.heappush(self._expiring, (deadline, offsets))
        self._listed += len(offsets)

    @whole
    def undo(self, claimed: Claimed) -> None:
        """The claim was not handed out after all."""
        for offset in claimed.offsets:
            if self.leases.get(offset) is claimed.lease:
                self.unclaim(offset)

    @whole
    def undo_all(self, thread: int) -> None:
        """No claim of this thread was handed out, of those that are under way."""
        for offset, lease in list(self.leases.items()):
            if lease.deadline == float("inf") and lease.thread == thread:
                self.unclaim(offset)

    @whole
    def unclaim(self, offset: int, delay: float = 0.0) -> None:
        """It was claimed for nothing: ready again, or due later, and the attempt does not count."""
        self._release(offset, delay)
        self.ledger.give_back(offset)
        self.changed()

    def due_now(self, offsets: set[int]) -> None:
        """Those of them that are due later are due at once."""
        self._later = [(at if offset not in offsets else 0.0, offset) for at, offset in self._later]
        heapq.heapify(self._later)

    def tidy(self) -> None:
        """What became due, whose lease ended: ready again."""
        now = self.terms.clock()
        while self._later and self._later[0][0] <= now:
            heapq.heappush(self._back, heapq.heappop(self._later)[1])
        while self._expiring and self._expiring[0][0] <= now:
            _, offsets = heapq.heappop(self._expiring)
            self._listed -= len(offsets)
            for offset in offsets:
                if (lease := self.leases.get(offset)) is None:
                    continue
                if lease.deadline > now:  # extended, or another lease
                    self._expires(lease.deadline, [offset])
                else:
                    self._release(offset)
        if self._listed > 2 * len(self.leases) + 10_000:  # what was acked is still listed
            self._expiring = [(lease.deadline, [offset]) for offset, lease in self.leases.items()]
            self._listed = len(self._expiring)
            heapq.heapify(self._expiring)

    def next_change(self) -> float:
        """When `tidy` will find something."""
        firsts = [heap[0][0] for heap in (self._later, self._expiring) if heap]
        return min(firsts, default=float("inf"))

    def claimable(self) -> bool:
        """Is there something that a claim would look at?"""
        return bool(self._back or self._fresh) and self._alone is None and not self.leaving and not self.unnoted

    def why_blocked(self) -> str:
        """Why nothing is handed out although there may be something; '' if nothing is known to be in the way."""
        self.tidy()
        return self.blocked if self._back or self._fresh else self.full

    def why_aside(self) -> str:
        """What is said while an item waits that cannot be buried."""
        return next((UNBURIED.format(why) for why, _ in self._unburied().values()), "")

    def _unburied(self) -> dict[int, tuple[KqError, bool]]:
        if self._aside:
            waits = {*(offset for _, offset in self._later), *self.ending}
            self._aside = {offset: why for offset, why in self._aside.items() if offset in waits}
        return self._aside

    def stuck(self) -> dict[int, KqError]:
        """What was given up, and cannot be buried before somebody mends something; why not."""
        return {
            offset: why
            for offset, (why, given_up) in self._unburied().items()
            if given_up and offset not in self.ending and not isinstance(why, Unreachable)
        }

    def in_hand(self) -> bool:
        """Is something out, due later or ready? What is stuck is not counted."""
        later = len(self._later) + len(self.ending)
        return bool(self.leases or self._back or self._fresh or later > len(self.stuck()))

    # --- the verbs ---

    def why_not(self, offset: int, epoch: int, number: int) -> str:
        """Why this receipt no longer holds; '' if it does."""
        lease = self.leases.get(offset)
        if self.dropped:
            return self.dropped
        if epoch != self.ledger.epoch:
            return "this partition was given up and taken again since it was claimed"
        if offset in self.ending:
            return "it is being buried or its step is ending"
        if lease is None or lease.number != number:
            open_ = self.ledger.attempts(offset) is not None
            return "its lease ended, and it was or will be handed out again" if open_ else "it is done already"
        if lease.deadline <= self.terms.clock():
            return "its lease has expired"
        return ""

    def holding(self, items: Iterable[Item], now: float) -> list[int]:
        """The offsets of those whose receipt holds: the quick way of `why_not`, for many."""
        leases, site, topic, current = self.leases, self.terms.site, self.ledger.topic, self.ledger.epoch
        if self.dropped:
            return []
        return [
            offset
            for _, _, record, _, _, epoch, number, of_site, topic_id in items
            if (lease := leases.get(offset := record.offset())) is not None
            and number == lease.number
            and epoch == current
            and topic_id == topic
            and of_site == site
            and lease.deadline > now
        ]

    @whole
    def ack(self, offsets: list[int]) -> None:
        """Done: their leases were checked."""
        pop = self.leases.pop
        for offset in offsets:
            if (handled := pop(offset).handled) is not None:
                handled.ended = "done"
        self.terms.rates.note("acks", len(offsets), time.monotonic())
        self._done(offsets)

    def _done(self, offsets: list[int]) -> None:
        self.blocked = ""  # not known before the next claim
        if self._alone is not None and self._alone in offsets:
            self._alone = None
        if self.terms.order == "key":
            for offset in offsets:
                self._free(offset)
        if self._due_at:
            for offset in offsets:
                self._due_at.pop(offset, None)
        self._forget(offsets)
        self.ledger.ack(sorted(offsets))
        self.changed()
        self._skip()

    @whole
    def release(self, offset: int, delay: float) -> None:
        """Back to the front, or due later; the attempt counts."""
        if (handled := self.leases[offset].handled) is not None:
            handled.ended = "released"
        self._release(offset, delay)

    def set_aside(self, offset: int, why: KqError, given_up: bool) -> None:
        """Due later, because it cannot be buried. given_up: by the queue's attempts, or before by a `Retry`."""
        self.release(offset, AGAIN)
        self._keep_aside(offset, why, given_up)

    def _keep_aside(self, offset: int, why: KqError, given_up: bool = True) -> None:
        self._aside[offset] = why, given_up
        warn_once(self.terms.queue, self.terms.site, type(why).__name__, UNBURIED.format(why))

    def _release(self, offset: int, delay: float = 0.0) -> None:
        del self.leases[offset]
        self._aside.pop(offset, None)
        self.blocked = ""  # not known before the next claim
        if self._alone == offset:
            self._alone = None
        if delay:
            heapq.heappush(self._later, (self.terms.clock() + delay, offset))
        else:
            heapq.heappush(self._back, offset)

    @whole
    def extend(self, offset: int, seconds: float) -> float:
        """Only the deadline moves; the number stays, so both values ack."""
        old = self.leases[offset]
        new = Lease(old.number, self.terms.clock() + seconds, old.thread, old.handled)
        self.leases[offset] = new
        self._expires(new.deadline, [offset])
        return new.deadline

    def handle(self, offset: int) -> Handled:
        """A handler of `work` gets it: a drain waits for that, and what is returned says how it ended."""
        old, handled = self.leases[offset], Handled(self, offset)
        self.leases[offset] = Lease(old.number, old.deadline, old.thread, handled)
        return handled

    @whole
    def discard(self, offset: int) -> str:
        """Done without having been claimed; why not, or ''."""
        self.tidy()
        if offset in self.leases or offset in self.ending:
            return "somebody has claimed it"
        while self._fresh and self._fresh[0] <= offset:
            self.blocked = ""
            self._pass(self._fresh[0])
            if self.blocked:
                return "too many items lie before it; deal with those first"
        if self.ledger.attempts(offset) is None:
            return "it is not there, or done already"
        self._done([offset])
        return ""

    # --- endings: a transaction that acks ---

    def begin_ending(self, offset: int) -> None:
        """Its lease is set aside until the transaction's outcome is known."""
        self.ending[offset] = self.leases.pop(offset)

    def with_acked(self, offsets: Iterable[int]) -> Ledger:
        """The state as the transaction will commit it."""
        ledger = self.ledger.copy()
        ledger.ack(sorted(offsets))
        return ledger

    def end(self, offsets: Iterable[int], done: bool, why: KqError | None = None) -> None:
        """The transaction's outcome: done, or as if it had not been. why: what was in the way."""
        offsets = list(offsets)
        for offset in offsets:
            lease = self.ending.pop(offset, None)
            if done or self.ledger.attempts(offset) is None:  # done, or purged meanwhile
                if done and lease is not None and lease.handled is not None:
                    lease.handled.ended = "done"
                continue
            if lease is None:  # it could not be buried by the owner
                heapq.heappush(self._later, (self.terms.clock() + AGAIN, offset))
                self._keep_aside(offset, why or KqError("It was not tried to the end"))
            else:
                self.leases[offset] = lease
                self._expires(lease.deadline, [offset])
        if done:
            self.terms.rates.note("acks", len(offsets), time.monotonic())
            self._done(offsets)

    # --- marks, and the end ---

    @whole
    def purge(self, below: int) -> None:
        """Everything below counts as done, whoever has it."""
        if below <= self.ledger.floor:
            return
        for offset in [offset for offset in self.leases if offset < below]:
            del self.leases[offset]
            if self._alone == offset:
                self._alone = None
        while self._fresh and self._fresh[0] < below:
            self._forget([self._fresh.popleft()])
        gone = [offset for start, end, _ in self.ledger.runs() for offset in range(start, min(end, below))]
        self._sought = {offset for offset in self._sought if offset >= below}
        self._later = [entry for entry in self._later if entry[1] >= below]
        heapq.heapify(self._later)
        if gone:
            self._done(gone)
        self.ledger.purge(below)
        self.head = max(self.head, below)
        self._loaded()
        self.changed()

    def busy_elsewhere(self, closing: int | None) -> bool:
        """Does somebody still work on one of these?"""
        self.tidy()
        return bool(self.ending) or any(lease.at_work(closing) for lease in self.leases.values())

    def at_work(self, closing: int | None) -> list[str]:
        """The ids of what somebody works on."""
        offsets = [*self.ending, *(offset for offset, lease in self.leases.items() if lease.at_work(closing))]
        return [f"{self.terms.queue}/{self.partition}/{offset}" for offset in offsets]

    @whole
    def give_back(self, closing: int | None) -> None:
        """Given up in good order: attempts that nobody made do not count."""
        for offset, lease in list(self.leases.items()):
            if not lease.at_work(closing):
                self.unclaim(offset)

    def changed(self) -> None:
        """The ledger is no longer what is committed."""
        self.version += 1
        if self.dirty_since is None:
            self.dirty_since = time.monotonic()

    # --- what a person may ask ---

    def counts(self) -> dict[str, int]:
        """How many are where."""
        return {"claimed": len(self.leases) + len(self.ending), "delayed": len(self._later)}
