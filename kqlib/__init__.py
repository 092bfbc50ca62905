"""kqlib: a Kafka queue, learned by building it. This is what a notebook imports: `import kqlib as kq`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kqlib import errors, snapshot, topics, view
from kqlib.broker import Cluster, connect
from kqlib.checks import check, hint, progress, solution, source
from kqlib.doctor import doctor
from kqlib.lab import lab
from kqlib.topics import Plan, QueueTopic, Topic

if TYPE_CHECKING:
    from kqlib import delivery, games, groups, keys, play, queue, schemas, spark, virtual
    from kqlib.queue import Put, Retry, Site
    from kqlib.queue.drupal import DrupalQueue
    from kqlib.queue.promises import promises
    from kqlib.share import ShareQueue

# opened when first asked for: `import kqlib` stays quick
ROOMS = ("delivery", "games", "groups", "keys", "play", "queue", "schemas", "spark", "virtual")
INSIDE = {
    "DrupalQueue": "kqlib.queue.drupal",
    "Put": "kqlib.queue",
    "Retry": "kqlib.queue",
    "ShareQueue": "kqlib.share",
    "Site": "kqlib.queue",
    "promises": "kqlib.queue.promises",
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
    "check",
    "connect",
    "delivery",
    "doctor",
    "errors",
    "games",
    "groups",
    "hint",
    "keys",
    "lab",
    "play",
    "progress",
    "promises",
    "queue",
    "schemas",
    "snapshot",
    "solution",
    "source",
    "spark",
    "topics",
    "view",
    "virtual",
]


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"kqlib.{name}")
    if name in INSIDE:
        return getattr(import_module(INSIDE[name]), name)
    raise AttributeError(f"kqlib has no {name!r}")


def __dir__() -> list[str]:
    return __all__
