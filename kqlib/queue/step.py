"""Outputs and an ack at once: what a `with` block collects and one transaction writes at its end.

In:  `put` calls inside the block. Out: all of it happened, or nothing of it. The block itself sends nothing.
What a step puts says in two headers which item it came of and who worked on it (kq-item, kq-by): an audit counts by them.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from kqlib.errors import Closed, NotAllowed
from kqlib.queue.item import BY, ITEM, Headers, Item, Out, Put
from kqlib.queue.partition import Partition
from kqlib.queue.transactions import Ending

if TYPE_CHECKING:
    from kqlib.queue.queue import Queue
    from kqlib.queue.site import Site


class Transaction:
    """Several puts, all or nothing: `with site.transaction() as tx: tx.put(queue, data)`."""

    def __init__(self, site: Site, acks: list[tuple[Partition, int, int]] | None = None) -> None:
        self._site, self._acks = site, acks or []
        self._outs: list[Out] = []
        self._into: dict[str, Queue] = {}
        self._marks: Headers = []
        self._over = False

    def put(
        self,
        queue: Queue,
        data: bytes | None,
        key: bytes | None = None,
        headers: dict[str, bytes | None] | None = None,
        delay: float = 0,
    ) -> None:
        """Written when the block ends, with all the others."""
        from kqlib.queue.queue import Queue

        if self._over:
            raise Closed(thing="transaction")
        if not isinstance(queue, Queue) or queue.site is not self._site:
            raise NotAllowed("the first argument is a queue of this site: tx.put(queue, data)")
        out = queue._out(Put(data, key, headers or {}, delay), self._marks)
        queue._usable()
        self._outs.append(out)
        self._into[queue.name] = queue

    def __enter__(self) -> Self:
        self._site._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if kind is None and (self._outs or self._acks):
            self._site._check_here()
            for queue in self._into.values():  # one may have been deleted since its put
                queue._usable()
            with self._site._member.changed:
                self._site._end(Ending(self._outs, self._acks))


class Step(Transaction):
    """A transaction that also acks the item it was made for, and marks what it puts with that item's id."""

    def __init__(self, site: Site, owner: Partition, item: Item) -> None:
        super().__init__(site, [(owner, item.offset, item.lease)])
        self._marks = [(ITEM, item.id.encode()), (BY, site.name.encode())]
