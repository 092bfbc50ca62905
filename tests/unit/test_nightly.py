"""The runner of the night: what it goes on with, what it calls over, and the one line it ends with."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.conftest import Marked
from tests.faults.pipeline_world import taken
from tests.nightly import __main__ as command, parts, pythons, run
from tests.nightly.run import Done, Night, Part, Unit
from tests.patience import WAIT, until

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., Part]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A night in a directory of its own, for sources that do not change; the units that were run."""
    monkeypatch.setattr(run, "PLACE", tmp_path / "nightly")
    monkeypatch.setattr(run, "tree", lambda: "sources")
    monkeypatch.setenv("KQ_PATIENCE", "1")
    return []


@pytest.fixture
def part(ran: list[str]) -> Make:
    """A part whose units come out as they are asked to."""

    def unit(name: str, verdict: str) -> Unit:
        def one() -> Done:
            if verdict == "interrupted":
                raise KeyboardInterrupt
            ran.append(name)
            return Done(verdict, "words" if verdict == "not run" else "")

        return Unit(name, one)

    return lambda **verdicts: Part(lambda night: [unit(name, verdict) for name, verdict in verdicts.items()])


def verdict(*found: object) -> tuple[object, str]:
    """The verdict without its minutes."""
    good, line = found
    return good, re.sub(r"\d+ min", "… min", str(line))


@pytest.mark.parametrize(
    ("units", "good", "line"),
    [
        ({"a": "passed", "b": "passed"}, True, "passed; 2 of 2 units, … min; seed 7"),
        ({"a": "passed", "b": "failed"}, False, "FAILED; 2 of 2 units, … min; failed: b; seed 7"),
        ({"a": "passed", "b": "not run"}, True, "passed; 2 of 2 units, … min; not run: b; seed 7"),
        ({"a": "not run"}, False, "FAILED; 1 of 1 units, … min; not run: a; seed 7"),
        ({}, False, "FAILED; 0 of 0 units, … min; there was nothing to run; seed 7"),
    ],
)
def test_a_part_ends_in_one_line_of_verdict(part: Make, units: dict[str, str], good: bool, line: str) -> None:
    assert verdict(*run.run("x", part(**units), seed=7)) == (good, f"nightly x: {line}")


def test_an_interrupted_part_goes_on_with_the_units_that_are_not_done(part: Make, ran: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run.run("x", part(a="passed", b="failed", c="interrupted", d="passed"), seed=7)
    assert ran[:2] == ["a", "b"]
    ran.clear()
    good, line = run.run("x", part(a="passed", b="passed", c="passed", d="passed"))
    assert (ran, good) == (["c", "d"], False)  # b is not tried a second time
    assert "failed: b; seed 7" in line


def test_what_goes_wrong_in_the_night_itself_ends_all_that_runs(
    ran: list[str], tmp_path: Path, within: Callable[..., float]
) -> None:
    """One unit breaks while another one runs: the other's process is ended, and its thread begins no other."""
    begun = tmp_path / "begun"
    code = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    nights: list[Night] = []

    def breaks() -> Done:
        until(begun.exists)
        raise ZeroDivisionError

    def units(night: Night) -> list[Unit]:
        nights.append(night)
        return [Unit("a", lambda: night.call("a", [sys.executable, "-c", code], 60)), Unit("b", breaks)]

    with pytest.raises(ZeroDivisionError):
        run.run("x", Part(units, at_once=2))
    within(10, lambda: not nights[0].running, "the other unit has not ended")  # long before its own 60 s
    with pytest.raises(KeyboardInterrupt):
        nights[0].call("c", [sys.executable, "-c", ""], 60)


def test_a_part_that_is_over_begins_anew_and_draws_another_seed(part: Make, ran: list[str]) -> None:
    first, second = (run.run("x", part(a="failed", b="passed"))[1] for _ in range(2))
    assert ran == ["a", "b", "a", "b"]
    assert first.rpartition("seed")[2] != second.rpartition("seed")[2]


def test_other_sources_and_another_seed_begin_anew(part: Make, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for change in (lambda: None, lambda: monkeypatch.setattr(run, "tree", lambda: "changed")):
        change()
        with pytest.raises(KeyboardInterrupt):
            run.run("x", part(a="passed", b="interrupted"), seed=7)
    with pytest.raises(KeyboardInterrupt):
        run.run("x", part(a="passed", b="interrupted"), seed=8)
    assert ran == ["a", "a", "a"]


def test_a_call_begins_no_unit_after_its_time_and_the_next_one_goes_on(part: Make, ran: list[str]) -> None:
    good, line = run.run("x", part(a="passed", b="passed"), minutes=0)
    assert not good and line.startswith("nightly x: NOT FINISHED, run the same command again to continue; 0 of 2 units")
    assert run.finished("x", part()) is None
    good, line = run.run("x", part(a="passed", b="passed"))
    assert good and ran == ["a", "b"]
    assert run.finished("x", part()) == (True, line)


@pytest.mark.usefixtures("ran")
def test_a_part_that_is_named_has_forty_minutes() -> None:
    left = list[float]()

    def units(night: Night) -> list[Unit]:
        left.append(night.end_at - time.monotonic())
        return []

    run.run("x", Part(units))
    assert 40 * 60 - WAIT < left[0] <= 40 * 60


@pytest.mark.parametrize(
    ("typed", "runs"),
    [
        (["nightly", "PART=storms", "SHARE=1/3", "SEED=7"], "-m tests.nightly storms --share 1/3 --seed 7"),
        (["nightly", "PART=drivers", "SHARE="], "-m tests.nightly drivers"),
        (["nightly"], "-m tests.nightly"),
        (["faults"], "-m tests.nightly faults"),
    ],
)
def test_make_passes_on_the_part_its_share_and_its_seed(typed: list[str], runs: str) -> None:
    # without what a make around this run passes on
    kept = {name: value for name, value in os.environ.items() if not re.match("PART|SHARE|SEED|MAKE|MFLAGS", name)}
    out = subprocess.check_output(["make", "--dry-run", *typed], cwd=ROOT, env=kept, text=True)
    assert " ".join(out.splitlines()[-1].split()).endswith(f"python {runs}")


@pytest.mark.usefixtures("ran")
def test_a_unit_that_the_end_of_a_call_cuts_off_is_run_by_the_next_unless_it_is_longer_than_a_call() -> None:
    def units(night: Night) -> list[Unit]:
        def long() -> Done:
            night.end_at = time.monotonic() + 0.1
            return night.call("long", [sys.executable, "-c", "import time; time.sleep(60)"])

        return [Unit("short", lambda: Done("passed")), Unit("long", long)]

    good, line = run.run("x", Part(units))
    assert not good and "NOT FINISHED" in line and "1 of 2 units" in line
    good, line = run.run("x", Part(units))
    assert not good and "nightly x: FAILED" in line and "failed: long" in line


def test_the_shares_of_a_part_are_all_of_it(part: Make, ran: list[str]) -> None:
    lines = [run.run("x", part(a="passed", b="passed", c="passed"), (n, 2), 7)[1] for n in (1, 2)]
    assert ran == ["a", "c", "b"]
    assert ["2 of 2 units" in lines[0], "1 of 1 units" in lines[1]] == [True, True]


def test_a_part_for_seven_nights_takes_another_share_each_day(part: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    found, days = set[str](), iter(datetime(2026, 11, day, tzinfo=UTC) for day in range(24, 31))
    week = replace(part(a="passed"), nights=7)
    for day in days:
        monkeypatch.setattr(run, "datetime", SimpleNamespace(now=lambda _, day=day: day))
        good, line = run.run("x", week, seed=7)
        found.add(line.split(":")[0])
        assert run.finished("x", week) == (good, line)
    assert found == {f"nightly x {at} of 7" for at in range(1, 8)}


def test_all_parts_run_one_after_the_other_and_those_that_are_over_only_once(
    part: Make, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "PARTS", {"one": part(a="failed"), "two": part(b="passed")})
    assert command.main(["one"]) == 1
    assert (command.main([]), ran) == (1, ["a", "b"])  # the failure of the first call counts
    assert [line.split(";")[0] for line in capsys.readouterr().out.splitlines()[-2:]] == [
        "nightly one: FAILED",
        "nightly two: passed",
    ]
    assert (command.main([]), ran) == (1, ["a", "b", "a", "b"])


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            ["nope"],
            "there is no part 'nope'; there are faults, storms, soak, drivers, proofs, notebooks, figures, mutants, pythons",
        ),
        (["mutants", "--share", "0/3"], "a share is K/N, for example 1/3, and this is '0/3'"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(typed: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(typed)
    assert words in f"{ended.value.code} {capsys.readouterr().err}"


# --- a unit's command ------------------------------------------------------------------------------------------------


def test_a_commands_output_is_kept_and_its_exit_status_is_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = Night(7, tmp_path, patience="2")
    names = "[os.environ.get(name) for name in ('KQ_NIGHTLY', 'KQ_PATIENCE', 'KQ_VERDICTS')]"
    code = f"import os, sys; print(*{names}); sys.exit(int(sys.argv[1]))"
    monkeypatch.setenv("KQ_VERDICTS", str(tmp_path))  # of an earlier run: not believed
    monkeypatch.setenv("KQ_NIGHTLY", "1")  # this may itself be a part of the night
    found = [night.call(f"exit {n}", [sys.executable, "-c", code, str(n)], 30) for n in (0, 3)]
    assert [(each.verdict, each.words.split(":")[0]) for each in found] == [("passed", ""), ("failed", "exit status 3")]
    assert (tmp_path / "exit-3.log").read_text() == "None 2 None\n"


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, marked: Marked) -> None:
    # a shell: it has begun long before its time is over, where two Pythons may take longer than that
    found = Night(7, tmp_path).call("hangs", ["sh", "-c", "sleep 600 & touch inner; wait"], 2.5, cwd=tmp_path)
    assert found.verdict == "failed" and found.words.startswith("not over after 2 s")
    assert (tmp_path / "inner").exists()
    assert marked.alive() == []


def test_the_sources_have_another_name_when_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    names = []
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "a.py").write_text(text)
        names.append(run.tree())
    assert names[0] == names[2] != names[1]


# --- the parts -------------------------------------------------------------------------------------------------------


def test_notebooks_are_compared_twice_in_an_order_that_is_drawn_and_doubled_once(tmp_path: Path) -> None:
    orders = [[unit.name for unit in parts.notebooks(Night(seed, tmp_path))] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    count = len(parts.gate.notebooks())
    first, second = ([each.partition(" ")[0] for each in orders[0][at : at + count]] for at in (0, count))
    assert first != second
    assert len({*orders[0]}) == 3 * count
    assert {name.partition(" ")[2] for name in orders[0]} == {"first", "second", "doubled"}


def test_the_figures_are_asserted_bare_for_every_file_of_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the files whose tests are all marked nightly: those are proofs. The rolling restart's pause is asserted bare too."""
    seen: list[tuple[str, dict[str, str]]] = []
    asked: list[tuple[str, ...]] = []

    def collected(*what: str) -> list[str]:
        asked.append(what)
        return [f"tests/promises/{name}" for name in ("test_b.py::test_1", "test_a.py::test_2", "test_b.py::test_3[x]")]

    monkeypatch.setattr(parts, "collected", collected)
    monkeypatch.setattr(parts, "test", lambda night, name, **env: seen.append((name, env)))
    for unit in parts.figures(Night(7, tmp_path)):
        unit.run()
    assert asked == [("-m", "not nightly", "tests/promises")]
    bare = [(f"tests/promises/test_{name}.py", {"KQ_PATIENCE": "1"}) for name in "ab"]
    assert seen == [*bare, (parts.RESTART, {"KQ_PATIENCE": "1", "KQ_NIGHTLY": "1"})]


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ("SKIPPED [1] a.py:32: no go here\n1 skipped in 1.51s", ("not run", "no go here")),
        ("SKIPPED [1] a.py:32: no go here\n1 passed, 1 skipped in 1.51s", ("passed", "")),
        ("2 passed in 1.51s", ("passed", "")),
        ("SKIPPED [1] a.py:32: no go here\n1 failed, 1 skipped in 1.51s", ("failed", "exit status 1")),
    ],
)
def test_a_unit_of_which_all_tests_were_skipped_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, verdict: tuple[str, str]
) -> None:
    night = Night(7, tmp_path)

    def call(self: Night, name: str, command: list[str], **env: str) -> Done:
        self.log(name).write_text(lines + "\n")
        return Done("failed", "exit status 1") if "failed" in lines else Done("passed")

    monkeypatch.setattr(Night, "call", call)
    done = parts.test(night, "a.py")
    assert (done.verdict, done.words) == verdict


def test_in_seven_nights_each_point_at_which_a_driver_is_killed_is_taken_once(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def call(self: Night, name: str, command: list[str], **env: str) -> Done:
        asked.append((command[-1], env["KQ_FAULT_SHARE"]))
        self.log(name).write_text(
            "killed before 5 of 9 requests, share 1/7\nworkers killed at 3 of 20 moments\n1 killed\n"
        )
        return Done("passed")

    monkeypatch.setattr(parts, "collected", lambda *_: ["test.py::test_a", "test.py::test_b"])
    monkeypatch.setattr(Night, "call", call)
    for night in range(1, 8):
        asked: list[tuple[str, str]] = []
        good, line = run.run("drivers", parts.PARTS["drivers"], (night, 7), 7)
        assert good and f"nightly drivers {night} of 7: passed; 2 of 2 units, 0 min; 16 points; seed 7" == line
        assert asked == [("test.py::test_a", f"{night}/7"), ("test.py::test_b", f"{night}/7")]
    for kind, count in itertools.product(("change", "Fetch", "file"), (1, 20, 50)):
        shares = [[nth for nth in range(count) if taken(kind, nth, f"{night}/7")] for night in range(1, 8)]
        assert sorted(itertools.chain(*shares)) == list(range(count))
        assert max(map(len, shares)) <= min(map(len, shares)) + 1


def test_a_python_that_is_missing_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pythons.interpreter("3.13") is None
    assert pythons.on(Night(7, tmp_path), "3.13") == Done("not run", "there is no Python 3.13 on PATH or in pyenv")


def test_a_python_is_found_on_path_and_then_by_pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that does not start, as pyenv's own for a version that is not chosen, is passed over."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    broken, real = tmp_path / "bin" / f"python{version}", tmp_path / "versions" / f"{version}.10" / "bin" / "python"
    older = tmp_path / "versions" / f"{version}.9" / "bin" / "python"
    for path in (broken, real, older):
        path.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    real.symlink_to(sys.executable)
    older.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(broken.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pythons.interpreter(version) == real


def test_the_oldest_and_the_newest_client_are_those_that_pyproject_allows() -> None:
    assert [pythons.asked(name) for name in pythons.CLIENTS] == ["confluent-kafka==2.16", "confluent-kafka>=2.16"]
    assert pythons.locked() in pythons.client().specifier


def test_a_command_without_a_network_has_loopback_and_nothing_else() -> None:
    """Where the system does not allow it, nothing stands before the command."""
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname());"
        "print([name for _, name in socket.if_nameindex()] if sys.platform == 'linux' else [])"
    )
    answer = subprocess.run([*pythons.alone(), sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not pythons.alone() or answer.stdout.strip() == "['lo']"
    can = shutil.which(pythons.ALONE[0]) and not subprocess.run([*pythons.ALONE, "true"], check=False).returncode
    assert bool(pythons.alone()) == bool(can)


def test_the_schedule_runs_every_share_of_every_part() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())["jobs"]["nightly"]
    shares: dict[str, set[str]] = {}
    for one in job["strategy"]["matrix"]["include"]:
        shares.setdefault(one["part"], set()).add(one["share"])
    assert shares.keys() == parts.PARTS.keys()
    for name, found in shares.items():  # without a name it is tonight's
        assert found == (
            {""} if parts.PARTS[name].nights > 1 else {f"{n}/{len(found)}" for n in range(1, len(found) + 1)}
        )
