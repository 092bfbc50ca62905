"""Runs the tests: what `make test`, `make check` and `make faults` call.

    python -m tests            everything that CI runs
    python -m tests check      about a minute: style, types, unit tests
    python -m tests faults     the long runs

In: the name of a run. Out: every stage's own output, a line for each with what it took, and a status that is not 0 if one failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
PLAIN = [*PYTEST, "-p", "no:nbval"]  # importing it takes longer than all unit tests of a room
TWO = ["-n", "2", "--dist", "worksteal"]
SIX = ["-n", "6"]  # where tests mostly wait for leases, sessions and elections; more than two cores are not needed
BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]  # a file's clusters are one worker's; the long files first
BY_TEST = ["--dist", "load", "--maxschedchunk", "1"]  # the long tests first

STAGES = {
    "style": [[sys.executable, "-m", "ruff", "check", "."], [sys.executable, "-m", "ruff", "format", "--check", "."]],
    "types": [[sys.executable, "-m", "mypy"]],
    "unit": [[*PLAIN, *TWO, "tests/unit"]],
    "promises": [[*PLAIN, *SIX, *BY_FILE, "tests/promises"]],
    "spark": [[*PLAIN, *TWO[:2], "--dist", "loadfile", "tests/spark"]],
    "gates": [[*PYTEST, "-n", "3", *BY_TEST, "tests/notebooks"]],
    "browser": [[*PLAIN, "tests/browser"]],
    "notebooks": [[sys.executable, "-m", "tests.notebooks.compare", "-n", "3"]],
    "faults": [[*PLAIN, *TWO[:2], *BY_TEST, "tests/faults"]],
}
RUNS = {
    "test": ["style", "types", "unit", "promises", "spark", "gates", "browser", "notebooks"],
    "check": ["style", "types", "unit"],
    "faults": ["faults"],
}


def main(run: str = "test") -> int:
    """Run the stages one after the other, the later ones also when an earlier one failed; say what each took."""
    if run not in RUNS:
        sys.exit(f"there is no run {run!r}; there are {', '.join(RUNS)}")
    lines, failed = [], False
    with tempfile.TemporaryDirectory(prefix="kqlib-tests-") as state:
        mine = {"KQ_STATE": state, "IPYTHONDIR": str(ROOT / ".ipython"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment = {**os.environ, **mine}
        for own in ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG", "KQ_SPARK_MASTER"):
            environment.pop(own, None)  # the tests start what they need, and touch nobody's cluster
        for stage in RUNS[run]:
            print(f"--- {stage}", flush=True)
            start = time.monotonic()
            codes = [
                subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode for command in STAGES[stage]
            ]
            failed |= any(codes)
            lines.append(f"  {stage:<10} {'failed' if any(codes) else 'passed':<7} {time.monotonic() - start:6.1f} s")
    print("---", *lines, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
