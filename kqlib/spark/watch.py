"""The audit that goes on: round after round it reads what is new, and says whose verdict has changed.

In:  what `audit` takes, and a directory for its state. Out: a `Round` each time; verdicts into a topic, if one is named.

Why this is a loop of small batches and no streaming query: a query fixes the ends of a batch before anybody could read the ledger,
which must come first (see `cut`), and it runs no batch when nothing arrives, which is just when a lost item has to be found.

    state.json       the number of the round, up to where each partition is read, the totals: written last, replaced as a whole
    round-N/         Parquet: every item that is not done exactly once, with its numbers so far

Killed at any moment it begins the round again from the state before; verdicts are keyed by item, so that writing one again changes
nothing. An item leaves the state when it is done once. What comes later for it is then a second ending: nothing else can come.
So the state grows with what is open and with faults, not with the history; what has left the log leaves the state.
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
from kqlib.queue.arguments import seconds
from kqlib.runtime import places
from kqlib.spark import cut, frames
from kqlib.spark.audit import Asked, added, by_partition, facts, judged, named, publish
from kqlib.spark.verdict import FAULTS, OPEN, VERDICTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE = (
    "partition int, offset long, created timestamp, theirs boolean, ended timestamp, results long, dead long, again long, "
    "was string"
)
FORM = 2


@dataclass(frozen=True)
class Round:
    """One look: how many offsets were read, which verdicts changed, and how all items stand now."""

    number: int
    read: int
    changed: dict[str, int]
    totals: dict[str, int]
    oldest: float | None  # age in seconds of the oldest item that is not done

    @property
    def right(self) -> bool:
        """Is nothing missing and nothing doubled?"""
        return not any(self.totals.get(fault) for fault in FAULTS)

    def __repr__(self) -> str:
        said = [f"{self.totals[verdict]:,} {verdict}" for verdict in VERDICTS if self.totals.get(verdict)]
        return f"round {self.number}: {self.read:,} offsets · {', '.join(said) or 'no items'}"


@dataclass
class Saved:
    """Where the last round ended."""

    round: int = 0
    ends: cut.Ends = field(default_factory=dict)
    ids: dict[str, str] = field(
        default_factory=dict
    )  # topic -> topic id: a topic of the same name made anew is another one
    totals: dict[str, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)  # from where on every item of the queue was read
    unseen: dict[int, int] = field(default_factory=dict)  # up to when items may have endings that were removed unread


def watch(
    spark: SparkSession,
    cluster: Kafka,
    queue: str,
    site: str,
    *,
    results: str,
    state: str | Path,
    of: str = frames.ITEM,
    outputs: int = 1,
    verdicts: str | None = None,
    on_loss: str = "raise",
) -> Watch:
    """An audit that goes on where it was: `for round in kq.spark.watch(…, state="audit-state").rounds(every=5): print(round)`.

    state: a directory of its own, on a disk that all of Spark's processes share. verdicts: a compacted topic for every verdict that
    is final or a fault. on_loss: what to do when retention was faster: "raise", or "go on" and leave those records out.
    """
    asked = Asked(queue, site, results, of, outputs=outputs)
    return Watch(spark, cluster, asked, Path(state), verdicts=verdicts, on_loss=on_loss)


class Watch:
    """`round()` looks once; `rounds(every=…)` goes on; `stop()`, from any thread or signal, ends that after the round."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: Kafka,
        asked: Asked,
        home: Path,
        *,
        verdicts: str | None = None,
        on_loss: str = "raise",
    ) -> None:
        if on_loss not in ("raise", "go on"):
            raise NotAllowed(f"on_loss is 'raise' or 'go on', not {on_loss!r}")
        if verdicts is not None:
            cluster.partitions(verdicts)  # TopicMissing, before anything is read
        self.spark, self.cluster, self.asked, self.home = spark, cluster, asked, home.absolute()
        self.verdicts, self.on_loss, self._stopping = verdicts, on_loss, False
        self.saved = self._load()

    def rounds(self, every: float = 5) -> Iterator[Round]:
        """Look, and look again after `every` seconds, until `stop()`."""
        pause = seconds("every", every, 0, 24 * 3600.0)
        while not self._stopping:
            yield self.round()
            until = time.monotonic() + pause
            while not self._stopping and (left := until - time.monotonic()) > 0:
                time.sleep(min(0.1, left))

    def stop(self) -> None:
        """No further round. It takes no lock, so that a signal's handler may call it."""
        self._stopping = True

    def round(self) -> Round:
        """Read what is new since the last round, and judge it together with what is not settled."""
        seen = cut.take(self.cluster, self.asked.queue, self.asked.site, self.asked.topics(self.cluster))
        begin = self._begin(seen)
        new = facts(self.spark, self.cluster, self.asked, begin, seen.ends).withColumn("was", _null("string"))
        read, outputs = self.saved.ends.get(self.asked.queue, {}), self.asked.outputs
        whole = _merged(new, self._before(), self.saved.begun, read, outputs)
        unseen = self.asked.unseen(self.cluster, seen, self.saved.ends)
        unseen = {number: max(until, self.saved.unseen.get(number, 0)) for number, until in unseen.items()}
        found = judged(self.spark, whole, seen, unseen, outputs).persist()
        try:
            return self._settle(found, seen, begin, unseen)
        finally:
            found.unpersist()

    def _settle(self, found: DataFrame, seen: cut.Cut, begin: cut.Ends, unseen: dict[int, int]) -> Round:
        """Say what has changed, keep what is not settled, and only then move on."""
        from pyspark.sql import functions as f

        known = found.where("created IS NOT NULL")
        groups = (
            known.groupBy("was", "verdict").agg(f.count("*").alias("n"), f.min("created").alias("oldest")).collect()
        )
        if self.verdicts is not None:
            loud = known.where("NOT (was <=> verdict)").where(~known["verdict"].isin(*OPEN))
            publish(named(loud, self.asked), self.cluster, self.verdicts)
        number = self.saved.round + 1
        self._keep(found, seen, number)
        changed, totals = Counter[str](), Counter(self.saved.totals)
        for row in groups:
            if row["was"] != row["verdict"]:
                changed[row["verdict"]] += row["n"]
                totals[row["verdict"]] += row["n"]
                totals[row["was"] or ""] -= row["n"]
        del totals[""]
        now = {verdict: totals[verdict] for verdict in VERDICTS if totals[verdict]}
        self._save(Saved(number, seen.ends, self._ids(seen), now, self._begun(begin[self.asked.queue]), unseen))
        read = sum(end - begin[topic][n] for topic, ends in seen.ends.items() for n, end in ends.items())
        open_since = [row["oldest"].timestamp() for row in groups if row["verdict"] in OPEN]
        age = max((seen.taken - since for since in open_since), default=None)
        return Round(number, read, dict(changed), now, age)

    # --- what is kept ---

    def _keep(self, found: DataFrame, seen: cut.Cut, number: int) -> None:
        """Everything that is not done once and still in the log; and endings whose items are not read yet."""
        from pyspark.sql import functions as f

        names = [name.split()[0] for name in STATE.split(", ")]
        lows, ends = seen.lows[self.asked.queue], seen.ends[self.asked.queue]
        there = (f.col("offset") >= by_partition(lows)) | f.col("verdict").isin(*OPEN)
        unsettled = f.col("created").isNotNull() & (f.col("verdict") != "once") & there
        early = f.col("created").isNull() & (f.col("offset") >= by_partition(ends))
        was = f.when(unsettled, f.col("verdict"))
        kept = found.where(unsettled | early).withColumn("was", was).select(*names)
        kept.coalesce(4).write.mode("overwrite").parquet(str(self.home / f"round-{number}"))

    def _before(self) -> DataFrame:
        """What the last round has kept."""
        if not self.saved.round:
            return frames.few(self.spark, [], STATE)
        return self.spark.read.schema(STATE).parquet(str(self.home / f"round-{self.saved.round}"))

    def _begin(self, seen: cut.Cut) -> cut.Ends:
        """Where to read on; a partition or a topic that is new is read from its first record."""
        ids, begin = self._ids(seen), {}
        for topic, lows in seen.lows.items():
            known = self.saved.ends.get(topic, {})
            if self.saved.ids.get(topic, ids[topic]) != ids[topic]:
                raise NotAllowed(
                    f"'{topic}' was deleted and made again since the last round: its offsets mean other records now. "
                    f"Begin anew: another state directory than {self.home.name}"
                )
            if self.on_loss == "raise":
                cut.unread(topic, known, lows)
            begin[topic] = {number: max(known.get(number, low), low) for number, low in lows.items()}
        return begin

    def _begun(self, begin: dict[int, int]) -> dict[int, int]:
        """From where on every item was read: the first round's beginning, or behind a gap that was accepted."""
        known = self.saved.ends.get(self.asked.queue, {})
        return {n: self.saved.begun[n] if known.get(n) == offset else offset for n, offset in begin.items()}

    def _ids(self, seen: cut.Cut) -> dict[str, str]:
        from kqlib.queue import state

        return {topic: found[0] for topic, found in state.topic_ids(self.cluster, list(seen.ends)).items()}

    def _load(self) -> Saved:
        file = self.home / "state.json"
        if not file.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            return Saved()
        said = json.loads(file.read_text())
        if said.get("form") != FORM:
            raise NotAllowed(
                f"{self.home} was written by another version of kqlib, and this one cannot read it. "
                "Nothing was changed. Name an empty directory: the audit then begins from the start"
            )
        if said.get("asked") != self._mine():
            raise NotAllowed(
                f"{self.home} holds the state of another audit: {said.get('asked')}. Nothing was changed. Name another directory"
            )
        ends = {topic: _numbered(parts) for topic, parts in said["ends"].items()}
        begun, unseen = _numbered(said["begun"]), _numbered(said["unseen"])
        return Saved(said["round"], ends, said["ids"], said["totals"], begun, unseen)

    def _mine(self) -> dict[str, Any]:
        """Which audit this is."""
        return {name: getattr(self.asked, name) for name in ("queue", "site", "results", "of", "outputs")}

    def _save(self, saved: Saved) -> None:
        """From here on the round has happened; what the one before it kept is not needed any more."""
        whole = {"form": FORM, "asked": self._mine(), **vars(saved)}
        places.write_atomic(self.home / "state.json", json.dumps(whole))
        self.saved = saved
        for old in self.home.glob("round-*"):
            if old.name != f"round-{saved.round}":
                shutil.rmtree(old, ignore_errors=True)


def _numbered(parts: dict[str, int]) -> dict[int, int]:
    """By partition, as JSON does not have it."""
    return {int(number): value for number, value in parts.items()}


def _merged(new: DataFrame, before: DataFrame, begun: dict[int, int], read: dict[int, int], outputs: int) -> DataFrame:
    """What is new and what was kept, an item a row. An item in neither was done in an earlier round: a new result is one too many."""
    from pyspark.sql import functions as f

    whole = added(new.unionByName(before), "was")
    passed = (f.col("offset") >= by_partition(begun)) & (f.col("offset") < by_partition(read))
    late = f.col("created").isNull() & passed & (f.col("results") + f.col("dead") > 0)
    return (
        whole.withColumn("late", late)
        .withColumn("results", f.col("results") + f.col("late").cast("int") * outputs)
        .withColumn("was", f.when(f.col("late"), f.lit("once")).otherwise(f.col("was")))
        .withColumn("created", f.when(f.col("late"), f.col("ended")).otherwise(f.col("created")))
        .drop("late")
    )


def _null(kind: str) -> Any:
    from pyspark.sql import functions as f

    return f.lit(None).cast(kind)
