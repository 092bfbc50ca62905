"""The Go and the JavaScript that notebook 10 shows: both find the partition of every golden vector, where there is a Go, a Node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.notebooks.page import REPO

NOTEBOOK = REPO / "notebooks" / "10-virtual-queues.ipynb"
VECTORS = json.loads((REPO / "data" / "murmur2.json").read_text(encoding="utf-8"))["vectors"]
CASES = [(each["key"], int(count), part) for each in VECTORS for count, part in each["partition"].items()]
LINES = 16  # shown as short enough to be copied by hand
SECONDS = 300  # a Go without a cache compiles its own library first


def shown(language: str) -> str:
    """The program of that language in the notebook's prose."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    [found] = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return str(found)


def answer(command: list[str], folder: Path) -> list[int]:
    """What a program prints, a number a line."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("language", ["go", "js"])
def test_a_program_is_short(language: str) -> None:
    assert len(shown(language).splitlines()) <= LINES


@pytest.mark.skipif(not shutil.which("node"), reason="no Node here")
def test_the_javascript_agrees_with_every_vector(tmp_path: Path) -> None:
    ask = f"for (const [key, n] of {json.dumps([case[:2] for case in CASES])})"
    program = f"{shown('js')}\n{ask} console.log(partition(Buffer.from(key, 'hex'), n))\n"
    (tmp_path / "all.js").write_text(program, encoding="utf-8")
    assert answer(["node", "all.js"], tmp_path) == [part for *_, part in CASES]


@pytest.mark.skipif(not shutil.which("go"), reason="no Go here")
def test_the_go_agrees_with_every_vector(tmp_path: Path) -> None:
    keys = "".join(f'"{re.sub("..", lambda two: chr(92) + "x" + two[0], key)}", ' for key, *_ in CASES)
    counts = ", ".join(str(count) for _, count, _ in CASES)
    asks = f"keys, counts := []string{{{keys}}}, []int32{{{counts}}}\n"
    tell = 'for at, key := range keys { os.Stdout.WriteString(strconv.Itoa(int(partition([]byte(key), counts[at]))) + "\\n") }'
    head = 'package main\nimport ("encoding/binary"; "os"; "strconv")\n'
    (tmp_path / "main.go").write_text(f"{head}{shown('go')}\nfunc main() {{\n{asks}{tell}\n}}\n", encoding="utf-8")
    assert answer(["go", "run", "main.go"], tmp_path) == [part for *_, part in CASES]
