"""What a promise is and how a queue kept it: plain values, no Kafka.

In:  promises, and what was seen when each was tried. Out: `Scores`, the table that `kq.promises` shows.
A check raises `Broken` with one line of what it saw, or `NotOffered` with the verb that the queue does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kqlib.errors import NotAllowed
from kqlib.text import count
from kqlib.workshop.view.deliveries import Delivery, deliveries
from kqlib.workshop.view.ladder import Ladder
from kqlib.workshop.view.picture import Picture

# a cluster or a node did not answer
SILENT = {"Unreachable", "NotNow", "NotInTime", "TimeoutError", "NoNode", "Unavailable"}
# a KafkaException may be either: a group also refuses a stale member by one
UNANSWERED = SILENT | {"KafkaException"}


@dataclass(frozen=True)
class Promise:
    """One promise: its name, its sentence, how many trials one run makes, its check, and what breaks meanwhile."""

    name: str
    sentence: str
    trials: int
    check: Callable[[Any], None]  # of a Scenario
    slow: bool = False  # it waits for what may never come: tried first
    fault: Literal["", "leader", "outage"] = ""  # the leader of three brokers dies, or the one broker stands still

    def __repr__(self) -> str:
        return f"{self.name}: {self.sentence}"


@dataclass(frozen=True)
class Verdict:
    """How one queue kept one promise. kept: True, False (`seen` says what happened), or None (not offered)."""

    kept: bool | None
    trials: int = 0
    seen: str = ""
    item: str = field(default="", compare=False)  # the one that broke it, else the one that was delivered most often
    deliveries: tuple[Delivery, ...] = field(default=(), compare=False, repr=False)
    answered: bool = field(default=True, compare=False, repr=False)  # False: a call of the trial got no answer in time


class Broken(Exception):  # noqa: N818
    """A promise was broken: one line of what was seen, and of which item."""

    def __init__(self, seen: str, item: str | None = None, *, answered: bool = True) -> None:
        super().__init__(seen)
        self.seen, self.item, self.answered = seen, item, answered


class NotOffered(Exception):  # noqa: N818
    """The queue has no such verb."""

    def __init__(self, verb: str) -> None:
        super().__init__(verb)
        self.verb = verb


class Refused(Exception):  # noqa: N818
    """The queue raised: which error, and its message."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(kind, why)  # as they came, so that it can travel between processes
        self.kind, self.why = kind, why

    @property
    def answered(self) -> bool:
        """True: the queue refused. False: no answer came."""
        return self.kind not in UNANSWERED

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}" if self.why else self.kind


class Scores(Ladder):
    """Which queue keeps which promise. `scores["ledger", "extend"]` is one `Verdict`."""

    verdicts: Mapping[str, Mapping[str, Verdict]]

    def __getitem__(self, place: str | tuple[str, str]) -> Verdict:
        queue, promise = place if isinstance(place, tuple) else (None, place)
        queue = self._queue(queue)
        if promise not in self.verdicts[queue]:
            raise NotAllowed(f"no promise {promise!r} was tried; there are {', '.join(map(repr, self.promises))}")
        return self.verdicts[queue][promise]

    @property
    def queues(self) -> list[str]:
        """Its columns."""
        return list(self.verdicts)

    def only(self, *promises: str) -> Scores:
        """The same table with these rows."""
        rows = {queue: {name: self[queue, name] for name in promises} for queue in self.queues}
        return Scores(rows, self.costs)

    def kept(self, queue: str | None = None) -> list[str]:
        """The promises that a queue keeps."""
        return [name for name, verdict in self.verdicts[self._queue(queue)].items() if verdict.kept]

    def draw(self, promise: str, queue: str | None = None) -> Picture:
        """The deliveries of one item while this promise was tried: of the one that broke it, else of the busiest."""
        verdict = self[self._queue(queue), promise]
        return deliveries(
            verdict.deliveries, " · ".join([promise, *([f"item {verdict.item}"] if verdict.item else [])])
        )

    def _queue(self, name: str | None) -> str:
        if name is not None and name in self.verdicts:
            return name
        if name is not None:
            raise NotAllowed(f"no queue {name!r} was scored; there are {', '.join(self.queues)}")
        if len(self.verdicts) != 1:
            raise NotAllowed(
                f"this table has {count(len(self.verdicts), 'queue')}: name one of {', '.join(self.queues)}"
            )
        return self.queues[0]
