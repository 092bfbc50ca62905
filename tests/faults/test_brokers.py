"""A long run of brokers: one is drained and replaced for good. `make nightly PART=faults`; minutes, not seconds."""

from __future__ import annotations

import random
from pathlib import Path

from tests.faults.broker_accidents import replaced
from tests.faults.cases import THREE, Case, run


def test_a_broker_is_drained_and_replaced_while_a_queue_works(tmp_path: Path, figures: list[str]) -> None:
    seed = random.randrange(1000)
    outcome = run(Case("broker replaced", replaced, seconds=40, **THREE), 10_000, tmp_path, seed)
    figures.append(f"{outcome}  seed {seed}")
    assert outcome.wrong == {}, outcome
