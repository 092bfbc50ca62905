"""Everything that brokers need, fetched and prepared once: `python -m kqlib.workshop.cluster`, which `make lab` calls."""

from __future__ import annotations

from pathlib import Path

from kqlib.errors import in_a_sentence
from kqlib.kafka import Kafka
from kqlib.kafka.clients import Consumer
from kqlib.queue import Site
from kqlib.runtime import archive, jars, program
from kqlib.runtime.patience import wait_for
from kqlib.share import ShareQueue
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.children import Children
from kqlib.workshop.cluster import node

WAIT = 60.0  # seconds for each step; all of it takes five


def record(options: list[str], place: Path) -> None:
    """Run a broker and use it; the options let it keep the classes that it loaded at its end."""
    port, controller = node.free_ports(2)
    one = node.Node(1, port, controller, place / "broker-1")
    program.write_properties(one.settings, node.properties(one, [one], {}))
    node.format_disks([one], {}, node.new_id())
    command = node.run_command(one)
    with Children() as children:
        child = children.run("record", [command[0], *options, *command[1:]], one.log)
        wait_for(lambda: not child.alive or node.open_port(port), WAIT, "a broker to be recorded")
        with Kafka(f"{node.HOST}:{port}") as cluster:
            use(cluster)
        child.stop(WAIT)


def use(cluster: Kafka) -> None:
    """What nearly every lab and test asks of its broker, so that their brokers find these classes too."""
    Plan({"football": QueueTopic(partitions=2)}).apply(cluster, quiet=True)
    with Site(cluster, "eu") as site:  # a group of the new protocol, with transactions
        queue = site.queue("football")
        queue.put_many([(b"goal", b"ARS"), (b"foul", b"CHE"), (b"corner", None)])
        for item in queue.claim_many(1, wait=WAIT):
            queue.bury(item, "recorded")
        queue.redrive()
        queue.ack_many(queue.claim_many(9, wait=WAIT))
    with ShareQueue(cluster, "football") as shared:
        shared.ack_many(shared.claim_many(9, wait=WAIT))
    old = Consumer(cluster.client(group_id="old", group_protocol="classic", auto_offset_reset="earliest"))
    old.subscribe(["football"])
    old.commit(old.poll(WAIT), asynchronous=False)
    old.close()
    for done in cluster.admin.delete_topics(["football", "football.dead"]).values():
        done.result(WAIT)


if __name__ == "__main__":
    with in_a_sentence():
        jars.fetch("broker")
        archive.make(program.classpath(), record)
