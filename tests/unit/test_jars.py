"""Every jar is the one that jars.lock names, or it is not used; a fetch is whole, or it is not there.

The repository is an HTTP server on loopback; jgo is the real one.
"""

import datetime
import gc
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kqlib.errors import JarMismatch, JarsMissing
from kqlib.runtime import jars
from kqlib.runtime.jars import Jar
from tests.patience import WAIT

# jgo does not close a response that broke off: its socket is closed when the garbage collector finds it, with a ResourceWarning.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NAMES = [f"jar{number}" for number in range(5)]
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId>
<version>1.0</version><dependencies>{needs}</dependencies></project>"""
NEED = "<dependency><groupId>org.example</groupId><artifactId>{}</artifactId><version>1.0</version></dependency>"


def content(name: str) -> bytes:
    return f"the bytes of {name}".encode() * 100


class Repository(BaseHTTPRequestHandler):
    """A repository's HTTP side: /org/example/NAME/VERSION/FILE."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        server = self.server
        if name.endswith(".jar"):
            server.asked.append(name)
        if name.endswith(".jar") and len(server.asked) > server.stalls_after:
            self.stall()
        elif name in server.holds:
            self.send(server.holds[name], server.cut.get(name))
        else:
            self.send_error(404)

    def send(self, data: bytes, cut: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:cut])

    def stall(self) -> None:
        """A large jar on a slow line: its first part, then a little at a time until the client goes."""
        self.send_response(200)
        self.send_header("Content-Length", str(10**8))
        self.end_headers()
        self.wfile.write(b"x" * 100_000)
        self.server.stalled.set()
        if self.server.on_stall:
            self.server.on_stall.pop()()
        with suppress(OSError):
            while True:
                self.wfile.write(b"x" * 10_000)
                time.sleep(0.02)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """The repository, what it holds and what it was asked for."""

    daemon_threads = True
    request_queue_size = 20

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Repository)
        self.holds = {f"{name}-1.0.jar": content(name) for name in NAMES}
        needs = "".join(map(NEED.format, NAMES[1:]))
        self.holds |= {
            f"{name}-1.0.pom": POM.format(name=name, needs=needs if name == "jar0" else "").encode() for name in NAMES
        }
        self.asked: list[str] = []
        self.cut: dict[str, int] = {}  # after how many bytes the connection of this file breaks
        self.stalls_after = 10**6
        self.stalled = threading.Event()
        self.on_stall: list = []  # the first jar that stalls calls it

    def handle_error(self, *_: object) -> None:
        pass

    @property
    def remotes(self) -> dict[str, str]:
        return {"here": f"http://127.0.0.1:{self.server_port}"}


@pytest.fixture
def repository(monkeypatch):
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setattr(jars, "REPOSITORIES", server.remotes)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield server
        server.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # here, and not in the middle of another module's test


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
    assert set(sets) == {"broker", "spark", "streams"}
    for kind, table in sets.items():
        assert set(table) == {"transitive", "ask", "jars"}
        assert isinstance(table["transitive"], bool)
        locked = jars.locked(kind)
        assert all(re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", jar.coordinates) for jar in locked)
        assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in locked)
        assert set(table["ask"]) <= {jar.coordinates for jar in locked}
        assert locked == sorted(locked)  # so that a new lock shows what changed and nothing else


def test_the_broker_runs_one_version_of_kafka_and_spark_brings_its_own():
    kafka = {jar.coordinates.split(":")[2] for jar in jars.locked("broker") if "org.apache.kafka:" in jar.coordinates}
    assert len(kafka) == 1
    assert {f"org.apache.kafka:kafka-{name}:{kafka.copy().pop()}" for name in ("clients", "streams")} <= {
        jar.coordinates for jar in jars.locked("streams")
    }
    assert not any("spark" in jar.coordinates for jar in jars.locked("broker"))
    assert {jar.coordinates for jar in jars.locked("spark")} == set(
        tomllib.loads(jars.LOCK.read_text())["spark"]["ask"]
    )


def test_an_empty_cache_is_filled_and_then_nothing_is_fetched_again(repository, store, lock, capsys):
    assert jars.fetch("broker", lock) == [store / name for name in ALL]
    assert "fetching broker jars, once" in capsys.readouterr().err
    anew()
    assert jars.fetch("broker", lock) == [store / name for name in ALL]
    assert sorted(repository.asked) == ALL
    assert sorted(path.name for path in store.iterdir()) == sorted([*ALL, "fetching.lock"])
    assert capsys.readouterr().err == ""


def test_a_spoilt_file_in_the_cache_is_never_used_and_the_error_names_it(repository, store, lock):
    jars.fetch("broker", lock)
    bad = store / "jar2-1.0.jar"
    bad.write_bytes(content("jar2").replace(b"bytes", b"bytez", 1))
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


def test_a_run_notes_what_it_has_read_and_believes_no_note_of_a_file_that_has_changed(monkeypatch, tmp_path):
    file, run = tmp_path / "one.jar", tmp_path / "run"
    run.mkdir()
    file.write_bytes(b"whole")
    whole, spoilt = (sha256(each).hexdigest() for each in (b"whole", b"spoil"))
    assert jars.sha256(file) == whole
    monkeypatch.setenv("KQ_HASHES", str(run))
    assert jars.sha256(file) == whole and not [*run.iterdir()]  # it was written a moment ago
    monkeypatch.setattr(jars, "SETTLED", -1)
    assert jars.sha256(file) == whole
    (note,) = run.iterdir()
    note.write_text("noted")
    assert jars.sha256(file) == "noted"
    file.write_bytes(b"spoil")
    os.utime(file, ns=(1, 1))  # the clock of its changes may not have moved
    assert jars.sha256(file) == spoilt
    shutil.rmtree(run)
    assert jars.sha256(file) == spoilt
    monkeypatch.delenv("KQ_HASHES")
    assert jars.sha256(file) == spoilt


def test_a_fetched_file_that_is_not_the_locked_one_never_reaches_the_cache(repository, store, lock):
    repository.holds["jar2-1.0.jar"] = content("jar2")[:-1]
    for _ in range(2):
        with pytest.raises(JarMismatch, match=r"jar2-1\.0\.jar"):
            jars.fetch("broker", lock)
        assert in_store(store) == [name for name in ALL if name != "jar2-1.0.jar"]
        assert not (store / "fetching").exists()  # so that the next try does not find it there
    repository.holds["jar2-1.0.jar"] = content("jar2")
    assert jars.fetch("broker", lock)
    assert in_store(store) == ALL


def test_an_interrupted_fetch_ends_soon_keeps_whole_jars_only_and_the_next_one_completes_it(repository, store, lock):
    repository.stalls_after = 3
    repository.on_stall = [lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)]  # Ctrl-C
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        jars.fetch("broker", lock)
    assert time.monotonic() - began < 30  # the stalled jar alone would take minutes
    assert all((store / name).read_bytes() == repository.holds[name] for name in in_store(store))
    assert len(in_store(store)) <= 3
    repository.stalls_after = 10**6
    assert jars.fetch("broker", lock)
    assert {name: (store / name).read_bytes() for name in ALL} == {name: repository.holds[name] for name in ALL}
    assert not (store / "fetching").exists()


def test_a_fetch_does_not_write_where_the_threads_of_an_interrupted_one_may_still_write(store, lock, monkeypatch):
    places = []
    monkeypatch.setattr(jars, "_download", lambda _, work, *rest: places.append(work) or [])
    for _ in range(2):
        jars._complete("broker", jars.locked("broker", lock), 5, store)
    assert len(set(places)) == 2


def test_what_cannot_be_fetched_is_counted_and_explained_and_what_came_is_kept(repository, store, lock):
    del repository.holds[ALL[0]]
    with pytest.raises(JarsMissing) as caught:
        jars.fetch("broker", lock)
    assert str(caught.value) == (
        f"1 of 5 jars are not in {store} and could not be fetched: the repository does not have them, or refused. "
        "Nothing half-fetched is used; run it again with a network."
    )
    assert in_store(store) == ALL[1:]
    repository.holds[ALL[0]] = content("jar0")
    repository.asked.clear()
    jars.fetch("broker", lock)
    assert repository.asked == ALL[:1]


def test_a_connection_that_breaks_is_the_reason_that_is_reported(repository, store, lock):
    del repository.holds["jar1-1.0.jar"]
    repository.cut = {"jar2-1.0.jar": 50}
    with pytest.raises(JarsMissing, match=r"2 of 5 jars .* there is no connection to the repository, or it broke"):
        jars.fetch("broker", lock)
    assert in_store(store) == [ALL[0], *ALL[3:]]


def test_without_a_network_the_reason_names_no_host(monkeypatch, repository, store, lock):
    monkeypatch.setattr(jars, "REPOSITORIES", {"nowhere": "http://127.0.0.1:9"})
    with pytest.raises(JarsMissing, match=r"5 of 5 jars .* there is no connection") as caught:
        jars.fetch("broker", lock)
    assert "127.0.0.1" not in str(caught.value)


def test_a_tls_certificate_that_python_trusts_does_not_stop_the_fetch(monkeypatch, repository, store, lock, tmp_path):
    certificate = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    repository.socket = context.wrap_socket(repository.socket, server_side=True, do_handshake_on_connect=False)
    monkeypatch.setattr(jars, "REPOSITORIES", {"company": f"https://127.0.0.1:{repository.server_port}"})
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(JarsMissing, match="the repository's TLS certificate is not trusted"):
        jars.fetch("broker", lock)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert jars.fetch("broker", lock)
    assert "REQUESTS_CA_BUNDLE" not in jars.os.environ
    anew()
    (store / ALL[0]).unlink()
    other = own_certificate(tmp_path, "other")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other))  # the reader's own choice stays
    with pytest.raises(JarsMissing, match="not trusted"):
        jars.fetch("broker", lock)
    assert jars.os.environ["REQUESTS_CA_BUNDLE"] == str(other)


def own_certificate(place: Path, name: str = "company") -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key, in one file."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    called = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begins, ends = now - datetime.timedelta(days=1), now + datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(called, called, key.public_key(), 7, begins, ends)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, SHA256())
    )
    file = place / f"{name}.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + made.public_bytes(Encoding.PEM))
    return file


PROCESS = """
import pathlib, sys
from kqlib.runtime import jars
jars.REPOSITORIES = {"here": sys.argv[2]}
sys.stdin.readline()
print(len(jars.fetch("broker", pathlib.Path(sys.argv[1]))))
"""


def process(lock: Path, repository: Server) -> subprocess.Popen:
    command = [sys.executable, "-c", PROCESS, lock, repository.remotes["here"]]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def test_of_two_processes_at_once_one_fetches_and_both_have_every_jar(repository, store, lock):
    children = [process(lock, repository) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda child: child.communicate("go\n", timeout=WAIT)[0], children)) == ["5\n"] * 2
    assert sorted(repository.asked) == ALL
    assert in_store(store) == ALL


def test_a_process_that_dies_in_a_fetch_leaves_the_way_free_for_the_next(repository, store, lock):
    repository.stalls_after = 3
    with process(lock, repository) as dies:
        dies.stdin.write("go\n")
        dies.stdin.flush()
        assert repository.stalled.wait(WAIT)
        dies.kill()
    assert len(in_store(store)) <= 3
    assert (store / "fetching").exists()
    repository.stalls_after = 10**6
    assert jars.fetch("broker", lock)
    assert in_store(store) == ALL
    assert not (store / "fetching").exists()


def test_the_lock_is_remade_from_what_is_asked_for_and_what_that_needs(monkeypatch, repository, lock):
    lock.write_text('[broker]\ntransitive = true\nask = ["org.example:jar0:1.0"]\njars = []\n')
    jars.remake(lock)
    first = lock.read_text()
    assert [jar.file for jar in jars.locked("broker", lock)] == ALL
    assert jars.locked("broker", lock)[0] == Jar("org.example:jar0:1.0", sha256(content("jar0")).hexdigest())
    jars.remake(lock)
    assert lock.read_text() == first
    del repository.holds["jar0-1.0.jar"]
    with pytest.raises(JarsMissing, match=r"1 of 5 jars are not in the repository and could not be fetched: the repo"):
        jars.remake(lock)
    monkeypatch.setattr(jars, "REPOSITORIES", {"nowhere": "http://127.0.0.1:9"})
    with pytest.raises(JarsMissing, match="there is no connection"):
        jars.remake(lock)
    assert lock.read_text() == first


def test_a_set_that_is_not_transitive_is_locked_alone(repository, lock):
    lock.write_text('[spark]\ntransitive = false\nask = ["org.example:jar0:1.0"]\njars = []\n')
    jars.remake(lock)
    assert [jar.file for jar in jars.locked("spark", lock)] == ALL[:1]
