"""`make notebooks`: what it writes and what it refuses, tried on a small notebook without Kafka."""

from __future__ import annotations

import json
import os
from functools import partialmethod
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_output

from tests.notebooks import gate, regenerate
from tests.notebooks.good import good, put
from tests.notebooks.kernels import Scratch
from tests.notebooks.stored import normalise, text
from tests.patience import PATIENCE


def stale(**changes: object) -> NotebookNode:
    """The good notebook before it was run: no counts, no outputs, metadata of an editor."""
    nb = good()
    nb.metadata.language_info.version = "3.11.7"
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
        if cell.id == "say":
            cell.metadata.collapsed = True
            cell.update(changes)
    return nb


def test_a_notebook_is_made_and_making_it_again_changes_no_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path, stale())
    assert regenerate.main([str(path)]) == 0
    assert path.read_text(encoding="utf-8") == text(good())
    assert gate.check(path) == []
    then = path.stat().st_mtime_ns
    assert regenerate.main([str(path)]) == 0
    assert path.stat().st_mtime_ns == then
    answer = capsys.readouterr().out
    assert answer.count(": changed (") == 1
    assert answer.count(": the same (") == 1


REFUSED = {
    "an error": ("1 / 0", "ZeroDivisionError: division by zero"),
    "a dead kernel": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "DeadKernelError"),
    "a leak, and a file left behind": (
        "import tempfile; made = tempfile.mkdtemp(prefix='kq-')\nprint('/home/ana/logs')",
        "an absolute path in its output",
        "left in TMPDIR: kq-",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_notebook_with_a_fault_is_refused_and_stays_as_it_was(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Scratch, "left", partialmethod(Scratch.left, 2 * PATIENCE))  # the file never goes
    source, *why = REFUSED[name]
    path = put(tmp_path, before := stale(source=source))
    assert regenerate.main([str(path)]) == 1
    answer = capsys.readouterr().out
    assert all(each in answer for each in why)
    assert "refused, the file stays as it was" in answer
    assert path.read_text(encoding="utf-8") == text(before)


def test_what_someone_saved_meanwhile_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(
        tmp_path, before := stale(source="with open('01-keys.ipynb', 'a') as file:\n    file.write(' ')\nprint(1)")
    )
    assert regenerate.main([str(path)]) == 1
    assert "someone saved the file meanwhile" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == text(before) + " "


def test_the_maker_s_own_cluster_and_progress_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG", "KQ_SPARK_MASTER", "KQ_STATE"):
        monkeypatch.setenv(name, "mine")
    source = (
        "import os\nprint(sorted(name for name, value in os.environ.items() if value == 'mine'))\n"
        "print(os.path.isdir(os.environ['KQ_STATE']), 'PYTEST_CURRENT_TEST' in os.environ)"
    )
    path = put(tmp_path, stale(source=source))
    assert regenerate.main([str(path)]) == 0
    (cell,) = (cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["id"] == "say")
    assert cell["outputs"][0]["text"] == ["[]\n", "True True\n"]
    assert os.environ["KQ_STATE"] == "mine"


def test_twice_tells_what_differs_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, before := stale(source="import random\nprint(random.randrange(10**9))"))
    assert regenerate.main(["--twice", str(path)]) == 1
    assert "not the same bytes the second time" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == text(before)


def test_neighbouring_chunks_are_joined_and_a_picture_between_lines_stays_there() -> None:
    nb = good()
    picture = new_output("display_data", data={"text/plain": "p"})
    first, second, third = (new_output("stream", text="a\n") for _ in range(3))
    nb.cells[2].outputs = [first, second, picture, third]
    kinds = [output.get("text", "picture") for output in normalise(nb).cells[2].outputs]
    assert kinds == ["a\na\n", "picture", "a\n"]


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        regenerate.main(["gone.ipynb"])
    assert "no such file: gone.ipynb" in capsys.readouterr().err
