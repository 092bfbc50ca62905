"""The promises that one worker can see, each a short check: what it does and what must come of it.

In:  a `Scenario`. Out: nothing, when the promise is kept; else `Broken` with what was seen, or `NotOffered` with the missing verb.
An item's name is its data, "1" is put before "2". A lease that must end is short; all others are the queue's own.
"""

from __future__ import annotations

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.promises.adapter import Claim
from kqlib.workshop.promises.scenario import GRACE, SOON, Scenario, Worker, listed
from kqlib.workshop.promises.values import Broken, Promise, Refused

SHORT = round(3.0 * PATIENCE, 1)  # a lease: long enough to claim three items and to extend each
OVER = SHORT + 0.2  # when it has ended for sure
DELAY = 1.5 * PATIENCE
POISON = 3
MOST_ATTEMPTS = 15  # more than any queue of kqlib allows
THREADS, ITEMS = 8, 40
RELEASES = 3  # no more than a queue with few attempts allows
OUT = 3.0 * PATIENCE  # seconds of sleep after which a group has given a worker's partition away


def names(last: int) -> list[str]:
    """'1', '2', …"""
    return [str(number) for number in range(1, last + 1)]


def first_in(scenario: Scenario) -> None:
    """Put on one key, taken one by one."""
    a, came = scenario.worker(), []
    a.put(*names(10), key="k")
    for _ in names(10):
        claim = a.expect()
        came.append(claim.data)
        a.ack(claim)
    if came != names(10):
        raise Broken(f"1 to 10 came as {' '.join(came)}")


def hidden(scenario: Scenario) -> None:
    """Two workers keep what they get: the first takes all it can, then the other."""
    a, b = scenario.worker(), scenario.worker()
    a.expect_nothing("before anything was put")
    b.expect_nothing("before anything was put")  # now both have found their place
    a.put(*names(5))
    holders: dict[str, str] = {}
    end = scenario.now() + GRACE
    while len(holders) < 5 and scenario.now() < end:
        for worker in (a, b):
            while (claim := worker.claim(wait=0.2)) is not None:
                _keep(worker, claim, holders)
    if missing := [name for name in names(5) if name not in holders]:
        raise Broken(f"{listed(missing)} never came", missing[0])


def _keep(worker: Worker, claim: Claim, holders: dict[str, str]) -> None:
    if claim.data in holders:
        raise Broken(f"{claim.data} came to {worker.name} while {holders[claim.data]} had it", claim.data)
    holders[claim.data] = worker.name


def empty(scenario: Scenario) -> None:
    """Each claim asks without waiting: the first one, one after each release, and one after a sleep that cost the partition."""
    a = scenario.worker()
    a.put(*names(10))
    for _ in names(5):  # one release is too few: on a busy machine what was read again may be there in time
        a.release(_waiting(a))
        a.ack(_waiting(a))
    a.pause()
    scenario.wait(OUT)
    a.resume()
    for _ in names(5):
        a.ack(_waiting(a))
    a.expect_nothing("again although it was done")


def _waiting(worker: Worker) -> Claim:
    """Claim an item that is there. Nothing may say that there is none."""
    claim = worker.claim(wait=0)
    if claim is None:
        raise Broken("items were waiting, and a claim found none")
    return claim


def released(scenario: Scenario) -> None:
    """Claimed and released, one after the other: it comes again, before what was put later."""
    a = scenario.worker()
    a.put(*names(3))
    for name in names(3):
        a.release(a.expect(name))
        a.ack(a.expect(name))


def all_released(scenario: Scenario) -> None:
    """Five are out and all are released, three times. Each time a worker can hold all five again."""
    a = scenario.worker()
    a.put(*names(5))
    held = a.expect_all(*names(5))
    for _ in range(RELEASES):
        a.release(*held)
        try:
            held = a.expect_all(*names(5))
        except Broken as broken:  # whichever never came: the lease of one that is out may end while it is waited for
            seen = "1 to 5 were released, and not all of them were out again together"
            raise Broken(seen, broken.item) from None


def undisturbed(scenario: Scenario) -> None:
    """Three are out, the first is released."""
    a = scenario.worker()
    a.put(*names(4))
    out = [a.expect(name) for name in names(3)]
    a.release(out[0])
    for due in ("1", "4"):
        claim = a.expect()
        if claim.data in {"2", "3"}:
            raise Broken(f"1 was released, and {claim.data} came again while it was out", claim.data)
        if claim.data != due:
            raise Broken(f"{claim.data} came where {due} was due", claim.data)
    a.expect_nothing("again while it was out")


def any_order(scenario: Scenario) -> None:
    """Five are out, 2 and 4 are acked, the rest is released; another worker goes on."""
    a = scenario.worker()
    a.put(*names(5))
    out = a.expect_all(*names(5))
    a.ack(out[1], out[3])
    a.release(out[4], out[2], out[0])
    a.leave()
    b = scenario.worker()
    b.ack(*b.expect_all("1", "3", "5"))
    b.expect_nothing("again although it was done")


def depth(scenario: Scenario) -> None:
    """Depth is asked after each verb."""
    a = scenario.worker()
    a.call("depth")
    a.put(*names(5))
    check_depth(a, 5, "5 were put")
    one, two = a.expect(), a.expect()
    check_depth(a, 5, "2 of 5 were claimed")
    a.ack(one)
    check_depth(a, 4, "1 of 5 was acked")
    a.release(two)
    check_depth(a, 4, "another was released")
    for _ in range(4):
        a.ack(a.expect())
    check_depth(a, 0, "all 5 were acked")


def check_depth(worker: Worker, due: int, when: str, whom: str = "") -> None:
    """The depth must be this. whom: "for …" and a space, if another process asks."""
    found = worker.call("depth")
    if found != due:
        raise Broken(f"{when}, and {whom}depth was {found}, not {due}")


def expires(scenario: Scenario) -> None:
    """Claimed for a short time, and forgotten."""
    a = scenario.worker(lease=SHORT)  # for queues whose lease is the queue's, not the claim's
    a.put(*names(3))
    a.expect_all(*names(3), lease=SHORT)
    scenario.wait(OVER)
    again: set[str] = set()
    while len(again) < 3 and (claim := a.claim(wait=GRACE)) is not None:
        again.add(claim.data)
    if missing := [name for name in names(3) if name not in again]:
        raise Broken(f"the lease was over, and {listed(missing)} never came again", missing[0])


def extended(scenario: Scenario) -> None:
    """Claimed for a short time, extended, still held and then acked."""
    a = scenario.worker(lease=SHORT)
    a.put(*names(3))
    held = a.expect_all(*names(3), lease=SHORT)
    for claim in held:
        a.extend(claim, 3 * SHORT)
    scenario.wait(OVER)
    a.expect_nothing("again although its lease was extended")
    a.ack(*held)


def stale(scenario: Scenario) -> None:
    """Two leases end; one item is claimed again, then the first claims of both are acked."""
    a = scenario.worker(lease=SHORT)
    a.put("1", "2")
    old = a.expect_all("1", "2", lease=SHORT)
    scenario.wait(OVER)
    if not a.ack_refused(old[1]):
        raise Broken("the lease of 2 was over, and its ack was taken", "2")
    new = a.expect_all("1", "2")
    if not a.ack_refused(old[0]):
        raise Broken("1 was claimed again, and the ack of its first claim was taken", "1")
    a.ack(*new)
    if not a.ack_refused(new[0]):
        raise Broken("1 was acked twice, and both acks were taken", "1")


def delayed(scenario: Scenario) -> None:
    """Three are released to be due later: not before, and then each once. The fourth does not wait for them."""
    a = scenario.worker()
    a.put(*names(4))
    claim, start = _released_later(scenario, a, [a.expect(name) for name in names(3)])
    if claim.data != "4":  # 1 was due before the claim came to its end: did 4 wait, or is the machine busy? Once more
        held = {each.data: each for each in [claim, *a.expect_all(*(name for name in names(4) if name != claim.data))]}
        a.release(held["4"])
        claim, start = _released_later(scenario, a, [held[name] for name in names(3)])
    if claim.data != "4":
        raise Broken(f"{claim.data} came where 4 was due", claim.data)
    a.ack(claim)
    early = a.claim(wait=0.2)
    if early is not None and scenario.now() < start + DELAY:
        raise Broken(f"{early.data} was released to be due later, and came at once", early.data)
    a.ack(
        *([early] if early else []), *a.expect_all(*(name for name in names(3) if early is None or name != early.data))
    )


def _released_later(scenario: Scenario, worker: Worker, out: list[Claim]) -> tuple[Claim, float]:
    """Release these to be due later, and claim the next item; it, and when they were released."""
    start = scenario.now()
    worker.release(*out, delay=DELAY)
    claim = worker.expect(*names(4))
    if claim.data != "4" and scenario.now() < start + DELAY:
        raise Broken(f"{claim.data} came where 4 was due", claim.data)
    return claim, start


def crowd(scenario: Scenario) -> None:
    """Eight threads of one worker on one partition: each holds an item at the same time, and each item is done once."""
    a = scenario.worker()
    a.put(*names(ITEMS))
    together, done = a.call("crowd", THREADS, ITEMS)
    if together < THREADS:
        raise Broken(f"of {THREADS} threads only {together} had an item at the same time")
    if twice := sorted({name for name in done if done.count(name) > 1}, key=int):
        raise Broken(f"{listed(twice[:3])} came to two threads", twice[0])
    if len(done) < ITEMS:
        raise Broken(f"only {len(done)} of {ITEMS} were done")


def by_key(scenario: Scenario) -> None:
    """Of each key at most one is out, and later ones wait for a released one."""
    a = scenario.worker(order="key")
    for name in ("A1", "B1", "A2", "B2"):
        a.put(name, key=name[0])
    first, other = a.expect("A1"), a.expect()
    if other.data != "B1":
        raise Broken(f"{other.data} came while {'B1' if other.data == 'B2' else 'A1'} was out", other.data)
    a.expect_nothing("while the item before it was out")
    a.release(first)
    a.ack(a.expect("A1"))
    a.ack(a.expect("A2"))
    a.ack(other)
    a.ack(a.expect("B2"))


def dead_once(scenario: Scenario) -> None:
    """Three items fail each time, one does not."""
    a = scenario.worker()
    a.call("dead")
    poison = names(POISON)
    a.put(*poison, "good")
    attempts = dict.fromkeys([*poison, "good"], 0)
    while (claim := a.claim(wait=SOON if attempts["good"] else GRACE)) is not None:
        attempts[claim.data] += 1
        if claim.data == "good":
            a.ack(claim)
        elif attempts[claim.data] > MOST_ATTEMPTS:
            raise Broken(f"{claim.data} was handed out more than {MOST_ATTEMPTS} times", claim.data)
        else:
            a.release(claim)
    if attempts["good"] != 1:
        raise Broken(f"the item behind them came {attempts['good']} times", "good")
    end = scenario.now() + GRACE
    while len(dead := sorted(a.call("dead"))) < POISON and scenario.now() < end:
        scenario.wait(SOON)
    if dead != poison:
        raise Broken(
            f"{listed(poison)} used up their attempts, and the dead letters are {', '.join(dead) or 'none'}", "1"
        )


def redriven(scenario: Scenario) -> None:
    """Four are buried, two for the same reason. These two are put back by their reason, and one other by its id."""
    a = scenario.worker()
    a.put(*names(4))
    for claim, reason in zip(a.expect_all(*names(4)), ("late", "bad data", "late", "bad data"), strict=True):
        a.bury(claim, reason)
    a.call("redrive", reason="late")
    for _ in range(2):
        a.ack(a.expect("1", "3"))
    a.expect_nothing("although it was not chosen")
    a.call("redrive", ["4"])
    a.ack(a.expect("4"))
    a.expect_nothing("although it was not chosen")
    if (dead := a.call("dead")) != ["2"]:
        raise Broken(f"only 2 was not chosen, and the dead letters are {', '.join(dead) or 'none'}", "2")


def back(scenario: Scenario) -> None:
    """Marked deleted, it takes and gives nothing; created again, it does both, and what was done stays done."""
    a = scenario.worker()
    a.call("create")
    a.put(*names(3))
    a.ack(a.expect("1"))
    a.call("delete")
    try:
        a.put("4")
    except Refused:
        pass
    else:
        raise Broken("the queue was deleted, and took an item", "4")
    try:
        claim = a.claim()
    except Refused:
        claim = None
    if claim is not None:
        raise Broken(f"the queue was deleted, and {claim.data} came", claim.data)
    a.call("create")
    a.put("5")
    claim = None
    while claim is None or claim.data != "5":  # 2 and 3 may come before it, or have gone with the queue
        claim = a.expect("2", "3", "5")
        a.ack(claim)
    a.expect_nothing("after what was put last")


ONE = (
    Promise("first in, first out", "What is put first on a key comes out first.", 10, first_in),
    Promise("claimed is hidden", "While one worker has an item, no other gets it.", 5, hidden, slow=True),
    Promise("empty means empty", "A claim returns nothing only when nothing waits.", 10, empty, slow=True),
    Promise("released comes back", "A released item comes again, before newer ones.", 3, released),
    Promise(
        "released together",
        "Items that were released can all be out again together.",
        RELEASES,
        all_released,
        slow=True,
    ),
    Promise("release disturbs nobody", "A release brings back that item, and none that is out.", 3, undisturbed),
    Promise(
        "acks in any order",
        "What is acked stays done, whatever is released around it, also for the next worker.",
        5,
        any_order,
    ),
    Promise("depth counts claimed", "Depth counts what is not done: waiting and claimed items.", 5, depth),
    Promise("lease expires", "An item whose lease is over comes again.", 3, expires, slow=True),
    Promise("extend", "An extended lease ends later.", 3, extended, slow=True),
    Promise("stale ack refused", "An ack that comes too late, or twice, is refused.", 3, stale, slow=True),
    Promise("delayed release", "An item released with a delay comes after it, not before.", 3, delayed, slow=True),
    Promise("many threads", "Eight threads share one partition: all have work, none the same.", ITEMS, crowd),
    Promise("order by key", "Of each key one item is out at a time; later ones wait for it.", 4, by_key),
    Promise("dead letter, once", "An item that used up its attempts is in the dead letters, once.", POISON, dead_once),
    Promise("redrive chooses", "Of the dead letters only those go back that were chosen.", 2, redriven),
    Promise(
        "deleted and back",
        "A deleted queue takes and gives nothing; created again it does, and what is done stays done.",
        3,
        back,
    ),
)
