"""The whole run on every Python that kqlib supports, and with the oldest and the newest Kafka client that it allows.

In:  the interpreters on PATH and those of pyenv. Out: a unit each, in an environment of its own under build/nightly.
`make venv` fills an environment over the network. The run itself has no network, if the system allows that (`unshare`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.nightly.run import PLACE, ROOT, Done, Night, Unit

PYTHONS = ("3.11", "3.12", "3.13")
CLIENTS = ("oldest client", "newest client")
ALONE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]  # a network of one's own: loopback only


def candidates(version: str) -> Iterator[Path]:
    """Where an interpreter of this version may be: PATH, then pyenv's, the newest first."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(folder, f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = [path for path in pyenv.glob(f"{version}.*") if re.fullmatch(r"[\d.]+", path.name)]
    yield from (path / "bin" / "python" for path in sorted(found, key=lambda path: Version(path.name), reverse=True))


def interpreter(version: str) -> Path | None:
    """An interpreter that starts, is of this version and can make environments; None if there is none."""
    ask = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for path in candidates(version):
        if path.exists():
            found = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
            if found.stdout.strip() == version:
                return path
    return None


@cache
def alone() -> list[str]:
    """What stands before a command that is to have no network; nothing where the system does not allow it."""
    if shutil.which(ALONE[0]) is None:
        return []
    return [] if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode else ALONE


def client() -> Requirement:
    """Which versions of confluent-kafka kqlib allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(need for need in map(Requirement, project["dependencies"]) if need.name == "confluent-kafka")


def asked(name: str) -> str:
    """The client that a unit is about, in pip's words."""
    need = client()
    oldest = min(Version(each.version) for each in need.specifier if each.operator in (">=", "=="))
    return f"{need.name}=={oldest}" if name == "oldest client" else f"{need.name}{need.specifier}"


def locked() -> Version:
    """The client in requirements.lock."""
    found = re.search(
        r"^confluent-kafka(?:\[\w+\])?==([^\s;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    assert found is not None
    return Version(found[1])


def made(night: Night, name: str, python: Path) -> tuple[Path, Done]:
    """An environment of this Python, made or brought up to date by `make venv`; and how that went."""
    place = PLACE / f"python-{name.replace(' ', '-')}"
    command = ["make", "venv", f"VENV={place.relative_to(ROOT)}", f"PYTHON={python}"]
    return place, night.call(f"{name} set-up", command)


def whole(night: Night, name: str, place: Path) -> Done:
    """The whole run in this environment."""
    path = f"{place / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    done = night.call(name, [*alone(), str(place / "bin" / "python"), "-m", "tests"], PATH=path)
    words = "without a network" if alone() else "with a network"
    return Done(done.verdict, f"{words}; {done.words}" if done.words else words)


def on(night: Night, version: str) -> Done:
    """The whole run on a Python."""
    python = interpreter(version)
    if python is None:
        return Done("not run", f"there is no Python {version} on PATH or in pyenv")
    place, done = made(night, version, python)
    return whole(night, version, place) if done.verdict == "passed" else done


def client_of(python: Path) -> Version:
    """The client that an environment has."""
    ask = "from importlib.metadata import version; print(version('confluent-kafka'))"
    return Version(subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip())


def with_client(night: Night, name: str) -> Done:
    """The whole run with another client, unless it is the one that every run has."""
    place, done = made(night, name, Path(sys.executable))
    if done.verdict == "passed":
        install = [str(place / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--upgrade", asked(name)]
        done = night.call(f"{name} install", install)
    if done.verdict != "passed":
        return done
    has = client_of(place / "bin" / "python")
    if has == locked():
        return Done("not run", f"it is {has}, the client of requirements.lock: the other runs have it")
    ran = whole(night, name, place)
    return Done(ran.verdict, f"{has}, {ran.words}")


def units(night: Night) -> list[Unit]:
    """A unit for each Python and each client."""
    runs = [Unit(version, lambda version=version: on(night, version)) for version in PYTHONS]
    return runs + [Unit(name, lambda name=name: with_client(night, name)) for name in CLIENTS]
