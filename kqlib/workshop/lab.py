"""A notebook's first line: `lab = kq.lab("03-keys")`.

In:  the notebook's name. Out: `Lab`: a cluster, topics and groups that are fresh each time their cell runs, and quiet client settings.
It has a seeded random, and `until`, which waits for a state and not for a time.

The cluster is embedded and new, unless KQ_BOOTSTRAP names yours. On your cluster, names get a prefix: lab, user and machine. They are
noted in `kq.labs`, and the next run removes them. Nothing else is touched.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from kqlib import kafka
from kqlib.errors import Closed, NotAllowed, Unreachable
from kqlib.kafka import reading
from kqlib.runtime import places
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.topics import check_name
from kqlib.workshop import minutes, replay, snapshot, view
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.lab_notes import KINDS, LabNotes, clear_notes
from kqlib.workshop.readers import Mark, close_readers, consumers

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, NewTopic

T = TypeVar("T")
_open: dict[str, Lab] = {}  # one lab of a name in a process: its cell run again closes the one before


def lab(
    name: str,
    *,
    brokers: int = 1,
    auto_create: bool = False,
    wire: bool | int | str = False,
    at: str | None = None,
) -> Lab:
    """A notebook's cluster and everything to play on it: `lab = kq.lab("03-keys")`.

    brokers: how many an embedded one has, and how many your own must have at least.
    auto_create: naming a topic creates it (embedded only; notebook 01 shows why not).
    wire: as in `kq.Cluster(wire=True)`; then `lab.cluster.wire` shows what crosses (embedded only).
    at: rebuild the notebook's state up to this named step, after a kernel restart in the middle. The notebook's first cell says how
    many brokers it has. A wrong name lists the steps.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
        raise NotAllowed(f"a lab's name is its notebook's, as in kq.lab('03-keys'), not {name!r}")
    minutes.count(name)
    if at is not None and name not in replay.replaying:
        replay.replay(name, replay.steps(name, at), sys._getframe(1).f_globals)
        if name in _open:
            return _open[name]
    if name in _open:
        _open.pop(name).close()
    _open[name] = Lab(name, _cluster(name, brokers, auto_create, wire))
    return _open[name]


def _cluster(name: str, brokers: int, auto_create: bool, wire: bool | int | str) -> kafka.Kafka:
    own = kafka.named()
    if own is None:
        return Cluster(brokers, auto_create=auto_create, wire=wire)
    if auto_create:
        raise NotAllowed(
            f"lab '{name}' needs a broker that creates topics by itself: an embedded one. Unset KQ_BOOTSTRAP"
        )
    if wire:
        raise NotAllowed(f"lab '{name}' needs a cluster with a wire: an embedded one. Unset KQ_BOOTSTRAP")
    if len(own.brokers) < brokers:
        raise NotAllowed(
            f"lab '{name}' needs {brokers} brokers; the cluster of KQ_BOOTSTRAP has {len(own.brokers)}. Unset KQ_BOOTSTRAP"
        )
    return own


class Lab:
    """One notebook's cluster, topics and groups; made by `kq.lab(name)`."""

    def __init__(self, name: str, cluster: kafka.Kafka) -> None:
        self.name, self.cluster, self._mark, self._process = name, cluster, Mark(), os.getpid()
        self._entry = cluster.wire if isinstance(cluster, Cluster) and cluster.wires else cluster
        self.random = random.Random(name)
        random.seed(name)  # for a cell that imports random
        self._notes = None if cluster.embedded else LabNotes(cluster, name)
        self._made: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self._groups: WeakSet[Any] = WeakSet()  # `kq.groups.Group`s: their members leave before a group is removed
        if self._notes:
            self._clean(self._notes)

    @property
    def admin(self) -> AdminClient:
        """confluent_kafka's AdminClient of this cluster."""
        return self.cluster.admin

    def client(self, **extra: Any) -> dict[str, Any]:
        """Settings for any confluent_kafka client: `Producer(lab.client())`, `Consumer(lab.client() | {"group.id": "a"})`.

        In a lab with a wire the client goes through it.
        """
        return self._entry.client(**{"throttle_cb": self._mark, **extra})

    def kafka(self, tool: str, *args: str) -> str:
        """The output of one of Kafka's own tools: `print(lab.kafka("topics", "--list"))`."""
        return self.cluster.kafka(tool, *args)

    def topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, config: Mapping[str, Any] | None = None
    ) -> str:
        """A new, empty topic; returns the name it has on this cluster. Run again, it closes `lab.client()`'s readers first."""
        from confluent_kafka.admin import NewTopic

        full = self._name("topic", check_name(name))
        settings = {key: str(value) for key, value in (config or {}).items()}
        try:
            new = NewTopic(full, config=settings, **self._placed(partitions, replicas))
            error = self._create(new)
            if error and error.name() == "TOPIC_ALREADY_EXISTS":
                if self.cluster.embedded:  # ours: a request whose answer was lost was sent again
                    self._delete(full)
                    error = self._create(new)
                else:  # another program was faster: never ours to delete
                    self._forget("topic", full)
        except (TypeError, ValueError) as wrong:
            raise NotAllowed(f"topic '{name}' was not created: {kafka.words(wrong)}") from None
        if error:
            raise NotAllowed(f"topic '{name}' was not created: {error.str()}")
        self.cluster.wait_for_topic(full, partitions)
        return full

    def group(self, name: str) -> str:
        """A consumer group's name, without commits. Members left from the last run are closed, or waited for."""
        return self._name("group", name)

    def folder(self, name: str) -> str:
        """A new, empty directory, such as for a stream's checkpoint. It is removed with an embedded cluster."""
        self._check_open()
        home = getattr(self.cluster, "home", None) or places.state() / "labs"
        folder = Path(home) / "folders" / self.name / check_name(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return str(folder)

    def until(self, condition: Callable[[], T], seconds: float = 10, why: str = "it to come true") -> T:
        """Wait until the condition holds, and return its value. `NotInTime` says what was waited for and what was last seen.

        seconds: on a quiet machine; KQ_PATIENCE multiplies it.
        A broker that does not answer now counts as 'not yet'. Any other exception of the condition ends the wait.
        """
        from confluent_kafka import KafkaException

        return wait_for(condition, seconds * PATIENCE, why, not_yet=(KafkaException, Unreachable))

    def draw(self, topic: str, group: str | None = None) -> view.Picture:
        """A picture of a topic's log as it is now. With a group, it shows what is committed."""
        return view.log(snapshot.lanes(self.cluster, topic, group), title=topic)

    def draw_cluster(self, topic: str, controller: bool = False) -> view.Picture:
        """A picture of the brokers and of this topic's replicas. controller: show which one leads the controllers."""
        brokers, partitions = snapshot.brokers(self.cluster, topic)
        if controller:  # not by default: it differs from start to start, and a stored picture must not
            lead = self.cluster.controller
            brokers = [replace(each, controller=each.id == lead) for each in brokers]
        return view.cluster(brokers, partitions, title=topic)

    def close(self) -> None:
        """End the lab and an embedded cluster. From your own cluster, remove what this lab made."""
        if self._process != os.getpid():
            return
        if _open.get(self.name) is self:
            del _open[self.name]
        try:
            if self._notes and not self.cluster._closed:
                for group in list(self._groups):
                    group.close()
                self._drop_all()
        finally:
            if self._notes:
                self._notes.close()
            self.cluster.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lab({self.name!r}, {self.cluster!r})"

    def _check_open(self) -> None:
        self.cluster._check_here()
        if self.cluster._closed:
            raise Closed(thing="lab")

    def _name(self, kind: str, name: str) -> str:
        """The full name. It is noted before anything of that name is made, and what had the name is removed."""
        self._check_open()
        full = self._notes.full(name) if self._notes else name
        if self._notes and full not in self._made[kind] and self._there(kind, full):
            raise NotAllowed(
                f"'{full}' is on this cluster, and no run of this lab made it; it is left alone. Take another name"
            )
        if kind == "topic":
            self._drop_topic(full)
        else:  # a killed process is a member until its session is over: 45 s by default
            self.until(
                lambda: self._drop_group(full), 60, f"readers in other threads or processes to leave group '{name}'"
            )
        if self._notes:
            self._notes.remember(kind, full)
        self._made[kind].add(full)
        return full

    def _there(self, kind: str, full: str) -> bool:
        if kind == "topic":
            asked = (self.cluster.knows(number, full) for number in self.cluster.running)
            return full in self.admin.list_topics(timeout=10).topics or any(asked)
        return self._group(full) is not None

    def _placed(self, partitions: int, replicas: int | None) -> dict[str, Any]:
        """How many copies, and where. Kafka draws the first broker at random. An embedded lab takes them in turn: p0 on 1, p1 on 2."""
        up = self.cluster.running
        copies = min(3, len(up)) if replicas is None else replicas
        if not self.cluster.embedded or not 1 <= copies <= len(up):
            return {"num_partitions": partitions, "replication_factor": -1 if replicas is None else replicas}
        brokers = [[up[(p + copy) % len(up)] for copy in range(copies)] for p in range(partitions)]
        return {"num_partitions": partitions, "replica_assignment": brokers}

    def _clean(self, notes: LabNotes) -> None:
        """Remove what earlier runs left."""
        try:
            self._made = {kind: set(notes.known(kind)) for kind in KINDS}
            self._drop_all()
        except BaseException:
            notes.close()
            raise

    def _drop_all(self) -> None:
        made = sorted(self._made["topic"])
        for topic in made:
            self._drop_topic(topic)
        clear_notes(self.cluster, made)
        for group in sorted(self._made["group"]):
            self._drop_group(group)

    def _drop_topic(self, topic: str) -> None:
        """Delete it without asking first: the broker that is asked may not know it yet. On your own cluster, only if it is ours."""
        if self.cluster.embedded or topic in self._made["topic"]:
            mine = [consumer for consumer in consumers() if self._mark.on(consumer)]
            close_readers(mine, lambda consumer: any(part.topic == topic for part in consumer.assignment()))
            self._delete(topic)
        self._forget("topic", topic)

    def _create(self, new: NewTopic) -> KafkaError | None:
        return self._ask(lambda admin: admin.create_topics([new], request_timeout=10)[new.topic].result(15))

    def _delete(self, topic: str) -> None:
        gone = "UNKNOWN_TOPIC_OR_PART"
        error = self._ask(lambda admin: admin.delete_topics([topic], request_timeout=10)[topic].result(15), fine=gone)
        if error:
            raise NotAllowed(f"topic '{topic}' of the last run could not be deleted: {error.str()}")
        self.cluster.wait_until_gone(topic)

    def _drop_group(self, group: str) -> bool:
        """Is it gone? Not while another process is in it. Then it stays noted, for the next run to try again."""
        found = self._group(group)
        if found is not None:
            here = {member.member_id for member in found.members}
            close_readers(consumers() if here else [], lambda consumer: consumer.memberid() in here)
            gone = "GROUP_ID_NOT_FOUND"
            error = self._ask(
                lambda admin: admin.delete_consumer_groups([group], request_timeout=4)[group].result(15), fine=gone
            )
            if error and error.name() == "NON_EMPTY_GROUP":
                return False
            if error:
                raise NotAllowed(f"group '{group}' of the last run could not be removed: {error.str()}")
        self._forget("group", group)
        return True

    def _group(self, group: str) -> Any | None:
        """What the cluster knows of a group. None if there is none."""
        if self.cluster.embedded and not self._listed(group):
            return None
        found, gone = list[Any](), "GROUP_ID_NOT_FOUND"
        error = self._ask(lambda _: found.append(self.cluster.describe_group(group, 4)), fine=gone)
        if error:
            raise NotAllowed(f"group '{group}' could not be looked up: {error.str()}")
        return found[0] if found and found[0].state != "DEAD" else None

    def _listed(self, group: str) -> bool:
        """May it be there? A list needs no coordinator. A call to one that does not answer can end the process (librdkafka 5040)."""
        there = self.admin.list_consumer_groups(request_timeout=10).result(15)
        return bool(there.errors) or group in {one.group_id for one in there.valid}

    def _ask(self, call: Callable[[AdminClient], object], fine: str = "") -> KafkaError | None:
        """Ask again while leader, controller or coordinator move. None if all is well or the answer is `fine`, else the error."""
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + 60
        while True:
            admin = self.admin  # held while it works: a temporary one may never answer
            try:
                call(admin)
                return None
            except (KafkaException, TimeoutError) as failed:
                late = isinstance(failed, TimeoutError)
                error = KafkaError(KafkaError._TIMED_OUT) if late else failed.args[0]
            if error.name() == fine:
                return None
            if error.name() not in reading.MOVING or time.monotonic() > deadline:
                return error
            if error.name() == "_TIMED_OUT":
                self.cluster.renew()  # a client that once knew no broker never recovers
            time.sleep(0.05)

    def _forget(self, kind: str, name: str) -> None:
        if self._notes and name in self._made[kind]:
            self._notes.forget(kind, name)
        self._made[kind].discard(name)


def open_clusters() -> list[Cluster]:
    """The embedded clusters of the labs of this process."""
    return [each.cluster for each in _open.values() if isinstance(each.cluster, Cluster) and not each.cluster._closed]


@atexit.register
def _leave() -> None:
    """Close all readers at the end of a script. librdkafka spins for ever on an open KIP-848 reader that never polled."""
    if _open:
        close_readers(consumers(), lambda consumer: consumer.assignment() is not None)  # all whose lock is free


def _in_a_fork() -> None:
    """The labs are the parent's. If it closes one, the lab is free, although this process lives on."""
    for each in _open.values():
        if each._notes:
            each._notes.leave()
    _open.clear()


os.register_at_fork(after_in_child=_in_a_fork)
