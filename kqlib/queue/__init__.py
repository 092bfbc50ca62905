"""A work queue on plain Kafka topics: nothing lost, crashes counted, zombies fenced, dead letters atomic, depth known.

In:  `Site(cluster, name).queue(topic)`. Out: items, one owner each at a time. `ledger` is the whole state, and pure;
`partition` is one partition in one process; `session` talks with the group; `queue` has the verbs.
"""

from kqlib.queue.item import Item, Put
from kqlib.queue.queue import Queue
from kqlib.queue.retry import Retry
from kqlib.queue.site import Site

__all__ = ["Item", "Put", "Queue", "Retry", "Site"]
