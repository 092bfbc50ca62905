"""What a group looks like at one moment, as plain values: who holds what, how far behind it is, what it has worked on.

In:  names, partitions and offsets. Out: `Assignment`, `Lag`, `Work`; no Kafka in here.

Their repr is a *shape*: '3 members, 4 partitions: 2 + 1 + 1'. Kafka deals partitions by ids that are drawn at random, so which
member has which is different on every run; how many have how many is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kqlib.text import count
from kqlib.workshop.view.group import Member, Slot, group as drawn
from kqlib.workshop.view.picture import Picture

Part = tuple[str, int]  # a topic and a partition's number


@dataclass(frozen=True, repr=False)
class Assignment:
    """Who holds which partitions. `busy`: members that do not poll at the moment."""

    held: Mapping[str, Sequence[Part]]
    partitions: Sequence[Part]
    group: str = "group"
    busy: frozenset[str] = frozenset()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many partitions the members have, the most first: (2, 1, 1)."""
        return tuple(sorted((len(parts) for parts in self.held.values()), reverse=True))

    @property
    def idle(self) -> int:
        """How many members have none."""
        return self.sizes.count(0)

    @property
    def orphans(self) -> tuple[Part, ...]:
        """The partitions without an owner."""
        owners = self._owners()
        return tuple(part for part in self.partitions if not owners[part])

    def draw(self, lag: Lag | None = None, names: bool = False) -> Picture:
        """The picture: members left, partitions right, lag behind them. names: show who is who (different on every run)."""
        behind = lag.by_partition if lag else {}
        alone = len({topic for topic, _ in self.partitions}) <= 1
        called = {part: f"p{part[1]}" if alone else f"{part[0]}-{part[1]}" for part in self.partitions}
        members = []
        for name, parts in sorted(self.held.items(), key=lambda item: (not item[1], sorted(item[1]), item[0])):
            holds = tuple(called[part] for part in sorted(parts) if part in called)
            members.append(Member(name if names else "", holds, name in self.busy))
        return drawn(members, [Slot(called[part], behind.get(part)) for part in self.partitions], self.group)

    def _owners(self) -> Counter[Part]:
        return Counter(part for parts in self.held.values() for part in parts)

    def __repr__(self) -> str:
        head = f"{count(len(self.held), 'member')}, {count(len(self.partitions), 'partition')}"
        words = [f"{head}: {' + '.join(map(str, self.sizes))}" if self.held else head]
        words += [f"{self.idle} idle"] if self.idle else []
        words += [f"{count(len(self.orphans), 'partition')} without an owner"] if self.orphans else []
        two = sum(owners > 1 for owners in self._owners().values())
        words += [f"{two} with two owners"] if two else []
        return " · ".join(words)


@dataclass(frozen=True, repr=False)
class Lag:
    """How many offsets each partition's end is ahead of what the group has committed."""

    by_partition: Mapping[Part, int]

    @property
    def total(self) -> int:
        """Of all partitions together."""
        return sum(self.by_partition.values())

    @property
    def sizes(self) -> tuple[int, ...]:
        """By partition, in their order."""
        return tuple(self.by_partition[part] for part in sorted(self.by_partition))

    def __repr__(self) -> str:
        parts = " + ".join(f"{size:,}" for size in self.sizes)
        return f"lag {self.total:,} = {parts}" if len(self.sizes) > 1 else f"lag {self.total:,}"


@dataclass(frozen=True, repr=False)
class Work:
    """Which records a group's members have worked on, and how often in all."""

    runs: Mapping[Part, Sequence[tuple[int, int]]] = field(default_factory=dict)  # first and last offset of each batch

    @property
    def times(self) -> int:
        """How often a member worked on a record."""
        return sum(last - first + 1 for runs in self.runs.values() for first, last in runs)

    @property
    def records(self) -> int:
        """On how many different records."""
        offsets = (set[int]().union(*(range(first, last + 1) for first, last in runs)) for runs in self.runs.values())
        return sum(map(len, offsets))

    @property
    def again(self) -> int:
        """How often it was not the first time."""
        return self.times - self.records

    def __repr__(self) -> str:
        again = f", {self.again} of them again" if self.again else ""
        return f"worked {count(self.times, 'time')} on {count(self.records, 'record')}{again}"
