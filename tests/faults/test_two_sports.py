"""Twenty nights of accidents for the solution of notebook 15: three brokers behind the wire, and standings that equal the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kqlib.workshop import checks
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.night import Night, Steps, night

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # py4j leaves them to the collector


def solved() -> Steps:
    """The functions as notebooks/solutions has them."""
    return Steps(*(checks.find(f"15.{number}").solution for number in range(1, 7)))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for all nights."""
    from kqlib.spark import close, session

    few = {"spark.sql.codegen.wholeStage": False, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    yield session(config={"spark.sql.shuffle.partitions": 1, **few})
    close()


@pytest.mark.parametrize("seed", range(20))
def test_a_night_of_accidents_loses_and_doubles_nothing_and_its_standings_equal_the_truth(
    seed: int, spark: Any, figures: list[str]
) -> None:
    with Cluster(3, wire=True) as cluster:
        report = night(cluster, solved(), seed, spark)
    figures.append(f"night {seed}: {report}")
    assert len(report.accidents) == len(Night.ACCIDENTS)
    assert (report.lost, report.doubled, report.dead, report.differ) == (0, 0, 2, [])


@pytest.mark.parametrize(("step", "number", "wrong"), [("store", 3, "rows_first"), ("small_games", 5, "ack_first")])
def test_a_night_finds_a_system_that_stores_rows_before_their_jobs_or_acks_before_the_work(
    step: str, number: int, wrong: str, figures: list[str]
) -> None:
    [broken] = (answer for answer in checks.find(f"15.{number}").wrong if answer.__name__ == wrong)
    with Cluster(1, wire=True) as cluster:
        report = night(cluster, replace(solved(), **{step: broken}), 7)
    figures.append(f"{wrong}: {report}")
    assert report.lost > 0
