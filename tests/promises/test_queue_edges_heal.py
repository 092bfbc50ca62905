"""Clients work again after an outage, whatever a starting broker answered; and of two who create a queue at once, one wins."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kqlib.errors import Closed, KqError, LeaseLost, NotAllowed, Unreachable
from kqlib.kafka import Kafka
from kqlib.kafka.settings import DEFAULTS
from kqlib.queue import Item, Queue, Site, claim, notes, session, state, transactions
from kqlib.topic_rules import QUEUES
from kqlib.topics import Plan, QueueTopic, Topic
from kqlib.workshop import snapshot
from kqlib.workshop.cluster import Cluster
from tests.patience import PATIENCE, WAIT
from tests.promises.queue_worker import Worker
from tests.promises.queues import MADE, NOWHERE, SESSION, Start, alone, drained, taken, topic

Within = Callable[..., float]
AGAIN = 10.0 * PATIENCE  # seconds after the brokers are back: then everything works again
AWAY = 150.0  # seconds
METADATA, VERSIONS = 3, 18
REPORTED = 12  # two sites have five clients each, and some ask twice
NOBODY = struct.pack(">iiihh9sbi", 0, -1, 1, 5, 9, b"kq.queues", 0, 0)  # no broker, one topic without a leader
KNOWS = {0: 7, 1: 11, METADATA: 1, 10: 2, VERSIONS: 0, 22: 1}  # the highest version of each request
TABLE = struct.pack(">i", len(KNOWS)) + b"".join(struct.pack(">hhh", key, 0, most) for key, most in KNOWS.items())


class Gate:
    """The address that clients get. It passes on to the broker; shut, it answers as one that has just started: no broker is known.

    A client that gets this answer forgets every address and never asks again (librdkafka 5301). Real brokers give it too, for
    milliseconds while they start or when they were stopped for longer than their session: here it is certain.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._to, self.shut = (host, int(port)), False
        self.informed = 0  # how often it gave a client that answer
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listens.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self._listens.shutdown(socket.SHUT_RDWR)
        self._listens.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listens.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            (self._answer if self.shut else self._pass_on)(client)

    def _pass_on(self, client: socket.socket) -> None:
        with socket.create_connection(self._to) as broker:
            other = {client: broker, broker: client}
            while True:
                for ready in select.select(list(other), [], [])[0]:
                    if not (some := ready.recv(65_536)):
                        return
                    other[ready].sendall(some)

    def _answer(self, client: socket.socket) -> None:
        with client.makefile("rb") as requests:
            while len(size := requests.read(4)) == 4:
                key, version, number = struct.unpack(">hhi", requests.read(struct.unpack(">i", size)[0])[:8])
                answers = {METADATA: NOBODY, VERSIONS: struct.pack(">h", 35 if version else 0) + TABLE}
                if key in answers:
                    self.informed += key == METADATA
                    client.sendall(struct.pack(">ii", 4 + len(answers[key]), number) + answers[key])


@pytest.fixture(scope="module")
def away() -> Iterator[Cluster]:
    """A cluster whose broker goes away in each test."""
    with Cluster(1) as cluster:
        yield cluster


def made(cluster: Kafka, *names: str) -> None:
    """Queues of one partition."""
    Plan({name: QueueTopic(partitions=1) for name in names}).apply(cluster, quiet=True)


class Again:
    """How a verb fares after an outage, each called until it works."""

    def __init__(self, *verbs: Callable[[], Any]) -> None:
        self.verbs, self.reported = verbs, list[str]()
        self.worked = float("inf")  # when the last of them did

    def __call__(self) -> None:
        for verb in self.verbs:
            while True:
                try:
                    verb()
                    break
                except (Unreachable, LeaseLost) as error:
                    self.reported.append(str(error))
                    time.sleep(0.1)
        self.worked = time.monotonic()


def all_again(within: Within, *agains: Again) -> None:
    """Each in a thread of its own, until all of them work."""
    for again in agains:
        threading.Thread(target=again, daemon=True).start()
    within(WAIT, lambda: all(again.worked < float("inf") for again in agains), "something does not work again")


def test_who_only_puts_or_only_asks_works_again_ten_seconds_after_an_outage(away: Cluster, within: Within) -> None:
    names = "puts", "asks"
    made(away, *names)
    with Gate(away.bootstrap) as gate, ExitStack() as open_:
        puts, asks = (open_.enter_context(Site(Kafka(gate.address), name)).queue(name) for name in names)
        for queue in (puts, asks):
            queue.put(b"before")
        assert (asks.depth(), len(asks.peek())) == (1, 1)
        gate.shut = True
        away.broker(1).kill()
        within(WAIT, lambda: gate.informed >= REPORTED, "the clients do not ask")
        away.broker(1).start()
        gate.shut, back = False, time.monotonic()
        put, ask = Again(lambda: puts.put(b"after")), Again(asks.peek, asks.depth)
        all_again(within, put, ask)
        took = put.worked - back, ask.worked - back
        assert max(took) < AGAIN, f"puts work after {took[0]:.0f} s, asks after {took[1]:.0f} s"
        assert all("may have been, or not" in reported for reported in put.reported)
        assert 2 <= puts.depth() <= 2 + len(put.reported)


def test_a_close_with_the_broker_gone_ends_all_that_waits_in_time_and_loses_nothing(away: Cluster) -> None:
    name, empty, outputs = topic(away), topic(away), topic(away)
    site = Site(away, "closes", session=SESSION)
    queue, nothing, out = site.queue(name, lease=60), site.queue(empty), site.queue(outputs)
    queue.put_many([(b"%d" % n, None) for n in range(3)])
    items = taken(queue, 3)
    assert nothing.claim() is None

    def step() -> None:
        with queue.step(items[0]) as step:
            step.put(out, b"never")

    with ThreadPoolExecutor(5) as pool:
        claims = [pool.submit(nothing.claim, wait=WAIT) for _ in range(3)]
        time.sleep(0.5)  # they wait
        away.broker(1).kill()
        ends = [pool.submit(step), pool.submit(queue.ack, items[1])]
        time.sleep(1)
        begun = time.monotonic()
        site.close()
        assert [type(claim.exception(WAIT)) for claim in claims] == [Closed] * 3
        assert all(isinstance(end.exception(WAIT), KqError) for end in ends)
        assert time.monotonic() - begun < 6 * PATIENCE
    away.broker(1).start()
    with alone(away, "closes") as again:
        queue = again.queue(name)
        # the client may still have sent the ack when the broker was back, also after a question for the depth: what comes tells it
        came = drained(queue, 2)
        came += drained(queue, 1) if queue.depth() else []
        stored = len(came) == 2
        assert [data for data, _ in came] == [b"0", *[b"1"][stored:], b"2"]
        assert not stored or isinstance(ends[1].exception(), Unreachable)  # the verb raised that it does not know
        assert queue.depth() == 0
        assert again.queue(outputs).depth() == 0


def test_a_note_that_no_program_can_read_stops_no_site(away: Cluster) -> None:
    name = topic(away)
    with Site(away, name) as site:
        queue = site.queue(name)
        producer = Producer(away.client())
        for deep in (b"[" * 100_000, b'{"a":' * 100_000):
            producer.produce(QUEUES, b"x", json.dumps([name, name, "status"]))
            producer.produce(QUEUES, deep, b"[1]")
            producer.produce(QUEUES, b"x", deep)
        assert producer.flush(WAIT) == 0
        queue.put(b"a")
        queue.purge()  # it waits until its own note is read
        assert queue.depth() == 0


READS = {"group_id": "nobody", "group_protocol": "classic"}
DEAF: dict[str, tuple[Callable[[Site], Any], str, Callable[[], Any], Callable[[Queue], Any]]] = {
    "asks for bounds": (lambda site: site.cluster, "admin", lambda: AdminClient(NOWHERE.client()), Queue.depth),
    "asks for states": (
        lambda site: site._looker._kept,
        "_client",
        lambda: Consumer(NOWHERE.client(**READS)),
        Queue.depth,
    ),
    "reads items": (lambda site: site._reader._kept, "_client", lambda: Consumer(NOWHERE.client(**READS)), Queue.peek),
    "reads notes": (lambda site: site._notes._kept, "_client", lambda: Consumer(NOWHERE.client(**READS)), Queue.purge),
    "writes": (
        lambda site: site._sender(),
        "_producer",
        lambda: Producer(NOWHERE.client()),
        lambda queue: queue.put(b"x"),
    ),
}  # where the client is, a client that hears nobody, a verb that needs it


@pytest.mark.parametrize("what", DEAF)
def test_a_client_that_hears_nobody_is_replaced_while_all_others_work(kq_cluster: Kafka, name: str, what: str) -> None:
    place, attribute, deaf, verb = DEAF[what]
    with Site(Kafka(kq_cluster.bootstrap), name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put(b"first")
        assert (queue.depth(), len(queue.peek())) == (1, 1)
        old, dead = getattr(place(site), attribute), deaf()  # kept here: the end of a client may take long
        begun = time.monotonic()
        setattr(place(site), attribute, dead)
        again = Again(lambda: verb(queue))
        while getattr(place(site), attribute) in (old, dead):
            again()
            assert again.worked - begun < AGAIN


def test_who_claims_and_who_buries_works_again_when_the_clients_of_that_hear_nobody(
    kq_cluster: Kafka, name: str, monkeypatch: pytest.MonkeyPatch, within: Within
) -> None:
    monkeypatch.setattr(claim, "READ_WITHIN", 1.0)
    monkeypatch.setattr(transactions, "TIMEOUT", PATIENCE)
    monkeypatch.setattr(transactions, "PATIENCE", WAIT)
    for module in (session, transactions):
        monkeypatch.setattr(module, "RECONNECT_WITHIN", 0.5)
    with Site(Kafka(kq_cluster.bootstrap), name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put(b"first")
        queue.ack(queue.claim(wait=WAIT))
        deaf = Consumer(NOWHERE.client(group_id=name))
        old, site._session.consumer, changed = site._session.consumer, deaf, time.monotonic()
        within(WAIT, lambda: site._session._checked_at > changed, "its thread still reads from the old one")
        queue.put(b"second")
        with pytest.raises(Unreachable):
            queue.claim()
        within(WAIT, lambda: site._session.consumer not in (deaf, None), "it stays with the one that hears nobody")
        old.close()  # the group gives its partition to the new one
        item = queue.claim(wait=WAIT)
        assert item.data == b"second"
        site._session.endings.transactions._producer = Producer(NOWHERE.client(transactional_id=name))
        site._session.endings.transactions._fresh = True
        queue.bury(item, "bad")
        assert queue.depth() == 0 and queue.dead.depth() == 1


def test_of_two_processes_that_create_a_queue_at_the_same_moment_one_wins(
    kq_cluster: Kafka, name: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, others = notes.Notes.write, list[Worker]()

    def late(self: notes.Notes, noted: Any, sender: Any) -> None:
        """Between the look at what is noted and the note of this process another one creates the queue."""
        if not others:
            others.append(start(name, order="key"))
        write(self, noted, sender)

    monkeypatch.setattr(notes.Notes, "write", late)
    with Site(kq_cluster, name, session=SESSION) as site:
        with pytest.raises(NotAllowed, match="has order='key'"):
            site.queue(name, order="any")
        assert site.queue(name).terms.order == "key"
    noted = [each for part in snapshot.records(kq_cluster, QUEUES).values() for each in part]
    last = [each.value() for each in noted if json.loads(each.key()) == [name, name, "terms"]][-1]
    assert json.loads(last)["order"] == "key", "compaction keeps the last one"


def wide(cluster: Kafka, partitions: int, times: int = 1, **settings: Any) -> str:
    """A topic with so many partitions and so many records in each; with a transactional id, a transaction for each time."""
    name = f"wide-{uuid.uuid4().hex[:8]}"
    MADE.append((cluster, name))
    Plan({name: Topic(partitions)}).apply(cluster, quiet=True)
    producer = Producer(cluster.client(acks="all", **settings))
    if settings:
        producer.init_transactions(WAIT)
    for _ in range(times):
        if settings:
            producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(name, b"item", partition=partition)
        if settings:
            producer.commit_transaction(WAIT)
    assert producer.flush(WAIT) == 0
    return name


def test_a_hundred_partitions_whose_states_come_late_are_read_at_once(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = wide(kq_cluster, 100)
    monkeypatch.setattr(
        session, "STATES_WITHIN", 0.0
    )  # as on a busy machine: the assignment does not wait for its states
    with Site(kq_cluster, name, session=SESSION) as site:
        queue, begun, found = site.queue(name, max_attempts=None), time.monotonic(), 0
        while found < 100:
            items = queue.claim_many(100, wait=WAIT)
            queue.ack_many(items)
            found += len(items)
        took = time.monotonic() - begun
    assert took < 5 * PATIENCE, f"{took:.0f} s"


def test_an_ack_does_not_wait_while_the_marks_of_transactions_are_looked_at_in_fifty_partitions(
    kq_cluster: Kafka,
) -> None:
    name, took, found = wide(kq_cluster, 50, times=4, **{"transactional.id": "marks"}), list[float](), 0
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name, max_attempts=None)
        while found < 200:
            for item in queue.claim_many(50, wait=WAIT):
                begun = time.monotonic()
                queue.ack(item)
                took.append(time.monotonic() - begun)
                found += 1
        assert queue.lost == 0
    assert sorted(took)[-3] < PATIENCE, sorted(took)[-5:]  # the machine itself may stand still for a moment


@pytest.mark.nightly  # the cut: the test above
@pytest.mark.limit(400)
def test_sixteen_queues_take_puts_again_after_their_brokers_were_away_for_minutes(within: Within) -> None:
    names = [f"minutes-{number}" for number in range(16)]
    with Cluster(1) as cluster, Gate(cluster.bootstrap) as gate, ExitStack() as open_:
        made(cluster, *names)
        sites = [open_.enter_context(Site(Kafka(gate.address), name)) for name in names]
        queues = [site.queue(name) for site, name in zip(sites, names, strict=True)]
        for queue in queues:
            queue.put(b"before")
            assert queue.depth() == 1
        gate.shut, over = True, time.monotonic() + AWAY
        cluster.broker(1).kill()
        while time.monotonic() < over:  # someone tries all the time; the long outage is the point
            with pytest.raises(Unreachable):
                queues[0].put(b"lost")
        cluster.broker(1).start()
        gate.shut, back = False, time.monotonic()
        agains = [Again(partial(queue.put, b"after"), queue.depth) for queue in queues]
        all_again(within, *agains)
        took = sorted(again.worked - back for again in agains)
        assert took[-1] < AGAIN, f"the last one works after {took[-1]:.0f} s"


@pytest.mark.nightly  # the cut: who claims and who buries works again when the clients of that hear nobody
@pytest.mark.limit(400)
@pytest.mark.parametrize("what", ["killed", "stopped"])
def test_claims_work_again_a_session_and_ten_seconds_after_an_outage_of_a_minute(within: Within, what: str) -> None:
    """A commit may not take that long, so the consumer is replaced. The group gives its partition away after its session."""
    session = 5.0 * PATIENCE
    with Cluster(1) as cluster:
        made(cluster, "claims")
        with Site(cluster, "claims", session=session) as site:
            queue = site.queue("claims")
            queue.put_many([(b"%d" % number, None) for number in range(3)])
            held = queue.claim(wait=WAIT)
            broker, over = cluster.broker(1), time.monotonic() + WAIT
            broker.kill() if what == "killed" else broker.pause()
            with pytest.raises(Unreachable):
                queue.ack(held)
            while time.monotonic() < over:  # the long outage is the point
                with suppress(Unreachable, LeaseLost):
                    queue.ack_many(queue.claim_many(1, wait=1))
            broker.start() if what == "killed" else broker.resume()
            back = time.monotonic()
            again = Again(lambda: queue.ack(claimed(queue)))
            all_again(within, again)
            assert again.worked - back < session + AGAIN, (
                f"it works after {again.worked - back:.0f} s: {again.reported[-3:]}"
            )


def claimed(queue: Queue) -> Item:
    """The next item; Unreachable while there is none."""
    item = queue.claim(wait=1)
    if item is None:
        raise Unreachable(address="", why="nothing came")
    return item


def test_the_log_of_a_leader_that_is_silent_has_no_end(away: Cluster) -> None:
    """librdkafka gives an offset of -1001 and no error, and with that a claim would find nothing to wait for."""
    name = topic(away)
    with away.frozen(1), pytest.raises(Unreachable):
        state.ends(away, [(name, 0)], 0.2)


SILENT = DEFAULTS["socket.timeout.ms"] / 1000  # seconds until a client leaves a broker that is connected and silent
# Seconds. One answer that never comes, the broker's session (4 s), and what is asked again. A transaction begins its last try when its
# patience ends. A question first waits for what this process has acked.
LIMIT, LAST = SILENT + 6, transactions.PATIENCE + transactions.TIMEOUT + 3
CHANGES, IN_TRANSACTIONS = ("put", "claim", "ack", "release", "extend"), ("step", "bury")


@pytest.mark.nightly  # a minute; the cut: the settings that a client gets, in tests/unit/test_settings.py
@pytest.mark.limit(400)
@pytest.mark.parametrize("silent", ["q", "__consumer_offsets", "__transaction_state"])
def test_no_verb_waits_longer_for_a_silent_broker_than_its_limit(silent: str) -> None:
    """A leader or a coordinator is stopped (SIGSTOP): connections stay open, and others lead after the broker's session, 4 s.

    A transaction may end with an error that says that nothing happened: once Kafka loaded its coordinator for 10 s. A question may be
    `Unreachable`, and is asked again.
    """
    with Cluster(3) as cluster:
        Plan({"q": QueueTopic(partitions=3, config={"min.insync.replicas": "2"})}).apply(cluster, quiet=True)
        with Site(cluster, "s", session=4 * SESSION) as site:  # longer than a coordinator is away: no lease is lost
            queue = site.queue("q", lease=WAIT)
            queue.put_many([(b"%d" % n, b"%d" % n) for n in range(30)])
            items = taken(queue, 24)
            queue.bury(items.pop())
            verbs: dict[str, Callable[[], Any]] = {
                "put": lambda: queue.put_many([(b"%d" % n, b"more") for n in range(6)]),
                "claim": lambda: queue.claim(wait=WAIT),
                "ack": lambda: queue.ack_many(items[:4]),
                "step": partial(stepped, queue, items[4]),
                "bury": lambda: queue.bury(items[5]),
                "release": lambda: queue.release(items[6]),
                "extend": lambda: queue.extend(items[7]),
                "depth": queue.depth,
                "peek": queue.peek,
                "dead": queue.dead.depth,
            }
            leader = cluster.leader(silent, items[5].partition if silent == "q" else 0)
            assert leader is not None
            with cluster.frozen(leader), ThreadPoolExecutor(len(verbs)) as pool:
                took = dict(zip(verbs, pool.map(timed, verbs.values()), strict=True))
            print(silent, took)
            for verb, (seconds, error) in took.items():
                assert seconds < (LIMIT if verb in CHANGES else LAST) * PATIENCE, (verb, took)
                assert not error or verb not in CHANGES, (verb, took)
                assert not error or verb not in IN_TRANSACTIONS or "Nothing of it happened" in error, (verb, took)


def stepped(queue: Queue, item: Item) -> None:
    """A step with one output."""
    with queue.step(item) as step:
        step.put(queue, b"out")


def timed(verb: Callable[[], Any]) -> tuple[float, str]:
    """How many seconds it took, and its error."""
    begun, error = time.monotonic(), ""
    try:
        verb()
    except KqError as raised:
        error = f"{type(raised).__name__}: {raised}"
    return time.monotonic() - begun, error
