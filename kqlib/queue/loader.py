"""Reads the state of partitions that were just assigned, on a thread of its own: a slow answer delays nothing else.

In:  partitions to load. Out: for each the `Ledger` to start from, or the error that says why there is none.
The order matters: first the notes to their end, then the committed state (after open transactions have ended). The note that this
site has state here is written after a commit. Written before, it would remain if the process lost the partition in between: the
next owner would find the note without a state, and raise `LedgerLost`.

A topic that is deleted and created again has the same name, and the group assigns it at once. The owner of the old topic learns of
it with its next heartbeat. Until then it may commit under this name. So a new owner waits that long, unless it is alone in the group.
"""

from __future__ import annotations

import logging
import queue as queues
import threading
import time
from collections.abc import Callable
from typing import Any

from kqlib.errors import KqError, Unreachable
from kqlib.queue import incidents, state
from kqlib.queue.assigned import Loading
from kqlib.queue.ledger import Ledger
from kqlib.queue.notes import Key, Notes
from kqlib.queue.sender import Sender

log = logging.getLogger("kqlib.queue")


class Loader:
    """A thread that reads states."""

    def __init__(
        self, site: str, looker: state.Looker, notes: Notes, sender: Sender, loaded: Callable[[], None]
    ) -> None:
        self.site = site
        self.looker = looker
        self.notes = notes
        self.sender = sender
        self._loaded = loaded
        self.done: queues.SimpleQueue[Loading] = queues.SimpleQueue()
        self._asked: queues.SimpleQueue[list[Loading]] = queues.SimpleQueue()
        self._stop = threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kq-loader", daemon=True)
        self._thread.start()

    def load(self, loadings: list[Loading]) -> None:
        """Begin to read these. Each goes into `done` when it is read, or has failed."""
        self._idle.clear()
        self._asked.put(loadings)

    def wait(self, seconds: float) -> None:
        """Return when each was tried once, or after so many seconds."""
        self._idle.wait(seconds)

    def close(self) -> None:
        """Stop; what is not read by now is not read."""
        self._stop.set()
        self._asked.put([])
        self._thread.join(0.5)

    def _run(self) -> None:
        batch: list[Loading] = []
        while not self._stop.is_set():
            batch = [each for each in self._and_new(batch) if not each.cancelled]
            self._try(batch)
            for each in batch:
                if each.over:
                    self.done.put(each)
            batch = [each for each in batch if not each.over]
            self._loaded()
            if batch:  # asked again until there is an answer, or the partition was dropped
                self._stop.wait(0.1)

    def _and_new(self, batch: list[Loading]) -> list[Loading]:
        """The batch and what was asked for meanwhile; wait if there is nothing."""
        batch = batch or self._asked.get()
        while not self._asked.empty():
            batch = batch + self._asked.get()
        return batch

    def _try(self, batch: list[Loading]) -> None:
        try:
            if batch:
                self._load(batch)
            if self._asked.empty():
                self._idle.set()
        except Unreachable as error:
            for each in batch:
                each.trouble = str(error.facts["why"])
        except KqError as error:
            for each in batch:
                each.error = error
        except Exception as error:  # a bug must be seen by the verb that waits, not in a thread that died
            log.exception("loading failed")
            for each in batch:
                each.error = KqError(f"The state could not be loaded: {error!r}")

    def _load(self, batch: list[Loading]) -> None:
        self.notes.catch_up()
        seen = self.looker.look([each.at for each in batch], notes=self.notes)
        ledgers: list[tuple[Loading, Ledger]] = []
        new: list[tuple[Key, Any]] = []
        for each in batch:
            each.trouble = self._too_early(each, seen.get(each.at))
            if not each.trouble:
                try:
                    ledger, notes = self._load_one(each, seen[each.at])
                except KqError as error:
                    each.error = error
                    continue
                ledgers.append((each, ledger))
                new += notes
        self.notes.write(new, self.sender)  # before our first commit hides what they say
        for each, ledger in ledgers:
            each.ledger = ledger

    def _load_one(self, each: Loading, seen: incidents.Seen) -> tuple[Ledger, list[tuple[Key, Any]]]:
        """The state of one partition, and the notes to write."""
        queue, number = each.at
        ledger = state.ledger_from(seen, each.on_lost, f"'{queue}', partition {number}")
        ledger.leader = max(ledger.leader, seen.leader)  # the log was compared with this leader's
        each.low = seen.low
        new: list[tuple[Key, Any]] = []
        if seen.committed is None and seen.known and each.on_lost == "latest":
            each.low = max(each.low, min(each.latest, seen.end))
        if seen.committed is not None and not seen.known:
            new.append(((self.site, queue, "state", number), seen.topic_id))
        happened = state.happened(self.notes, self.site, each.at, seen, ledger, own=each.last)
        if seen.committed is not None and not seen.metadata:
            what = "; ".join(map(str, happened.new)) or "Nothing was skipped"
            text = "site %s, %s: another program's commit set the offset to %s; going on from there. %s"
            fields = {"site": self.site, "queue": queue, "partition": number, "reason": what}
            log.warning(text, self.site, each.at, seen.committed, what, extra=fields)
            if happened.last:
                ledger.epoch = max(ledger.epoch, incidents.stored_ledger(happened.last).epoch)
        if happened.new:
            new.append(((self.site, queue, "incidents", number), incidents.note(seen.topic_id, happened.known)))
        each.gone = sum(one.items for one in happened.new if one.why == "removed")
        each.incidents = happened.known
        return ledger, new

    def _too_early(self, each: Loading, seen: incidents.Seen | None) -> str:
        """Why it cannot be loaded yet; '' if it can."""
        if seen is None:
            return f"{each.at} is not there yet"
        if each.was not in ("", seen.topic_id):
            return "its topic was made anew, and the group has not assigned it yet"
        before = self.notes.get(self.site, each.at[0], "state", each.at[1])
        other = before not in (None, seen.topic_id, each.ended) and time.monotonic() < each.since + each.decided_after
        if other and not self.looker.alone():
            return "its topic was made anew, and another process may still have the old one"
        return ""
