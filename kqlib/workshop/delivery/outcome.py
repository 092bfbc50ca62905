"""What became of the items: plain values, and the table of them.

In:  how often each item was written. Out: `Outcome` for one run, `CrashTable` for all orders and crash points; no Kafka here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqlib.workshop.view.crash import crash as draw_crash
from kqlib.workshop.view.picture import Picture


@dataclass(frozen=True, repr=False)
class Life:
    """How one life of a worker ended. killed: after which verb of item `at` it was killed; None: it read to the end."""

    killed: str | None = None
    at: int = 0

    def __repr__(self) -> str:
        return f"killed after {self.killed}, at item {self.at}" if self.killed else "read to the end"


@dataclass(frozen=True)
class Outcome:
    """How many items were lost, written once, written more than once. `again`: how many were worked on more than once."""

    lost: int
    once: int
    doubled: int
    again: int = field(default=0, compare=False)

    @classmethod
    def of(cls, written: Iterable[int], worked: Iterable[int] = ()) -> Outcome:
        """Counted from how often each item was written, and worked on."""
        times = list(written)
        lost, once = times.count(0), times.count(1)
        return cls(lost, once, len(times) - lost - once, sum(n > 1 for n in worked))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Lost, once, doubled."""
        return self.lost, self.once, self.doubled


@dataclass(frozen=True, repr=False)
class CrashTable:
    """Orders × crash points: what became of the items. `table["at-least-once", "write"]` is one `Outcome`."""

    outcomes: Mapping[tuple[str, str], Outcome]

    def __getitem__(self, cell: tuple[str, str]) -> Outcome:
        return self.outcomes[cell]

    @property
    def orders(self) -> list[str]:
        """Its rows."""
        return list(dict.fromkeys(order for order, _ in self.outcomes))

    @property
    def crashes(self) -> list[str]:
        """Its columns."""
        return list(dict.fromkeys(crash for _, crash in self.outcomes))

    def draw(self) -> Picture:
        """Its picture: three small bars a cell."""
        counts = {cell: outcome.counts for cell, outcome in self.outcomes.items()}
        return draw_crash(self.orders, self.crashes, counts)

    def __repr__(self) -> str:
        return self.draw().text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """In a notebook it is its picture."""
        return self.draw()._repr_mimebundle_()
