"""Which promises begin first: a file that takes a minute and begins last keeps every other worker waiting for it.

pytest-xdist would begin with the files of many tests; here these are the quick ones.
"""

from __future__ import annotations

import pytest

LONG = {
    *("test_promises", "test_plugin", "test_cluster", "test_faults_short", "test_rungs", "test_lab"),
    *(
        "test_queue_crashes",
        "test_queue_crossings",
        "test_virtual_moves",
        "test_virtual_fencing",
        "test_virtual_recover",
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, each in its own order."""
    items.sort(key=lambda item: item.path.stem not in LONG)
