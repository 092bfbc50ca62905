"""Random histories on queues in memory: a sound one is never blamed, and of a broken one no step can be left out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.workshop.promises.explore import Broke, Explored, explore, played, search, steps_of
from kqlib.workshop.promises.steps import RandomStep, random_steps, shrunk
from kqlib.workshop.promises.values import Broken
from tests.unit.promise_queues import Near, Queue, World

RESTART = "Restart: the worker closes its queue and ends, and another one starts."


def explored(kind: Any, histories: int = 20, steps: int = 20, seed: int = 7) -> Explored:
    def tried(several: Any) -> list[Broke | None]:
        found = []
        for each in several:
            world = World()
            found.append(played(lambda world=world: Near(kind(world)), each))
        return found

    return search(tried, histories, steps, seed)


class LastFirst(Queue):
    def choose(self, found: Any) -> Any:
        return found[-1]


class LosesWhatIsOut(Queue):
    """What was out when the worker left is gone."""

    def close(self) -> None:
        for each in self.world.items:
            each.state = "done" if each.state == "claimed" else each.state
        super().close()


class GivesTwice(Queue):
    def give(self, record: Any, lease: float) -> Any:
        item = super().give(record, lease)
        record.until = self.world.now
        return item

    def counts(self, item: Any) -> bool:
        return True


class OneFloor(Queue):
    """A restart knows one offset: what was acked above an item that is not done comes again."""

    def close(self) -> None:
        floor = next((n for n, each in enumerate(self.world.items) if each.state != "done"), len(self.world.items))
        super().close()
        for each in self.world.items[floor:]:
            each.state, each.until = "waiting", 0.0


class ReleaseLoses(Queue):
    def release(self, item: Any, delay: float = 0) -> None:
        self.ack(item)


class ReleasedGoesLast(Queue):
    def release(self, item: Any, delay: float = 0) -> None:
        record = self.held(item)
        super().release(item, delay)
        self.world.items.remove(record)
        self.world.items.append(record)


class GivesNothing(Queue):
    def claim(self, lease: float = 30, wait: float = 0) -> Any:
        return None


class NoAck(Queue):
    def ack(self, item: Any) -> None:
        raise ValueError("not yet. This is left out")


class NoStart(Queue):
    def __init__(self, world: Any) -> None:
        raise Broken("the worker's process ended in the factory", answered=False)


@pytest.mark.parametrize("seed", range(2))
def test_a_sound_queue_is_not_blamed(seed: int) -> None:
    found = explored(Queue, histories=100, steps=30, seed=seed)
    assert found.kept
    assert repr(found) == (
        f"100 histories of put, claim, ack, release and restart (seed {seed}): none broke the queue."
    )
    assert (found.story, found.expected, found.picture) == ((), "", None)
    assert "<p>100 histories" in found._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("kind", "story", "expected"),
    [
        (LastFirst, ["Put 1.", "Put 2.", "Claim: it gives 2."], "1. 2 was put after 1"),
        (
            LosesWhatIsOut,
            ["Put 1.", "Claim: it gives 1.", RESTART, "Claim: it gives nothing."],
            "1, which waits",
        ),
        (GivesTwice, ["Put 1.", "Claim: it gives 1.", "Claim: it gives 1."], "nothing. 1 is still out"),
        (
            OneFloor,
            [
                *("Put 1.", "Put 2.", "Claim: it gives 1.", "Claim: it gives 2.", "Ack 2.", RESTART),
                *("Claim: it gives 1.", "Claim: it gives 2."),
            ],
            "nothing. 2 is done",
        ),
        (
            ReleaseLoses,
            ["Put 1.", "Claim: it gives 1.", "Release 1.", "Claim: it gives nothing."],
            "1, which waits",
        ),
        (
            ReleasedGoesLast,
            ["Put 1.", "Put 2.", "Claim: it gives 1.", "Release 1.", "Claim: it gives 2."],
            "1. 2 was put after 1",
        ),
        (GivesNothing, ["Put 1.", "Claim: it gives nothing."], "1, which waits"),
        (NoAck, ["Put 1.", "Claim: it gives 1.", "Ack 1. It raised ValueError: not yet."], "no error"),
        (NoStart, ["A worker starts. The worker's process ended in the factory."], "no error"),
    ],
)
@pytest.mark.parametrize("seed", [7, 8])
def test_a_broken_queue_is_found_with_its_shortest_history(
    kind: Any, story: list[str], expected: str, seed: int
) -> None:
    found = explored(kind, seed=seed)
    assert (list(found.story), found.expected) == (story, expected)


def test_what_was_found_is_shown_in_sentences_and_drawn_a_row_an_item() -> None:
    found = explored(OneFloor)
    assert repr(found).splitlines() == [
        "This history breaks the queue, in 8 steps:",
        "  1. Put 1.",
        "  2. Put 2.",
        "  3. Claim: it gives 1.",
        "  4. Claim: it gives 2.",
        "  5. Ack 2.",
        f"  6. {RESTART}",
        "  7. Claim: it gives 1.",
        "  8. Claim: it gives 2.",
        "Expected: nothing. 2 is done.",
        "",
        "the shortest history that was found · 4 deliveries, 2 items",
        "item 1  ¹worker 1 ↻ restart · ²worker 2 … open",
        "item 2  ¹worker 1 ✓ ack · ²worker 2 ✗ wrong",
    ]
    page = found._repr_mimebundle_()["text/html"]
    assert "<li>Ack 2.</li>" in page
    assert "Expected: nothing. 2 is done." in page
    assert 'alt="the shortest history that was found' in page
    missing = explored(GivesNothing).picture
    assert missing
    assert missing.text.endswith("item 1  ¹worker 1 ? missing")


def test_the_same_seed_finds_the_same_and_another_seed_tries_others() -> None:
    assert explored(LastFirst) == explored(LastFirst)
    assert steps_of("7 0", 12) == steps_of("7 0", 12) != steps_of("8 0", 12)


def test_a_queue_without_a_release_and_with_leases_of_one_length_is_explored_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Few:
        def __init__(self, world: World) -> None:
            self.queue = Queue(world)
            self.put, self.ack, self.close = self.queue.put, self.queue.ack, self.queue.close
            self.closed = True  # and `Near` asks no more of it

        def claim(self) -> Any:
            return self.queue.claim()

    monkeypatch.setattr("kqlib.workshop.promises.explore.FIRST", 0.0)  # it cannot wait, so it is asked again and again
    monkeypatch.setattr("kqlib.workshop.promises.explore.SOON", 0.0)
    assert explored(Few).kept


def test_a_queue_that_allows_no_long_lease_is_claimed_from_without_one() -> None:
    class Short(Queue):
        def claim(self, lease: float = 30, wait: float = 0) -> Any:
            if lease > 30:
                raise NotAllowed("a lease of 30 seconds at most")
            return super().claim(lease, wait)

    assert explored(Short).kept


@pytest.mark.parametrize("verb", ["put", "claim", "ack"])
def test_a_queue_that_cannot_be_explored_is_refused_with_the_verb_that_it_lacks(verb: str) -> None:
    kind = type("Lacks", (Queue,), {verb: None})
    with pytest.raises(NotAllowed, match=f"needs put, claim and ack, and this queue has no {verb}"):
        explored(kind)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"histories": 0}, "histories is a whole number from 1 to 10,000, not 0"),
        ({"steps": 101}, "steps is a whole number from 1 to 100, not 101"),
        ({"steps": 1.5}, "steps is a whole number"),
    ],
)
def test_what_cannot_be_explored_is_refused_before_a_cluster_starts(wrong: Any, says: str) -> None:
    with pytest.raises(NotAllowed, match=says):
        explore(lambda cluster, name: None, **wrong)
    with pytest.raises(NotAllowed, match="takes a cluster and a topic's name"):
        explore(lambda: None)


def test_a_shrunk_history_needs_each_of_its_steps_and_is_the_first_of_several() -> None:
    steps = random_steps(random.Random(1), {"a": 1, "b": 1}, 40)
    asked = []

    def tried(several: Any) -> list[str]:
        asked.append(len(several))
        return ["two b" if [step.verb for step in each].count("b") >= 2 else "" for each in several]

    fewer, why = shrunk(steps, "", tried)
    assert ([step.verb for step in fewer], why) == (["b", "b"], "two b")
    assert max(asked) <= 8
    assert shrunk([], "why", tried) == ([], "why")
    assert len(shrunk(steps, "", tried, tries=3)[0]) > 2
    assert shrunk([RandomStep("a"), RandomStep("b"), RandomStep("b")], "", tried)[0] == [RandomStep("b")] * 2


@pytest.mark.parametrize("verb", ["release", "restart"])
def test_an_item_does_not_come_so_often_that_a_queue_may_bury_it(verb: str) -> None:
    world = World()
    steps = [RandomStep("put"), *[RandomStep("claim"), RandomStep(verb)] * 9, RandomStep("claim")]
    assert played(lambda: Near(Queue(world)), steps) is None
    assert (world.items[0].attempts, world.dead) == (5, [])


def test_a_history_that_does_not_break_the_queue_again_is_not_reported() -> None:
    blamed = Broke(1, ("Put 1.",), "no error", ())
    answers = [blamed]

    def tried(several: Any) -> list[Broke | None]:
        return [answers.pop() if answers else None for _ in several]

    assert search(tried, 20, 20, 7).kept
    assert not answers
