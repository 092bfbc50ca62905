"""What a type checker says of a program that uses kqlib: `mypy --strict` knows the arguments of the verbs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_mypy_strict_refuses_a_misspelt_argument_of_work(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    root = Path(kqlib.__file__).parents[1]  # what lasts from run to run
    own = {"MYPYPATH": str(root), "MYPY_CACHE_DIR": str(root / ".mypy_cache" / "typed")}
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-site-packages",
        "--config-file=",
        "--follow-imports=silent",
        "program.py",
    ]
    ran = subprocess.run(command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=False)
    answer = {int(line.split(":")[1]): line for line in ran.stdout.splitlines() if ": error:" in line}
    assert list(answer) == [9, 10, 11, 12, 13], ran.stdout + ran.stderr
    assert all('Unexpected keyword argument "untill"' in answer[line] for line in (9, 10, 11))
