"""`kq new`: a project of one's own. Its tests run nightly, with the wheel that `make wheel` builds."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import kqlib as kq
from tests.patience import PATIENCE, WAIT
from tests.unit.cli.conftest import run

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = {
    "service": {"orders", "receipts"},
    "two-sports": {"football", "basketball", "notifications", "events", "events.bad", "events.late", "standings"},
}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
BUILD = ["--no-deps", "--no-build-isolation"]


def compare(project: Path) -> dict[str, Any]:
    """The step of the project's CI that compares the plan with the cluster."""
    steps = yaml.safe_load((project / ".github/workflows/test.yml").read_text())["jobs"]["test"]["steps"]
    [found] = [step for step in steps if "kq topics diff plan.toml" in step.get("run", "")]
    assert isinstance(found, dict)
    return found


def compared(project: Path, env: dict[str, str]) -> int:
    """What that step's commands exit with, as a runner starts them."""
    return subprocess.run(["bash", "-e", "-c", compare(project)["run"]], cwd=project, env=env, check=False).returncode


@pytest.mark.parametrize(("template", "topics"), TEMPLATES.items())
def test_a_new_project_has_its_directory_s_name_and_all_files_of_the_template(
    template: str, topics: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "receipts"
    assert run("new", template, str(place)) == 0
    made = {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}
    assert capsys.readouterr().out.splitlines()[:2] == [f"Made {len(made)} files in {place}. Next:", f"  cd {place}"]
    assert {
        "worker.py",
        "plan.toml",
        "pyproject.toml",
        "README.md",
        ".gitignore",
        ".github/workflows/test.yml",
    } < made.keys()
    assert {"schemas", "tests"} < {path.name for path in place.iterdir()}
    assert 'name = "receipts"' in made["pyproject.toml"]
    assert not any(f"new-{template}" in text or "workshop" in text for text in made.values())
    assert set(kq.Plan.read(place / "plan.toml").topics) == topics
    assert made[".github/workflows/test.yml"] == (ROOT / "data/new/service/.github/workflows/test.yml").read_text()
    assert compare(place)["if"].startswith("vars.KQ_BOOTSTRAP && ")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("servise", "receipts"), "there is no template 'servise'; did you mean service?"),
        (("two-sport", "league"), "there is no template 'two-sport'; did you mean two-sports?"),
        (("web", "receipts"), "there is no template 'web'; there is service, two-sports"),
        (("service", "My Box"), "'My Box' cannot be a project's name: use a-z, 0-9 and '-', and begin with a letter"),
        (("service", "full"), "full is there already, and not empty: nothing was written"),
    ],
)
def test_what_cannot_be_made_is_a_sentence_and_nothing_is_written(
    typed: tuple[str, str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert run("new", *typed) == 2
    assert capsys.readouterr().err.startswith(f"kq: {words}")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.txt"]


@pytest.mark.parametrize("path", ["data/new/two-sports/events.py", "notebooks/solutions/15_two_sports.py"])
def test_a_thread_whose_registry_answers_late_takes_no_newer_schema_from_the_others(path: str) -> None:
    asked, second = threading.Event(), threading.Event()

    def codec(subject: str) -> Any:
        version = 2 if asked.is_set() else 1
        asked.set()
        second.wait(0.2 if version == 1 else 0)  # the first answer is the last to arrive, if nothing prevents it
        return SimpleNamespace(decode=lambda data: version)

    reader = runpy.run_path(str(ROOT / path))["reader"]
    registry = SimpleNamespace(codec=codec)
    read = reader(registry, "events") if "solutions" in path else reader(registry)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(read, b"\0\0\0\0\1.")
        assert asked.wait(WAIT)
        assert read(b"\0\0\0\0\2.") == 2
        second.set()
        first.result()
    assert read(b"\0\0\0\0\2.") == 2


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    copy, wheels = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheels")
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    subprocess.run([*PIP, "wheel", *BUILD, "--wheel-dir", str(wheels), str(copy)], check=True)
    [built] = wheels.glob("kqlib-*.whl")
    return built


@pytest.mark.limit(600)
@pytest.mark.nightly  # a wheel is built and installed, a worker is killed at its requests, and Spark runs
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_s_tests_pass_with_the_wheel_on_an_embedded_broker_and_on_a_named_one(
    template: str, wheel: Path, tmp_path: Path
) -> None:
    venv, project = tmp_path / "venv", tmp_path / "receipts"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    [others] = venv.glob("lib/python*/site-packages")
    # what kqlib and the project need, without this kqlib
    (others / "others.pth").write_text(str(Path(pytest.__file__).parents[1]))
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", str(wheel)], check=True)
    kq_ = [python, "-I", str(venv / "bin" / "kq")]
    subprocess.run([*kq_, "new", template, str(project)], cwd=tmp_path, check=True)
    subprocess.run([*PIP, "--python", python, "install", *BUILD, "--editable", str(project)], check=True)
    with kq.Cluster() as cluster:
        named = {**os.environ, "KQ_BOOTSTRAP": cluster.bootstrap}
        for env in (os.environ, named):
            begun = time.monotonic()
            subprocess.run([python, "-m", "pytest", "-q"], cwd=project, env=env, check=True)
            assert time.monotonic() - begun < 180 * PATIENCE
        path = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
        runner = {**named, "PATH": path, "KQ_KAFKA_CONFIG": str(tmp_path / "client.properties"), "KQ_LOGIN": ""}
        assert compared(project, runner) == 1
        kq.Plan.read(project / "plan.toml").apply(cluster, quiet=True)
        assert compared(project, runner) == 0
