"""Where the time of claims and acks goes: a flame picture of both threads, the costliest functions, and requests for each batch.

In:  nothing. Out: `measured()`: one round, {what: figure}, and build/profile.svg. Only when named: `python -m bench 1 profile`.

py-spy looks at this process from outside, from an environment of its own under build/peers. Where it cannot be installed or may not
look, cProfile writes build/profile-THREAD.txt for each of the two threads instead. The broker's own metrics count the requests.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.broker import KINDS, filled, requests
from bench.shapes import ours, run
from kqlib.queue import session

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
PARTITIONS, BATCH, ITEMS, SENT = 4, 2_000, 600_000, 100


def measured() -> dict[str, float]:
    """One round."""
    topic = filled("bench-profile", ITEMS, PARTITIONS, SENT)
    before = requests()
    looks = _spy()
    done, batches, _ = run(ours(topic, BATCH), ITEMS * 9 // 10)
    sent = requests() - before
    if looks is None or looks.wait(60):
        _profiled(topic)
    return {
        "items of a batch": done / batches,
        **{f"{kind} requests for each batch, with the joining": sent[kind] / batches for kind in KINDS},
    }


def _profiled(topic: str) -> None:
    """By cProfile, which sees one thread at a time: the caller's, then the session's."""
    whole = session.Session._run
    for thread in ("caller", "session"):
        profile = cProfile.Profile()
        watched: Any = lambda self, profile=profile: profile.runcall(whole, self)  # noqa: E731
        with patch.object(session.Session, "_run", watched if thread == "session" else whole):
            work = partial(run, ours(topic, BATCH), ITEMS // 2)
            _ = profile.runcall(work) if thread == "caller" else work()
        with (BUILD / f"profile-{thread}.txt").open("w") as out:
            pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(40)


def _spy() -> subprocess.Popen[bytes] | None:
    """py-spy, which looks at this process for some seconds; None if that cannot be."""
    home = BUILD / "peers" / "py-spy"
    pip = [home / "bin" / "python", "-m", "pip", "install", "-q", "-r", Path(__file__).parent / "peers" / "py-spy.txt"]
    try:
        if not (home / "bin" / "py-spy").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, capture_output=True)
            subprocess.run(pip, check=True, capture_output=True)
        command = [home / "bin" / "py-spy", "record", "-p", str(os.getpid()), "-o", BUILD / "profile.svg", "-t"]
        return subprocess.Popen(
            [*command, "-d", "2", "-r", "500"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as why:
        print(f"py-spy is not here ({why}): cProfile instead", file=sys.stderr)
        return None
