"""docs/how-to/kafka-connect.md: its settings are read out of it. Connect knows each of them, and does with them what the page says.

By night Connect runs on a real Kafka with them, and is killed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from kqlib.kafka.reading import bounds, committed, read
from kqlib.runtime import jars
from kqlib.workshop import snapshot
from kqlib.workshop.children import Command
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.cluster.node import free_ports
from tests.patience import WAIT, until
from tests.promises.play import create, put, values

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "kafka-connect.md"
BROKER, REST, PLACE = "127.0.0.1:9092", "127.0.0.1:8083", "/srv/connect"  # what a reader replaces
LINES = [
    f"goal {number}" for number in range(60_500)
]  # 31 reads of the source; the last one is not full, so that it reads to the end


def files() -> dict[str, str]:
    """The files that the page shows. The paragraph above a file names it first."""
    found = {}
    for before, block in pairwise(PAGE.read_text(encoding="utf-8").split("\n\n")):
        if shown := re.fullmatch(r"```(?:properties|json)\n(.*\n)```", block, re.DOTALL):
            name = re.search(r"`(\w+\.(?:properties|json))`", before)
            assert name, block
            found[name[1]] = shown[1]
    common = found["worker.properties"].splitlines(keepends=True)
    assert common[-1].startswith("offset.storage.file.filename="), "the page says: without its last line"
    found["distributed.properties"] = "".join(common[:-1]) + found["distributed.properties"]
    return found


def settings() -> Iterator[tuple[str, str]]:
    """Every setting of the page, with its value."""
    for name, text in files().items():
        if name.endswith(".json"):
            yield from json.loads(text).items()
        else:
            yield from re.findall(r"^(.+?)=(.*)$", text, re.MULTILINE)


def test_connect_knows_every_setting_and_class_of_the_page() -> None:
    classes: dict[str, bytes] = {}
    for jar in jars.fetch("broker"):
        if jar.name.startswith(("connect-", "kafka-clients-")):
            with ZipFile(jar) as opened:
                classes |= {name: opened.read(name) for name in opened.namelist() if name.endswith(".class")}
    code = b"".join(classes.values())

    def known(key: str, value: str) -> bool:
        word = re.sub(r"^(transforms\.\w+|(key|value)\.converter|producer\.override)\.", "", key).encode()
        there = b"\x01" + len(word).to_bytes(2, "big") + word in code  # a constant of a Java class
        return there and (not value.startswith("org.") or value.replace(".", "/") + ".class" in classes)

    assert {"worker.properties", "source.properties", "sink.properties", "once.json"} < files().keys()
    assert [key for key, value in settings() if not known(key, value)] == []


class Connect:
    """A directory with the files of the page, for this cluster; workers of it."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster, self.place, self.rest = cluster, place, f"127.0.0.1:{free_ports(1)[0]}"
        self.goals = place / "goals.txt"
        for name, text in files().items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        """A file with the addresses of this test."""
        for shown, own in ((BROKER, self.cluster.bootstrap), (REST, self.rest), (PLACE, str(self.place))):
            text = text.replace(shown, own)
        (self.place / name).write_text(text)

    def start(self, kind: str, *names: str) -> Command:
        """A worker with these files."""
        return self.cluster.start_tool(f"connect-{kind}", *(str(self.place / f"{name}.properties") for name in names))

    def asked(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        """Connect's answer; None: it is not ready."""
        try:
            answer = httpx.request(method, f"http://{self.rest}/connectors/{path}", timeout=WAIT, **more)
        except httpx.ConnectError:
            return None
        return None if answer.status_code in (404, 409, 500, 503) else answer

    def killed(self, topic: str, start: Callable[[], Command]) -> tuple[int, Counter[str]]:
        """A worker reads the file, is killed, and starts again: how many lines are there before; how often is each after."""
        self.goals.write_text("".join(f"{line}\n" for line in LINES))
        create(self.cluster, topic)
        worker = start()
        until(lambda: self.end(topic) > 100, self.log)
        worker.kill()
        before = len(values(self.cluster, topic))
        start()
        until(lambda: LINES[-1] in self.lines(topic, self.end(topic) - 20), self.log)
        return before, Counter(self.lines(topic))

    def end(self, topic: str) -> int:
        """Where the topic's committed records end."""
        return bounds(self.cluster, topic)[topic, 0][1]

    def lines(self, topic: str, start: int = 0) -> list[str]:
        """The lines in its committed records."""
        found = [json.loads(record.value()) for record in read(self.cluster, {(topic, 0): max(0, start)})]
        return [each["line"] if isinstance(each, dict) else each for each in found]

    def log(self) -> str:
        """What its workers printed last."""
        return "\n".join(file.read_text(errors="replace")[-2_000:] for file in self.cluster.home.glob("connect-*.log"))


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """With a Kafka of its own, since the page's topics have fixed names."""
    with Cluster() as cluster:
        yield Connect(cluster, tmp_path)


@pytest.mark.nightly  # the cut: the settings' names, above
@pytest.mark.limit(200)
def test_lines_go_through_a_topic_and_a_dead_letter_has_its_reason(connect: Connect) -> None:
    cluster, lines, copy = connect.cluster, LINES[:101], connect.place / "copy.txt"
    connect.goals.write_text("".join(f"{line}\n" for line in lines[:100]))
    create(cluster, "goals")
    worker = connect.start("standalone", "worker", "source", "sink")

    def copied() -> list[str]:
        return copy.read_text().splitlines() if copy.exists() else []

    until(lambda: copied() == lines[:100], connect.log)
    assert values(cluster, "goals")[7] == b'{"line":"goal 7"}'
    put(cluster, "goals", b"no JSON", b"7")
    with connect.goals.open("a") as file:
        file.write(f"{lines[100]}\n")
    until(lambda: copied() == lines, connect.log)

    dead = until(lambda: (found := snapshot.records(cluster, "goals.connect-dead")[0])[1:] and found)
    headers = [{name: (value or b"").decode() for name, value in record.headers()} for record in dead]
    assert [record.value() for record in dead] == [b"no JSON", b"7"]
    place = [[each[f"__connect.errors.{name}"] for name in ("topic", "partition", "offset")] for each in headers]
    assert place == [["goals", "0", "100"], ["goals", "0", "101"]]
    assert [each["__connect.errors.stage"] for each in headers] == ["VALUE_CONVERTER", "TRANSFORMATION"]
    assert all(each["__connect.errors.exception.message"] for each in headers)
    assert set(re.findall(r"`(__connect\S+)`", PAGE.read_text())) <= headers[0].keys()

    worker.stop(WAIT)
    assert (connect.place / "offsets").stat().st_size > 0
    assert committed(cluster, "connect-goals-out", "goals", [0]) == {0: 103}
    connect.start("standalone", "worker", "source", "sink")
    noted = {"partition": {"filename": str(connect.goals)}, "offset": {"position": connect.goals.stat().st_size}}
    answer = until(lambda: connect.asked("GET", "goals-in/offsets"), connect.log)
    assert answer.json() == {"offsets": [noted]}
    with connect.goals.open("a") as file:
        file.write("the last\n")
    until(lambda: copied()[-1:] == ["the last"], connect.log)
    assert copied() == [*lines, "the last"]


@pytest.mark.nightly
@pytest.mark.limit(200)
def test_without_the_settings_for_errors_one_record_ends_the_task(connect: Connect) -> None:
    text = files()["sink.properties"]
    connect.write("sink.properties", re.sub(r"^errors\..*\n", "", text, flags=re.MULTILINE))
    create(connect.cluster, "goals")
    put(connect.cluster, "goals", b'{"line":"one"}', b"no JSON", b'{"line":"two"}')
    connect.start("standalone", "worker", "sink")

    def tasks() -> list[Any]:
        answer = connect.asked("GET", "goals-out/status")
        return answer.json()["tasks"] if answer else []

    until(lambda: [each["state"] for each in tasks()] == ["FAILED"], connect.log)
    assert "DataException" in tasks()[0]["trace"]
    assert "two" not in (connect.place / "copy.txt").read_text()


@pytest.mark.nightly
@pytest.mark.limit(200)
def test_a_standalone_worker_that_is_killed_writes_lines_twice(connect: Connect) -> None:
    """Also if it is asked for exactly once."""
    connect.write("worker.properties", files()["worker.properties"] + "exactly.once.source.support=enabled\n")
    before, found = connect.killed("goals", lambda: connect.start("standalone", "worker", "source"))
    assert before > 0 and found.keys() == set(LINES)
    assert all(found[line] == 2 for line in LINES[:before])


@pytest.mark.nightly
@pytest.mark.limit(200)
def test_a_distributed_worker_that_is_killed_writes_each_line_once(connect: Connect) -> None:
    once = json.loads((connect.place / "once.json").read_text())

    def start() -> Command:
        worker = connect.start("distributed", "distributed")
        reads_no_file = {name: value for name, value in once.items() if name != "file"}
        refused = until(lambda: connect.asked("PUT", "stdin/config", json=reads_no_file), connect.log)
        assert refused.status_code == 400 and "exactly" in refused.text, refused.text
        answer = until(lambda: connect.asked("PUT", "goals-once/config", json=once), connect.log)
        assert answer.is_success, answer.text
        return worker

    before, found = connect.killed("goals-once", start)
    assert 0 < before < len(LINES), "the kill came in the middle"
    assert found == Counter(LINES)
