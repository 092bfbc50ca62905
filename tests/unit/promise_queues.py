"""A plain queue in memory with all verbs, and the same with one thing wrong; nothing runs but a clock.

`Queue` keeps every promise that memory can keep; each queue in `WRONG` breaks one, with the line that is seen then.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

from kqlib.errors import LeaseLost, NotAllowed, QueueDeleted, Unreachable
from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.promises.adapter import QueueAdapter, refused
from kqlib.workshop.promises.crashes import HELD

SESSION, LEASE, ATTEMPTS = 2.0 * PATIENCE, 30.0 * PATIENCE, 5


@dataclass
class Record:
    """An item in memory. `until`: hidden that long, while claimed and while it is due later."""

    at: int
    data: bytes
    key: bytes | None
    state: str = "waiting"
    until: float = 0.0
    attempts: int = 0
    crashes: int = 0
    owner: Queue | None = None
    reason: str = ""

    @property
    def id(self):
        return str(self.at)


class Near:
    """A worker in this process."""

    def __init__(self, queue):
        self.adapter = QueueAdapter(queue)

    def call(self, verb, *args, **how):
        try:
            return getattr(self.adapter, verb)(*args, **how)
        except (LeaseLost, NotAllowed, QueueDeleted, Unreachable, ValueError) as error:
            raise refused(error) from None

    def kill(self):
        if not self.adapter.queue.closed:
            self.adapter.queue.lose()

    pause = kill

    def resume(self):
        pass


class World:
    """What all workers share: the items, and a clock that moves only when someone waits."""

    def __init__(self):
        self.items, self.dead, self.gone, self.now = [], [], False, 0.0
        self.numbers, self.lock, self.ack_refused, self.owner = itertools.count(), threading.RLock(), False, None
        self.dead_lost, self.outages = False, 0


class Queue:
    """A queue that keeps every promise that memory can keep. A worker has one, all share a world."""

    def __init__(self, world, order="any", lease=LEASE):
        self.world, self.order, self.main = world, order, threading.current_thread()
        self.lost_at, self.closed, self.made = None, False, world.outages

    # --- the verbs ---------------------------------------------------------------------------------------------------

    def put(self, data, key=None):
        self.open()
        with self.world.lock:
            self.world.items.append(Record(next(self.world.numbers), data, key))

    def claim(self, lease=LEASE, wait=0):
        self.open()
        if self.lost_at is not None:
            self.rejoin()
        end = self.world.now + wait
        while True:
            with self.world.lock:
                self.bury_the_tired()
                if found := self.free():
                    return self.give(self.choose(found), lease)
                if threading.current_thread() is not self.main:
                    return None  # many threads may look; the clock is not theirs
                later = [
                    each.until for each in self.world.items if each.state != "done" and each.until > self.world.now
                ]
                if min(later, default=end) >= end:
                    self.world.now = max(self.world.now, end)
                    return None
                self.world.now = min(later)

    def ack(self, item):
        with self.world.lock:
            record = self.held(item)
            record.state, record.owner = "done", None

    def release(self, item, delay=0):
        with self.world.lock:
            record = self.held(item)
            record.state, record.owner, record.until = "waiting", None, self.world.now + delay

    def extend(self, item, lease):
        with self.world.lock:
            self.held(item).until = self.world.now + lease

    def depth(self):
        return sum(each.state != "done" for each in self.world.items)

    def create(self):
        self.world.gone = False

    def delete(self):
        self.world.gone = True

    def close(self):
        self.closed = True
        for each in self.world.items:
            if each.owner is self and each.state == "claimed":
                each.until = self.world.now

    @contextmanager
    def step(self, item):
        outputs = []
        yield SimpleNamespace(put=lambda queue, data: outputs.append((queue, data)))
        if self.world.dead_lost and any(queue is not self for queue, _ in outputs):
            raise Unreachable(address="memory", why="an output could not be stored")
        self.ack(item)
        for queue, data in outputs:
            if queue is self:
                self.put(data)

    def bury(self, item, reason):
        record = self.held(item)
        record.state, record.owner, record.reason = "done", None, reason
        self.world.dead.append(record)

    def redrive(self, ids=None, reason=None):
        chosen = [each for each in self.world.dead if self.chosen(each, ids, reason)]
        self.world.dead = [each for each in self.world.dead if each not in chosen]
        for each in chosen:
            self.put(each.data, each.key)

    @property
    def dead(self):
        return SimpleNamespace(peek=lambda n: self.world.dead[:n])

    # --- below them --------------------------------------------------------------------------------------------------

    def open(self):
        if self.world.gone:
            raise QueueDeleted(queue="memory")

    def due(self, each):
        """Is it free: waiting and due, or claimed with a lease that is over?"""
        return each.state in {"waiting", "claimed"} and each.until <= self.world.now

    def free(self):
        found = [each for each in self.world.items if self.due(each)]
        if self.order == "key":
            first = {}
            for each in self.world.items:
                if each.state != "done":
                    first.setdefault(each.key, each)
            found = [each for each in found if first[each.key] is each]
        return found

    def choose(self, found):
        return found[0]

    def give(self, record, lease):
        record.attempts += 1
        record.state, record.owner, record.until = "claimed", self, self.world.now + lease
        return SimpleNamespace(record=record, data=record.data, attempt=record.attempts)

    def chosen(self, each, ids, reason):
        return (ids is None or each.id in ids) and (reason is None or each.reason == reason)

    def rejoin(self):
        """The worker is there again."""
        self.lost_at = None

    def held(self, item):
        """The record of a claim, if it still counts."""
        if not self.counts(item):
            self.world.ack_refused = True
            raise LeaseLost("this lease is over")
        return item.record

    def counts(self, item):
        record = item.record
        current = record.state == "claimed" and record.owner is self and record.attempts == item.attempt
        return current and record.until > self.world.now and self.lost_at is None

    def bury_the_tired(self):
        for each in self.world.items:
            if self.due(each) and each.attempts >= ATTEMPTS:
                each.state = "done"
                self.world.dead.append(each)

    # --- what befalls it ---------------------------------------------------------------------------------------------

    def lose(self):
        """The worker says nothing any more: in a while its items are free."""
        self.lost_at = self.world.now + SESSION
        for each in self.world.items:
            if each.owner is self and each.state == "claimed":
                each.until, each.crashes = self.lost_at, each.crashes + 1

    def recreated(self):
        self.world.items.clear()

    def leader_died(self):
        pass

    def outage(self):
        self.world.outages += 1


# --- the same queue with one thing wrong ----------------------------------------------------------------------------------


class LastIn(Queue):
    def choose(self, found):
        return found[-1] if {each.key for each in found} == {b"k"} else found[0]


class SeenByOthers(Queue):
    def free(self):
        out = [each for each in self.world.items if each.state == "claimed" and each.until > self.world.now]
        return super().free() or [
            each for each in out[:1] if len(out) >= 5 and each.owner is not self and self.lost_at is None
        ]


class SaysNone(Queue):
    """What was just released is not seen by a claim that does not wait."""

    released = False

    def release(self, item, delay=0):
        super().release(item, delay)
        self.released = True

    def claim(self, lease=LEASE, wait=0):
        released, self.released = self.released, False
        return None if released and not wait else super().claim(lease, wait)


class SaysNoneAtFirst(Queue):
    """The first claim does not wait for its partitions."""

    joined = False

    def claim(self, lease=LEASE, wait=0):
        joined, self.joined = self.joined, True
        return super().claim(lease, wait) if joined or wait else None


class SaysNoneAgain(SaysNoneAtFirst):
    """The first claim waits, the first one after a sleep does not."""

    joined = True

    def rejoin(self):
        super().rejoin()
        self.joined = False


class OneByOne(Queue):
    """An item that was out three times goes alone."""

    def free(self):
        alone = [each for each in self.world.items if each.state == "claimed" and each.attempts > 3]
        return [] if alone else super().free()


class ToTheBack(Queue):
    def release(self, item, delay=0):
        super().release(item, delay)
        if not any(each.state == "claimed" for each in self.world.items):
            self.world.items.remove(item.record)
            self.world.items.append(item.record)


class RollsBack(Queue):
    def release(self, item, delay=0):
        super().release(item, delay)
        later = [each for each in self.world.items if each.state == "claimed" and each.at > item.record.at]
        for each in later if len(later) > 1 and len(self.world.items) < 5 and not delay else []:
            each.state, each.until = "waiting", 0.0


class FloorOnly(Queue):
    def close(self):
        super().close()
        left = [each.at for each in self.world.items if each.state != "done"]
        for each in self.world.items:
            if each.at > min(left, default=each.at):
                each.state, each.until = "waiting", 0.0


class CountsWaiting(Queue):
    def depth(self):
        few = len(self.world.items) < 10
        return super().depth() - few * sum(each.owner is self for each in self.world.items)


class NeverExpires(Queue):
    def due(self, each):
        overdue = each.state == "claimed" and each.owner.lost_at is None and not self.world.ack_refused
        return super().due(each) and not overdue


class ExtendsNothing(Queue):
    def extend(self, item, lease):
        self.held(item)


class TakesStaleAcks(Queue):
    def ack(self, item):
        if self.lost_at is not None or self.counts(item):
            super().ack(item)


class DueAtOnce(Queue):
    def release(self, item, delay=0):
        super().release(item)


class OneForAll(Queue):
    def choose(self, found):
        return found[0] if threading.current_thread() is self.main else found[-1]

    def give(self, record, lease):
        given = super().give(record, lease)
        if threading.current_thread() is not self.main:
            record.until = 0.0
        return given

    def counts(self, item):
        return super().counts(item) or threading.current_thread() is not self.main


class NoOrder(Queue):
    def free(self):
        self.order = "any"
        return super().free()


class TwiceDead(Queue):
    def bury_the_tired(self):
        before = len(self.world.dead)
        super().bury_the_tired()
        self.world.dead += self.world.dead[before:]


class ForgetsAtDelete(Queue):
    def delete(self):
        super().delete()
        for each in self.world.items:
            each.state, each.until = "waiting", 0.0


class LosesHands(Queue):
    def lose(self):
        mine = [each for each in self.world.items if each.owner is self]
        super().lose()
        for each in mine if len(mine) > 2 else []:
            each.state = "done"


class CrashIsNothing(Queue):
    def give(self, record, lease):
        given = super().give(record, lease)
        given.attempt -= record.crashes
        return given

    def counts(self, item):
        return super().counts(SimpleNamespace(record=item.record, attempt=item.attempt + item.record.crashes))


class ZombieActs(Queue):
    def ack(self, item):
        if self.lost_at is None:
            super().ack(item)


class ActsByFirstClaim(Queue):
    """Who owns an item may ack it, whichever claim it shows."""

    def counts(self, item):
        return super().counts(SimpleNamespace(record=item.record, attempt=item.record.attempts))


class CommitsOldState(Queue):
    """A late ack says of the new topic what was true of the old one: so many items are done."""

    def ack(self, item):
        late = item.record not in self.world.items
        self.world.skipped = 3 if late else getattr(self.world, "skipped", 0)
        super().ack(item)

    def put(self, data, key=None):
        super().put(data, key)
        if getattr(self.world, "skipped", 0):
            self.world.skipped -= 1
            self.world.items[-1].state = "done"


class OutputsFirst(Queue):
    @contextmanager
    def step(self, item):
        with super().step(item) as step:
            yield SimpleNamespace(put=lambda queue, data: self.put(data) if queue is self else step.put(queue, data))


class HoldsAll(Queue):
    """Acks wait for a step that cannot end."""

    def ack(self, item):
        self.world.now += 1.5 * HELD * self.world.dead_lost
        super().ack(item)


class ForgetsWhatCameLater(Queue):
    """The worker that claims does not count what was put since."""

    def give(self, record, lease):
        self.seen = len(self.world.items)
        return super().give(record, lease)

    def depth(self):
        left = self.world.items[: getattr(self, "seen", None)]
        return sum(each.state != "done" for each in left)


class RedrivesAll(Queue):
    def chosen(self, each, ids, reason):
        return ids is None or super().chosen(each, ids, reason)


class RedrivesAnyId(Queue):
    def chosen(self, each, ids, reason):
        return ids is not None or super().chosen(each, ids, reason)


class Deaf(Queue):
    """After an outage its clients never work again."""

    verbs = ("put", "depth", "claim")

    def received(self, verb):
        if verb in self.verbs and self.made < self.world.outages:
            self.world.now += 1.0
            raise Unreachable(address="memory", why="no answer")

    def put(self, data, key=None):
        self.received("put")
        super().put(data, key)

    def depth(self):
        self.received("depth")
        return super().depth()

    def claim(self, lease=LEASE, wait=0):
        self.received("claim")
        return super().claim(lease, wait)


class DeafAsking(Deaf):
    verbs = ("depth",)


class DeafClaiming(Deaf):
    verbs = ("claim",)


class BlindOutside(Queue):
    def depth(self):
        mine = any(each.owner is self for each in self.world.items)
        waiting = sum(each.state == "waiting" for each in self.world.items)
        many = len(self.world.items) > 10
        return super().depth() if mine or many or not any(each.owner for each in self.world.items) else waiting


class OldOffsets(Queue):
    def recreated(self):
        super().recreated()
        self.world.numbers = itertools.count()
        self.world.old = 3

    def free(self):
        return [each for each in super().free() if each.at >= getattr(self.world, "old", 0)]


class LosesTheTail(Queue):
    def leader_died(self):
        del self.world.items[-3:]


class Unsure(Queue):
    """Nothing is wrong with it: the first put after the leader's death is stored, and refused."""

    def leader_died(self):
        self.world.unsure = True

    def put(self, data, key=None):
        super().put(data, key)
        if vars(self.world).pop("unsure", False):
            raise QueueDeleted(queue="memory")


class Unanswered(Queue):
    """Nothing is wrong with it: the first two acks after the leader's death have no answer; the first is stored, the second not."""

    def leader_died(self):
        self.world.unanswered = ["stored", "not"]

    def ack(self, item):
        left = vars(self.world).get("unanswered")
        fate = left.pop(0) if left else ""
        if fate != "not":
            super().ack(item)
        else:
            item.record.state, item.record.until = "waiting", 0.0
        if fate:
            raise Unreachable(address="memory", why="no answer")


class OneOwner(Queue):
    def free(self):
        owner = self.world.owner
        if owner is None or (owner.lost_at is not None and owner.lost_at <= self.world.now):
            self.world.owner = owner = self
        return super().free() if owner is self else []

    def close(self):
        super().close()
        self.world.owner = None


WRONG = {
    "first in, first out": (LastIn, "1 to 10 came as 10 9 8 7 6 5 4 3 2 1"),
    "claimed is hidden": (SeenByOthers, "1 came to b while a had it"),
    "empty means empty": (SaysNone, "items were waiting, and a claim found none"),
    "released comes back": (ToTheBack, "2 came where 1 was due"),
    "released together": (OneByOne, "1 to 5 were released, and not all of them were out again together"),
    "release disturbs nobody": (RollsBack, "1 was released, and 2 came again while it was out"),
    "acks in any order": (FloorOnly, "2 came again although it was done"),
    "depth counts claimed": (CountsWaiting, "2 of 5 were claimed, and depth was 3, not 5"),
    "lease expires": (NeverExpires, "the lease was over, and 1, 2 and 3 never came again"),
    "extend": (ExtendsNothing, "1 came again although its lease was extended"),
    "stale ack refused": (TakesStaleAcks, "the lease of 2 was over, and its ack was taken"),
    "delayed release": (DueAtOnce, "1 came where 4 was due"),
    "many threads": (OneForAll, "came to two threads"),
    "order by key": (NoOrder, "A2 came while the item before it was out"),
    "dead letter, once": (
        TwiceDead,
        "1, 2 and 3 used up their attempts, and the dead letters are 1, 1, 2, 2, 3, 3",
    ),
    "redrive chooses": (RedrivesAll, "2 came where 1 or 3 was due"),
    "deleted and back": (ForgetsAtDelete, "1 came where 2, 3 or 5 was due"),
    "survives a killed worker": (LosesHands, "the worker died with 1, 2 and 3, and 1, 2 and 3 never came again"),
    "a crash is an attempt": (CrashIsNothing, "after 1 crash it came as attempt 1"),
    "zombie refused": (ZombieActs, "b had 1, and the ack of a, who had slept, was taken"),
    "outputs with the ack": (OutputsFirst, "a worker died within its step, and the output was there"),
    "a bad output stops nobody": (HoldsAll, "an output could not be stored, and the ack of 3 waited for it"),
    "depth from outside": (BlindOutside, "1 of 5 was claimed, and for another process depth was 4, not 5"),
    "depth is exact": (ForgetsWhatCameLater, "3 of 30 were claimed, then 5 more were put, and depth was 30, not 35"),
    "topic recreated": (OldOffsets, "new 1, new 2 and new 3 never came"),
    "leader dies": (LosesTheTail, "of 30 items that were stored 3 never came"),
    "heals after an outage": (Deaf, "after an outage a worker could not put: Unreachable"),
    "more processes than partitions": (OneOwner, "one of the two got nothing"),
}
