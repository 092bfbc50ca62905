"""What `kq.crash` found: a table, the shortest failing history as a picture and in sentences, and all of it in one HTML file.

In:  runs. Out: `Report`. Its text has no times, so a notebook can show it.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kqlib.text import as_json, count
from kqlib.workshop.crash.life import WORDS, Point, Run
from kqlib.workshop.crash.verdict import KINDS, named
from kqlib.workshop.view import Picture, Table, wire as draw
from kqlib.workshop.wire.crossing import Crossing, records

DONE = {  # what the broker has done when it has answered
    "Produce": "stored",
    "OffsetCommit": "stored",
    "TxnOffsetCommit": "noted",
    "EndTxn": "done",
    "InitProducerId": "done",
}
ADVICE = {
    "lost": "Write the result before you commit, or both in one transaction.",
    "doubled": "Write the result and commit in one transaction, or let the reader of the results drop what it has.",
    "order": "Write results of one key one after the other, and wait for each.",
}


@dataclass(frozen=True)
class Report:
    """All runs of a command, and what became of the items in each."""

    command: Sequence[str]
    items: int
    accident: str
    allow: tuple[str, ...]
    base: Run
    points: tuple[tuple[Point, ...], ...]
    runs: tuple[Run, ...] = field(repr=False)
    left_out: int = 0
    differs: dict[str, tuple[int, int]] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def bad(self) -> list[Run]:
        """The runs in which something went wrong that is not allowed, or whose command did not end well."""
        return [run for run in self.runs if run.failed or run.wrong(self.allow)]

    @property
    def clean(self) -> bool:
        """Did nothing go wrong in any run?"""
        return not self.bad

    @property
    def lost(self) -> int:
        """In how many runs an item was lost."""
        return self.total("lost")

    @property
    def doubled(self) -> int:
        """In how many runs an item was doubled."""
        return self.total("doubled")

    @property
    def shortest(self) -> Run | None:
        """The failing run with the fewest requests."""
        return min(self.bad, key=lambda run: (len(run.points), len(run.work)), default=None)

    def total(self, kind: str) -> int:
        """In how many runs this went wrong."""
        return sum(bool(getattr(run if kind == "died" else run.verdict, kind)) for run in self.runs)

    # --- the table ------------------------------------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        """A row for each kind of request, before and after: how many runs, and in how many something went wrong."""
        rows = []
        for place in dict.fromkeys(_place(points) for points in self.points):
            mine = [run for run in self.runs if _place(run.points) == place]
            reached = [run for run in mine if run.reached]
            wrong = [sum(bool(getattr(run.verdict, kind)) for run in mine) for kind in KINDS[:3]]
            ends = [sum(run.died for run in mine), len(mine) - len(reached), sum(bool(run.failed) for run in mine)]
            rows.append([place, len(mine), *wrong, *ends])
        accident = WORDS.get(self.accident, self.accident)
        columns = [f"{accident} …", "runs", *KINDS[:3], "died", "not reached", "failed"]
        kept = [at for at in range(len(columns)) if at < 5 or any(row[at] for row in rows)]
        return Table([[row[at] for at in kept] for row in rows], [columns[at] for at in kept], self.title)

    @property
    def title(self) -> str:
        """One line that says all."""
        words = [f"{kind} in {self.total(kind)}" for kind in ("lost", "doubled")]
        words += [f"{kind} in {self.total(kind)}" for kind in (*KINDS[2:], "died") if self.total(kind)]
        return f"{shlex.join(self.command[-1:])} · {count(self.items, 'item')} · {count(len(self.runs), 'run')} · {', '.join(words)}"

    @property
    def notes(self) -> list[str]:
        """What a reader of the table has to know."""
        found = []
        if self.left_out:
            found.append(f"{count(self.left_out, 'point')} left out; --sample and --seed choose.")
        if self.differs:
            words = ", ".join(f"{one} and {other} {api}" for api, (one, other) in self.differs.items())
            found.append(f"Two runs without an accident had {words}: some points may have been missed.")
        if early := committed_early(self.base):
            found.append(f"Without any accident item {early[0]} was committed before its result was stored.")
        if self.shared:
            found.append(
                f"Two runs used {', '.join(map(repr, self.shared))}, so runs went one by one. KQ_TXN and KQ_GROUP are new in each run."
            )
        retried = sum(len(run.lives) > len(run.points) + 1 for run in self.runs if not run.failed)
        if retried and self.accident == "kill":
            found.append(
                f"In {count(retried, 'run')} the command ended with an error and only another restart did the work."
            )
        if waits := sum(map(_waits_for_coordinator, self.runs)):
            found.append(
                f"In {count(waits, 'run')} the client waited for ever in send_offsets_to_transaction after its connection was closed: "
                "a defect of librdkafka (issues 5511 and 5456). metadata.recovery.strategy=none avoids it."
            )
        late = {
            note for run in self.runs for life in run.lives for note in life.notes if note.startswith("it did not end")
        }
        found += [f"{note[0].upper()}{note[1:]}." for note in sorted(late)]
        if any(note.startswith("left group") for run in self.runs for life in run.lives for note in life.notes):
            found.append(
                "After each death kq left the group in the dead process's name; --patient waits for its session instead."
            )
        return found

    # --- the shortest failing history -----------------------------------------------------------------------------------

    @property
    def picture(self) -> Picture | None:
        """The shortest failing history as a sequence."""
        run = self.shortest
        return draw(_plain(run), title=f"{' and '.join(map(str, run.points))}: {run.verdict}") if run else None

    def story(self) -> list[str]:
        """The shortest failing history in sentences."""
        return list(_story(self.shortest, self)) if self.shortest else []

    # --- forms ----------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> int:
        """The exit status of `kq crash`: 0 clean, 1 something went wrong, 2 a command did not end well."""
        return 2 if any(run.failed for run in self.runs) else int(not self.clean)

    @property
    def text(self) -> str:
        """All of it for a terminal."""
        lines = [self.table.text, *self.notes]
        if self.shortest and self.picture:
            lines += ["", *self.story(), "", self.picture.text]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        parts = [self.table.html, *(f"<p>{html.escape(line)}</p>" for line in [*self.notes, *self.story()])]
        if self.picture:
            parts.append(self.picture._repr_mimebundle_()["text/html"])
        return {"text/plain": self.text, "text/html": "\n".join(parts)}

    def page(self) -> str:
        """One HTML file that stands alone."""
        body = self._repr_mimebundle_()["text/html"]
        listed = "".join(f"<li>{html.escape(_line(run))}</li>" for run in self.bad)
        style = "body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:2em auto;padding:0 1em;color-scheme:light dark}"
        head = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{html.escape(self.title)}</title><style>{style}</style>"
        command = f"<p>Run again: <code>kq crash -- {html.escape(shlex.join(self.command))}</code></p>"
        rest = f"<h2>Every run in which something went wrong</h2><ol>{listed}</ol>" if listed else ""
        return f"{head}<h1>kq crash</h1>\n{command}\n{body}\n{rest}</html>\n"

    def as_json(self) -> str:
        """All of it for programs."""
        found = {
            "command": list(self.command),
            "items": self.items,
            "accident": self.accident,
            "clean": self.clean,
            "points": [_spelled(each) for each in self.points],
            "left_out": self.left_out,
            "differs": self.differs,
            "shared": list(self.shared),
            "seconds": round(self.seconds, 1),
            "runs": [
                {
                    "points": _spelled(run.points),
                    "reached": run.reached,
                    **{kind: list(getattr(run.verdict, kind)) for kind in KINDS},
                    "lives": list(map(asdict, run.lives)),
                    "died": run.died,
                    "failed": run.failed,
                    "seconds": round(run.seconds, 1),
                    "recovery": None if run.recovery is None else round(run.recovery, 2),
                }
                for run in self.runs
            ],
        }
        return as_json(found)


def committed_early(run: Run) -> list[int]:
    """The items that were committed, outside of a transaction, before their result was stored."""
    stored, early = 0, []
    for each in run.crossed:
        for topic in each.request.get("TopicData") or ():
            stored += sum(records(part.get("Records")) for part in topic.get("PartitionData") or ()) * (
                topic.get("Name") != run.topic
            )
        for topic in each.request.get("Topics") or () if each.api == "OffsetCommit" else ():
            done = max((part["CommittedOffset"] for part in topic.get("Partitions") or ()), default=0)
            early += [*range(stored, done)] if topic.get("Name") == run.topic else []
    return early


def _waits_for_coordinator(run: Run) -> bool:
    """Does a transaction lack its offsets, and nothing crosses any more? The client waits for a connection that it gave up."""
    calls = [each.api for each in run.work if not each.error and each.api in ("AddOffsetsToTxn", "TxnOffsetCommit")]
    return bool(run.lives[-1].ended == "quiet" and run.verdict.lost and calls and calls[-1] == "AddOffsetsToTxn")


def _plain(run: Run) -> list[Crossing]:
    """A run's work; its topics have the same names in every run."""
    return [
        replace(each, client="worker", what=re.sub(rf"{run.topic}(-results)?", _topic, each.what)) for each in run.work
    ]


def _topic(found: re.Match[str]) -> str:
    return "results" if found[1] else "items"


def _place(points: Sequence[Point]) -> str:
    """'before Produce'."""
    return ", then ".join(f"{each.when} {each.api}" for each in points)


def _spelled(points: Sequence[Point]) -> str:
    """As --only takes them."""
    return "+".join(map(str, points))


def _line(run: Run) -> str:
    return f"{_spelled(run.points)}: {run.failed or run.verdict}"


def _story(run: Run, report: Report) -> Iterator[str]:
    """What happened, in this order: the accident, what followed, what became of the items, why, what to do."""
    point = run.points[-1]
    accident = WORDS.get(report.accident, f"answered with {point.error}")
    if point.when == "after":
        where = f"after the broker had {DONE.get(point.api, 'answered')} {_call(point)}"
    else:
        where = f"before {_call(point)} reached the broker"
    following = _next(report.base.crossed, point)
    yield f"{accident.capitalize()} {where}{f', before {following.api} {following.nth}' if following else ''}."
    if run.failed:
        yield f"{run.failed[0].upper()}{run.failed[1:]}."
        return
    restarts = len(run.lives) - 1
    if restarts:
        yield f"It was started {count(restarts, 'more time')}, and its group went on at its last commit."
    kind = run.wrong(report.allow)[0]
    stuck = kind == "lost" and run.lives[-1].ended == "quiet"
    if kind in ("lost", "doubled"):
        items = getattr(run.verdict, kind)
        verb = "was" if len(items) == 1 else "were"
        fate = "committed and never written" if kind == "lost" else "written, and read and written again"
        fate = "never written, and then nothing crossed any more" if stuck else fate
        yield f"{named(items).capitalize()} {verb} {fate}."
    elif kind == "order":
        yield f"Keys whose results came out of order: {', '.join(run.verdict.order)}."
    elif kind == "died":
        yield f"A client can go on after that, but the command ended with exit status {run.lives[0].code}."
    else:
        yield f"{run.verdict}."
    if kind in ADVICE and not stuck:
        yield ADVICE[kind]
    how = "" if report.accident == "kill" else f"--accident {report.accident} "
    yield f"To see it again: kq crash {how}--only {_spelled(run.points)} -- {shlex.join(report.command)}"


def _call(point: Point) -> str:
    return f"{point.api} {point.nth}"


def _next(crossed: Sequence[Crossing], point: Point) -> Crossing | None:
    """What the command does next in a run without an accident."""
    at = [number for number, each in enumerate(crossed) if (each.api, each.nth) == (point.api, point.nth)]
    return (
        next((each for each in crossed[at[0] + 1 :] if not each.poll), None) if at and point.when == "after" else None
    )
