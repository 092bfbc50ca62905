"""Quality rules: named conditions that a decoded row has to meet. A row that breaks one is counted, put aside, or ends the stream.

    Rule("points", "points >= 0", then="keep")
    Rule("two teams", "home <> away", then="stop", above=0.01)
    Rule("once an hour", "number", within=3600)

In:  rules, and the rows of `Decoded.rows`. Out: the same rows with `_broke`: the names of the rules that a row breaks. `_kq` is null
where the row is put aside, as if it could not be decoded.

A condition is SQL over the fields of the value. A row meets it if it is true; null is not true. A rule with `within` names a value
that comes once in so many seconds, by the timestamps of the records: of two such rows the one that is read second breaks it. For that
each batch writes the values of the last seconds as Parquet beside the checkpoint. A batch that comes again finds the same values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.queue.arguments import seconds
from kqlib.spark import frames
from kqlib.spark.snapshot import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THEN = ("keep", "quarantine", "stop")
DAY = 24 * 3600.0
SEEN = "id string, timestamp timestamp, that string"  # that: of the rule whose value it is; null in those of older versions
TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")  # a text in SQL
UNIT = re.compile(r"(?i)(?:\b\d+|''|\bas)\s+[a-z_]+|\b[a-z_]+\s*(?='')")  # 3 days, AS int, DATE '2026-05-01'
NAME = re.compile(r"`([^`]+)`|(?<![\w.])([A-Za-z_]\w*)(?!\w*\s*\()")  # not a.name, not name(
WORDS = (
    "and or not is null true false in between like ilike rlike regexp escape any some all case when then else end distinct from div "
    "interval current_date current_timestamp current_time current_user"
)
SQL = {*WORDS.split()}
Broken = Counter[tuple[str, int]]  # how many rows broke a rule, by its name and the id of their schema


@dataclass(frozen=True)
class Rule:
    """A condition with a name. then: keep (only count), quarantine, or stop: end the stream if more than the part `above` breaks it.

    within: seconds; then `that` is a value that comes once in this time.
    """

    name: str
    that: str
    then: str = "quarantine"
    above: float = 0.0
    within: float | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(each, str) and each.strip() for each in (self.name, self.that)):
            raise NotAllowed(f"a rule has a name and a condition in SQL, not {self.name!r} and {self.that!r}")
        if self.then not in THEN:
            raise NotAllowed(f"rule '{self.name}': then is {', '.join(THEN)}, not {self.then!r}")
        if not isinstance(self.above, int | float) or not 0 <= self.above < 1:
            raise NotAllowed(f"rule '{self.name}': above is a part from 0 to below 1, not {self.above!r}")
        if self.above and self.then != "stop":
            raise NotAllowed(f"rule '{self.name}': above goes with then = 'stop', not with {self.then!r}")
        if self.within is not None:
            seconds(f"rule '{self.name}': within", self.within, 1, DAY)


class Rules:
    """The rules of a stream, and the values that come once in its last batches."""

    def __init__(self, rules: Sequence[Rule], checkpoint: str) -> None:
        names = [each.name for each in rules]
        once = [each for each in rules if each.within is not None]
        if len(set(names)) < len(names) or len(once) > 1:
            raise NotAllowed("each rule has another name, and one rule at most has `within`")
        self.rules, self.once, self.home = tuple(rules), once[0] if once else None, f"{checkpoint}-seen"

    def marked(self, rows: DataFrame) -> DataFrame:
        """The rows of a stream with `_broke`, and with `_id`, the value that comes once."""
        fields = rows.selectExpr("struct(*) AS _row", "_kq.value.*")
        for rule in self.rules:
            _check(fields, rule)
        single = [rule for rule in self.rules if rule.within is None]
        each = [f"if(_row._kq IS NULL OR coalesce({rule.that}, false), NULL, {_text(rule.name)})" for rule in single]
        once = f"if(_row._kq IS NULL, NULL, string({self.once.that}))" if self.once else "string(NULL)"
        broke = f"array_compact(array({', '.join(each)}))" if each else "array_compact(array(string(NULL)))"
        return fields.selectExpr("_row.*", f"{broke} AS _broke", f"{once} AS _id")

    def judged(self, rows: DataFrame, batch: int, late: str) -> DataFrame:
        """The rows of a batch, judged: `_kq` is null in those that are put aside."""
        if self.once:
            free = f"if({self._aside} OR coalesce({late}, false), NULL, _id) AS _id"  # late, or comes again when it is mended
            rows = self._come_again(rows.selectExpr("* EXCEPT (_id)", free), self.once, batch)
        return rows.selectExpr("* EXCEPT (_kq)", f"if({self._aside}, NULL, _kq) AS _kq")

    def _come_again(self, rows: DataFrame, once: Rule, batch: int) -> DataFrame:
        """Rows whose value came before break the rule."""
        from pyspark.sql import functions as f

        same = f"that IS NULL OR that = {_text(once.that)}"
        before = (
            self._before(rows.sparkSession, batch)
            .where(same)
            .groupBy("id")
            .agg(f.collect_list("timestamp").alias("_times"))
        )
        last = "lag(timestamp) OVER (PARTITION BY _id ORDER BY timestamp, partition, offset)"
        close = f"abs(double(timestamp) - double(each)) < {once.within}"
        again = f"_id IS NOT NULL AND coalesce(exists(array_append(coalesce(_times, array()), {last}), each -> {close}), false)"
        found = rows.join(before, rows["_id"] == before["id"], "left").drop("id")
        broke = f"if({again}, array_append(_broke, {_text(once.name)}), _broke) AS _broke"
        return found.selectExpr("* EXCEPT (_broke, _times)", broke)

    def counted(self, rows: DataFrame) -> Broken:
        """How many of these rows break a rule. NotAllowed if they are too many for one that stops."""
        from pyspark.sql import functions as f

        each = [f.count_if(f.array_contains("_broke", rule.name)) for rule in self.rules]
        decoded = f.count_if(f.expr("_kq IS NOT NULL OR size(_broke) > 0"))
        found = rows.groupBy("schema_id").agg(decoded, *each).collect()
        broken, all_ = Broken(), sum(row[1] for row in found)
        for at, rule in enumerate(self.rules, 2):
            broken.update({(rule.name, row[0]): row[at] for row in found if row[at]})
            count = sum(row[at] for row in found)
            if rule.then == "stop" and count > rule.above * all_:
                first = rows.where(f.array_contains("_broke", rule.name)).orderBy("timestamp").first()
                where = f", the first of them {first.topic}/{first.partition}/{first.offset}" if first else ""
                raise NotAllowed(
                    f"{count:,} of {all_:,} rows break the rule '{rule.name}' ({rule.that}){where}: more than {rule.above:.1%}. "
                    "Nothing of this batch was written. Mend the source or change the rule; the stream then goes on with this batch"
                )
        return broken

    @staticmethod
    def explained(bad: DataFrame) -> DataFrame:
        """Rows that were put aside, with the rules that they break as their cause."""
        broke = "size(_broke) > 0"
        return bad.selectExpr(
            "* EXCEPT (cause, why, _broke, _id)",
            f"if({broke}, 'rule', cause) AS cause",
            f"if({broke}, array_join(_broke, ', '), why) AS why",
        )

    def remember(self, rows: DataFrame, batch: int) -> None:
        """Write the values of the last seconds for the next batch."""
        if self.once is None:
            return
        new = rows.where("_id IS NOT NULL").selectExpr("_id AS id", "timestamp", f"{_text(self.once.that)} AS that")
        every = self._before(rows.sparkSession, batch).unionByName(new)
        newest = "least(max(timestamp) OVER (), now())"  # a record from the future makes nothing old
        dated = every.selectExpr("*", f"double({newest}) - double(timestamp) AS _age")
        kept = dated.where(f"_age < {self.once.within}").drop("_age").coalesce(1)
        kept.write.mode("overwrite").parquet(self._path(batch))
        files = Files(rows.sparkSession, self.home)
        for name in files.sizes("."):
            if name not in {f"batch={batch}", f"batch={batch - 1}"}:
                files.delete(name)

    def _before(self, spark: SparkSession, batch: int) -> DataFrame:
        """The values as the batch before left them; none if the rule is new."""
        others = set(Files(spark, self.home).sizes(".")) - {f"batch={batch}"}
        if not others:
            return frames.few(spark, [], SEEN)
        if f"batch={batch - 1}" not in others:
            raise NotAllowed(
                f"which values came before is not known: the rule was left out in batch {batch - 1}, or {self._path(batch - 1)} is "
                f"lost. Nothing of this batch was written. Delete {self.home}: the rule then begins with no values, and a value that "
                "came before may come a second time"
            )
        return spark.read.schema(SEEN).parquet(self._path(batch - 1))

    def _path(self, batch: int) -> str:
        return f"{self.home}/batch={batch}"

    @property
    def _aside(self) -> str:
        """The condition for a row that is put aside."""
        names = ", ".join(_text(rule.name) for rule in self.rules if rule.then != "keep")
        return f"arrays_overlap(_broke, array({names}))" if names else "false"


def unknown(that: str, fields: Iterable[str]) -> list[str]:
    """Names in a condition that are no fields, as far as words show it: not of functions, not SQL. Only Spark knows for sure."""
    if "->" in that:
        return []
    found = [quoted or name for quoted, name in NAME.findall(UNIT.sub(" ", TEXT.sub("''", that)))]
    known = {each.lower() for each in fields}
    return [each for each in dict.fromkeys(found) if each.lower() not in known | SQL]


def _check(fields: DataFrame, rule: Rule) -> None:
    from pyspark.errors import AnalysisException, ParseException

    try:
        kind = fields.selectExpr(f"({rule.that}) AS it").schema["it"].dataType.typeName()
    except (AnalysisException, ParseException) as error:
        why = str(error).strip().splitlines()[0]  # that of a mistake in the syntax begins with an empty line
        raise NotAllowed(f"rule '{rule.name}': Spark cannot read {rule.that!r}: {why}") from None
    if rule.within is None and kind != "boolean":
        raise NotAllowed(f"rule '{rule.name}': {rule.that!r} is no condition, but of type {kind}")


def _text(name: str) -> str:
    """A name as SQL text."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
