"""The queue's own code in small worlds, in every order of steps. Five planted bugs are found, each with a shortest story."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kqlib.queue.assigned import Assigned
from kqlib.queue.commits import Commits
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import Partition
from tests.unit.explore import Explored, explore
from tests.unit.small_process import KEYED, NOT_KEYED, no_time
from tests.unit.small_world import ACCIDENTS, World

SMALL: dict[str, dict[str, Any]] = {  # by day
    "a member is put out": {"names": "A", "items": 1, "expire": 1},
    "leases end": {"names": "A", "items": 1, "leases_end": 1},
    "a transaction": {"names": "A", "items": 2, "step": 1},
    "a transaction, an answer is lost": {"names": "A", "items": 2, "step": 1, "unanswered": 1},
    "the partition moves": {"names": "AB", "items": 1, "move": 1},
    "a process is killed, an answer is lost": {"names": "AB", "items": 1, "crash": 1, "unanswered": 1},
}
LARGER: dict[str, dict[str, Any]] = {
    "a member is put out": {"names": "AB", "items": 2, "expire": 1},
    "the partition moves, an answer is lost": {"names": "AB", "items": 2, "move": 1, "unanswered": 1},
    "a transaction, its owner is put out or killed": {
        "names": "AB",
        "items": 1,
        "step": 1,
        "expire": 1,
        "abort": 1,
        "crash": 1,
    },
    "a transaction moves": {"names": "AB", "items": 1, "step": 1, "move": 1, "unanswered": 1, "abort": 1},
    "one process": {"names": "A", "items": 2, "step": 1, "expire": 1, "unanswered": 1},
    "one process, leases end": {"names": "A", "items": 2, "expire": 1, "unanswered": 1, "leases_end": 1},
}
DEEP: dict[str, Any] = dict.fromkeys(ACCIDENTS, 1) | {"items": 3}
DEEP_STEPS = 17


class Bug(NamedTuple):
    """A line of the queue, wrong."""

    of: type
    method: str
    right: str
    wrong: str
    world: str
    found: str  # the last sentence of the story


BUGS = {
    "an epoch that is not raised": Bug(
        Assigned,
        "take_over",
        "ledger.epoch += 1",
        "pass",
        "a member is put out",
        "Item 0 is held by two workers, and the acks of both would be stored.",
    ),
    "a receipt that is not checked": Bug(
        Partition,
        "why_not",
        "lease is None or lease.number != number",
        "lease is None",
        "leases end",
        "Item 0 is held by two workers, and the acks of both would be stored.",
    ),
    "a floor that moves past an open item": Bug(
        Ledger,
        "ack",
        "done, start, end = 0, 0, 0",
        "done, start, end = 0, 0, max(offsets)",
        "a transaction",
        "In the stored state item 0 is done, and no worker has ended it.",
    ),
    "an ack after the revoke": Bug(
        Assigned,
        "drop",
        "self.partitions.pop(at, None)",
        "None",
        "the partition moves",
        "The ack of item 0 was confirmed, and in the stored state it is open.",
    ),
    "a frozen partition that commits": Bug(
        Commits,
        "due",
        "and not p.frozen ",
        "",
        "a transaction",
        "The outputs of item 0 are written, and in the stored state it is open.",
    ),
}


def search(steps: int = 1_000, **world: Any) -> Explored:
    with no_time():
        return explore(World(**world), steps)


def planted(bug: Bug) -> Callable[..., Any]:
    """The method with the bug in it."""
    right = inspect.unwrap(getattr(bug.of, bug.method))
    source = textwrap.dedent(inspect.getsource(right))
    assert source.count(bug.right) == 1, f"{bug.method} has changed: plant this bug elsewhere"
    made: dict[str, Any] = {}
    exec(source.replace(bug.right, bug.wrong), right.__globals__, made)
    return made[bug.method]


@pytest.mark.parametrize("world", SMALL.values(), ids=SMALL)
def test_no_order_of_steps_in_a_small_world_breaks_a_promise(world: dict[str, Any]) -> None:
    found = search(**world)
    assert found.whole and not found.story, f"\n{found}"


@pytest.mark.nightly
@pytest.mark.limit(1_800)
@pytest.mark.parametrize("world", LARGER.values(), ids=LARGER)
def test_no_order_of_steps_in_a_larger_world_breaks_a_promise(world: dict[str, Any]) -> None:
    found = search(**world)
    assert found.whole and not found.story, f"\n{found}"


@pytest.mark.nightly
@pytest.mark.limit(3_500)
def test_no_order_of_steps_breaks_a_promise_with_three_items_and_every_accident() -> None:
    found = search(DEEP_STEPS, **DEEP)
    assert found.steps == DEEP_STEPS and not found.story, f"\n{found}"


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_found_and_its_shortest_story_is_printed(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug.of, bug.method, planted(bug))
    found = search(**SMALL[bug.world])
    assert found.story[-1:] == (bug.found,), f"\n{found}"
    assert all(sentence.endswith(".") for sentence in found.story)


def test_equal_worlds_are_recognised_by_all_that_a_partition_has() -> None:
    with no_time():
        own = World("A").processes["A"].partition
    assert vars(own).keys() == KEYED | NOT_KEYED, (
        "a new attribute of Partition: does a world with another value go on alike?"
    )
