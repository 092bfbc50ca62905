"""The one form in which a notebook is stored, so that making it again gives the same bytes.

In: a notebook as it came out of a kernel. Out: the same notebook without what differs from run to run or from machine
to machine. Pure: no kernel, no file.
"""

from __future__ import annotations

import copy

import nbformat
from nbformat import NotebookNode

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def normalise(nb: NotebookNode) -> NotebookNode:
    """The notebook as it is stored: sources, ids and tags stay, outputs keep what is compared."""
    nb = copy.deepcopy(nb)
    nb.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for cell in nb.cells:
        tags = sorted(set(cell.metadata.get("tags", [])))
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            cell.outputs = outputs(cell.outputs)
    return nb


def outputs(made: list[NotebookNode]) -> list[NotebookNode]:
    """One cell's outputs: neighbouring chunks of a stream joined, no widget views, an error without its traceback."""
    kept: list[NotebookNode] = []
    for output in made:
        if output.output_type == "stream":
            if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
                kept[-1].text += output.text
                continue
        elif output.output_type == "error":
            output.traceback = [f"{output.ename}: {output.evalue}"]  # file names and line numbers are this machine's
        else:
            # A trusted notebook shows 'model not found' in place of a stored view; the picture beside it stays.
            output.data.pop(WIDGET_VIEW, None)
            output.metadata = NotebookNode()
        kept.append(output)
    return kept


def text(nb: NotebookNode) -> str:
    """The bytes of the file, as text: keys sorted, one space of indent, a newline at the end."""
    return nbformat.v4.writes(nb).rstrip("\n") + "\n"  # nbformat.writes would mend ids: the gate is to see them
