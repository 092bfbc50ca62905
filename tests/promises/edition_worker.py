"""A worker of a site as a program of its own. Both editions of kqlib run it: PYTHONPATH says which one.

In:  bootstrap, site and topic; settings of the site as JSON. SIGTERM lets running handlers end.
Out: a JSON line when an item's handler begins: the time, its key, its data, its attempt.
Data that begins with `again` fails at the first attempt, `bury` at each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

try:
    from kqlib.kafka import Kafka
except ImportError:  # 0.1
    from kqlib.broker.kafka import Kafka  # type: ignore[no-redef,import-not-found,unused-ignore]
from kqlib.queue import Retry, Site


def handle(item: Any) -> None:
    """Say that it begins; a line in one write, for two threads do it."""
    line = json.dumps([time.monotonic(), item.key.decode(), item.data.decode(), item.attempt])
    os.write(1, f"{line}\n".encode())
    if item.data.startswith(b"bury") or (item.data.startswith(b"again") and item.attempt == 1):
        raise ValueError("it fails on purpose")


if __name__ == "__main__":
    bootstrap, name, topic, settings = sys.argv[1:]
    with Site(Kafka(bootstrap), name, **json.loads(settings)) as site:
        site.queue(topic, order="key", max_attempts=3).work(handle, threads=2, retry=Retry.fixed(0.05))
