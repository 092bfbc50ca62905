"""The log of a topic: a lane is a partition, a cell is a record, a mark is an upright bar between records.

In:  `Lane` values (lane.py), and the letters that keys had in earlier pictures (letters.py).
Out: `log(lanes, title="football") -> Picture`, drawn by log_svg.py, and its twin:

    football · 2 partitions · 11 + 7 records · 9 not done
    p0  ░12 ░13 |low B✓14 A✓15 |floor C²16 B✓17 A◷18 C✕19 B¹20 |read A21 C22 |end
    p1  D✓8 E✓9 D✓10 |floor E¹11 |read D12 E13 D14 |end

Of more than forty records in a partition the first and the last ten are shown: '… 960 more'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from kqlib.text import Key, clean, count, cut
from kqlib.workshop.view.lane import FINISHED, Cell, Lane, Mark, More, Record, Row, State, Step, rows
from kqlib.workshop.view.letters import Lettering
from kqlib.workshop.view.log_svg import draw
from kqlib.workshop.view.picture import Picture, pad

LONGEST_TITLE = 100
MOST_TERMS = 4  # partitions up to which the headline counts each one
GLYPHS: dict[State, str] = {"waiting": "", "due": "◷", "done": "✓", "dead": "✕"}
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def log(
    lanes: Iterable[Lane],
    title: str = "log",
    legend: bool = True,
    letters: Mapping[Key, str] | None = None,
    colour: Literal["state", "key"] = "state",
) -> Picture:
    """The picture of a topic's partitions. `letters`: key -> letter of earlier pictures; new keys get the next free ones."""
    every = list(lanes)
    shown = rows(every)
    cells = [step for row in shown for step in row.steps if isinstance(step, Cell)]
    lettering = Lettering.of([cell.record.key for cell in cells if cell.record and not cell.gone], letters)
    title, rest = cut(clean(title), LONGEST_TITLE), counts(every)
    sentence = f"{title} · {rest}"
    svg = draw(shown, lettering, title, rest, legend=legend, by_key=colour == "key")
    return Picture(svg, "\n".join([sentence, *_twin(shown, lettering)]), sentence)


def counts(lanes: Sequence[Lane]) -> str:
    """'2 partitions · 11 + 7 records · 9 not done'."""
    each = [len(lane.records) for lane in lanes]
    records = f"{' + '.join(map(str, each))} records" if 1 < len(each) <= MOST_TERMS else count(sum(each), "record")
    words = [count(len(lanes), "partition"), records]
    states = [record.state for lane in lanes for record in lane.records]
    if set(states) - {"waiting", "gone"}:  # in a plain topic there is nothing to be done
        words.append(f"{sum(state not in FINISHED for state in states)} not done")
    return " · ".join(words)


def _twin(shown: Sequence[Row], lettering: Lettering) -> list[str]:
    """A line a lane, and one that explains the letters."""
    wide = max((len(row.name) for row in shown), default=0)
    lines = []
    for row in shown:
        words = [row.words, *(_in_words(step, lettering) for step in row.steps)]
        lines.append(f"{pad(row.name, wide)}  {' '.join(filter(None, words))}" if row.name else row.words)
    legend = " · ".join(f"{letter} {key}" for letter, key in lettering.legend())
    return [*lines, legend] if legend else lines


def _in_words(step: Step, lettering: Lettering) -> str:
    """'B✓14', 'C²16', '░12', '|floor', '… 960 more'."""
    if isinstance(step, Mark):
        return f"|{step.word}"
    if isinstance(step, More):
        return step.words
    note = f"({clean(step.record.note)})" if step.record and step.record.note else ""
    if step.record is None or step.gone:
        return f"░{step.offsets}{note}"
    return f"{lettering[step.record.key]}{_state(step.record)}{step.offsets}{note}"


def _state(record: Record) -> str:
    """A record's state as one sign."""
    return str(record.attempt).translate(SUPERSCRIPT) if record.state == "claimed" else GLYPHS[record.state]
