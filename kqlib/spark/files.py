"""Small files of a stream, on any file system that Hadoop knows: each is there whole, or not at all.

In:  a session and a directory. Out: what is in it. Each change is one call of `write` or `delete`; a process may be killed before
     and after any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Files:
    """The files under `home`, named by their path below it."""

    spark: SparkSession
    home: str

    def sizes(self, folder: str) -> dict[str, int]:
        """What is in a folder, with sizes in bytes; a folder that is not there is empty."""
        path = self._path(folder)
        found = self._manager.list(path) if self._manager.exists(path) else ()
        return {each.getPath().getName(): each.getLen() for each in found}

    def read(self, name: str) -> str | None:
        """A file's text; None if there is no such file."""
        path = self._path(name)
        if not self._manager.exists(path):
            return None
        opened = self._manager.open(path)
        try:
            return bytes(opened.readAllBytes()).decode(errors="replace")
        finally:
            opened.close()

    def write(self, name: str, text: str) -> None:
        """A new file, whole or not there. One that is there already is an error."""
        opened = self._create(name)
        opened.write(text.encode())
        opened.close()  # renames it

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with everything in it; it need not be there."""
        self._manager.delete(self._path(name))

    def _create(self, name: str) -> Any:
        """A temporary file beside it."""
        path = self._path(name)
        self._manager.mkdirs(path.getParent())
        return self._manager.createAtomic(path, False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.home}/{name}")

    @cached_property
    def _manager(self) -> Any:
        """Spark's own way to make a file in one step, whatever the file system."""
        manager = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        home = self._jvm.org.apache.hadoop.fs.Path(self.home)
        return manager.create(home, self.spark._jsparkSession.sessionState().newHadoopConf())

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm
