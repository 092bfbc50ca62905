"""Which promises does a queue keep? Each is a short check, run on a real Kafka against any queue with some of the verbs.

    kq.promises(lambda cluster, name: kq.Site(cluster, "site").queue(name))     # one queue: a row a promise
    kq.promises({"mine": MyQueue, **ladder.LADDER})                     # several, side by side
    kq.promises(MyQueue, only=["first in, first out", "lease expires"])

In:  a factory (cluster, name) -> anything with the verbs of a queue, or several by name; `name` is a topic with one partition.
     A factory whose queue needs a server has `serving(cluster)`, a context manager that is open while a cluster's trials run.
Out: `Scores`: ✓ (of how many trials), ✗ (what was seen), – (not offered); `.draw(promise)` shows an item's deliveries.

The checks are in `checks.py` and `crashes.py`, in the words of `scenario.py`. `run.py` runs them. Each worker is a process of its own
(`adapter.py`), so that it can be killed.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.extras import check
from kqlib.runtime.notebook import display_handle
from kqlib.workshop.children import packed
from kqlib.workshop.promises import store
from kqlib.workshop.promises.checks import ONE
from kqlib.workshop.promises.crashes import CRASHES
from kqlib.workshop.promises.values import Promise, Scores, Verdict

__all__ = ["PROMISES", "Promise", "Scores", "Verdict", "promises"]

PROMISES: dict[str, Promise] = {promise.name: promise for promise in (*ONE, *CRASHES)}

Factory = Callable[..., Any]


def promises(factory: Factory | Mapping[str, Factory], only: Sequence[str | Promise] | None = None) -> Scores:
    """Try the promises on a queue, or on several side by side: a table of which are kept. `only`: names from `PROMISES`, or others."""
    factories, chosen = named(factory), _chosen(only)
    return tried_on(factories, dict.fromkeys(factories, chosen))


def tried_on(factories: Mapping[str, Factory], chosen: Mapping[str, Sequence[Promise]]) -> Scores:
    """The same for queues of which each is tried on promises of its own."""
    check("lab", "kq.promises", "cloudpickle")
    known = {name: (each, packed(each)) for name, each in factories.items()}
    from kqlib.workshop.promises.run import score

    def tried(pairs: list[store.Pair]) -> dict[store.Pair, Verdict]:
        with counted(len(pairs), "promises") as step:
            return score(factories, [(queue, asked[queue, name]) for queue, name in pairs], step)

    asked = {(queue, each.name): each for queue in factories for each in chosen[queue]}
    found = store.verdicts(known, list(asked), tried)
    verdicts = {queue: {each.name: found[queue, each.name] for each in chosen[queue]} for queue in factories}
    return Scores(verdicts, {name: _costs(each) for name, each in factories.items()})


@contextmanager
def counted(total: int, what: str) -> Iterator[Callable[[], object]]:
    """In a notebook a line says how many are tried; it is empty at the end. Stored outputs have none: what was kept was not tried."""
    handle = None if "PYTEST_CURRENT_TEST" in os.environ else display_handle()
    done = count(1)

    def step() -> None:
        if handle:
            handle.update({"text/plain": f"{next(done)} of {total} {what}"}, raw=True)

    try:
        yield step
    finally:
        if handle:
            handle.update({"text/plain": ""}, raw=True)


def named(factory: Factory | Mapping[str, Factory]) -> dict[str, Factory]:
    """Factories by name. A single one has its own name."""
    if isinstance(factory, Mapping):
        named = dict(factory)
    else:
        named = {getattr(factory, "__name__", "queue").replace("<lambda>", "queue"): factory}
    if not named:
        raise NotAllowed("no queue to score: give a factory, as in kq.promises(MyQueue)")
    for name, each in named.items():
        if not isinstance(name, str) or not name:
            raise NotAllowed(f"a queue's name in the table is text, not {name!r}")
        try:
            inspect.signature(each).bind(None, "topic")
        except (TypeError, ValueError):  # ValueError: a builtin, whose arguments cannot be seen
            must = "is a function that takes a cluster and a topic's name, as in lambda cluster, name: …"
            raise NotAllowed(f"the factory {name!r} {must}") from None
    return named


def _chosen(only: Sequence[str | Promise] | None) -> list[Promise]:
    """The promises to try: those of `PROMISES` in their order, then the others."""
    if isinstance(only, str):
        raise NotAllowed(f"only is a list of names, as in only=[{only!r}]")
    for name in only or ():
        if not isinstance(name, Promise) and name not in PROMISES:
            raise NotAllowed(f"there is no promise {name!r}; there are {', '.join(map(repr, PROMISES))}")
    if only is not None and not only:
        raise NotAllowed("only names no promise: leave it out, and all are tried")
    others = [each for each in only or () if isinstance(each, Promise)]
    return [promise for name, promise in PROMISES.items() if only is None or name in only] + others


def _costs(factory: Factory) -> Mapping[str, str]:
    """What a rung says that it costs; a class that stands on a rung does not inherit that."""
    costs = vars(factory).get("costs", {}) if isinstance(factory, type) else getattr(factory, "costs", {})
    return costs if isinstance(costs, Mapping) else {}
