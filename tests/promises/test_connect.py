"""`kq.connect()`: one's own cluster by KQ_BOOTSTRAP; if nobody answers, that is reported within five seconds, with the address."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kqlib.errors import BadConfig, Closed, NotAllowed, Unreachable
from kqlib.kafka import Kafka, connect
from kqlib.kafka.cluster import reach
from kqlib.workshop import cluster as embedded
from kqlib.workshop.cluster.node import free_ports
from tests.patience import PATIENCE, WAIT
from tests.promises.play import put

NO_ADDRESS = [" ", ",", ":9", "host:port", "127.0.0.1:", "127.0.0.1:99999", "http://h:80", "a b", "::", "localhost:1:2"]
NOWHERE, PEM = "/nowhere/ca.pem", "ssl.truststore.type=PEM"
HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch, kq_cluster: Kafka) -> None:
    """After the session's cluster is up, the environment names none."""
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    monkeypatch.delenv("KQ_KAFKA_CONFIG", raising=False)


@contextlib.contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """Something that listens and is no Kafka: it answers always the same, or (None) never."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listening.accept()
                    kept.append(link)
                    if answer is not None:
                        link.recv(100)
                        link.sendall(answer)
                        link.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT)
        for link in kept:
            link.close()


def closed_port() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"  # not one of those that the system gives to any program that asks


def test_an_address_where_no_kafka_answers_is_named_within_five_seconds() -> None:
    with server(None) as silent, server(HTTP) as http, server(b"") as hangs_up:
        dead = closed_port()
        cases: dict[str, tuple[Any, ...]] = {
            **{f"{text!r} for an address": (text, "") for text in NO_ADDRESS},
            "nobody listens": (dead, "refused"),
            "nobody listens at any of them": (",".join(closed_port() for _ in range(8)), "refused"),
            "no such host": ("example.invalid:9092", "resolve"),
            "a host without a name service entry or port": ("nonsense", "resolve"),
            "it listens and is silent": (silent, "something listens there"),
            "many listen and are silent": (",".join([silent] * 9), "something listens there"),
            "it speaks HTTP": (http, ""),
            "it hangs up": (hangs_up, ""),
            "a dead and a silent one": (f"{dead},{silent}", "refused"),
            "it speaks no TLS": (silent, "", {"security.protocol": "SSL"}),
        }

        def attempt(case: tuple[Any, ...]) -> tuple[float, str]:
            start = time.monotonic()
            try:
                reach(case[0], *case[2:] or ({},))
            except Unreachable as error:
                return time.monotonic() - start, str(error)
            return 0.0, "it was reached"

        with ThreadPoolExecutor(len(cases)) as pool:
            found = dict(zip(cases, pool.map(attempt, cases.values()), strict=True))
    for name, (seconds, reported) in found.items():
        assert reported.startswith(f"No Kafka answered at {cases[name][0]}: "), (name, reported)
        assert cases[name][1] in reported, (name, reported)
        assert "KQ_BOOTSTRAP" in reported
        assert seconds < 5 * PATIENCE, (name, seconds)


@pytest.mark.parametrize("value", [None, ""])
def test_without_an_address_it_is_an_embedded_one(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv("KQ_BOOTSTRAP", value)
    monkeypatch.setattr(embedded, "Cluster", lambda: "a new embedded cluster")
    assert connect() == "a new embedded cluster"  # type: ignore[comparison-overlap]


def test_with_an_address_it_is_that_cluster_which_runs_on_when_it_is_closed(
    monkeypatch: pytest.MonkeyPatch, kq_cluster: Kafka, kq_topic: str
) -> None:
    dead = closed_port()
    for address in (kq_cluster.bootstrap, f"{dead},{kq_cluster.bootstrap}"):
        monkeypatch.setenv("KQ_BOOTSTRAP", address)
        with connect() as kafka:
            assert (kafka.embedded, kafka.bootstrap, repr(kafka)) == (False, address, "Kafka(one's own cluster)")
            assert kafka.brokers == kq_cluster.brokers
            assert kafka.leader(kq_topic, 0) == 1
            put(kafka, kq_topic, b"x")
            with pytest.raises(NotAllowed, match="only on an embedded cluster; this one is at"):
                kafka.broker(1)
        assert repr(kafka) == "Kafka(closed)"
        for attempt in (kafka.client, kafka.describe, lambda kafka=kafka: kafka.admin):
            with pytest.raises(Closed):
                attempt()
        kafka.close()
    reader = Consumer(kq_cluster.client(group_id="g"))
    reader.assign([TopicPartition(kq_topic, 0, 0)])
    assert [message.value() for message in reader.consume(2, WAIT)] == [b"x", b"x"]
    reader.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"client.id=me\nsecurity.protocol=SSL\nssl.ca.location={NOWHERE}", f", line 3: ssl.ca.location={NOWHERE}: there is no"),
        (f"security.protocol=SSL\n{PEM}\nssl.truststore.location={NOWHERE}", f", line 3: ssl.truststore.location={NOWHERE}: there"),
        ("# ours\nsecurity.protokol=SSL", ', line 2: No such configuration property: "security.protokol"'),
        ("linger.ms=soon", ", line 1: linger.ms=soon: Invalid value"),
        ("sasl.passwort=hunter2", ', line 1: No such configuration property: "sasl.passwort"'),
        ("client.id=me", "KQ_BOOTSTRAP: 'localhost:abc' has no port from 1 to 65535"),
        ("bootstrap.servers=a:9092,b:99999", "client.properties, bootstrap.servers: 'b:99999' has no port"),
    ],
)  # fmt: skip
def test_a_wrong_file_setting_or_port_is_named_with_its_line_within_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path, text: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if "bootstrap" not in text:
        monkeypatch.setenv("KQ_BOOTSTRAP", "localhost:abc" if "KQ_BOOTSTRAP" in says else "127.0.0.1:1")
    (tmp_path / "client.properties").write_text(text)
    monkeypatch.setenv("KQ_KAFKA_CONFIG", str(tmp_path / "client.properties"))
    began = time.monotonic()
    with pytest.raises(BadConfig) as caught:
        connect()
    assert time.monotonic() - began < 1 * PATIENCE
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert capfd.readouterr().err == ""
