"""kqlib: a Kafka queue, learned by building it. This is what a notebook imports: `import kqlib as kq`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kqlib import errors, keys, queue, schemas, spark, topics, virtual
    from kqlib.kafka import connect
    from kqlib.queue import Put, Retry, Site
    from kqlib.queue.drupal import DrupalQueue
    from kqlib.share import ShareQueue
    from kqlib.topics import Plan, QueueTopic, Topic
    from kqlib.workshop import bench, delivery, games, groups, nodes, play, snapshot, view
    from kqlib.workshop.checks import check, hint, predict, predicted, progress, solution, source
    from kqlib.workshop.cluster import Cluster
    from kqlib.workshop.crash import crash
    from kqlib.workshop.decoding import matrix, trial
    from kqlib.workshop.doctor import doctor
    from kqlib.workshop.lab import lab
    from kqlib.workshop.promises import promises
    from kqlib.workshop.promises.explore import explore
    from kqlib.workshop.steps import diff, take

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

__all__ = [
    "Cluster",
    "DrupalQueue",
    "Plan",
    "Put",
    "QueueTopic",
    "Retry",
    "ShareQueue",
    "Site",
    "Topic",
    "bench",
    "check",
    "connect",
    "crash",
    "delivery",
    "diff",
    "doctor",
    "errors",
    "explore",
    "games",
    "groups",
    "hint",
    "keys",
    "lab",
    "matrix",
    "nodes",
    "play",
    "predict",
    "predicted",
    "progress",
    "promises",
    "queue",
    "schemas",
    "snapshot",
    "solution",
    "source",
    "spark",
    "take",
    "topics",
    "trial",
    "view",
    "virtual",
]


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
