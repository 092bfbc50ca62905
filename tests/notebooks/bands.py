"""Runs the measuring cells of a notebook again and again, and says how near each ratio came to the ends of its band.

    python -m tests.notebooks.bands [-n 30] [--loops 2] notebooks/14-how-fast.ipynb

In:  a notebook whose cells call `kq.bench`. Each run is a process of its own with a new lab; exercises are left out. --loops: so many
     busy loops run beside it.
Out: for each ratio its band, the smallest and the largest that was seen, and what else was printed differently. The exit status is
     1 if a ratio left its band.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from kqlib.workshop import bench

from .gate import notebooks
from .kernels import scratch
from .page import REPO, Page
from .prose import read

LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # it ends with this process, however that ends


@dataclass
class Seen:
    """A ratio in some runs."""

    words: str
    ratios: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{min(self.ratios):9.3g} to {max(self.ratios):9.3g}  {self.words}"


def once(path: Path) -> dict[str, Any]:
    """One run in this process: the ratios by their title and name, what was printed, and the seconds of each cell."""
    shell = InteractiveShell.instance()
    found: dict[str, Any] = {"ratios": {}, "printed": {}, "seconds": {}}
    make = bench.ratios

    def noting(*given: Any, **named: Any) -> bench.Ratios:
        made = make(*given, **named)
        title = made.picture.text.partition(" · ")[0]
        found["ratios"] |= {f"{title}: {row.name}": (row.measured, row.words) for row in made.rows}
        return made

    bench.ratios = noting
    for cell in measuring(read(path)):
        start, out = time.monotonic(), io.StringIO()
        with contextlib.redirect_stdout(out):
            shell.run_cell(cell.source, store_history=False).raise_error()
        found["seconds"][cell.node.id] = time.monotonic() - start
        found["printed"][cell.node.id] = re.sub(r"^Out\[\d*\]: ?", "", out.getvalue())
    return found


def measuring(page: Page) -> Iterator[Any]:
    """The code cells without exercises."""
    return (cell for cell in page.code if "kq.check(" not in cell.source)


def runs(path: Path, number: int, loops: int) -> list[dict[str, Any]]:
    """So many runs, one after the other, beside so many busy loops."""
    busy = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(loops)]
    try:
        return [_run(path, turn) for turn in range(1, number + 1)]
    finally:
        for each in busy:
            each.kill()
            each.wait()


def _run(path: Path, turn: int) -> dict[str, Any]:
    with scratch() as place:
        command = [sys.executable, "-m", "tests.notebooks.bands", "--once", str(path)]
        done = subprocess.run(command, cwd=REPO, env=place.environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"a run ended with status {done.returncode}:\n{done.stdout}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    print(f"run {turn}: {[name for name, (_, words) in found['ratios'].items() if left(words)]}", file=sys.stderr)
    return found


def left(words: str) -> bool:
    """Does a ratio's row say that it is not in its band?"""
    return ", not " in words


def report(found: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """A line for each ratio, and what was not the same in all runs."""
    seen: dict[str, Seen] = {}
    wrong = []
    for run in found:
        for name, (ratio, words) in run["ratios"].items():
            seen.setdefault(name, Seen(words.rpartition(", not ")[2])).ratios.append(ratio)
            wrong += [f"{name}: {words}"] if left(words) else []
    for cell in found[0]["printed"]:
        if len(texts := {run["printed"][cell] for run in found}) > 1:
            wrong.append("\n".join([f"cell {cell} prints {len(texts)} texts:", *sorted(texts)]))
    lines = [f"{each}  {name}" for name, each in seen.items()]
    seconds = {cell: max(run["seconds"][cell] for run in found) for cell in found[0]["seconds"]}
    total = [sum(run["seconds"].values()) for run in found]
    slow = ", ".join(f"{cell} {longest:.1f}" for cell, longest in seconds.items() if longest > 1)
    lines.append(f"{len(found)} runs of {min(total):.0f} to {max(total):.0f} s; at most, in s: {slow}")
    return "\n".join(lines), wrong


def main(arguments: list[str]) -> int:
    """Run it so often, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks.bands", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("-n", dest="number", type=int, default=30)
    parser.add_argument("--loops", type=int, default=0)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.once:
        print(json.dumps(once(options.file)))
        return 0
    lines, wrong = report(runs(options.file, options.number, options.loops))
    print(lines, *wrong, sep="\n")
    return int(bool(wrong))


def measured() -> list[Path]:
    """The notebooks that have ratios."""
    return [path for path in notebooks() if "kq.bench.ratios(" in path.read_text(encoding="utf-8")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
