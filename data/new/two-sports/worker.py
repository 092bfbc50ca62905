"""Works on the events of one sport: each one goes into the topic events, and a goal becomes a notification too.

Promise: each item has one event and at most one notification for readers with isolation.level=read_committed, wherever a worker dies.
Both outputs and the ack are one transaction. The items of a game are worked on in their order. One that fails is tried five times,
later each time, while its game waits. Then it is a dead letter, and its game goes on.

    kq topics apply plan.toml    # once, and after each change of the plan
    python worker.py football    # as many of them as you like, for each sport

KQ_BOOTSTRAP names the cluster, KQ_KAFKA_CONFIG a file with its settings. SIGTERM ends a worker after the items in hand.
"""

import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import kqlib as kq
from events import SITE, SPORTS, reader
from kqlib.queue import Item, Queue

TERMS: dict[str, Any] = {"order": "key", "max_attempts": 5}  # the key is the game
RETRY = kq.Retry.exponential(
    1, cap=60, jitter=0.2, never=(ValueError, kq.errors.CorruptPayload)
)  # bad data is bad tomorrow, too
log = logging.getLogger("worker")


def notification(event: dict[str, Any]) -> bytes | None:
    """The work itself: an event in, a notification out, or None. A ValueError makes a dead letter, another exception is tried again.

    League and number name the event, so that a broadcaster can leave out one that comes twice.
    """
    if event["team"] not in event["game"].split("-"):
        raise ValueError(f"{event['team']!r} does not play in {event['game']}")
    known = {name: event[name] for name in ("league", "number", "game", "team", "points")}
    return json.dumps(known).encode() if event["kind"] == "goal" else None


def run(
    queue: Queue, events: Queue, notifications: Queue, work: Callable[[bytes | None], bytes | None], until: Any = None
) -> None:
    """Work until SIGTERM, or until what `Queue.work` knows as `until`."""

    def handle(item: Item) -> None:
        try:
            notice = work(item.data)
        except Exception as error:
            log.warning("%s failed at attempt %d: %s", item.id, item.attempt, error)
            raise  # the queue decides: later again, or a dead letter
        with queue.step(item) as step:
            step.put(events, item.data, item.key)
            if notice is not None:
                step.put(notifications, notice, item.key)

    log.info("%s", queue.work(handle, threads=4, retry=RETRY, until=until))


def main(words: list[str]) -> int:
    """One worker of one sport."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if len(words) != 1 or words[0] not in SPORTS:
        log.error("usage: worker.py %s", " | ".join(SPORTS))
        return 2
    try:
        with kq.connect() as cluster, kq.Site(cluster, SITE) as site:
            read = reader(kq.schemas.Registry(cluster=cluster))
            events = site.queue("events", max_attempts=None)  # a topic, not a queue: no dead letters
            run(
                site.queue(words[0], **TERMS),
                events,
                site.queue("notifications"),
                lambda data: notification(read(data)),
            )
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
