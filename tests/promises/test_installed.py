"""The wheel and the sdist in clean environments of every Python: without extras, with each extra, with all.

Packages come from the index, in the newest versions that pyproject.toml allows: what `pip install` brings to a user today. A Python
that is not on PATH or in pyenv fails. With the wheel each extra is used. The sdist's wheel has the same files, so there it is enough
that everything installs and fits together. All of it is nightly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nightly.pythons import PYTHONS, interpreter

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
UV = str(Path(sys.executable).with_name("uv"))

CORE = """
import kqlib as kq
from kqlib import DrupalQueue, Plan, QueueTopic, Retry, ShareQueue, Site
assert kq.keys.spread([b"a", b"b"], 2)
"""
AVRO = """
import kqlib as kq
schema = {"type": "record", "name": "Game", "fields": [{"name": "game", "type": "string"}]}
codec = kq.schemas.Registry().codec("games-value", schema)
assert codec.decode(codec.encode({"game": "ARS-CHE"})) == {"game": "ARS-CHE"}
"""
SPARK = """
import kqlib as kq
spark = kq.spark.session()
assert spark.range(3).count() == 3
"""
VIRTUAL = """
import kqlib as kq
from kqlib.virtual import Client, Node
"""
LAB = """
import kqlib as kq
from IPython.display import display
import jupyterlab, ipywidgets, matplotlib, pandas
with kq.Cluster() as cluster, kq.Site(cluster, "site") as site:
    kq.Plan({"games": kq.QueueTopic(partitions=1)}).apply(cluster, quiet=True)
    queue = site.queue("games")
    queue.put(b"ARS-CHE")
    item = queue.claim(wait=60)
    assert item.data == b"ARS-CHE"
    queue.ack(item)
"""
ALL = f"""{AVRO}{LAB}
with kq.Cluster() as cluster:
    kq.Plan({{"games": kq.QueueTopic(partitions=1)}}).apply(cluster, quiet=True)
    with kq.Site(cluster, "site") as site:
        site.queue("games").put(b"ARS-CHE")
    spark = kq.spark.session(cluster)
    assert kq.spark.items(spark, cluster, "games").count() == 1
    kq.Plan(kq.virtual.topics("small", partitions=1)).apply(cluster, quiet=True)
    with kq.virtual.Node(cluster, "small") as node, kq.virtual.Client(node.url) as client:
        queue = client.queue("games")
        queue.put(b"ARS-CHE")
        assert queue.claim(wait=60).data == b"ARS-CHE"
"""
USE = {
    "": CORE,
    "avro": AVRO,
    "virtual": VIRTUAL,
    "spark": SPARK,
    "lab": LAB,
    "all": ALL,
    "test": "import kqlib, hypothesis, nbval, psutil, pytest, xdist, schemathesis",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist of what is under version control, and the wheel of that directory."""
    place = tmp_path_factory.mktemp("built")
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")[:-1]:
        (place / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place / "copy" / name)
    for kind in ("wheel", "sdist"):
        run(UV, "build", f"--{kind}", "--out-dir", str(place), str(place / "copy"))
    [wheel], [sdist] = place.glob("*.whl"), place.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def run(*words: str, **env: str) -> None:
    """A command; what it printed, if it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(words, env=kept | env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[1:4])} … {done.stdout[-500:]}{done.stderr[-1500:]}")


def test_each_extra_is_tried() -> None:
    assert set(USE) == {"", *EXTRAS}


def test_the_wheel_of_the_sdist_has_the_same_files(built: dict[str, Path], tmp_path: Path) -> None:
    run(UV, "build", "--wheel", "--out-dir", str(tmp_path), str(built["sdist"]))
    [again] = tmp_path.glob("*.whl")

    def files(wheel: Path) -> dict[str, int]:
        return {each.filename: each.CRC for each in zipfile.ZipFile(wheel).infolist()}

    assert files(again) == files(built["wheel"]) and len(files(again)) > 250


@pytest.mark.limit(1200)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
@pytest.mark.parametrize("version", PYTHONS)
def test_every_extra_installs_into_a_clean_environment_and_works(
    version: str, kind: str, built: dict[str, Path], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    found = interpreter(version)
    assert found, f"there is no Python {version} on PATH or in pyenv"
    wrong = {}
    for extra, code in USE.items():
        place = tmp_path / (extra or "base")
        python = str(place / "bin" / "python")
        asked = f"kqlib[{extra}] @ {built[kind].as_uri()}" if extra else str(built[kind])
        try:
            run(UV, "venv", "--python", str(found), str(place))
            run(UV, "pip", "install", "--python", python, asked)
            run(UV, "pip", "check", "--python", python)
            run(str(place / "bin" / "kq"), "--help")
            run(python, "-I", "-c", code if kind == "wheel" else CORE, KQ_STATE=str(tmp_path / "state"))
        except RuntimeError as error:
            wrong[extra or "base"] = str(error)
        shutil.rmtree(place, ignore_errors=True)
    assert not wrong, "\n".join(f"--- {extra}: {why}" for extra, why in wrong.items())
