"""What a stream has come to, as Parquet: a directory a batch, and a file that says that it is whole.

In:  a batch's number and its frames. Out: the frames of the batch before; a snapshot that is whole or not there.

    home/current/12          {"games": [files, bytes], "teams": …}: appears in one step when batch 12 is whole; the highest counts
    home/games/batch=12/     Parquet
    home/teams/batch=12/
    home/checkpoint/         Spark's own: which offsets a batch has

Batch 12 goes on from batch 11, whose file and directories must be there as they were written. What is lost or cut is refused: going on
without it would give wrong standings. A batch that comes again after a crash first deletes its own file in `current`, and then does
everything again from the same batch before. Only the two newest batches stay. `current` is not one file that is replaced: Hadoop
deletes the old one before the new one is there. Any file system of Hadoop's will do; on a cluster it must be one that all share.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.spark.checkpoint import ANEW
from kqlib.spark.files import Files
from kqlib.spark.table import GAMES, TEAMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = {"games": GAMES, "teams": TEAMS}  # said, and not looked for in the files: that is a job of Spark's each time


@dataclass(frozen=True)
class Snapshot:
    """The directories of one stream."""

    spark: SparkSession
    home: str

    @cached_property
    def files(self) -> Files:
        """The files under `home`."""
        return Files(self.spark, self.home)

    def current(self) -> int | None:
        """The batch that counts; None when there is none yet."""
        return self._newest("current")

    def check(self) -> None:
        """At a start: is this the snapshot of the checkpoint beside it?"""
        done = self._newest("checkpoint/commits")
        coming = 0 if done is None else done + 1
        if self.current() != coming:  # else that batch was whole, and its end did not reach the checkpoint
            self._is(done)

    def before(self, batch: int) -> int | None:
        """The batch that this one goes on from."""
        if self.current() == batch:  # it comes again
            self.files.delete(f"current/{batch}")
        last = batch - 1 if batch else None
        self._is(last)
        return last

    def read(self, what: str, batch: int | None = None) -> DataFrame:
        """A frame of a batch; of the one that counts, if none is named."""
        if batch is None:
            batch = self.current()
            if batch is None:
                raise NotAllowed(f"there is no snapshot in {self.home} yet: no batch has been done")
            self._whole(batch)
        return self.spark.read.schema(KINDS[what]).parquet(self._of(what, batch))

    def write(self, what: str, batch: int, frame: DataFrame) -> DataFrame:
        """Write it, and read from there: nothing is computed twice."""
        frame.write.mode("overwrite").parquet(self._of(what, batch))
        return self.read(what, batch)

    def commit(self, batch: int, before: int | None) -> None:
        """From here on this batch counts."""
        self.files.write(f"current/{batch}", json.dumps(self._measured(batch)))
        for what in ("current", *KINDS):
            for name in self.files.sizes(what):
                if name.removeprefix("batch=") not in {str(batch), str(before)}:
                    self.files.delete(f"{what}/{name}")

    def _newest(self, folder: str) -> int | None:
        """The highest number of a file in this folder; files with other names were being written."""
        return max((int(name) for name in self.files.sizes(folder) if name.isdigit()), default=None)

    def _is(self, batch: int | None) -> None:
        """`NotAllowed` unless this batch counts and is there as it was written."""
        now = self.current()
        if now is not None and (batch is None or now > batch):
            raise NotAllowed(
                f"the snapshot in {self.home} is of batch {now}, and the stream goes on "
                f"{'from the start' if batch is None else f'after batch {batch}'}: its checkpoint is another one. "
                f"Bring the checkpoint back, or begin anew. {ANEW}"
            )
        if now != batch:
            self._lost(f"current/{batch}", batch)
        if batch is not None:
            self._whole(batch)

    def _whole(self, batch: int) -> None:
        """`NotAllowed` unless the files of this batch are there as they were written."""
        if self.files.read(f"current/{batch}") != json.dumps(self._measured(batch)):
            self._lost(f"current/{batch}, games/batch={batch} or teams/batch={batch}", batch)

    def _lost(self, what: str, batch: int | None) -> None:
        raise NotAllowed(
            f"the snapshot in {self.home} is not as batch {batch} left it: {what} is lost or cut. "
            f"Bring the directory back as a whole, or begin anew. {ANEW}. The standings are the same if the log still has every record"
        )

    def _measured(self, batch: int) -> dict[str, list[int]]:
        """How many files a batch has, and of how many bytes together."""
        found = {what: self.files.sizes(f"{what}/batch={batch}") for what in KINDS}
        parts = {
            what: [size for name, size in sizes.items() if name.startswith("part-")] for what, sizes in found.items()
        }
        return {what: [len(sizes), sum(sizes)] for what, sizes in parts.items()}

    def _of(self, what: str, batch: int) -> str:
        return f"{self.home}/{what}/batch={batch}"
