"""What a stream keeps in its directory: whose checkpoint it is, and the standings of each batch as Parquet.

In:  a directory on any file system of Hadoop; on a Spark cluster all machines must share it. Out: its state, or `NotAllowed`.

    home/stream.json         {"cluster": its id, "topics": {"games": its id, …}, "partitions": {"table": 1}}: written before the
                             checkpoint, never changed
    home/checkpoint/         Spark's own: the offsets of each batch. It names topics only, and its offsets mean nothing elsewhere
    home/games/batch=12/     Parquet
    home/teams/batch=12/
    home/current/12          {"games": [files, bytes], "teams": …}: written when batch 12 is complete; the highest number counts

Batch 12 begins with the games of batch 11. Their files must be there as they were written, or the standings would be wrong without an
error. So lost or cut files are refused. A batch that comes again after a crash first deletes its own file in `current`, and then does
everything again from the same batch before. Only the two newest batches stay. `current` is not one file that is replaced, because
Hadoop deletes the old file before the new one is there. A backfill replaces the state after a batch (`order`, `switch`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue import state
from kqlib.spark.table import GAMES, TEAMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = "stream.json"
NEXT, SWITCH = "next", "switch.json"  # a backfill's folder, with the same tables; the note that it takes their place
TABLES = {"games": GAMES, "teams": TEAMS}  # with their schemas: to infer them is a job of Spark each time
ANEW = (
    "Nothing was read or written. To begin anew, name an empty directory and an output topic that is empty: the stream then reads "
    "the log from its start"
)


@dataclass(frozen=True)
class Files:
    """Small files under `home`, named by their path below it. A process may be killed before and after each `write` and `delete`."""

    spark: SparkSession
    home: str

    def sizes(self, folder: str) -> dict[str, int]:
        """The files of a folder with their bytes; {} for a folder that is not there."""
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
        """Write a new file in one step: under another name, then renamed. A file that exists is an error."""
        opened = self._create(name)
        opened.write(text.encode())
        opened.close()

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with everything in it, if it is there."""
        self._manager.delete(self._path(name))

    def replace(self, new: str, name: str) -> None:
        """Put a new folder in the place of this one; nothing happens if there is no new one. Killed in between, it can be repeated."""
        if self.sizes(new):
            self.delete(name)
            self._move(new, name)

    def _move(self, new: str, name: str) -> None:
        path, to = self._path(new), self._path(name)
        self._manager.mkdirs(to.getParent())
        path.getFileSystem(self._conf).rename(path, to)

    def rows(self, name: str) -> int:
        """The rows of a Parquet file."""
        parquet: Any = self.spark.sparkContext._jvm.org.apache.parquet.hadoop
        reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(self._path(name), self._conf))
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def _create(self, name: str) -> Any:
        path = self._path(name)
        self._manager.mkdirs(path.getParent())
        return self._manager.createAtomic(path, False)

    def _path(self, name: str) -> Any:
        return self.spark.sparkContext._jvm.org.apache.hadoop.fs.Path(f"{self.home}/{name}")

    @cached_property
    def _manager(self) -> Any:
        """Spark's own class for checkpoint files: it renames in one step on every file system."""
        streaming: Any = self.spark.sparkContext._jvm.org.apache.spark.sql.execution.streaming
        return streaming.checkpointing.CheckpointFileManager.create(self._path(""), self._conf)

    @cached_property
    def _conf(self) -> Any:
        return self.spark._jsparkSession.sessionState().newHadoopConf()


@dataclass(frozen=True)
class LocalFiles:
    """The same files in a directory of this machine, only read, without Spark."""

    home: str

    def sizes(self, folder: str) -> dict[str, int]:
        """The files of a folder with their bytes; {} for a folder that is not there."""
        return {each.name: each.stat().st_size for each in Path(self.home, folder).glob("*")}

    def read(self, name: str) -> str | None:
        """A file's text; None if there is no such file."""
        path = Path(self.home, name)
        return path.read_text(errors="replace") if path.exists() else None


# --- whose checkpoint it is -----------------------------------------------------------------------------------------------


def checkpoint(home: Any) -> str:
    """The path of Spark's checkpoint."""
    if not isinstance(home, str) or not home.strip():
        raise NotAllowed(f"home is a directory for the checkpoint and the snapshot, not {home!r}")
    return f"{home}/checkpoint"


def identity(cluster: Kafka, *topics: str, keyed: bool = False) -> dict[str, Any]:
    """The ids of a cluster and of topics. They differ if only the names are the same.

    keyed: the last topic has one valid record of each key, so its number of partitions must stay.
    """
    found = state.topic_ids(cluster, list(topics))
    ids = {topic: number for topic, (number, _) in found.items()}
    parts = {topic: len(found[topic][1]) for topic in topics[-1:] if keyed and topic in found}
    return {"cluster": cluster.describe().cluster_id, "topics": ids, "partitions": parts}


def check_topics(cluster: Kafka, source: str, out: str, *more: str | None) -> None:
    """Before a start: `TopicMissing`, or `NotAllowed` if a stream would read what it writes. more: for rows that are put aside."""
    aside = {*filter(None, more)}
    if source in {out, *aside}:
        raise NotAllowed(
            f"a stream that writes into '{source}' would read its own rows, without end: name another topic"
        )
    if out in aside:
        raise NotAllowed(f"'{out}' gets the standings: name another topic for the rows that are put aside")
    for topic in (source, out, *sorted(aside)):
        cluster.partitions(topic)


def claim(spark: SparkSession, home: str, cluster: Kafka, *topics: str, keyed: bool = False) -> str:
    """The path of the checkpoint for these topics of this cluster. The checkpoint of others is refused."""
    path, files, ours = checkpoint(home), Files(spark, home), identity(cluster, *topics, keyed=keyed)
    noted = files.read(FILE)
    if noted is None and not files.sizes("checkpoint") and not files.sizes("current"):
        files.write(FILE, json.dumps(ours))
    else:
        check_owner(home, noted, ours)
    return path


def check_owner(home: str, noted: str | None, ours: dict[str, Any]) -> None:
    """`NotAllowed` unless the text of `stream.json` names this cluster and these topics."""
    if noted is None:
        raise NotAllowed(f"{home} holds a checkpoint, and no {FILE} that says which cluster it belongs to. {ANEW}")
    if why := _difference(noted, ours):
        raise NotAllowed(f"{home} holds the checkpoint of {why}, so it cannot be used here. {ANEW}")


def _difference(noted: str, ours: dict[str, Any]) -> str:
    """What differs from the noted cluster and topics; '' if nothing does."""
    try:
        theirs = json.loads(noted)
        cluster, topics, parts = theirs["cluster"], dict(theirs["topics"]), dict(theirs.get("partitions", {}))
    except (ValueError, TypeError, KeyError):
        return f"an unknown cluster, because {FILE} cannot be read"
    if cluster != ours["cluster"]:
        return f"another cluster ({cluster}, and this one is {ours['cluster']})"
    if set(topics) != set(ours["topics"]):
        return f"other topics ({', '.join(sorted(topics))})"
    anew = [f"'{name}'" for name, number in ours["topics"].items() if topics[name] != number]
    if anew:
        return f"{' and '.join(anew)} before it was deleted and made again"
    for name, number in ours["partitions"].items():
        if (was := parts.get(name, number)) != number:
            return (
                f"'{name}' when it had {was} partitions, and it has {number} now. An older record of a key would stay in "
                "another partition and could be read as its last one"
            )
    return ""


# --- the standings of each batch ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """The standings in the directory of one stream. Without a session it can only be checked."""

    spark: SparkSession | None
    home: str

    @cached_property
    def files(self) -> Any:
        """The files under `home`."""
        return LocalFiles(self.home) if self.spark is None else Files(self.spark, self.home)

    def current(self) -> int | None:
        """The last complete batch; None if there is none yet."""
        return self._newest("current")

    def check(self) -> None:
        """Before a start: `NotAllowed` unless this snapshot belongs to the checkpoint beside it."""
        if self.files.read(SWITCH) is not None:
            return  # half done; the next start ends it
        done = self._newest("checkpoint/commits")
        coming = 0 if done is None else done + 1
        if self.current() != coming:  # else that batch was completed, but not yet in the checkpoint
            self._check_is(done)

    def prepare(self, batch: int) -> int | None:
        """Begin a batch, and return the one before it. A batch that is complete already comes again: its mark is deleted."""
        if self.current() == batch:  # it comes again
            self.files.delete(f"current/{batch}")
        last = batch - 1 if batch else None
        self._check_is(last)
        return last

    def read(self, table: str, batch: int | None = None) -> DataFrame:
        """A table of a batch, by default of the last complete one."""
        if batch is None:
            batch = self.current()
            if batch is None:
                raise NotAllowed(f"there is no snapshot in {self.home} yet: no batch has been done")
            self._check_whole(batch)
        assert self.spark is not None
        return self.spark.read.schema(TABLES[table]).parquet(self._path(table, batch))

    def write(self, table: str, batch: int, frame: DataFrame) -> DataFrame:
        """Write a table, and read it from there, so that nothing is computed twice."""
        frame.write.mode("overwrite").parquet(self._path(table, batch))
        return self.read(table, batch)

    def commit(self, batch: int, before: int | None) -> None:
        """From here on this batch is complete. Older ones than `before` are deleted."""
        self._mark(batch)
        for folder in ("current", *TABLES):
            for name in self.files.sizes(folder):
                if name.removeprefix("batch=") not in {str(batch), str(before)}:
                    self.files.delete(f"{folder}/{name}")

    def order(self, batch: int, new: int) -> None:
        """From here on the state after `batch` is batch `new` of the snapshot in `next`: `switch` makes it so, now or later."""
        self.files.write(SWITCH, json.dumps({"batch": batch, "new": new}))

    def switch(self, publish: Callable[[DataFrame], object]) -> None:
        """Do what `order` noted, if it did. It may be killed anywhere and be called again.

        publish: gets the new teams; it changes the topic of standings to them.
        """
        noted = self.files.read(SWITCH)
        if noted is None:
            return
        batch, new = (json.loads(noted)[name] for name in ("batch", "new"))
        for folder in (*TABLES, "checkpoint-seen"):
            self.files.replace(f"{NEXT}/{folder}/batch={new}", f"{folder}/batch={batch}")
        self.files.delete(f"current/{batch}")
        self._mark(batch)
        publish(self.read("teams", batch))
        self.files.delete(NEXT)
        self.files.delete(SWITCH)

    def _mark(self, batch: int) -> None:
        self.files.write(f"current/{batch}", json.dumps(self._measured(batch)))

    def size(self) -> tuple[int, int]:
        """The rows and bytes of the last complete batch. The rows are in the files' footers, so this is no job of Spark."""
        batch, rows, total = self.current(), 0, 0
        for table in () if batch is None else TABLES:
            folder = f"{table}/batch={batch}"
            parts = {name: size for name, size in self.files.sizes(folder).items() if name.startswith("part-")}
            rows += sum(self.files.rows(f"{folder}/{name}") for name in parts)
            total += sum(parts.values())
        return rows, total

    def _newest(self, folder: str) -> int | None:
        """The highest number of a file in this folder; files with other names are being written."""
        return max((int(name) for name in self.files.sizes(folder) if name.isdigit()), default=None)

    def _check_is(self, batch: int | None) -> None:
        """`NotAllowed` unless this is the last complete batch, and as it was written."""
        now = self.current()
        if now is not None and (batch is None or now > batch):
            raise NotAllowed(
                f"the snapshot in {self.home} is of batch {now}, and the stream goes on "
                f"{'from the start' if batch is None else f'after batch {batch}'}: its checkpoint is another one. "
                f"Bring the checkpoint back, or begin anew. {ANEW}"
            )
        if now != batch:
            raise self._lost(f"current/{batch}", batch)
        if batch is not None:
            self._check_whole(batch)

    def _check_whole(self, batch: int) -> None:
        """`NotAllowed` unless the files of this batch are as they were written."""
        if self.files.read(f"current/{batch}") != json.dumps(self._measured(batch)):
            raise self._lost(f"current/{batch}, games/batch={batch} or teams/batch={batch}", batch)

    def _lost(self, what: str, batch: int | None) -> NotAllowed:
        return NotAllowed(
            f"the snapshot in {self.home} is not as batch {batch} left it: {what} is lost or cut. "
            f"Bring the directory back as a whole, or begin anew. {ANEW}. The standings are the same if the log still has every record"
        )

    def _measured(self, batch: int) -> dict[str, list[int]]:
        """How many files each table of a batch has, and how many bytes."""
        measured = {}
        for table in TABLES:
            files = self.files.sizes(f"{table}/batch={batch}")
            sizes = [size for name, size in files.items() if name.startswith("part-")]
            measured[table] = [len(sizes), sum(sizes)]
        return measured

    def _path(self, table: str, batch: int) -> str:
        return f"{self.home}/{table}/batch={batch}"
