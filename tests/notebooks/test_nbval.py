"""What nbval sees and what it does not: planted faults, run through the very command that `make test` runs.

The notebooks here run on a stage without Kafka; the notebooks of the pack are compared by `python -m tests.notebooks.compare`.
"""

from __future__ import annotations

import re
from functools import partialmethod
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_output

from tests.notebooks import compare, gate
from tests.notebooks.good import good, put
from tests.notebooks.kernels import Scratch, ThisPython, scratch
from tests.patience import PATIENCE


def saying(source: str, shown: str, *, stream: str = "stdout", count: int | None = 2) -> NotebookNode:
    """The good notebook, with this code and this stored output in its second code cell."""
    nb = good()
    cell = next(cell for cell in nb.cells if cell.id == "say")
    outputs = [new_output("stream", name=stream, text=shown)] if shown else []
    cell.update(source=source, outputs=outputs, execution_count=count)
    return nb


STDERR = "import sys\nprint('careful', file=sys.stderr)"
ORPHAN = """import subprocess, sys
quiet = "import time; time.sleep(60)"
sleeper = subprocess.Popen([sys.executable, "-c", quiet], start_new_session=True)"""

SWAPPED = """from IPython.display import display
display({"text/plain": "one"}, raw=True)
display({"text/plain": "two"}, raw=True)"""


def shown(source: str, *data: dict[str, str]) -> NotebookNode:
    """The good notebook, with this code and these stored displays in its second code cell."""
    nb = saying(source, "")
    next(cell for cell in nb.cells if cell.id == "say").outputs = [
        new_output("display_data", data=each) for each in data
    ]
    return nb


PIXELS = "from IPython.display import display\ndisplay({'text/plain': 'p', 'image/png': 'AAAA'}, raw=True)"

# One is ipykernel's own: it takes a free port when it listens. With five more another program could be first.
PORTS = """import psutil
print(sum(each.status == "LISTEN" for each in psutil.Process().net_connections("tcp")))"""

# name: (the notebook, does the comparison see it, does the gate see it)
PLANTED = {
    "displays in another order": (shown(SWAPPED, {"text/plain": "two"}, {"text/plain": "one"}), True, False),
    "other pixels": (shown(PIXELS, {"text/plain": "p", "image/png": "AAAB"}), True, False),
    "the same pixels": (shown(PIXELS, {"text/plain": "p", "image/png": "AAAA"}), False, False),
    "a kernel without ports that were chosen before": (saying(PORTS, "1\n"), False, False),
    "a good notebook": (good(), False, False),
    "a changed output": (saying("print(2 + 2)", "5\n"), True, False),
    "an output that is gone": (saying("a = 4", "4\n"), True, False),
    "an error without a tag": (saying("print(4)\n1 / 0", "4\n"), True, False),
    "a cell that was not run": (saying("print(2 + 2)", "", count=None), True, True),
    "a line on stderr that comes again": (saying(STDERR, "careful\n", stream="stderr"), False, True),
    "a path that comes again": (saying("print('/home/ana/logs')", "/home/ana/logs\n"), False, True),
    "a line on stderr that is new": (saying(STDERR, ""), True, False),
    "a process that outlives its kernel": (saying(ORPHAN, ""), False, False),
}


def together() -> NotebookNode:
    """The good notebook with all of these cells, each in place of its second code cell: one kernel runs them."""
    nb = good()
    at = next(at for at, cell in enumerate(nb.cells) if cell.id == "say")
    planted = [next(cell for cell in one.cells if cell.id == "say") for one, *_ in PLANTED.values()]
    nb.cells[at : at + 1] = [NotebookNode({**cell, "id": f"say-{n}"}) for n, cell in enumerate(planted)]
    return nb


def test_each_planted_fault_is_seen_by_nbval_or_the_gate_and_an_orphan_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KQ_TIMES", raising=False)  # these cells are no tests of the run around them
    monkeypatch.setattr(
        Scratch, "left", partialmethod(Scratch.left, 2 * PATIENCE)
    )  # the orphan stays as long as it is waited for
    with scratch() as place:
        report = place.folder / "report.xml"
        status, left = compare.compare([put(tmp_path, together())], 0, place, f"--junitxml={report}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) == 6 + len(PLANTED), "not every code cell was run"
    seen = [bool(len(case)) for case in cases]
    assert dict(zip(PLANTED, seen[1:-5], strict=True)) == {name: by_nbval for name, (_, by_nbval, _) in PLANTED.items()}
    assert not any(seen[:1] + seen[-5:]), "a good cell"
    for n, (name, (nb, _, by_gate)) in enumerate(PLANTED.items()):
        assert bool(gate.check(put(tmp_path / f"planted-{n}", nb))) == by_gate, name
    assert re.search(r"stderr of the cell call -+\ncareful\n", capfd.readouterr().out), (
        "what a failed cell printed is shown"
    )
    assert status == 1
    assert len(left) == 1
    assert "import time; time.sleep(60)" in left[0]
    assert place.marked.alive() == [], "the scratch ends what it finds"


@pytest.mark.parametrize(
    ("status", "left", "want"), [(0, [], 0), (1, [], 1), (0, ["process 7: java"], 1), (5, ["process 7: java"], 5)]
)
def test_the_run_fails_when_a_notebook_failed_or_left_something(
    status: int, left: list[str], want: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "compare", lambda *_: (status, left))
    assert compare.main(["01-keys.ipynb"]) == want
    assert ("left behind by a notebook: process 7: java" in capsys.readouterr().out) == bool(left)


def test_a_notebook_that_is_made_has_a_kernel_that_listens_at_files() -> None:
    assert ThisPython().transport == "ipc"


def test_a_file_in_the_temporary_directory_is_seen() -> None:
    with scratch() as place:
        assert place.left(0) == []
        (place.folder / "tmp" / "kq-cluster").mkdir()
        assert place.left(0) == ["left in TMPDIR: kq-cluster"]


def test_with_no_notebook_to_compare_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "notebooks", list)
    assert compare.main([]) == 1
