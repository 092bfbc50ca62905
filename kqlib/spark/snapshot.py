"""What a stream has come to, as Parquet: a directory a batch, and a file that says that it is whole.

In:  a batch's number and its frames. Out: the frames of the batch before; a snapshot that is whole or not there.

    home/current/12          {"before": 11}: appears in one step when batch 12 is whole; the highest counts
    home/games/batch=12/     Parquet; written anew when the batch is worked again
    home/teams/batch=12/
    home/checkpoint/         Spark's own: which offsets a batch has

A batch that comes again after a crash begins from the same batch before, has the same rows, and replaces its own directories: nothing
is added twice. Only the two newest batches stay. `current` is not one file that is replaced: Hadoop deletes the old one before the
new one is there, and a stream that is killed in between would begin with nothing and not know it. Any file system of Hadoop's will do;
on a cluster it must be one that all share.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed
from kqlib.spark.table import GAMES, TEAMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = {"games": GAMES, "teams": TEAMS}  # said, and not looked for in the files: that is a job of Spark's each time


@dataclass(frozen=True)
class Snapshot:
    """The directories of one stream."""

    spark: SparkSession
    home: str

    def current(self) -> tuple[int, int | None] | None:
        """The batch that counts and the one before it; None when there is none yet."""
        files, home = self._files(), self._path("current")
        names = [found.getPath().getName() for found in (files.list(home) if files.exists(home) else ())]
        batch = max((int(name) for name in names if name.isdigit()), default=None)  # others were being written
        if batch is None:
            return None
        opened = files.open(self._path(f"current/{batch}"))
        try:
            said = json.loads(bytes(opened.readAllBytes()).decode())
        finally:
            opened.close()
        return batch, said["before"]

    def before(self, batch: int) -> int | None:
        """The batch that this one goes on from."""
        now = self.current()
        if now is None or now[0] < batch:
            return None if now is None else now[0]
        if now[0] == batch:  # it was whole, and its end did not reach the checkpoint
            return now[1]
        why = f"the snapshot in {self.home} is of batch {now[0]}, and the stream begins with batch {batch}"
        raise NotAllowed(
            f"{why}: its checkpoint is another one. Begin with an empty directory, or bring the checkpoint back"
        )

    def read(self, what: str, batch: int | None = None) -> DataFrame:
        """A frame of a batch; of the one that counts, if none is named."""
        if batch is None:
            now = self.current()
            if now is None:
                raise NotAllowed(f"there is no snapshot in {self.home} yet: no batch has been done")
            batch = now[0]
        return self.spark.read.schema(KINDS[what]).parquet(self._of(what, batch))

    def write(self, what: str, batch: int, frame: DataFrame) -> DataFrame:
        """Write it, and read from there: nothing is computed twice."""
        frame.write.mode("overwrite").parquet(self._of(what, batch))
        return self.read(what, batch)

    def commit(self, batch: int, before: int | None) -> None:
        """From here on this batch counts."""
        files = self._files()
        files.mkdirs(self._path("current"))
        pointer = self._path(f"current/{batch}")
        if not files.exists(pointer):  # a batch that comes again would say the same
            told = files.createAtomic(pointer, False)
            told.write(json.dumps({"before": before}).encode())
            told.close()  # renames it
        for what in ("current", *KINDS):
            for found in files.list(self._path(what)) if files.exists(self._path(what)) else ():
                if found.getPath().getName().removeprefix("batch=") not in {str(batch), str(before)}:
                    files.delete(found.getPath())

    def _of(self, what: str, batch: int) -> str:
        return f"{self.home}/{what}/batch={batch}"

    def _path(self, name: str) -> Any:
        jvm: Any = self.spark.sparkContext._jvm
        return jvm.org.apache.hadoop.fs.Path(f"{self.home}/{name}" if name else self.home)

    def _files(self) -> Any:
        """Spark's own way to replace a file in one step, on whatever file system."""
        jvm: Any = self.spark.sparkContext._jvm
        manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        return manager.create(self._path(""), self.spark._jsparkSession.sessionState().newHadoopConf())
