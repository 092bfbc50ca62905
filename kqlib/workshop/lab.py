"""A notebook's first line: `lab = kq.lab("03-keys")`.

In:  the notebook's name. Out: `Lab`: a cluster (embedded and brand new, unless KQ_BOOTSTRAP names one's own), topics and groups that
are fresh each time their cell runs, quiet client settings, a seeded random, and `until`, which waits for a state and not for a time.

On one's own cluster names are prefixed by lab, user and machine, noted in `kq.labs`, removed by the next run; nothing else is touched.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kqlib import kafka
from kqlib.errors import Closed, NotAllowed, Unreachable
from kqlib.kafka import reading
from kqlib.runtime import places
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.topics import check_name
from kqlib.workshop import snapshot, view
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.shared import KINDS, Traces, clear_notes

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, NewTopic

T = TypeVar("T")
_open: dict[str, Lab] = {}  # one lab of a name in a process: its cell run again closes the one before
_replaying: list[str] = []  # the notebooks whose cells `at=` is running: their own kq.lab() makes the lab


def lab(name: str, *, brokers: int = 1, auto_create: bool = False, at: str | None = None) -> Lab:
    """A notebook's cluster and everything to play on it: `lab = kq.lab("03-keys")`.

    brokers: how many an embedded one has, and how many your own must have at least.
    auto_create: topics appear when somebody names them (embedded only; notebook 01 shows why not).
    at: rebuild the notebook's state up to this named step, after a kernel restart in the middle. Its own first cell says how
    many brokers and so on; a wrong name lists the steps.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
        raise NotAllowed(f"a lab's name is its notebook's, as in kq.lab('03-keys'), not {name!r}")
    if at is not None and name not in _replaying:
        _replay(name, _steps(name, at), sys._getframe(1).f_globals)
        if name in _open:
            return _open[name]
    if name in _open:
        _open.pop(name).close()
    _open[name] = Lab(name, _cluster(name, brokers, auto_create))
    return _open[name]


def _cluster(name: str, brokers: int, auto_create: bool) -> kafka.Kafka:
    own = kafka.named()
    if own is None:
        return Cluster(brokers, auto_create=auto_create)
    if auto_create:
        raise NotAllowed(
            f"lab '{name}' needs a broker that creates topics by itself: an embedded one. Unset KQ_BOOTSTRAP"
        )
    if len(own.brokers) < brokers:
        raise NotAllowed(
            f"lab '{name}' needs {brokers} brokers; the cluster of KQ_BOOTSTRAP has {len(own.brokers)}. Unset KQ_BOOTSTRAP"
        )
    return own


class Lab:
    """One notebook's cluster, topics and groups; made by `kq.lab(name)`."""

    def __init__(self, name: str, cluster: kafka.Kafka) -> None:
        self.name, self.cluster, self._mark, self._process = name, cluster, Mark(), os.getpid()
        self.random = random.Random(name)
        random.seed(name)  # for those who import random themselves
        self._traces = None if cluster.embedded else Traces(cluster, name)
        self._made: dict[str, set[str]] = {kind: set() for kind in KINDS}
        if self._traces:
            self._clean(self._traces)

    @property
    def admin(self) -> AdminClient:
        """confluent_kafka's AdminClient of this cluster."""
        return self.cluster.admin

    def client(self, **extra: Any) -> dict[str, Any]:
        """Settings for any confluent_kafka client: `Producer(lab.client())`, `Consumer(lab.client() | {"group.id": "a"})`."""
        return self.cluster.client(**{"throttle_cb": self._mark, **extra})

    def kafka(self, tool: str, *args: str) -> str:
        """What one of Kafka's own tools says: `print(lab.kafka("topics", "--list"))`."""
        return self.cluster.kafka(tool, *args)

    def topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, config: Mapping[str, Any] | None = None
    ) -> str:
        """A new, empty topic; returns the name it has on this cluster. Run again, it closes `lab.client()`'s readers first."""
        from confluent_kafka.admin import NewTopic

        full = self._name("topic", check_name(name))
        settings = {key: str(value) for key, value in (config or {}).items()}
        try:
            wanted = NewTopic(full, config=settings, **self._placed(partitions, replicas))
            said = self._create(wanted)
            if said and said.name() == "TOPIC_ALREADY_EXISTS":
                if self.cluster.embedded:  # ours: a request whose answer was lost was sent again
                    self._delete(full)
                    said = self._create(wanted)
                else:  # somebody was faster: never ours to delete
                    self._forget("topic", full)
        except (TypeError, ValueError) as error:
            raise NotAllowed(f"topic '{name}' was not created: {kafka.words(error)}") from None
        if said:
            raise NotAllowed(f"topic '{name}' was not created: {said.str()}")
        self.cluster.wait_for_topic(full, partitions)
        return full

    def group(self, name: str) -> str:
        """A consumer group's name that nothing is committed under; members left from the last run are closed, or waited for."""
        return self._name("group", name)

    def folder(self, name: str) -> str:
        """A new, empty directory, for a stream's checkpoint and the like; it goes with an embedded cluster. Run again, it is empty."""
        self._check_open()
        home = getattr(self.cluster, "home", None) or places.state() / "labs"
        folder = Path(home) / "folders" / self.name / check_name(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return str(folder)

    def until(self, condition: Callable[[], T], seconds: float = 10, why: str = "it to come true") -> T:
        """Wait until the condition holds and return what it gave; `NotInTime` says why it was waited for and what was last seen.

        seconds: on a quiet machine; KQ_PATIENCE multiplies it.

        A broker that does not answer just now is 'not yet'; any other exception is the condition's own and ends the wait.
        """
        from confluent_kafka import KafkaException

        return wait_for(condition, seconds * PATIENCE, why, not_yet=(KafkaException, Unreachable))

    def draw(self, topic: str, group: str | None = None) -> view.Picture:
        """A picture of a topic's log as it is now; with a group, what it has committed."""
        return view.log(snapshot.lanes(self.cluster, topic, group), title=topic)

    def draw_cluster(self, topic: str, controller: bool = False) -> view.Picture:
        """A picture of the brokers and of this topic's replicas on them; which one leads the controllers is shown if asked."""
        brokers, partitions = snapshot.rooms(self.cluster, topic)
        if controller:  # not by default: it differs from start to start, and a stored picture must not
            lead = self.cluster.controller
            brokers = [replace(each, controller=each.id == lead) for each in brokers]
        return view.cluster(brokers, partitions, title=topic)

    def close(self) -> None:
        """End the lab: an embedded cluster goes, one's own keeps running without what this lab made."""
        if self._process != os.getpid():
            return
        if _open.get(self.name) is self:
            del _open[self.name]
        try:
            if self._traces and not self.cluster._closed:
                self._drop_all()
        finally:
            if self._traces:
                self._traces.close()
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
        """The full name, noted before anything of that name is made, and nothing left of its last life."""
        self._check_open()
        full = self._traces.full(name) if self._traces else name
        if self._traces and full not in self._made[kind] and self._there(kind, full):
            raise NotAllowed(
                f"'{full}' is on this cluster, and no run of this lab made it; it is left alone. Take another name"
            )
        if kind == "topic":
            self._drop_topic(full)
        else:  # a process that was killed is a member until its session is over: 45 s, unless its cluster says otherwise
            self.until(
                lambda: self._drop_group(full), 60, f"readers in other threads or processes to leave group '{name}'"
            )
        if self._traces:
            self._traces.remember(kind, full)
        self._made[kind].add(full)
        return full

    def _there(self, kind: str, full: str) -> bool:
        if kind == "topic":
            asked = (self.cluster.knows(number, full) for number in self.cluster.running)
            return full in self.admin.list_topics(timeout=10).topics or any(asked)
        return self._group(full) is not None

    def _placed(self, partitions: int, replicas: int | None) -> dict[str, Any]:
        """How many copies where. Kafka draws the first broker at random; an embedded lab deals them in turn: p0 on 1, p1 on 2, …"""
        up = self.cluster.running
        copies = min(3, len(up)) if replicas is None else replicas
        if not self.cluster.embedded or not 1 <= copies <= len(up):
            return {"num_partitions": partitions, "replication_factor": -1 if replicas is None else replicas}
        dealt = [[up[(p + copy) % len(up)] for copy in range(copies)] for p in range(partitions)]
        return {"num_partitions": partitions, "replica_assignment": dealt}

    def _clean(self, traces: Traces) -> None:
        """Remove what earlier runs left."""
        try:
            self._made = {kind: set(traces.known(kind)) for kind in KINDS}
            self._drop_all()
        except BaseException:
            traces.close()
            raise

    def _drop_all(self) -> None:
        made = sorted(self._made["topic"])
        for topic in made:
            self._drop_topic(topic)
        clear_notes(self.cluster, made)
        for group in sorted(self._made["group"]):
            self._drop_group(group)

    def _drop_topic(self, topic: str) -> None:
        """Delete it, whether or not a broker names it: the one asked may not have heard of it. On one's own cluster: if it is ours."""
        if self.cluster.embedded or topic in self._made["topic"]:
            mine = [consumer for consumer in _consumers() if self._mark.on(consumer)]
            _close_readers(mine, lambda consumer: any(part.topic == topic for part in consumer.assignment()))
            self._delete(topic)
        self._forget("topic", topic)

    def _create(self, wanted: NewTopic) -> KafkaError | None:
        return self._settled(lambda admin: admin.create_topics([wanted], request_timeout=10)[wanted.topic])

    def _delete(self, topic: str) -> None:
        gone = "UNKNOWN_TOPIC_OR_PART"
        said = self._settled(lambda admin: admin.delete_topics([topic], request_timeout=10)[topic], fine=gone)
        if said:
            raise NotAllowed(f"topic '{topic}' of the last run could not be deleted: {said.str()}")
        self.cluster.wait_until_gone(topic)

    def _drop_group(self, group: str) -> bool:
        """Is it gone? Not while somebody else is in it: it stays noted, for the next run to try again."""
        found = self._group(group)
        if found is not None:
            here = {member.member_id for member in found.members}
            _close_readers(_consumers() if here else [], lambda consumer: consumer.memberid() in here)
            gone = "GROUP_ID_NOT_FOUND"
            said = self._settled(
                lambda admin: admin.delete_consumer_groups([group], request_timeout=4)[group], fine=gone
            )
            if said and said.name() == "NON_EMPTY_GROUP":
                return False
            if said:
                raise NotAllowed(f"group '{group}' of the last run could not be removed: {said.str()}")
        self._forget("group", group)
        return True

    def _group(self, group: str) -> Any | None:
        """What the cluster knows of a group; None when there is none."""
        if self.cluster.embedded and not self._listed(group):
            return None
        found, gone = list[Any](), "GROUP_ID_NOT_FOUND"
        said = self._settled(
            lambda admin: admin.describe_consumer_groups([group], request_timeout=4)[group], found.append, gone
        )
        if said:
            raise NotAllowed(f"group '{group}' could not be looked up: {said.str()}")
        return found[0] if found and found[0].state.name != "DEAD" else None

    def _listed(self, group: str) -> bool:
        """May it be there? A list needs no coordinator; asking for one that does not answer can end the process (librdkafka 5040)."""
        there = self.admin.list_consumer_groups(request_timeout=10).result(15)
        return bool(there.errors) or group in {one.group_id for one in there.valid}

    def _settled(
        self, ask: Callable[[AdminClient], Any], take: Callable[[Any], object] = lambda _: None, fine: str = ""
    ) -> KafkaError | None:
        """Ask again until whoever decides is there to answer; None when all is well or the answer is `fine`, else the error."""
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + 60
        while True:
            admin = self.admin  # held while it works: a temporary one may never answer
            try:
                take(ask(admin).result(15))
                return None
            except (KafkaException, TimeoutError) as error:
                said = error.args[0] if error.args else KafkaError(KafkaError._TIMED_OUT)
            if said.name() == fine:
                return None
            if said.name() not in reading.MOVING or time.monotonic() > deadline:
                return said
            if said.name() == "_TIMED_OUT":
                self.cluster.renew()  # one that was once told of no broker never comes back
            time.sleep(0.05)

    def _forget(self, kind: str, name: str) -> None:
        if self._traces and name in self._made[kind]:
            self._traces.forget(kind, name)
        self._made[kind].discard(name)


class Mark:
    """What a lab's client settings carry, so that the lab knows its own readers: a callback, which a client keeps.

    A client calls it when a broker slows it down, and it does nothing. The clients themselves are held by nobody here.
    """

    def __call__(self, event: object) -> None:
        pass

    def __repr__(self) -> str:
        return "<this lab>"

    def on(self, client: object) -> bool:
        """Was this client made from the lab's settings?"""
        return any(kept is self for kept in gc.get_referents(client))


def _consumers() -> list[Any]:
    """This process's consumers. A notebook makes them by itself, so that nobody keeps a list: the garbage collector has one."""
    from confluent_kafka import Consumer

    return [thing for thing in gc.get_objects() if isinstance(thing, Consumer)]


def _close_readers(readers: Iterable[Any], which: Callable[[Any], bool]) -> None:
    """Close the readers that `which` selects. One that another thread polls without a pause stays open: its lock is never free."""
    asked = _answers((partial(lambda each: (each, which(each)), each) for each in readers), 1)
    _answers((each.close for each, meant in asked if meant), 10)


def _answers(calls: Iterable[Callable[[], T]], seconds: float) -> list[T]:
    """What these calls give, of those that come back in time."""
    found: list[T] = []

    def ask(call: Callable[[], T]) -> None:
        with suppress(RuntimeError):  # it is closed already
            found.append(call())

    threads = [threading.Thread(target=ask, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds * PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(found)


@atexit.register
def _leave() -> None:
    """A script that ends in the middle: librdkafka spins for ever on a KIP-848 reader that never polled and is not closed."""
    if _open:
        _close_readers(_consumers(), lambda consumer: consumer.assignment() is not None)  # all that let us in


def _in_a_fork() -> None:
    """The labs are the parent's. A lab that it closes is free, although this process lives on."""
    for parents in _open.values():
        if parents._traces:
            parents._traces.leave()
    _open.clear()


os.register_at_fork(after_in_child=_in_a_fork)


# --- at="step": a notebook replayed up to a named place ---------------------------------------------------------------


def _steps(name: str, at: str) -> list[tuple[str, bool]]:
    """The code before the cell tagged `step:NAME`, and for each cell whether it is meant to fail."""
    repo = places.repo()
    file = repo / "notebooks" / f"{name}.ipynb" if repo else None
    if file is None or not file.exists():
        raise NotAllowed(f"at={at!r} replays notebooks/{name}.ipynb, which is not here")
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    tags = [cell.get("metadata", {}).get("tags", []) for cell in cells]
    names = [tag.removeprefix("step:") for found in tags for tag in found if tag.startswith("step:")]
    if at not in names:
        raise NotAllowed(f"notebook {name} has no step {at!r}; it has {', '.join(names) or 'none'}")
    here = next(i for i, found in enumerate(tags) if f"step:{at}" in found)
    code = [i for i, cell in enumerate(cells[:here]) if cell["cell_type"] == "code"]
    return [("".join(cells[i]["source"]), "raises-exception" in tags[i]) for i in code]


def _replay(name: str, steps: list[tuple[str, bool]], namespace: dict[str, Any]) -> None:
    from IPython.utils.capture import capture_output

    _replaying.append(name)
    try:
        for source, fails in steps:
            with capture_output():
                try:
                    exec(compile(source, f"<{name}>", "exec", dont_inherit=True), namespace)
                except Exception:
                    if not fails:
                        raise
    finally:
        _replaying.pop()
