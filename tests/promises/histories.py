"""Random histories: all verbs of a queue on a real broker, beside a reference.

In:  a cluster, and steps of a seed. Out: nothing, or an `AssertionError` with the step that differs. The site's clock stands, and
steps move it: so no lease ends by itself. A history ends so: the depth is right here and in another process, a restart changes
nothing, and everything that is left comes out in order, once.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable

from kqlib.errors import KqError, LeaseLost, NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue import Item, Queue, Site, state
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.promises.reference import DELAY, LEASE, Entry, Reference, Terms
from kqlib.workshop.promises.steps import RandomStep, random_steps
from tests.patience import WAIT, until
from tests.promises.queues import MADE, Clock

SHORT, LONG = LEASE + 1, DELAY + 100  # steps of the clock: leases end; what was delayed is due
RELEASED = 800.0  # seconds that a release delays
DEATHS = 3  # then a redrive refuses
KEYS = (None, b"a", b"b")
VERBS = {
    "put": 6,
    "put_many": 2,
    "put_later": 2,
    "claim": 9,
    "ack": 4,
    "ack_many": 2,
    "release": 3,
    "release_later": 2,
    "extend": 1,
    "bury": 2,
    "step": 2,
    "transaction": 1,
    "leases_end": 1,
    "all_due": 1,
    "ack_ended": 2,
    "redrive": 2,
    "discard": 1,
    "discard_letter": 1,
    "peek": 1,
    "purge": 1,
    "close": 1,
    "fail": 1,
}
Depth = Callable[[str], int]  # of this queue, as another process says it


def steps_of(seed: int) -> tuple[Terms, list[RandomStep]]:
    """The terms and the 5 to 40 steps of this seed."""
    chance = random.Random(seed)
    terms = Terms(chance.choice(["any", "key"]), chance.choice([None, 3]))
    return terms, random_steps(chance, VERBS, chance.randint(5, 40))


def topics(cluster: Kafka, many: int) -> list[str]:
    """New queues with one partition."""
    names = [f"queue-{uuid.uuid4().hex[:8]}" for _ in range(many)]
    MADE.extend((cluster, name) for name in names)
    Plan({name: QueueTopic(partitions=1) for name in names}).apply(cluster, quiet=True)
    return names


class History:
    """A queue and its reference."""

    def __init__(self, cluster: Kafka, name: str, terms: Terms, elsewhere: Depth) -> None:
        self.cluster, self.name, self.terms, self.elsewhere = cluster, name, terms, elsewhere
        self.clock = Clock()
        self.should = Reference(terms, self.clock.now)
        self.over: list[Item] = []  # whose leases are over
        self.values = 0
        self._begin()

    def _begin(self) -> None:
        """Own the queue, perhaps once more."""
        self.site = Site(self.cluster, self.name, clock=self.clock)
        self.site._session.decided_after = WAIT  # the group gives it the partition, however late
        self.queue: Queue = self.site.queue(self.name, LEASE, self.terms.most, self.terms.order)

    def run(self, steps: list[RandomStep]) -> None:
        """Do these steps, then look whether everything is there."""
        at = RandomStep("", 0)
        try:
            for at in steps:
                getattr(self, at.verb)(at.which)
            at = RandomStep("the end", 0)
            self._ends()
        except (AssertionError, KqError) as error:
            raise AssertionError(f"{at.verb}: {type(error).__name__}: {error}") from error
        finally:
            self.site.close()

    def _new(self, which: int, many: int = 1) -> list[tuple[bytes, bytes | None]]:
        self.values += many
        return [(b"%d" % (self.values - n), KEYS[(which + n) % len(KEYS)]) for n in reversed(range(many))]

    # --- puts ---

    def put(self, which: int) -> None:
        [(value, key)] = self._new(which)
        self.queue.put(value, key=key)
        self.should.put(value, key)

    def put_later(self, which: int) -> None:
        [(value, key)] = self._new(which)
        self.queue.put(value, key=key, delay=DELAY)
        self.should.put(value, key, later=True)

    def put_many(self, which: int) -> None:
        pairs = self._new(which, 3)
        self.queue.put_many(pairs)
        for pair in pairs:
            self.should.put(*pair)

    def transaction(self, which: int) -> None:
        pairs = self._new(which, 2)
        with self.site.transaction() as tx:
            for value, key in pairs:
                tx.put(self.queue, value, key=key)
        for pair in pairs:
            self.should.put(*pair)

    # --- what is claimed ---

    def claim(self, _: int = 0) -> Item | None:
        item, entry, buried = self.queue.claim(), self.should.claim(), self.should.buried
        if item and not entry and buried:  # what these made wait may go before the claim returns, or not
            entry = self.should.claim()
        got, right = item and (item.data, item.attempt), entry and (entry.value, entry.attempts)
        assert got == right, f"the claim gives {got} and not {right}; blocked: '{self.queue.blocked}'"
        if buried:
            until(lambda: self.queue.dead.depth() == len(self.should.all("dead")))
        if entry:
            before, entry.item = entry.item, item
            if before:
                self._refused(before)
        return item

    def _held(self, which: int) -> Entry | None:
        """An item that is out, and that the step ends."""
        held = self.should.all("out")
        if held:
            self.over.append(held[which % len(held)].item)
        return held[which % len(held)] if held else None

    def ack(self, which: int) -> None:
        if entry := self._held(which):
            self.queue.ack(entry.item)
            entry.state = "done"

    def ack_many(self, which: int) -> None:
        held = self.should.all("out")[: 1 + which % 3]
        self.queue.ack_many([entry.item for entry in held])
        for entry in held:
            entry.state = "done"
            self.over.append(entry.item)

    def release(self, which: int, delay: float = 0.0) -> None:
        if entry := self._held(which):
            self.queue.release(entry.item, delay)
            self.should.came_back(entry, delay)

    def release_later(self, which: int) -> None:
        self.release(which, RELEASED)

    def extend(self, which: int) -> None:
        if entry := self._held(which):
            self.over.pop()
            entry.item = self.queue.extend(entry.item, 2 * LEASE)
            entry.deadline = self.clock.now + 2 * LEASE

    def bury(self, which: int) -> None:
        if entry := self._held(which):
            self.queue.bury(entry.item, "a history")
            self.should.bury(entry)

    def step(self, which: int) -> None:
        if entry := self._held(which):
            [(value, key)] = self._new(which)
            with self.queue.step(entry.item) as step:
                step.put(self.queue, value, key=key)
            entry.state = "done"
            self.should.put(value, key)

    def ack_ended(self, which: int) -> None:
        if self.over:
            self._refused(self.over[which % len(self.over)])

    def _refused(self, item: Item) -> None:
        """The lease of this item is over."""
        try:
            self.queue.ack(item)
        except LeaseLost:
            return
        raise AssertionError(f"an ack of {item!r} was taken, and its lease is over")

    # --- what is not ---

    def discard(self, which: int) -> None:
        known = [entry for entry in self.should.all("waiting", "out", "done") if entry.item]
        if known:
            entry = known[which % len(known)]
            try:
                self.queue.discard(entry.item.id)
            except NotAllowed:
                assert entry.state != "waiting", entry
            else:
                assert entry.state == "waiting", entry
                entry.state = "done"

    def purge(self, _: int) -> None:
        self.queue.purge()
        for entry in self.should.all("waiting", "out"):
            entry.state = "done"
            self.over += [entry.item] if entry.item else []

    def peek(self, _: int) -> None:
        assert [item.data for item in self.queue.peek(100)] == [
            entry.value for entry in self.should.all("waiting", "out")
        ]

    # --- dead letters ---

    def redrive(self, which: int) -> None:
        if dead := self.should.all("dead"):
            entry = dead[which % len(dead)]
            back = self.queue.redrive(ids=[entry.item.id])
            assert (back, len(back.refused)) == ((0, 1) if entry.deaths >= DEATHS else (1, 0)), back.refused
            if back:
                entry.state = "done"
                self.should.put(entry.value, entry.key, deaths=entry.deaths)  # its delay is over

    def discard_letter(self, which: int) -> None:
        letters = self.queue.dead.peek(100)
        assert Counter(letter.data for letter in letters) == Counter(entry.value for entry in self.should.all("dead"))
        if letters:
            letter = letters[which % len(letters)]
            self.queue.dead.discard(letter.id)
            next(entry for entry in self.should.all("dead") if entry.value == letter.data).state = "done"

    # --- time, and new owners ---

    def leases_end(self, _: int) -> None:
        self._pass(SHORT)

    def all_due(self, _: int) -> None:
        self._pass(LONG)

    def _pass(self, seconds: float) -> None:
        """A delay begins when an owner reads the item: it has read all that there is, or it reads nothing before."""
        then = self.clock.now + seconds
        own = self.site._session.partitions.get((self.name, 0))
        if own is not None:
            end = state.ends(self.cluster, [own.at])[own.at]
            until(lambda: own.window.head >= end)
        self.over += [entry.item for entry in self.should.all("out") if entry.deadline <= then]
        self.clock.now = self.should.now = then
        if own is None:
            self.should.read_now()

    def close(self, _: int) -> None:
        self._restart(counted=False)

    def fail(self, _: int) -> None:
        self._restart(counted=True)

    def _restart(self, counted: bool) -> None:
        """counted: an exception leaves the site's block, and attempts in hand count."""
        self.over += [entry.item for entry in self.should.all("out")]
        self.site._close(give_back=not counted)
        self._begin()
        self.should.new_owner(counted)

    # --- the end ---

    def _ends(self) -> None:
        self._depth()
        self.close(0)
        self._depth()
        for _ in range(2):  # the second time what is due later
            while (item := self.claim()) or self.should.buried:  # a claim that buried some may have left others
                self._depth_is(self.should.depth)
                if item:
                    self.queue.ack(item)
                    next(entry for entry in self.should.all("out") if entry.item is item).state = "done"
            self.all_due(0)
        assert not self.should.depth, self.should.all("waiting", "out")
        self._depth()
        self.discard_letter(0)
        assert not self.queue.lost

    def _depth_is(self, many: int) -> None:
        assert (here := self.queue.depth()) == many, f"the depth is {here}, and {many} items are not done"

    def _depth(self) -> None:
        self._depth_is(self.should.depth)
        there = self.elsewhere(self.name)
        assert there == self.should.depth, f"the depth is {there} in another process, and here {self.should.depth}"


def fails(cluster: Kafka, terms: Terms, steps: list[RandomStep], elsewhere: Depth, name: str = "") -> str:
    """How this history fails; '' if it does not."""
    try:
        History(cluster, name or topics(cluster, 1)[0], terms, elsewhere).run(steps)
    except AssertionError as error:
        return str(error)
    return ""
