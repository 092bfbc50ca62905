"""A process that has a site and forks; run as `python -m tests.promises.fork_parent TOPIC`, with KQ_BOOTSTRAP.

In:  a queue's topic. Out: one line of JSON: what the children and then the parent saw in each case below, one after the other.
A child that hangs is killed after LIMIT seconds: that is 'hung'.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import kqlib as kq
from kqlib.errors import KqError, NotAllowed
from kqlib.kafka.clients import (
    Consumer,  # a reader's own, of confluent_kafka itself, would end the child's exit by SIGABRT
)
from kqlib.queue import site as sites
from kqlib.share import ShareQueue
from kqlib.virtual.names import topics

LIMIT = 8.0 * float(os.environ.get("KQ_PATIENCE") or 1)
TOPIC = sys.argv[1]
CLUSTER = kq.connect()
SITE = kq.Site(CLUSTER, f"{TOPIC}-fans")
QUEUE = SITE.queue(TOPIC)
QUEUE.put(b"before")
QUEUE.ack(QUEUE.claim(wait=60))  # it is in its group, with all its clients and threads
ANSWER: dict[str, Any] = {}


def fork(work: Callable[[], Any]) -> tuple[int, int]:
    """A child that does this and leaves as any program does; its id, and the pipe with what it wrote."""
    out, into = os.pipe()
    if child := os.fork():
        os.close(into)
        return child, out
    os.dup2(into, 2)
    reported = work()
    os.write(into, json.dumps(reported).encode())
    sys.exit(0)


def wait(child: int) -> int | str:
    """Its status; 'hung' if it had to be killed."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def end(child: int, out: int) -> Any:
    """What the child wrote, if its end was a clean one; else how it ended."""
    status = wait(child)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    return json.loads(text) if status == 0 else f"{status}: {text}"


def tried(verbs: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What each verb says, and the seconds of the slowest."""
    answer, slowest = dict[str, Any](), 0.0
    for name, verb in verbs.items():
        began = time.monotonic()
        try:
            answer[name] = repr(verb())
        except KqError as error:
            answer[name] = f"{type(error).__name__}: {error}"
        slowest = max(slowest, time.monotonic() - began)
    return answer | {"slowest": slowest}


def held(*locks: Any) -> Callable[[], None]:
    """Another thread of the parent holds these locks, until the answer is called."""
    taken, over = threading.Event(), threading.Event()

    def hold(*rest: Any) -> None:
        if not rest:
            taken.set()
            over.wait()
            return
        with rest[0]:
            hold(*rest[1:])

    threading.Thread(target=hold, args=locks, daemon=True).start()
    taken.wait()
    return over.set


def work_anew(name: str = f"{TOPIC}-fans", topic: str = TOPIC) -> str:
    """A connection of one's own: put, claim, ack."""
    with kq.Site(kq.connect(), name) as site:
        queue = site.queue(topic)
        queue.put(b"of the child")
        queue.ack(queue.claim(wait=LIMIT))
        return "acked"


def inherited() -> None:
    """Every verb of what was made before the fork, while another thread of the parent holds its locks."""
    QUEUE.put_many([(b"1", None), (b"2", None)])
    item, other, share = QUEUE.claim(wait=LIMIT), kq.Site(CLUSTER, f"{TOPIC}-more"), ShareQueue(CLUSTER, TOPIC)
    registry, step = kq.schemas.Registry(cluster=CLUSTER), QUEUE.step(item)
    assert CLUSTER.admin is not None
    let_go = held(SITE._session.changed, sites._LIVE_LOCK, share.changed, registry.client._lock)
    verbs: dict[str, Callable[[], Any]] = {
        "put": lambda: QUEUE.put(b"x"),
        "claim": lambda: QUEUE.claim(wait=1),
        "ack": lambda: QUEUE.ack(item),
        "ack_many": lambda: QUEUE.ack_many([item]),
        "release": lambda: QUEUE.release(item),
        "extend": lambda: QUEUE.extend(item),
        "bury": lambda: QUEUE.bury(item),
        "step": lambda: QUEUE.step(item),
        "a step's end": lambda: step.__exit__(None, None, None),
        "depth": QUEUE.depth,
        "purge": QUEUE.purge,
        "peek": QUEUE.peek,
        "discard": lambda: QUEUE.discard(item.id),
        "stats": QUEUE.stats,
        "lost": lambda: QUEUE.lost,
        "blocked": lambda: QUEUE.blocked,
        "work": lambda: QUEUE.work(print, until=1),
        "queue": lambda: SITE.queue(TOPIC),
        "transaction": SITE.transaction,
        "another site": lambda: other.queue(TOPIC),
        "a site on it": lambda: kq.Site(CLUSTER, "new"),
        "client": CLUSTER.client,
        "admin": lambda: CLUSTER.admin,
        "brokers": lambda: CLUSTER.brokers,
        "share put": lambda: share.put(b"x"),
        "share claim": share.claim,
        "share work": lambda: share.work(print, until=1),
        "registry": lambda: registry.set_level("football", "NONE"),
    }
    ANSWER["verbs"] = end(*fork(lambda: tried(verbs)))
    ANSWER["anew"] = end(*fork(lambda: work_anew(f"{TOPIC}-child")))
    let_go()
    QUEUE.ack(item)
    share.close()
    other.close()


def leaves() -> None:
    """Children that only leave: inside a block, with the last reference gone, by _exit, out of multiprocessing."""
    ANSWER["sys.exit"] = end(*fork(lambda: "left"))

    def in_a_block() -> Any:
        with CLUSTER, SITE:
            SITE.close()
            return "left"

    ANSWER["a block's end"] = end(*fork(in_a_block))

    def forgets() -> str:
        for name in ("CLUSTER", "SITE", "QUEUE"):
            del globals()[name]
        gc.collect()
        return "left"

    ANSWER["no reference"] = end(*fork(forgets))
    if (child := os.fork()) == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    process = multiprocessing.get_context("fork").Process(target=work_anew, args=(f"{TOPIC}-child",))
    process.start()
    process.join(LIMIT)
    ANSWER["multiprocessing"] = process.exitcode
    if process.exitcode is None:
        process.kill()
        process.join()


def serves() -> None:
    """A server that connects before it forks its workers; they are ended by SIGTERM."""

    def worker(number: int) -> Callable[[], Any]:
        def serve() -> Any:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            answer = tried({"put": lambda: QUEUE.put(b"x")}) | {"anew": work_anew(f"{TOPIC}-{number}")}
            site = kq.Site(kq.connect(), f"{TOPIC}-fans")  # open when the signal comes
            os.write(2, json.dumps(answer | {"depth": site.queue(TOPIC).depth() > 0}).encode() + b"\n")
            while True:
                signal.pause()

        return serve

    workers = [fork(worker(number)) for number in range(3)]
    ANSWER["workers"], deadline = [], time.monotonic() + 2 * LIMIT
    for child, out in workers:
        line = b""
        os.set_blocking(out, False)
        while not line.endswith(b"\n") and time.monotonic() < deadline:
            try:
                line += os.read(out, 65536)
            except BlockingIOError:
                time.sleep(0.01)
        os.kill(child, signal.SIGTERM)
        os.set_blocking(out, True)
        ANSWER["workers"].append({"answer": line.decode(), "ended": wait(child)})


def embedded() -> None:
    """A child leaves, and closes what it inherited: the parent's broker runs on."""
    cluster = kq.Cluster()
    broker = cluster.broker(1)

    def meddle() -> Any:
        answer = tried({"kill": broker.kill, "broker": lambda: cluster.broker(1), "address": lambda: cluster.bootstrap})
        cluster.close()
        return answer

    ANSWER["child"] = end(*fork(meddle))
    ANSWER["brokers"] = cluster.brokers
    cluster.close()


def virtual() -> None:
    """A client of virtual queues and a node, while another thread of the parent holds the client's connections."""
    kq.Plan(topics(f"{TOPIC}-v", 1)).apply(CLUSTER, quiet=True)
    node = kq.virtual.Node(CLUSTER, f"{TOPIC}-v").start()
    client = kq.virtual.Client(node.url)
    queue = client.queue("ARS-CHE")
    queue.put_many([(b"1", None), (b"2", None)])
    item, transport = queue.claim(wait=LIMIT), cast(Any, client._http._transport)
    let_go = held(transport._pool._optional_thread_lock)
    verbs: dict[str, Callable[[], Any]] = {
        "put": lambda: queue.put(b"x"),
        "claim": lambda: queue.claim(wait=1),
        "ack": lambda: queue.ack(item),
        "ack_many": lambda: queue.ack_many([item]),
        "release": lambda: queue.release(item),
        "extend": lambda: queue.extend(item),
        "bury": lambda: queue.bury(item),
        "redrive": queue.redrive,
        "depth": queue.depth,
        "read": queue.read,
        "delete": queue.delete,
        "work": lambda: queue.work(print, until=1),
        "another queue": lambda: client.queue("MUN-TOT").put(b"x"),
        "owners": lambda: client.owners,
        "queues": client.queues,
        "start": node.start,
        "ready": node.ready,
        "collect": lambda: node.collect(0, 0),
        "a node on it": lambda: kq.virtual.Node(CLUSTER, f"{TOPIC}-v"),
    }

    def in_a_block() -> str:
        with client, suppress(NotAllowed), node:
            client.close()
        node.close()
        return "left"

    def anew() -> str:
        with kq.virtual.Client(node.url) as own:
            own.queue("ARS-CHE").ack(own.queue("ARS-CHE").claim(wait=LIMIT))
            return "acked"

    ANSWER["verbs"] = end(*fork(lambda: tried(verbs)))
    ANSWER["a block's end"] = end(*fork(in_a_block))
    ANSWER["anew"] = end(*fork(anew))
    let_go()
    queue.ack(item)
    ANSWER["depth"] = queue.depth()
    stays, leave = os.pipe()
    lives = fork(lambda: os.read(stays, 1).decode())
    node.close()
    ANSWER["closed"] = "still open"
    try:
        socket.create_connection((urlsplit(node.url).hostname or "", urlsplit(node.url).port or 0), 1).close()
    except ConnectionRefusedError:
        ANSWER["closed"] = "nobody listens"
    os.write(leave, b"!")
    ANSWER["lives on"] = end(*lives)
    client.close()


def lab() -> None:
    """A notebook's lab, with a reader of its topic, and the playgrounds on it."""
    here = kq.lab(TOPIC)
    football, reader = here.topic("football"), Consumer(here.client(group_id=here.group("fans")))
    folder = here.folder("stream")
    reader.subscribe([football])
    reader.poll(0.1)
    played = {"queue": kq.play.queue(here), "group": kq.play.group(here)}
    verbs: dict[str, Callable[[], Any]] = {
        "topic": lambda: here.topic("football"),
        "another topic": lambda: here.topic("scores"),
        "group": lambda: here.group("fans"),
        "folder": lambda: here.folder("stream"),
        "client": here.client,
        "admin": lambda: here.admin,
        "kafka": lambda: here.kafka("topics", "--list"),
        "draw": lambda: here.draw(football),
        "a group": lambda: kq.groups.Group(here, "more", football),
        "press": lambda: played["queue"].press("put 6 items"),
        "press the group's": lambda: played["group"].press("join"),
        "a playground on it": lambda: kq.play.queue(here),
    }

    def closes() -> str:
        here.close()
        return "left"

    ANSWER["verbs"] = end(*fork(lambda: tried(verbs)))
    ANSWER["close"] = end(*fork(closes))
    ANSWER["folder"] = os.path.isdir(folder)
    ANSWER["topic"] = here.topic("football")
    ANSWER["plays"] = played["queue"].press("put 6 items").note, played["group"].press("join").note
    here.close()


def group() -> None:
    """A group with a member, while the thread that listens to it holds the record of what members do."""
    made = kq.groups.Group(CLUSTER, f"{TOPIC}-readers", TOPIC)
    made.join("ann")
    let_go = held(made._record.lock)
    verbs: dict[str, Callable[[], Any]] = {
        "assignment": made.assignment,
        "work": lambda: made.work,
        "timeline": made.timeline,
        "draw": made.draw,
        "lag": made.lag,
        "settle": made.settle,
        "join": made.join,
        "leave": made.leave,
        "pause": lambda: made.pause("ann"),
        "resume": made.resume,
        "crash": lambda: made.crash("ann"),
        "a group of its name": lambda: kq.groups.Group(CLUSTER, made.name, TOPIC),
    }

    def in_a_block() -> str:
        with made:
            return "left"

    ANSWER["verbs"] = end(*fork(lambda: tried(verbs)))
    ANSWER["a block's end"] = end(*fork(in_a_block))
    let_go()
    ANSWER["members"] = made.members, list(made.assignment().held)
    made.close()


if __name__ == "__main__":
    answers = {}
    for case in (inherited, leaves, serves, embedded, virtual, lab, group):
        ANSWER = answers[case.__name__] = {}
        case()
        QUEUE.put(b"of the parent")  # whatever the children did, it goes on
        ANSWER["parent"] = (QUEUE.claim(wait=LIMIT) or QUEUE.put).__class__.__name__
    SITE.close()
    print(json.dumps(answers))
