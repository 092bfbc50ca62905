"""What nbval leaves open, closed on the same run: the outputs of a cell are the stored ones to the byte, in their order.

A pytest plugin that `compare` loads beside nbval. In: each cell that nbval has run. Out: a failure where the order of its
outputs, a picture's pixels or a key of its data differ from the file: then `make notebooks` would change the file.
It also gives nbval's kernels sockets that are files (`kernels.sockets`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Generator

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager
from nbformat import NotebookNode
from nbval.plugin import IPyNbCell, coalesce_streams

from .kernels import sockets
from .regenerate import difference
from .stored import outputs

nbval.kernel.KernelManager = lambda **options: KernelManager(**options, **sockets())


def written(made: list[NotebookNode]) -> str:
    """A cell's outputs as they would be stored, a stream's chunks in one piece; the gate sees to their counts."""
    kept = [{**output, "execution_count": None} for output in outputs(coalesce_streams(copy.deepcopy(made)))]
    return json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """nbval's own comparison first, then ours. Where a cell fails, what it printed is shown: nbval names only the stream."""
    stored = written(item.cell.outputs) if isinstance(item, IPyNbCell) else ""  # before: nbval joins them in place
    try:
        result = yield
    except BaseException:
        for output in getattr(item, "test_outputs", None) or []:
            if output["output_type"] == "stream":
                item.add_report_section("call", f"{output['name']} of the cell", output["text"])
        raise
    if isinstance(item, IPyNbCell) and (differs := difference(stored, written(item.test_outputs))):
        item.raise_cell_error("The stored outputs are other bytes: run make notebooks, then read the diff", differs)
    return result
