"""A cluster with TLS, logins and rules: who may not come in stays out, `app` may work and not deploy, and no password is seen."""

from __future__ import annotations

import os
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)  # fmt: skip

from kqlib.errors import NotAllowed, Unreachable
from kqlib.kafka import Kafka, connect, tools
from kqlib.kafka.cluster import reach
from kqlib.kafka.settings import Secret
from kqlib.queue import state
from kqlib.schemas import Registry
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.cluster.secure import Security
from tests.patience import PATIENCE, WAIT, until
from tests.promises.logins import SHA_256, changeable, password
from tests.promises.play import configure, create
from tests.promises.queues import alone, data, taken


@pytest.fixture(scope="module")
def locked() -> Iterator[Cluster]:
    """Two brokers, and two topics."""
    with changeable(SHA_256) as made:
        for name in ("football", "scores"):
            create(made, name, 1, 2)
        yield made


@pytest.fixture(scope="module")
def passwords(locked: Cluster) -> list[str]:
    """All three, as they are."""
    assert locked._security
    return [str(password) for password in locked._security.passwords.values()]


def login(kafka: Kafka) -> dict[str, Any]:
    """What it takes to get in."""
    return {key: value for key, value in kafka.client().items() if key.startswith(("sasl.", "ssl.", "security."))}


def test_who_has_not_all_it_takes_is_kept_out_within_five_seconds_and_hears_no_password(
    locked: Cluster, passwords: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # until it is over each of the eight begins a handshake again and again
    monkeypatch.setattr("kqlib.kafka.cluster.ANSWER", max(3.5, 1.5 * PATIENCE))
    other = Security.make(tmp_path / "other authority")
    good = login(locked)
    plain = {key: value for key, value in good.items() if not key.startswith("ssl.")} | {
        "security.protocol": "SASL_PLAINTEXT"
    }
    cases: dict[str, dict[str, Any]] = {
        "no TLS and no login": {},
        "a login without TLS": plain,
        "TLS without a login": {"security.protocol": "SSL", "ssl.ca.location": good["ssl.ca.location"]},
        "a wrong password": {**good, "sasl.password": "wr0ng-pa55word"},
        "an unknown user": {**good, "sasl.username": "nobody"},
        "another mechanism": {**good, "sasl.mechanism": "SCRAM-SHA-512"},
        "another authority": {**good, "ssl.ca.location": str(other.home / "ca.pem")},
        "no authority": {key: value for key, value in good.items() if key != "ssl.ca.location"},
    }

    def attempt(own: dict[str, Any]) -> tuple[float, BaseException | None]:
        start = time.monotonic()
        try:
            reach(locked.bootstrap, own)
        except Unreachable as error:
            return time.monotonic() - start, error
        return 0, None

    with ThreadPoolExecutor(len(cases)) as pool:
        found = dict(zip(cases, pool.map(attempt, cases.values()), strict=True))
    assert [name for name, (_, error) in found.items() if error is None] == []
    for name, (seconds, error) in found.items():
        assert seconds < 5 * PATIENCE, name
        chain = f"{error} {error!r} {error.__cause__!r} {error.__context__!r}" if error else ""
        assert locked.bootstrap in chain, name
        assert not any(secret in chain for secret in [*passwords, "wr0ng-pa55word"]), name
    for name in ("a wrong password", "an unknown user"):
        assert "uthentication failed" in str(found[name][1])
    for name in ("another authority", "no authority"):
        assert "certificate" in str(found[name][1])


def test_an_app_may_write_read_commit_and_use_transactions(app: Kafka) -> None:
    producer = Producer(app.client(transactional_id="app-1"))
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    producer.produce("football", b"in a transaction")
    consumer = Consumer(app.client(group_id="app"))
    consumer.assign([TopicPartition("football", 0, 0)])
    producer.send_offsets_to_transaction([TopicPartition("scores", 0, 0)], consumer.consumer_group_metadata(), WAIT)
    producer.commit_transaction(WAIT)
    message = consumer.poll(WAIT)
    assert message is not None and message.value() == b"in a transaction"
    consumer.commit(message, asynchronous=False)
    consumer.close()
    member = Consumer(app.client(group_id="app-members"))
    member.subscribe(["football"])
    message = member.poll(WAIT)
    assert message is not None and message.value() == b"in a transaction"
    member.close()


def refused(future: Any) -> str:
    with pytest.raises(KafkaException) as caught:
        future.result(WAIT)
    return caught.value.args[0].name()


def test_an_app_may_not_create_delete_grow_or_configure_anything(app: Kafka, locked: Cluster) -> None:
    admin = app.admin
    topic = ConfigResource(
        ResourceType.TOPIC,
        "football",
        incremental_configs=[ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    rule = AclBinding(
        ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, "User:app", "*", AclOperation.ALL, AclPermissionType.ALLOW
    )
    assert refused(admin.create_topics([NewTopic("mine", 1)])["mine"]) == "TOPIC_AUTHORIZATION_FAILED"
    assert refused(admin.delete_topics(["football"])["football"]) == "TOPIC_AUTHORIZATION_FAILED"
    assert refused(admin.create_partitions([NewPartitions("football", 4)])["football"]) == "TOPIC_AUTHORIZATION_FAILED"
    assert refused(admin.incremental_alter_configs([topic])[topic]) == "TOPIC_AUTHORIZATION_FAILED"
    assert refused(admin.create_acls([rule])[rule]) == "CLUSTER_AUTHORIZATION_FAILED"
    assert refused(admin.delete_consumer_groups(["app"])["app"]) == "GROUP_AUTHORIZATION_FAILED"
    wrong: list[Any] = []
    producer = Producer(app.client(allow_auto_create_topics=True) | {"message.timeout.ms": 2000})
    producer.produce("typo", b"x", on_delivery=lambda error, _: wrong.append(error is not None))
    producer.flush(WAIT)
    assert wrong == [True]
    assert set(locked.admin.list_topics(timeout=WAIT).topics) >= {"football", "scores"}
    assert not {"mine", "typo"} & set(locked.admin.list_topics(timeout=WAIT).topics)


def test_an_application_on_a_cluster_with_rules_needs_no_more_than_the_plan_gave_it(
    locked: Cluster, app: Kafka
) -> None:
    Plan({"games": QueueTopic(partitions=1), "results": QueueTopic(partitions=1)}).apply(locked, quiet=True)
    with alone(app, "drupal-eu", None) as site:
        queue, out = site.queue("games"), site.queue("results")
        queue.put_many([(b"%d" % n, None) for n in range(4)])
        one, two, three = taken(queue, 3)
        queue.ack(one)
        queue.bury(two, "bad")
        with queue.step(three) as step:
            step.put(out, b"done")
        assert (queue.depth(), queue.dead.depth(), out.depth()) == (1, 1, 1)
        assert queue.redrive(1) == 1 and data(queue.peek(5)) == [b"3", b"1"]
        queue.purge()
        assert queue.depth() == 0 and queue.stats()["dead"] == 0
        assert state.topic_ids(app, ["nowhere"]) == {}


def test_a_user_without_the_right_to_create_topics_learns_what_to_ask_for(app: Kafka) -> None:
    with pytest.raises(NotAllowed) as caught:
        Registry(cluster=app)
    assert str(caught.value).startswith("'kq.schemas' could not be created: ")
    assert str(caught.value).endswith("Ask your administrator for it: one partition, kept for ever")


def test_there_are_two_users_to_be_and_no_other(locked: Cluster) -> None:
    for name in ("broker", "admin", ""):
        with pytest.raises(NotAllowed, match=r"no user .*; it has 'deploy' and 'app'"):
            locked.as_user(name)


def test_kafkas_tools_come_in_by_themselves(app: Kafka) -> None:
    with pytest.raises(NotAllowed, match=r"TopicAuthorizationException|Authorization failed"):
        app.kafka("topics", "--create", "--topic", "by-tool")


def test_no_password_is_shown_anywhere(locked: Cluster, app: Kafka, passwords: list[str]) -> None:
    assert len({*passwords}) == 3
    shown: dict[str, str] = {
        "cluster": repr(locked),
        "app": repr(app),
        "broker": repr(locked.broker(1)),
        "security": repr(locked._security),
        "settings": repr([locked.client(), app.client(), app.client() | {"group.id": "g"}, f"{app.client()}"]),
        "attributes": repr(vars(app)),
        "a tool's command": repr(tools.command("topics", ["--list"], app.bootstrap, app._own, Path("login"))),
        "Java's dump": locked.broker(1).node.log.read_text(),
        "Java's other dump": locked.broker(2).node.log.read_text(),
    }
    for process in psutil.process_iter():
        try:
            shown[f"process {process.pid}"] = " ".join([*process.cmdline(), *process.environ().values()])
        except psutil.Error:
            continue
    leaks = [name for name, text in shown.items() if any(password in text for password in passwords)]
    assert leaks == []
    assert "Cluster(2 brokers, secure)" in shown["cluster"]


def text(path: Path) -> str:
    """What a small file holds. Kafka writes a file beside its place and renames it: that one may be gone meanwhile."""
    try:
        return path.read_text(errors="replace") if path.is_file() and path.stat().st_size < 2**20 else ""
    except FileNotFoundError:
        return ""


def test_the_files_that_hold_a_secret_are_their_owners_only(locked: Cluster, passwords: list[str]) -> None:
    secrets = [*passwords, "PRIVATE KEY"]
    # not `rglob`: Kafka deletes folders meanwhile
    found = [Path(folder, file) for folder, _, files in os.walk(locked.home) for file in files]
    holding = [path for path in found if any(secret in text(path) for secret in secrets)]
    assert {path.name for path in holding} == {"server.properties", "broker.pem", "renewed.pem"}
    for path in [*holding, locked.home, locked.home / "tls"]:
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required \\\n  username="{user}" \\\n  password="{password}";'
STYLES: dict[str, Callable[[dict[str, Any], str], str]] = {
    "in Java's words": lambda own, address: (
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nbootstrap.servers={address}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={own['ssl.ca.location']}\nsasl.jaas.config="
        + JAAS.format(user=own["sasl.username"], password=own["sasl.password"])
    ),
    "in Java's words, with the certificate itself": lambda own, address: (
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nbootstrap.servers={address}\nssl.truststore.certificates="
        + Path(own["ssl.ca.location"]).read_text().strip().replace("\n", "\\n\\\n")
        + "\nsasl.jaas.config="
        + JAAS.format(user=own["sasl.username"], password=own["sasl.password"])
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_settings_file_lets_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, app: Kafka, passwords: list[str], style: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(STYLES[style](login(app), app.bootstrap))
    monkeypatch.setenv("KQ_KAFKA_CONFIG", str(file))
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    with connect() as kafka:
        assert (kafka.bootstrap, kafka.embedded) == (app.bootstrap, False)
        assert kafka.brokers == [1, 2]
        assert not any(password in repr([kafka, vars(kafka), kafka.client()]) for password in passwords)
        if "certificate" in style:  # once: it takes a second
            assert "football" in kafka.kafka("topics", "--list")
    monkeypatch.setenv("KQ_BOOTSTRAP", app.bootstrap.split(",")[0])  # it overrules the file
    with connect() as kafka:
        assert kafka.bootstrap == app.bootstrap.split(",")[0]
        assert kafka.client()["bootstrap.servers"] == kafka.bootstrap


def test_who_is_connected_goes_on_after_a_change_of_password_and_who_comes_needs_the_new_one(locked: Cluster) -> None:
    """The short form of test_rotation, as is the next one."""

    def changed(new: str) -> dict[str, Any]:
        password(locked, SHA_256, new)
        return login(locked) | {"sasl.mechanism": SHA_256, "sasl.username": "app", "sasl.password": Secret(new)}

    def enters(own: dict[str, Any]) -> bool | None:
        try:
            reach(locked.bootstrap, own).close()
        except Unreachable as error:
            assert "uthentication failed" in str(error)
            return None
        return True

    old = changed("old")
    until(lambda: enters(old))
    connected = Producer(Kafka(locked.bootstrap, old).client())
    failed: list[Any] = []

    def send() -> None:
        connected.produce("football", b"goal", on_delivery=lambda error, _: failed.append(error))
        assert connected.flush(WAIT) == 0

    send()  # it is connected with the leader
    new = changed("new")
    until(lambda: enters(new))
    until(lambda: enters(old) is None or None)
    send()
    assert failed == [None, None]


@pytest.mark.parametrize("users", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["client id", "user"])
def test_a_user_s_quota_slows_that_user_and_a_client_id_s_quota_those_without_one(
    locked: Cluster, app: Kafka, users: bool
) -> None:
    def quota(kind: str, name: str, *change: str) -> None:
        locked.kafka("configs", "--alter", "--entity-type", kind, "--entity-name", name, *change)

    def waits(user: Kafka, client: str, size: int) -> bool:
        """Is the answer to a record of this size throttled?"""
        seen: list[float] = []
        producer = Producer(
            user.client(client_id=client) | {"throttle_cb": lambda event: seen.append(event.throttle_time)}
        )
        producer.produce("football", b"." * size)
        assert producer.flush(WAIT) == 0
        return sum(seen) > 0

    quota("clients", "feed", "--add-config", "producer_byte_rate=5000")
    # a broker takes the average over ten seconds
    assert not waits(locked, "other", 700_000)
    until(lambda: waits(locked, "feed", 100_000))  # the broker hears of a quota after the tool has ended
    if not users:
        return
    quota("users", "app", "--add-config", "producer_byte_rate=50000")
    try:
        until(lambda: not waits(app, "feed", 100_000))  # the user's quota is the one that counts
        until(lambda: waits(app, "other", 700_000))
    finally:
        quota("users", "app", "--delete-config", "producer_byte_rate")


def test_a_certificate_is_renewed_without_a_restart_if_it_is_of_the_same_authority(
    locked: Cluster, tmp_path: Path
) -> None:
    pem, renewed = locked.home / "tls/broker.pem", locked.home / "tls/renewed.pem"

    def shown(number: int) -> str:
        return ssl.get_server_certificate(("127.0.0.1", locked.broker(number).node.port), timeout=WAIT)

    key = "listener.name.client.ssl.keystore.location"
    with pytest.raises(KafkaException):  # the other broker would not believe it
        configure(locked, ResourceType.BROKER, "1", **{key: str(Security.make(tmp_path / "other").home / "broker.pem")})
    for _ in range(2):  # and back: the second time the setting has that value already
        aside = pem.rename(pem.with_name("aside.pem"))
        renewed.rename(pem)
        aside.rename(renewed)
        pem.touch()  # Kafka tells a new file by its time, and the two may have the same
        for number in (1, 2):
            configure(locked, ResourceType.BROKER, str(number), **{key: str(pem)})
            until(lambda number=number: shown(number) in pem.read_text() or None)  # type: ignore[misc]
    with locked.as_user("app") as new:
        assert new.brokers == [1, 2]
