"""Reads the state of partitions that were just assigned, on a thread of its own: a slow answer holds up nobody else.

In:  partitions to load. Out: for each the `Ledger` to start from, or the error that says why there is none.
The order matters: notes to their end, then the committed state (after open transactions have ended). The note that this site
has state here is written when a commit is there, never before: a process that lost the partition in between would leave a loss behind.

A topic that is deleted and made again keeps its name, and the group hands it out anew, at once and to anybody, while who had the
old one hears of it with its next heartbeat. Until then that one may commit under this name; so a new owner waits as long,
unless there is nobody else.
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
        self.site, self.looker, self.notes, self.sender, self._loaded = site, looker, notes, sender, loaded
        self.done: queues.SimpleQueue[Loading] = queues.SimpleQueue()
        self._asked: queues.SimpleQueue[list[Loading]] = queues.SimpleQueue()
        self._stop, self._idle = threading.Event(), threading.Event()
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
            if batch:  # asked again until it answers, or nobody wants it any more
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
        new: list[tuple[Key, Any]] = []
        for each in batch:
            each.trouble = self._too_early(each, seen.get(each.at))
            if each.trouble:
                continue
            key = (self.site, each.at[0], "state", each.at[1])
            known = seen[each.at].known
            try:
                each.ledger = state.ledger_from(seen[each.at], each.on_lost, f"'{each.at[0]}', partition {each.at[1]}")
            except KqError as error:
                each.error = error
                continue
            each.low = seen[each.at].low
            each.ledger.leader = max(each.ledger.leader, seen[each.at].leader)  # the log was compared with this one's
            if known and seen[each.at].committed is None and each.on_lost == "latest":
                each.low = max(each.low, min(each.latest, seen[each.at].end))
            if not known and seen[each.at].committed is not None:
                new.append((key, seen[each.at].topic_id))
            new += self._incidents(each, seen[each.at])
        self.notes.write(new, self.sender)

    def _incidents(self, each: Loading, seen: incidents.Seen) -> list[tuple[Key, Any]]:
        """Find the incidents of this partition. The notes to write, if they are new: before our first commit hides them."""
        assert each.ledger is not None
        where, now = (self.site, *each.at), int(time.time() * 1000)
        key: Key = (self.site, each.at[0], "incidents", each.at[1])
        before = incidents.noted(self.notes.get(*key), seen.topic_id, seen.low)
        last = incidents.newest(seen.topic_id, each.last, incidents.last(self.notes.get(*where[:2], "last", where[2])))
        mark = self.notes.purge_mark(*where, seen.topic_id)
        found = incidents.found(seen, each.ledger, last, mark, now)
        if seen.committed is not None and not seen.metadata:
            what = "; ".join(map(str, found)) or "Nothing was skipped"
            text = "site %s, %s: another program's commit set the offset to %s; going on from there. %s"
            log.warning(text, self.site, each.at, seen.committed, what)
            if last:
                each.ledger.epoch = max(each.ledger.epoch, Ledger.read(last[1], last[0]).epoch)
        each.gone = sum(one.items for one in found if one.why == "removed")
        after = self.notes.mark(*where, seen.topic_id, kind="rewind")
        each.incidents = incidents.together(before, found, after)
        return [(key, incidents.note(seen.topic_id, each.incidents))] if found else []

    def _too_early(self, each: Loading, seen: incidents.Seen | None) -> str:
        """Why it cannot be loaded yet; '' if it can."""
        if seen is None:
            return f"{each.at} is not there yet"
        if each.was not in ("", seen.topic_id):
            return "its topic was made anew, and the group has not assigned it yet"
        before = self.notes.get(self.site, each.at[0], "state", each.at[1])
        other = before not in (None, seen.topic_id, each.ended) and time.monotonic() < each.since + each.patience
        if other and not self.looker.alone():
            return "its topic was made anew, and another process may still have the old one"
        return ""
