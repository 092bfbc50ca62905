"""Two clusters in one session: settings arrive, no secret is shown, and a checkpoint belongs to one cluster and to its topics.

One of them has TLS and a login.
"""

from __future__ import annotations

import argparse
import logging
import re
import secrets
import shutil
import sys
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from kqlib.command.pipeline import looks, streams
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka, settings
from kqlib.schemas import Registry
from kqlib.spark import form, sink, source, standings
from kqlib.spark.snapshot import FILE, Snapshot, claim
from kqlib.topics import Plan, Topic
from kqlib.workshop import snapshot
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.games import season, seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from tests.patience import WAIT
from tests.spark.hand import by_hand

MARK = "m4rked"
HARD = f'{MARK}"in \\quotes;{MARK}'  # a password that has to be escaped on its way to Java
NOW = 0  # librdkafka's word for it
SET = {
    "client.id": "kq-marked",
    "socket.timeout.ms": 41_000,
    "topic.metadata.refresh.interval.ms": 7_000,
    "linger.ms": 3,
}
LOGGED = ("client.id = kq-marked", "request.timeout.ms = 41000", "metadata.max.age.ms = 7000", "linger.ms = 3")
MODES = ("simple", "extended", "codegen", "cost", "formatted")


@pytest.fixture(scope="module")
def locked() -> Iterator[Cluster]:
    """A cluster with TLS and a login. Its one certificate also serves as the client's: a private key to look for."""
    with Cluster(secure=True) as made:
        assert made._security
        whole = (made._security.home / "broker.pem").read_text()
        at = whole.index("-----BEGIN CERTIFICATE-----")
        made._own |= {"ssl.key.pem": whole[:at], "ssl.certificate.pem": whole[at:], **SET}
        Plan({"games": Topic(1), "copies": Topic(1)}).apply(made, quiet=True)
        produce(made, "games", [(b"key", b"value", NOW)])
        yield made


def test_no_secret_leaves_by_repr_log_error_plan_or_web_page(
    spark: Any, locked: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: dict[str, str] = {}
    with noisy(spark, caplog):
        games = load(spark, locked, "games")
        copies = {"kafka": sink(locked, "copies")}
        games.write.format("kafka").options(**copies["kafka"]).save()
        stream = spark.readStream.format("kafka").options(**source(locked, "games", startingOffsets="earliest")).load()
        to_kafka = stream.writeStream.format("kafka").options(**copies["kafka"])
        checkpoint = str(tmp_path / "checkpoint")
        query = to_kafka.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        for mode in MODES:
            games.explain(mode=mode)
        stream.explain(extended=True)
        query.explain(extended=True)
        shown["a frame's plan"] = (
            games._jdf.queryExecution().toString() + games._jdf.queryExecution().logical().toJSON()
        )
        shown["a stream's plan"] = stream._jdf.queryExecution().toString() + stream._jdf.toString()
        shown["a stream's progress"] = f"{query.lastProgress} {query.recentProgress}"
        wrong = Kafka(locked.bootstrap, locked._own | {"sasl.password": HARD})
        shown["errors"] = refused(lambda: load(spark, wrong, "games").count())
        shown["errors of a stream"] = refused(
            lambda: spark.readStream.format("kafka").options(**source(wrong, "games")).load()
            .writeStream.format("noop").start().processAllAvailable()
        )  # fmt: skip
    assert len(snapshot.records(locked, "copies")[0]) == 2, "nothing was written: this proves nothing"
    out, err = capsys.readouterr()
    assert out.count("== Physical Plan ==") >= len(MODES)
    shown |= {"explain()": out, "stderr": err, "Python's log": caplog.text, "Spark's log": spark_log()}
    assert "sasl.jaas.config" in shown["Spark's log"] and "py4j" in caplog.text, "the logs are not noisy enough"
    assert [line for line in LOGGED if line not in shown["Spark's log"]] == []
    assert "Authentication failed" in shown["errors"] and "uthentication" in shown["errors of a stream"]
    shown |= pages(spark.sparkContext) | files(tmp_path)
    assert len([name for name in shown if "/SQL/execution/" in name]) >= 3 and any(
        "environment" in name for name in shown
    )
    shown |= {"reader": f"{source(locked, 'games')}", "writer": f"{copies}"}
    found = [
        (name, text[: text.find(secret)][-60:])
        for name, text in shown.items()
        for secret in secrets_of(locked)
        if secret in text
    ]
    assert not found, found


def test_each_setting_that_is_carried_to_spark_is_one_of_javas(spark: Any) -> None:
    clients = spark.sparkContext._jvm.org.apache.kafka.clients
    assert {*settings.BOTH.values(), *settings.READER.values()} - {
        *clients.consumer.ConsumerConfig.configNames()
    } == set()
    assert {*settings.BOTH.values(), *settings.WRITER.values()} - {
        *clients.producer.ProducerConfig.configNames()
    } == set()


def load(spark: Any, cluster: Kafka, topic: str) -> Any:
    return spark.read.format("kafka").options(**source(cluster, topic)).load()


def secrets_of(locked: Cluster) -> list[str]:
    """The password, the body of the private key, and what the hard password is made of."""
    own = locked._own
    return [str(own["sasl.password"]), own["ssl.key.pem"].splitlines()[1], MARK]


@contextmanager
def noisy(spark: Any, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Inside of it Spark and Python log everything."""
    spark.sparkContext.setLogLevel("DEBUG")
    with caplog.at_level(logging.DEBUG):
        yield
    spark.sparkContext.setLogLevel("WARN")


def refused(call: Any) -> str:
    """Everything that an error says: itself, its causes, its stack, in every form."""
    with pytest.raises(Exception) as caught:
        call()
    error = caught.value
    return "".join(traceback.format_exception(error)) + f"{error} {error!r} {vars(error)}"


def spark_log() -> str:
    return str(sys.modules["kqlib.spark.session"]._now.jvm.log.read_text())


def pages(context: Any) -> dict[str, str]:
    """Every page of Spark's own web server that a reader gets to from the first one, and the same for programs."""
    base = context.uiWebUrl
    api = f"{base}/api/v1/applications/{context.applicationId}"
    found: dict[str, str] = {}
    ahead = [f"{base}/", f"{api}/environment", f"{api}/sql?details=true&planDescription=true&length=100"]
    while ahead:
        url = ahead.pop()
        if url not in found:
            with urllib.request.urlopen(url, timeout=WAIT) as answer:
                found[url] = answer.read().decode(errors="replace")
            links = re.findall(r'href="([^"#]+)"', found[url])
            near = [urljoin(url, link.replace("&amp;", "&")) for link in links]
            ahead += [each for each in near if each.startswith(base) and not re.search("/static/|kill", each)]
    return found


def files(home: Path) -> dict[str, str]:
    """What a stream has written beside Kafka."""
    return {str(path): path.read_text(errors="replace") for path in home.rglob("*") if path.is_file()}


# --- a stream goes on where it was, and nowhere else -----------------------------------------------------------------------

TOLD = list(season(300, sport="football"))
Names = tuple[str, str]


@pytest.fixture
def names(kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Names:
    """A topic of games and one for standings; commands keep their state here."""
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "state"))
    name = f"games-{secrets.token_hex(3)}"
    plan(name, f"{name}.table").apply(kq_cluster, quiet=True)
    return name, f"{name}.table"


def plan(games: str, out: str) -> Plan:
    return Plan({games: Topic(2, config=FOR_EVER), out: Topic(1, compact=True)})


def typed(names: Names, home: str | None = None) -> argparse.Namespace:
    """What `kq pipeline quarantine GAMES OUT` gets."""
    how = {"home": home, "registry": None, "subject": None, "group": None, "once": True, "retry": None}
    return argparse.Namespace(word="quarantine", source=names[0], target=names[1], **how)


def run(spark: Any, cluster: Kafka, names: Names, home: str) -> None:
    assert standings(spark, cluster, *names, registry=Registry(cluster=cluster), home=home, once=True).wait(5 * WAIT)


def test_a_checkpoint_of_another_cluster_or_of_a_topic_made_anew_is_refused_and_has_another_default_place(
    spark: Any, kq_cluster: Kafka, locked: Cluster, names: Names, tmp_path: Path
) -> None:
    home, first = str(tmp_path / "home"), looks._home(typed(names), kq_cluster)
    assert claim(spark, home, kq_cluster, *names) == f"{home}/checkpoint"
    noted = Path(home, FILE).read_text()
    plan(*names).apply(locked, quiet=True)
    list(seasons.messages(TOLD[:1], Registry(cluster=locked), f"{names[0]}-value"))  # its schema
    assert looks._home(typed(names), locked) != first == looks._home(typed(names), kq_cluster)
    with pytest.raises(NotAllowed, match=r"holds the checkpoint of another cluster .* name an empty directory"):
        run(spark, locked, names, home)
    with pytest.raises(NotAllowed, match="holds the checkpoint of another cluster"):
        form(spark, locked, *names, registry=Registry(cluster=locked), home=home, once=True)
    with pytest.raises(NotAllowed, match="holds the checkpoint of another cluster"):
        streams.quarantine(typed(names, home), locked)
    kq_cluster.admin.delete_topics([names[0]])[names[0]].result(WAIT)
    kq_cluster.wait_until_gone(names[0])
    plan(*names).apply(kq_cluster, quiet=True)
    assert looks._home(typed(names), kq_cluster) != first
    with pytest.raises(NotAllowed, match=f"the checkpoint of '{names[0]}' before it was deleted and made again"):
        run(spark, kq_cluster, names, home)
    assert Path(home, FILE).read_text() == noted and not Path(home, "checkpoint").exists()


def test_standings_whose_snapshot_is_lost_are_refused_and_come_right_from_an_empty_directory(
    spark: Any, kq_cluster: Kafka, names: Names, tmp_path: Path
) -> None:
    home, registry = str(tmp_path / "home"), Registry(cluster=kq_cluster)
    produce(kq_cluster, names[0], seasons.messages(TOLD[:200], registry, f"{names[0]}-value"))
    run(spark, kq_cluster, names, home)
    shutil.rmtree(Path(home, "current"))
    produce(kq_cluster, names[0], seasons.messages(TOLD[200:], registry, f"{names[0]}-value"))
    with pytest.raises(NotAllowed, match="current/0 is lost or cut"):
        run(spark, kq_cluster, names, home)
    run(spark, kq_cluster, names, f"{home}-2")
    rows = Snapshot(spark, f"{home}-2").read("teams").collect()
    assert sorted(map(tuple, rows), key=lambda row: (row[0], row[2])) == by_hand(TOLD)
