"""kqlib: a Kafka queue, learned by building it. This is what a notebook imports: `import kqlib as kq`."""

from kqlib import errors, topics, view
from kqlib.broker import Cluster, connect
from kqlib.checks import check, hint, progress, solution, source
from kqlib.lab import lab
from kqlib.topics import Plan, QueueTopic, Topic

__all__ = [
    "Cluster",
    "Plan",
    "QueueTopic",
    "Topic",
    "check",
    "connect",
    "errors",
    "hint",
    "lab",
    "progress",
    "solution",
    "source",
    "topics",
    "view",
]
