"""Each promise is kept by a plain queue in memory, and broken by that queue with one thing wrong: every check can fail."""

from __future__ import annotations

import re
import threading
from types import SimpleNamespace

import pytest

from kqlib.errors import LeaseLost, NotAllowed, Unreachable
from kqlib.workshop.ladder import LADDER
from kqlib.workshop.promises import PROMISES, Scores, Verdict, counted, promises
from kqlib.workshop.promises.adapter import Claim, QueueAdapter
from kqlib.workshop.promises.owners import LATE_ACK, LATE_COMMIT
from kqlib.workshop.promises.run import homes, judge
from kqlib.workshop.promises.scenario import LATE, Scenario
from kqlib.workshop.promises.values import Broken, NotOffered, Refused
from tests.unit.promise_queues import (
    WRONG,
    ActsByFirstClaim,
    CommitsOldState,
    DeafAsking,
    DeafClaiming,
    Near,
    Queue,
    RedrivesAnyId,
    SaysNoneAgain,
    SaysNoneAtFirst,
    Unanswered,
    Unsure,
    World,
)


class MemoryWorld:
    """A world in memory: nothing runs but the clock."""

    def __init__(self, kind):
        self.kind, self.world = kind, World()

    def recreate(self):
        self.kind(self.world).recreated()

    def kill_leader(self):
        self.kind(self.world).leader_died()

    def outage(self):
        self.kind(self.world).outage()

    def lose_dead(self):
        self.world.dead_lost = True

    def now(self):
        return self.world.now

    def sleep(self, seconds):
        self.world.now += seconds

    def process(self, **wishes):
        return Near(self.kind(self.world, **wishes))


def scenario(kind):
    return Scenario(MemoryWorld(kind))


def scored(kind, only=PROMISES):
    return Scores({"memory": {name: judge(PROMISES[name], scenario(kind)) for name in only}})


def broken(scores):
    return [name for name, verdict in scores.verdicts["memory"].items() if verdict.kept is False]


def test_a_plain_queue_in_memory_keeps_every_promise():
    assert scored(Queue)["memory", "first in, first out"].trials == 10
    assert scored(Queue).kept() == list(PROMISES)


@pytest.mark.parametrize("name", PROMISES)
def test_a_queue_with_one_thing_wrong_breaks_that_promise_and_no_other(name):
    kind, seen = WRONG[name]
    scores = scored(kind)
    assert seen in scores[name].seen
    assert broken(scores) == [name]


@pytest.mark.parametrize(
    ("kind", "name", "seen"),
    [
        (SaysNoneAtFirst, "empty means empty", "items were waiting, and a claim found none"),
        (SaysNoneAgain, "empty means empty", "items were waiting, and a claim found none"),
        (RedrivesAnyId, "redrive chooses", "2 came where 4 was due"),
        (DeafAsking, "heals after an outage", "after an outage a worker could not ask for the depth: Unreachable"),
        (DeafClaiming, "heals after an outage", "after an outage a worker could not claim and ack: Unreachable"),
    ],
)
def test_each_part_of_a_check_can_fail(kind, name, seen):
    scores = scored(kind)
    assert (broken(scores), scores[name].seen) == ([name], seen)


@pytest.mark.parametrize(
    ("promise", "kind", "seen"),
    [
        (LATE_ACK, ActsByFirstClaim, "1 was claimed again, and the ack of the claim before was taken"),
        (LATE_COMMIT, CommitsOldState, "new 1, new 2 and new 3 never came"),
    ],
)
def test_the_promises_of_a_late_owner_are_kept_in_memory_and_can_fail(promise, kind, seen):
    assert judge(promise, scenario(Queue)).kept
    broken = judge(promise, scenario(kind))
    assert (broken.kept, seen in broken.seen) == (False, True), broken.seen


def test_a_queue_without_a_depth_can_heal():
    class Silent(Queue):
        depth = None

    assert scored(Silent, ["heals after an outage"])["heals after an outage"].kept


def test_an_item_that_was_refused_and_stored_may_come_among_the_others():
    assert scored(Unsure, ["leader dies"])["leader dies"].kept


def test_an_ack_that_was_not_answered_when_the_leader_died_may_have_been_stored_or_not():
    found = scored(Unanswered, ["leader dies"])["leader dies"]
    assert found.kept, found.seen


# --- around the checks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_has_a_sentence_and_says_how_often_it_is_tried(name):
    promise = PROMISES[name]
    assert promise.name == name
    assert promise.sentence[0].isupper()
    assert promise.sentence.endswith(".")
    assert promise.trials >= 2


class Bare:
    """A queue with three verbs that take nothing but what they must."""

    def __init__(self):
        self.items = []

    def put(self, data):
        self.items.append(data)

    def claim(self):
        return self.items.pop(0) if self.items else None

    def ack(self, item):
        pass


def test_a_queue_of_three_verbs_is_tried_on_what_it_offers():
    queue = QueueAdapter(Bare())
    queue.put("1")
    assert queue.claim(wait=0.05) == Claim(0, "1")
    queue.ack(0)
    assert queue.claim() is None


def claimed(queue):
    """The number of an item that was just claimed."""
    queue.put("1")
    return queue.claim().number


@pytest.mark.parametrize(
    ("call", "verb"),
    [
        (lambda queue: queue.release(claimed(queue)), "release"),
        (lambda queue: queue.put("1", key="k"), "put(key=…)"),
        (lambda queue: queue.claim(lease=1), "claim(lease=…)"),
        (lambda queue: queue.depth(), "depth"),
        (lambda queue: queue.dead(), "dead"),
    ],
)
def test_what_a_queue_does_not_have_is_not_offered(call, verb):
    with pytest.raises(NotOffered, match=re.escape(verb)):
        call(QueueAdapter(Bare()))


def test_what_is_not_offered_is_no_broken_promise():
    class Silent(Queue):
        extend = None

    assert scored(Silent, ["extend"])["extend"] == Verdict(None, 0, "no extend")


def test_a_queue_that_raises_breaks_the_promise_with_what_it_reported():
    class Tired(Queue):
        def put(self, data, key=None):
            raise LeaseLost("not at 127.0.0.1:9092,localhost:19092. Never\nat /a/path")

    assert scored(Tired, ["extend"])["extend"] == Verdict(False, 3, "raised LeaseLost: not at …")


def test_in_a_notebook_a_line_counts_what_was_tried_and_is_empty_at_the_end(monkeypatch):
    shown = []
    line = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))
    monkeypatch.setattr("kqlib.workshop.promises.display_handle", lambda: line)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # under pytest there is no such line: a stored output would have it
    with counted(2, "promises") as step:
        step()
        step()
    assert shown == ["1 of 2 promises", "2 of 2 promises", ""]


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (Refused("LeaseLost", "it is over"), True),
        *((Refused(kind, "nobody"), False) for kind in ("Unreachable", "NoNode", "Unavailable", "KafkaException")),
        (Broken("put did not return within 30 s", answered=False), False),
    ],
)
def test_a_cross_knows_whether_every_call_was_answered(error, answered):
    failing = scenario(Queue)

    def fails(**_):
        raise error

    failing.world.process = fails
    verdict = judge(PROMISES["extend"], failing)
    assert (verdict.kept, verdict.answered) == (False, answered)


def test_an_ack_that_nobody_answered_is_not_an_ack_that_was_refused():
    class Cut(Queue):
        def ack(self, item):
            try:
                super().ack(item)
            except LeaseLost:
                raise Unreachable(address="here", why="the cable was cut") from None

    verdict = scored(Cut, ["stale ack refused"])["stale ack refused"]
    assert (verdict.kept, verdict.answered) == (False, False)
    assert verdict.seen.startswith("raised Unreachable: No Kafka answered at here")


@pytest.mark.parametrize(("late", "answered"), [(LATE - 0.1, True), (LATE + 0.1, False)])
def test_a_cross_on_a_machine_that_answers_late_is_known(late, answered):
    busy = scenario(Queue)
    worker, answers = busy.worker(), []

    def slow(verb, lease, wait):
        busy.world.sleep(wait + answers.pop())

    worker._process.call = slow
    answers += [late, 5.0]  # the first claim may wait for the group
    worker.expect_nothing("yet")
    worker.expect_nothing("yet")
    assert busy.answered == answered


@pytest.mark.parametrize(
    ("comes", "seen"),
    [
        (["1", "1"], "1 came again while it was out"),
        (["3", "3"], "3 came again although it was done"),
        (["2"], "2 came where 1 was due"),
    ],
)
def test_a_wrong_item_is_explained_by_what_was_done_with_it_before(comes, seen):
    found = scenario(Queue)
    worker = found.worker()
    answers = [Claim(number, data) for number, data in enumerate(comes)]
    worker._process.call = lambda verb, *_: answers.pop(0) if verb == "claim" else None
    if comes[0] == "3":
        worker.ack(worker.claim())
    with pytest.raises(Broken, match=f"^{seen}$"):
        worker.expect_all("1", *(["4"] if comes[0] == "1" else []))


def test_the_deliveries_of_an_item_can_be_drawn_with_acks_that_came_too_late():
    assert scored(Queue, ["stale ack refused"]).draw("stale ack refused").text == (
        "stale ack refused · item 1 · 4 deliveries, 2 workers\n"
        "worker a            ¹ ⏱ expired · ² ✓ ack\n"
        "worker a, too late  ¹ ⛔ refused · ² ⛔ refused"
    )


ONE = Scores({"mine": {"extend": Verdict(True, 3)}})


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: ONE["lease"], "no promise 'lease' was tried; there are 'extend'"),
        (lambda: ONE["yours", "extend"], "no queue 'yours' was scored; there are mine"),
        (lambda: Scores({}).kept(), "this table has 0 queues: name one of "),
        (lambda: Scores({"a": {}, "b": {}}).draw("extend"), "this table has 2 queues: name one of a, b"),
        (lambda: promises({}), "no queue to score: give a factory, as in kq.promises(MyQueue)"),
        (lambda: promises({"": Queue}), "a queue's name in the table is text, not ''"),
        (
            lambda: promises(lambda cluster: None),
            "the factory 'queue' is a function that takes a cluster and a topic's name, as in lambda cluster, name: …",
        ),
        (lambda: promises(int), "the factory 'int' is a function that takes a cluster and a topic's name"),
        (lambda: promises(Queue, only="extend"), "only is a list of names, as in only=['extend']"),
        (lambda: promises(Queue, only=[]), "only names no promise: leave it out, and all are tried"),
        (
            lambda: promises(Queue, only=["lease"]),
            "there is no promise 'lease'; there are 'first in, first out', 'claimed",
        ),
        (
            lambda: promises(holding(threading.Lock())),
            "this cannot travel to another process (TypeError",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused_with_a_sentence(ask, sentence):
    with pytest.raises(NotAllowed, match=re.escape(sentence)):
        ask()


def holding(lock):
    """A factory that has something in it which cannot travel."""

    def make(cluster, name):
        return lock

    return make


def test_workers_begin_with_the_modules_of_their_factory_and_of_what_it_inherits_from():
    class Mine(LADDER["leases"]):
        pass

    assert homes(Mine) == ["kqlib.workshop.ladder"] * 2
    assert homes(lambda cluster, name: None) == []
