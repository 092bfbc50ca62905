"""The test run itself: what its table says, what it measures, and what its plugin does with a test that hangs or skips."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests import __main__ as run, patience
from tests.measured import Census, Measured
from tests.patience import WAIT

ROOT = Path(__file__).resolve().parents[2]
THREE = """
import threading, time, pytest

@pytest.mark.limit(1)
def test_hangs():
    threading.Thread(target=lambda: time.sleep(60), name="someone", daemon=True).start()
    time.sleep(60)

def test_skips():
    pytest.skip("no reason")

def test_passes():
    assert True

@pytest.mark.nightly
def test_takes_long():
    assert True
"""


def pytest_on(
    folder: Path, *options: str, start: Sequence[str] = run.PLAIN, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of this folder as a part is run."""
    (folder / "test_three.py").write_text(THREE, encoding="utf-8")
    command = [*start, "-c", os.devnull, "--rootdir", str(folder), *options, str(folder)]
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTEST_XDIST_WORKER", "KQ_TIMES", "CI")}
    mine = {"PYTHONPATH": str(ROOT), "KQ_PATIENCE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env = {**kept, **mine, **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=WAIT, check=False)


def test_a_test_that_hangs_is_named_with_every_thread_and_the_others_still_run(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, "-p", "xdist", "-n", "1", CI="true", KQ_TIMES=str(tmp_path / "times"))
    answer = done.stdout + done.stderr
    assert "test_three.py::test_hangs is over its limit of 1 s" in answer
    assert answer.count("Thread 0x") + answer.count("Current thread 0x") >= 3
    assert "in test_hangs" in answer
    assert "1 passed" in answer
    lines = [json.loads(line) for line in (tmp_path / "times").read_text(encoding="utf-8").splitlines()]
    outcomes = {line["test"]: line["outcome"] for line in lines}
    assert outcomes["test_three.py::test_passes"] == "passed"
    assert outcomes["test_three.py::test_hangs"] == "failed"


DEAF = """
import ctypes, pytest

@pytest.mark.limit(0.5)
def test_hears_no_signal():
    ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock held
"""


def test_where_python_cannot_end_a_test_its_process_ends_and_so_does_the_part(tmp_path: Path) -> None:
    (tmp_path / "test_deaf.py").write_text(DEAF)
    (tmp_path / "conftest.py").write_text("import tests.plugin\n\ntests.plugin.GRACE = 0.5\n")
    done = pytest_on(tmp_path, "-p", "xdist", "-n", "1", *run.BY_FILE, "-k", "hears_no_signal")
    answer = done.stdout + done.stderr
    assert done.returncode == 1 and "1 failed" in answer
    assert "in test_hears_no_signal" in answer


BROKER = """
import time, pathlib, types, pytest
from kqlib.workshop.cluster.embedded import Cluster

@pytest.mark.limit(1)
def test_waits_for_a_broker():
    log = pathlib.Path(__file__).with_name("broker.log")
    log.write_text("its first line" + "." * 4000 + "its last line")
    cluster = Cluster.__new__(Cluster)  # nothing is started
    cluster._brokers = {1: types.SimpleNamespace(log=log)}
    time.sleep(60)
"""


def test_a_timeout_prints_the_end_of_each_brokers_log(tmp_path: Path) -> None:
    (tmp_path / "test_broker.py").write_text(BROKER, encoding="utf-8")
    done = pytest_on(tmp_path, "-k", "waits_for_a_broker")
    assert done.returncode == 1
    assert "test_waits_for_a_broker is over its limit of 1 s" in done.stderr
    assert done.stderr.rstrip().endswith("its last line")
    assert "its first line" not in done.stderr


def test_a_cell_after_a_timeout_is_failed_and_not_expected_to_fail(tmp_path: Path) -> None:
    cells = [new_code_cell(source) for source in ("import time\ntime.sleep(60)", "1 + 1")]
    nbformat.write(new_notebook(cells=cells), tmp_path / "slow.ipynb")
    times = tmp_path / "times"
    options = ("-p", "nbval.plugin", "--nbval", "--nbval-current-env", "--nbval-cell-timeout", "1")
    done = pytest_on(tmp_path, *options, "-k", "ipynb", start=run.PYTEST, KQ_TIMES=str(times))
    assert "2 failed" in done.stdout and "xfailed" not in done.stdout
    assert "not run: " in done.stdout
    lines = [json.loads(line) for line in times.read_text(encoding="utf-8").splitlines()]
    assert [line["outcome"] for line in lines] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("ci", "night", "outcome"), [("", "", "1 passed, 1 skipped"), ("true", "1", "1 failed, 2 passed")]
)
def test_a_skip_is_a_failure_in_ci_and_a_long_proof_is_left_to_the_night(
    tmp_path: Path, ci: str, night: str, outcome: str
) -> None:
    done = pytest_on(tmp_path, "-k", "not hangs", CI=ci, KQ_NIGHTLY=night, KQ_PATIENCE="1.5")
    assert outcome in done.stdout
    assert ("in CI that is a failure" in done.stdout) == bool(ci)
    patient = "1.5: how many times longer this run waits than a quiet machine"  # printed with a failure
    assert done.stdout.count(patient) == bool(ci)


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_a_file_that_is_skipped_is_a_failure_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    (tmp_path / "test_file.py").write_text('import pytest\npytest.importorskip("nothing_of_this_name")\n')
    done = pytest_on(tmp_path, "-k", "passes", CI=ci)
    assert outcome in done.stdout
    assert ("in CI that is a failure" in done.stdout) == bool(ci)


HIDES = re.compile(r"pytest\.(?:mark\.)?xfail|suppress\([^()]*\b(?:Base)?Exception\b")
MAY = {
    "tests/faults/test_queue.py": ["pytest.xfail"]
}  # it expects only what tests/faults/cases.py calls known, and why


def test_no_test_drops_every_error_and_only_a_known_fault_is_expected_to_fail() -> None:
    """Ruff's SIM105 and E722 find `except: pass`."""
    assert HIDES.findall("@pytest.mark.xfail(), pytest.xfail(), suppress(OSError, Exception), suppress(OSError)") == [
        "pytest.mark.xfail",
        "pytest.xfail",
        "suppress(OSError, Exception",
    ]
    paths = sorted({*(ROOT / "tests").rglob("*.py")} - {Path(__file__)})
    found = {path.relative_to(ROOT).as_posix(): HIDES.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: what for name, what in found.items() if what} == MAY


MEASURES = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from tests import measured

measured.GONE = 0.5
print(json.dumps(asdict(measured.measured([sys.executable, "-c", sys.argv[1]], Path(), os.environ))))
"""


def measured(code: str) -> Measured:
    """What a Python program took."""
    command = [sys.executable, "-c", MEASURES, code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=WAIT)
    return Measured(**json.loads(done.stdout))


def test_what_a_command_took_counts_its_descendants_and_what_it_left_behind_is_ended() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ntime.sleep(3600)"
    start = f"subprocess.Popen([sys.executable, '-c', {busy!r}], stdout=subprocess.PIPE).stdout.readline()"
    found = measured(f"import subprocess, sys; {start}; sys.exit(7)")
    assert found.code == 7
    if sys.platform == "linux":
        assert found.cpu > 0.3
        assert len(found.left) == 1


def test_the_java_processes_and_the_clusters_of_a_command_are_counted(tmp_path: Path) -> None:
    """Two brokers of one cluster, another Java and a Python; none of them is what its first word says."""
    brokers = [["java", "kafka.Kafka", str(tmp_path / f"broker-{n}" / "server.properties")] for n in (1, 2)]
    census, started = Census(), list[subprocess.Popen[bytes]]()
    census.look()  # this worker may have other ones
    before = census.jvms, len(census.homes)
    try:
        for first, *words in (*brokers, ["java", "org.apache.spark"], ["python", "kafka.Kafka", "x"]):
            waits = [first, "-c", "input()", *words]
            started.append(subprocess.Popen(waits, executable=sys.executable, stdin=subprocess.PIPE))
        census.look()
        census.look()  # each is counted once
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert (census.jvms - before[0], len(census.homes) - before[1]) == (3, 1)


def test_the_table_names_what_failed_and_the_slowest() -> None:
    tests = [{"test": f"t{n}", "seconds": float(n), "outcome": "passed"} for n in range(12)]
    tests.append({"test": "bad", "seconds": 0.5, "outcome": "failed", "why": "line 7: assert 1 == 2\n  where 1 = f()"})
    good = run.Outcome("unit", Measured(0, 1.2, 3.4, 5, 2), tests[:-1])
    bad = run.Outcome("promises", Measured(1, 60, 100), tests[-1:])
    left = run.Outcome("spark", Measured(0, 1, 1, left=("java",)), [])
    words = "\n".join(run._table([good, bad, left]))
    assert [row.split()[:3] for row in words.splitlines()[2:5]] == [
        ["unit", "12", "passed"],
        ["promises", "1", "FAILED"],
        ["spark", "–", "FAILED"],
    ]
    assert "12 passed, 1 failed, 0 skipped" in words
    assert "  11.0 s  t11" in words
    assert "t1\n" not in words
    assert "what failed:\nbad\n    line 7: assert 1 == 2\n      where 1 = f()\n\n" in words
    assert "what failed" not in "\n".join(run._table([good]))


def test_an_unknown_part_is_one_sentence() -> None:
    with pytest.raises(SystemExit, match=r"There is no part 'unti'\. Runs: test, check\. Parts: style"):
        run.main("unti")


@pytest.mark.parametrize(
    ("part", "chromium", "warns"), [("browser", None, True), ("browser", "x", False), ("unit", None, False)]
)
def test_a_run_measures_patience_once_fills_the_cache_and_says_that_chromium_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], part: str, chromium: str | None, warns: bool
) -> None:
    mine = {"KQ_BOOTSTRAP": "mine:9092", "KQ_KAFKA_CONFIG": "mine", "KQ_VERDICTS": "another run's"}
    seen, filled, measured_ = list[dict[str, str]](), list[bool](), iter([1.5])
    for name, value in mine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KQ_PATIENCE", raising=False)
    monkeypatch.setattr(run.patience, "measure", lambda: next(measured_))
    monkeypatch.setattr(run.shutil, "which", lambda _: chromium)
    monkeypatch.setattr(run.signal, "signal", lambda *_: None)
    monkeypatch.setattr(run, "_fill", lambda: filled.append(True))

    def one(part: str, _: Path, environment: dict[str, str]) -> run.Outcome:
        seen.append(environment)
        return run.Outcome(part, Measured(0, 1, 1), [])

    monkeypatch.setattr(run, "_run", one)
    assert run.main(part, "style") == 0
    out = capsys.readouterr().out
    assert ("No Chromium: run .ci/apt.sh" in out) == warns and "patience 3:" in out  # 1.5 × two parts at once
    assert [env["KQ_PATIENCE"] for env in seen] == ["3", "3"] and bool(filled) == (part == "browser")
    assert not [name for name in mine if seen[0].get(name) == mine[name]]


def test_patience_is_never_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ROUND", "pass")
    assert patience.measure() >= 1.0


def test_a_promise_in_seconds_holds_at_its_figure_times_patience(
    within: Callable[..., float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.conftest.PATIENCE", 3.0)
    with pytest.raises(AssertionError, match=r"it did not happen within 0\.03 s"):
        within(0.01, lambda: False)
