"""Membership and all talk with the group's coordinator: one thread a site owns the Consumer, every commit and every callback.

In:  what other threads want (items, a commit, an ending), left under one lock. Out: owners with records, ledgers committed.
Others wait on `changed`; this thread waits in poll() while somebody is hungry, else for `wake`. confluent-kafka serialises a
Consumer, so a second thread in any of its methods would wait for the poll. What the group gives and takes is in `partitions`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kqlib.errors import Unreachable
from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.queue import state
from kqlib.queue.clients import HOLDS, judge
from kqlib.queue.commits import STUCK, Commits, GivenUp
from kqlib.queue.ending import Endings
from kqlib.queue.fetch import SETTINGS, Fetch
from kqlib.queue.heartbeats import Heartbeats
from kqlib.queue.loader import At, Loader
from kqlib.queue.notes import Notes
from kqlib.queue.partition import Partition
from kqlib.queue.partitions import LAST, Partitions
from kqlib.queue.said import fatal, first
from kqlib.queue.sender import Sender
from kqlib.queue.wanted import LONG, Wanted

log = logging.getLogger("kqlib.queue")

AGAIN = 2.0  # seconds until the next consumer, after two that ended for the same reason
PATIENCE = 30.0  # seconds until somebody who waits for a commit is told


class Member(Partitions):
    """This process in the site's group."""

    def __init__(
        self, cluster: Kafka, site: str, notes: Notes, sender: Sender, loader: Callable[[Partitions], Loader]
    ) -> None:
        super().__init__(cluster, site, notes, loader)
        self.sender = sender
        self.wanted = Wanted()
        self.begun: dict[str, float] = {}  # topic -> when its first claim began to wait for what the group says
        self.hungry: dict[str, int] = defaultdict(int)  # topic -> claims that wait
        self.endings, self.fetch, self.commits = Endings(self), Fetch(self), Commits(self)
        self._subscribed: set[str] = set()
        self._active = 0.0  # when something last moved
        self.next_try = 0.0  # of a commit or a subscription, after one that failed
        self._minded = 0.0
        self.doubted, self._turn = False, cluster.turn  # doubted: this thread is to judge its consumer
        self._stop = False
        self._thread = self._new_thread()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"kq-site-{self.site}", daemon=True)

    # --- asked by other threads, with `changed` held ---

    def start(self) -> None:
        """Begin, once."""
        if not self._thread.ident:
            self._thread.start()

    def save(self, owners: Iterable[Partition]) -> None:
        """Return when what the ledgers say now is committed; a partition lost meanwhile is the caller's to notice."""
        wanted = [(owner, owner.version) for owner in owners]
        for owner, version in wanted:
            owner.wanted = max(owner.wanted, version)
        self._active = time.monotonic()
        self.wake.set()
        deadline = time.monotonic() + PATIENCE
        while not all(o.saved >= version or o.dropped for o, version in wanted):
            if (left := deadline - time.monotonic()) <= 0:
                why = self.trouble or f"no answer to a commit in {PATIENCE:g} s"
                raise Unreachable(address=self.cluster.bootstrap, why=why)
            self.committed.wait(min(1.0, left))
            self.unstick()

    def unstick(self) -> None:
        """The site's thread stands in a commit that never ends, and the cluster is there: another consumer, another thread."""
        commits = self.commits
        if commits.stuck() and self.closing is None:
            answers = False
            self.changed.release()
            try:
                with suppress(Unreachable):  # asked again in a second
                    answers = bool(state.topic_ids(self.cluster, sorted(self.terms), 2.0))
            finally:
                self.changed.acquire()
            if answers and commits.stuck() and commits is self.commits:
                self.renew(f"a commit was not answered for {STUCK:g} s")

    def renew(self, why: str) -> None:
        """This consumer is of no use any more: leave it and its thread behind, give up what it had, and join anew."""
        known, self.left = self.left == why, why
        log.log(
            logging.INFO if known else logging.WARNING,
            "site %s: %s; joining anew with another consumer",
            self.site,
            why,
        )
        self.commits.given_up = True
        for at in [*self.owners, *self._loading, *self.broken]:
            self._drop(at, f"{why}, and the partition was given up")
        self.consumer, self._subscribed, self.next_try = None, set(), time.monotonic() + (AGAIN if known else 0.5)
        self.group = None
        self.fetch, self.commits = Fetch(self), Commits(self)
        for topic in self.joined:
            self.begun.pop(topic, None)
        self.joined = set()
        self._thread = self._new_thread()
        self._thread.start()
        self.changed.notify_all()

    # --- the thread ---

    def _run(self) -> None:
        commits = self.commits
        while not self._stop:
            try:
                self._subscribe()
                self._reread()
                self._take_loaded()
                self._introduce()
                self.commits.run()
                self._mind()
                self.fetch.aim()
                self.fetch.read()
            except GivenUp:
                commits.bury()
                return
            except Exception as error:  # never a silent end: those who wait are told why
                if fatal(error) and self._leave(error):
                    return
                log.exception("the site's thread met something unforeseen")
                self.trouble = repr(error)
                for owner in self.owners.values():
                    owner.window.position = -1  # records may have been read and not kept: read them again
                time.sleep(0.05)
        self._finish()

    def _leave(self, error: Exception) -> bool:
        """The client says that this consumer is dead: another one, on another thread. Not when the site closes anyway.

        Seen: INVALID_REQUEST to a heartbeat. Reset while it is to join again, it goes on as if it had (librdkafka 5541).
        """
        with self.changed:
            if self.closing is not None or self._stop:
                return False
            dead = self.consumer
            self.renew(f"its consumer ended ({error.args[0].str()})")
        with suppress(KafkaException, RuntimeError):
            dead.close()
        return True

    def _subscribe(self) -> None:
        now = time.monotonic()
        with self.changed:
            wanted = self.wanted.topics(now, self._leases, self._stored)
        if wanted == self._subscribed or now < self.next_try:
            return
        try:
            if self.consumer is None:
                self.consumer = self._consumer()
            if wanted:
                how = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
                self.consumer.subscribe(sorted(wanted), **how)
            else:
                self.consumer.unsubscribe()
            self._subscribed = wanted
            with self.changed:
                self.joined &= wanted
                self.begun = {topic: at for topic, at in self.begun.items() if topic in wanted}
        except KafkaException as error:
            self.trouble, self.next_try = first(error).str(), now + 0.5

    def _stored(self, topic: str) -> bool:
        return bool(self.owners_of(topic)) and self.loading(topic) is None

    def _leases(self, topic: str) -> bool:
        return any(bool(o.leases or o.ending) for (name, _), o in self.owners.items() if name == topic)

    def _consumer(self) -> Any:
        self.heartbeats = Heartbeats(self.cluster, self.site, self.told + self.drain)
        settings = {
            "group.id": self.site,
            **SETTINGS,
            **self.heartbeats.settings(),
            "error_cb": self.complain,
        }
        return Consumer(self.cluster.client(**settings))

    # --- now and then ---

    def _mind(self) -> None:
        now = time.monotonic()
        if now - self._minded < 0.2:
            return
        self._minded = now
        if self.doubted or self._turn != self.cluster.turn:
            self._judge()
        if self.consumer is not None and self.heartbeats.missed(self.consumer, self._have()):
            raise KafkaException(KafkaError(KafkaError._FATAL, "it missed what the coordinator gave or took"))
        self.fetch.look_at_gaps()
        with self.changed:
            for at, owner in self.owners.items():
                self._mark(at, owner)
                self.note(at, owner)
                if now - owner.saved_at > LONG:
                    owner.changed()
                    owner.wanted = owner.version

    def _have(self) -> set[At]:
        with self.changed:
            return {*self.owners, *self._loading, *self.broken}

    def _judge(self) -> None:
        """Is this consumer dead, and has not said so? Then it is left as one that has."""
        dead = self.consumer is not None and judge(self.cluster, self.consumer, HOLDS)
        self.doubted, self._turn = False, self.cluster.turn
        if dead:
            raise KafkaException(KafkaError(KafkaError._FATAL, "it knows no broker any more"))

    # --- the end ---

    def stop(self, seconds: float, give_back: bool) -> bool:
        """Drain, commit, leave the group; False: it did not come to its end in time (the broker is down) and is left behind."""
        with self.changed:
            self.closing, self.give_back = threading.get_ident(), give_back
            self.drained_by = time.monotonic() + self.drain
            self._stop = True
            self.wake.set()
            self.changed.notify_all()
        if self._thread.ident:
            self._thread.join(seconds)
        self.endings.close(0 if self._thread.is_alive() else LAST)
        self._give_up()
        self._loader.close()
        return not self._thread.is_alive()

    def _finish(self) -> None:
        try:
            owners = self._let_end(list(self.owners))
            self.endings.close(LAST)  # its partitions are frozen until a transaction has ended
            self._store(owners)
            with self.changed:
                self.note_all(list(self.owners))
            self._give_up()
            if self.consumer is not None:
                self.consumer.close()
        except Exception:
            log.exception("leaving the group")

    def _give_up(self) -> None:
        """Whoever waits for one of our partitions hears of it."""
        with self.changed:
            for at in [*self.owners, *self._loading]:
                self._drop(at, "its site is closed")
            self.changed.notify_all()
