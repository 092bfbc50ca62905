"""Share groups on a real Kafka: what a ShareConsumer really does. test_promises.py scores its promises."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from kqlib.errors import LeaseLost, NotAllowed, TopicMissing
from kqlib.queue.item import Item
from kqlib.share import ShareQueue
from kqlib.topics import Plan, Topic
from tests.patience import PATIENCE, WAIT, until
from tests.promises.rights import USUAL, may, the_one


@pytest.fixture
def share(kq_cluster, kq_topic):
    """Queues of one group on this test's topic."""
    made = []

    def make(**how):
        made.append(ShareQueue(kq_cluster, kq_topic, **how))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def settings(cluster, group):
    resource = ConfigResource(ResourceType.GROUP, group)
    found = cluster.admin.describe_configs([resource])[resource].result(WAIT)
    return {name: entry.value for name, entry in found.items() if name.startswith("share.")}


def test_the_groups_settings_are_set_in_the_cluster_and_stay(kq_cluster, share):
    first = share(lease=7, max_attempts=3)
    found = settings(kq_cluster, first.group)
    assert found["share.record.lock.duration.ms"] == "7000"
    assert found["share.delivery.count.limit"] == "3"
    assert found["share.auto.offset.reset"] == "earliest"
    assert found["share.isolation.level"] == "read_committed"
    second = share()  # says nothing: has what the group has
    assert (second.lease, second.max_attempts) == (7.0, 3)


REFUSED = {"a lock that is too short": {"lease": 0.1}, "more deliveries than the cluster allows": {"max_attempts": 99}}


@pytest.mark.parametrize("case", REFUSED)
def test_a_setting_that_the_cluster_refuses_is_reported(share, case):
    with pytest.raises(NotAllowed, match=r"the cluster refuses a setting of share group 'share-.*must be"):
        share(**REFUSED[case])


def test_a_topic_that_is_not_there_is_reported(kq_cluster):
    with pytest.raises(TopicMissing, match="'nowhere' does not exist"):
        ShareQueue(kq_cluster, "nowhere")


def test_a_poll_takes_a_producers_batch_whole_and_our_own_puts_are_single(kq_cluster, kq_topic, share):
    a, b = share(), share()
    a.put_many([(b"%d" % number, None) for number in range(4)])
    mine, other = a.claim(wait=WAIT), b.claim(wait=WAIT)
    assert (mine.data, other.data) == (b"0", b"1")
    a.ack(mine), b.ack(other)
    for _ in range(2):
        a.ack(a.claim(wait=WAIT))
    # One batch, however slowly they are put. A producer that does not know the partition yet keeps the first records
    # elsewhere, and flush() can send the ones that came back from there before the others.
    producer = Producer(kq_cluster.client(linger_ms=60_000))
    producer.list_topics(kq_topic, timeout=WAIT)
    for number in range(20):
        producer.produce(kq_topic, b"batch %d" % number)
    assert producer.flush(WAIT) == 0
    first = a.claim(wait=WAIT)
    assert first.data == b"batch 0"
    assert b.claim(wait=1) is None  # 19 more are in the log, and all are locked with the first
    a.ack_many([first, *a.claim_many(19)])


def test_what_a_poll_of_nobody_catches_is_given_back_soon_not_when_its_lock_ends(share):
    idle, other = share(lease=60), share()
    assert idle.claim() is None
    other.put(b"1")  # the idle one's open fetch may catch it
    began = time.monotonic()
    item = other.claim(wait=WAIT)
    assert item is not None and time.monotonic() - began < other.lease / 2
    other.ack(item)


def test_after_its_last_delivery_an_item_is_gone_and_no_dead_letter_is_there(share):
    queue = share(max_attempts=2)
    queue.put_many([(b"poison", None), (b"good", None)])
    attempts = []
    while (item := queue.claim(wait=WAIT)).data == b"poison":
        attempts.append(item.attempt)
        queue.release(item)
    assert attempts == [1, 2]
    queue.ack(item)
    assert queue.claim(wait=2) is None


def test_a_rejected_item_never_comes_again(share):
    queue = share()
    queue.put_many([(b"1", None), (b"2", None)])
    queue.reject(queue.claim(wait=WAIT))
    item = queue.claim(wait=WAIT)
    assert item.data == b"2"
    queue.ack(item)


def test_what_the_broker_refuses_is_a_lost_lease_too(share):
    a, b = share(lease=2 * PATIENCE), share()
    a.put(b"1")
    old = a.claim(wait=WAIT)
    member = a._members[old.epoch]
    with a.changed:
        member.deadline += 60  # this process's clock thinks that it has time
    late = Item(old.queue, old.partition, old.record, old.attempt, old.deadline + 60, old.epoch, old.lease)
    new = b.claim(wait=WAIT)
    with pytest.raises(LeaseLost, match=r"the broker says: .*record state is invalid"):
        a.ack(late)
    b.ack(new)


def test_what_an_aborted_transaction_put_never_comes(kq_cluster, kq_topic, share):
    producer = Producer(kq_cluster.client(transactional_id=f"tx-{kq_topic}"))
    producer.init_transactions()
    for outcome in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(kq_topic, outcome.__name__.encode())
        producer.flush()
        outcome()
    queue = share()
    item = queue.claim(wait=WAIT)
    assert item.data == b"commit_transaction"
    queue.ack(item)


def test_closing_is_bounded_when_the_broker_is_away_and_leaves_no_thread(deaf, share, within):
    queue = share()
    queue.put(b"1")
    assert queue.claim(wait=WAIT) is not None
    deaf.pause()
    assert within(10, lambda: queue.close() or True) < 8 * PATIENCE
    queue.close()  # twice does no harm
    deaf.resume()
    within(10, lambda: not [each for each in threading.enumerate() if each.name.startswith("kq-share")])


ENDS = """
import sys
from kqlib.kafka import Kafka
from kqlib.share import ShareQueue

queue = ShareQueue(Kafka(sys.argv[1]), sys.argv[2])
print(queue.claim(wait=60).attempt, flush=True)
"""


def test_a_process_that_just_ends_gives_its_items_back(kq_cluster, kq_topic, share):
    queue = share(lease=60)
    queue.put(b"1")
    command = [sys.executable, "-c", ENDS, kq_cluster.bootstrap, kq_topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)
    assert (ended.stdout, ended.stderr) == ("1\n", "")
    item = queue.claim(wait=30)  # the lock lasts 60 s
    assert item is not None and item.attempt == 2
    queue.ack(item)


# --- a cluster with logins and rules --------------------------------------------------------------------------------------

DENIED = {  # what `app` may not do -> its topic, and the sentence
    "no right to read the topic": (
        (ResourceType.TOPIC, "closed", AclOperation.READ),
        r"^User 'app' lacks READ on topic 'closed'\. Nothing was claimed\. Ask your administrator to grant it",
    ),
    "no right to be in the group": (
        (ResourceType.GROUP, "share-private", AclOperation.READ),
        r"^User 'app' lacks READ on group 'share-private'\. Nothing was claimed\. Ask your administrator to grant it",
    ),
    "no right to write": (
        (ResourceType.TOPIC, "quiet", AclOperation.WRITE),
        r"lacks WRITE on topic 'quiet'.* Nothing was stored.* Ask your administrator to grant it",
    ),
    "no right to see the group's settings": (
        (ResourceType.GROUP, "share-hidden", AclOperation.DESCRIBE_CONFIGS),
        r"^User 'app' lacks DESCRIBE_CONFIGS on group 'share-hidden'\. Nothing was changed\. Ask your administrator",
    ),
}
TOPICS = {case: name.removeprefix("share-") for case, ((_, name, _), _) in DENIED.items()}


@pytest.fixture(scope="module")
def app(locked, app):
    """Topics and groups as a deployment leaves them, and what each case forbids."""
    may(locked, *USUAL)
    Plan(dict.fromkeys(["open", *TOPICS.values()], Topic(1))).apply(locked, quiet=True)
    for name in ("open", *TOPICS.values()):
        with ShareQueue(locked, name) as queue:
            queue.put(b"1")
    who = (ResourcePatternType.LITERAL, "User:app", "*")
    rules = [AclBinding(kind, name, *who, what, AclPermissionType.DENY) for (kind, name, what), _ in DENIED.values()]
    for done in locked.admin.create_acls(rules).values():
        done.result(WAIT)
    for rule in rules:
        until(lambda: locked.admin.describe_acls(the_one(rule)).result(WAIT))  # noqa: B023 - now
    return app


def test_an_app_that_may_set_nothing_works_in_a_group_that_is_set_up(app):
    with ShareQueue(app, "open") as queue:
        queue.put(b"2")
        for due in (b"1", b"2"):
            item = queue.claim(wait=WAIT)
            assert item.data == due
            queue.ack(item)


def test_an_app_learns_what_a_deployer_has_to_set(app, locked):
    for how, missing in (({"group": "new"}, "share.auto.offset.reset=earliest,share.isolation.level=read_committed"),
                         ({"lease": 7}, "share.record.lock.duration.ms=7000")):  # fmt: skip
        with pytest.raises(NotAllowed, match=r"^User 'app' lacks ALTER_CONFIGS on group '") as caught:
            ShareQueue(app, "open", **how)
        assert f"Nothing was changed. It is needed to set {missing}. Your administrator can" in str(caught.value)
        tool, *words = str(caught.value).split("`kq kafka ")[1].rstrip("`").split()
        assert "Completed updating config" in locked.kafka(tool, *words)  # what it says works
        group, expected = how.get("group", "share-open"), dict(each.split("=") for each in missing.split(","))
        until(lambda: expected.items() <= settings(locked, group).items())  # noqa: B023 - now
        ShareQueue(app, "open", **how).close()


@pytest.mark.parametrize("case", DENIED)
def test_a_right_that_is_missing_is_named_at_once(app, case):
    with pytest.raises(NotAllowed, match=DENIED[case][1]), ShareQueue(app, TOPICS[case]) as queue:
        queue.put(b"2")
        queue.claim(wait=WAIT)
