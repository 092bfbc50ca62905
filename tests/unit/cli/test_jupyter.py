"""`kq lab` without a browser: which notebook, which settings, and what goes on to JupyterLab."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kqlib.runtime import places
from kqlib.workshop.cluster import up
from tests.unit.cli.conftest import OTHERS, run


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("", "my/00-start-here.ipynb"),
        ("3", "my/03-keys.ipynb"),
        ("12-spark-pipeline", "my/12-spark-pipeline.ipynb"),
        ("notebooks/03-keys.ipynb", "notebooks/03-keys.ipynb"),
        ("drafts/mine.ipynb", "drafts/mine.ipynb"),
    ],
)
def test_lab_opens_the_notebook_that_is_meant(asked: str, meant: str, checkout: Path, started: list[Any]) -> None:
    assert run("lab", *([asked] if asked else [])) == 0
    assert f"--LabApp.default_url=/lab/tree/{meant}" in started[1]
    assert f"--ServerApp.root_dir={checkout}" in started[1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("7", "there is no notebook '7' in this checkout; there are 00-start-here, 03-keys, 12-spark-pipeline"),
        ("03-kesy", "there is no notebook '03-kesy' in this checkout; did you mean 03-keys?"),
        ("../outside.ipynb", "there is no notebook '../outside.ipynb' in this checkout"),
    ],
)
def test_a_notebook_that_is_not_there_is_named(
    asked: str, words: str, checkout: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("lab", asked) == 2
    assert capsys.readouterr().err.startswith(f"kq: {words}")
    assert started == []


def test_without_a_checkout_lab_makes_a_directory_of_what_the_wheel_carries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    notebooks = tmp_path / "prefix" / "share" / "kqlib" / "notebooks"
    (notebooks / "solutions").mkdir(parents=True)
    (notebooks / "00-start-here.ipynb").write_text('{"cells": []}')
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(places, "repo", lambda: None)
    monkeypatch.chdir(tmp_path)
    for _ in "12":  # the second time finds it there
        assert run("lab") == 0
    assert capsys.readouterr().out.splitlines() == [f"The notebooks are in {tmp_path}/kqlib-notebooks."] * 2
    assert f"--ServerApp.root_dir={tmp_path}/kqlib-notebooks" in started[1]
    assert (tmp_path / "kqlib-notebooks" / "my" / "00-start-here.ipynb").is_file()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("kqlib.runtime.places.repo", "The notebooks are not here: go into the checkout"),
        ("kqlib.workshop.jupyter.find_spec", "JupyterLab is not installed for this Python"),
    ],
)
def test_lab_says_what_is_missing(
    what: str,
    words: str,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(what, lambda *_: None)
    assert run("lab") == 2
    err = capsys.readouterr().err
    assert words in err
    assert "`make lab`" in err


@pytest.mark.parametrize(
    ("typed", "there", "absent"),
    [
        ("", ["--ServerApp.ip=127.0.0.1"], ["--no-browser"]),
        ("--no-browser", ["--no-browser"], []),
        ("03 -- --port=9999 --x", ["--port=9999", "--x"], ["--"]),
        ("-- --ip=0.0.0.0", ["--ip=0.0.0.0"], ["--ServerApp.ip=127.0.0.1"]),
        ("-- --allow-root", ["--allow-root"], ["--ServerApp.allow_root=True"]),
    ],
)
def test_what_follows_the_dashes_goes_to_jupyter_and_overrules(
    typed: str, there: list[str], absent: list[str], checkout: Path, started: list[Any]
) -> None:
    assert run("lab", *typed.split()) == 0
    program, words, _ = started
    assert words[:4] == [program, "-P", "-m", "jupyterlab"]
    assert [word for word in there if word not in words] == []
    assert [word for word in absent if word in words] == []


def test_kernels_start_from_the_checkouts_settings_and_find_kq(
    checkout: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/mine")
    monkeypatch.setenv("PATH", "/usr/bin")
    run("lab")
    env = started[2]
    assert env["IPYTHONDIR"] == str(checkout / ".ipython")
    assert env["JUPYTER_CONFIG_PATH"] == f"{checkout / '.jupyter'}{os.pathsep}/mine"
    assert env["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"
    assert env["KQ_STATE"] == os.environ["KQ_STATE"]


@pytest.mark.parametrize("writable", [True, False])
def test_jupyter_writes_beside_our_state_where_it_may_not_write_into_the_home(
    writable: bool, checkout: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: writable or path != Path.home())
    run("lab")
    written = [started[2].get(name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")]
    beside = str(Path(os.environ["KQ_STATE"]) / "jupyter")
    assert (beside in written) != writable


def test_lab_says_which_cluster_notebooks_will_use(
    checkout: Path,
    started: list[Any],
    holder: up.Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("lab")
    assert capsys.readouterr().err == 'The cluster of `kq up` is used by notebooks only after: eval "$(kq up)"\n'
    monkeypatch.setenv("KQ_BOOTSTRAP", OTHERS)
    run("lab")
    assert capsys.readouterr().err == f"Notebooks will use the cluster at {OTHERS} (KQ_BOOTSTRAP).\n"
