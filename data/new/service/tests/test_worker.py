"""The worker on a real Kafka: an embedded one, or the one that KQ_BOOTSTRAP names."""

import sys

import pytest

import kqlib as kq
from worker import HERE, SCHEMA, orders, receipt, run

GOOD = {"customer": "Ada", "pieces": 3, "cents": 250}


def test_an_order_becomes_a_receipt():
    assert receipt(GOOD) == b"Ada pays 750 cents"


def test_orders_are_worked_on_and_a_bad_one_becomes_a_dead_letter(kq_cluster, kq_queue, kq_topic):
    codec = orders(kq_cluster)
    kq.Plan({kq_topic: kq.QueueTopic(partitions=1)}).apply(kq_cluster, quiet=True)
    receipts = kq_queue.site.queue(kq_topic)
    bad = codec.encode({**GOOD, "pieces": 0})
    kq_queue.put_many([(codec.encode(GOOD), b"Ada"), (bad, b"Ada"), (b"no Avro", b"Ada")])
    run(kq_queue, receipts, lambda data: receipt(codec.decode(data)), until="empty")
    assert receipts.claim(wait=10).data == b"Ada pays 750 cents"
    assert {letter.data for letter in kq_queue.dead.peek()} == {bad, b"no Avro"}
    assert receipts.claim(wait=0) is None


def test_an_order_may_get_a_field_with_a_default_and_no_other():
    registry = kq.schemas.Registry()
    registry.register("orders-value", SCHEMA)
    more = {"name": "gift", "type": "boolean"}
    assert not registry.check("orders-value", {**SCHEMA, "fields": [*SCHEMA["fields"], more]})
    assert registry.check("orders-value", {**SCHEMA, "fields": [*SCHEMA["fields"], {**more, "default": False}]})


def test_a_worker_that_is_killed_loses_no_order_and_writes_no_receipt_twice(kq_crash):
    report = kq_crash([sys.executable, str(HERE / "under_crash.py")], sample=6, seed=1)
    assert report.clean, report


@pytest.mark.parametrize("name", ["orders", "receipts"])
def test_the_plan_has_the_topics(name):
    assert name in kq.Plan.read(HERE / "plan.toml").topics
