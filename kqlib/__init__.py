"""kqlib: a Kafka queue, learned by building it. This is what a notebook imports: `import kqlib as kq`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kqlib import (
        errors as errors,
        keys as keys,
        queue as queue,
        schemas as schemas,
        spark as spark,
        topics as topics,
        virtual as virtual,
    )
    from kqlib.kafka import connect as connect
    from kqlib.queue import Put as Put, Retry as Retry, Site as Site
    from kqlib.queue.drupal import DrupalQueue as DrupalQueue
    from kqlib.share import ShareQueue as ShareQueue
    from kqlib.topics import Plan as Plan, QueueTopic as QueueTopic, Topic as Topic
    from kqlib.workshop import (
        bench as bench,
        delivery as delivery,
        games as games,
        groups as groups,
        nodes as nodes,
        play as play,
        snapshot as snapshot,
        view as view,
    )
    from kqlib.workshop.checks import (
        check as check,
        hint as hint,
        predict as predict,
        predicted as predicted,
        progress as progress,
        solution as solution,
        source as source,
    )
    from kqlib.workshop.cluster import Cluster as Cluster
    from kqlib.workshop.crash import crash as crash
    from kqlib.workshop.decoding import matrix as matrix, trial as trial
    from kqlib.workshop.doctor import doctor as doctor
    from kqlib.workshop.lab import lab as lab
    from kqlib.workshop.promises import promises as promises
    from kqlib.workshop.promises.explore import explore as explore
    from kqlib.workshop.steps import diff as diff, take as take

# A name is loaded when it is first used: `import kqlib` loads nothing else.
MODULES = {name: f"kqlib.{name}" for name in ("errors", "keys", "queue", "schemas", "spark", "topics", "virtual")}
MODULES |= {
    name: f"kqlib.workshop.{name}"
    for name in ("bench", "delivery", "games", "groups", "nodes", "play", "snapshot", "view")
}
NAMES = {
    "kqlib.kafka": ("connect",),
    "kqlib.queue": ("Put", "Retry", "Site"),
    "kqlib.queue.drupal": ("DrupalQueue",),
    "kqlib.share": ("ShareQueue",),
    "kqlib.topics": ("Plan", "QueueTopic", "Topic"),
    "kqlib.workshop.checks": ("check", "hint", "predict", "predicted", "progress", "solution", "source"),
    "kqlib.workshop.cluster": ("Cluster",),
    "kqlib.workshop.decoding": ("matrix", "trial"),
    "kqlib.workshop.doctor": ("doctor",),
    "kqlib.workshop.lab": ("lab",),
    "kqlib.workshop.promises": ("promises",),
    "kqlib.workshop.promises.explore": ("explore",),
    "kqlib.workshop.crash": ("crash",),
    "kqlib.workshop.steps": ("diff", "take"),
}
__all__ = sorted([*MODULES, *(name for names in NAMES.values() for name in names)])  # noqa: PLE0605 - it is a list


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(MODULES[name])
    for module, names in NAMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"kqlib has no {name!r}")


def __dir__() -> list[str]:
    return __all__
