"""Verdicts of one test run: a queue is tried once, and not again by each notebook that shows it.

In:  queues by name, promises, and the function that tries them; the directory named by KQ_VERDICTS.
Out: a `Verdict` for each queue and promise. Without KQ_VERDICTS nothing is stored or read: every table comes from a real run.

Each queue has a file with its verdicts. The file's name is the sha256 of all that they depend on: kqlib's own files (the queue and the
checks among them), the two locks, Java, Python, the client and the factory. So a verdict of other code is never found. Not stored are
- a queue that is not defined in kqlib: the code that it uses cannot be known in full;
- a ✗ after a call that was not answered in time: the cause may be the cluster or a busy machine.
One process at a time tries a queue. Another one that wants its verdicts waits.
"""

from __future__ import annotations

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
from kqlib.runtime.places import locked, write_atomic
from kqlib.workshop.promises.values import Verdict
from kqlib.workshop.view.deliveries import Delivery

KQLIB = Path(__file__).resolve().parents[2]
CODE = {".py", ".lock", ".properties"}

Pair = tuple[str, str]  # a queue and a promise, by their names
Score = Callable[[list[Pair]], dict[Pair, Verdict]]


def verdicts(
    queues: Mapping[str, tuple[Callable[..., Any], bytes]], pairs: list[Pair], score: Score
) -> dict[Pair, Verdict]:
    """A verdict for each pair: the stored one, else from `score`. queues: a factory, and the same as it travels."""
    if not (named := os.environ.get("KQ_VERDICTS")):
        return score(pairs)
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    files = {queue: folder / name for queue, each in queues.items() if (name := file_name(*each))}
    with ExitStack() as locks:
        for file in sorted(set(files.values())):  # in one order, so that no two processes wait for each other
            locks.enter_context(locked(file.with_suffix(".lock")))
        stored = {queue: _read(file) for queue, file in files.items()}
        found = {(queue, name): verdict for queue, each in stored.items() for name, verdict in each.items()}
        left = [pair for pair in pairs if pair not in found]
        if left:
            found |= score(left)
        for queue, file in files.items():
            new = {name: found[each, name] for each, name in pairs if each == queue}
            kept = {name: verdict for name, verdict in new.items() if verdict.answered or verdict.kept is not False}
            _write(file, _read(file) | kept)  # a queue of another name may have the same file, and just wrote it
    return {pair: found[pair] for pair in pairs}


def file_name(factory: Callable[..., Any], packed: bytes) -> str:
    """The name of a queue's file. Empty for one that is not stored."""
    home = factory.__module__ if isinstance(factory, type) else type(factory).__module__
    return hashlib.sha256(b"\0".join([_ground(), packed])).hexdigest() if home.startswith("kqlib.") else ""


def _ground() -> bytes:
    """The hash of all that every verdict depends on."""
    from confluent_kafka import libversion, version

    files = sorted(file for file in KQLIB.rglob("*") if file.suffix in CODE)
    return digest(files, f"{sys.version} {version()} {libversion()} {java.find()}".encode())


def digest(files: Sequence[Path], *more: bytes) -> bytes:
    """The hash of these files and their names, of the lock, of the Java that is used, and of what else is given."""
    release = java.find().home / "release"
    parts = [*more, release.read_bytes() if release.exists() else b""]
    for file in (*files, KQLIB.parent / "requirements.lock"):
        parts += [str(file.relative_to(KQLIB.parent)).encode(), file.read_bytes()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _read(file: Path) -> dict[str, Verdict]:
    """A queue's stored verdicts."""
    found = {}
    for name, stored in json.loads(file.read_text(encoding="utf-8")).items() if file.exists() else ():
        stored["deliveries"] = tuple(Delivery(**each) for each in stored["deliveries"])
        found[name] = Verdict(**stored)
    return found


def _write(file: Path, verdicts: Mapping[str, Verdict]) -> None:
    write_atomic(file, json.dumps({name: asdict(verdict) for name, verdict in verdicts.items()}))
