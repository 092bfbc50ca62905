"""What a night consists of, a function a part: its units, each a command."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from dataclasses import replace

from tests.__main__ import PLAIN, PYTEST
from tests.nightly import mutants, pythons
from tests.nightly.run import ROOT, Done, Night, Part, Unit, passed
from tests.notebooks import gate

SOAK = 35  # minutes of load: with what is before and after it a call of 40 is full
STORMS, DRIVERS = "tests/faults/test_storms.py", "tests/faults/test_pipeline.py"
RESTART = "tests/promises/test_virtual_restart.py"  # its figure is a promise: no pause above 2 s
SITE, TWICE = "tests/browser/test_site.py", "tests/notebooks/test_run_twice.py"
MARKED = (
    *("tests/unit", "tests/promises", "tests/spark", "tests/browser"),
    *(f"tests/notebooks/test_{name}.py" for name in ("solutions", "bands", "elsewhere")),
    f"{TWICE}::test_no_process_and_no_directory_is_left_when_a_kernel_is_killed_in_the_middle",
)
NIGHTS = 7  # all points of the drivers are taken in a week
LONG = {"KQ_NIGHTLY": "1"}  # tests that are marked nightly run too


def collected(*what: str) -> list[str]:
    """The names of the tests in these files."""
    command = [*PLAIN, "--collect-only", *what]
    found = subprocess.run(command, cwd=ROOT, env=os.environ | LONG, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"pytest cannot collect {' '.join(what)}:\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
    return [line for line in found.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def tests(night: Night, names: list[str], **env: str) -> list[Unit]:
    """A unit for each of these tests or files."""
    return [Unit(name, lambda name=name: test(night, name, **env)) for name in names]


def test(night: Night, name: str, **env: str) -> Done:
    """Run a test or a file. If all of it was skipped, it was not run."""
    done = night.call(name, [*PLAIN, "-rs", name], **env)
    log = night.log(name).read_text("utf-8")
    skipped = re.search(r"^SKIPPED .*?: (.*)$", log, re.MULTILINE)
    whole = done.verdict == "passed" and not re.search(r"^\d+ passed", log, re.MULTILINE)
    return replace(done, verdict="not run", words=skipped[1]) if skipped and whole else done


def faults(night: Night) -> list[Unit]:
    """Brokers, nodes and workers are killed and stopped, for minutes; the long form."""
    return tests(night, collected("tests/faults", f"--ignore={STORMS}", f"--ignore={DRIVERS}"))


def storms(night: Night) -> list[Unit]:
    """Groups whose members join, stop, die and lose their brokers, 200 times."""
    return tests(night, collected(STORMS))


def soak(night: Night) -> list[Unit]:
    """Load for 35 minutes and a fault in each; the long form is `python -m tests.faults.soak`."""
    command = [
        sys.executable,
        "-m",
        "tests.faults.soak",
        "--minutes",
        str(SOAK),
        "--seed",
        str(night.seed),
        "--no-page",
    ]
    return [Unit("soak", lambda: night.call("soak", command))]


def drivers(night: Night) -> list[Unit]:
    """A Spark driver is killed at a seventh of all changes, requests and files of its checkpoint; Kafka is lost, and workers die."""

    def unit(test: str, share: str) -> Unit:
        name = f"{test} {share}"

        def run() -> Done:
            done = night.call(name, [*PLAIN, test], KQ_FAULT_SHARE=share, KQ_FAULT_SEED=str(night.seed))
            points = sum(map(int, re.findall(r"^(?:workers )?killed .*?(\d+) of", night.log(name).read_text(), re.M)))
            return replace(done, words="; ".join(filter(None, (f"{points} points", done.words))))

        return Unit(name, run)

    return [unit(test, f"{at}/{NIGHTS}") for test in collected(DRIVERS) for at in range(1, NIGHTS + 1)]


def points(done: dict[str, Done]) -> tuple[bool, str]:
    """Every unit has passed; at how many points something was killed."""
    good, words = passed(done)
    return good, "; ".join(filter(None, (f"{sum(int(each.words.split()[0]) for each in done.values())} points", words)))


def proofs(night: Night) -> list[Unit]:
    """The tests that are marked nightly: of each a short form is in every run. Those of the site share one build of it."""
    return tests(night, [*collected("-m", "nightly", f"--ignore={SITE}", f"--ignore={RESTART}", *MARKED), SITE], **LONG)


def notebooks(night: Night) -> list[Unit]:
    """Each notebook is compared twice, in an order that is drawn, and each is run with every cell doubled."""
    draw: random.Random = random.Random(night.seed)
    units: list[Unit] = []
    doubled = f"{TWICE}::test_every_cell_of_a_notebook_runs_twice_in_place"
    for turn in ("first", "second", "doubled"):
        for path in draw.sample(gate.notebooks(), len(gate.notebooks())):
            compare = [sys.executable, "-m", "tests.notebooks.compare", "-n", "1", str(path)]
            command = [*PYTEST, f"{doubled}[{path.name}]"] if turn == "doubled" else compare
            name = f"{path.stem} {turn}"
            units.append(Unit(name, lambda name=name, command=command: night.call(name, command, **LONG)))
    return units


def figures(night: Night) -> list[Unit]:
    """The promises in seconds hold at their bare figures; one file at a time, for the machine has to be quiet."""
    names = collected("-m", "not nightly", "tests/promises")
    files = sorted({name.partition("::")[0] for name in names})
    return tests(night, files, KQ_PATIENCE="1") + tests(night, [RESTART], KQ_PATIENCE="1", **LONG)


PARTS = {
    "faults": Part(faults, at_once=2),
    "storms": Part(storms),
    "soak": Part(soak),
    "drivers": Part(drivers, judge=points, nights=NIGHTS),
    "proofs": Part(proofs),
    "notebooks": Part(notebooks, at_once=2),
    "figures": Part(figures),
    "mutants": Part(mutants.units, at_once=mutants.AT_ONCE, judge=mutants.judge),
    "pythons": Part(pythons.units),
}
