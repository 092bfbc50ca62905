"""A work queue on plain Kafka topics: nothing lost, crashes counted, zombies fenced, dead letters atomic, depth known.

In:  `Site(cluster, name).queue(topic)`. Out: items, one owner each at a time. `ledger` is the whole state, and pure; `partition` is
one partition in one process; `session` talks with the group; `queue` has the verbs. A name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kqlib.queue.item import Item, Put
    from kqlib.queue.queue import Queue
    from kqlib.queue.retry import Retry
    from kqlib.queue.site import Site

INSIDE = {"Item": "item", "Put": "item", "Queue": "queue", "Retry": "retry", "Site": "site"}

__all__ = ["Item", "Put", "Queue", "Retry", "Site"]


def __getattr__(name: str) -> Any:
    if name not in INSIDE:
        raise AttributeError(f"kqlib.queue has no {name!r}")
    found = globals()[name] = getattr(import_module(f"kqlib.queue.{INSIDE[name]}"), name)
    return found
