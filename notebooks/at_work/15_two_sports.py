"""The evening of two sports in one file, on kqlib: a feed with an outbox, and workers that keep the order of each game.

Promise, as its test and `kq crash -- python 15_two_sports.py` show: no stored row is lost, wherever a process dies, and a row that the
provider sends again is no second item. Each item has one result for readers with isolation.level=read_committed, in the order of its
game. What fails is tried five times, while its game waits. Then it is a dead letter, and its game goes on.

    15_two_sports.py feed < rows    lines of JSON become rows of a database, each with its job; it prints those that are no rows
    15_two_sports.py move           moves jobs into the queues of their leagues
    15_two_sports.py                works on one queue; start as many as you like for each sport

KQ_TOPIC is the queue; for feed all leagues, with commas between. KQ_DATABASE is a file. KQ_RESULTS is a topic, and KQ_RESULTS.goals a
queue. KQ_BOOTSTRAP and KQ_GROUP say where, KQ_PARTITIONS how many partitions each queue has (default: 1). feed and move may be killed
at any time; a mover may then put its last jobs twice, with the same header outbox-id. SIGTERM ends a worker after the items in hand.
Exit status: 0 done or ended by SIGTERM, 1 an error, or lines that are no rows. `kq new two-sports DIR` makes a project of this.
"""

import json
import logging
import os
import sqlite3
import sys
import time

import kqlib as kq
from kqlib.queue import Item
from kqlib.virtual.outbox import HEADER, Outbox

PARTITIONS = int(os.environ.get("KQ_PARTITIONS", "1"))
RETRY = kq.Retry.exponential(1, cap=60, jitter=0.2, never=(ValueError,))  # bad data is bad tomorrow, too
ROWS = "CREATE TABLE IF NOT EXISTS feed (league, number, PRIMARY KEY (league, number))"
log = logging.getLogger("sports")


def feed(db: sqlite3.Connection, leagues: list[str]) -> int:
    """Store each new row of standard input and its job: both, or neither. The exit status."""
    outbox, status = Outbox(db), 0
    for line in sys.stdin.buffer:
        try:
            row = json.loads(line)
            league, number, game = row["league"], int(row["number"]), row["game"].encode()
            if league not in leagues:
                raise ValueError(f"the league is one of {', '.join(leagues)}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.error("no row: %r", error)
            sys.stdout.buffer.write(line)
            status = 1
            continue
        with db:
            if db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", (league, number)).rowcount:  # not sent before
                outbox.add(league, line.strip(), game)
    return status


def move(db: sqlite3.Connection, site: kq.Site) -> None:
    """Move jobs, until this process is killed."""
    outbox = Outbox(db)
    while True:
        try:
            outbox.move(lambda league: site.queue(league, max_attempts=None))
        except kq.errors.KqError as error:
            log.warning("the jobs wait: %s", error)
        time.sleep(0.1)  # a hundred jobs at a time


def work(item: Item) -> tuple[bytes, bytes | None]:
    """The work itself: bytes in; the result, and a notification if it is a goal, out. An exception is a failed attempt."""
    if not item.data:
        raise ValueError("an empty item")
    return b"done " + item.data, item.data if b"goal" in item.data else None


def run(site: kq.Site, topic: str, results: str) -> None:
    """Work on the queue of a sport until SIGTERM."""
    queue = site.queue(topic, order="key", max_attempts=5)  # the key is the game
    kept, goals = site.queue(results, max_attempts=None), site.queue(f"{results}.goals")

    def handle(item: Item) -> None:
        try:
            result, goal = work(item)
        except Exception as error:
            log.warning("%s failed at attempt %d: %s", item.id, item.attempt, error)
            raise  # the queue decides: later again, or a dead letter
        job = {name: value for name, value in item.headers.items() if name == HEADER}
        with queue.step(item) as step:
            step.put(kept, result, item.key, job)
            if goal:
                step.put(goals, goal, item.key, job)

    log.info("%s", queue.work(handle, threads=4, retry=RETRY))


def main(words: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if words not in ([], ["feed"], ["move"]):
        sys.exit("usage: 15_two_sports.py [feed | move]")
    topic, results, name = (os.environ[each] for each in ("KQ_TOPIC", "KQ_RESULTS", "KQ_GROUP"))
    topics = dict.fromkeys((topic, results, f"{results}.goals"), kq.QueueTopic(partitions=PARTITIONS))
    try:
        if words:
            db = sqlite3.connect(os.environ["KQ_DATABASE"], timeout=30)
            db.execute(ROWS)
        if words == ["feed"]:
            return feed(db, topic.split(","))
        with kq.connect() as cluster:
            if words == ["move"]:
                with kq.Site(cluster, f"{name}-feed") as site:
                    move(db, site)
            kq.Plan(topics).apply(cluster, quiet=True)  # does nothing where they are there already
            with kq.Site(cluster, name) as site:
                run(site, topic, results)
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
