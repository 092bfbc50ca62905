"""What makes a reader stop: a cell that cannot be run twice. And what makes a machine slow: a broker that outlives its kernel.

Each notebook is one test.
"""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tests.notebooks import gate
from tests.notebooks.kernels import GONE_SECONDS, client, run, scratch


def doubled(nb: NotebookNode) -> NotebookNode:
    """The notebook with each code cell twice in a row: 1, 1, 2, 2, …"""
    cells = []
    for cell in (cell for cell in nb.cells if cell.cell_type == "code"):
        again = copy.deepcopy(cell)
        again.id = f"{cell.id}-again"[-64:]
        cells += [cell, again]
    return new_notebook(cells=cells, metadata=nb.metadata)


def failures(nb: NotebookNode, folder: Path) -> list[str]:
    """Run every cell twice: the cells that fail without announcing it, and what they leave behind."""
    with scratch() as place:
        done = run(doubled(nb), folder, place, errors=True)
        found = [
            f"[{n // 2 + 1}] the {('first', 'second')[n % 2]} time: {output.ename}: {output.evalue}"
            for n, cell in enumerate(done.cells)
            for output in cell.outputs
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", [])
        ]
        return found + [f"left behind: {one}" for one in place.left()]


def brokers(path: Path) -> int:
    """How many brokers a notebook's set-up starts."""
    text = path.read_text(encoding="utf-8")
    return max(n for n in (1, 2, 3) if n == 1 or f"brokers={n}" in text)


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize("path", gate.notebooks(), ids=lambda path: path.name)
def test_every_cell_of_a_notebook_runs_twice_in_place(path: Path) -> None:
    found = failures(nbformat.v4.reads(path.read_text(encoding="utf-8")), path.parent)
    assert not found, "\n".join(found)


def test_a_cell_that_cannot_be_run_twice_is_named(tmp_path: Path) -> None:
    announced = {"tags": ["raises-exception"]}
    sources = ["names = ['a']", "names.remove('a')", "1 / 0"]
    cells = [new_code_cell(source, metadata=announced if source == "1 / 0" else {}) for source in sources]
    found = failures(new_notebook(cells=cells), tmp_path)
    assert found == ["[2] the second time: ValueError: list.remove(x): x not in list"]


ONE, THREE = gate.notebooks()[1], max(gate.notebooks(), key=brokers)


@pytest.mark.nightly  # by day tests/promises/test_no_orphan.py kills a Python that has a cluster
@pytest.mark.parametrize("path", [ONE, THREE], ids=lambda path: path.name)
def test_no_process_and_no_directory_is_left_when_a_kernel_is_killed_in_the_middle(path: Path) -> None:
    nb = nbformat.v4.reads(path.read_text(encoding="utf-8"))
    seen: dict[str, Any] = {}
    with scratch() as place:
        runner = client(nb, path.parent)

        def kill(cell: NotebookNode, **_: Any) -> None:
            if cell.get("execution_count") == 2:
                alive = place.marked.alive()
                seen["java"] = [process for process in alive if "java" in process.name()]
                next(process for process in alive if "ipykernel_launcher" in process.cmdline()).kill()
                seen["left"] = place.left(GONE_SECONDS)

        runner.on_cell_executed = kill
        with pytest.raises(DeadKernelError):
            asyncio.run(runner.async_execute(env=place.environment))
    assert len(seen["java"]) == brokers(path)
    assert seen["left"] == []
