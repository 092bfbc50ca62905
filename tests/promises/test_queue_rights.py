"""A user of few rights: each verb that lacks one says at once which, on what and of whom; and works as soon as it is granted.

The rights of each verb are the table of `kqlib/queue/rights.py`. Each is taken away once: verbs that need it fail, all others work.
"""

from __future__ import annotations

import logging
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic, ResourceType

from kqlib.command.main import main
from kqlib.errors import NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site, gc, state
from kqlib.queue.rights import VERBS, Right, table
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from tests.patience import PATIENCE, WAIT, until
from tests.promises.play import commit, configure
from tests.promises.queues import alone, drained, taken, topic
from tests.promises.rights import may

SOON = 2.0 * PATIENCE  # seconds until a missing right is named
FANS = "fans"


@pytest.fixture(scope="module", autouse=True)
def two_queues(locked: Cluster) -> None:
    Plan({"football": QueueTopic(partitions=2), "hockey": QueueTopic(partitions=1)}).apply(locked, quiet=True)


def rule(right: Right) -> str:
    """As `may` takes it."""
    return f"{right.operation} {right.kind} {right.name}{'*' * right.prefixed}"


def full(site: str, queue: str = "football") -> list[Right]:
    """Everything that any verb needs."""
    every = dict.fromkeys(right for some in table(queue, site).values() for right in some)
    return [right for right in every if right.operation != "DESCRIBE"]


def stocked(locked: Cluster, site: str, queue: str = "football") -> None:
    """The site has items there, and a dead letter; made by someone who may do everything."""
    with Site(locked, site) as here:
        there = here.queue(queue)
        there.put_many([(b"%d" % number, None) for number in range(12)])
        there.bury(taken(there, 1)[0], "for a test")


@contextmanager
def refused(*words: str, within: float = SOON) -> Iterator[None]:
    """`NotAllowed`, in time, with these words."""
    began = time.monotonic()
    with pytest.raises(NotAllowed) as caught:
        yield
    assert time.monotonic() - began < within, str(caught.value)
    assert all(each in str(caught.value) for each in words), str(caught.value)
    assert "No Kafka answered" not in str(caught.value) and "may have been" not in str(caught.value)


def again(act: Callable[[], Any]) -> Any:
    """What comes of it as soon as the right that was granted has reached the broker and the client."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            if (found := act()) is not None:
                return found
        except NotAllowed:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- the table --------------------------------------------------------------------------------------------------------


def _transaction(queue: Queue) -> None:
    with queue.site.transaction() as tx:
        tx.put(queue, b"put")


def _step(queue: Queue) -> None:
    with queue.step(taken(queue, 1)[0]) as step:
        step.put(queue, b"put")


DO: dict[str, Callable[[Queue], object]] = {
    "put": lambda queue: queue.put(b"put"),
    "transaction": _transaction,
    "claim": lambda queue: taken(queue, 1),
    "ack": lambda queue: queue.ack(taken(queue, 1)[0]),
    "bury": lambda queue: queue.bury(taken(queue, 1)[0], "for a test"),
    "step": _step,
    "redrive": lambda queue: queue.redrive(1),
    "depth": lambda queue: queue.depth(),
    "peek": lambda queue: queue.peek(1),
    "stats": lambda queue: queue.stats(),
    "purge": lambda queue: queue.purge(),
}
GONE = [rule(right) for right in full("SITE")]
FEW = ("READ group SITE",)  # in each run; all of them take a minute


def _lacking(verb: str, site: str, left: list[Right]) -> list[Right]:
    """What the verb needs and is not there any more."""
    have = {(right.operation, right.kind, right.name) for right in left}
    seen = {("DESCRIBE", right.kind, right.name) for right in left}
    return [each for each in table("football", site)[verb] if (each.operation, each.kind, each.name) not in have | seen]


def test_every_verb_of_the_table_is_tried() -> None:
    assert DO.keys() == VERBS.keys()


@pytest.mark.parametrize(
    "gone", [pytest.param(gone, marks=[] if gone in FEW else [pytest.mark.nightly]) for gone in GONE]
)
def test_a_right_that_is_taken_away_is_named_by_each_verb_that_needs_it_and_missed_by_no_other(
    locked: Cluster, app: Kafka, gone: str
) -> None:
    site = f"fans-{GONE.index(gone)}"
    stocked(locked, site)
    left = [right for right in full(site) if rule(right) != gone.replace("SITE", site)]
    assert len(left) == len(full(site)) - 1
    may(locked, *map(rule, left))
    wrong = []
    for verb, act in DO.items():
        lacking, began, answer = _lacking(verb, site, left), time.monotonic(), ""
        try:
            with Site(app, site) as here:
                act(here.queue("football"))
        except NotAllowed as error:
            answer = str(error)
        seconds = time.monotonic() - began
        named = any(f"User 'app' lacks {right}" in answer for right in lacking) if lacking else not answer
        if not named or (lacking and seconds > SOON):
            wrong.append((verb, [str(right) for right in lacking], answer, seconds))
    assert wrong == []


# --- what was silent --------------------------------------------------------------------------------------------------


def test_a_claim_without_read_on_the_group_is_refused_and_the_next_one_works_when_it_is_granted(
    locked: Cluster, app: Kafka
) -> None:
    name = topic(locked, 2)
    stocked(locked, name, name)
    may(locked, *(rule(right) for right in full(name, name) if right.kind != "group"))
    with Site(app, name) as site:
        queue = site.queue(name)
        for wait in (0, 10):
            with refused(f"User 'app' lacks READ on group '{name}'", f"kq doctor --rights {name} --site {name} shows"):
                queue.claim(wait=wait)
        with refused(f"User 'app' lacks READ on group '{name}'"):
            queue.work(lambda _: None, until="empty")
        for ask in (queue.depth, queue.stats, queue.peek):
            with refused(f"User 'app' lacks DESCRIBE on group '{name}'", f"--rights {name} --site {name} shows"):
                ask()
        may(locked, *map(rule, full(name, name)))
        assert again(lambda: queue.claim(wait=1)).attempt == 1
        assert queue.depth() == 11


def test_a_right_to_read_the_notes_that_is_granted_again_counts_at_once(locked: Cluster, app: Kafka) -> None:
    """A client tells of a refusal once, and half a second later it asks again: an old refusal is no answer."""
    name = topic(locked)
    stocked(locked, name, name)
    every = [rule(right) for right in full(name, name)]
    may(locked, *every)
    with Site(app, name) as site:
        queue = site.queue(name)
        may(locked, *(each for each in every if each != "READ topic kq.queues"))
        until(lambda: site._notes._refused)
        with alone(locked, f"{name}-2") as other:
            other.queue(name).claim()  # a note that is not read yet
        with refused("User 'app' lacks READ on topic 'kq.queues'"):
            queue.stats()
        may(locked, *every)
        assert queue.stats()


@pytest.mark.parametrize("kind", ["group", "topic"])
def test_a_right_that_goes_while_items_are_out_is_named_and_healed(locked: Cluster, app: Kafka, kind: str) -> None:
    name = topic(locked, 2)
    stocked(locked, name, name)
    may(locked, *map(rule, full(name, name)))
    lost = f"READ on {kind} '{name}'"
    with Site(app, name) as site:
        queue = site.queue(name)
        item = taken(queue, 1)[0]
        may(locked, *(rule(right) for right in full(name, name) if str(right) != lost))
        with refused(f"User 'app' lacks {lost}"):
            queue.ack(item)
        with refused(f"User 'app' lacks {lost}"):
            queue.claim(wait=10)
        may(locked, *map(rule, full(name, name)))
        left = {item.data for item in [again(lambda: queue.claim(wait=1)), *taken(queue, 10)]}
        assert item.data in left and len(left) == 11  # what was not stored comes again


def test_a_queue_that_may_not_be_seen_any_more_stops_no_other_queue_of_the_site(locked: Cluster, app: Kafka) -> None:
    one, other = topic(locked), topic(locked)
    may(locked, *map(rule, dict.fromkeys([*full("both", one), *full("both", other)])))
    with Site(app, "both") as site:
        for name in (one, other):
            site.queue(name).put(b"first")
            site.queue(name).ack(taken(site.queue(name), 1)[0])
        may(locked, *map(rule, full("both", one)))
        with refused(f"User 'app' lacks READ on topic '{other}'", within=WAIT):
            again(lambda: (site.queue(one).put(b"next") and site.queue(one)._session.complaints > 1) or None)
            site._queues[other].claim(wait=WAIT)
        site.queue(one).ack(taken(site.queue(one), 1)[0])


def test_without_write_on_the_notes_the_first_claim_gives_nothing_out(locked: Cluster, app: Kafka) -> None:
    with Site(locked, "unguarded") as site:
        site.queue("football").put(b"mine")
    may(locked, *(rule(right) for right in full("unguarded") if str(right) != "WRITE on topic 'kq.queues'"))
    with Site(app, "unguarded") as site:
        queue = site.queue("football")
        with refused("User 'app' lacks WRITE on topic 'kq.queues'"):
            queue.claim(wait=10)
        assert {offset for offset, _ in site._looker.committed([("football", 0), ("football", 1)]).values()} == {None}
        may(locked, *map(rule, full("unguarded")))
        assert again(lambda: queue.claim(wait=1)) is not None
        until(lambda: any(site._notes.get("unguarded", "football", "state", part) for part in (0, 1)))


def test_a_note_that_cannot_be_written_any_more_is_reported_once_and_stops_the_next_claim(
    locked: Cluster, app: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    stocked(locked, "noted")
    may(locked, *map(rule, full("noted")))
    caplog.set_level(logging.WARNING, "kqlib.queue")
    with Site(app, "noted") as site:
        queue = site.queue("football")
        taken(queue, 1)
        may(locked, *(rule(right) for right in full("noted") if str(right) != "WRITE on topic 'kq.queues'"))
        for text in (b"one", b"two"):
            queue.put(text)
            _purge(locked, "noted")  # by another process: here the mark is applied, and a note shall say so
            until(lambda: "a note could not be written to 'kq.queues'" in caplog.text)
            until(lambda: not any(owner.open for owner in _states(site)))
        with refused("User 'app' lacks WRITE on topic 'kq.queues'"):
            queue.claim(wait=10)
        assert caplog.text.count("a note could not be written to 'kq.queues'") == 1
        may(locked, *map(rule, full("noted")))
        queue.put(b"three")
        assert again(lambda: queue.claim(wait=1)).data == b"three"

        def noted() -> bool:
            queue.put(b"more")
            queue.ack(taken(queue, 1)[0])  # a note that failed goes with the next commit
            return any(site._notes.get("noted", "football", "purged", part) for part in (0, 1))

        until(noted)


def _purge(cluster: Kafka, name: str) -> None:
    """As another process of the site would."""
    from kqlib.queue import look

    live = Site(cluster, f"{name}-other")
    try:
        live.name = name
        look.purge(live, "football")
    finally:
        live.close()


def _states(site: Site) -> list[Any]:
    with site._session.changed:
        return [owner.ledger for owner in site._session.partitions.values()]


# --- what was misleading ----------------------------------------------------------------------------------------------


def test_a_put_that_is_refused_is_not_stored_and_says_so(locked: Cluster, app: Kafka) -> None:
    may(locked, *map(rule, full(FANS)))
    with Site(app, FANS) as site:
        queue = site.queue("football")
        may(locked, *(rule(right) for right in full(FANS) if str(right) != "WRITE on topic 'football'"))
        began = time.monotonic()
        with pytest.raises(NotAllowed, match="User 'app' lacks WRITE on topic 'football'") as caught:
            queue.put_many([(b"one", None), (b"two", None)])
    assert "Nothing was stored." in str(caught.value)
    assert "kq doctor --rights football --site fans shows" in str(caught.value)
    assert (vars(caught.value)["done"], vars(caught.value)["unknown"]) == ({}, [])
    assert time.monotonic() - began < SOON


def test_a_record_that_kafka_refuses_is_no_missing_kafka(locked: Cluster) -> None:
    for name in ("by-key", "by-key.dead"):
        made = locked.admin.create_topics([NewTopic(name, 1, config={"cleanup.policy": "compact"})])
        made[name].result(WAIT)
    locked.wait_for_topic("by-key", 1)
    with Site(locked, "keyless") as site:
        queue = site.queue("by-key")
        with refused("Kafka refused to put into 'by-key'", "Nothing was stored"):
            queue.put(b"without a key")


def test_a_topic_that_may_not_be_seen_is_not_called_missing(locked: Cluster, app: Kafka) -> None:
    may(locked, *(rule(right) for right in full(FANS) if right.name != "football.dead"))
    with Site(app, FANS) as site:
        with refused("Topic 'football.dead' does not exist, or user 'app' may not see it"):
            site.queue("football")
        for name in ("hockey", "no-such-topic"):  # Kafka does not tell this user which of them exists
            with refused(f"Topic '{name}' does not exist, or user 'app' may not see it"):
                site.queue(name)
    with Site(locked, FANS) as site, pytest.raises(TopicMissing, match=r"^'no-such-topic' does not exist"):
        site.queue("no-such-topic")


@pytest.mark.parametrize("left", [[], ["WRITE topic kq.queues"]], ids=["not to be seen", "seen and not to be read"])
def test_notes_that_may_not_be_read_are_named(locked: Cluster, app: Kafka, left: list[str]) -> None:
    may(locked, *left)
    answer = (
        "User 'app' lacks READ on topic 'kq.queues'" if left else "'kq.queues' does not exist, or user 'app' may not"
    )
    with refused(answer), Site(app, FANS):
        pass


def test_a_purge_that_is_stored_and_cannot_be_read_back_says_that_it_is_stored(locked: Cluster, app: Kafka) -> None:
    name = topic(locked)
    may(locked, *map(rule, full(name, name)))
    with Site(app, name) as site:
        queue = site.queue(name)
        queue.put(b"1")
        may(locked, *(rule(right) for right in full(name, name) if str(right) != "READ on topic 'kq.queues'"))
        with refused("lacks READ on topic 'kq.queues'", "stored in 'kq.queues' and takes effect", within=WAIT):
            until(lambda: queue.put(b"2") and queue.purge() is not None)
    with Site(locked, name) as site:
        assert site.queue(name).depth() == 0


def test_a_neighbours_group_that_may_not_be_seen_is_named(locked: Cluster, app: Kafka) -> None:
    for name in ("fans", "neighbours"):
        stocked(locked, name, "hockey")
    may(locked, *map(rule, full(FANS, "hockey")))
    with Site(app, FANS) as site, refused("User 'app' lacks DESCRIBE on group 'neighbours'"):
        gc.dry_run(site, "hockey")


def test_records_are_deleted_only_by_a_user_who_sees_every_group(locked: Cluster, app: Kafka) -> None:
    """Kafka lists only the groups that one may see. A stranger's group that is hidden has records to read."""
    name = topic(locked)
    with alone(locked, name) as site:
        site.queue(name).put_many([(b"1", None), (b"2", None)])
        assert len(drained(site.queue(name), 2)) == 2
    commit(locked, "stranger", name)
    have, log = [*map(rule, full(name, name)), f"DELETE topic {name}"], [(name, 0)]
    may(locked, *have)
    with Site(app, name) as site:
        for ask in (gc.strangers, gc.collect):
            with refused(
                "User 'app' lacks DESCRIBE on cluster 'kafka-cluster'. Nothing was deleted.", "docs/rights.md"
            ):
                ask(site, name)
        have += ["DESCRIBE cluster kafka-cluster"]
        may(locked, *have)
        with refused("User 'app' lacks DESCRIBE on group "):  # what a listed group has read is asked of that group
            gc.collect(site, name)
        may(locked, *have, "DESCRIBE group *")
        with refused(f"'stranger' read '{name}' as well", within=WAIT):
            gc.collect(site, name)
        assert state.bounds(locked, log)[0] == {log[0]: 0}
        locked.admin.delete_consumer_groups(["stranger"])["stranger"].result(WAIT)
        assert gc.collect(site, name).offsets == state.bounds(locked, log)[0][log[0]] == 2


def test_a_session_that_this_user_may_not_set_is_named(locked: Cluster, app: Kafka) -> None:
    may(locked, *map(rule, full(FANS)))
    with refused("User 'app' lacks ALTER_CONFIGS on group 'fans'"), Site(app, FANS, session=5):
        pass


# --- on the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def as_app(app: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of `kq` for the cluster and its user."""
    file = tmp_path / "client.properties"
    own = {name: value for name, value in app.client().items() if name.startswith(("sasl.", "ssl.", "security."))}
    file.write_text("".join(f"{name}={value!s}\n" for name, value in own.items()))
    monkeypatch.setenv("KQ_BOOTSTRAP", app.bootstrap)
    monkeypatch.setenv("KQ_KAFKA_CONFIG", str(file))


@pytest.mark.usefixtures("as_app")
def test_the_doctor_says_what_this_user_has_and_lacks(locked: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["doctor", "--rights", "football", "--site", FANS]
    may(locked, *map(rule, full(FANS)))
    assert main(ask) == 0
    out = capsys.readouterr().out
    assert out.count("✓ ") == len(VERBS) == len(out.splitlines()) - 1 and "✗" not in out
    may(locked, *(rule(right) for right in full(FANS) if right.kind == "topic"))
    assert main(ask) == 1
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head == "what user 'app' may do in 'football' for site 'fans'"
    assert [re.split(r" +", line)[1] for line in lines] == [*VERBS]
    assert {"✓ put", "✗ claim        lacks READ on group 'fans'"} <= {*lines}
    begin = "WRITE on transactional ids that begin with 'kq-fans-'"
    assert f"✗ bury         lacks READ on group 'fans', {begin}" in lines
    assert last == "to grant what it lacks: kq doctor --rights football --site fans --acl app"


@pytest.mark.usefixtures("as_app")
def test_a_command_does_not_call_a_topic_missing_that_this_user_may_not_see(
    locked: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    may(locked, *map(rule, full(FANS)))
    assert main(["queue", "depth", "hockey", "--site", FANS]) == 2
    assert "Topic 'hockey' does not exist, or user 'app' may not see it" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.usefixtures("as_app")
def test_the_commands_that_the_doctor_prints_grant_what_it_misses(
    locked: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    may(locked)
    ask = ["doctor", "--rights", "football", "--site", FANS]
    assert main([*ask, "--acl", "app"]) == 0
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("kq kafka "):
            locked.kafka(*shlex.split(line)[2:])
    until(lambda: main(ask) == 0)


def test_a_limit_that_this_user_may_not_see_is_named_with_the_right(locked: Cluster, app: Kafka) -> None:
    configure(locked, ResourceType.TOPIC, "hockey", max_message_bytes="500")
    may(locked, *map(rule, full("large", "hockey")))
    try:
        with Site(app, "large") as site, pytest.raises(PayloadTooLarge) as caught:
            until(lambda: site.queue("hockey").put(b"x" * 5_000) is None)
        assert vars(caught.value)["unknown"] == []
        assert "lacks DESCRIBE_CONFIGS on topic 'hockey'" in str(caught.value)
    finally:
        configure(locked, ResourceType.TOPIC, "hockey", max_message_bytes="1048588")
