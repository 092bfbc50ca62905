"""What a session is asked for and what it is told, without a JVM."""

from __future__ import annotations

import re
import socket
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kqlib.broker import Kafka, archive, jars, java
from kqlib.errors import Closed, JarMismatch, JavaMissing, KqError, NoSpark, NotAllowed
from kqlib.spark import jvm, session, sink, source
from kqlib.spark.jvm import MODULES, Jvm, archived, zipped

ROOM = sys.modules["kqlib.spark.session"]  # the module; the name is the function's
PLAIN = Kafka("127.0.0.1:9")


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A start is noted and fails; nothing runs."""
    started: list[Any] = []

    def start(*args: Any) -> None:
        started.append(args)
        raise KqError("no JVM in a unit test")

    monkeypatch.setattr(ROOM, "Jvm", start)
    monkeypatch.setattr(ROOM.jars, "fetch", lambda kind: [Path("/jars/one.jar")])
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


def test_a_writer_gets_the_address_and_its_topic() -> None:
    assert sink(PLAIN, "scores") == {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "includeHeaders": "true",
        "topic": "scores",
    }
    assert "topic" not in sink(PLAIN)


def test_a_login_and_certificates_travel_as_text(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": 'pa"ss'}
    found = source(Kafka("h:1", {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority), **login}), "t")
    assert found["kafka.ssl.truststore.certificates"] == authority.read_text()
    assert found["kafka.ssl.truststore.type"] == "PEM"
    assert "kafka.ssl.truststore.location" not in found  # a file that executors elsewhere do not have
    assert 'username="app" password="pa\\"ss"' in found["kafka.sasl.jaas.config"]


def test_the_modules_are_opened_that_sparks_own_launcher_opens() -> None:
    import pyspark

    (launcher,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(launcher) as opened:
        code = opened.read("org/apache/spark/launcher/JavaModuleOptions.class")
    theirs = {word.decode() for word in re.findall(rb"\x01..(--?[-A-Za-z:+][ -~]+)", code, re.DOTALL)}
    assert theirs - {f"--add-modules={java.VECTOR}"} == set(MODULES)


def test_kqlib_travels_as_a_zip_that_python_imports_from(tmp_path: Path) -> None:
    package = tmp_path / "little"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text("WORD = 'here'\n")
    (package / "room" / "__init__.py").write_text("")
    names = zipfile.ZipFile(zipped(package, tmp_path / "out")).namelist()
    assert {"little/__init__.py", "little/room/__init__.py"} <= set(names)


def test_small_defaults_and_ones_own_on_top(no_jvm: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": 9, "spark.executor.memory": None}
    with pytest.raises(KqError, match="no JVM"):
        session(config=own, ui=True)
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
    assert all(word.startswith("-Dorg.apache.avro.limits.") for word in opened)


def test_the_quick_compiler_alone_serves_an_embedded_cluster_unless_one_says_otherwise(no_jvm: list[Any]) -> None:
    lab, own = Kafka("127.0.0.1:9"), {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
    lab.embedded = True  # type: ignore[misc]
    for asked in ((lab, None), (lab, own), (PLAIN, None), (None, None)):
        with pytest.raises(KqError, match="no JVM"):
            session(asked[0], config=asked[1])
    levels = [[word[-1] for word in started[2] if "TieredStopAtLevel" in word] for started in no_jvm]
    assert levels == [["1"], ["1", "4"], [], []]  # Java takes the last one


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
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(JavaMissing):
        Jvm([], "1m", [], {}, {})
    assert not list(tmp_path.iterdir())


def test_a_jar_that_is_not_the_one_of_the_lock_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KQ_CACHE", str(tmp_path))
    monkeypatch.delenv("KQ_SPARK_MASTER", raising=False)
    (tmp_path / "jars").mkdir()
    for jar in jars.locked("spark"):
        (tmp_path / "jars" / jar.file).write_bytes(b"another one")
    with pytest.raises(JarMismatch, match=r"is not the file that jars\.lock names"):
        session()


def test_classes_that_were_recorded_are_used_and_only_by_the_same_jars(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KQ_CACHE", str(tmp_path))
    key, whose = archived([Path("/jars/one.jar")])
    assert archive.options(key, whose) == []
    made = archive._place(key) / f"{whose}.jsa"
    made.parent.mkdir(parents=True)
    made.touch()
    assert archive.options(key, whose)[0] == f"-XX:SharedArchiveFile={made}"
    assert archive.options(*archived([Path("/jars/two.jar")])) == []


SETTINGS = "config is a dict of Spark's settings, as in {'spark.driver.memory': '2g'}"
MASTERS = ("chess", "local[x]", "spark:/host:7077", "local[2]; rm")


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda: session("lab"), NotAllowed, "cluster is a cluster, as in session(lab.cluster), not str"),
        (
            lambda: session(config=["x"]),
            NotAllowed,
            "config is a dict of Spark's settings, as in {'spark.driver.memory': '2g'}",
        ),
        (
            lambda: session(config={"memory": 1}),
            NotAllowed,
            "config is a dict of Spark's settings, as in {'spark.driver.memory': '2g'}",
        ),
        (lambda: source(None), NotAllowed, "which cluster? A lab's is lab.cluster, one's own kq.connect()"),
        (lambda: source(PLAIN, "a,b"), NotAllowed, "a topic is named by a text, not 'a,b'"),
        (lambda: source(PLAIN, 7), NotAllowed, "a topic is named by a text, not 7"),
        (lambda: sink("here"), NotAllowed, "cluster is a cluster, as in session(lab.cluster), not str"),
    ],
)
def test_what_is_wrong_is_said(call: Callable[[], object], kind: type[KqError], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == sentence


@pytest.mark.parametrize("master", MASTERS)
def test_a_master_that_is_none_is_named(no_jvm: list[Any], monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.setenv("KQ_SPARK_MASTER", master)
    with pytest.raises(NotAllowed, match=r"KQ_SPARK_MASTER is no master of Spark's"):
        session()


def test_a_master_without_a_port_is_named(no_jvm: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQ_SPARK_MASTER", "spark://host")
    with pytest.raises(NotAllowed, match="names no port"):
        session()


def test_a_closed_cluster_is_refused() -> None:
    closed = Kafka("127.0.0.1:9")
    closed.close()
    with pytest.raises(Closed):
        source(closed, "football")
