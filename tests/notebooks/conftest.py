"""What takes long begins first, one test at a time (`--maxschedchunk 1`): else all workers wait for the one that began it last."""

from __future__ import annotations

import pytest

LONG = ("test_run_twice", "test_solutions")  # these run notebooks and exercises; the others read files


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, each in its own order; and what a check of Spark leaves is no fault of the exercise."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))
    for item in items:
        if (
            item.path.stem == "test_solutions"
        ):  # Py4J forgets sockets: a session's exercises run in one process with the others
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
