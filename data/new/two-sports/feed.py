"""Takes the provider's feed: rows as lines of JSON become items in the queue of their sport.

Promise: no row that was stored is lost, and a row that comes again is no second item, wherever this is killed. A row and its job are
one transaction of the database. Only a mover that dies between Kafka's answer and its own commit puts its last jobs twice.

    python feed.py < rows.jsonl    # stores the rows
    python feed.py move            # moves the jobs to Kafka, until it is killed

KQ_BOOTSTRAP names the cluster, KQ_KAFKA_CONFIG a file with its settings, FEED_DB the database (default: feed.db).
Exit status: 0 all rows are stored, 1 some are no events: they are in the table `bad`, with the reason, 2 an error.
"""

import json
import logging
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import kqlib as kq
from events import SCHEMA, SITE, SPORTS, SUBJECT
from kqlib.virtual.outbox import Outbox

TABLES = """
CREATE TABLE IF NOT EXISTS feed (league, number, PRIMARY KEY (league, number));
CREATE TABLE IF NOT EXISTS bad (line PRIMARY KEY, reason);
"""
log = logging.getLogger("feed")


def database(path: str) -> sqlite3.Connection:
    """The database, with its tables."""
    db = sqlite3.connect(path, timeout=30)
    db.executescript(TABLES)
    return db


def encoded(codec: kq.schemas.Codec, line: str) -> tuple[dict[str, Any], bytes]:
    """A row of the feed, and its event as bytes. A field that the schema does not have is left out."""
    row = json.loads(line)
    event = {field["name"]: row[field["name"]] for field in SCHEMA["fields"] if field["name"] in row}
    if event.get("league") not in SPORTS:
        raise ValueError(f"the league is one of {', '.join(SPORTS)}")
    return event, codec.encode(event)


def store(db: sqlite3.Connection, outbox: Outbox, codec: kq.schemas.Codec, lines: Iterable[str]) -> int:
    """Store each new row and its job: both, or neither. How many rows are no events."""
    bad = 0
    for line in lines:
        try:
            event, data = encoded(codec, line)
        except (ValueError, TypeError, kq.errors.BadPayload) as error:
            bad += 1
            log.warning("no event: %s: %s", error, line.strip())
            with db:
                db.execute("INSERT OR REPLACE INTO bad VALUES (?, ?)", (line, str(error)))
            continue
        with db:
            row = event["league"], event["number"]
            if db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", row).rowcount:
                outbox.add(event["league"], data, key=event["game"].encode())
    return bad


def move(outbox: Outbox, queue: Callable[[str], Any]) -> None:
    """Move all jobs that wait. While Kafka is away, they wait on."""
    try:
        while outbox.move(queue):
            pass
    except kq.errors.KqError as error:
        log.warning("the jobs wait: %s", error)


def main(words: list[str]) -> int:
    """Store the rows of standard input, or move the jobs."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if words not in ([], ["move"]):
        log.error("usage: feed.py [move]")
        return 2
    try:
        with kq.connect() as cluster, closing(database(os.environ.get("FEED_DB", "feed.db"))) as db:
            outbox = Outbox(db)
            if not words:
                codec = kq.schemas.Registry(cluster=cluster).codec(SUBJECT, SCHEMA)
                return 1 if store(db, outbox, codec, sys.stdin) else 0
            with kq.Site(cluster, f"{SITE}-feed") as site:
                while True:
                    move(outbox, lambda name: site.queue(name, max_attempts=None))
                    time.sleep(0.1)
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
