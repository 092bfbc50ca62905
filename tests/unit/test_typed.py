"""What type checkers say of a program that uses kqlib: mypy and pyright, both strict."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kqlib

PROGRAM = """\
import kqlib as kq
from kqlib.virtual.client import Client

def program(site: kq.Site, share: kq.ShareQueue, client: Client) -> None:
    queue, virtual = site.queue("football"), client.queue("football")
    worked = queue.work(print, threads=2, retry=kq.Retry(), until="empty", ahead=1)
    share.work(print, until=3.0)
    virtual.work(print, until=lambda: True, ahead=1)
    queue.work(print, untill="empty")
    share.work(print, untill="empty")
    virtual.work(print, untill="empty")
    queue.work(print, until=["empty"])
    print(worked.dunn)
"""

SAMPLE = """\
# pyright: strict
import kqlib as kq
from kqlib.queue import Item, Queue
from kqlib.virtual.client import Client


def handle(item: Item) -> None:
    print(item.data, item.attempt, item.headers)


def program(site: kq.Site, share: kq.ShareQueue, client: Client) -> None:
    queue: Queue = site.queue("football", lease=30, max_attempts=5)
    queue.put(b"1:0", b"ARS-CHE")
    queue.put_many([(b"a", None), kq.Put(b"b", delay=3)])
    if item := queue.claim(wait=5):
        queue.ack(item)
    for each in queue.claim_many(10):
        queue.release(each, delay=1)
    worked = queue.work(handle, threads=2, retry=kq.Retry(), until="empty", ahead=1)
    print(worked.done, queue.depth(), queue.blocked)
    share.work(print, until=3.0)
    client.queue("a").work(print, until=lambda: True)


with kq.connect() as cluster, kq.Site(cluster, "a") as opened:
    print(opened.queue("x").depth())
"""


def test_mypy_strict_refuses_a_misspelt_argument_of_work_and_accepts_a_program_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(PROGRAM)
    (tmp_path / "program.py").write_text(SAMPLE)
    root = Path(kqlib.__file__).parents[1]  # what lasts from run to run
    own = {"MYPYPATH": str(root), "MYPY_CACHE_DIR": str(root / ".mypy_cache" / "typed")}
    options = ["--strict", "--no-site-packages", "--config-file=", "--follow-imports=silent"]
    command = [sys.executable, "-m", "mypy", *options, "wrong.py", "program.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=False)
    answer = [line for line in ran.stdout.splitlines() if ": error:" in line]
    lines = [line.partition(": error:")[0] for line in answer]
    assert lines == [f"wrong.py:{number}" for number in range(9, 14)], ran.stdout + ran.stderr
    assert all('Unexpected keyword argument "untill"' in line for line in answer[:3])


@pytest.mark.nightly
def test_pyright_strict_accepts_a_program_of_a_user(tmp_path: Path) -> None:
    """In an environment of its own: it brings a Node.js."""
    (tmp_path / "program.py").write_text(SAMPLE)
    python = tmp_path / "own" / "bin" / "python"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
    subprocess.run([uv, "venv", "--quiet", python.parents[1]], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "pyright[nodejs]==1.1.414"], check=True)
    command = [python.with_name("pyright"), "--pythonpath", sys.executable, "program.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "0 errors" in ran.stdout, ran.stdout + ran.stderr
