"""One consumer step (read, work, write, commit) in four orders, its worker killed at every point: what is lost, what is doubled.

    kq.delivery.table(cluster)                                    # 4 orders × 4 crash points -> CrashTable
    kq.delivery.run(cluster, "at-least-once", "write")            # one of them -> Outcome(lost=0, once=9, doubled=1)
    kq.delivery.life(cluster, topic, done, "at-least-once", group=…, crash="write", at=3)     # one life, on your own topics

An order is a name from ORDERS or a function of yours like those. The orders and the worker are in `worker.py`, what is counted is in
`outcome.py`, its picture in `view/crash.py`.
"""

from __future__ import annotations

import inspect
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import Kafka, reading
from kqlib.kafka.writing import GONE, settled
from kqlib.workshop.children import ChildEnded, Children
from kqlib.workshop.delivery import worker
from kqlib.workshop.delivery.outcome import CrashTable, Life, Outcome
from kqlib.workshop.delivery.worker import (
    CRASHES,
    ORDERS,
    Worker,
    at_least_once,
    at_most_once,
    exactly_once,
    idempotent_sink,
    open_database,
)

__all__ = [
    "CRASHES",
    "ORDERS",
    "CrashTable",
    "Life",
    "Outcome",
    "Worker",
    "at_least_once",
    "at_most_once",
    "exactly_once",
    "idempotent_sink",
    "life",
    "run",
    "table",
]

# All runs commit in this group, for topics of their own. So no group has to be deleted: the AdminClient would ask the group's
# coordinator, and if that does not answer, the whole process ends (librdkafka issues 3663 and 4605).
GROUP = "kq-delivery"
AT_ONCE = 4  # workers side by side: two cores, and each waits for Kafka half of its time
ITEMS = 10  # of a run
MIDDLE = 5  # the item at which the worker is killed
LIFE = 60.0  # seconds of one life
TIMEOUT = 20.0  # seconds for one answer of Kafka

Order = str | Callable[[Worker], None]
Named = tuple[str, Callable[[Worker], None]]


def table(cluster: Kafka, orders: Sequence[Order] = tuple(ORDERS)) -> CrashTable:
    """Every order, killed at every point, on a topic each: what became of the items. `kq.delivery.table(lab.cluster)`"""
    if isinstance(orders, str):
        raise NotAllowed(f"a table wants a list of orders, as in [{orders!r}], not one alone")
    named = [_order(order) for order in orders]
    if not named or len({name for name, _ in named}) < len(named):
        raise NotAllowed("a table wants at least one order, and each of them once")
    return CrashTable(_outcomes(cluster, [(each, crash) for each in named for crash in CRASHES]))


def run(cluster: Kafka, order: Order, crash: str) -> Outcome:
    """One order, its worker killed after `crash` of the item in the middle, then started again: what became of the items."""
    named = _order(order)
    return _outcomes(cluster, [(named, _crash(crash))])[named[0], crash]


def life(
    cluster: Kafka, topic: str, done: str | Path, order: Order, *, group: str, crash: str | None = None, at: int = 1
) -> Life:
    """One life of a worker on your topics: it reads on from the group's commit, until it is killed or at the end.

    done: the topic for the results, by name; or the file of a database, as a Path, which "idempotent-sink" wants. crash, at: the
    worker is killed after this verb of the at-th item that this life reads.
    """
    _check_cluster(cluster)
    named = _order(order)
    if isinstance(at, bool) or not isinstance(at, int) or at < 1:
        raise NotAllowed(f"at is the number of the item to die at, 1 for the first, not {at!r}")
    if crash is not None:
        _crash(crash)
    if not isinstance(group, str) or not group:
        raise NotAllowed(f"a worker commits in the name of a group, as in group='workers', not {group!r}")
    sink = isinstance(done, Path)
    if named[0] in ORDERS and sink != (named[0] == "idempotent-sink"):
        should_be = "a topic, by its name" if sink else "the file of a database, as in Path('results.db')"
        raise NotAllowed(f"with '{named[0]}' done is {should_be}, not {done!r}")
    partitions = len(cluster.partitions(topic))
    if not isinstance(done, Path):
        cluster.partitions(done)  # TopicMissing, before anything is read
    with Children() as children:
        where = {"database": str(done.absolute())} if isinstance(done, Path) else {"done": done}
        job = {"topic": topic, "partitions": partitions, "group": group, "crash": crash, "at": at, **where}
        return _live(children, cluster, named, job)


# --- a run: topics, items, two lives, a count ---------------------------------------------------------------------------

Cells = Sequence[tuple[Named, str]]


def _outcomes(cluster: Kafka, cells: Cells) -> dict[tuple[str, str], Outcome]:
    """Each cell on topics of its own, a few at a time. Then all are counted, and the topics are deleted."""
    _check_cluster(cluster)
    cluster.describe()  # Unreachable, before anything is made
    with Children(modules=[worker.__name__]) as children, _topics(cluster, len(cells)) as topics:
        _put(cluster, topics)

        def lives(topic: str, cell: tuple[Named, str]) -> None:
            named, crash = cell
            files = {"database": f"{children.home / topic}.db", "diary": str(children.home / topic)}
            job = {"topic": topic, "partitions": 1, "group": GROUP, "done": f"{topic}-done", **files}
            if _live(children, cluster, named, {**job, "crash": crash, "at": MIDDLE}).killed is None:
                raise NotAllowed(
                    f"'{named[0]}' was to be killed after {crash} of item {MIDDLE} and never came there. An order of yours "
                    f"says w.reached('{crash}') after that verb, unless it uses the worker's own"
                )
            _live(children, cluster, named, {**job, "crash": None})

        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            list(pool.map(lives, topics, cells))
        finally:  # after an error or the stop button, `children` ends those that still run
            pool.shutdown(wait=False, cancel_futures=True)
        written = _written(cluster, [f"{topic}-done" for topic in topics])
        return {
            (named[0], crash): _outcome(children.home / topic, topic, written[f"{topic}-done"])
            for topic, (named, crash) in zip(topics, cells, strict=True)
        }


def _live(children: Children, cluster: Kafka, order: Named, job: dict[str, Any]) -> Life:
    """One life: until the worker is killed, or has read to the end."""
    name, steps = order
    child = children.fork(worker.main, {"client": cluster.client(), **job}, steps)
    try:
        child.receive(LIFE)
    except ChildEnded as ended:
        if job["crash"] and not ended.why:
            return Life(job["crash"], job["at"])
        raise NotAllowed(f"the worker failed in '{name}', and what it did until then stays: {ended}") from None
    except NotInTime:
        raise NotInTime(seconds=LIFE, why=f"a worker to read '{job['topic']}' to its end", last="nothing") from None
    finally:
        child.kill()
    return Life()


def _outcome(file: Path, topic: str, written: Counter[str]) -> Outcome:
    """What became of the items of one cell: results in Kafka and in the database count alike."""
    names = [f"{topic}/0/{offset}" for offset in range(ITEMS)]
    with closing(open_database(f"{file}.db")) as database:
        written = written + Counter(item for (item,) in database.execute("SELECT item FROM results"))
    worked = Counter(file.read_text().split())
    return Outcome.of((written[name] for name in names), (worked[name] for name in names))


@contextmanager
def _topics(cluster: Kafka, cells: int) -> Iterator[list[str]]:
    """For each cell a topic and one for its results; they go at the end, and with them what was committed for them."""
    from confluent_kafka.admin import NewTopic

    run = f"{GROUP}-{secrets.token_hex(3)}"
    topics = [f"{run}-{number:02}" for number in range(cells)]
    every = [*topics, *(f"{topic}-done" for topic in topics)]
    try:
        settled(cluster.admin.create_topics([NewTopic(name, 1) for name in every]), "created", TIMEOUT)
        for name in every:
            cluster.wait_for_topic(name, 1)
        yield topics
    finally:
        settled(cluster.admin.delete_topics(every), "deleted", TIMEOUT, GONE)


def _put(cluster: Kafka, topics: Sequence[str]) -> None:
    """The items, each with its own address as its key: 'kq-delivery-…-03/0/7'."""
    from kqlib.kafka.clients import Producer

    producer = Producer(cluster.client(enable_idempotence=True))
    producer.list_topics(timeout=TIMEOUT)  # see worker.met
    for topic in topics:
        for number in range(ITEMS):
            producer.produce(topic, f"goal {number}", f"{topic}/0/{number}")
    if producer.flush(TIMEOUT):
        raise NotInTime(seconds=TIMEOUT, why="the items to be stored", last=f"{len(producer)} have no answer")


def _written(cluster: Kafka, topics: Sequence[str]) -> dict[str, Counter[str]]:
    """How often each key is in each topic, of what is committed, up to the ends seen now."""
    found: dict[str, Counter[str]] = {topic: Counter() for topic in topics}
    # The ends of what is written: the last transaction is committed, and its mark may come a moment later.
    there = reading.bounds(cluster, *topics, isolation_level="read_uncommitted")
    for message in reading.read(cluster, dict.fromkeys(there, 0), {at: end for at, (_, end) in there.items()}):
        found[message.topic()][message.key().decode()] += 1
    return found


# --- what was asked for -------------------------------------------------------------------------------------------------


def _check_cluster(cluster: Any) -> None:
    if not isinstance(cluster, Kafka):
        raise NotAllowed(f"this wants a cluster, as in kq.delivery.table(lab.cluster), not {type(cluster).__name__}")


def _order(order: Order) -> Named:
    """An order's name, and its function."""
    if isinstance(order, str) and order in ORDERS:
        return order, ORDERS[order]
    for name, known in ORDERS.items():
        if order is known:
            return name, known
    if not inspect.isfunction(order) or order.__name__ == "<lambda>":
        there = ", ".join(map(repr, ORDERS))
        raise NotAllowed(
            f"there is no order {order!r}; there are {there}, or a function of yours like kq.delivery.at_least_once"
        )
    return order.__name__, order


def _crash(crash: str) -> str:
    if not isinstance(crash, str) or crash not in CRASHES:
        raise NotAllowed(f"a worker can be killed after {', '.join(CRASHES)}, not after {crash!r}")
    return crash
