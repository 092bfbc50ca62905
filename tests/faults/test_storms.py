"""200 storms of each kind: every live member owns its share within its session + 5 s. `make nightly PART=storms` runs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqlib.workshop.cluster import Cluster
from tests.faults.storm import PROMISED, SESSION, storms

SEEDS = range(200)
AT_ONCE = 5  # more of them starve two cores, and starvation is not what is tried here


@pytest.mark.parametrize("kind", ["node", "site"])
def test_after_each_of_two_hundred_storms_every_live_member_owns_its_share(
    kind: str, within: Callable[..., float], figures: list[str]
) -> None:
    """The broker forgets an empty group at once, not after ten minutes: a lone member that was stopped finds its group gone."""
    with Cluster(1, config={"offsets.retention.check.interval.ms": "300"}) as cluster:
        storms(cluster, kind, [-1], within, at_once=1, blows=1)  # the broker's own topics are made
        took = sorted(storms(cluster, kind, SEEDS, within, at_once=AT_ONCE))
    figures.append(
        f"{len(took)} storms, {kind}s: all shares owned after {took[len(took) // 2]:.1f} s (median), "
        f"{took[-1]:.1f} s (most); promised {SESSION + PROMISED:g} s"
    )
    assert len(took) == len(SEEDS)
