"""`kq` where this user may not write: a sentence says what to do. Root gives up its right to ignore modes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BOUND = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
KQ = "import sys; from pathlib import Path; from kqlib.command import main; from kqlib.runtime import places\n"
HERE = "places.repo = lambda: Path.cwd()\n"
pytestmark = pytest.mark.skipif(bool(BOUND) and not shutil.which("setpriv"), reason="root ignores modes here")


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A directory of which this user may read everything; it has a checkout, a state and a cache in it."""
    place = tmp_path / "another's"
    for name in ("checkout/notebooks", "checkout/my", "empty", "state", "cache/jars", "cache/java"):
        (place / name).mkdir(parents=True)
    (place / "checkout/notebooks/00-start-here.ipynb").write_text('{"cells": []}')
    for each in (place, *place.rglob("*")):
        each.chmod(each.stat().st_mode & 0o555)
    return place


def typed(program: str, *words: str, cwd: Path, **more: object) -> tuple[int, str]:
    """The exit status and stderr of this program with these arguments, for a user who must keep to the modes of files."""
    env = os.environ | {name: str(value) for name, value in more.items()}
    command = [*BOUND, sys.executable, "-c", program, *words]
    ran = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("words", [["lab"], ["lab", "notebooks/00-start-here.ipynb"], ["lab", "--update"]])
def test_lab_in_another_users_checkout_says_to_make_a_checkout_of_ones_own(words: list[str], locked: Path) -> None:
    at = locked / "checkout"
    ended = typed(f"{KQ}{HERE}sys.exit(main.main())", *words, cwd=at)
    assert ended == (
        2,
        f"kq: you may not write into {at / 'my'}, where `kq lab` keeps your notebooks. Nothing was changed. Clone kqlib "
        "into a directory of your own, and type `make lab` there\n",
    )


@pytest.mark.parametrize(
    ("words", "variable", "file"),
    [
        (["status"], "KQ_STATE", "state/up.lock"),
        (["up"], "KQ_STATE", "state/up.lock"),
        (["up"], "KQ_CACHE", "cache/jars/fetching.lock"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_with_the_variable_that_moves_it(
    words: list[str], variable: str, file: str, locked: Path, tmp_path: Path
) -> None:
    places = {
        "KQ_STATE": tmp_path / "state",
        "KQ_CACHE": tmp_path / "cache",
        variable: (locked / file).parents[file.count("/") - 1],
    }
    ended = typed(f"{KQ}sys.exit(main.main())", *words, cwd=tmp_path, **places)
    sentence = f"kq: {locked / file}: Permission denied. Let {variable} name a directory that you may write to; see kq doctor\n"
    assert ended == (2, sentence)


def test_the_process_that_holds_the_cluster_says_so_too(locked: Path, tmp_path: Path) -> None:
    holder = "import runpy; runpy.run_module('kqlib.workshop.cluster.up', run_name='__main__')"
    ended = typed(holder, "1", cwd=tmp_path, KQ_STATE=tmp_path, KQ_CACHE=locked / "cache")
    words = "Permission denied. Let KQ_CACHE name a directory that you may write to"
    assert ended == (1, f"{locked}/cache/jars/fetching.lock: {words}\n")


def test_doctor_names_the_variable_and_does_not_send_to_itself(locked: Path, tmp_path: Path) -> None:
    program = f"{KQ}from kqlib.workshop import doctor\ndoctor.findings = lambda: []\nsys.exit(main.main())"
    ended = typed(program, "doctor", cwd=tmp_path, KQ_STATE=locked / "state")
    words = "Permission denied. Let KQ_STATE name a directory that you may write to"
    assert ended == (2, f"kq: {locked}/state/up.lock: {words}\n")
