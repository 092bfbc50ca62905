"""The promises about what breaks: workers killed or frozen, topics recreated, brokers dead; and what other processes see.

In:  a `Scenario`. Out: as in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from kqlib.errors import NotAllowed
from kqlib.runtime.patience import PATIENCE
from kqlib.text import count
from kqlib.workshop.promises.adapter import Claim
from kqlib.workshop.promises.checks import check_depth, names
from kqlib.workshop.promises.scenario import GRACE, Scenario, Worker, listed
from kqlib.workshop.promises.values import Broken, NotOffered, Promise, Refused

AT_WORK = 1.0 * PATIENCE  # seconds that a worker has an item before it dies: long enough for a timer to commit it
BEFORE, AFTER = 20, 10  # items put before and after the leader's death
DEATH = 5.0 * PATIENCE  # the lease of a queue that notices a worker's death by that alone; shorter than GRACE
OTHER = "for another process "
ELECTION = 60.0 * PATIENCE  # seconds until every item must have come
AGAIN = 10.0 * PATIENCE  # seconds after an outage in which a call must work again
HELD = 4.0 * PATIENCE  # seconds that an ack may take beside a transaction that fails

T = TypeVar("T")


def killed(scenario: Scenario) -> None:
    """A worker dies with three items of four."""
    a = scenario.worker(lease=DEATH)
    a.put(*names(4))
    for name in names(3):
        a.expect(name)
    scenario.wait(AT_WORK)
    a.kill()
    b, came = scenario.worker(lease=DEATH), set()  # type: tuple[Worker, set[str]]
    while len(came) < 4 and (claim := b.claim(wait=GRACE)) is not None:
        b.ack(claim)
        came.add(claim.data)
    if missing := [name for name in names(4) if name not in came]:
        raise Broken(f"the worker died with {listed(names(3))}, and {listed(missing)} never came again", missing[0])


def crash_counts(scenario: Scenario) -> None:
    """An item kills two workers: the third can tell."""
    a = scenario.worker(lease=DEATH)
    a.put("1")
    worker, deaths = a, 0
    while True:
        claim = worker.expect("1")
        if claim.attempt is None:
            raise NotOffered("item.attempt")
        if claim.attempt != deaths + 1:
            raise Broken(f"after {count(deaths, 'crash', 'crashes')} it came as attempt {claim.attempt}", "1")
        if deaths == 2:
            return
        worker.kill()
        worker, deaths = scenario.worker(lease=DEATH), deaths + 1


def zombie(scenario: Scenario) -> None:
    """A worker sleeps past its session, another takes over, the first wakes and acks."""
    a = scenario.worker(lease=DEATH)
    a.put("1", "2")
    old = a.expect_all("1", "2")
    scenario.wait(AT_WORK)
    b, new = taken_over(scenario, a)
    for claim in old:
        if not a.ack_refused(claim):
            raise Broken(f"b had {claim.data}, and the ack of a, who had slept, was taken", claim.data)
    b.ack(*new)


def taken_over(scenario: Scenario, sleeper: Worker) -> tuple[Worker, list[Claim]]:
    """A worker sleeps past its session, until another one has 1 and 2."""
    sleeper.pause()
    other = scenario.worker(lease=DEATH)
    try:
        return other, other.expect_all("1", "2")
    except Broken as broken:
        raise Broken(f"a worker slept past its session, and {broken.seen}", broken.item) from None
    finally:
        sleeper.resume()


def recreated(scenario: Scenario) -> None:
    """Three items are done, the topic is deleted and created again, three new ones are put."""
    a = scenario.worker()
    a.put(*names(3))
    a.ack(*a.expect_all(*names(3)))
    a.leave()
    scenario.world.recreate()
    starts_clean(scenario)


def starts_clean(scenario: Scenario) -> None:
    """A new worker gets what is put now, and nothing else."""
    b = scenario.worker()
    new = ["new 1", "new 2", "new 3"]
    b.put(*new)
    b.ack(*b.expect_all(*new))
    b.expect_nothing("again although it was done")


def together(scenario: Scenario) -> None:
    """A step dies in the middle, one fails, one ends well."""
    a = scenario.worker()
    a.put("1")
    a.call("enter_step", a.expect("1"), "output of 1")
    a.kill()
    b = scenario.worker()
    claim = b.expect()
    if claim.data != "1":
        raise Broken("a worker died within its step, and the output was there", "1")
    b.expect_nothing("although the worker died within its step")
    b.call("enter_step", claim, "output of 1")
    b.leave_step(claim, failed=True)
    b.expect_nothing("although the step had failed")
    b.call("enter_step", claim, "output of 1")
    b.leave_step(claim)
    b.ack(b.expect("output of 1"))
    b.expect_nothing("although the step had ended")


def bad_output(scenario: Scenario) -> None:
    """A step's output has no topic any more. Other items of the worker are acked meanwhile; then it dies."""
    a = scenario.worker()
    a.put(*names(4))
    good, bad, *others = a.expect_all(*names(4))
    a.call("enter_step", good, "output", dead=True)
    a.leave_step(good)
    b = scenario.worker()
    scenario.world.lose_dead()
    a.call("enter_step", bad, "output", dead=True)
    a.call("leave_step_beside", bad)
    for claim in others:
        scenario.wait(AT_WORK / 2)
        start = scenario.now()
        a.ack(claim)
        if scenario.now() - start > HELD:
            raise Broken(f"an output could not be stored, and the ack of {claim.data} waited for it", claim.data)
    a.kill()
    b.ack(*b.expect_all(bad.data))
    b.expect_nothing("again although it was done")


def leader_dies(scenario: Scenario) -> None:
    """The leader of the partition dies while items are put, out and done."""
    a = scenario.worker()
    put = names(BEFORE)
    a.put(*put)
    out = [a.expect() for _ in range(6)]
    a.ack(*out[:3])
    done = {claim.data for claim in out[:3]}
    scenario.world.kill_leader()
    for name in names(BEFORE + AFTER)[BEFORE:]:
        with suppress(Refused):  # a put that was refused may be stored or not: it is not counted
            a.put(name)
            put.append(name)
    done |= _acked(a, out[3:])
    end = scenario.now() + ELECTION
    while not done >= set(put) and scenario.now() < end:  # what a refused put had stored may come as well
        with suppress(Refused):
            if (claim := a.claim(wait=1.0)) is not None:
                done |= _acked(a, [claim])
    if missing := [name for name in put if name not in done]:
        raise Broken(f"of {len(put)} items that were stored {len(missing)} never came", missing[0])
    if len(put) < BEFORE + 1:
        raise Broken("nothing could be put after the leader's death")


def _acked(worker: Worker, claims: list[Claim]) -> set[str]:
    """Ack these. Return the items that need not come again: an ack without an answer may have been stored."""
    done = set()
    for claim in claims:
        with suppress(Refused):  # no answer
            if worker.ack_refused(claim):
                continue
        done.add(claim.data)
    return done


def heals(scenario: Scenario) -> None:
    """All brokers stand still. One worker only puts, one only asks for the depth, one only claims."""
    claims = scenario.worker()
    claims.expect_nothing("before anything was put")  # first: in a group the partition stays with who has it
    puts, asks = scenario.worker(), scenario.worker()
    puts.put("before")
    claims.ack(claims.expect("before"))
    asked = _offers_depth(asks)
    scenario.world.outage()
    _again(scenario, "put", lambda: puts.put("after"))
    if asked:
        _again(scenario, "ask for the depth", lambda: asks.call("depth"))
    puts.leave()
    asks.leave()

    def one_done() -> str:
        claim = claims.expect("before", "after")
        claims.ack(claim)
        return claim.data

    while _again(scenario, "claim and ack", one_done) != "after":
        pass


def _offers_depth(worker: Worker) -> bool:
    try:
        worker.call("depth")
    except NotOffered:
        return False
    except Refused as error:
        if error.kind != NotAllowed.__name__:
            raise
        return False
    return True


def _again(scenario: Scenario, verb: str, call: Callable[[], T]) -> T:
    """Call until it works."""
    end = scenario.now() + AGAIN
    while True:
        try:
            return call()
        except Refused as error:
            if scenario.now() > end:
                why = f"after an outage a worker could not {verb}: {error.kind}"
                raise Broken(why, answered=error.answered) from None
        scenario.wait(0.1)


def from_outside(scenario: Scenario) -> None:
    """Another process, which has claimed nothing, asks for the depth."""
    a = scenario.worker()
    *most, last = names(5)
    a.put(*most)
    one = a.expect()  # before the other is there: in a group the partition goes to who comes first, and may stay there
    b = scenario.worker()
    b.call("depth")
    a.put(last)
    check_depth(b, 5, "1 of 5 was claimed", OTHER)
    a.expect()
    check_depth(b, 5, "2 of 5 were claimed", OTHER)
    a.ack(one)
    check_depth(b, 4, "1 of 5 was acked", OTHER)


def depth_everywhere(scenario: Scenario) -> None:
    """The worker that claims and a process that only asks are asked, whatever was claimed, acked and put in between."""
    a = scenario.worker()
    a.put(*names(30))
    one, two, three = a.expect(), a.expect(), a.expect()
    b = scenario.worker()
    a.put(*names(35)[30:])
    _check_both(a, b, 35, "3 of 30 were claimed, then 5 more were put")
    a.ack(two)
    _check_both(a, b, 34, "the second of 3 that were out was acked")
    a.put("36")
    _check_both(a, b, 35, "1 of 36 was acked before the last was put")
    a.release(three)
    a.ack(one, a.expect())
    _check_both(a, b, 33, "3 of 36 were acked, one of them was released before")


def _check_both(a: Worker, b: Worker, due: int, when: str) -> None:
    check_depth(a, due, when)
    check_depth(b, due, when, OTHER)


def shared(scenario: Scenario) -> None:
    """Two processes on a topic of one partition ask in turns."""
    a, b = scenario.worker(), scenario.worker()
    a.expect_nothing("before anything was put")
    b.expect_nothing("before anything was put")
    a.put(*names(10))
    came: dict[str, list[str]] = {"a": [], "b": []}
    end = scenario.now() + GRACE
    while sum(map(len, came.values())) < 10 and scenario.now() < end:
        for worker, claim in [(worker, worker.claim(wait=0.2)) for worker in (a, b)]:  # both have one, then both ack
            if claim is not None:
                worker.ack(claim)
                came[worker.name].append(claim.data)
    if twice := sorted(set(came["a"]) & set(came["b"]), key=int):
        raise Broken(f"{listed(twice[:3])} came to both", twice[0])
    if not (came["a"] and came["b"]):
        raise Broken("one of the two got nothing")


CRASHES = (
    Promise("survives a killed worker", "What a killed worker had claimed comes again.", 3, killed, slow=True),
    Promise(
        "a crash is an attempt", "An item that kills its workers is counted each time.", 2, crash_counts, slow=True
    ),
    Promise(
        "zombie refused", "A worker that slept past its session cannot ack what another has now.", 2, zombie, slow=True
    ),
    Promise(
        "outputs with the ack", "An item's outputs and its ack: all or nothing, whatever dies.", 3, together, slow=True
    ),
    Promise(
        "a bad output stops nobody",
        "A step whose output cannot be stored fails alone; other acks are stored meanwhile.",
        2,
        bad_output,
        slow=True,
    ),
    Promise("depth from outside", "Any process can ask for the depth.", 3, from_outside),
    Promise(
        "depth is exact",
        "The depth is right in every process, whatever was claimed, acked or put.",
        4,
        depth_everywhere,
    ),
    Promise("topic recreated", "A topic that was deleted and created again starts clean.", 3, recreated),
    Promise(
        "leader dies",
        "What was stored comes out, also when the partition's leader dies.",
        BEFORE,
        leader_dies,
        fault="leader",
    ),
    Promise(
        "heals after an outage",
        "All brokers stand still for a while: a worker that puts, asks or claims goes on.",
        3,
        heals,
        fault="outage",
    ),
    Promise("more processes than partitions", "Two processes share one partition.", 10, shared, slow=True),
)
