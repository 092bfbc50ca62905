"""Every jar is the one that jars.lock names, or it is not used; a fetch is whole, or it is not there. Ivy is played by a fake."""

import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from kqlib.errors import JarMismatch, JarsMissing
from kqlib.runtime import ivy, jars
from kqlib.runtime.jars import Jar

NAMES = [f"jar{number}" for number in range(5)]


def content(name: str) -> bytes:
    return f"the bytes of {name}".encode() * 100


class Repository:
    """Ivy and the world behind it."""

    def __init__(self) -> None:
        self.holds = {f"{name}-1.0.jar": content(name) for name in NAMES}
        self.asked: list[list[str]] = []
        self.stops_after = len(NAMES)
        self.said = ""

    def __call__(self, coordinates, work, *, transitive, fetched=lambda _: None) -> str:
        self.asked.append(list(coordinates))
        (work / "lib").mkdir(parents=True, exist_ok=True)
        for number, coordinate in enumerate(self.asked[-1]):
            name = "{}-{}.jar".format(*coordinate.split(":")[1:])
            if number == self.stops_after:
                (work / "lib" / name).write_bytes(b"half of i")
                raise KeyboardInterrupt
            if name in self.holds and not (work / "lib" / name).exists():  # Ivy too leaves alone what is there
                (work / "lib" / name).write_bytes(self.holds[name])
                fetched(number + 1)
        return self.said


@pytest.fixture
def repository(monkeypatch):
    made = Repository()
    monkeypatch.setattr(ivy, "retrieve", made)
    return made


@pytest.fixture
def store(monkeypatch, tmp_path):
    """An empty cache of this test's own."""
    monkeypatch.setenv("KQ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jars"


@pytest.fixture
def lock(tmp_path):
    """A lock with one set of five jars."""
    lines = [f"org.example:{name}:1.0 {sha256(content(name)).hexdigest()}" for name in NAMES]
    file = tmp_path / "jars.lock"
    file.write_text(f'[broker]\ntransitive = true\nask = ["org.example:jar0:1.0"]\njars = {lines!r}\n')
    return file


def anew() -> None:
    """Forget what this process has checked, as another process does not know it."""
    jars._checked.cache_clear()


def in_store(store: Path) -> list[str]:
    return sorted(file.name for file in store.glob("*.jar"))


ALL = [f"{name}-1.0.jar" for name in NAMES]


def test_the_lock_is_well_formed():
    sets = tomllib.loads(jars.LOCK.read_text())
    assert set(sets) == {"broker", "spark"}
    for kind, table in sets.items():
        assert set(table) == {"transitive", "ask", "jars"}
        assert isinstance(table["transitive"], bool)
        locked = jars.locked(kind)
        assert all(re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", jar.coordinates) for jar in locked)
        assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in locked)
        assert set(table["ask"]) <= {jar.coordinates for jar in locked}
        assert locked == sorted(locked)  # so that a new lock shows what changed and nothing else


def test_no_two_jars_of_the_lock_share_a_file():
    every = {jar for kind in ("broker", "spark") for jar in jars.locked(kind)}
    files = [jar.file for jar in every]
    assert len(files) == len(set(files)) > 90


def test_the_broker_runs_one_version_of_kafka_and_spark_brings_its_own():
    kafka = {jar.coordinates.split(":")[2] for jar in jars.locked("broker") if "org.apache.kafka:" in jar.coordinates}
    assert len(kafka) == 1
    assert not any("spark" in jar.coordinates for jar in jars.locked("broker"))
    assert {jar.coordinates for jar in jars.locked("spark")} == set(
        tomllib.loads(jars.LOCK.read_text())["spark"]["ask"]
    )


def test_an_empty_cache_is_filled_and_then_nothing_is_fetched_again(repository, store, lock, capsys):
    assert jars.fetch("broker", lock) == [store / name for name in ALL]
    assert "fetching broker jars, once" in capsys.readouterr().err
    anew()
    assert jars.fetch("broker", lock) == [store / name for name in ALL]
    assert len(repository.asked) == 1
    assert sorted(path.name for path in store.iterdir()) == sorted([*ALL, "fetching.lock"])
    assert capsys.readouterr().err == ""


def test_only_what_is_missing_is_fetched(repository, store, lock):
    jars.fetch("broker", lock)
    (store / "jar3-1.0.jar").unlink()
    anew()
    jars.fetch("broker", lock)
    assert repository.asked[1] == ["org.example:jar3:1.0"]
    assert in_store(store) == ALL


SPOILT = {
    "one byte flipped": lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
    "cut short": lambda data: data[:-1],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
}
SECOND = (
    "import pathlib, sys; from kqlib.runtime import jars; from kqlib.errors import JarMismatch\n"
    "try: print(jars.fetch('broker', pathlib.Path(sys.argv[1])))\n"
    "except JarMismatch as error: print(error)"
)


@pytest.mark.parametrize("kind", SPOILT)
def test_a_spoilt_file_in_the_cache_is_never_used_and_the_error_names_it(repository, store, lock, kind):
    jars.fetch("broker", lock)
    bad = store / "jar2-1.0.jar"
    bad.write_bytes(SPOILT[kind](content("jar2")))
    for _ in range(2):
        anew()
        with pytest.raises(JarMismatch) as caught:
            jars.fetch("broker", lock)
        expected, found = sha256(content("jar2")).hexdigest(), sha256(bad.read_bytes()).hexdigest()
        assert (caught.value.file, caught.value.expected, caught.value.found) == (str(bad), expected, found)
        assert all(word in str(caught.value) for word in (str(bad), expected, found, "Delete it"))
    bad.unlink()  # as it says
    assert jars.fetch("broker", lock)
    assert bad.read_bytes() == content("jar2")


def test_another_process_does_not_use_a_spoilt_file_either(repository, store, lock):
    jars.fetch("broker", lock)
    (store / "jar2-1.0.jar").write_bytes(b"spoilt")
    said = subprocess.run([sys.executable, "-c", SECOND, lock], capture_output=True, text=True, check=True).stdout
    assert "jar2-1.0.jar is not the file that jars.lock names" in said


@pytest.mark.parametrize("kind", SPOILT)
def test_a_fetched_file_that_is_not_the_locked_one_never_reaches_the_cache(repository, store, lock, kind):
    repository.holds["jar2-1.0.jar"] = SPOILT[kind](content("jar2"))
    for _ in range(2):
        with pytest.raises(JarMismatch, match=r"jar2-1\.0\.jar"):
            jars.fetch("broker", lock)
        assert "jar2-1.0.jar" not in in_store(store)
        assert not (store / "fetching").exists()  # so that the next try does not find it there
    repository.holds["jar2-1.0.jar"] = content("jar2")
    assert jars.fetch("broker", lock)
    assert in_store(store) == ALL


@pytest.mark.parametrize("after", range(5))
def test_an_interrupted_fetch_leaves_nothing_half_done_and_the_next_one_completes_it(repository, store, lock, after):
    repository.stops_after = after
    with pytest.raises(KeyboardInterrupt):
        jars.fetch("broker", lock)
    assert in_store(store) == []
    repository.stops_after = len(NAMES)
    assert jars.fetch("broker", lock)
    assert {name: (store / name).read_bytes() for name in ALL} == repository.holds
    assert not (store / "fetching").exists()


@pytest.mark.parametrize("lacks", [1, 5])
def test_what_cannot_be_fetched_is_counted_and_explained_and_what_came_is_kept(repository, store, lock, lacks):
    for name in ALL[:lacks]:
        del repository.holds[name]
    repository.said = (
        "\t\tmodule not found: x\n\tServer access error at url https://x/y.jar (java.net.UnknownHostException: x)\n"
    )
    with pytest.raises(JarsMissing) as caught:
        jars.fetch("broker", lock)
    assert str(caught.value).startswith(f"{lacks} of 5 jars are not in {store} and could not be fetched: Server access")
    assert "UnknownHostException" in str(caught.value)
    assert in_store(store) == ALL[lacks:]
    repository.holds |= {name: content(name.removesuffix("-1.0.jar")) for name in ALL}
    jars.fetch("broker", lock)
    assert repository.asked[1] == [f"org.example:{name}:1.0" for name in NAMES[:lacks]]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "WARNINGS\n\t\tmodule not found: a#b;1\n\t:: a#b;1: not found\n"
            "\tServer access error at url https://h/b.jar (java.net.ConnectException: Connection refused)\n",
            "Server access error at url https://h/b.jar (java.net.ConnectException: Connection refused)",
        ),
        ("\tmodule not found: a#b;1\n", "module not found: a#b;1"),
        (
            "SERVER ERROR: x\n\tproblem: java.net.SocketTimeoutException: Read timed out",
            "problem: java.net.SocketTimeoutException: Read timed out",
        ),
        (":: loading settings ::\n", "it was not in the repository, or there was no network"),
        ("", "it was not in the repository, or there was no network"),
    ],
)
def test_the_reason_is_the_cause_when_ivy_tells_it(said, reason):
    assert jars._reason(said) == reason


PROCESS = """
import os, pathlib, sys, time
from kqlib.runtime import ivy, jars
def retrieve(coordinates, work, *, transitive, fetched):
    with open(sys.argv[2], "a") as count:
        print("fetch", file=count)
    (work / "lib").mkdir(parents=True)
    for coordinate in coordinates:
        name = coordinate.split(":")[1]
        (work / "lib" / f"{name}-1.0.jar").write_bytes(f"the bytes of {name}".encode() * 100)
        time.sleep(0.05)
        if len(sys.argv) > 3 and name == "jar3":
            os._exit(9)
    return ""
ivy.retrieve = retrieve
sys.stdin.readline()
print(len(jars.fetch("broker", pathlib.Path(sys.argv[1]))))
"""


def process(lock: Path, count: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PROCESS, lock, count, *more]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def test_of_two_processes_at_once_one_fetches_and_both_have_every_jar(store, lock, tmp_path):
    children = [process(lock, tmp_path / "count") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda child: child.communicate("go\n", timeout=60)[0], children)) == ["5\n"] * 2
    assert (tmp_path / "count").read_text() == "fetch\n"
    assert in_store(store) == ALL


def test_a_process_that_dies_in_a_fetch_leaves_the_way_free_for_the_next(repository, store, lock, tmp_path):
    dies = process(lock, tmp_path / "count", "dies")
    dies.communicate("go\n", timeout=60)
    assert dies.returncode == 9
    assert in_store(store) == []
    assert jars.fetch("broker", lock)
    assert in_store(store) == ALL


def test_the_lock_is_remade_from_what_came(monkeypatch, tmp_path, lock):
    def resolve(coordinates, work, *, transitive, fetched=None):
        (work / "lib").mkdir(parents=True)
        lines = []
        for name in reversed(NAMES if transitive else NAMES[:1]):
            (work / "lib" / f"{name}-1.0.jar").write_bytes(content(name))
            lines.append(f"\t[SUCCESSFUL ] org.example#{name};1.0!{name}.jar (12ms)")
        return "\n".join(lines)

    monkeypatch.setattr(ivy, "retrieve", resolve)
    jars.remake(lock)
    first = lock.read_text()
    assert [jar.file for jar in jars.locked("broker", lock)] == ALL
    assert jars.locked("broker", lock)[0] == Jar("org.example:jar0:1.0", sha256(content("jar0")).hexdigest())
    jars.remake(lock)
    assert lock.read_text() == first
    monkeypatch.setattr(ivy, "retrieve", lambda *_, **__: "\tmodule not found: org.example#jar0;1.0")
    with pytest.raises(JarsMissing, match="1 of 1 jars are not in the repository and could not be fetched: module not"):
        jars.remake(lock)
    assert lock.read_text() == first
