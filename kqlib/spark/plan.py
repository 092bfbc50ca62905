"""What a stream would read if it started now, and the state that it would find. It starts no Spark and changes nothing.

In:  a cluster, the directory of a stream, its topics. Out: `Plan`; `NotAllowed` where the stream itself would be refused, as when the
directory is not theirs, records are gone, or Parquet files of the standings are.

Spark writes offsets/N before batch N and commits/N after it. So the stream goes on at the offsets of the last committed batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka, reading
from kqlib.spark import snapshot


@dataclass(frozen=True, repr=False)
class Plan:
    """Where a stream would go on. done: its last committed batch; again: the next one was begun and comes again."""

    source: str
    home: str
    done: int | None
    again: bool
    offsets: Mapping[int, tuple[int, int]]  # by partition: the next offset and the end of the log

    def __repr__(self) -> str:
        state = "no batch is committed" if self.done is None else f"batch {self.done} is committed"
        if self.again:
            state += ", the next one was begun and comes again"
        lines = [f"state {self.home}: {state}"]
        for number, (begin, end) in sorted(self.offsets.items()):
            lines.append(f"{self.source}/{number} from offset {begin:,} to {end:,}: {end - begin:,} records")
        return "\n".join(lines)


def plan(cluster: Kafka, home: str, source: str, target: str, *, tables: bool = False) -> Plan:
    """What the stream from `source` to `target` would do with this directory. tables: it keeps standings there."""
    path = local(home) / "checkpoint"
    begun, done = _newest(path / "offsets"), _newest(path / "commits")
    noted = snapshot.LocalFiles(str(path.parent)).read(snapshot.FILE)
    if noted is not None or any(path.glob("*")) or any((path.parent / "current").glob("*")):
        snapshot.check_owner(home, noted, snapshot.identity(cluster, source, target, keyed=tables))
    if tables:
        snapshot.Snapshot(None, str(path.parent)).check()
    saved = {} if done is None else _offsets(path / "offsets" / str(done), source)
    offsets = {}
    for (_, number), (low, end) in reading.bounds(cluster, source).items():
        begin = saved.get(number, low)
        if begin < low:
            raise NotAllowed(
                f"'{source}', partition {number} was read up to offset {begin} and begins at {low} now: retention has deleted "
                f"{low - begin} records before they were read, and the stream would refuse to go on. {snapshot.ANEW}"
            )
        offsets[number] = (begin, end)
    again = begun is not None and (done is None or begun > done)
    return Plan(source, home, done, again, offsets)


def local(home: str) -> Path:
    """The directory on this machine; `NotAllowed` if it is on another file system."""
    snapshot.checkpoint(home)
    if home.startswith("file:"):
        return Path(urlsplit(home).path)
    if "://" in home:
        raise NotAllowed(
            f"{home} is not a directory of this machine, and only such a directory can be read without Spark"
        )
    return Path(home)


def _newest(folder: Path) -> int | None:
    """The highest batch in a folder of the checkpoint; files with other names are being written."""
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=None)


def _offsets(file: Path, source: str) -> dict[int, int]:
    """The offsets at which a batch ended: the last line of Spark's file."""
    try:
        parts = json.loads(file.read_text().splitlines()[-1])[source]
        return {int(number): offset for number, offset in parts.items()}
    except (OSError, ValueError, IndexError, KeyError, TypeError, AttributeError):
        raise NotAllowed(f"{file} is lost or cut, so it is unknown where the stream goes on. {snapshot.ANEW}") from None
