"""The command `kq` with a real Kafka and real processes: up, status, topics, kafka, lab, doctor, down, and nothing left."""

from __future__ import annotations

import json
import os
import shutil
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

from kqlib.runtime import places
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.cluster.node import free_ports
from kqlib.workshop.doctor import CHECKS
from tests.conftest import Marked
from tests.patience import PATIENCE, WAIT

REPO = Path(__file__).parents[2]
KQ = [sys.executable, "-m", "kqlib"]
PLAN = "[football]\nweb_servers = 1\n\n[scores]\npartitions = 3\ncompact = true\n"


@dataclass
class Machine:
    """A machine of a test's own: its state, its temporary files, and the processes that it started, at any depth."""

    home: Path
    marked: Marked = field(default_factory=lambda: Marked(uuid.uuid4().hex))

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

    def kq(self, *words: str, typed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """kq, run to its end."""
        return subprocess.run(
            [*KQ, *words],
            env=self.env(**more),
            cwd=REPO,
            input=typed,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )

    def printed(self, *words: str, typed: str = "", **more: str) -> str:
        """What kq printed; it ended well."""
        ran = self.kq(*words, typed=typed, **more)
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
    """A machine on which `kq up` keeps one broker for the tests that only use it."""
    made = Machine(tmp_path_factory.mktemp("busy"))
    try:
        made.printed("up")
        yield made
        made.kq("down")
    finally:
        made.end()


@pytest.fixture(scope="module")
def bootstrap(busy: Machine) -> str:
    """Where it is."""
    return busy.printed("up").strip().removeprefix("export KQ_BOOTSTRAP=")


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """A plan's file."""
    (tmp_path / "plan.toml").write_text(PLAN)
    return str(tmp_path / "plan.toml")


# --- up and down ------------------------------------------------------------------------------------------------------


def test_two_ups_at_once_keep_one_cluster_and_down_leaves_nothing(machine: Machine) -> None:
    both = [machine.start("up") for _ in range(2)]
    lines = {process.communicate(timeout=WAIT)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(lines) == 1
    line = lines.pop()
    assert line.startswith("export KQ_BOOTSTRAP=127.0.0.1:") and line.count("\n") == 1
    assert len(machine.marked.alive("kafka.Kafka")) == 1
    assert machine.printed("up") == line
    refused = machine.kq("up", "--brokers", "3")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "1 broker runs already" in refused.stderr
    down = machine.kq("down", KQ_BOOTSTRAP=line.split("=", 1)[1].strip())
    assert (down.stdout, down.stderr) == ("Kafka has ended.\n", "KQ_BOOTSTRAP still names it: unset KQ_BOOTSTRAP\n")
    assert machine.left_now() == [], "down returns when all of it is gone"
    assert machine.printed("down") == "Nothing runs.\n"
    assert sorted(path.name for path in (machine.home / "state").iterdir()) == ["up.lock", "up.log"]


def test_the_line_is_for_eval_and_outlives_the_shell_that_asked(busy: Machine, bootstrap: str) -> None:
    script = f'eval "$({sys.executable} -m kqlib up 2>/dev/null)"; echo "$KQ_BOOTSTRAP"'
    ran = subprocess.run(["sh", "-c", script], env=busy.env(), cwd=REPO, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{bootstrap}\n"


def test_a_dead_broker_is_seen_and_a_killed_holder_takes_everything_along(
    machine: Machine, within: Callable[..., float]
) -> None:
    machine.printed("up", "--brokers", "2")
    machine.marked.alive("broker-2/server.properties")[0].kill()
    seen: dict[str, Any] = {}

    def down() -> bool:
        ran = machine.kq("status", "--json")
        seen.update(json.loads(ran.stdout) if ran.returncode == 0 else {})
        return seen.get("brokers") == {"1": "up", "2": "down"}

    within(40, down, "status never saw that broker 2 is gone")
    assert (seen["source"], seen["exported"], seen["other"]) == ("kq up", False, None)
    os.kill(json.loads((machine.home / "state/up.json").read_text())["pid"], signal.SIGKILL)
    assert machine.left(3) == []
    status = machine.kq("status")
    assert (status.returncode, status.stdout[:13]) == (1, "Nothing runs.")
    assert not (machine.home / "state/up.json").exists()


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


def test_a_cluster_ends_with_the_directory_that_says_where_it_is(machine: Machine) -> None:
    machine.printed("up")
    shutil.rmtree(machine.home / "state")
    assert machine.left(8) == []


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


def test_a_plan_is_compared_applied_and_then_as_planned(busy: Machine, bootstrap: str, plan: str) -> None:
    before = busy.kq("topics", "diff", plan)
    assert (before.returncode, before.stderr) == (1, "")
    planned = ["+ football:", "+ football.dead:", "+ scores:", "+ kq.queues:"]
    assert sorted(" ".join(line.split()[:2]) for line in before.stdout.splitlines()) == sorted(planned)
    applied = busy.printed("topics", "apply", plan)
    assert applied == f"{before.stdout}Done: every topic is as planned.\n"
    after = busy.kq("topics", "diff", plan)
    assert (after.returncode, after.stdout.count(": as planned")) == (0, 4)
    assert topics(bootstrap) >= {"football", "football.dead", "scores", "kq.queues"}


def test_what_can_never_be_applied_differs_and_changes_nothing(busy: Machine, bootstrap: str, plan: str) -> None:
    busy.printed("topics", "apply", plan)
    Path(plan).write_text(PLAN.replace("partitions = 3", "partitions = 1"))
    assert busy.kq("topics", "diff", plan).returncode == 1
    Path(plan).write_text(Path(plan).read_text() + "\n[other]\n")
    refused = busy.kq("topics", "apply", plan)
    assert refused.returncode == 2
    assert refused.stderr.startswith("kq: 'scores' has 3 partitions and the plan says 1.")
    assert "other" not in topics(bootstrap)
    Path(plan).write_text(PLAN.replace("compact = true", "compact = true\nreplicas = 2"))
    differs = busy.kq("topics", "diff", plan)
    assert differs.returncode == 1
    assert "≠ scores" in differs.stdout
    applied = busy.printed("topics", "apply", plan)
    assert applied == f"{differs.stdout}Done: every topic is as planned, but for the lines marked ≠.\n"


def test_kafkas_own_tools_read_what_is_typed_and_end_with_their_own_code(busy: Machine) -> None:
    assert busy.printed("kafka", "kafka-topics.sh", "--create", "--topic", "typed") == "Created topic typed.\n"
    busy.printed("kafka", "console-producer", "--topic", "typed", typed="kick-off\ngoal\n")
    read = ["--topic", "typed", "--from-beginning", "--max-messages", "2", "--timeout-ms", f"{WAIT * 1000:.0f}"]
    assert busy.printed("kafka", "console-consumer", *read) == "kick-off\ngoal\n"
    assert busy.kq("kafka", "topics", "--describe", "--topic", "nobody").returncode == 1


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


def test_doctor_finds_this_machine_well_and_leaves_nothing(machine: Machine) -> None:
    ran = machine.kq("doctor")
    signs = {line[2:13].strip(): line[0] for line in ran.stdout.splitlines()}
    assert signs == {check.name: "✓" for check in CHECKS}
    assert (ran.returncode, ran.stderr) == (0, "")
    assert machine.left(3) == []


def test_doctor_tries_one_s_own_cluster_and_takes_its_topic_away(
    busy: Machine, bootstrap: str, within: Callable[..., float]
) -> None:
    code = "from kqlib.workshop.doctor import machine; print(repr(machine.round_trip()))"
    env = busy.env(KQ_BOOTSTRAP=bootstrap)
    ran = subprocess.run([sys.executable, "-c", code], env=env, cwd=REPO, capture_output=True, text=True, check=True)
    assert f"ok=True, what='a record went into a real Kafka and came out ({bootstrap})'" in ran.stdout
    within(
        20, lambda: "kq-doctor" not in str(topics(bootstrap))
    )  # the broker hears of it after the controller's answer


def ask(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT) as answer:
        return json.load(answer) if "json" in answer.headers["Content-Type"] else answer.url


@pytest.mark.skipif(not (REPO / "notebooks/00-start-here.ipynb").exists(), reason="needs the first notebook")
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
