"""Standings counted anew, beside the live stream: with other rules, another lateness, corrected code, or from a later start.

In:  the stream's topics and directory, the new settings, a start, a rate. Out: `Compared`: what the new version would change.

    backfill(…)                beside the live stream: reads the log from `start` up to where the live stream has committed
    backfill(…, switch=True)   while it stands: reads the rest, then puts the new state in the place of the old one

Both versions have read the log up to the same offsets when they are compared and when they are switched. So the checkpoint stays as
it is, and the stream goes on with the new state: no row is left out, and none counts twice. The topic of standings changes in one
transaction. A process that is killed during the switch leaves a note, and the next start ends it (`snapshot.Snapshot.switch`).

    home/next/backfill.json             the settings; a backfill with other settings begins anew
    home/next/ends/batch                up to where this batch reads; written before it
    home/next/games, teams, current     the new version, as in `home`

Rows that a rule or the schema puts aside are only counted here. The live stream put its own aside already.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed
from kqlib.queue.arguments import count
from kqlib.spark import frames
from kqlib.spark.decode import decode
from kqlib.spark.plan import Plan, plan
from kqlib.spark.rules import Broken, Rule, Rules
from kqlib.spark.snapshot import NEXT, SWITCH, TABLES, Snapshot
from kqlib.spark.standings import AT_ONCE, advance, encoder, publish
from kqlib.spark.stream import Batches, Counted, batch_of, explained
from kqlib.spark.table import LATE, came_late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kqlib.kafka import Kafka
    from kqlib.schemas import Registry

PAUSE = 5.0  # seconds of rows in a batch, if there is a rate
TRIES = 5  # to read the live teams, which the live stream deletes two batches later
Offsets = Mapping[int, int]


@dataclass(frozen=True, repr=False)
class Compared:
    """The new version beside the live one, both at the same offsets. teams: how many are the same, changed, new and gone."""

    start: Offsets
    end: Offsets
    counted: Counted  # the rows that were read by this call
    broke: Broken
    teams: Counter[str]
    first: tuple[str, ...]  # some of the differences
    switched: bool = False

    def __repr__(self) -> str:
        read = ", ".join(f"{number}: {self.start[number]:,} to {end:,}" for number, end in sorted(self.end.items()))
        teams = ", ".join(f"{self.teams[each]:,} {each}" for each in ("same", "changed", "new", "gone"))
        rules = [
            f"rule '{rule}': {rows:,} rows of schema {schema}" for (rule, schema), rows in sorted(self.broke.items())
        ]
        lines = [f"offsets {read}", f"{self.counted}", *rules, f"teams: {teams}", *self.first]
        return "\n".join([*lines, "switched" if self.switched else "nothing was switched"])


def backfill(
    spark: SparkSession,
    cluster: Kafka,
    games: str,
    out: str,
    *,
    registry: Registry,
    home: str,
    late: float = LATE,
    subject: str | None = None,
    rules: Sequence[Rule] = (),
    schema: Any = None,
    start: frames.Place = "earliest",
    rate: int | None = None,
    switch: bool = False,
    tell: Callable[[str], object] = lambda _: None,
) -> Compared:
    """Count the standings of a stream anew; see the top of this module.

    start: the first records that count, by time or by offset. rate: records a second. switch: put it in the place of the live one,
    whose process must not run (`running.alone`). tell: gets a line after each batch.
    """
    if rate is not None:
        count("rate", rate)
    live, new = Snapshot(spark, home), Snapshot(spark, f"{home}/{NEXT}")
    encoded = encoder(registry, out)
    if switch:
        live.switch(lambda made: publish(encoded(made), cluster, out))  # one that was killed
    elif live.files.read(SWITCH) is not None:
        raise NotAllowed("a switch was killed. Start the stream, or type --switch: either one ends it")
    found, teams = _live(live, lambda: plan(cluster, home, games, out))
    end = {number: at for number, (at, _) in found.offsets.items()}
    settings = {
        "late": late,
        "subject": subject,
        "schema": schema,
        "rules": [asdict(each) for each in rules],
        "start": str(start),
    }
    noted = _begun(new, settings, lambda: _start(cluster, games, start, end))
    begin = {number: noted.get(number, 0) for number in end}  # partitions may have been added
    condition, judge, done = came_late(late, "_kq.value"), Rules(rules, f"{new.home}/checkpoint"), Batches()

    def each(good: DataFrame, bad: DataFrame, batch: int) -> None:
        before = new.prepare(batch)
        advance(new, good, late, batch, before)
        new.commit(batch, before)

    last = new.current()
    at = begin if last is None else begin | _ends(new, last)
    if any(offset > end[number] for number, offset in at.items()):
        raise NotAllowed(
            f"the backfill in {new.home} has read farther than the stream. Delete {new.home}: it then begins anew"
        )
    while last is None or at != end:
        began, last = time.monotonic(), 0 if last is None else last + 1
        to = piece(at, end, AT_ONCE if rate is None else min(AT_ONCE, max(1, int(rate * PAUSE))))
        new.files.delete(f"ends/{last}")
        new.files.write(f"ends/{last}", json.dumps(to))
        decoded = decode(
            frames.span(spark, cluster, games, at, to), registry, subject or f"{games}-value", schema=schema
        )
        run = batch_of(decoded, each, done, late=condition, aside=None, judge=judge)
        try:
            run(judge.marked(decoded.rows), last)
        except Exception as error:
            raise explained(error) from None
        at, rows = to, sum(to.values()) - sum(at.values())
        tell(f"{sum(at.values()) - sum(begin.values()):,} of {sum(end.values()) - sum(begin.values()):,} records")
        if rate is not None and at != end:
            time.sleep(max(0.0, rows / rate - (time.monotonic() - began)))
    now = {(row.league, row.team): row.asDict() for row in new.read("teams", last).collect()}
    if switch:
        assert found.done is not None
        live.order(found.done, last)
        live.switch(lambda made: publish(encoded(made), cluster, out))
    return Compared(begin, end, done.counted, done.broke, *compare(teams, now), switched=switch)


def _live(live: Snapshot, look: Callable[[], Plan]) -> tuple[Plan, dict[Any, dict[str, Any]]]:
    """Where the live stream is, and its teams there."""
    for _ in range(TRIES):
        found = look()
        if found.done is None:
            raise NotAllowed(
                f"the stream of {live.home} has committed no batch, so there is nothing to count anew: run it"
            )
        try:
            rows = live.read("teams", found.done).collect()
        except Exception as error:  # the live stream went on, and deleted them
            trouble = error
        else:
            return found, {(row.league, row.team): row.asDict() for row in rows}
    raise NotAllowed(f"the live teams in {live.home} cannot be read: {str(trouble).splitlines()[0]}")


def _begun(new: Snapshot, settings: dict[str, Any], start: Callable[[], dict[int, int]]) -> dict[int, int]:
    """Where the backfill with these settings begins. What another one left is deleted."""
    noted = json.loads(new.files.read("backfill.json") or "{}")
    if noted.get("settings") != json.loads(json.dumps(settings)):
        for name in ("backfill.json", "current", "ends", "checkpoint-seen", *TABLES):
            new.files.delete(name)
        noted = {"begin": start(), "settings": settings}
        new.files.write("backfill.json", json.dumps(noted))
    return {int(number): at for number, at in noted["begin"].items()}


def _start(cluster: Kafka, games: str, start: frames.Place, end: Offsets) -> dict[int, int]:
    """The offsets of the first records, none behind the end."""
    found = frames.offsets(cluster, games, frames.place("start", start), *frames.bounds(cluster, games))
    return {number: min(found[number], at) for number, at in end.items()}


def _ends(new: Snapshot, batch: int) -> dict[int, int]:
    text = new.files.read(f"ends/{batch}")
    if text is None:
        raise NotAllowed(f"{new.home}/ends/{batch} is lost. Delete {new.home}: the backfill then begins anew")
    return {int(number): at for number, at in json.loads(text).items()}


def piece(at: Offsets, end: Offsets, most: int) -> dict[int, int]:
    """Up to where the next batch reads: about `most` records, from each partition its part of what is left."""
    left = {number: offset - at.get(number, 0) for number, offset in end.items()}
    share = min(1.0, most / max(1, sum(left.values())))
    return {n: at.get(n, 0) + min(each, -int(-each * share // 1)) for n, each in left.items()}


def compare(
    before: Mapping[Any, Mapping[str, Any]], now: Mapping[Any, Mapping[str, Any]], most: int = 10
) -> tuple[Counter[str], tuple[str, ...]]:
    """How many teams are the same, changed, new and gone; and some of the differences."""
    kinds, first = Counter[str](), list[str]()
    for key in sorted({*before, *now}):
        was, has = before.get(key), now.get(key)
        kind = "new" if was is None else "gone" if has is None else "same" if was == has else "changed"
        kinds[kind] += 1
        if was and has and kind == "changed":
            what = ", ".join(f"{name} {was[name]} -> {has[name]}" for name in was if was[name] != has[name])
            first.append(f"{'/'.join(key)}: {what}")
        elif kind != "same":
            first.append(f"{'/'.join(key)}: {kind}")
    return kinds, tuple(first[:most])
