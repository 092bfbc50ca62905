"""A notebook's first line: `lab = kq.lab("03-keys")`.

In:  the notebook's name. Out: `Lab`: a cluster (embedded and brand new, unless KQ_BOOTSTRAP names one's own), topics and groups that
are fresh each time their cell runs, quiet client settings, a seeded random, and `until`, which waits for a state and not for a time.

On one's own cluster names are prefixed by lab and user, noted in `kq.labs`, removed by the next run; nothing else is touched.
"""

from __future__ import annotations

import atexit
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from kqlib import broker, places, snapshot, view
from kqlib.errors import Closed, NotAllowed, NotInTime
from kqlib.shared import Traces
from kqlib.topics import check_name

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

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
    if not isinstance(name, str) or not name:
        raise NotAllowed(f"a lab's name is its notebook's, as in kq.lab('03-keys'), not {name!r}")
    if at is not None and name not in _replaying:
        _replay(name, _steps(name, at), sys._getframe(1).f_globals)
        if name in _open:
            return _open[name]
    if name in _open:
        _open.pop(name).close()
    _open[name] = Lab(name, _cluster(name, brokers, auto_create))
    return _open[name]


def _cluster(name: str, brokers: int, auto_create: bool) -> broker.Kafka:
    own = broker.named()
    if own is None:
        return broker.Cluster(brokers, auto_create=auto_create)
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

    def __init__(self, name: str, cluster: broker.Kafka) -> None:
        self.name, self.cluster = name, cluster
        self.random = random.Random(name)
        random.seed(name)  # for those who import random themselves
        self._traces = None if cluster.embedded else Traces(cluster, name)
        self._made: dict[str, set[str]] = {"topic": set(), "group": set()}
        if self._traces:
            for topic in self._traces.known("topic"):
                self._drop_topic(topic)
            for group in self._traces.known("group"):
                self._drop_group(group)

    @property
    def admin(self) -> AdminClient:
        """confluent_kafka's AdminClient of this cluster."""
        return self.cluster.admin

    def client(self, **extra: Any) -> dict[str, Any]:
        """Settings for any confluent_kafka client: `Producer(lab.client())`, `Consumer(lab.client() | {"group.id": "a"})`."""
        return self.cluster.client(**extra)

    def kafka(self, tool: str, *args: str) -> str:
        """What one of Kafka's own tools says: `print(lab.kafka("topics", "--list"))`."""
        return self.cluster.kafka(tool, *args)

    def topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, config: Mapping[str, Any] | None = None
    ) -> str:
        """A new, empty topic; returns the name it has on this cluster. Run again, it closes this process's readers and starts anew."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        full = self._name("topic", check_name(name))
        settings = {key: str(value) for key, value in (config or {}).items()}
        try:
            wanted = NewTopic(full, config=settings, **self._placed(partitions, replicas))
            self.admin.create_topics([wanted])[full].result(15)
        except (KafkaException, TypeError, ValueError) as error:
            raise NotAllowed(f"topic '{name}' was not created: {broker.words(error)}") from None
        self.until(lambda: all(self._leads(full, p) for p in range(partitions)), 15, f"'{name}' to have its leaders")
        return full

    def group(self, name: str) -> str:
        """A consumer group's name that nothing is committed under; members left from the last run are closed."""
        return self._name("group", name)

    def until(self, condition: Callable[[], T], seconds: float = 10, why: str = "it to come true") -> T:
        """Wait until the condition holds and return what it gave; `NotInTime` says why it was waited for and what was last seen."""
        deadline, pause = time.monotonic() + seconds, 0.01
        while not (seen := condition()):
            if time.monotonic() > deadline:
                raise NotInTime(seconds=seconds, why=why, last=repr(seen))
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)
        return seen

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
        if _open.get(self.name) is self:
            del _open[self.name]
        if self._traces and not self.cluster._closed:
            for topic in sorted(self._made["topic"]):
                self._drop_topic(topic)
            for group in sorted(self._made["group"]):
                self._drop_group(group)
        self.cluster.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lab({self.name!r}, {self.cluster!r})"

    def _name(self, kind: str, name: str) -> str:
        """The full name, noted before anything of that name is made, and nothing left of its last life."""
        if self.cluster._closed:
            raise Closed(thing="lab")
        full = self._traces.full(name) if self._traces else name
        drop = self._drop_topic if kind == "topic" else self._drop_group
        ours = full in self._made[kind]
        if kind == "topic" and full in self.admin.list_topics(timeout=10).topics and self._traces and not ours:
            raise NotAllowed(
                f"'{full}' is on this cluster, and no run of this lab made it; it is left alone. Take another name"
            )
        if ours or not self._traces:
            drop(full)
        if self._traces:
            self._traces.remember(kind, full)
        self._made[kind].add(full)
        return full

    def _placed(self, partitions: int, replicas: int | None) -> dict[str, Any]:
        """How many copies where. Kafka draws the first broker at random; an embedded lab deals them in turn: p0 on 1, p1 on 2, …"""
        up = self.cluster.brokers
        copies = min(3, len(up)) if replicas is None else replicas
        if not self.cluster.embedded or not 1 <= copies <= len(up):
            return {"num_partitions": partitions, "replication_factor": -1 if replicas is None else replicas}
        dealt = [[up[(p + copy) % len(up)] for copy in range(copies)] for p in range(partitions)]
        return {"num_partitions": partitions, "replica_assignment": dealt}

    def _leads(self, topic: str, partition: int) -> bool:
        try:
            return self.cluster.leader(topic, partition) is not None
        except Exception:  # just created: this broker may not know it yet
            return False

    def _drop_topic(self, topic: str) -> None:
        from confluent_kafka import KafkaException

        if topic in self.admin.list_topics(timeout=10).topics:
            for consumer in _consumers():
                with suppress(RuntimeError):  # it is closed already
                    if any(part.topic == topic for part in consumer.assignment()):
                        consumer.close()
            try:
                self.admin.delete_topics([topic])[topic].result(15)
            except KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise NotAllowed(
                        f"topic '{topic}' of the last run could not be deleted: {broker.words(error)}"
                    ) from None
            self.until(lambda: topic not in self.admin.list_topics(timeout=10).topics, 15, f"'{topic}' to be gone")
        if self._traces:
            self._traces.forget("topic", topic)

    def _drop_group(self, group: str) -> None:
        from confluent_kafka import KafkaException

        try:
            here = {
                member.member_id for member in self.admin.describe_consumer_groups([group])[group].result(15).members
            }
            for consumer in _consumers():
                with suppress(RuntimeError):  # it is closed already
                    if here and consumer.memberid() in here:
                        consumer.close()
            self.admin.delete_consumer_groups([group])[group].result(15)
        except KafkaException as error:
            if error.args[0].name() not in {
                "GROUP_ID_NOT_FOUND",
                "NON_EMPTY_GROUP",
            }:  # somebody else's process is in it
                raise NotAllowed(
                    f"group '{group}' of the last run could not be removed: {broker.words(error)}"
                ) from None
        if self._traces:
            self._traces.forget("group", group)


def _consumers() -> list[Any]:
    """This process's consumers. A notebook makes them by itself, so that nobody keeps a list: the garbage collector has one."""
    from confluent_kafka import Consumer

    return [thing for thing in gc.get_objects() if isinstance(thing, Consumer)]


@atexit.register
def _leave() -> None:
    """A script that ends in the middle: librdkafka spins for ever on a KIP-848 reader that never polled and is not closed."""
    for consumer in _consumers() if _open else []:
        with suppress(RuntimeError):
            consumer.close()


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
                    exec(compile(source, f"<{name}>", "exec"), namespace)
                except Exception:
                    if not fails:
                        raise
    finally:
        _replaying.pop()
