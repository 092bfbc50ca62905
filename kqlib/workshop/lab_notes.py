"""What labs made on a cluster of your own, noted there in the topic `kq.labs`, so that the next run can clean up.

In:  a cluster, a lab's name, this user. Out: `LabNotes`: names to make (`full`), remember, list and forget.
Names contain an id of this machine's state directory, so two machines never share one. Two computers may share that directory (a home
on a shared disk). So a live lab holds its prefix by a note, `["holder", prefix]`, which it renews; no other computer opens it then.
A name is noted before it is made: a lab that is killed in between leaves a name too many, never a topic too many.
Only what is noted here is ever deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import re
import secrets
import threading
import time
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kqlib.errors import KqError, NotAllowed
from kqlib.kafka import reading
from kqlib.kafka.writing import ensure, write
from kqlib.runtime import places
from kqlib.topic_rules import QUEUES

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

TOPIC = "kq.labs"
KINDS = ("topic", "group")
RENEW = 20.0  # seconds between two notes of a live lab
# one clock for all: the broker's
KEPT = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime", "segment.ms": "3600000"}
ANSWER = 15.0  # seconds
ADVICE = "A lab notes there what it makes. Ask your administrator for this topic, or unset KQ_BOOTSTRAP for an embedded cluster"
STALE = 70.0  # seconds after the last one until another computer may open the lab


def user() -> str:
    """Who runs this lab, in letters that a topic's name may have."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without an entry
        name = "unnamed"
    plain = re.sub(r"[^a-zA-Z0-9-]+", "-", name)
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"  # anna.m and anna-m are two people


class LabNotes:
    """The topics and groups that one user's runs of one lab have made on a shared cluster."""

    def __init__(self, cluster: Kafka, lab: str) -> None:
        self.cluster, self.prefix = cluster, f"{lab}.{user()}.{places.machine()}."
        self._alone = _alone(cluster, lab)
        self._me, self._over = f"{_computer()} {secrets.token_hex(8)}", threading.Event()
        self._renewing = threading.Thread(target=self._go_on, name="kq-lab", daemon=True)
        try:
            ensure(cluster, TOPIC, KEPT, ANSWER, ADVICE)
            self._take(lab)
        except BaseException:
            self.leave()  # the note of another holder stays
            raise

    def close(self) -> None:
        """Another process may open this lab now."""
        self._over.set()
        self._renewing.join(20)  # its note would come behind the one that frees the prefix
        if not self.cluster._closed:
            with contextlib.suppress(KqError):  # then it is free when its note is stale
                self._write("holder", self.prefix, None)
        self.leave()

    def leave(self) -> None:
        """The same for a fork: it closes the lock's file, and writes nothing."""
        self._alone.close()

    def _take(self, lab: str) -> None:
        """Hold the prefix; `NotAllowed` if another computer does. Processes of one computer have their lock (`_alone`)."""
        self._refuse(lab, self._holders())
        self._renew()
        mine, others = self._me, self._holders()
        since = next((at for at, (_, who) in enumerate(others) if who == mine), len(others))
        self._refuse(lab, others[:since])  # two at once: the first note counts
        self._renewing.start()

    def _refuse(self, lab: str, notes: list[tuple[float, str]]) -> None:
        """notes: of this prefix, (moment, holder), oldest first."""
        moment, who = notes[-1] if notes else (0.0, "")
        left = moment + STALE - time.time()
        if who and who.split()[0] != _computer() and left > 0:
            raise NotAllowed(
                f"lab '{lab}' is open on another computer that shares {places.state()}, and two would delete each other's "
                f"topics. Shut that kernel down; if it was killed, try again in {left:.0f} s"
            )

    def _holders(self) -> list[tuple[float, str]]:
        """Who held the prefix, and when: the notes since it was last free."""
        notes: list[tuple[float, str]] = []
        for message in reading.records(self.cluster, TOPIC)[0]:
            if message.key() == _key("holder", self.prefix):
                if message.value() is None:
                    notes.clear()
                else:
                    notes.append((message.timestamp()[1] / 1000, message.value().decode(errors="replace")))
        return notes

    def _renew(self) -> None:
        self._write("holder", self.prefix, self._me.encode())

    def _go_on(self) -> None:
        while not self._over.wait(RENEW):
            with contextlib.suppress(KqError):  # no answer just now: the next one is in time
                self._renew()

    def full(self, name: str) -> str:
        """The name that this lab's `name` has on a cluster with other people's topics."""
        return self.prefix + name

    def known(self, kind: str) -> list[str]:
        """The full names of this kind that are still to be cleaned up."""
        found: set[str] = set()
        for message in reading.records(self.cluster, TOPIC)[0]:
            with contextlib.suppress(ValueError, TypeError, AttributeError):  # another program's record
                noted, name = json.loads(message.key())
                if noted == kind and name.startswith(self.prefix):
                    (found.add if message.value() is not None else found.discard)(name)
        return sorted(found)

    def remember(self, kind: str, name: str) -> None:
        """Durable when it returns."""
        self._write(kind, name, b"1")

    def forget(self, kind: str, name: str) -> None:
        """It is gone; compaction may drop its note."""
        self._write(kind, name, None)

    def _write(self, kind: str, name: str, value: bytes | None) -> None:
        note = {"topic": TOPIC, "key": _key(kind, name), "value": value}
        if why := write(self.cluster, [note], ANSWER, acks="all"):  # not idempotent: 0.5 s less, and twice is one note
            raise NotAllowed(f"'{name}' could not be noted in '{TOPIC}': {why}. So nothing was made or removed")


def clear_notes(cluster: Kafka, topics: Iterable[str]) -> None:
    """Remove the notes in kq.queues that sites wrote of these topics, which are gone. What cannot be removed does no harm."""
    gone, left = set(topics), set[bytes]()
    if not gone or QUEUES not in cluster.describe().topics:
        return
    for message in reading.records(cluster, QUEUES)[0]:
        with contextlib.suppress(ValueError, TypeError, IndexError):  # another program's record
            if json.loads(message.key())[1] in gone:
                (left.discard if message.value() is None else left.add)(message.key())
    write(cluster, ({"topic": QUEUES, "key": key} for key in left), ANSWER, acks="all")


def _key(kind: str, name: str) -> bytes:
    return json.dumps([kind, name]).encode()


def _computer() -> str:
    """What tells computers, and containers of one computer, apart. Their host names may be the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # not Linux
        return f"{uuid.getnode():x}"


def _alone(cluster: Kafka, lab: str) -> IO[str]:
    """One process at a time on this machine has this lab on this cluster: two would delete each other's topics."""
    held = places.state() / "labs" / f"{lab}.{cluster.describe().cluster_id}"
    held.parent.mkdir(exist_ok=True)
    try:
        return places.locked(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise NotAllowed(
            f"lab '{lab}' is open in another process of yours on this cluster, and two would delete each other's topics. "
            "Shut that kernel down, or unset KQ_BOOTSTRAP for a cluster of this notebook's own"
        ) from None
