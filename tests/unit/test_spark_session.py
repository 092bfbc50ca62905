"""The settings of a session and of its readers and writers, without a JVM."""

from __future__ import annotations

import importlib
import pprint
import re
import shlex
import socket
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.lib.pretty import pretty

from kqlib.errors import Closed, JavaMissing, KqError, NoSpark, NotAllowed
from kqlib.kafka import Kafka, settings
from kqlib.runtime import java
from kqlib.spark import jvm, session, sink, source
from kqlib.spark.jvm import MODULES, Jvm, archived, zipped

MODULE = sys.modules["kqlib.spark.session"]  # the module; the name is the function's
PLAIN = Kafka("127.0.0.1:9")


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A start is noted and fails; nothing runs."""
    started: list[Any] = []

    def start(*args: Any) -> None:
        started.append(args)
        raise KqError("no JVM in a unit test")

    monkeypatch.setattr(MODULE, "Jvm", start)
    monkeypatch.setattr(MODULE.jars, "fetch", lambda kind: [Path("/jars/one.jar")])
    monkeypatch.delenv("KQ_SPARK_MASTER", raising=False)
    yield started


def test_a_reader_gets_the_address_what_makes_it_fast_and_committed_records_only() -> None:
    found = source(PLAIN, "football", "scores", startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert found == {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": "5000",
        "kafka.max.partition.fetch.bytes": "8388608",
        "kafka.fetch.max.bytes": "67108864",
        "kafka.fetch.max.wait.ms": "10",
        "subscribe": "football,scores",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
    }


def test_a_login_and_certificates_travel_as_text(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": 'pa"ss'}
    found = source(Kafka("h:1", {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority), **login}), "t")
    assert found["kafka.ssl.truststore.certificates"] == authority.read_text()
    assert found["kafka.ssl.truststore.type"] == "PEM"
    assert "kafka.ssl.truststore.location" not in found  # a file that executors elsewhere do not have
    assert 'username="app" password="pa\\"ss"' in found["kafka.sasl.jaas.config"]


VIEWS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "str": str,
    "format": "{}".format,
    "%s": lambda found: "%s" % (found,),  # noqa: UP031
    "pprint": pprint.pformat,
    "IPython": pretty,
    "items": lambda found: f"{list(found.items())} {found.items()} {found.values()}",
    "merged": lambda found: repr({**found} | {"subscribe": "other"}),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("options", [source, sink])
def test_no_view_of_a_readers_or_a_writers_options_shows_a_secret(
    options: Callable[..., dict[str, str]], view: Callable[[Any], str]
) -> None:
    mark = "m4rked"
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": f'{mark}"pa\\ss'}
    key = {"ssl.key.pem": mark, "ssl.key.password": mark}
    for own, more in (
        (login, {}),
        (key, {}),
        (login | key, {"maxOffsetsPerTrigger": 10}),
        ({}, {"kafka.sasl.jaas.config": f'... required password="{mark}";'}),
    ):
        cluster = Kafka("127.0.0.1:9", own)
        found = options(cluster, "football", **more)
        assert mark in "".join(found.values()), "it has to reach Java"
        assert mark not in view(found)
        assert mark not in view(vars(cluster))


CARRIED: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, str]]] = {
    # what the user has set: what a reader gets of it, what a writer gets of it
    "timeouts of librdkafka": (
        {"socket.timeout.ms": 41_000, "topic.metadata.refresh.interval.ms": "7000"},
        {"request.timeout.ms": "41000", "metadata.max.age.ms": "7000"},
        {"request.timeout.ms": "41000", "metadata.max.age.ms": "7000"},
    ),
    "Java's name before librdkafka's": (
        {"request.timeout.ms": "1", "socket.timeout.ms": "2", "metadata.max.age.ms": "3"},
        {"request.timeout.ms": "1", "metadata.max.age.ms": "3"},
        {"request.timeout.ms": "1", "metadata.max.age.ms": "3"},
    ),
    "one's own before ours": (
        {"fetch.max.bytes": "9", "fetch.wait.max.ms": "8"},
        {"fetch.max.bytes": "9", "fetch.max.wait.ms": "8"},
        {},
    ),
    "a writer's": ({"acks": "all", "queue.buffering.max.ms": 5}, {}, {"acks": "all", "linger.ms": "5"}),
    "a client's name": ({"client.id": "scores"}, {"client.id": "scores"}, {"client.id": "scores"}),
    "what Spark does anyway": (
        {"enable.auto.commit": False, "isolation.level": "read_committed", "partitioner": "murmur2_random"},
        {},
        {},
    ),
}


@pytest.mark.parametrize(("own", "reads", "writes"), CARRIED.values(), ids=CARRIED.keys())
def test_a_clients_settings_reach_spark_in_javas_words(
    own: dict[str, Any], reads: dict[str, str], writes: dict[str, str]
) -> None:
    cluster = Kafka("127.0.0.1:9", own)
    for options, expected in ((source, reads), (sink, writes)):
        assert options(cluster) == options(PLAIN) | {f"kafka.{name}": value for name, value in expected.items()}


@pytest.mark.parametrize("options", [source, sink])
def test_what_spark_cannot_take_over_is_refused_by_name_and_its_value_not_shown(options: Callable[..., Any]) -> None:
    mark = "m4rked"
    wrong = {"ssl.crl.location": mark, "isolation.level": "read_uncommitted", "sasl.oauthbearer.client.secret": mark}
    with pytest.raises(NotAllowed) as caught:
        options(Kafka("127.0.0.1:9", {"client.id": "scores", "sasl.username": "app", **wrong}), "football")
    named = "isolation.level, sasl.oauthbearer.client.secret, ssl.crl.location"
    assert f"cannot take over these settings of your client: {named}. Nothing was read or written." in str(caught.value)
    assert mark not in str(caught.value)


def test_the_modules_are_opened_that_sparks_own_launcher_opens() -> None:
    import pyspark

    (launcher,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(launcher) as opened:
        code = opened.read("org/apache/spark/launcher/JavaModuleOptions.class")
    theirs = {word.decode() for word in re.findall(rb"\x01..(--?[-A-Za-z:+][ -~]+)", code, re.DOTALL)}
    assert theirs - {f"--add-modules={java.VECTOR}"} == set(MODULES)


def test_kqlib_travels_as_a_zip_that_python_imports_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "little"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("WORD = 'here'\n")
    (package / "inner" / "__init__.py").write_text("")
    travels = zipped(package, tmp_path / "out")
    monkeypatch.syspath_prepend(travels)
    assert importlib.import_module("little").WORD == "here"
    assert str(importlib.import_module("little.inner").__file__).startswith(str(travels))


def test_small_defaults_and_ones_own_on_top(no_jvm: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": 9, "spark.executor.memory": None}
    with pytest.raises(KqError, match="no JVM"):
        session(config=own | {"spark.ui.enabled": True})
    _, heap, opened, given, env = no_jvm[0]
    assert heap == "2g"
    assert given["spark.sql.shuffle.partitions"] == "9"
    assert "spark.executor.memory" not in given
    assert given["spark.ui.enabled"] == "true"
    with pytest.raises(KqError, match="no JVM"):
        session(config={"spark.driver.memory": "2g"})
    assert no_jvm[1][3]["spark.ui.enabled"] == "false"
    assert re.fullmatch(r"local\[[2-4]\]", given["spark.master"])
    assert env == {"SPARK_LOCAL_IP": "127.0.0.1"}
    assert opened == shlex.split(MODULE.LIMITS)


def test_the_quick_compiler_alone_serves_an_embedded_cluster_unless_one_says_otherwise(no_jvm: list[Any]) -> None:
    lab, own = Kafka("127.0.0.1:9"), {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
    lab.embedded = True  # type: ignore[misc]
    for asked in ((lab, None), (lab, own), (PLAIN, None), (None, None)):
        with pytest.raises(KqError, match="no JVM"):
            session(asked[0], config=asked[1])
    levels = [[word[-1] for word in started[2] if "TieredStopAtLevel" in word] for started in no_jvm]
    assert levels == [["1"], ["1", "4"], [], []]  # Java takes the last one
    assert {(started[1], started[3]["spark.sql.shuffle.partitions"]) for started in no_jvm} == {("800m", "4")}


def test_on_a_cluster_what_executors_need_goes_along(no_jvm: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        monkeypatch.setenv("KQ_SPARK_MASTER", f"spark://127.0.0.1:{master.getsockname()[1]}")
        with pytest.raises(KqError, match="no JVM"):
            session()
    given = no_jvm[0][3]
    assert given["spark.jars"] == "/jars/one.jar"
    assert given["spark.executorEnv.JAVA_HOME"] == str(java.spark_home())
    assert "limits.string.maxLength" in given["spark.executor.extraJavaOptions"]
    assert given["spark.driver.host"] == "127.0.0.1"


def test_a_master_where_nobody_listens_is_named_at_once(no_jvm: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("KQ_SPARK_MASTER", f"spark://127.0.0.1:{port}")
    with pytest.raises(NoSpark, match=f"spark://127.0.0.1:{port}: Connection refused"):
        session()
    assert not no_jvm


def test_without_java_nothing_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> None:
        raise JavaMissing(looked="nowhere")

    monkeypatch.setattr(jvm.java, "find", missing)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(JavaMissing):
        Jvm([], "1m", [], {}, {})
    assert not list(tmp_path.iterdir())


def test_the_archive_of_classes_belongs_to_these_jars() -> None:
    keys = [archived([Path(f"/jars/{name}.jar")]) for name in ("one", "one", "two")]
    assert keys[0] == keys[1] != keys[2]


SETTINGS = "config is a dict of Spark's settings, as in {'spark.driver.memory': '2g'}"
MASTERS = ("chess", "local[x]", "spark:/host:7077", "local[2]; rm", "spark://host")


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda: session("lab"), NotAllowed, "cluster is a cluster, as in session(lab.cluster), not str"),
        (lambda: session(config=["x"]), NotAllowed, SETTINGS),
        (lambda: session(config={"memory": 1}), NotAllowed, SETTINGS),
        (lambda: source(None), NotAllowed, "which cluster? A lab's is lab.cluster, one's own kq.connect()"),
        (lambda: source(PLAIN, "a,b"), NotAllowed, "a topic is named by a text, not 'a,b'"),
        (lambda: source(PLAIN, 7), NotAllowed, "a topic is named by a text, not 7"),
        (lambda: sink("here"), NotAllowed, "cluster is a cluster, as in session(lab.cluster), not str"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], kind: type[KqError], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == sentence


@pytest.mark.parametrize("master", MASTERS)
def test_a_master_that_is_none_is_named(no_jvm: list[Any], monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.setenv("KQ_SPARK_MASTER", master)
    why = "names no port" if master == "spark://host" else "is no master of Spark's"
    with pytest.raises(NotAllowed, match=f"KQ_SPARK_MASTER {why}"):
        session()


def test_a_closed_cluster_is_refused() -> None:
    closed = Kafka("127.0.0.1:9")
    closed.close()
    with pytest.raises(Closed):
        source(closed, "football")


@pytest.mark.parametrize(
    ("name", "value", "carried"),
    [
        ("connections.max.idle.ms", "0", False),  # librdkafka: never; Java: at once
        ("connections.max.idle.ms", "60000", True),
        ("topic.metadata.refresh.interval.ms", "-1", False),
        ("topic.metadata.refresh.interval.ms", "7000", True),
        ("linger.ms", "0.5", False),
        ("linger.ms", "5", True),
    ],
)
def test_a_value_that_java_takes_for_something_else_is_refused_by_name(name: str, value: str, carried: bool) -> None:
    assert (settings.for_spark({name: value}, True)[1] == []) == carried
