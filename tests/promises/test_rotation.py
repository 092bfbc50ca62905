"""A password and a certificate are changed while workers claim and ack: who goes on, who stays out, and that no item is lost."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509

from kqlib.kafka.reading import described
from kqlib.queue import Site
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from tests.patience import WAIT, until
from tests.promises.logins import SHA_256, SHA_512, changeable, password
from tests.promises.queues import SESSION

pytestmark = [pytest.mark.nightly, pytest.mark.limit(300)]  # by day test_secure has a client for each worker here

REPO = Path(__file__).parents[2]
REAUTH = {"listener.name.client.scram-sha-256.connections.max.reauth.ms": "3000"}  # logins by the other one have no end


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With both mechanisms."""
    with changeable(SHA_512, SHA_256, **REAUTH) as made:
        yield made


def configs(cluster: Cluster, kind: str, name: str, *change: str) -> None:
    """`kq kafka configs --alter`, by the user `deploy`."""
    cluster.kafka("configs", "--alter", "--entity-type", kind, "--entity-name", name, *change)


@dataclass
class Work:
    """A queue into which items are put all the time, and workers: each is `kq queue work` in a process of its own."""

    cluster: Cluster
    name: str
    home: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    put: int = 0

    def start(self, worker: str, mechanism: str, password: str, user: str = "app") -> None:
        """Begin a worker with this login. Its command writes each item into a file."""
        login = self.home / f"{worker}.properties"
        login.write_text(
            f"security.protocol=SASL_SSL\nssl.ca.location={self.cluster.home / 'tls/ca.pem'}\n"
            f"sasl.mechanism={mechanism}\nsasl.username={user}\nsasl.password={password}\n"
        )
        words = [sys.executable, "-m", "kqlib", "queue", "work", self.name, "--site", self.name, "--"]
        command = ["sh", "-c", f"cat >> {self.home / worker}"]
        env = os.environ | {"KQ_BOOTSTRAP": self.cluster.bootstrap, "KQ_KAFKA_CONFIG": str(login)}
        with (self.home / f"{worker}.log").open("a") as log:
            self.running[worker] = subprocess.Popen([*words, *command], cwd=REPO, env=env, stderr=log)

    def end(self, worker: str) -> int:
        """End it in good order."""
        self.running[worker].send_signal(signal.SIGTERM)
        return self.running.pop(worker).wait(WAIT)

    def kill(self, worker: str) -> None:
        """End it at once."""
        self.running[worker].kill()
        self.running.pop(worker).wait(WAIT)

    def log(self, worker: str) -> str:
        """What it has written."""
        return (self.home / f"{worker}.log").read_text()

    def done(self, *workers: str) -> list[int]:
        """What these workers have done."""
        files = [file for worker in workers if (file := self.home / worker).exists()]
        return [int(line) for file in files for line in file.read_text().splitlines()]

    def goes_on(self, *workers: str, more: int = 3) -> None:
        """Return when each of these workers has done so many more items."""
        before = {worker: len(self.done(worker)) for worker in workers}
        until(
            lambda: all(len(self.done(each)) >= n + more for each, n in before.items()) or None,
            lambda: {worker: (len(self.done(worker)), self.log(worker)[-500:]) for worker in workers},
        )

    def members(self) -> int:
        """Of the site's group."""
        return len(described(self.cluster, self.name))


@contextmanager
def work(cluster: Cluster, name: str, home: Path) -> Iterator[Work]:
    """Items are put until the block ends. Then every one of them has to be done."""
    Plan({name: QueueTopic(partitions=4)}).apply(cluster, quiet=True)
    made, over = Work(cluster, name, home), threading.Event()
    with Site(cluster, name, session=SESSION) as site:
        queue = site.queue(name)

        def put() -> None:
            while not over.wait(0.05):
                queue.put(b"%d\n" % made.put)
                made.put += 1

        thread = threading.Thread(target=put)
        thread.start()
        try:
            yield made
            over.set()
            thread.join(WAIT)
            until(lambda: queue.depth() == 0 or None)
            assert all(made.end(worker) == 0 for worker in list(made.running))
            assert queue.stats()["dead"] == 0
            assert {*made.done("a", "b", "c")} == {*range(made.put)}
        finally:
            over.set()
            thread.join(WAIT)
            for worker in list(made.running):
                made.kill(worker)


REFUSED = "Authentication failed"


@pytest.mark.parametrize("mechanism", [SHA_512, SHA_256])
def test_after_a_change_of_the_only_password_a_worker_goes_on_until_it_has_to_log_in_again(
    cluster: Cluster, tmp_path: Path, mechanism: str
) -> None:
    password(cluster, mechanism, "old")
    with work(cluster, f"orders-{mechanism}", tmp_path) as orders:
        orders.start("a", mechanism, "old")
        orders.start("b", mechanism, "old")
        orders.goes_on("a", "b")
        password(cluster, mechanism, "new")
        orders.start("c", mechanism, "old")
        assert orders.running.pop("c").wait(WAIT) == 2 and REFUSED in orders.log("c")
        if mechanism == SHA_512:  # a login without an end: it lasts as long as the connection
            orders.goes_on("a", "b")
            for number in (1, 2):
                cluster.broker(number).stop().start()
        until(lambda: orders.members() == 0)
        assert [process.poll() for process in orders.running.values()] == [None, None]  # they try again
        orders.start("c", mechanism, "new")
        orders.goes_on("c")
        password(cluster, mechanism, "old")  # the way back: nobody has to start them again
        orders.goes_on("a", "b")
        assert any("Failed authentication" in cluster.broker(number).log.read_text() for number in (1, 2))
        orders.kill("c")  # its own password is no longer valid


def same_rights(cluster: Cluster, old: str, new: str) -> None:
    """What one user may do, another one may do as well."""
    every = (ResourceType.ANY, None, ResourcePatternType.ANY)
    theirs = AclBindingFilter(*every, f"User:{old}", None, AclOperation.ANY, AclPermissionType.ANY)
    rules = [
        AclBinding(r.restype, r.name, r.resource_pattern_type, f"User:{new}", r.host, r.operation, r.permission_type)
        for r in cluster.admin.describe_acls(theirs).result(WAIT)
    ]
    for made in cluster.admin.create_acls(rules).values():
        made.result(WAIT)


@pytest.mark.parametrize(("old", "new", "user"), [(SHA_512, SHA_256, "app"), (SHA_256, SHA_256, "app-2")])
def test_with_a_second_login_beside_the_first_no_worker_stands_still(
    cluster: Cluster, tmp_path: Path, old: str, new: str, user: str
) -> None:
    password(cluster, old, "old")
    with work(cluster, f"goals-{user}", tmp_path) as goals:
        goals.start("a", old, "old")
        goals.start("b", old, "old")
        goals.goes_on("a", "b")
        if user != "app":
            same_rights(cluster, "app", user)
        configs(cluster, "users", user, "--add-config", f"{new}=[password=new]")
        for worker, other in ("ab", "ba"):
            assert goals.end(worker) == 0
            goals.goes_on(other)
            goals.start(worker, new, "new", user)
            goals.goes_on("a", "b")
        configs(cluster, "users", "app", "--delete-config", old)
        goals.start("c", old, "old")
        assert goals.running.pop("c").wait(WAIT) == 2 and REFUSED in goals.log("c")
        goals.goes_on("a", "b", more=60)  # six seconds: each has had to log in again, with the new password
        assert "No Kafka" not in goals.log("a") + goals.log("b")
    assert len(goals.done("a", "b", "c")) == goals.put  # each once


def serial(port: int) -> int:
    """Of the certificate that a new client is shown."""
    shown = ssl.get_server_certificate(("127.0.0.1", port), timeout=WAIT)
    return x509.load_pem_x509_certificate(shown.encode()).serial_number


def test_a_certificate_is_renewed_without_a_restart_and_no_worker_notices(cluster: Cluster, tmp_path: Path) -> None:
    password(cluster, SHA_512, "old")
    pem, renewed = cluster.home / "tls/broker.pem", cluster.home / "tls/renewed.pem"
    new = x509.load_pem_x509_certificate(renewed.read_bytes().partition(b"-----END PRIVATE KEY-----")[2]).serial_number
    ports = {n: (cluster.broker(n).node.port, cluster.broker(n).node.controller_port) for n in (1, 2)}
    pids = [cluster.broker(n).pid for n in (1, 2)]
    with work(cluster, "games", tmp_path) as games:
        games.start("a", SHA_512, "old")
        games.start("b", SHA_512, "old")
        games.goes_on("a", "b")
        renewed.replace(pem)
        for number, listeners in ports.items():
            assert all(serial(port) != new for port in listeners)  # no broker looks at the file by itself
            configs(
                cluster, "brokers", str(number), "--add-config", f"listener.name.client.ssl.keystore.location={pem}"
            )
            for port in listeners:
                until(lambda port=port: serial(port) == new or None)  # type: ignore[misc]
        games.goes_on("a", "b")
        games.start("c", SHA_512, "old")
        games.goes_on("a", "b", "c")
        assert [cluster.broker(n).pid for n in (1, 2)] == pids
        assert games.log("a") + games.log("b") + games.log("c") == ""
    assert len(games.done("a", "b", "c")) == games.put  # each once
