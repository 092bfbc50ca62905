"""The command `kq` with a real Kafka and real processes: up, status, topics, kafka, lab, doctor, down, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from kqlib.command import main as cli
from kqlib.runtime import places
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.cluster.node import free_ports
from kqlib.workshop.doctor import CHECKS
from tests.conftest import Marked
from tests.patience import PATIENCE, WAIT
from tests.promises.desk import Ran

REPO = Path(__file__).parents[2]
KQ = [sys.executable, "-m", "kqlib"]
Kq = Callable[..., Ran]
PLAN = "[football]\nweb_servers = 1\n\n[scores]\npartitions = 3\ncompact = true\n"


@dataclass
class Machine:
    """A machine of a test's own: its state, its temporary files, and the processes that it started, at any depth."""

    home: Path
    marked: Marked = field(default_factory=lambda: Marked(uuid.uuid4().hex))
    lines: set[str] = field(default_factory=set)  # what `kq up` printed

    def env(self, **more: str) -> dict[str, str]:
        """The environment of its commands."""
        kept = {name: value for name, value in os.environ.items() if name not in {"KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG"}}
        (self.home / "tmp").mkdir(exist_ok=True)
        ours = {"KQ_STATE": str(self.home / "state"), "TMPDIR": str(self.home / "tmp"), "KQ_CACHE": str(places.cache())}
        return kept | ours | self.marked.env | more

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """kq, started."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*KQ, *words], env=self.env(**more), cwd=REPO, **pipes)  # type: ignore[call-overload,no-any-return]

    def kq(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """kq, run to its end."""
        process = self.start(*words, **more)
        printed = process.communicate(timeout=WAIT)
        return subprocess.CompletedProcess(words, process.returncode, *printed)

    def printed(self, *words: str, **more: str) -> str:
        """What kq printed; it ended well."""
        ran = self.kq(*words, **more)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def left(self, seconds: float = 3) -> list[str]:
        """Processes and temporary files that are still there after so many seconds × patience."""
        deadline = time.monotonic() + seconds * PATIENCE
        while (found := self.left_now()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def left_now(self) -> list[str]:
        """Processes and temporary files that are there now."""
        return [str(each) for each in (*self.marked.alive(), *(self.home / "tmp").iterdir())]

    def end(self) -> None:
        """After a test that failed."""
        for process in self.marked.alive():
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine of this test's own."""
    made = Machine(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which `kq up`, typed twice at once, keeps one broker. The last test of this file ends it."""
    made = Machine(tmp_path_factory.mktemp("busy"))
    try:
        both = [made.start("up") for _ in range(2)]
        made.lines = {process.communicate(timeout=WAIT)[0] for process in both}
        assert [process.returncode for process in both] == [0, 0]
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def bootstrap(busy: Machine) -> str:
    """Where it is."""
    (line,) = busy.lines
    return line.strip().removeprefix("export KQ_BOOTSTRAP=")


@pytest.fixture
def kq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kq:
    """`kq` on a machine, in this process: starting one takes as long as most commands."""
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    monkeypatch.delenv("KQ_KAFKA_CONFIG", raising=False)

    def run(machine: Machine, *words: str) -> Ran:
        monkeypatch.setenv("KQ_STATE", str(machine.home / "state"))
        capsys.readouterr()
        code = cli.main(list(words))
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """A plan's file."""
    (tmp_path / "plan.toml").write_text(PLAN)
    return str(tmp_path / "plan.toml")


# --- up and down ------------------------------------------------------------------------------------------------------


def test_two_ups_at_once_keep_one_cluster_and_print_one_line_for_eval(busy: Machine, bootstrap: str) -> None:
    assert busy.lines == {f"export KQ_BOOTSTRAP={bootstrap}\n"} and bootstrap.startswith("127.0.0.1:")
    assert len(busy.marked.alive("kafka.Kafka")) == 1
    script = f'eval "$({sys.executable} -m kqlib up 2>/dev/null)"; echo "$KQ_BOOTSTRAP"'
    ran = subprocess.run(["sh", "-c", script], env=busy.env(), cwd=REPO, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{bootstrap}\n"


# by day the ports of dead brokers are in tests/unit/cli/test_up.py
@pytest.mark.parametrize("brokers", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_dead_broker_is_seen_and_a_killed_holder_takes_everything_along(
    machine: Machine, kq: Kq, within: Callable[..., float], brokers: int
) -> None:
    machine.printed("up", "--brokers", str(brokers))
    seen: dict[str, Any] = {}

    def down() -> bool:
        ran = kq(machine, "status", "--json")
        seen.update(ran.json if ran.code == 0 else {})
        return seen.get("brokers") == {"1": "up", "2": "down"}

    if brokers == 2:
        machine.marked.alive("broker-2/server.properties")[0].kill()
        within(40, down, "status never saw that broker 2 is gone")
        assert (seen["source"], seen["exported"], seen["other"]) == ("kq up", False, None)
    os.kill(json.loads((machine.home / "state/up.json").read_text())["pid"], signal.SIGKILL)
    assert machine.left(3) == []


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)], ids=["interrupted", "ended"]
)
def test_an_up_that_is_stopped_half_way_leaves_nothing(
    how: signal.Signals, code: int, machine: Machine, within: Callable[..., float]
) -> None:
    paused = (
        machine.home / "paused"
    )  # Java waits at its start while this file exists: `up` cannot end before the signal
    options = f"-XX:+UnlockDiagnosticVMOptions -XX:+PauseAtStartup -XX:PauseAtStartupFile={paused}"
    starting = machine.start("up", JAVA_TOOL_OPTIONS=options)
    within(60, paused.exists)
    starting.send_signal(how)
    out, err = starting.communicate(timeout=WAIT)
    assert (starting.returncode, out, err) == (code, "", "")
    if how == signal.SIGTERM:  # it could not take its holder along; `kq down` ends one that is only starting too
        paused.unlink()
        assert machine.printed("down") == "Kafka has ended.\n"
    assert machine.left(3) == []


# --- commands on the cluster of `kq up` -------------------------------------------------------------------------------


def test_status_says_what_runs_and_where(busy: Machine, bootstrap: str) -> None:
    lines = busy.printed("status", KQ_BOOTSTRAP=bootstrap).splitlines()
    assert lines[:2] == [f"The cluster of `kq up` at {bootstrap}", "  broker 1  up, controller"]
    counted = len([name for name in topics(bootstrap) if not name.startswith("__")])
    assert lines[2:] == [f"  topics    {counted}", "Notebooks use it: KQ_BOOTSTRAP names it."]


def topics(bootstrap: str) -> set[str]:
    """The names of all topics there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return set(admin.list_topics(timeout=WAIT).topics)


def test_a_plan_is_compared_applied_and_then_as_planned(busy: Machine, kq: Kq, bootstrap: str, plan: str) -> None:
    before = kq(busy, "topics", "diff", plan)
    assert (before.code, before.err) == (1, "")
    planned = ["+ football:", "+ football.dead:", "+ scores:", "+ kq.queues:"]
    assert sorted(" ".join(line.split()[:2]) for line in before.out.splitlines()) == sorted(planned)
    assert kq(busy, "topics", "apply", plan) == Ran(0, f"{before.out}Done: every topic is as planned.\n", "")
    after = kq(busy, "topics", "diff", plan)
    assert (after.code, after.out.count(": as planned")) == (0, 4)
    assert topics(bootstrap) >= {"football", "football.dead", "scores", "kq.queues"}


def test_what_can_never_be_applied_differs_and_changes_nothing(
    busy: Machine, kq: Kq, bootstrap: str, plan: str
) -> None:
    assert kq(busy, "topics", "apply", plan).code == 0
    Path(plan).write_text(PLAN.replace("partitions = 3", "partitions = 1"))
    assert kq(busy, "topics", "diff", plan).code == 1
    Path(plan).write_text(Path(plan).read_text() + "\n[other]\n")
    refused = kq(busy, "topics", "apply", plan)
    assert refused.code == 2
    assert refused.err.startswith("kq: 'scores' has 3 partitions and the plan says 1.")
    assert "other" not in topics(bootstrap)
    Path(plan).write_text(PLAN.replace("compact = true", "compact = true\nreplicas = 2"))
    differs = kq(busy, "topics", "diff", plan)
    assert (differs.code, "≠ scores" in differs.out) == (1, True)
    applied = kq(busy, "topics", "apply", plan)
    assert applied.out == f"{differs.out}Done: every topic is as planned, but for the lines marked ≠.\n"


def test_kafkas_own_tools_find_the_cluster_and_end_with_their_own_code(busy: Machine) -> None:
    """That they read what is typed: notebook 03 types keys to Java's producer."""
    described = busy.kq("kafka", "kafka-topics.sh", "--describe", "--topic", "nobody")
    assert (described.returncode, "'nobody' does not exist" in described.stdout + described.stderr) == (1, True)


# --- commands on one's own cluster ------------------------------------------------------------------------------------


@pytest.mark.nightly  # by day test_secure has the file of settings, and test_queue_looks `kq` commands with one
def test_one_s_own_cluster_with_tls_and_a_login_is_used_and_its_password_never_shown(
    busy: Machine, bootstrap: str, tmp_path: Path
) -> None:
    with Cluster(secure=True) as cluster:
        login = {**cluster.client(), "bootstrap.servers": cluster.bootstrap}
        words = [name for name in login if name.startswith(("security", "ssl", "sasl", "bootstrap"))]
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={login[name]!s}\n" for name in words))
        own = {"KQ_KAFKA_CONFIG": str(file)}
        status = busy.printed("status", **own)
        assert status.startswith(f"Your cluster (KQ_KAFKA_CONFIG) at {cluster.bootstrap}\n  broker 1  up, controller\n")
        assert f"`kq up` keeps another one at {bootstrap}" in status
        assert busy.printed("status", "--config", str(file)) == status
        made = busy.kq("kafka", "topics", "--create", "--topic", "mine", **own)
        assert made.returncode == 0, made.stderr
        assert cluster.leader("mine", 0) == 1
        file.write_text(file.read_text().replace("sasl.password=", "sasl.password=wrong"))
        refused = busy.kq("status", **own)
        assert refused.returncode == 2
        assert "uthentication" in refused.stderr
        assert str(login["sasl.password"]) not in refused.stderr


# --- doctor and lab ---------------------------------------------------------------------------------------------------


def test_doctor_finds_this_machine_and_its_cluster_well_and_leaves_nothing(
    busy: Machine, bootstrap: str, within: Callable[..., float]
) -> None:
    before = {process.pid for process in busy.marked.alive()}
    ran = busy.kq("doctor", KQ_BOOTSTRAP=bootstrap)
    signs = {line[2:13].strip(): line[0] for line in ran.stdout.splitlines()}
    assert {check.name: signs.get(check.name) for check in CHECKS} == {check.name: "✓" for check in CHECKS}, ran.stdout
    assert f"a record went into a real Kafka and came out ({bootstrap})" in ran.stdout
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    within(3, lambda: {process.pid for process in busy.marked.alive()} == before, "a process is left")
    # the broker hears of it after the controller's answer
    within(20, lambda: "kq-doctor" not in str(topics(bootstrap)), "its topic is left")


def ask(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT) as answer:
        return json.load(answer) if "json" in answer.headers["Content-Type"] else answer.url


@pytest.mark.nightly  # by day tests/browser starts it, and sees no pop-up; its words are in tests/unit/cli/test_jupyter.py
def test_lab_serves_the_notebooks_on_loopback_with_the_projects_settings(
    machine: Machine, within: Callable[..., float]
) -> None:
    (port,) = free_ports(1)  # not one that the system may give to a client meanwhile
    more = [f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=x"]
    serving = machine.start("lab", "notebooks/00-start-here.ipynb", "--no-browser", "--", *more, HOME=str(machine.home))

    def answers() -> bool:
        assert serving.poll() is None, serving.communicate()[1]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        within(60, answers)
        assert ask(port, "/?token=x").split("?")[0].endswith("/lab/tree/notebooks/00-start-here.ipynb")
        news = ask(port, "/lab/api/settings/@jupyterlab/apputils-extension:notification?token=x")
        offered = {name: news["schema"]["properties"][name]["default"] for name in ("fetchNews", "checkForUpdates")}
        assert offered == {"fetchNews": "false", "checkForUpdates": False}
        listening = {c.laddr.ip for p in machine.marked.alive() for c in p.net_connections() if c.status == "LISTEN"}
        assert listening == {"127.0.0.1"}
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=WAIT)
    assert not list(machine.home.rglob("user-settings"))
    assert machine.left(3) == []


# --- the end of the cluster of `kq up`: the last test that uses it ----------------------------------------------------


def test_down_returns_when_all_of_it_is_gone(busy: Machine, bootstrap: str) -> None:
    down = busy.kq("down", KQ_BOOTSTRAP=bootstrap)
    assert (down.stdout, down.stderr) == ("Kafka has ended.\n", "KQ_BOOTSTRAP still names it: unset KQ_BOOTSTRAP\n")
    assert busy.left_now() == []
    assert not (busy.home / "state/up.json").exists()
