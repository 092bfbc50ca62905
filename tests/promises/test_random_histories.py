"""Histories of all verbs, by seed, each on a queue of its own beside a reference. A history that fails is shrunk."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kqlib.kafka import Kafka
from kqlib.workshop.promises.steps import AT_ONCE, shrunk
from tests.faults.world import ROOT
from tests.promises.histories import Depth, fails, steps_of, topics

BY_DAY, BY_NIGHT = range(20), range(20, 2_020)  # one costs 0.6 s of CPU


@pytest.fixture
def elsewhere(kq_cluster: Kafka) -> Iterator[Depth]:
    """Another process that says how deep a queue is."""
    command = [sys.executable, "-m", "tests.promises.depths", kq_cluster.bootstrap]
    one = threading.Lock()
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout

        def depth(name: str) -> int:
            with one:
                print(name, file=process.stdin, flush=True)
                return int(process.stdout.readline())

        yield depth
        process.stdin.close()


def all_of(cluster: Kafka, elsewhere: Depth, seeds: range) -> None:
    """Run the histories of these seeds; those that fail are shrunk."""
    names = dict(zip(seeds, topics(cluster, len(seeds)), strict=True))

    def run(seed: int) -> str:
        return fails(cluster, *steps_of(seed), elsewhere, names[seed])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = {seed: why for seed, why in zip(seeds, pool.map(run, seeds), strict=True) if why}
        if failed:
            seed, why = min(failed.items(), key=lambda each: len(steps_of(each[0])[1]))
            terms, steps = steps_of(seed)
            steps, why = shrunk(
                steps, why, lambda several: list(pool.map(lambda each: fails(cluster, terms, each, elsewhere), several))
            )
            raise AssertionError(f"{len(failed)} of {len(seeds)} fail. Seed {seed}, {terms}: {why}\n{steps}")


def test_a_queue_is_what_a_list_says_whatever_is_done_with_it(kq_cluster: Kafka, elsewhere: Depth) -> None:
    all_of(kq_cluster, elsewhere, BY_DAY)


@pytest.mark.nightly
@pytest.mark.limit(3_500)
def test_a_queue_is_what_a_list_says_in_two_thousand_histories(kq_cluster: Kafka, elsewhere: Depth) -> None:
    for begin in range(BY_NIGHT.start, BY_NIGHT.stop, 50):
        all_of(kq_cluster, elsewhere, range(begin, begin + 50))
