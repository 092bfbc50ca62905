"""Processes of 0.1 and of 0.2 in one site at the same time: an upgrade process by process, and the way back.

The queue of 0.1 is in first_edition_code.tar.xz: the modules of its last commit that wrote and read version 1 of the state only.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kqlib.errors import LedgerCorrupt
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site, ledger_text
from tests.conftest import Marked
from tests.patience import WAIT, until
from tests.promises.queues import topic

ARCHIVE = Path(__file__).with_name("first_edition_code.tar.xz")
WORKER = Path(__file__).with_name("edition_worker.py")
ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = {"item": 1, "again": 2, "bury": 3}  # that each kind takes
SOME = 30  # items that a process has begun when it is called at work


class Begun(NamedTuple):
    """One line of a worker."""

    at: float
    key: str
    data: str
    attempt: int


class Process:
    """A worker of one edition."""

    def __init__(self, code: Path, place: Path, *words: str) -> None:
        self._out, self._err = place.with_suffix(".out"), place.with_suffix(".err")
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(code), str(ROOT)])}
        command = [sys.executable, "-P", str(WORKER), *words]
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(command, env=env, stdout=out, stderr=err)

    @property
    def begun(self) -> list[Begun]:
        """What it has begun until now."""
        return [Begun(*json.loads(line)) for line in self._out.read_text().splitlines()]

    @property
    def says(self) -> str:
        """Its errors."""
        return self._err.read_text()

    def ends(self, number: int | None = signal.SIGTERM) -> int:
        """Its exit status, after this signal; None: it ends by itself."""
        if number:
            self._process.send_signal(number)
        return self._process.wait(WAIT)


class Load:
    """A queue of four partitions with twenty keys, and processes of both editions that work on it."""

    def __init__(self, queue: Queue, start: Callable[..., Process]) -> None:
        self.queue, self.start = queue, start
        self.put: list[str] = []
        self.processes: list[Process] = []

    def begin(self, edition: str, **settings: Any) -> Process:
        """One more process."""
        self.processes.append(self.start(edition, **settings))
        return self.processes[-1]

    def at_work(self, *processes: Process) -> None:
        """Items are put until each of these processes has begun some of them; then all of them are in the group."""
        before = [len(each.begun) for each in processes]

        def some() -> bool:
            kinds = {3: "again", 7: "bury"}
            new = [f"{kinds.get(number % 20, 'item')} {number}" for number in range(len(self.put), len(self.put) + 5)]
            self.queue.put_many([(data.encode(), f"key {int(data.split()[1]) % 19}".encode()) for data in new])
            self.put += new
            return all(len(each.begun) >= was + SOME for each, was in zip(processes, before, strict=True))

        until(some, lambda: [each.says for each in processes])

    def empty(self) -> None:
        """Nothing is left."""
        until(lambda: self.queue.depth() == 0, lambda: [each.says for each in self.processes])

    @property
    def begun(self) -> list[Begun]:
        """What all processes have begun, in the order of time."""
        return sorted(line for each in self.processes for line in each.begun)


@pytest.fixture
def load(kq_cluster: Kafka, tmp_path: Path, marked: Marked) -> Iterator[Load]:
    """A queue without items, and no process yet. This process puts and looks, and is no member of the group."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "0.1", filter="data")
    name, count = topic(kq_cluster, 4), itertools.count()

    def start(edition: str, **settings: Any) -> Process:
        code = tmp_path / "0.1" if edition == "0.1" else ROOT
        words = (kq_cluster.bootstrap, name, name, json.dumps({"session": 3, **settings}))
        return Process(code, tmp_path / f"{next(count)} {edition}", *words)

    with Site(kq_cluster, name) as site:
        yield (load := Load(site.queue(name, order="key", max_attempts=3), start))
    for each in load.processes:
        each.ends(signal.SIGKILL)  # those of a test that failed


@pytest.mark.nightly
@pytest.mark.limit(240)
def test_a_site_is_upgraded_process_by_process_and_back_and_each_item_is_handled_once(load: Load) -> None:
    old = load.begin("0.1")
    load.at_work(old)
    new = load.begin("0.2")
    load.at_work(old, new)
    again = load.begin("0.1")  # an autoscaler that knows the old image only
    load.at_work(old, new, again)
    assert old.ends() == again.ends() == 0
    load.at_work(new)
    back = load.begin("0.1")  # the way back
    load.at_work(new, back)
    assert new.ends() == 0
    load.at_work(back)
    last = load.begin("0.2"), load.begin("0.2")
    load.at_work(*last)
    assert back.ends() == 0
    load.at_work(*last)
    load.empty()
    assert [each.ends() for each in last] == [0, 0]

    handled = Counter((line.data, line.attempt) for line in load.begun)
    assert handled == Counter((data, n + 1) for data in load.put for n in range(ATTEMPTS[data.split()[0]]))
    keys = defaultdict[str, list[tuple[int, int]]](list)
    for line in load.begun:
        keys[line.key].append((int(line.data.split()[1]), line.attempt))
    assert all(lines == sorted(lines) for lines in keys.values())  # the order of each key, attempts too
    dead = sorted(item.data.decode() for item in load.queue.dead.peek(len(load.put)))
    assert dead == sorted(data for data in load.put if data.startswith("bury")) and load.queue.lost == 0


@pytest.mark.nightly
@pytest.mark.limit(240)
@pytest.mark.parametrize(("dies", "stays"), [("0.1", "0.2"), ("0.2", "0.1")])
def test_what_a_killed_process_held_comes_back_counted_in_the_other_edition(load: Load, dies: str, stays: str) -> None:
    killed, heir = load.begin(dies), load.begin(stays)
    load.at_work(killed, heir)
    assert killed.ends(signal.SIGKILL) == -signal.SIGKILL
    load.at_work(heir)
    load.empty()
    assert heir.ends() == 0
    handled = Counter((line.data, line.attempt) for line in load.begun)
    assert {data for data, _ in handled} == set(load.put) and max(handled.values()) == 1
    mine = {line.data for line in killed.begun}
    twice = {line.data for line in heir.begun} & mine
    assert len(twice) <= 2 + len([data for data in mine if not data.startswith("item")])  # two threads had one each
    assert load.queue.lost == 0


@pytest.mark.nightly
def test_version_2_beside_a_process_of_0_1_is_one_clear_error_there_and_no_item_is_lost(load: Load) -> None:
    new = load.begin("0.2", write_version=2)
    load.at_work(new)
    old = load.begin("0.1")
    assert old.ends(None) == 1
    words = "it is written in version 2 and this kqlib reads version 1. Update kqlib. Nothing is handed out and nothing was changed"
    assert words in old.says.splitlines()[-1]
    load.at_work(new)
    assert new.ends() == 0
    load.at_work(load.begin("0.2", write_version=1))  # from here on 0.1 can read the state again
    back = load.begin("0.1")
    load.at_work(back)
    load.empty()
    assert [each.ends() for each in load.processes[2:]] == [0, 0]
    handled = Counter((line.data, line.attempt) for line in load.begun)
    assert handled == Counter((data, n + 1) for data in load.put for n in range(ATTEMPTS[data.split()[0]]))


def test_each_edition_reads_the_states_that_the_other_one_writes_in_version_1() -> None:
    old: Any = ModuleType("ledger_text_of_0_1")
    with tarfile.open(ARCHIVE) as archive:
        source = archive.extractfile("kqlib/queue/ledger_text.py")
        assert source
        exec(source.read(), old.__dict__)
    draw = random.Random(7)
    for _ in range(500):
        floor, runs = draw.randrange(1 << 40), []
        end = floor
        for turn in range(draw.randrange(40)):
            start = end + (
                draw.randrange(1, 1 << draw.randrange(1, 12)) if turn else 0
            )  # the floor is open, or nothing is
            end = start + draw.randrange(1, 1 << draw.randrange(1, 12))
            runs.append((start, end, draw.randrange(ledger_text.MOST + 1)))
        top = end + draw.randrange(50) if runs else floor
        state = (floor, top, draw.randrange(1 << 30), "u8F_x-3kTUqPZr2bGv0aWg", runs)
        text = old.write(old.State(*state), 1)
        assert text == ledger_text.write(ledger_text.State(*state), 1)
        assert old.read(text, floor) == state and ledger_text.read(text, floor)[:5] == state
    with pytest.raises(LedgerCorrupt, match="version 2 and this kqlib reads version 1"):
        old.read(ledger_text.write(ledger_text.State(*state), 2), floor)
