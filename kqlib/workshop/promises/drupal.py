"""Two queues of Drupal, to be scored beside others: its own in SQL, and `kq.DrupalQueue`.

    kq.promises({"Drupal's SQL": SqlQueue, "DrupalQueue": Drupal})

In:  a cluster, a topic's name. Out: a queue with the verbs of the checks; `costs` are the ladder's last rows.
`SqlQueue` is Drupal core's DatabaseQueue, in sqlite. It does not use Kafka, so that no accident of a cluster touches it.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kqlib.kafka.cluster import Kafka
from kqlib.queue.drupal import DrupalItem, DrupalQueue
from kqlib.queue.site import Site
from kqlib.workshop.ladder import _lines, rung

TABLE = "CREATE TABLE IF NOT EXISTS queue (item_id INTEGER PRIMARY KEY AUTOINCREMENT, name, data, expire DEFAULT 0)"
FREE = "SELECT item_id, data FROM queue WHERE name = ? AND expire = 0 ORDER BY item_id LIMIT 1"
TAKE = "UPDATE queue SET expire = ? WHERE item_id = ? AND expire = 0 RETURNING item_id"


@dataclass(frozen=True)
class SqlItem:
    """A claimed row."""

    item_id: int
    data: bytes


@rung(commits="0 + 5 SQL", gives_up="Kafka, late acks")
class SqlQueue:
    """A row for each item. A claim writes until when the row is hidden, and a deletion deletes the row."""

    def __init__(self, cluster: Kafka, name: str, lease: float = 30) -> None:
        at = hashlib.sha256(f"{cluster.bootstrap} {name}".encode()).hexdigest()[:12]
        file = Path(tempfile.gettempdir()) / f"kqlib-sql-{at}.db"
        self.name, self.lease, self.lock = name, lease, threading.Lock()
        self.db = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)
        self._sql(TABLE)

    def create(self) -> None:
        """createQueue: one table has all queues."""

    def delete(self) -> None:
        """deleteQueue: its rows go. Nothing marks it as deleted."""
        self._sql("DELETE FROM queue WHERE name = ?", self.name)

    def depth(self) -> int:
        """numberOfItems."""
        [[items]] = self._sql("SELECT count(*) FROM queue WHERE name = ?", self.name)
        return int(items)

    def put(self, data: bytes, key: bytes | None = None) -> None:
        """createItem. There is one order for all items, whatever their keys are."""
        self._sql("INSERT INTO queue (name, data) VALUES (?, ?)", self.name, data)

    def claim(self, lease: float | None = None) -> SqlItem | None:
        """claimItem: read the first free row, and take it if no other process was faster."""
        self.garbage_collection()
        while rows := self._sql(FREE, self.name):
            item = SqlItem(*rows[0])
            if self._sql(TAKE, time.time() + (lease or self.lease), item.item_id):
                return item
        return None

    def ack(self, item: SqlItem) -> None:
        """deleteItem, also if another worker has it by now."""
        self._sql("DELETE FROM queue WHERE item_id = ?", item.item_id)

    def release(self, item: SqlItem, delay: float = 0) -> None:
        """releaseItem, or delayItem."""
        until = time.time() + delay if delay else 0
        self._sql("UPDATE queue SET expire = ? WHERE item_id = ?", until, item.item_id)

    def garbage_collection(self) -> None:
        """What is over is free again. Drupal's cron calls it; here each claim does."""
        self._sql("UPDATE queue SET expire = 0 WHERE expire <> 0 AND expire < ?", time.time())

    def close(self) -> None:
        """Leave; the rows stay."""
        self.db.close()

    def _sql(self, words: str, *values: object) -> list[Any]:
        with self.lock:
            return self.db.execute(words, values).fetchall()


class Drupal:
    """`kq.DrupalQueue` by the names of the checks. The queue that it stands on is counted by its own column."""

    # its own lines, rounded: a table shall not change with each line of kqlib
    costs: ClassVar = {
        "lines · commits an item": f"ledger + {round(_lines(DrupalQueue), -1)} · ≤ 2",
        "gives up": "keys, attempts, steps",
    }

    def __init__(self, cluster: Kafka, name: str) -> None:
        self.site = Site(cluster, f"drupal-{name}")
        self.queue = DrupalQueue(self.site, name)
        self.queue.create_queue()
        self.create = self.queue.create_queue
        self.delete = self.queue.delete_queue
        self.depth = self.queue.number_of_items
        self.ack = self.queue.delete_item
        self.release = self.queue.release_item

    def put(self, data: bytes) -> None:
        """createItem has no key."""
        self.queue.create_item(data.decode())

    def claim(self, lease: float = 30) -> DrupalItem | None:
        """claimItem has no wait."""
        return self.queue.claim_item(lease)

    def close(self) -> None:
        """Leave."""
        self.site.close()
