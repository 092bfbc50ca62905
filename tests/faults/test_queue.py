"""The queue under faults, 100,000 items each: real processes and brokers, their histories judged. `make nightly PART=faults`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from tests.faults.accidents import together
from tests.faults.cases import BROKEN, CASES, KNOWN, PLANTED, Case, run
from tests.faults.page import PLANT, key_of
from tests.faults.world import ROOT
from tests.patience import WAIT

ITEMS = int(os.environ.get("KQ_FAULT_ITEMS", "100000"))
MILLION = 10 * ITEMS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_lost_nothing_is_done_twice(case: Case, tmp_path: Path, figures: list[str]) -> None:
    seed = random.randrange(1000)
    outcome = run(case, ITEMS, tmp_path, seed)
    figures.append(f"{outcome}  seed {seed}")
    assert outcome.verdict.put >= ITEMS * 0.9, outcome
    if outcome.wrong and outcome.wrong.keys() <= set(case.known):
        pytest.xfail(f"{outcome.wrong}: {'; '.join(KNOWN[name] for name in outcome.wrong)}")
    assert outcome.wrong == {}, outcome
    drawn = isinstance(case.fault, partial) and case.fault.func is together  # perhaps no worker was gone
    assert not case.takeover or drawn or outcome.verdict.doubled, outcome  # else nobody took anything over


def test_a_queue_that_loses_items_is_found_out(tmp_path: Path, figures: list[str]) -> None:
    seed = random.randrange(1000)
    outcome = run(BROKEN, ITEMS // 20, tmp_path, seed)
    figures.append(f"{outcome}  seed {seed}")
    assert outcome.verdict.lost > 0, outcome


@pytest.mark.parametrize("case", PLANTED, ids=key_of)
def test_a_queue_with_a_mistake_is_found_out(case: Case, tmp_path: Path, figures: list[str]) -> None:
    seed = random.randrange(1000)
    outcome = run(case, PLANT, tmp_path, seed)
    figures.append(f"{outcome}  seed {seed}")
    assert case.caught in outcome.wrong, outcome


def test_a_million_items_leave_no_memory_no_thread_and_no_file_behind(figures: list[str]) -> None:
    with Cluster() as cluster:
        Plan({"flat": QueueTopic(partitions=2)}).apply(cluster, quiet=True)
        command = [sys.executable, "-m", "tests.faults.flat", cluster.bootstrap, "flat", str(MILLION)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * WAIT, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    rate, left = MILLION / found["seconds"], f"{found['threads']} threads and {found['files']} files left"
    figures.append(
        f"{'memory':<44} {MILLION:>8,} items  grown by {found['grown']:.0f} MB, {left}, {rate:,.0f} items a second"
    )
    assert (found["depth"], found["threads"], found["files"]) == (0, 0, 0), found
    assert found["grown"] <= 50, found
