"""Two promises about an owner that is late, for notebook 08: its ack of an item that it owns again, its commit about an older topic.

In:  a `Scenario`. Out: as in `checks.py`. They are not in `PROMISES`: `kq.promises(queues, only=[…, LATE_ACK])` tries them.
"""

from __future__ import annotations

from kqlib.workshop.promises.checks import names
from kqlib.workshop.promises.crashes import DEATH, starts_clean, taken_over
from kqlib.workshop.promises.scenario import Scenario
from kqlib.workshop.promises.values import Broken, Promise


def late_ack(scenario: Scenario) -> None:
    """A worker sleeps past its session. Another one has its items and leaves, and the first one claims them again."""
    a = scenario.worker(lease=DEATH)
    a.put("1", "2")
    old = a.expect_all("1", "2")
    b, _ = taken_over(scenario, a)
    b.leave()
    new = a.expect_all("1", "2")
    for claim in old:
        if not a.ack_refused(claim):
            raise Broken(f"{claim.data} was claimed again, and the ack of the claim before was taken", claim.data)
    a.ack(*new)


def late_commit(scenario: Scenario) -> None:
    """The topic is deleted and created again while a worker has an item. It acks that item, then another worker goes on."""
    a = scenario.worker()
    a.put(*names(3))
    first, *others = a.expect_all(*names(3))
    a.ack(*others)
    scenario.world.recreate()
    a.ack_refused(first)  # taken or refused: what counts is what it does to the new topic
    a.leave()
    starts_clean(scenario)


LATE_ACK = Promise(
    "late ack refused",
    "A worker that lost an item and claimed it again cannot ack it by its first claim.",
    2,
    late_ack,
    slow=True,
)
LATE_COMMIT = Promise(
    "late commit ignored", "A state of an older topic does not count for the new one.", 3, late_commit, slow=True
)
