"""Verdicts of one test run: a queue is tried once, and not again by each notebook that shows it.

In:  pairs of a queue and a promise, and the function that tries them; the directory named by KQ_VERDICTS.
Out: a `Verdict` for each pair. Without KQ_VERDICTS nothing is stored or read: every table comes from a real run.

The file name is the sha256 of all that a verdict depends on: kqlib's own files (the queue and the checks among them), the two locks,
Java, Python, the client, the factory and the promise. A verdict of other code is never found. Not stored are
- a queue that is not defined in kqlib: the code that it uses cannot be known in full;
- a ✗ after a call that was not answered in time: the cause may be the cluster or a busy machine.
Of two processes that want the same verdict one tries the queue, and the other waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kqlib.runtime import java
from kqlib.runtime.places import write_atomic
from kqlib.workshop.promises.values import Verdict
from kqlib.workshop.view.deliveries import Delivery

KQLIB = Path(__file__).resolve().parents[2]
CODE = {".py", ".lock", ".properties"}

Pair = tuple[str, str]  # a queue and a promise, by their names


def verdicts(
    keys: Mapping[Pair, str | None], score: Callable[[list[Pair]], dict[Pair, Verdict]]
) -> dict[Pair, Verdict]:
    """A verdict for each pair: the stored one, else from `score`. keys: from `keys`; None is never stored."""
    if not (named := os.environ.get("KQ_VERDICTS")):
        return score(list(keys))
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[Pair, Verdict] = {}
    while left := {pair: key for pair, key in keys.items() if pair not in found}:
        with ExitStack() as locks:
            mine = [pair for pair, key in left.items() if key is None or _locked(locks, folder / key, wait=False)]
            if not mine:  # other processes try all of them now
                mine = list(left)[:1]
                _locked(locks, folder / str(left[mine[0]]), wait=True)
            stored = {pair: known for pair in mine if (known := _read(folder, left[pair])) is not None}
            new = score(unknown) if (unknown := [pair for pair in mine if pair not in stored]) else {}
            for pair, verdict in new.items():
                if (name := left[pair]) and (verdict.answered or verdict.kept is not False):
                    write_atomic(folder / name, json.dumps(asdict(verdict)))
            found |= stored | new
    return {pair: found[pair] for pair in keys}


def keys(queues: Mapping[str, tuple[Callable[..., Any], bytes]], promises: Sequence[str]) -> dict[Pair, str | None]:
    """The file name of each verdict; None for one that is not stored. queues: a factory, and the same as it travels."""
    ground = _ground() if os.environ.get("KQ_VERDICTS") else b""
    found: dict[Pair, str | None] = {}
    for queue, (factory, packed) in queues.items():
        home = factory.__module__ if isinstance(factory, type) else type(factory).__module__
        for promise in promises:
            whole = hashlib.sha256(b"\0".join([ground, packed, promise.encode()])).hexdigest()
            found[queue, promise] = whole if ground and home.startswith("kqlib.") else None
    return found


def _ground() -> bytes:
    """The hash of all that every verdict depends on."""
    from confluent_kafka import libversion, version

    files = sorted(file for file in KQLIB.rglob("*") if file.suffix in CODE)
    used = java.find()
    release = used.home / "release"
    parts = [
        f"{sys.version} {version()} {libversion()} {used}".encode(),
        release.read_bytes() if release.exists() else b"",
    ]
    for file in (*files, KQLIB.parent / "requirements.lock"):
        parts += [str(file.relative_to(KQLIB.parent)).encode(), file.read_bytes()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _locked(locks: ExitStack, name: Path, wait: bool) -> bool:
    """Lock this verdict until `locks` is closed. False: another process has the lock, and `wait` is not set."""
    file = name.with_suffix(".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        file.close()
        return False
    except BaseException:  # Ctrl-C while it waits
        file.close()
        raise
    locks.enter_context(file)  # closing it unlocks it; the system does so when the process is killed
    return True


def _read(folder: Path, name: str | None) -> Verdict | None:
    """A stored verdict."""
    if name is None or not (file := folder / name).exists():
        return None
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["deliveries"] = tuple(Delivery(**each) for each in stored["deliveries"])
    return Verdict(**stored)
