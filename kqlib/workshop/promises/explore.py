"""`kq.explore`: random histories on a queue of your own, each step compared with a list. The one that breaks it is made short.

    kq.explore(Mine)        # none broke it, or the shortest history that was found, in sentences and drawn

In:  a factory as for `kq.promises`, whose queue has put, claim, ack and perhaps release. Out: `Explored`.
The steps: put, claim, ack, release, and a restart (the worker closes its queue and ends, and another one starts). A history has a
topic of its own, and each worker is a process. An item must be acked, out or waiting; a claim gives the oldest that waits.
"""

from __future__ import annotations

import html
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

from kqlib.errors import NotAllowed
from kqlib.extras import check
from kqlib.kafka import Kafka
from kqlib.runtime.patience import PATIENCE
from kqlib.text import count, cut
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.children import Children
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.promises import Factory, counted, named
from kqlib.workshop.promises.adapter import Claim, RemoteQueue
from kqlib.workshop.promises.reference import Entry, Reference, Terms
from kqlib.workshop.promises.run import CLOCKS, LONGEST, MODULES, SESSION, homes
from kqlib.workshop.promises.scenario import GRACE, SOON
from kqlib.workshop.promises.steps import AT_ONCE, RandomStep, Tried, random_steps, shrunk
from kqlib.workshop.promises.values import Broken, NotOffered, Refused
from kqlib.workshop.view.deliveries import Delivery, deliveries
from kqlib.workshop.view.picture import Picture

VERBS = {"put": 5, "claim": 6, "ack": 3, "release": 2, "restart": 1}
LEASE = 900.0  # seconds: none ends during a history, if the queue lets a claim say how long
FIRST = 2.0 * PATIENCE  # seconds of a worker's first claim that must give nothing: it joins a group as well
# milliseconds: nobody is killed here, so a worker that a busy machine delays shall stay in its group
STAYS = {"group.consumer.session.timeout.ms": min(45_000, 3 * SESSION)}
ATTEMPTS = 5  # an item comes so often at most: a queue may bury it then
MOST = 100  # steps of a history, and it must not take longer than leases do


def explore(factory: Factory, histories: int = 20, steps: int = 20, seed: int = 7) -> Explored:
    """Run random histories on a queue of your own, on a Kafka of their own: `kq.explore(Mine)`. What breaks it is made short.

    factory: (cluster, name) -> a queue, as for `kq.promises`. steps: random ones; then come a restart, and claims until all is acked.
    seed: the same seed gives the same histories. The answer has `kept`, `story` (sentences), `expected` and `picture`.
    """
    named({"yours": factory})
    for word, value, most in (("histories", histories, 10_000), ("steps", steps, MOST)):
        if not isinstance(value, int) or not 1 <= value <= most:
            raise NotAllowed(f"{word} is a whole number from 1 to {most:,}, not {value!r}")
    check("lab", "kq.explore", "cloudpickle")
    with Cluster(1, config=CLOCKS | STAYS) as cluster, getattr(factory, "serving", nullcontext)(cluster):
        return explored(
            cluster, factory, map("history-{}".format, itertools.count(1)), histories=histories, steps=steps, seed=seed
        )


def explored(cluster: Kafka, factory: Factory, topics: Iterator[str], **how: int) -> Explored:
    """The same on a cluster that runs. topics: names that nobody has. how: as `search` takes it."""
    modules = dict.fromkeys([*MODULES, *homes(factory)])
    with Children(modules=modules) as children, ThreadPoolExecutor(AT_ONCE) as pool:

        def tried(several: Iterable[list[RandomStep]]) -> list[Broke | None]:
            each = list(several)
            names = list(itertools.islice(topics, len(each)))
            Plan({name: QueueTopic(partitions=1) for name in names}).apply(cluster, quiet=True)
            starts = [lambda name=name: RemoteQueue(children, factory, cluster, name) for name in names]
            return list(pool.map(played, starts, each))

        try:
            return search(tried, **how)
        except BaseException:  # Ctrl-C in a cell: a history that waits for its worker ends when that is gone
            children.close()
            raise


def search(tried: Tried[Broke], histories: int, steps: int, seed: int) -> Explored:
    """Try histories until some break the queue, and make the one that is broken first short."""
    with counted(histories, "histories") as step:
        for begin in range(0, histories, AT_ONCE):
            several = [steps_of(f"{seed} {number}", steps) for number in range(begin, min(histories, begin + AT_ONCE))]
            found = [(each[: broke.steps], broke) for each, broke in zip(several, tried(several), strict=True) if broke]
            for shortest in sorted(found, key=lambda each: len(each[0])):
                if broke := _shortest(*shortest, tried):
                    return Explored(histories, seed, broke)
            for _ in several:
                step()
    return Explored(histories, seed)


def steps_of(seed: str, many: int) -> list[RandomStep]:
    """The steps of a history: random ones, then a restart, and everything is claimed and acked."""
    steps = random_steps(random.Random(seed), VERBS, many)
    puts = sum(step.verb == "put" for step in steps)
    return [*steps, RandomStep("restart"), *[RandomStep("claim"), RandomStep("ack")] * puts, RandomStep("claim")]


def _shortest(steps: list[RandomStep], broke: Broke, tried: Tried[Broke]) -> Broke | None:
    """No step can be left out of it, and the puts come first if the queue breaks then as well. None if it does not break again."""
    steps, _ = shrunk(steps, broke, tried)
    first, as_found = tried([sorted(steps, key=lambda step: step.verb != "put"), steps])
    return first or as_found


# --- one history ------------------------------------------------------------------------------------------------------


class Broke(NamedTuple):
    """How a history broke a queue: after how many steps, what was done, what had to come instead, who had what."""

    steps: int
    story: tuple[str, ...]
    expected: str
    deliveries: tuple[Delivery, ...]


class _Differs(Exception):  # noqa: N818
    """What the queue does and what it must do differ."""


def played(start: Callable[[], Any], steps: list[RandomStep]) -> Broke | None:
    """Do these steps on a new queue. start: begins a worker, such as a `RemoteQueue`."""
    player, done = _Player(start), 0
    try:
        player.starts()
        for step in steps:
            done += 1
            getattr(player, step.verb)(step.which)
    except _Differs as differs:
        return Broke(done, tuple(player.story), str(differs), tuple(player.drawn()))
    finally:
        if player.worker:
            player.worker.kill()
    return None


class _Player:
    """A queue and the list that it must be like. Each verb is done to both."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self.worker: Any = None
        self._start, self._workers, self._fresh = start, 0, True
        self._lease: float | None = LEASE
        self._should = Reference(Terms("any", None), now=0.0)
        self._claims = Counter[bytes]()
        self._deliveries: list[Delivery] = []
        self.story: list[str] = []

    def drawn(self) -> list[Delivery]:
        """The deliveries; those that are open end now."""
        now = float(len(self.story))
        return [replace(each, until=now) if each.end == "open" else each for each in self._deliveries]

    # --- the verbs ---

    def starts(self) -> None:
        """A worker's process begins."""
        try:
            self.worker, self._fresh = self._start(), True
        except (Broken, Refused) as error:
            self._raised("A worker starts.", error)
        self._workers += 1

    def put(self, _: int) -> None:
        """A new item: 1, 2, 3 …"""
        value = str(len(self._should.entries) + 1)
        self._does(f"Put {value}.", "put", value)
        self._should.put(value.encode(), None)

    def claim(self, _: int) -> None:
        """It gives the oldest that waits, or nothing."""
        due = self._should.claim()
        wait, self._fresh = GRACE if due else FIRST if self._fresh else SOON, False
        claim = self._claimed(wait)
        self.story.append(f"Claim: it gives {claim.data if claim else 'nothing'}.")
        if due and claim and claim.data.encode() == due.value:
            due.item = claim
            self._claims[due.value] += 1
            self._draw(claim.data, "open")
        elif due or claim:
            item = claim.data if claim else due.value.decode() if due else ""
            self._draw(item, "wrong" if claim else "missing")
            raise _Differs(self._expected(due, claim))

    def ack(self, which: int) -> None:
        """One that is out is done."""
        if held := self._should.all("out"):
            entry = held[which % len(held)]
            self._does(f"Ack {entry.value.decode()}.", "ack", entry.item.number)
            entry.state = "done"
            self._ends(entry, "ack")

    def release(self, which: int) -> None:
        """One that is out waits again, before all that were put later. A queue need not have this verb."""
        if held := [entry for entry in self._should.all("out") if self._claims[entry.value] < ATTEMPTS]:
            entry = held[which % len(held)]
            try:
                self._does(f"Release {entry.value.decode()}.", "release", entry.item.number)
            except NotOffered:
                return
            self._should.came_back(entry)
            self._ends(entry, "release")

    def restart(self, _: int) -> None:
        """Another worker goes on: what was out waits again, and nothing else changes."""
        held = self._should.all("out")
        if all(self._claims[entry.value] < ATTEMPTS for entry in held):
            self._does("Restart: the worker closes its queue and ends, and another one starts.", "close")
            self.worker.kill()
            for entry in held:
                self._ends(entry, "restart")
            self._should.new_owner(counted=False)
            self.starts()

    # --- what they share ---

    def _does(self, sentence: str, verb: str, *args: Any) -> None:
        try:
            self.worker.call(verb, *args)
        except NotOffered as missing:
            if verb == "release":
                raise
            raise _lacks(missing) from None
        except (Broken, Refused) as error:
            self._raised(sentence, error)
        self.story.append(sentence)

    def _claimed(self, wait: float) -> Claim | None:
        """What a claim gives. With a long lease, unless the queue's leases have a length of their own."""
        try:
            found: Claim | None = self.worker.call("claim", self._lease, wait)
            return found
        except NotOffered as missing:
            if missing.verb == "claim":
                raise _lacks(missing) from None
        except (Broken, Refused) as error:
            if not self._lease or isinstance(error, Broken) or error.kind != NotAllowed.__name__:
                self._raised("Claim.", error)
        self._lease = None
        return self._claimed(wait)

    def _raised(self, sentence: str, error: Broken | Refused) -> NoReturn:
        words = error.seen[0].upper() + error.seen[1:] if isinstance(error, Broken) else f"It raised {error}"
        self.story.append(f"{sentence} {cut(words, LONGEST)}.")
        raise _Differs("no error")

    def _expected(self, due: Entry | None, claim: Claim | None) -> str:
        """What this claim had to give, and why not what it gave."""
        right = due.value.decode() if due else "nothing"
        if claim is None:
            return f"{right}, which waits"
        got = next((entry for entry in self._should.entries if entry.value == claim.data.encode()), None)
        if got is None:
            return f"{right}. {cut(repr(claim.data), LONGEST)} was never put"
        why = {"done": "is done", "out": "is still out", "waiting": f"was put after {right}"}
        return f"{right}. {claim.data} {why[got.state]}"

    def _draw(self, item: str, end: str) -> None:
        """A delivery begins."""
        now, row = float(len(self.story)), f"item {item}"
        attempt = 1 + sum(each.worker == row for each in self._deliveries)
        self._deliveries.append(Delivery(row, attempt, now, now, end, f"worker {self._workers}"))

    def _ends(self, entry: Entry, end: str) -> None:
        """The last delivery of this item ends so."""
        row = f"item {entry.value.decode()}"
        at = max(at for at, each in enumerate(self._deliveries) if each.worker == row)
        self._deliveries[at] = replace(self._deliveries[at], until=float(len(self.story)), end=end)


def _lacks(missing: NotOffered) -> NotAllowed:
    return NotAllowed(f"kq.explore needs put, claim and ack, and this queue has no {missing.verb}")


# --- what was found ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Explored:
    """What random histories showed: none broke the queue, or the shortest that was found."""

    histories: int
    seed: int
    broke: Broke | None = None

    @property
    def kept(self) -> bool:
        """Did no history break the queue?"""
        return self.broke is None

    @property
    def story(self) -> tuple[str, ...]:
        """The shortest history that breaks the queue, sentence by sentence."""
        return self.broke.story if self.broke else ()

    @property
    def expected(self) -> str:
        """What the last step had to give."""
        return self.broke.expected if self.broke else ""

    @property
    def picture(self) -> Picture | None:
        """The same drawn: a row an item, and who had it when."""
        return deliveries(self.broke.deliveries, "the shortest history that was found", "item") if self.broke else None

    @property
    def _title(self) -> str:
        """One sentence."""
        if self.broke:
            return f"This history breaks the queue, in {count(len(self.story), 'step')}:"
        how = "put, claim, ack, release and restart"
        return f"{count(self.histories, 'history', 'histories')} of {how} (seed {self.seed}): none broke the queue."

    def __repr__(self) -> str:
        if not self.picture:
            return self._title
        lines = [f"{number:3}. {sentence}" for number, sentence in enumerate(self.story, 1)]
        return "\n".join([self._title, *lines, f"Expected: {self.expected}.", "", self.picture.text])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """In a notebook the picture is drawn."""
        page = f"<p>{html.escape(self._title)}</p>"
        if self.picture:
            listed = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.story)
            page += f"<ol>{listed}</ol><p>Expected: {html.escape(self.expected)}.</p>"
            page += self.picture._repr_mimebundle_()["text/html"]
        return {"text/plain": repr(self), "text/html": page}
