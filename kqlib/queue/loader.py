"""Reads the state of partitions that were just assigned, on a thread of its own: a slow answer holds up nobody else.

In:  partitions to load. Out: for each the `Ledger` to start from, or the error that says why there is none.
The order matters: notes to their end, then the committed state (after open transactions have ended), then the note that
this site has state here, durable before the first commit of a ledger.
"""

from __future__ import annotations

import logging
import queue as queues
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kqlib.errors import KqError, Unreachable
from kqlib.queue import state
from kqlib.queue.ledger import Ledger
from kqlib.queue.notes import Notes
from kqlib.queue.sender import Sender

At = tuple[str, int]
log = logging.getLogger("kqlib.queue")


@dataclass(eq=False)
class Loading:
    """One partition on its way in. A newer assignment of the same one is another object."""

    at: At
    on_lost: str
    ledger: Ledger | None = None
    low: int = 0
    error: KqError | None = None
    trouble: str = ""  # why it takes so long
    wanted: bool = field(default=True)


class Loader:
    """A thread that loads."""

    def __init__(
        self, site: str, looker: state.Looker, notes: Notes, sender: Sender, loaded: Callable[[], None]
    ) -> None:
        self.site, self.looker, self.notes, self.sender, self._loaded = site, looker, notes, sender, loaded
        self.done: queues.SimpleQueue[Loading] = queues.SimpleQueue()
        self._asked: queues.SimpleQueue[list[Loading] | None] = queues.SimpleQueue()
        self._stop, self._idle = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="kq-loader", daemon=True)
        self._thread.start()

    def load(self, loadings: list[Loading]) -> None:
        """Begin; what is loaded comes out of `done`."""
        self._idle.clear()
        self._asked.put(loadings)

    def wait(self, seconds: float) -> None:
        """Return when nothing is being loaded, or after so long."""
        self._idle.wait(seconds)

    def close(self) -> None:
        """Stop; what is not loaded by now never is."""
        self._stop.set()
        self._asked.put(None)
        self._thread.join(0.5)

    def _run(self) -> None:
        while (batch := self._asked.get()) is not None:
            while (batch := [each for each in batch if each.wanted]) and not self._stop.is_set():
                try:
                    self._load(batch)
                    break
                except Unreachable as error:  # asked again until it answers, or nobody wants it any more
                    for each in batch:
                        each.trouble = str(error.facts["why"])
                    self._stop.wait(0.1)
                except KqError as error:
                    for each in batch:
                        each.error = error
                    break
                except Exception as error:  # a bug must be seen where somebody waits, not in a thread that died
                    log.exception("loading failed")
                    for each in batch:
                        each.error = KqError(f"The state could not be loaded: {error!r}")
                    break
            for each in batch:
                self.done.put(each)
            if self._asked.empty():
                self._idle.set()
            self._loaded()

    def _load(self, batch: list[Loading]) -> None:
        self.notes.catch_up()
        seen = self.looker.look([each.at for each in batch])
        new = []
        for each in batch:
            if each.at not in seen:
                raise Unreachable(address=self.looker.cluster.bootstrap, why=f"{each.at} is not there yet")
            key = (self.site, each.at[0], "state", each.at[1])
            known = self.notes.get(*key) == seen[each.at].topic_id
            try:
                each.ledger = state.ledger_from(
                    seen[each.at], known, each.on_lost, f"'{each.at[0]}', partition {each.at[1]}"
                )
            except KqError as error:
                each.error = error
                continue
            each.low = seen[each.at].low
            if not known:
                new.append((key, seen[each.at].topic_id))
        self.notes.write(new, self.sender)
