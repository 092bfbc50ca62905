"""Runs every notebook and compares what comes out with what is stored: nbval, as `make test` calls it.

    python -m tests.notebooks.compare [-n 2] [FILE…]    # all of notebooks/ without a FILE

With nbval runs `exact`, so that passing means: making the notebooks again changes no byte of them.

In: notebooks. Out: pytest's report, then what the notebooks left behind: a process that outlives its kernel, or a file
in the temporary directory, fails the run as a changed output does. There is no sanitizer: an output that needs one is
mended instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .gate import notebooks
from .kernels import CELL_SECONDS, Scratch, scratch
from .page import REPO


def compare(paths: list[Path], workers: int, place: Scratch, *more: str) -> tuple[int, list[str]]:
    """Run nbval over these; pytest's exit status, and what the notebooks left behind."""
    files = [str(path.resolve()) for path in paths]
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-c", str(REPO / "pyproject.toml")),
        *("--rootdir", os.path.commonpath([REPO, *files])),  # outside of it pytest takes all notebooks for one
        *("--nbval", "--nbval-current-env", "--nbval-cell-timeout", str(CELL_SECONDS)),
        *("-p", "tests.plugin", "-p", "tests.notebooks.exact"),
        *("-n", str(workers), "--dist", "loadscope"),  # a notebook's cells stay with one worker, in their order
        *("--basetemp", str(place.folder / "pytest")),  # so that TMPDIR holds only what notebooks put there
    ]
    status = subprocess.run([*command, *more, *files], env=place.environment, cwd=REPO, check=False).returncode
    return status, place.left()


def main(arguments: list[str]) -> int:
    """Compare them all and say what was left behind."""
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks.compare", description=compare.__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-n", dest="workers", type=int, default=min(2, os.cpu_count() or 1), help="how many at once")
    options = parser.parse_args(arguments)
    paths = options.files or notebooks()
    if not paths:
        print("no notebooks to compare")
        return 1
    with scratch() as place:
        status, left = compare(paths, options.workers, place)
    for one in left:
        print(f"left behind by a notebook: {one}")
    print(f"{len(paths)} notebooks compared, {len(left)} things left behind")
    return status or (1 if left else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
