"""Runs the tests: what `make test`, `make check` and `make faults` call.

    python -m tests            everything that CI runs
    python -m tests check      about a minute: style, types, unit tests
    python -m tests faults     the long runs

In: the name of a run. Out: every stage's own output, a line for each with what it took, and a status that is not 0 if one failed.

Where brokers, sessions and browsers keep real time, a machine that stands still for a moment can fail a test that is right. There
a few failures are tried once more, alone: if they pass, the stage is `unsteady`, and its line names them, to be looked into.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = "cache_dir=of the stage"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-o", CACHE]
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


REAL = {"promises", "spark", "gates", "browser"}  # in real time
FEW = 3  # more than these did not fail by chance


def main(run: str = "test") -> int:
    """Run the stages one after the other, the later ones also when an earlier one failed; say what each took."""
    if run not in RUNS:
        sys.exit(f"there is no run {run!r}; there are {', '.join(RUNS)}")
    lines, results = [], []
    with tempfile.TemporaryDirectory(prefix="kqlib-tests-") as state:
        mine = {"KQ_STATE": state, "IPYTHONDIR": str(ROOT / ".ipython"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment = {**os.environ, **mine}
        for own in ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG", "KQ_SPARK_MASTER"):
            environment.pop(own, None)  # the tests start what they need, and touch nobody's cluster
        for stage in RUNS[run]:
            print(f"--- {stage}", flush=True)
            start, cache = time.monotonic(), Path(state, f"pytest-{stage}")
            found = [passed(command, stage in REAL, cache, environment) for command in STAGES[stage]]
            results.append("failed" if None in found else "unsteady" if any(found) else "passed")
            seconds = time.monotonic() - start
            lines.append(f"  {stage:<10} {results[-1]:<8} {seconds:6.1f} s")
            lines += [f"    only when it was tried once more: {name}" for names in found for name in names or ()]
    print("---", *lines, sep="\n")
    return int("failed" in results)


def passed(command: list[str], real: bool, cache: Path, environment: dict[str, str]) -> list[str] | None:
    """Did it? The tests that did so only when they were tried once more; None: it failed."""
    command = [f"cache_dir={cache}" if part == CACHE else part for part in command]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code == 0:
        return []
    told = cache / "v" / "cache" / "lastfailed"
    failed = list(json.loads(told.read_text(encoding="utf-8"))) if code == 1 and real and told.exists() else []
    if not 0 < len(failed) <= FEW:
        return None
    print(f"--- once more, alone: {', '.join(failed)}", flush=True)
    again = subprocess.run([*command, "-n", "0", "--last-failed"], cwd=ROOT, env=environment, check=False)
    return failed if again.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
