"""A continuous audit: each round reads the new records and says whose verdict changed.

In:  what `audit` takes, and a directory for the state. Out: a `Round` each time; verdicts in a topic, if one is named.

It is a loop of small batches and not a streaming query. A query fixes the ends of a batch before the ledger can be read, which must
come first (see `queue_state`). And it runs no batch when nothing arrives, which is when a lost item has to be found.

    state.json       the number of the round, up to where each partition is read, the totals; written last, replaced as a whole
    round-N/         Parquet: every item that is not done exactly once, with its numbers so far

A watch that was killed begins its round again from the state before. Verdicts are keyed by item, so a second copy changes nothing.
An item leaves the state when it is done once, since only a second result can follow. It also leaves it when the log loses it.
So the state grows with open and faulty items, not with the history.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue import state as queues
from kqlib.queue.arguments import seconds
from kqlib.queue.item import ITEM
from kqlib.runtime import places
from kqlib.spark import frames
from kqlib.spark.audit import FAULTS, OPEN, VERDICTS, AuditRequest, added, by_partition, judged, named, publish, sums
from kqlib.spark.queue_state import Ends, QueueState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE = (
    "partition int, offset long, created timestamp, theirs boolean, ended timestamp, results long, dead long, again long, "
    "was string"
)
FORMAT = 2


@dataclass(frozen=True)
class Round:
    """One look: how many offsets were read, how many verdicts are new, and how many items have which verdict now."""

    number: int
    read: int
    changed: dict[str, int]
    totals: dict[str, int]

    @property
    def right(self) -> bool:
        """Is nothing missing and nothing doubled?"""
        return not any(self.totals.get(fault) for fault in FAULTS)

    def __repr__(self) -> str:
        counts = [f"{self.totals[verdict]:,} {verdict}" for verdict in VERDICTS if self.totals.get(verdict)]
        return f"round {self.number}: {self.read:,} offsets · {', '.join(counts) or 'no items'}"


@dataclass
class SavedState:
    """Where the last round ended."""

    round: int = 0
    ends: Ends = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)  # topic -> topic id; a recreated topic has another one
    totals: dict[str, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)  # the offset in each partition from which every item was read
    unseen: dict[int, int] = field(default_factory=dict)  # see `queue_state.unseen`


def watch(
    spark: SparkSession,
    cluster: Kafka,
    queue: str,
    site: str,
    *,
    results: str,
    state: str | Path,
    of: str = ITEM,
    outputs: int = 1,
    verdicts: str | None = None,
) -> Watch:
    """A continuous audit: `for round in kq.spark.watch(…, state="audit-state").rounds(every=5): print(round)`.

    state: a directory of its own, on a disk that all Spark processes share. verdicts: a compacted topic for every verdict that
    is final or a fault.
    """
    asked = AuditRequest(queue, site, results, of, outputs=outputs)
    if verdicts is not None:
        cluster.partitions(verdicts)  # TopicMissing, before anything is read
    return Watch(spark, cluster, asked, Path(state), verdicts)


class Watch:
    """`round()` looks once, `rounds(every=…)` again and again. `stop()`, from any thread or signal, ends that after the round."""

    def __init__(
        self, spark: SparkSession, cluster: Kafka, asked: AuditRequest, home: Path, verdicts: str | None
    ) -> None:
        self.spark, self.cluster, self.asked, self.home = spark, cluster, asked, home.absolute()
        self.verdicts, self._stopping = verdicts, False
        self.saved = self._load()

    def rounds(self, every: float = 5) -> Iterator[Round]:
        """A round, then another one after `every` seconds, until `stop()`."""
        pause = seconds("every", every, 0, 24 * 3600.0)
        while not self._stopping:
            yield self.round()
            until = time.monotonic() + pause
            while not self._stopping and (left := until - time.monotonic()) > 0:
                time.sleep(min(0.1, left))

    def stop(self) -> None:
        """No further round. It takes no lock, so a signal handler may call it."""
        self._stopping = True

    def round(self) -> Round:
        """Read what is new since the last round, and judge it together with the items of the state."""
        seen = self.asked.read_state(self.cluster)
        ids = {topic: found[0] for topic, found in queues.topic_ids(self.cluster, list(seen.ends)).items()}
        begin = self._begin(seen, ids)
        unseen = self.asked.unseen(self.cluster, seen, self.saved.ends)
        unseen = {number: max(until, self.saved.unseen.get(number, 0)) for number, until in unseen.items()}
        found = judged(self.spark, self._items(seen, begin), seen, unseen, self.asked.outputs).persist()
        try:
            return self._settle(found, seen, begin, SavedState(self.saved.round + 1, seen.ends, ids, unseen=unseen))
        finally:
            found.unpersist()

    def _begin(self, seen: QueueState, ids: dict[str, str]) -> Ends:
        """The first offset to read. A new partition or topic is read from its first record."""
        for topic, known in self.saved.ends.items():
            if topic not in ids:
                continue
            if self.saved.ids[topic] != ids[topic]:
                raise NotAllowed(
                    f"'{topic}' was deleted and made again since the last round: its offsets mean other records now. "
                    f"Begin anew: another state directory than {self.home.name}"
                )
            for number, offset in sorted(known.items()):
                if (low := seen.lows[topic].get(number, 0)) > offset:
                    raise NotAllowed(
                        f"'{topic}', partition {number} was read up to offset {offset} and begins at {low} now: retention has "
                        f"deleted {low - offset} records before they were read. Begin anew: another state directory than "
                        f"{self.home.name}. Then keep records longer than a watch may stand still (retention.ms)"
                    )
        return {
            topic: {number: self.saved.ends.get(topic, {}).get(number, low) for number, low in lows.items()}
            for topic, lows in seen.lows.items()
        }

    def _items(self, seen: QueueState, begin: Ends) -> DataFrame:
        """A row for each item that is in the new records or in the state."""
        from pyspark.sql import functions as f

        if self.saved.round:
            before = self.spark.read.schema(STATE).parquet(str(self.home / f"round-{self.saved.round}"))
        else:
            before = frames.few(self.spark, [], STATE)
        new = sums(self.spark, self.cluster, self.asked, begin, seen.ends)
        whole = added(new.withColumn("was", f.lit(None).cast("string")).unionByName(before), "was")
        # An item that was read, and is in neither of them, was done once in an earlier round: a new result is one too many.
        read = self.saved.ends.get(self.asked.queue, {})
        passed = (f.col("offset") >= by_partition(self.saved.begun)) & (f.col("offset") < by_partition(read))
        late = f.col("created").isNull() & passed & (f.col("results") + f.col("dead") > 0)
        return (
            whole.withColumn("late", late)
            .withColumn("results", f.col("results") + f.col("late").cast("int") * self.asked.outputs)
            .withColumn("was", f.when(f.col("late"), f.lit("once")).otherwise(f.col("was")))
            .withColumn("created", f.when(f.col("late"), f.col("ended")).otherwise(f.col("created")))
            .drop("late")
        )

    def _settle(self, found: DataFrame, seen: QueueState, begin: Ends, new: SavedState) -> Round:
        """Publish new verdicts, keep the items that are not settled, and only then save the round."""
        known = found.where("created IS NOT NULL")
        groups = known.groupBy("was", "verdict").count().collect()
        if self.verdicts is not None:
            changed_rows = known.where("NOT (was <=> verdict)").where(~known["verdict"].isin(*OPEN))
            publish(named(changed_rows, self.asked), self.cluster, self.verdicts)
        self._keep(found, seen, new.round)
        changed, totals = Counter[str](), Counter(self.saved.totals)
        for row in groups:
            if row["was"] != row["verdict"]:
                changed[row["verdict"]] += row["count"]
                totals[row["verdict"]] += row["count"]
                totals[row["was"] or ""] -= row["count"]
        new.totals = {verdict: totals[verdict] for verdict in VERDICTS if totals[verdict]}
        new.begun = begin[self.asked.queue] | self.saved.begun
        self._save(new)
        read = sum(end - begin[topic][n] for topic, ends in seen.ends.items() for n, end in ends.items())
        return Round(new.round, read, dict(changed), new.totals)

    # --- the state ---

    def _keep(self, found: DataFrame, seen: QueueState, number: int) -> None:
        """Keep items that are in the log and not done once, and results whose items are not read yet."""
        from pyspark.sql import functions as f

        names = [name.split()[0] for name in STATE.split(", ")]
        lows, ends = seen.lows[self.asked.queue], seen.ends[self.asked.queue]
        in_log = (f.col("offset") >= by_partition(lows)) | f.col("verdict").isin(*OPEN)
        unsettled = f.col("created").isNotNull() & (f.col("verdict") != "once") & in_log
        early = f.col("created").isNull() & (f.col("offset") >= by_partition(ends))
        was = f.when(unsettled, f.col("verdict"))
        kept = found.where(unsettled | early).withColumn("was", was).select(*names)
        kept.coalesce(4).write.mode("overwrite").parquet(str(self.home / f"round-{number}"))

    def _load(self) -> SavedState:
        file = self.home / "state.json"
        if not file.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            return SavedState()
        saved = json.loads(file.read_text())
        if saved.get("form") != FORMAT:
            raise NotAllowed(
                f"{self.home} was written by another version of kqlib, and this one cannot read it. "
                "Nothing was changed. Name an empty directory: the audit then begins from the start"
            )
        if saved.get("asked") != self._identity():
            raise NotAllowed(
                f"{self.home} holds the state of another audit: {saved.get('asked')}. Nothing was changed. Name another directory"
            )
        ends = {topic: _by_number(parts) for topic, parts in saved["ends"].items()}
        begun, unseen = _by_number(saved["begun"]), _by_number(saved["unseen"])
        return SavedState(saved["round"], ends, saved["ids"], saved["totals"], begun, unseen)

    def _identity(self) -> dict[str, Any]:
        """What tells this audit from others."""
        return {name: getattr(self.asked, name) for name in ("queue", "site", "results", "of", "outputs")}

    def _save(self, new: SavedState) -> None:
        """Save the round; the state of the round before is deleted."""
        whole = {"form": FORMAT, "asked": self._identity(), **vars(new)}
        places.write_atomic(self.home / "state.json", json.dumps(whole))
        self.saved = new
        for old in self.home.glob("round-*"):
            if old.name != f"round-{new.round}":
                shutil.rmtree(old, ignore_errors=True)


def _by_number(parts: dict[str, int]) -> dict[int, int]:
    """Keys of JSON as partition numbers."""
    return {int(number): value for number, value in parts.items()}
