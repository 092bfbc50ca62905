"""One partition in the process that owns it: which items are leased until when, and which are handed out next.

In:  records as they are read, verbs as they are called, the time. Out: items to hand out, and a `Ledger` that says what is open.
It has a `Window` (the records that are in memory), an `Order` (the items that are not leased) and `Losses`. A leased item is in
`leases`, or in `ending` while a transaction acks it. No Kafka here: the session reads and commits. Callers hold the site's lock.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from kqlib.errors import KqError
from kqlib.queue.incidents import Stored
from kqlib.queue.item import Item, Job, Outcome, Place, Record
from kqlib.queue.leases import Claimed, Lease, Leases
from kqlib.queue.ledger import Ledger
from kqlib.queue.losses import Losses
from kqlib.queue.order import BURY_AGAIN_AFTER, Ahead, Order
from kqlib.queue.terms import Terms
from kqlib.queue.window import Arrived, Window

BROKEN_OFF = "a change of its state broke off in the middle (Ctrl-C, or an error), and it is read again"
ALONE = (
    "an item on its last two attempts goes out alone, because it may have killed its earlier workers: the others wait"
)
LEDGER_FULL = "the ledger is full: items that wait or are out leave no space for more"
FULL_OF_WAITING = "the ledger is full of items that are due later or whose key is busy"
UNNOTED = "what a rewind put back waits until kq.queues says so: after a crash it would be put back again"
Change = TypeVar("Change", bound=Callable[..., Any])


class View(NamedTuple):
    """What this process knows of its partition, for the depth."""

    ledger: Ledger
    fresh: int  # items that were read above the ledger's top
    head: int  # everything below was read, nothing from here on


def whole(change: Change) -> Change:
    """If Ctrl-C or an error breaks this change off, the state is unknown: the partition is dropped, so that it is not committed."""

    @wraps(change)
    def run(self: Partition, *words: Any, **named: Any) -> Any:
        try:
            return change(self, *words, **named)
        except BaseException:
            self.dropped = self.dropped or BROKEN_OFF
            self.saved_at = time.monotonic()  # from now on it is to be read again
            raise

    return cast(Change, run)


class Partition:
    """One partition that this process owns."""

    def __init__(self, terms: Terms, number: int, ledger: Ledger, low: int = 0, mark: int = 0) -> None:
        """low: where the log begins. mark: up to where the queue was purged, which is no loss."""
        ledger.purge(mark)
        unread = max(0, low - ledger.top)
        lost = unread + ledger.purge(low)
        missing = [offset for start, end, _ in ledger.runs() for offset in range(start, end)]
        self.terms = terms
        self.number = number
        self.ledger = ledger
        self.window = Window(ledger.top, missing)
        self.leases = Leases()
        self.ending: dict[int, Lease | None] = {}  # None: no worker has it, and it is buried
        self.order = Order(terms, ledger, self.window, self.ending)
        self.ahead = Ahead(terms, ledger, self.order)
        self.losses = Losses(ledger, self.window, lost)
        self._loading = terms.order == "key" and bool(missing)  # their records tell which keys are busy
        # One of these may have killed its worker.
        self._inherited = {offset for offset in missing if ledger.attempts(offset)}
        self.used_up: list[int] = []  # offsets to bury
        self._alone: int | None = None  # the last item that was handed out alone
        self.blocked = ""  # why the last claim handed out nothing more
        self.full = ""  # why no more is read now
        self.leaving = False  # it is being given up: nothing is handed out any more
        self.dropped: str | None = None  # why it is no longer ours
        self.version = 0  # of the ledger: it counts the changes
        self.saved = 0  # the version that is committed
        self.awaited = 0  # the version for whose commit a verb waits
        self.unsure = 0  # up to this version a commit may have been stored, although its answer did not come
        self.frozen = 0  # the version that a transaction commits now, while nothing else may be committed; 0: none
        self.dirty_since: float | None = None  # when the ledger began to differ from what is committed
        self.saved_at = time.monotonic()  # when its state was stored or given up
        self.arrived_at = time.monotonic()  # when records came
        self.committed: Stored | None = None  # the state as it was last committed
        self.sent: Stored | None = None  # as a transaction commits it now

    @property
    def at(self) -> Place:
        """Its topic and its number."""
        return self.terms.queue, self.number

    def id_of(self, offset: int) -> str:
        """The id of the item at this offset."""
        return f"{self.terms.queue}/{self.number}/{offset}"

    # --- records ---

    def arrive(self, records: Sequence[Record]) -> bool:
        """Take records of the log. False: it is another log, which begins anew."""
        arrived = self.window.arrive(records)
        if arrived is not None:
            self._take_in(arrived)
        return arrived is not None

    def end_seen(self, offset: int) -> None:
        """The log ends at this offset."""
        self._take_in(self.window.end_seen(offset))

    def _take_in(self, arrived: Arrived) -> None:
        self.order.add(arrived.new)
        for offset in arrived.found:
            if self.order.foreign(offset):  # of another site; a rewind put it back with the others
                self._done([offset])
            elif not self._loading:
                self.order.ready(offset)
        for offset in arrived.gone:
            if self.ledger.attempts(offset):
                self.losses.add(offset, offset + 1)
            else:  # perhaps a transaction's mark, which a rewind put back: then it lies above the log's beginning
                self.window.gaps.append((offset, offset + 1))
            self._done([offset])
        self._loaded()
        self._skip()

    def _loaded(self) -> None:
        """With order="key" nothing is handed out before everything open was read."""
        if self._loading and not self.window.missing:
            self._loading = False
            for start, end, _ in list(self.ledger.runs()):
                for offset in range(start, end):
                    self.order.ready(offset)

    def _skip(self) -> None:
        """If no fresh item is left, move the ledger's top up to what was read."""
        if not self.order.fresh and self.ledger.top < self.window.head:
            self.ledger.skip(self.window.head)
            self.changed()

    def drop_payloads(self) -> None:
        """Forget the records of items that are not ready; they are read again later. Not with order="key": their keys are needed."""
        if self.terms.order == "any":
            self.window.forget(self.order.not_ready())

    @whole
    def rewind(self, upto: int, back: bool) -> bool:
        """End the incidents up to this time: put their items back, or forget them. False: there is nothing to do."""
        changed = self.losses.rewind(upto, back)
        if changed:
            self.note_losses()
        return changed

    def note_losses(self) -> None:
        """Note the incidents with the next commit."""
        self.changed()
        self.awaited = self.losses.version = self.version

    # --- claiming ---

    @whole
    def claim(self, most: int) -> Claimed:
        """Claim up to `most` items, in order. They are counted in the ledger, and not yet committed."""
        self.tidy()
        claimed = Claimed(self.leases.new(), [], [])
        self.blocked = ALONE if self._one_is_alone() else UNNOTED if self.losses.unnoted else ""
        if self.blocked or self._loading or self.leaving or self.dropped:
            return claimed
        if self.order.back:
            self._claim_back(claimed, most)
        self._claim_fresh(claimed, most)
        self._skip()
        self.ahead.took = len(claimed.offsets)
        return claimed

    def _claim_back(self, claimed: Claimed, most: int) -> None:
        """Claim items that came back, the older offset first."""
        back = self.order.back
        row = list[int]()
        alone = False
        while back and len(row) < most and not alone:
            offset = back[0]
            if self._is_ready(offset):
                alone = self._goes_alone(offset)
                if alone and (self.leases or self.ending or row):
                    self.blocked = ALONE
                    break
                row.append(offset)
            heapq.heappop(back)
        given = self._lease(claimed, row)
        for offset in row[len(given) :]:
            heapq.heappush(back, offset)
        if alone and given:
            self._alone = given[0]
            self.blocked = ALONE

    def _is_ready(self, offset: int) -> bool:
        """Can it be handed out again? If not, it is read again or buried."""
        most, made = self.terms.max_attempts, self.ledger.attempts(offset)
        if made is None or offset in self.leases:
            return False
        if offset not in self.window.records:
            self.window.read_again(offset)
            return False
        if most is not None and made >= most:
            self.ending[offset] = None
            self.used_up.append(offset)
            return False
        return True

    def _goes_alone(self, offset: int) -> bool:
        """Is the next attempt one of its last two, and were the earlier ones made by an owner that died?

        The item may have killed it, and would take other items with it. An item that a living process released has killed nobody.
        """
        most, made = self.terms.max_attempts, self.ledger.attempts(offset) or 0
        return most is not None and made + 1 >= most - 1 and offset in self._inherited

    def _one_is_alone(self) -> bool:
        """Has a worker an item, beside which nothing else is handed out?"""
        alone = self._alone
        return alone is not None and (alone in self.leases or self.ending.get(alone) is not None)

    def _claim_fresh(self, claimed: Claimed, most: int) -> None:
        """Claim new items. Pass over those that cannot go out now, if the ledger has space for that."""
        order = self.order
        while order.fresh and (left := most - len(claimed.offsets)) > 0 and not self.blocked:
            if row := order.row(left):
                order.gone_out(self._lease(claimed, row))
            else:
                self._pass_over()

    def _pass_over(self) -> None:
        if self.order.pass_over():
            self.changed()
        else:
            self.blocked = FULL_OF_WAITING

    def _lease(self, claimed: Claimed, offsets: list[int]) -> list[int]:
        """Count the attempts of these and lease them. Returns those that fit into the ledger."""
        attempts = self.ledger.claim(offsets)
        given = offsets if len(attempts) == len(offsets) else offsets[: len(attempts)]
        claimed.offsets.extend(given)
        claimed.attempts.extend(attempts)
        if given:
            self.leases.update(dict.fromkeys(given, claimed.lease))
            self.changed()
        if len(given) < len(offsets):
            self.blocked = LEDGER_FULL
        return given

    def uncount(self) -> None:
        """Commit the state without attempts that are counted ahead: no claim follows for now."""
        self.ahead.took = 0
        if self.ahead.counted and not self.dropped:
            self.changed()

    @whole
    def start(self, claimed: Claimed, seconds: float) -> float:
        """Begin the lease, now that the claim is committed. Returns its deadline."""
        lease, offsets, _ = claimed
        lease.deadline = self.terms.clock() + seconds
        self.terms.rates.note("claims", len(offsets), time.monotonic())
        self.leases.ends_at(lease.deadline, offsets)
        return lease.deadline

    @whole
    def undo(self, thread: int) -> None:
        """Take back the claim of this thread that is under way: it is not handed out."""
        for offset in self.leases.of_thread(thread):
            self.unclaim(offset)

    @whole
    def unclaim(self, offset: int, delay: float = 0.0) -> None:
        """Take back a claim: ready again, or due later, and the attempt does not count."""
        self._release(offset, delay)
        self.ledger.give_back(offset)
        self.changed()

    @whole
    def tidy(self) -> None:
        """Make ready what became due, or whose lease ended."""
        now = self.terms.clock()
        self.order.tidy(now)
        for offset in self.leases.ended(now):
            self._release(offset)

    # --- what claims ask ---

    def next_change(self) -> float:
        """When `tidy` will find something."""
        return min(self.order.next_due(), self.leases.next_end())

    def claimable(self) -> bool:
        """Is there an item that a claim may hand out?"""
        return bool(self.order.cached) and not (self._one_is_alone() or self.leaving or self.losses.unnoted)

    def why_blocked(self) -> str:
        """Why nothing is handed out although there may be something; '' if nothing is known to be in the way."""
        self.tidy()
        return self.blocked if self.order.cached else self.full

    def in_hand(self) -> bool:
        """Is something out, due later or ready? What cannot be buried is not counted."""
        later = len(self.order.later) + len(self.ending)
        return bool(self.leases or self.order.cached or later > len(self.order.stuck()))

    def view(self) -> View:
        """What is open, how many items are read beyond that, and where reading goes on."""
        return View(self.ledger.copy(), self.order.fresh_items(), self.window.head)

    def counts(self) -> dict[str, int]:
        """How many items are claimed, and how many are delayed."""
        return {"claimed": len(self.leases) + len(self.ending), "delayed": len(self.order.later)}

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
        leases = self.leases
        site = self.terms.site
        topic = self.ledger.topic
        current = self.ledger.epoch
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
        """Count these as done. Their leases were checked."""
        pop = self.leases.pop
        for offset in offsets:
            if (job := pop(offset).job) is not None:
                job.outcome = Outcome.DONE
        self.terms.rates.note("acks", len(offsets), time.monotonic())
        self._done(offsets)

    def _done(self, offsets: list[int]) -> None:
        self.blocked = ""  # not known before the next claim
        self.order.done(offsets)
        self.window.forget(offsets)
        self.ledger.ack(sorted(offsets))
        self.changed()
        self._skip()

    @whole
    def release(self, offset: int, delay: float) -> None:
        """Put it to the front, or make it due later; the attempt counts."""
        if (job := self.leases[offset].job) is not None:
            job.outcome = Outcome.RELEASED
        self._release(offset, delay)

    def set_aside(self, offset: int, why: KqError, given_up: bool) -> None:
        """Make it due later, because it cannot be buried. given_up: by the queue's attempts, or before by a `Retry`."""
        self.release(offset, BURY_AGAIN_AFTER)
        self.order.keep_why(offset, why, given_up)

    def _release(self, offset: int, delay: float = 0.0) -> None:
        del self.leases[offset]
        self.blocked = ""  # not known before the next claim
        self.order.come_back(offset, delay)

    @whole
    def extend(self, offset: int, seconds: float) -> float:
        """Move the deadline only; the number stays, so both values ack."""
        deadline = self.terms.clock() + seconds
        self.leases.extend(offset, deadline)
        return deadline

    def handle(self, item: Item) -> Job:
        """Make it a job of `work`. A drain waits for jobs whose handlers have begun."""
        old, job = self.leases[item.offset], Job(item, self)
        self.leases[item.offset] = Lease(old.number, old.deadline, old.thread, job)
        return job

    def holds(self, job: Job) -> bool:
        """Does the lease still hold with which the job's item was handed out?"""
        lease = self.leases.get(job.item.offset)
        return lease is not None and lease.job is job and lease.deadline > self.terms.clock() and not self.dropped

    @whole
    def discard(self, offset: int) -> str:
        """Count it as done without a claim. Returns why that cannot be, or ''."""
        self.tidy()
        if offset in self.leases or offset in self.ending:
            return "it is claimed"
        while self.order.fresh and self.order.fresh[0] <= offset:
            self.blocked = ""
            self._pass_over()
            if self.blocked:
                return "too many items lie before it; deal with those first"
        if self.ledger.attempts(offset) is None:
            return "it is not there, or done already"
        self.order.discard(offset)
        self._done([offset])
        return ""

    # --- transactions that ack ---

    def begin_ending(self, offset: int) -> None:
        """Set its lease aside until the transaction's outcome is known."""
        self.ending[offset] = self.leases.pop(offset)

    def with_acked(self, offsets: Iterable[int]) -> Ledger:
        """The state as the transaction will commit it."""
        ledger = self.ledger.copy()
        ledger.ack(sorted(offsets))
        return ledger

    def end(self, offsets: Iterable[int], done: bool, why: KqError | None = None) -> None:
        """Apply the transaction's outcome: done, or everything as before. why: the error."""
        offsets = list(offsets)
        for offset in offsets:
            lease = self.ending.pop(offset, None)
            if done or self.ledger.attempts(offset) is None:  # done, or purged meanwhile
                if done and lease is not None and lease.job is not None:
                    lease.job.outcome = Outcome.DONE
            elif lease is None:  # its owner could not bury it
                self.order.come_back(offset, BURY_AGAIN_AFTER)
                self.order.keep_why(offset, why or KqError("It was not tried to the end"), given_up=True)
            else:
                self.leases[offset] = lease
                self.leases.ends_at(lease.deadline, [offset])
        if done:
            self.terms.rates.note("acks", len(offsets), time.monotonic())
            self._done(offsets)

    # --- marks, and the end ---

    @whole
    def purge(self, below: int) -> None:
        """Count everything below as done, handed out or not."""
        if below <= self.ledger.floor:
            return
        for offset in [offset for offset in self.leases if offset < below]:
            del self.leases[offset]
        self.order.purge(below)
        gone = [offset for start, end, _ in self.ledger.runs() for offset in range(start, min(end, below))]
        self.window.skip(below)
        if gone:
            self._done(gone)
        self.ledger.purge(below)
        self._loaded()
        self.changed()

    def at_work(self, closing: int | None) -> list[str]:
        """The ids of the items that are in hand: of a thread other than `closing`, or of a transaction."""
        self.tidy()
        offsets = [*self.ending, *(offset for offset, lease in self.leases.items() if lease.at_work(closing))]
        return [self.id_of(offset) for offset in offsets]

    @whole
    def give_back(self, closing: int | None) -> None:
        """Give back what no thread works on: those attempts do not count."""
        for offset, lease in list(self.leases.items()):
            if not lease.at_work(closing):
                self.unclaim(offset)

    def changed(self) -> None:
        """Note that the ledger differs from what is committed."""
        self.version += 1
        if self.dirty_since is None:
            self.dirty_since = time.monotonic()
