"""The archives of Java's classes are code: one that is not what was made is not given to a JVM, and is made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kqlib.runtime import archive
from kqlib.workshop.cluster import node

JARS = "/jars/one.jar"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where an archive of this class path is, made by a JVM that only writes two files."""
    monkeypatch.setenv("KQ_CACHE", str(tmp_path))
    monkeypatch.setattr(archive.subprocess, "run", dump)
    archive.make(JARS, record)
    return archive.home_of(JARS)


def dump(command: list[str], **_: object) -> object:
    """Java's own classes."""
    Path(command[-1].partition("=")[2]).write_bytes(b"java")
    return type("Done", (), {"returncode": 0})


def record(options: list[str], place: Path) -> None:
    """Kafka's."""
    Path(options[1].partition("=")[2]).write_bytes(b"kafka")


def damaged(file: Path) -> None:
    file.write_bytes(b"x" + file.read_bytes()[1:])


HURT: dict[str, Callable[[Path], object]] = {
    "the archive is another": lambda place: damaged(place / "kafka.jsa"),
    "that of Java's own classes is another": lambda place: damaged(place / "java.jsa"),
    "that of Java's own classes is gone": lambda place: (place / "java.jsa").unlink(),
    "nobody has noted what it is": lambda place: (place / "kafka.json").unlink(),
    "the note is of something else": lambda place: (place / "kafka.json").write_text('{"java.jsa": ""}'),
    "the note is cut": lambda place: (place / "kafka.json").write_text('{"java'),
}


def test_an_archive_is_used_as_it_was_made(place: Path) -> None:
    assert archive.options(JARS) == [f"-XX:SharedArchiveFile={place / 'kafka.jsa'}", archive.QUIET]


@pytest.mark.parametrize("how", HURT)
def test_java_starts_without_an_archive_that_is_not_what_was_made_until_it_is_made_again(place: Path, how: str) -> None:
    assert archive.options(JARS)  # it has been read once in this process
    HURT[how](place)
    assert archive.options(JARS) == []
    archive.make(JARS, record)
    assert archive.options(JARS)
    assert ((place / "java.jsa").read_bytes(), (place / "kafka.jsa").read_bytes()) == (b"java", b"kafka")


def test_an_archive_that_is_as_it_was_made_is_not_made_again(place: Path) -> None:
    archive.make(JARS, lambda *_: pytest.fail("it is there"))


def test_a_broker_is_started_with_what_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_intact", lambda place, whose: False)
    one = node.Node(1, 1, 2, Path("/nowhere"))
    assert not [word for word in node.run_command(one) if "SharedArchiveFile" in word]
    monkeypatch.setattr(archive, "_intact", lambda place, whose: True)
    assert [word for word in node.run_command(one) if "SharedArchiveFile" in word]


def test_java_is_given_an_archive_by_one_module_only_for_brokers_for_tools_and_for_spark() -> None:
    """So none of them gets one that was not checked."""
    kqlib = Path(archive.__file__).parents[1]
    naming = [path for path in kqlib.rglob("*.py") if "SharedArchiveFile" in path.read_text(encoding="utf-8")]
    assert naming == [Path(archive.__file__)]
