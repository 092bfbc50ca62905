"""Runs one part of the nightly tests: runs its units, writes each result to a file, and ends with one line of verdict.

In:  a part, the share of its units that this call is to run, a seed. Out: a line for each unit, and under build/nightly:

    PART.json       a hash of the sources, the seed, and each unit's result: an interrupted part continues from it
    PART/UNIT.log   what a unit printed
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from kqlib.runtime.places import write_atomic
from tests import patience
from tests.__main__ import NOT_MINE
from tests.conftest import Marked

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "nightly"
MINUTES = 40  # how long a call that names a part takes at most
HOUR = 3600.0  # how long a command takes at most where a call has no limit
NOT_KEPT = (*NOT_MINE, "KQ_VERDICTS", "KQ_HASHES", "KQ_NIGHTLY", "KQ_TIMES")  # an earlier run is not believed


@dataclass(frozen=True)
class Done:
    """The result of a unit: passed, failed, not run; of a mutant: found, survived, equivalent."""

    verdict: str
    words: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Unit:
    """The smallest piece of work: a unit that was cut off is run again from its start."""

    name: str
    run: Callable[[], Done]


class OutOfTime(Exception):  # noqa: N818
    """The call is over; the unit was cut off and is begun again by the next one."""


class Ours(Marked):
    """The processes that a unit started, at any depth."""

    name = "KQ_NIGHTLY_MARK"

    def end(self) -> None:
        """End them by their ids, also those that one of them starts meanwhile."""
        while alive := self.alive():
            for process in alive:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.05)


@dataclass
class Night:
    """What units work with: the seed, a directory for logs, and a way to run commands."""

    seed: int
    folder: Path
    patience: str = "1"
    end_at: float = float("inf")
    running: set[Ours] = field(default_factory=set)
    over: bool = False

    def call(self, name: str, command: list[str], seconds: float = HOUR, *, cwd: Path = ROOT, **env: str) -> Done:
        """Run a command to its end or for so many seconds; nothing that it started outlives it."""
        if self.over:
            raise KeyboardInterrupt
        left = self.end_at - time.monotonic()
        ours, log = Ours(uuid.uuid4().hex), self.log(name)
        self.running.add(ours)
        try:
            with tempfile.TemporaryDirectory(prefix="kqlib-nightly-") as state, log.open("w") as out:
                environment = {**environ(cwd, Path(state)), "KQ_PATIENCE": self.patience, **ours.env, **env}
                pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
                process = subprocess.Popen(command, cwd=cwd, env=environment, **pipes)
                try:
                    code = process.wait(min(seconds, left))
                finally:
                    ours.end()
                    process.wait()
        except subprocess.TimeoutExpired:
            if left < seconds:
                raise OutOfTime from None
            return Done("failed", f"not over after {seconds:.0f} s: {shown(log)}")
        finally:
            self.running.discard(ours)
        return Done("passed") if code == 0 else Done("failed", f"exit status {code}: {shown(log)}")

    def log(self, name: str) -> Path:
        """The file for what a unit prints."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)[-120:]}.log"

    def end(self) -> None:
        """End all that runs, and begin nothing more."""
        self.over = True
        for ours in list(self.running):
            ours.end()


def shown(path: Path) -> str:
    """A file as a person would name it from the checkout's directory."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def environ(root: Path, state: Path) -> dict[str, str]:
    """The environment of a test run in this checkout: nobody's cluster, nobody's state."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_KEPT}
    own = {"KQ_STATE": str(state), "IPYTHONDIR": str(root / ".ipython")}
    return kept | own


def passed(done: dict[str, Done]) -> tuple[bool, str]:
    """Every unit that was run has passed, and there was one."""
    lists = {kind: [name for name, each in done.items() if each.verdict == kind] for kind in ("failed", "not run")}
    words = [f"{kind}: {', '.join(names)}" for kind, names in lists.items() if names]
    ran = len(done) - len(lists["not run"])
    return ran > 0 and not lists["failed"], "; ".join(words) if done else "there was nothing to run"


@dataclass(frozen=True)
class Part:
    """A part of a night: how its units are made, how many run at once, what makes it good, and how many nights share it."""

    units: Callable[[Night], list[Unit]]
    at_once: int = 1
    judge: Callable[[dict[str, Done]], tuple[bool, str]] = passed
    nights: int = 1

    @property
    def tonight(self) -> tuple[int, int]:
        """The share that a call takes which names none: another one each day."""
        return datetime.now(UTC).toordinal() % self.nights + 1, self.nights


def tree() -> str:
    """A name for the sources as they are here, committed or not: with other sources a part begins anew."""
    command = ["git", "ls-files", "-coz", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    digest = hashlib.sha256()
    for path in (ROOT / name for name in sorted({*names} - {""})):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes() if path.is_file() else b"gone")
    return digest.hexdigest()[:16]


def begin(path: Path, sources: str, seed: int | None) -> dict[str, Any]:
    """The state to go on from, or a new one: for other sources, another seed, or when the last call finished the part."""
    state: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if state.get("tree") == sources and not state["verdict"] and seed in (None, state["seed"]):
        return state
    drawn = random.SystemRandom().randrange(10**6) if seed is None else seed
    return {"tree": sources, "seed": drawn, "seconds": 0.0, "units": {}, "verdict": "", "good": False}


def known_as(name: str, share: tuple[int, int]) -> tuple[str, Path]:
    """The name of a part's share, and its file."""
    known = name if share == (1, 1) else f"{name} {share[0]} of {share[1]}"
    return known, PLACE / f"{known.replace(' ', '-')}.json"


def run(
    name: str, part: Part, share: tuple[int, int] | None = None, seed: int | None = None, minutes: float = MINUTES
) -> tuple[bool, str]:
    """Run what is left of a part's share; is it good, and its line of verdict."""
    share = share or part.tonight
    known, path = known_as(name, share)
    PLACE.mkdir(parents=True, exist_ok=True)
    state, start = begin(path, tree(), seed), time.monotonic()
    before = state["seconds"]
    patient, end_at = os.environ.get("KQ_PATIENCE") or f"{patience.measure():g}", start + minutes * 60
    night = Night(state["seed"], path.with_suffix(""), patient, end_at)
    units = part.units(night)[share[0] - 1 :: share[1]]
    left = [unit for unit in units if unit.name not in state["units"]]
    print(
        f"--- {known}: {len(left)} of {len(units)} units to run, seed {night.seed}, patience {night.patience}",
        flush=True,
    )

    def one(unit: Unit) -> Done | None:
        begun = time.monotonic()
        if begun > end_at:
            return None
        try:
            done = unit.run()
        except OutOfTime:
            if unit not in left[: part.at_once]:
                return None
            done = Done("failed", f"it had a call of its own, and was not over after {minutes:g} minutes")
        return replace(done, seconds=round(time.monotonic() - begun, 1))

    def write() -> None:
        state["seconds"] = round(before + time.monotonic() - start, 1)
        write_atomic(path, json.dumps(state, indent=1, ensure_ascii=False))

    write()
    pool = ThreadPoolExecutor(part.at_once)
    try:
        jobs = {pool.submit(one, unit): unit for unit in left}
        for job in as_completed(jobs):
            if done := job.result():
                state["units"][jobs[job].name] = asdict(done)
                write()
                print(
                    f"  {done.seconds:6.1f} s  {done.verdict:<10} {jobs[job].name}  {done.words}".rstrip(), flush=True
                )
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        night.end()
        raise

    good, words = part.judge({each: Done(**done) for each, done in state["units"].items()})
    whole = len(state["units"]) == len(units)
    verdict = ("passed" if good else "FAILED") if whole else "NOT FINISHED, run the same command again to continue"
    count = f"{len(state['units'])} of {len(units)} units, {(before + time.monotonic() - start) / 60:.0f} min"
    line = "; ".join(filter(None, (f"nightly {known}: {verdict}", count, words, f"seed {night.seed}")))
    state.update({"verdict": line if whole else "", "good": good and whole})
    write()
    return state["good"], line


def finished(name: str, part: Part) -> tuple[bool, str] | None:
    """The verdict of a part, or of tonight's share of it, that is over for these sources."""
    path = known_as(name, part.tonight)[1]
    state = json.loads(path.read_text()) if path.exists() else {}
    return (state["good"], state["verdict"]) if state.get("tree") == tree() and state["verdict"] else None
