"""Records the films of notebooks/films from real runs: what `make films` calls, and nothing else.

    python -m tests.notebooks.films [NAME…]      # all without a NAME

In:  an embedded Kafka. Out: a file a film: a title, and frames with a sentence and pictures as plain values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

import kqlib as kq
from kqlib.queue import look, state
from kqlib.queue.ledger import Ledger
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop import view
from kqlib.workshop.children import Children
from kqlib.workshop.promises.adapter import Claim, RemoteQueue
from kqlib.workshop.promises.values import Refused
from kqlib.workshop.view.lane import State

from .page import REPO

FOLDER = REPO / "notebooks" / "films"
Frame = dict[str, Any]


class Recorder:
    """Collects frames."""

    def __init__(self, title: str) -> None:
        self.recording: dict[str, Any] = {"title": title, "frames": []}

    def frame(self, text: str, *pictures: Frame) -> None:
        """Keep what there is now."""
        self.recording["frames"].append({"text": text, "pictures": list(pictures)})


def until(condition: Callable[[], object], why: str) -> None:
    """Wait for a state."""
    wait_for(condition, 60 * PATIENCE, why, not_yet=(KafkaException, kq.errors.Unreachable))


def leader_killed() -> Recorder:
    """Two producers write to a leader whose followers stand still; then it dies. acks=1 loses, acks=all does not."""
    film = Recorder("The leader is killed: what acks=1 and acks=all keep")
    with kq.Cluster(brokers=3) as cluster:
        topics = {"careless": {"acks": 1}, "careful": {"acks": "all", "enable_idempotence": True}}
        placed = {"num_partitions": 1, "replica_assignment": [[1, 2, 3]]}
        new = [NewTopic(name, config={"min.insync.replicas": "2"}, **placed) for name in topics]
        for made in cluster.admin.create_topics(new).values():
            made.result(30)
        for name in topics:
            cluster.wait_for_topic(name, 1)

        def now() -> list[Frame]:
            pictures = []
            for name in topics:
                brokers, [part] = kq.snapshot.brokers(cluster, name)
                part = replace(part, ends=kq.snapshot.copies(cluster, name))
                pictures.append(
                    {"cluster": name, "brokers": [asdict(b) for b in brokers], "partitions": [asdict(part)]}
                )
            return pictures

        def equal(count: int) -> bool:
            return all({*kq.snapshot.copies(cluster, name).values()} == {count} for name in topics)

        acked = dict.fromkeys(topics, 0)
        producers = {name: Producer(cluster.client(**how)) for name, how in topics.items()}

        def send(count: int) -> None:
            for name, producer in producers.items():

                def report(error: object, _: object, name: str = name) -> None:
                    acked[name] += error is None

                for number in range(count):
                    producer.produce(name, f"goal {number}", "ARS-CHE", on_delivery=report)
                producer.poll(0)

        send(1)
        for producer in producers.values():
            producer.flush(30)
        until(lambda: equal(1), "three equal copies")
        film.frame("Two topics, three brokers. Each record has three copies, and broker 1 leads.", *now())
        with cluster.frozen(2, 3):
            film.frame("Brokers 2 and 3 stand still: connected, and silent.", *now())
            send(10)
            until(lambda: all(kq.snapshot.copies(cluster, name)[1] == 11 for name in topics), "the leader's copies")
            until(lambda: producers["careless"].flush(1) == 0, "the answers of acks=1")
            text = "Ten records each. The leader has them, the followers do not."
            film.frame(
                f"{text} Acknowledged with acks=1: {acked['careless'] - 1}, with acks=all: {acked['careful'] - 1}.",
                *now(),
            )
            cluster.broker(1).kill()
        until(lambda: all(cluster.leader(name, 0) in (2, 3) for name in topics), "a new leader")
        until(lambda: producers["careful"].flush(1) == 0, "the answers of acks=all")
        until(lambda: all(kq.snapshot.copies(cluster, "careful")[n] == 11 for n in (2, 3)), "copies of the new leader")
        text = "Broker 1 is killed, and the others go on. A follower leads, with what it has."
        film.frame(f"{text} The careful producer sends again: {acked['careful'] - 1} acknowledged.", *now())
        cluster.broker(1).start()
        until(lambda: {*kq.snapshot.copies(cluster, "careful").values()} == {11}, "broker 1 in sync")
        until(lambda: {*kq.snapshot.copies(cluster, "careless").values()} == {1}, "broker 1 to cut its log")
        film.frame("Broker 1 is back, and follows. It cuts from its log what the new leader does not have.", *now())
        kept = {name: len(kq.snapshot.records(cluster, name)[0]) - 1 for name in topics}
        text = f"acks=1: {acked['careless'] - 1} acknowledged, {kept['careless']} kept."
        film.frame(f"{text} acks=all: {acked['careful'] - 1} acknowledged, {kept['careful']} kept.", *now())
    return film


def dead_letter() -> Recorder:
    """Item C fails three times, is buried as a dead letter, and is put back."""
    film = Recorder("A poison item: three attempts, a dead letter, and back")
    with kq.Cluster() as cluster:
        kq.Plan({"football": kq.QueueTopic(partitions=1)}).apply(cluster)
        with kq.Site(cluster, "film") as site:
            queue = site.queue("football", max_attempts=3)
            queue.put_many([(letter.encode(), letter.encode()) for letter in "ABCDE"])

            held: dict[int, int] = {}  # offset -> attempt, of what is claimed
            buried: set[int] = set()

            def kind(offset: int, ledger: Ledger) -> State:
                if offset in held:
                    return "claimed"
                if offset in buried:
                    return "dead"
                over = offset < ledger.floor or (offset < ledger.top and ledger.attempts(offset) is None)
                return "done" if over else "waiting"

            def now() -> list[Frame]:
                seen, _ = look.seen(site, "football")[0]
                ledger = state.ledger_from(seen, "earliest", "football")
                [lane] = kq.snapshot.lanes(cluster, "football")
                cells = [
                    replace(each, state=kind(each.offset, ledger), attempt=held.get(each.offset, 1))
                    for each in lane.records
                ]
                shown = replace(lane, records=cells, floor=ledger.floor, read=ledger.top)
                return [plain("football", [shown]), plain("football.dead", kq.snapshot.lanes(cluster, "football.dead"))]

            def claim() -> kq.queue.Item:
                item = queue.claim(wait=10)
                assert item is not None
                held[int(item.id.split("/")[2])] = item.attempt
                return item

            def over(verb: Callable[..., object], item: kq.queue.Item, **how: object) -> None:
                verb(item, **how)
                del held[int(item.id.split("/")[2])]

            film.frame("Five items wait. C is poison: its handler raises an error each time.", *now())
            a, b, c = claim(), claim(), claim()
            film.frame("A worker claims A, B and C. Each is out once.", *now())
            over(queue.ack, a)
            over(queue.ack, b)
            over(queue.release, c)
            film.frame("A and B are done, and the floor rises to C. C failed, and is back in the queue.", *now())
            c, d = claim(), claim()
            over(queue.ack, d)
            film.frame(f"C is out again: attempt {c.attempt}. D is done, and the floor still stands at C.", *now())
            over(queue.release, c)
            c = claim()
            film.frame(f"C failed again. Attempt {c.attempt} is the last one.", *now())
            buried.add(int(c.id.split("/")[2]))
            over(queue.bury, c, reason="ValueError: no such team")
            [letter] = queue.dead.peek()
            words = (
                f"The dead letter names the reason: {letter.headers['kq-reason'].decode()}." if letter.headers else ""
            )
            film.frame(f"C is buried: the letter and its ack are one transaction. {words}", *now())
            over(queue.ack, claim())
            film.frame("E is done. The queue is empty, and nothing waits behind the poison.", *now())
            queue.redrive(1)
            film.frame("The handler is mended, and redrive puts C back: a new item, last in line.", *now())
            over(queue.ack, claim())
            film.frame(f"C is done at attempt 1. {queue.depth()} items are left.", *now())
    return film


def zombie() -> Recorder:
    """A worker stands still and is replaced. It wakes up: its late ack is refused, also when it owns the partition again."""
    film = Recorder("A zombie and its fences: the group, the owner epoch, the lease")
    with kq.Cluster() as cluster, Children() as children, kq.Site(cluster, "eu") as looker:
        kq.Plan({"football": kq.QueueTopic(partitions=1)}).apply(cluster, quiet=True)
        with kq.Site(cluster, "producer") as producer:
            producer.queue("football").put_many([(letter.encode(), letter.encode()) for letter in "ABCD"])

        def worker() -> RemoteQueue:
            make = lambda cluster, name: kq.Site(cluster, "eu", session=2).queue(name, max_attempts=None)  # noqa: E731
            return RemoteQueue(children, make, cluster, "football")

        def ledger() -> Ledger:
            seen, _ = look.seen(looker, "football")[0]
            return state.ledger_from(seen, "earliest", "football")

        def now(owner: str, *others: str) -> list[Frame]:
            book = ledger()
            [lane] = kq.snapshot.lanes(cluster, "football")
            cells = []
            for each in lane.records:
                attempts = book.attempts(each.offset)
                kind: State = "claimed" if attempts else "done" if each.offset < book.top else "waiting"
                cells.append(replace(each, state=kind, attempt=attempts or 1))
            members = [{"name": owner, "holds": ["p0"]}, *({"name": other, "holds": []} for other in others)]
            shown = replace(lane, records=cells, floor=book.floor, read=book.top)
            return [{"group": "eu", "members": members, "slots": [{"name": "p0"}]}, plain("football", [shown])]

        def refused(queue: RemoteQueue, claim: Claim) -> str:
            try:
                queue.call("ack", claim.number)
            except Refused as error:
                return error.kind
            raise AssertionError("the ack of a zombie was taken")

        one = worker()
        a = one.call("claim", wait=30)
        text = f"Worker one owns the partition: its epoch is {ledger().epoch}. It claims A, attempt {a.attempt}."
        film.frame(f"{text} The state is stored before the claim returns.", *now("one"))
        one.pause()
        film.frame("Worker one stands still. For the group it is a member until its session is over.", *now("one"))
        two = worker()
        again = two.call("claim", wait=30)
        text = f"The session is over: worker two owns the partition. It stores epoch {ledger().epoch}"
        film.frame(f"{text} and claims A, attempt {again.attempt}.", *now("two"))
        one.resume()
        film.frame(f"One wakes up and acks A by its own claim: {refused(one, a)}. The state is as before.", *now("two"))
        two.kill()
        third = one.call("claim", wait=60)
        text = f"Two is killed. After its session one is the owner again, with epoch {ledger().epoch}."
        film.frame(f"{text} It claims A, attempt {third.attempt}.", *now("one"))
        text = f"One acks A by its first claim, of epoch 1: {refused(one, a)}."
        film.frame(f"{text} It owns the item, but not by this claim.", *now("one"))
        one.call("ack", third.number)
        film.frame("It acks A by its claim of now, and that counts. A was never lost, and is done once.", *now("one"))
        one.call("close")
    return film


def rebalance() -> Recorder:
    """Members join, one dies, and one leaves: who holds what, and which partitions nobody holds meanwhile."""
    film = Recorder("A rebalance: who holds what, and what nobody holds meanwhile")
    with kq.Cluster() as cluster:
        kq.Plan({"scores": kq.Topic(partitions=4)}).apply(cluster, quiet=True)
        kq.groups.clocks(cluster, "readers", session=5, heartbeat=0.1)
        with kq.groups.Group(cluster, "readers", "scores", session=5) as group:

            def now(held: kq.groups.Assignment) -> Frame:
                names = {part: f"p{part[1]}" for part in held.partitions}
                members = [
                    {"name": name, "holds": [names[part] for part in parts]}
                    for name, parts in sorted(held.held.items())
                ]
                return {"group": "readers", "members": members, "slots": [{"name": name} for name in names.values()]}

            film.frame("One member has all four partitions.", now(group.join("ann")))
            film.frame("ben joins, and the group shares the partitions out again.", now(group.join("ben")))
            film.frame("cem and dan join: one partition each.", now(group.join("cem", "dan")))
            five = group.join("eve")
            idle = next(name for name, parts in five.held.items() if not parts)
            film.frame(f"eve joins: five members, four partitions. {idle} is idle.", now(five))
            dead = next(name for name, parts in five.held.items() if parts)
            after = group.crash(dead, wait=False)
            text = "is killed. The others read on. Until its session ends, nobody reads its partition."
            film.frame(f"{dead} {text}", now(after))
            film.frame("The session has ended: each of the four members has a partition.", now(group.settle()))
            leaver = next(iter(group.members))
            text = "leaves in good order. Nobody has to wait for a session: another member has two partitions."
            film.frame(f"{leaver} {text}", now(group.leave(leaver)))
    return film


def plain(title: str, lanes: list[view.Lane]) -> Frame:
    """Lanes as JSON has them."""
    values = [asdict(lane) for lane in lanes]
    for lane in values:
        for each in lane["records"]:
            each["key"] = each["key"].decode() if isinstance(each["key"], bytes) else each["key"]
    return {"log": title, "lanes": values}


FILMS = {"leader-killed": leader_killed, "rebalance": rebalance, "zombie": zombie, "dead-letter": dead_letter}


def main(names: list[str]) -> None:
    """Record them and write their files."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or FILMS:
        text = json.dumps(FILMS[name]().recording, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(f"notebooks/films/{name}.json")


if __name__ == "__main__":
    main(sys.argv[1:])
