"""A person on duty, as a program: it plays a game day by what the commands print and by the logs that they name, and by nothing else.

python -m tests.faults.gameday 7 --faults 3 --minutes 4
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kqlib import virtual
from kqlib.runtime import places
from kqlib.virtual.errors import NoNode
from tests.faults.world import ROOT
from tests.patience import PATIENCE

SEEDS = (7, 10, 11, 14, 17, 25)  # together they have every fault
FAULTS_EACH, MINUTES = 3, 6.0  # a look everywhere takes 15 to 30 seconds
SITES = ("eu", "us")
NO_ANSWER = "error: no answer\n"
HANGS = 10  # seconds: a tool that takes longer asks a broker that hangs
OPEN_FOR = 5000  # milliseconds: a transaction of the node ends sooner
Words = tuple[str, ...]
APPLY: Words = ("topics", "apply", "PLAN")
AGAIN: Words = ("gameday", "restart", "mover")


@dataclass(frozen=True)
class Trace:
    """What was seen of one fault, and the commands that repair it. PLAN stands for the plan's file."""

    fault: str
    evidence: str
    repair: tuple[Words, ...]


@dataclass
class Duty:
    """The person. `before`: what was suspected in the last round; some traces count only if they stay."""

    state: Path
    plan: str = ""
    brokers: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    now: set[str] = field(default_factory=set)

    def kq(self, *words: str, seconds: float | None = None) -> str:
        """What a command prints. It is ended after so many seconds."""
        named = {"KQ_STATE": str(self.state), "KQ_CACHE": str(places.cache())}
        kept = {name: value for name, value in os.environ.items() if name not in {"KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG"}}
        command = [sys.executable, "-m", "kqlib", *(self.plan if word == "PLAN" else word for word in words)]
        began = time.monotonic()
        how: dict[str, Any] = {"cwd": ROOT, "env": kept | named, "capture_output": True, "text": True}
        try:
            ran = subprocess.run(command, check=False, timeout=seconds, **how)
            printed, errors = ran.stdout, ran.stderr
        except subprocess.TimeoutExpired:
            printed, errors = "", NO_ANSWER
        lines = f"{' '.join(words)}\n{printed}".splitlines()  # pytest shows it when a game fails
        print(f"{time.strftime('%X')} {time.monotonic() - began:.1f} s", *lines[:3], sep=" | ")
        return printed + errors

    def play(self, seed: int, faults: int, minutes: float) -> dict[str, Any]:
        """A whole game: until every fault was answered and no trace is left, or until the time is over."""
        try:
            began = self.kq("gameday", "start", "--seed", str(seed), "--faults", str(faults), "--minutes", str(minutes))
            assert "export KQ_BOOTSTRAP" in began, began
            self.brokers = re.findall(r"127\.0\.0\.1:\d+", began.partition("export KQ_BOOTSTRAP=")[2].splitlines()[0])
            status = self.kq("gameday", "status")
            while "The time is over" not in status and (self.round(status) or len(self.answered) < faults):
                status = self.kq("gameday", "status")
            ended = self.kq("gameday", "end", "--json")
            report: dict[str, Any] = json.JSONDecoder().raw_decode(ended)[0]  # a notice of stderr follows
            return report
        finally:
            self.kq("down")

    def round(self, status: str) -> int:
        """Look everywhere once. Answer what is new, repair what is there. How many traces were seen, or suspected?"""
        self.before, self.now = self.now, set()
        self.plan = "".join(re.findall(r"^plan +(\S+)", status, re.MULTILINE))
        seen = 0
        # Repaired before the next question: while a broker hangs, each may take a minute.
        for trace in self.traces(status):
            seen += 1
            if trace.fault not in self.answered:
                words = ("gameday", "answer", trace.fault, "--evidence", trace.evidence)
                with ThreadPoolExecutor(2) as players:  # two people on duty see it at the same moment
                    list(players.map(lambda words: self.kq(*words), [words, words]))
                self.answered.add(trace.fault)
            for words in trace.repair:
                self.kq(*words)
        return seen + len(self.now)

    def stays(self, suspicion: str) -> bool:
        """Was this suspected in the last round already?"""
        self.now.add(suspicion)
        return suspicion in self.before

    def traces(self, status: str) -> Iterator[Trace]:
        """All that is seen now."""
        services = {
            name: (how, log) for name, how, log in re.findall(r"^(\S+) +(\w+)  log (.+)$", status, re.MULTILINE)
        }
        yield from self.stopped(status, services)
        yield from self.in_sync({name for name, (how, _) in services.items() if how == "running"})
        yield from self.drift()
        yield from self.certificate(services)
        clients = self.kq("kafka", "configs", "--describe", "--entity-type", "clients")
        if re.search(r"'mover' are .*producer_byte_rate", clients):
            entity = ("--entity-type", "clients", "--entity-name", "mover")
            delete = ("kafka", "configs", "--alter", *entity, "--delete-config", "producer_byte_rate")
            yield Trace("quota", clients, (delete,))
        yield from self.moves()
        yield from self.transactions()
        letters = self.kq("queue", "peek", "football.dead", "--site", "eu")
        if "football.dead/" in letters:
            purges = tuple(("queue", "purge", "football.dead", "--site", site, "--yes") for site in SITES)
            yield Trace("poison-item", letters, purges)
        groups = (word for site in SITES for word in ("--group", site))
        members = self.kq("kafka", "consumer-groups", "--describe", "--members", *groups)
        for site in SITES:
            yield from self.site(site, {name for name, (how, _) in services.items() if how == "running"}, members)

    def stopped(self, status: str, services: dict[str, tuple[str, str]]) -> Iterator[Trace]:
        """Programs and brokers without a process."""
        for name, (how, log) in services.items():
            if how == "stopped" and name == "mover":
                yield Trace("mover-killed", status, (AGAIN,))
            elif how == "stopped" and name.startswith("broker"):
                again: Words = ("gameday", "restart", name)
                full = re.findall(r".*File too large.*", Path(log).read_text(errors="replace"))
                few = self.kq("kafka", "topics", "--describe", "--under-min-isr-partitions")
                if full:
                    yield Trace("full-disk", full[-1], (again,))
                else:
                    yield Trace("dead-broker", f"{status}\n{few}", (again, APPLY))

    def in_sync(self, running: set[str]) -> Iterator[Trace]:
        """A broker that runs, and is not in sync for the groups' own topic."""
        for _ in range(3):
            for address in self.brokers:  # one at a time: that which hangs would be waited for
                where = ("--bootstrap-server", address)
                asked: Words = ("kafka", "topics", *where, "--describe", "--under-replicated-partitions")
                if "rror" not in (shown := self.kq(*asked, seconds=HANGS * PATIENCE)):
                    break
            found = re.findall(r"__consumer_offsets\s.*Replicas: (\S+)\s+Isr: (\S+)", shown)
            missing = {number for replicas, isr in found for number in {*replicas.split(",")} - {*isr.split(",")}}
            for number in missing & {name.removeprefix("broker-") for name in running}:
                if self.stays(f"broker {number} hangs"):
                    yield Trace("coordinator-gone", shown, (("gameday", "restart", f"broker-{number}"),))
                    return
            if not missing and "rror" not in shown:
                return
            self.before |= self.now  # ask again in this round: a broker that was just started is in sync soon
            time.sleep(5)

    def drift(self) -> Iterator[Trace]:
        """What differs from the plan."""
        diff = self.kq("topics", "diff", "PLAN")
        if re.search(r"^\+ football:", diff, re.MULTILINE):
            yield Trace("topic-deleted", diff, (APPLY, AGAIN))
        if "~ football: retention.ms" in diff:
            yield Trace("short-retention", diff, (APPLY,))
        if "~ football: max.message.bytes" in diff:
            yield Trace("small-messages", diff, (APPLY, AGAIN))
        if "~ scores: delete.retention.ms" in diff:
            yield Trace("early-compaction", diff, (APPLY,))
        if grown := re.search(r"! football: has (\d+) partitions", diff):
            plan = Path(self.plan)
            plan.write_text(re.sub(r"(\[football\][^[]*partitions = )3", rf"\g<1>{grown[1]}", plan.read_text()))
            yield Trace("partitions-added", diff, (APPLY,))

    def certificate(self, services: dict[str, tuple[str, str]]) -> Iterator[Trace]:
        """A node whose certificate is not valid now. The logs say so, also later."""
        found = re.findall(r".*certificate has expired.*", Path(services["alerts"][1]).read_text())
        url, old = re.findall(r"(https:\S+), certificate (\S+);", Path(services["node"][1]).read_text())[-1]
        ca = str(Path(old).with_name("ca.pem"))
        with suppress(NoNode), virtual.Client(url, ca=ca, patience=1) as client:
            client.queue("game-0").depth()
            return
        if found:
            shutil.copy(Path(old).with_name("renewed.pem"), old)
            yield Trace("expired-certificate", found[-1], (("gameday", "restart", "node"),))

    def moves(self) -> Iterator[Trace]:
        """A move: here nobody else begins one."""
        if "archive-0" not in self.kq("kafka", "reassign-partitions", "--list"):
            return
        move = self.state / "move.json"
        move.write_text('{"version": 1, "partitions": [{"topic": "archive", "partition": 0, "replicas": [1, 2]}]}')
        throttle = self.kq("kafka", "configs", "--describe", "--entity-type", "brokers")
        cancel = ("kafka", "reassign-partitions", "--cancel", "--reassignment-json-file", str(move))
        yield Trace("slow-move", throttle, (cancel,))

    def transactions(self) -> Iterator[Trace]:
        """A transaction on the queue's topic that stays open: those of the node are on another topic."""
        shown = self.kq("kafka", "transactions", "list", "--duration-filter", str(OPEN_FOR))
        for name in re.findall(r"^(\S+)\s.*\bOngoing\b", shown, re.MULTILINE):
            about = self.kq("kafka", "transactions", "describe", "--transactional-id", name)
            for part in re.findall(r"\bfootball-(\d+)", about):
                at = ("--topic", "football", "--partition", part)
                producers = self.kq("kafka", "transactions", "describe-producers", *at)
                begun = re.findall(r"\s(\d+)\s*$", producers, re.MULTILINE)
                aborts = tuple(("kafka", "transactions", "abort", *at, "--start-offset", each) for each in begun)
                yield Trace("stuck-transaction", shown, aborts)

    def site(self, site: str, running: set[str], members: str) -> Iterator[Trace]:
        """A site whose offsets were reset, or one of whose workers is no member."""
        shown = self.kq("queue", "show", "football", "--site", site)
        if "skipped by another program" in shown:
            yield Trace("group-reset", shown, (("queue", "rewind", "football", "--site", site, "--yes"),))
        names = sorted(name for name in running if name.startswith(site))
        there = {name for name in names if name in members}
        for name in names:
            if there and name not in there and self.stays(f"{name} is no member"):
                yield Trace("worker-hangs", f"{name} runs, and is not in:\n{members}", (("gameday", "restart", name),))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("--faults", type=int, default=FAULTS_EACH)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        print(json.dumps(Duty(Path(state)).play(args.seed, args.faults, args.minutes), indent=1))


if __name__ == "__main__":
    main()
