"""Notebooks outside of JupyterLab: nbconvert, `jupyter execute` and papermill run them, and their outputs are the stored ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from . import kernels, stored
from .page import REPO

pytestmark = pytest.mark.nightly
NOTEBOOKS = ("00-start-here", "01-topics")
PAPERMILL = "papermill==2.6.0"  # in an environment of its own


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A user's environment: `kq` and `jupyter` on the path, the checkout's profile, and no trace of pytest."""
    with kernels.scratch() as scratch:
        own = scratch.environment
        own.pop("PYTEST_CURRENT_TEST")
        tools = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
        yield own | {"PATH": tools, "PYTHONPATH": str(REPO)}
        assert [each for each in scratch.left() if "_kernels" not in each] == []  # what `ipykernel install` leaves


def ran(command: list[str], place: Path, environment: dict[str, str]) -> None:
    """Run it; what it says is shown if it fails."""
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.parametrize("tool", ["nbconvert", "execute"])
def test_jupyters_own_tools_run_a_notebook(tool: str, name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    file = tmp_path / f"{name}.ipynb"
    shutil.copyfile(REPO / "notebooks" / file.name, file)
    how = {
        "nbconvert": ["nbconvert", "--execute", "--to", "notebook", "--inplace"],
        "execute": ["execute", "--inplace"],
    }
    ran([sys.executable, "-m", "jupyter", *how[tool], str(file)], tmp_path, environment)
    same(file)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_papermill_runs_a_notebook_with_a_kernel_that_has_kqlib(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    own, uv = tmp_path / "own", str(Path(sys.executable).with_name("uv"))
    uv = uv if Path(uv).exists() else "uv"
    ran([uv, "venv", "--quiet", "--python", sys.executable, str(own)], tmp_path, environment)
    ran([uv, "pip", "install", "--quiet", "--python", str(own / "bin" / "python"), PAPERMILL], tmp_path, environment)
    kernel = [sys.executable, "-m", "ipykernel", "install", "--prefix", str(tmp_path / "kernels"), "--name", "kqlib"]
    ran(kernel, tmp_path, environment)
    file, found = REPO / "notebooks" / f"{name}.ipynb", tmp_path / f"{name}.ipynb"
    paths = {"JUPYTER_PATH": str(tmp_path / "kernels" / "share" / "jupyter"), "PYTHONPATH": ""}
    command = [str(own / "bin" / "papermill"), "--kernel", "kqlib", "--no-progress-bar", str(file), str(found)]
    ran(command, tmp_path, environment | paths)
    same(found)


def same(found: Path) -> None:
    """The outputs are what the checkout has stored for this notebook."""
    made = stored.normalise(nbformat.read(found, as_version=4))
    kept = nbformat.read(REPO / "notebooks" / found.name, as_version=4)
    assert [cell.get("outputs") for cell in made.cells] == [cell.get("outputs") for cell in kept.cells]
