"""The process that forks workers: everything is imported before the first fork, and there is nothing that a fork would break."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import cloudpickle
import psutil

from kqlib.workshop.ladder import LADDER, LEDGER
from kqlib.workshop.promises import _homes
from kqlib.workshop.promises.nursery import Nursery
from kqlib.workshop.promises.share import SHARE
from kqlib.workshop.promises.virtual import VIRTUAL

NEEDED = [module for factory in (*LADDER.values(), LEDGER, SHARE, VIRTUAL) for module in _homes(factory)]


def loaded(cluster, name):
    """A queue whose depth is how many of the modules its process has imported."""
    return SimpleNamespace(depth=lambda: sum(module in sys.modules for module in NEEDED))


def test_workers_are_forked_with_their_modules_from_a_process_without_threads_and_connections():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with Nursery(NEEDED) as nursery:
        worker = nursery.worker(
            cloudpickle.dumps(loaded), SimpleNamespace(bootstrap="nowhere", _own={}), "football", {}
        )
        assert worker.call("depth") == len(NEEDED)
        process = psutil.Process(nursery._process.pid)
        assert process.num_threads() == 1
        assert process.net_connections("inet") == []
        worker.kill()


def test_a_class_from_a_cell_needs_the_modules_of_what_it_inherits_from():
    class Mine(LADDER["leases"]):
        pass

    assert _homes(Mine) == ["kqlib.workshop.ladder"] * 2
    assert _homes(lambda cluster, name: None) == []
