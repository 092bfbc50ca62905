"""A soak's figures: what drifts is found, what a fault does for a while is not; millions of items are judged in slices. No broker."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.faults import soak
from tests.faults.flatness import by_window, drifts, judged, picture, section, thirds
from tests.faults.history import Did, judge

CHANCE = random.Random(7)
FLAT: dict[str, list[float]] = {
    "rate": [1000.0 + CHANCE.uniform(-40, 40) for _ in range(240)],
    "p99": [20.0 + CHANCE.uniform(-3, 3) for _ in range(240)],
    "memory": [50.0 + at if at < 9 else 60.0 + CHANCE.uniform(-1, 1) for at in range(240)],  # it warms up
    "threads": [12.0] * 240,
    "files": [30.0 + at % 2 for at in range(240)],
}
DRIFTS = {
    "rate": [1000.0 - 2 * at for at in range(240)],
    "p99": [20.0 + at for at in range(240)],
    "memory": [60.0 + at / 20 for at in range(240)],  # 3 MB in each 10 minutes
    "threads": [12.0 + 5 * (at // 60) for at in range(240)],  # a client in each 10 minutes
    "files": [30.0 + 8 * (at // 60) for at in range(240)],
}


def test_faults_of_some_seconds_are_no_drift() -> None:
    """In each minute ten seconds without an item, or with one that waited for long."""
    shaken = {name: list(values) for name, values in FLAT.items()}
    for at in range(0, 240, 6):
        shaken["rate"][at], shaken["p99"][at] = 0.0, 9_000.0
    assert drifts(FLAT) == drifts(shaken) == {}


def test_one_client_that_is_made_late_is_no_drift() -> None:
    late = {"threads": [12.0] * 150 + [17.0] * 90, "files": [30.0] * 150 + [38.0] * 90}
    assert drifts(FLAT | late) == {}


@pytest.mark.parametrize("name", DRIFTS)
def test_what_drifts_is_found(name: str) -> None:
    assert drifts(FLAT | {name: DRIFTS[name]}).keys() == {name}


def test_a_third_has_its_median() -> None:
    assert thirds([1, 2, 300, 4, 5, 6, 7, 8, 9]) == [2, 5, 8]


HISTORY = [  # numbers of four runs and more, so that they are of different slices
    Did("p", "put", (1000, 2000, 3000, 4000), 100.0, 100.1),
    Did("w", "claim", (1000, 2000, 9000), 101.0, None, (1, 1, 1), ids=("0/0", "0/1", "0/9")),
    Did("w", "ack", (1000, 2000, 9000), 102.0, 109.0, (1, 1, 1), {1: "refused"}, ("0/0", "0/1", "0/9")),
    Did("v", "claim", (2000, 3000), 115.0, None, (2, 1), ids=("0/1", "0/2")),
    Did("v", "ack", (2000, 3000), 116.0, 116.0, (2, 1), ids=("0/1", "0/2")),
    Did("v", "claim", (3000,), 117.0, None, (2,), ids=("0/2",)),
]


def test_rate_and_p99_are_of_ten_seconds_each() -> None:
    """9000 was never put; 2000 counts where it was claimed first, and where it was done."""
    assert by_window(HISTORY, 100.0, 2) == {"rate": [0.2, 0.2], "p99": [1_000.0, 15_000.0]}


@pytest.mark.parametrize("most", [5, 4, 2])  # one slice, two, three
def test_judged_in_slices_a_history_comes_to_the_same(most: int) -> None:
    whole = judge(HISTORY)
    assert whole.wrong == {"lost": 1, "unexpected": 1, "revived": 1}
    assert judged(HISTORY, most) == {"put": 4, "doubled": 2, "dead": 0, **whole.wrong}


def test_the_page_says_what_was_measured_and_what_drifts() -> None:
    found: dict[str, Any] = {
        "faults": ["broker SIGKILL", "worker SIGKILL", "broker SIGKILL"],
        "counts": {"put": 4, "doubled": 2, "lost": 1, "copied": 3},
        "series": FLAT | {"memory": DRIFTS["memory"]},
    }
    found |= {"minutes": 40, "seed": 7, "most": 2000, "asked": 1200, "histories": 9, "day": "2026-11-28"}
    text = section(found | {"drifts": drifts(found["series"])})
    assert (
        "40 minutes at 1,200 items a second" in text
        and "lost 1, unexpected 0, two leases 0, twice 0, copied 3; 2 leases" in text
    )
    assert "Faults, by the minute: broker SIGKILL 1, 3; worker SIGKILL 2." in text
    assert "| threads | 12 | 12 | 12 | flat |" in text and "| memory, MB | 62 | 66 | 70 | 66, then 70" in text
    assert "5 lines, 40 minutes" in picture(found).title
    assert section(None).endswith("Not measured.\n")


def test_a_fault_that_lasts_a_minute_leaves_the_other_lines_to_be_seen() -> None:
    """A p99 of a hundred times its median would press all others to the ground."""
    drawn = picture({"series": FLAT | {"p99": [20.0] * 100 + [2_000.0] * 6 + [20.0] * 134}})
    assert ">300<" in drawn.svg and ">10,000<" not in drawn.svg


def test_what_was_lost_or_drifts_is_wrong_and_what_came_again_after_a_kill_is_not() -> None:
    found = {"counts": {"put": 9, "doubled": 2, "dead": 3, "lost": 1}, "drifts": {"memory": "50, then 90"}}
    assert soak.wrong(found) == {"lost": 1, "memory": "50, then 90"}
