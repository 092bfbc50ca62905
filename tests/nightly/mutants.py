"""A hundred small faults, drawn from all that are possible in kqlib: do the tests find them?

In:  the seed. Out: a verdict for each mutant: found (a test fails with it that passes without it), survived, or equivalent
(listed by hand in equivalent.toml, with the reason). At least 85 % of those that can be found must be found.

Each mutant is tried in a copy of the checkout, by the tests that import the changed module, the nearest first. A few files of unit
tests come first, then the other unit tests, then a few files of promises and Spark's tests. The first test that fails, or is over
its limit, ends this.
"""

from __future__ import annotations

import queue
import random
import shutil
import subprocess
import sys
import tomllib
from itertools import islice
from pathlib import Path

from kqlib.runtime import places
from tests.__main__ import PLAIN
from tests.nightly.imports import graph, name_of, nearest
from tests.nightly.mutate import Mutant, compiles, mutants
from tests.nightly.pythons import alone
from tests.nightly.run import ROOT, Done, Night, Unit, shown

SAMPLE, SHARE, AT_ONCE = 100, 0.85, 2
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
NEAREST = 6  # a run collects all of its files before the first test: so the nearest have a run of their own
STAGES = (  # a name, where to look, which files of those by distance, and for how many seconds, × patience
    ("nearest", ("tests/unit",), slice(NEAREST), 100.0),
    ("unit", ("tests/unit",), slice(NEAREST, None), 200.0),
    ("promises", ("tests/promises", "tests/spark"), slice(NEAREST), 200.0),
)
ALONE = 300.0  # seconds for the test that failed, without the mutant
# They are about files, types and this package, or they take long; a mutant is a change of behaviour.
OTHERS = ("architecture", "nightly", "nightly_mutants", "packaging", "readme", "run", "typed", "words")


def every() -> list[Mutant]:
    """All mutants of kqlib."""
    files = sorted((ROOT / "kqlib").rglob("*.py"))
    return [each for path in files for each in mutants(shown(path), path.read_text(encoding="utf-8"))]


def drawn(seed: int) -> list[Mutant]:
    """The night's sample, of those that compile."""
    found = every()
    random.Random(seed).shuffle(found)
    return list(
        islice((each for each in found if compiles(each.applied((ROOT / each.path).read_text("utf-8")))), SAMPLE)
    )


def listed() -> list[dict[str, str]]:
    """The mutants that nobody can tell from the original, with the reason."""
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])


def reason(mutant: Mutant) -> str | None:
    """Why this one cannot be found."""
    fields = ("path", "scope", "line", "before", "after")
    same = (one for one in listed() if all(one[name] == getattr(mutant, name) for name in fields))
    return next((one["why"] for one in same), None)


def copied(place: Path) -> Path:
    """A fresh copy of the checkout, compiled once; a changed source is noticed by its hash, not by its time."""
    shutil.rmtree(place, ignore_errors=True)
    command = ["git", "ls-files", "-coz", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    compile_ = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "kqlib", "tests"]
    subprocess.run(compile_, cwd=place, check=True)
    return place


class Trees:
    """Copies of the checkout: one that stays as it is, one for each mutant that is tried at the same time."""

    def __init__(self, night: Night) -> None:
        self.night, self.clean = night, copied(night.folder / "clean")
        self.imports = graph(self.clean)
        self.cache = night.folder / "cache"  # a fault in what fetches and checks jars must not reach the real ones
        shutil.rmtree(self.cache, ignore_errors=True)
        shutil.copytree(places.cache(), self.cache, symlinks=True)
        self.free: queue.Queue[Path] = queue.Queue()
        for n in range(AT_ONCE):
            self.free.put(copied(night.folder / f"tree-{n + 1}"))

    def tried(self, name: str, mutant: Mutant) -> Done:
        """What the tests make of this mutant."""
        tree = self.free.get()
        path = tree / mutant.path
        source = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.applied(source), encoding="utf-8")
            for stage, folders, which, seconds in STAGES:
                files = self.files(mutant, folders)[which]
                if files and (test := self.failed(f"{name} {stage}", tree, files, seconds)):
                    return Done("found", f"{mutant}; {test}")
            return Done("survived", str(mutant))
        finally:
            path.write_text(source, encoding="utf-8")
            self.free.put(tree)

    def files(self, mutant: Mutant, folders: tuple[str, ...]) -> list[str]:
        """The test files of these folders that lead to the mutant's module, the nearest first."""
        files = nearest(self.imports, name_of(ROOT / mutant.path, ROOT), self.clean, *folders)
        return [file for file in files if Path(file).stem.removeprefix("test_") not in OTHERS]

    def failed(self, name: str, tree: Path, files: list[str], seconds: float) -> str:
        """The test that fails with the mutant and passes without it; "" if there is none."""
        done, test = self.pytest(name, tree, files, seconds)
        if done.verdict == "passed" or done.words.startswith("not over"):
            return ""
        test = test or files[0]  # not even the first file was collected
        return test if self.pytest(f"{name} without", self.clean, [test], ALONE)[0].verdict == "passed" else ""

    def pytest(self, name: str, tree: Path, tests: list[str], seconds: float) -> tuple[Done, str]:
        """Run tests in a copy; the first that fails or hangs ends it, and is named."""
        command = [*alone(), *PLAIN, "-x", "-p", "tests.nightly.nearest", *tests]
        last = self.night.log(name).with_suffix(".test")
        last.unlink(missing_ok=True)
        own = {"PYTHONPATH": str(tree), "KQ_CACHE": str(self.cache), "KQ_NIGHTLY_TEST": str(last)}
        done = self.night.call(name, command, seconds * float(self.night.patience), cwd=tree, **own)
        return done, last.read_text(encoding="utf-8") if last.exists() else ""


def units(night: Night) -> list[Unit]:
    """A unit for each mutant of the sample."""
    trees, found = Trees(night), []
    for n, mutant in enumerate(drawn(night.seed), 1):
        why, name = reason(mutant), f"mutant {n:03}"
        if why:
            found.append(Unit(name, lambda words=f"{mutant}; {why}": Done("equivalent", words)))
        else:
            found.append(Unit(name, lambda name=name, mutant=mutant: trees.tried(name, mutant)))
    return found


def judge(done: dict[str, Done]) -> tuple[bool, str]:
    """Enough of them were found."""
    count = {kind: sum(each.verdict == kind for each in done.values()) for kind in ("found", "survived", "equivalent")}
    able = count["found"] + count["survived"]
    words = f"{count['found']} of {able} mutants found"
    if able:
        words += f" ({count['found'] / able:.0%}, at least {SHARE:.0%} are to be)"
    return able > 0 and count["found"] >= SHARE * able, f"{words}, {count['equivalent']} equivalent"
