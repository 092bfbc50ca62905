"""Runs the tests but the long ones (`make nightly`): what `make test` and `make check` call.

    python -m tests                 everything that CI runs
    python -m tests check           about a minute: style, types, unit tests
    python -m tests promises spark  these parts

In: the name of a run, or of parts. Out: each part's own output when it has ended, a table of what each took, the ten
slowest tests, and why a test failed. The exit status is 1 if a part failed, left a process behind, or (in CI) skipped a test
that may not be skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import patience
from tests.measured import Measured

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.plugin"]
PLAIN = [*PYTEST, "-p", "no:nbval"]  # importing nbval takes longer than the unit tests of a whole package
# A test that ended its worker ends the part: xdist would try it again and again, or hang.
ONCE = ["--max-worker-restart", "0"]
# A file's clusters belong to one worker; long files come first.
BY_FILE = [*ONCE, "--dist", "loadfile", "--no-loadscope-reorder"]

PARTS = {
    "style": [sys.executable, "-m", "ruff", "check", "."],
    "format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "types": [sys.executable, "-m", "mypy"],
    "size": [sys.executable, "-m", "tests.size"],
    "unit": [*PLAIN, "-n", "2", *ONCE, "--dist", "worksteal", "tests/unit"],
    "promises": [*PLAIN, "-n", "3", *BY_FILE, "tests/promises"],
    "notebooks": [sys.executable, "-m", "tests.notebooks.compare", "-n", "2"],
    "gates": [*PYTEST, "-n", "2", *ONCE, "--dist", "load", "--maxschedchunk", "1", "tests/notebooks"],
    "spark": [*PLAIN, "-n", "1", *ONCE, "tests/spark"],  # one warm session
    "browser": [*PLAIN, "-n", "1", *ONCE, "tests/browser"],
}
QUICK = ["style", "format", "types", "size"]
CHECK = [*QUICK, "unit"]
# The longest first, so that both lanes end together. When the notebooks ask for scores, the promises have computed them.
RUNS = {"test": [*QUICK, "promises", "spark", "notebooks", "browser", "gates", "unit"], "check": CHECK}
WHY = 600  # characters of what a failed test says, in the table
LANES = 2  # parts at once: where one waits for a lease or a session, the other works
# Tests start what they need, and touch nobody's cluster. And some hundred Pythons do not compile kqlib again and again.
NOT_MINE = ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG", "KQ_SPARK_MASTER", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Outcome:
    """One part: what it took, and its tests."""

    part: str
    took: Measured
    tests: list[dict[str, Any]]

    @property
    def passed(self) -> bool:
        """Did its command succeed, and leave nothing behind?"""
        return self.took.code == 0 and not self.took.left

    @property
    def row(self) -> tuple[str, ...]:
        """Its line in the table."""
        counts = Counter(test["outcome"] for test in self.tests)
        skipped = f" ({counts['skipped']} skipped)" if counts["skipped"] else ""
        return (
            self.part,
            f"{len(self.tests) or '–'}{skipped}",
            "passed" if self.passed else "FAILED",
            f"{self.took.wall:.0f} s",
            f"{self.took.cpu:.0f} s",
            str(self.took.clusters or "–"),
            str(self.took.jvms or "–"),
        )


def main(*names: str) -> int:
    """Run parts in two lanes, the later ones also when an earlier one failed; then say what each took."""
    parts = [part for name in names or ("test",) for part in RUNS.get(name, [name])]
    if unknown := [part for part in parts if part not in PARTS]:
        sys.exit(f"There is no part {unknown[0]!r}. Runs: {', '.join(RUNS)}. Parts: {', '.join(PARTS)}.")
    if "browser" in parts and not shutil.which("chromium"):
        print("No Chromium: run .ci/apt.sh. Without it the browser tests are skipped.", flush=True)
    # a shell's background job ignores Ctrl-C, and so would every test in it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    if set(parts) - set(CHECK):
        _fill()
    with tempfile.TemporaryDirectory(prefix="kqlib-tests-") as folder:
        environment = _environment(Path(folder), min(LANES, len(parts)))
        print(f"patience {environment['KQ_PATIENCE']}: the machine's, times the parts that run at once", flush=True)
        with ThreadPoolExecutor(LANES) as lanes:
            outcomes = list(lanes.map(lambda part: _run(part, Path(folder), environment), parts))
    failed = [each.part for each in outcomes if not each.passed]
    verdict = f"failed: {', '.join(failed)}" if failed else "green"
    print(*_table(outcomes), f"{time.monotonic() - start:.0f} s in all, {verdict}", sep="\n")
    return int(bool(failed))


def _fill() -> None:
    """Fetch what the cache has lost since the set-up: a cell that fetched it would say so, and its outputs would differ."""
    for module in ("kqlib.workshop.cluster", "kqlib.workshop.spark_classes"):
        subprocess.run([sys.executable, "-m", module], cwd=ROOT, check=True)


def _environment(folder: Path, lanes: int) -> dict[str, str]:
    """What every part runs in. Each lane is a load of its own for the tests of the other one."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_MINE}
    mine = {
        "KQ_STATE": str(folder / "state"),
        "KQ_VERDICTS": str(folder / "verdicts"),  # a score is computed once a run
        "KQ_HASHES": str(folder),  # jars are read once a run
        "KQ_PATIENCE": os.environ.get("KQ_PATIENCE") or f"{lanes * patience.measure():g}",
        "IPYTHONDIR": str(ROOT / ".ipython"),
    }
    return kept | mine


def _run(part: str, folder: Path, environment: dict[str, str]) -> Outcome:
    """One part, measured; its output is printed when it is over, so that two lanes do not mix."""
    times, took = folder / f"{part}.times", folder / f"{part}.took"
    command = [sys.executable, "-m", "tests.measured", str(took), *PARTS[part]]
    with (folder / f"{part}.out").open("w+", encoding="utf-8", errors="replace") as out:
        mine = {**environment, "KQ_TIMES": str(times)}
        subprocess.run(command, cwd=ROOT, env=mine, stdout=out, stderr=subprocess.STDOUT, check=False)
        out.seek(0)
        print(f"--- {part}", out.read().rstrip(), sep="\n", flush=True)
    tests = [json.loads(line) for line in times.read_text(encoding="utf-8").splitlines()] if times.exists() else []
    found = Measured(**json.loads(took.read_text(encoding="utf-8"))) if took.exists() else Measured(1, 0, 0)
    for one in found.left:
        print(f"left behind by {part}: {one}", flush=True)
    return Outcome(part, found, tests)


def _table(outcomes: list[Outcome]) -> list[str]:
    """A row for each part, their sum, and the ten slowest tests."""
    head = ("part", "tests", "result", "wall", "CPU", "clusters", "JVMs")
    rows = [head, *(each.row for each in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    tests = [test for each in outcomes for test in each.tests]
    slowest = sorted(tests, key=lambda test: -test["seconds"])[:10]
    counts = Counter(test["outcome"] for test in tests)
    failed = [f"{test['test']}\n{textwrap.indent(test['why'][:WHY], '    ')}" for test in tests if "why" in test]
    return [
        "---",
        *lines,
        "",
        "the ten slowest:",
        *(f"  {test['seconds']:6.1f} s  {test['test']}" for test in slowest),
        "",
        *(["what failed:", *failed, ""] if failed else []),
        f"{sum(each.took.cpu for each in outcomes):.0f} s of CPU",
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped",
    ]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
