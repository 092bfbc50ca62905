"""An environment with kqlib and confluent-kafka alone, as `pip install kqlib` makes it.

In:  words for Python. Out: what it printed. Nothing is fetched: the two packages are linked into an empty folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka

import kqlib

CLIENT = Path(confluent_kafka.__file__).parent


def alone(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` there."""
    for package in (CLIENT, *CLIENT.parent.glob("confluent_kafka.libs"), Path(kqlib.__file__).parent):
        if not (folder / package.name).exists():
            (folder / package.name).symlink_to(package)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KQ_", "PYTHON"))}
    mine = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "KQ_CACHE": str(folder / "cache")}
    command = [sys.executable, "-S", *words]  # -S: no site-packages
    return subprocess.run(command, env=kept | mine | env, capture_output=True, text=True, check=False)
