"""Redrive: choose dead letters, and put them back into a queue.

In:  a queue, a choice. Out: `Redriven`: how many went back, which of the chosen letters stay dead, and why. A letter is claimed to
look at it. One that does not go back is made due later, or it would be claimed again at once. At the end it is due again.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqlib.errors import KqError, NotAllowed
from kqlib.queue import dead, look, state
from kqlib.queue.claim import Claiming
from kqlib.queue.item import Item, Out, batches
from kqlib.queue.partition import Partition
from kqlib.queue.transactions import Ack, Ending

log = logging.getLogger("kqlib.queue")
AT_ONCE = 500  # letters that are claimed together
LEASE = 120.0  # seconds: more than a transaction takes
BLOCKED = 5.0  # seconds that a claim waits for more letters to be read, when there is space in memory again
MOST_DEATHS = 3  # then only force puts it back
NAMED = 10  # refused letters that are named in the log


class Redriven(int):
    """How many letters went back, or would go. `refused`: the chosen ones that stay dead, and why."""

    refused: dict[str, str]

    def __new__(cls, many: int, refused: dict[str, str]) -> Redriven:
        made = super().__new__(cls, many)
        made.refused = refused
        return made


@dataclass(frozen=True)
class Choice:
    """Which letters are chosen: those that fit all that is given."""

    ids: frozenset[str] | None = None
    reason: str | None = None
    since: datetime | None = None

    def __call__(self, letter: Item) -> bool:
        """Is this letter chosen?"""
        return (
            (self.ids is None or not self.ids.isdisjoint((letter.id, _header(letter, "kq-origin"))))
            and (self.reason is None or _has(_header(letter, "kq-reason"), self.reason))
            and (self.since is None or letter.created >= self.since)
        )


def chosen(ids: Collection[str] | None, reason: str | None, since: datetime | None) -> Choice:
    """What `redrive` was given, checked."""
    if ids is not None:
        if isinstance(ids, str) or not isinstance(ids, Collection):
            raise NotAllowed(f"ids is a list of ids, as in ids=['football.dead/3/41'], not {ids!r}")
        for each in ids:
            look.place(each)
    if reason is not None and (not isinstance(reason, str) or not reason):
        raise NotAllowed(f"reason is a text that is in the letters' reasons, not {reason!r}")
    if since is not None and (not isinstance(since, datetime) or since.tzinfo is None):
        raise NotAllowed(f"since is a time with its zone, as in datetime(2026, 5, 1, tzinfo=UTC), not {since!r}")
    return Choice(None if ids is None else frozenset(ids), reason, since)


def _header(letter: Item, name: str) -> str:
    return (letter.headers.get(name) or b"").decode(errors="replace")


def _has(text: str, words: str) -> bool:
    """Are these words in the text, from the beginning of a word on? `ValueError` is not in `BadValueError`."""
    return re.search(rf"(?:(?<!\w)|(?!\w)){re.escape(dead.writable(words))}", text) is not None


def into_queue(queue: Claiming, into: Any) -> Claiming:
    """Where letters go."""
    if into is None:
        return queue
    if not isinstance(into, Claiming) or into.site is not queue.site:
        raise NotAllowed(f"into is a queue of this site, as in into=site.queue('football'), not {into!r}")
    if into.name.endswith(dead.DEAD):
        raise NotAllowed(f"'{into.name}' holds dead letters: they go back into a queue")
    return into


def broken_off(error: KqError, moved: int) -> KqError:
    """The same error. It also says how many letters went back before it."""
    more = f" Dead letters that went back before this error: {moved}."
    return type(error)(**error.facts, more=more) if moved else error


class Redrive:
    """One call of `redrive`."""

    def __init__(self, letters: Claiming, into: Claiming, choice: Choice, *, dry_run: bool, force: bool) -> None:
        self.letters = letters
        self.into = into
        self.choice = choice
        self.dry_run = dry_run
        self.force = force
        self.moved = 0
        self._blocked = ""
        self.refused: dict[str, str] = {}
        self._missing = set(choice.ids or ())
        self._held_back = defaultdict[Partition, set[int]](set)
        into.site._notes.catch_up()
        into._usable()
        self._limit = into.site._facts(into.name)[0].limit  # as it is now
        parts = [(letters.name, number) for number in into.site.cluster.partitions(letters.name)]
        self._ends = state.ends(into.site.cluster, parts)  # what dies again meanwhile is not put back again

    def run(self, most: int) -> Redriven:
        """Look at letters until so many went back, all named ones were found, or there are no more letters."""
        try:
            while self.moved < most and (self._missing or self.choice.ids is None):
                at_once = AT_ONCE if self.choice != Choice() else min(AT_ONCE, most - self.moved)
                items = self._claim(at_once)
                self._look_at(items, most - self.moved)
                if not any(map(self._is_older, items)):
                    self._blocked = "" if items else self.letters.blocked
                    break
            else:
                self._missing.clear()  # not looked for any more
        except KqError as error:  # it is about the last transaction; those before it are done
            raise broken_off(error, 0 if self.dry_run else self.moved) from None
        finally:
            self._make_due()
        why = self._blocked or "it is done already, it is claimed, or another process has its partition"
        self.refused |= dict.fromkeys(sorted(self._missing), f"it was not found: {why}")
        self._tell()
        return Redriven(self.moved, self.refused)

    def _claim(self, most: int) -> list[Item]:
        items = self.letters.claim_many(most, lease=LEASE)
        # What is held back may be what fills the memory: it is read again when it is due.
        if not items and self.letters.blocked:
            with self.letters._session.changed:
                for partition in self._held_back:
                    partition.drop_payloads()
            items = self.letters.claim_many(most, lease=LEASE, wait=BLOCKED)
        return items

    def _look_at(self, items: list[Item], most: int) -> None:
        going: dict[Item, Out] = {}
        try:
            for item in items:
                meant = len(going) < most and self._is_older(item) and self.choice(item)
                if meant and (out := self._out(item)) is not None:
                    going[item] = out
            self._hold_back([item for item in items if self.dry_run or item not in going])
            # Kafka refuses a batch that is larger than its topic takes as a whole.
            for some in batches(going, lambda item: going[item].size, self._limit):
                if not self.dry_run:
                    self._move(some, [going[item] for item in some])
                self.moved += len(some)
        except BaseException:
            self.letters._unclaim(items)
            raise

    def _is_older(self, letter: Item) -> bool:
        """Was it buried before this call began?"""
        return letter.offset < self._ends.get((letter.queue, letter.partition), 0)

    def _out(self, letter: Item) -> Out | None:
        """The record that puts it back; None: it stays dead, and why is noted."""
        origin, cut = _header(letter, "kq-origin"), _header(letter, "kq-cut")
        self._missing -= {letter.id, origin}
        out = dead.back(letter.record, self.into.name, self.into.site.name)
        died = dead.deaths(letter.record)
        why = ""
        if "headers" in cut:  # and perhaps the data, which are cut last
            why = f"{cut.removeprefix('reason, ')} did not fit into the letter. The original is {origin}, in its log"
        elif out.size > self._limit:
            why = f"it would take {out.size} bytes and '{self.into.name}' takes {self._limit}. The original is {origin}"
        elif died >= MOST_DEATHS and not self.force:
            why = f"it was dead {died} times. force puts it back all the same"
        if why:
            self.refused[letter.id] = why
        return None if why else out

    def _move(self, some: list[Item], outs: list[Out]) -> None:
        """Put these back and ack their letters, all or nothing."""
        self.into._usable()
        with self.letters._session.changed:
            acks = [Ack(self.letters._held(item), item.offset, item.lease) for item in some]
            self.into.site._end(Ending(outs, acks))

    def _hold_back(self, items: list[Item]) -> None:
        """Make these due at the end only. That is kept in memory: if this process dies, they are due at once."""
        with self.letters._session.changed:
            for item in items:
                with suppress(KqError):  # its partition went to another process
                    partition = self.letters._held(item)
                    partition.unclaim(item.offset, float("inf"))
                    self._held_back[partition].add(item.offset)

    def _make_due(self) -> None:
        """Make the letters due again that were held back."""
        with self.letters._session.changed:
            for partition, offsets in self._held_back.items():
                partition.order.due_now(offsets)
            self.letters._session.changed.notify_all()

    def _tell(self) -> None:
        if self._blocked:
            fields = {"queue": self.letters.name, "reason": self._blocked}
            log.warning("'%s': not every letter was looked at: %s", self.letters.name, self._blocked, extra=fields)
        for id_, why in list(self.refused.items())[:NAMED]:
            fields = {"queue": self.letters.name, "item": id_, "reason": why}
            log.warning("%s was not put back: %s", id_, why, extra=fields)
        if (more := len(self.refused) - NAMED) > 0:
            fields = {"queue": self.letters.name}
            log.warning("'%s': %d more were not put back", self.letters.name, more, extra=fields)
