"""kqlib: a Kafka queue, learned by building it. This is what a notebook imports: `import kqlib as kq`."""

from kqlib import errors, snapshot, topics, view
from kqlib.broker import Cluster, connect
from kqlib.checks import check, hint, progress, solution, source
from kqlib.doctor import doctor
from kqlib.lab import lab
from kqlib.topics import Plan, QueueTopic, Topic

__all__ = [
    "Cluster",
    "Plan",
    "QueueTopic",
    "Topic",
    "check",
    "connect",
    "doctor",
    "errors",
    "hint",
    "lab",
    "progress",
    "snapshot",
    "solution",
    "source",
    "topics",
    "view",
]
