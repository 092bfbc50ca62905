"""Can what fails for good be buried? From outside one sees the dead-letter topics, their limits and this user's right to write there.

In:  a site that only looks. Out: one finding. Why an item waits now is said by its process: `queue.blocked`, and its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed, TopicMissing
from kqlib.text import count
from kqlib.workshop.doctor.finding import Finding

if TYPE_CHECKING:
    from kqlib.queue import Site


def finding(site: Site) -> Finding:
    """Of every queue that buries what was tried too often."""
    keys = [key for key in site._notes.keys() if key[2:] == ("terms",)]  # noqa: SIM118 - no dict
    queues = sorted({key[1] for key in keys if site._notes.get(*key)["max_attempts"] is not None})
    wrong = [each for queue in queues for each in _wrong(site, queue)]
    if not wrong:
        return Finding("dead letters", True, f"{count(len(queues), 'queue')}, each can bury what fails for good")
    return Finding("dead letters", False, "\n".join(what for what, _ in wrong), wrong[0][1])


def _wrong(site: Site, queue: str) -> Iterator[tuple[str, str]]:
    """What is in the way of a burial, and what to do."""
    from kqlib.queue.dead import DEAD
    from kqlib.queue.granted import granted
    from kqlib.queue.rights import Right
    from kqlib.queue.said import lacks

    dead = queue + DEAD
    try:
        facts, letters = site._facts(queue)
    except (TopicMissing, NotAllowed):  # the queue itself was deleted, or this user may not see it
        return
    if letters is None:
        apply = f"add '{queue}' to the plan as a QueueTopic and apply it (kq topics apply)"
        yield f"'{dead}' does not exist: what fails for good in '{queue}' waits", apply
        return
    if letters.limit < facts.limit:
        smaller = (
            f"'{dead}' takes records of {letters.limit:,} bytes and '{queue}' {facts.limit:,}: letters are cut, or wait"
        )
        yield smaller, f"raise max.message.bytes of '{dead}' to {facts.limit}"
    write = Right("WRITE", "topic", dead)
    if granted(site.cluster, [write])[write] is False:
        yield f"{lacks(site.cluster, write)}: what it gives up in '{queue}' waits", f"grant {write}"
