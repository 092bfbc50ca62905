"""The topic kq.queues: what all processes must know beside the ledgers.

In:  notes written by any process. Out: the last one of each key, read continuously by a consumer in no group.

    [site, queue, "terms"]                {"order": "any", "max_attempts": 5}    remembered; another value is NotAllowed
    [site, queue, "status"]               "available" or "deleted"
    [site, queue, "state", partition]     topic id: this site has state here; its absence is then a loss
    [site, queue, "purge", partition]     {"topic": id, "offset": end}           everything below counts as done
    [site, queue, "purged", partition]    the same: that mark was applied, and is not applied again
    [site, queue, "last", partition]      {"floor": 41, "text": …}: a committed state of ours, beside which another program's commit
                                          is judged. Written by each new owner, when it gives up the partition, and once a minute
    [site, queue, "incidents", partition] {"topic": id, "incidents": […]}        see `incidents`; written by the owner
    [site, queue, "rewind", partition]    {"topic": id, "offset": time, "back": true}   incidents up to this time (milliseconds) are
                                          put back by the owner, or forgotten (back: false); then they leave the note above

A record's key is the first column as JSON, its value the second. Compacted: the last record of a key stays.
Of terms the first record counts, so that of two processes that create a queue at the same moment one wins. A process
that opens the queue and finds other terms behind the first ones (`contested`) writes the first ones again, before compaction could
forget them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from kqlib.errors import KqError, Unreachable
from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import LOOKER, answered, patient
from kqlib.queue.answers import first, is_refused, not_there, refused
from kqlib.queue.clients import Kept, judge
from kqlib.queue.rights import READ_NOTES, WRITE_NOTES
from kqlib.queue.sender import Record, Sender, Sent
from kqlib.topic_rules import QUEUES

log = logging.getLogger("kqlib.queue")
PATIENCE = 10.0
UNCHANGED = "Nothing was changed."
Key = tuple[Any, ...]


class Notes:
    """What kq.queues says now; a thread reads it."""

    def __init__(self, cluster: Kafka, changed: Callable[[], None]) -> None:
        self.cluster = cluster
        self._on_change = changed
        _ensure(cluster)
        self._values: dict[Key, Any] = {}
        self.contested: set[Key] = set()  # terms behind which other ones stand
        self._position = 0
        self._changed = threading.Condition()
        self._stop = False
        self._suspected = False  # the consumer gave no answer: is it dead?
        self._refused: KafkaError | None = None  # why nothing is read
        self._anew = False  # ask with another consumer whether that still holds
        self._warned = False
        self._kept = Kept(cluster, self._made)
        self._thread = threading.Thread(target=self._read, name="kq-notes", daemon=True)
        self._thread.start()
        try:
            self.catch_up()
        except BaseException:
            self.close()
            raise

    def _made(self) -> Consumer:
        quick = {"fetch_wait_max_ms": 500, "group_protocol": "classic"}
        reader = Consumer(self.cluster.client(group_id=LOOKER, enable_partition_eof=True, **quick))
        reader.assign([TopicPartition(QUEUES, 0, self._position)])
        return reader

    def get(self, *key: Any) -> Any:
        """The last note of this key; None if there is none."""
        return self._values.get(key)

    def keys(self) -> list[Key]:
        """The keys of all notes."""
        with self._changed:
            return sorted(self._values, key=str)

    def mark(self, site: str, queue: str, partition: int, topic_id: str, kind: str = "purge") -> int:
        """Up to where a purge mark reaches, for this very topic; 0: none."""
        mark = self.get(site, queue, kind, partition)
        return mark["offset"] if isinstance(mark, dict) and mark.get("topic") == topic_id else 0

    def purge_mark(self, site: str, queue: str, partition: int, topic_id: str) -> int:
        """Up to where a purge mark reaches that was not applied yet; 0: none."""
        mark = self.mark(site, queue, partition, topic_id)
        return mark if mark > self.mark(site, queue, partition, topic_id, kind="purged") else 0

    def write(self, notes: Sequence[tuple[Key, Any]], sender: Sender) -> None:
        """Return when these are durable, and this process has read them."""
        if not notes:
            return
        sent = sender.send(QUEUES, (_record(key, value) for key, value in notes), len(notes))
        errors, safe = sent.errors.values(), f"It may have been stored in '{QUEUES}', or not."
        if len(errors) == len(notes) and all(map(is_refused, errors)):
            safe = UNCHANGED
        for error in errors:
            raise refused(error, self.cluster, f"write to '{QUEUES}'", WRITE_NOTES, safe, topic=QUEUES)
        if None in sent.ids:
            raise Unreachable(address=self.cluster.bootstrap, why=f"no answer to a note. {safe}".rstrip("."))
        end = max(int(id_.rpartition("/")[2]) for id_ in sent.ids if id_) + 1
        self._until(end, safe=f"It is stored in '{QUEUES}' and takes effect.")

    def post(self, notes: Sequence[tuple[Key, Any]], sender: Sender, failed: Callable[[KafkaError], None]) -> Sent:
        """Write without waiting; `failed` is called with an error. The first failure is logged as a warning."""

        def unwritten(error: KafkaError) -> None:
            if not self._warned:
                self._warned = True
                safe = "It goes with the next commit. Until it is there, a lost state may go unnoticed"
                fields = {"topic": QUEUES, "reason": error.str()}
                log.warning("a note could not be written to '%s': %s. %s", QUEUES, error.str(), safe, extra=fields)
            failed(error)

        return sender.post(QUEUES, (_record(key, value) for key, value in notes), len(notes), unwritten)

    def catch_up(self) -> None:
        """Return when everything that is in the topic now has been read."""
        try:
            end = patient(self._end, PATIENCE, partial(judge, self.cluster))
        except (KafkaException, TimeoutError) as error:
            raise self._unread(first(error) if isinstance(error, KafkaException) else None) from None
        self._until(end)

    def _end(self) -> int:
        admin, part = self.cluster.admin, TopicPartition(QUEUES, 0)
        return int(answered(admin.list_offsets({part: OffsetSpec.latest()}, request_timeout=5)[part].result(6)).offset)

    def _until(self, position: int, safe: str = UNCHANGED) -> None:
        def there() -> bool:
            return self._position >= position or self._refused is not None

        with self._changed:
            if self._refused is not None and self._position < position:
                # the right may be there again: a client tells of a refusal once, and tries again later
                self._refused, self._anew = None, True
            if not self._changed.wait_for(there, PATIENCE / 3):
                self._suspected = True
                self._changed.wait_for(there, PATIENCE * 2 / 3)
            if self._position < position:
                raise self._unread(self._refused, safe)

    def _unread(self, error: KafkaError | None, safe: str = UNCHANGED) -> KqError:
        """Why the notes could not be read to their end."""
        if error is None:
            why = f"'{QUEUES}' could not be read to its end. {safe}"
            return Unreachable(address=self.cluster.bootstrap, why=why.rstrip("."))
        return refused(error, self.cluster, f"read '{QUEUES}'", READ_NOTES, safe)

    def _read(self) -> None:
        while not self._stop:
            with suppress(KafkaException):
                reader = self._kept.now()
                message = reader.poll(0.2)
                if message is not None:
                    self._take([message, *reader.consume(500, 0)])
                if self._anew:
                    self._anew = False
                    self._kept.close()
                if self._suspected:
                    self._suspected = False
                    self._kept.dead()
        self._kept.close()

    def _take(self, messages: list[Any]) -> None:
        with self._changed:
            for message in messages:
                error = message.error()
                if error is None:
                    self._note(message)
                    self._position = message.offset() + 1
                    self._refused = None
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._position = max(self._position, message.offset())
                    self._refused = None
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    self._refused = error
            self._changed.notify_all()
        self._on_change()

    def _note(self, message: Any) -> None:
        with suppress(ValueError, TypeError, RecursionError):  # another program's record
            key = tuple(json.loads(message.key()))
            value = None if message.value() is None else json.loads(message.value())
            old = self._values.get(key)
            self.contested.discard(key)
            if value is None:
                self._values.pop(key, None)
            elif old is not None and key[2:] == ("terms",):
                if value != old:
                    self.contested.add(key)
            else:
                self._values[key] = merged(old, value)

    def close(self) -> None:
        """Stop reading."""
        self._stop = True
        self._thread.join(1.0)


def merged(old: Any, new: Any) -> Any:
    """Marks of one topic are merged by maximum: two who purge at once both get what they saw."""
    if isinstance(old, dict) and isinstance(new, dict) and "offset" in old and old.get("topic") == new.get("topic"):
        return new | {"offset": max(old["offset"], new.get("offset", 0))}
    return new


def _record(key: Key, value: Any) -> Record:
    return None if value is None else json.dumps(value).encode(), json.dumps(key).encode(), None, 0


def _ensure(cluster: Kafka) -> None:
    """Create the topic if the plan did not, and this user may."""
    deadline = time.monotonic() + PATIENCE
    try:
        if QUEUES in patient(lambda: cluster.admin.list_topics(timeout=5).topics, PATIENCE, partial(judge, cluster)):
            return
    except KafkaException as error:
        raise Unreachable(address=cluster.bootstrap, why=first(error).str()) from None
    asked = cluster.admin.create_topics([NewTopic(QUEUES, 1, config={"cleanup.policy": "compact"})])
    try:
        asked[QUEUES].result(PATIENCE)
    except KafkaException as error:
        if first(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise not_there(cluster, QUEUES) from None
    cluster.wait_for_topic(QUEUES, 1, max(1.0, deadline - time.monotonic()))
