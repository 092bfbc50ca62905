"""Structured logs: each line is a JSON object, with the fields of kqlib's lines and of your handler's.

    KQ_BOOTSTRAP=127.0.0.1:9092 python examples/recipes/json_logs.py

kqlib gives its fields to `logging` as `extra`, so any formatter finds them in the record. docs/how-to/run-in-production.md lists them.
"""

from __future__ import annotations

import json
import logging
import sys

import kqlib as kq
from kqlib.queue import Item

USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}  # what every record has
log = logging.getLogger("goals")


class AsJson(logging.Formatter):
    """A record as one line of JSON. A package such as python-json-logger does the same."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger and text, then the record's own fields."""
        line = {"time": self.formatTime(record), "level": record.levelname, "logger": record.name}
        line |= {"text": record.getMessage()}
        line |= {name: value for name, value in vars(record).items() if name not in USUAL}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def show(item: Item) -> None:
    """The job. Its first attempt fails."""
    log.info("shown", extra={"queue": item.queue, "item": item.id, "attempt": item.attempt})
    if item.attempt == 1:
        raise ConnectionError("the scoreboard is off")


def main() -> None:
    """Put an item and work until the queue is empty."""
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(AsJson())
    for name in ("kqlib", "goals"):
        logging.getLogger(name).addHandler(lines)
        logging.getLogger(name).setLevel(logging.INFO)
    with kq.connect() as cluster, kq.Site(cluster, "scores") as site:
        queue = site.queue("goals", lease=30)
        queue.put(b"1:0", key=b"ARS-CHE")
        queue.work(show, retry=kq.Retry.exponential(0.1), until="empty")


if __name__ == "__main__":
    main()
