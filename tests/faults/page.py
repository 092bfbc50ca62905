"""docs/faults.md: what the fault runs measured. `python -m tests.faults.page ITEMS NAME…` runs cases and writes it anew.

In:  how many items, names of cases; without names all of them; without anything only the page is written. Out: docs/faults.json with
the figures of each case's last run, docs/faults.md with the table.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.cases import BROKEN, CASES, KNOWN, Case, run
from tests.faults.world import ROOT

DOCS = ROOT / "docs"
ABOUT = """# The queue under faults

Real workers and producers put, claim, ack and bury on a real broker, and each writes down what it does before and after each call.
While they work, a fault happens. Then the queue is drained, and the histories of all processes are judged.
Every item whose put was acknowledged must be done, and nothing else may come out. These counts must be 0:

- *lost*: acknowledged as put, and never done.
- *two leases*: handed out again before an ack of the earlier lease was confirmed.
- *twice*: done more than once.

*Again* counts leases after an item's first: a worker that is gone had it. *Pause* is the longest time without any claim.
*Takeover* is the longest time from a worker's end until all that it had was claimed by others. Limits are in brackets.
In the last row auto-commit takes the queue's place, and the judge must find lost items.

Made by `python -m tests.faults.page ITEMS NAME…`. The cases are in [cases.py](../tests/faults/cases.py).
All figures of a row are of one run.

| fault | what happens | items | processes | lost | two leases | twice | again | dead | pause | takeover |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def what_happens(case: Case) -> str:
    """The first line of the fault's docstring."""
    fault = case.fault.func if isinstance(case.fault, partial) else case.fault
    return (fault.__doc__ or "").splitlines()[0]


def row(case: Case, found: dict[str, Any] | None) -> str:
    """A line of the table."""
    start = f"| {case.name} | {what_happens(case)} |"
    if found is None:
        return f"{start} not measured | – | – | – | – | – | – | – | – |\n"
    counts = " | ".join(f"{found[name]:,}" for name in ("lost", "shared", "twice", "doubled", "dead"))
    takeover = f"{found['takeover']:.1f} s ({case.takeover:g} s)" if case.takeover else "–"
    pause = f"{found['pause']:.1f} s" + (f" ({case.longest:g} s)" if case.longest else "")
    return f"{start} {found['put']:,} | {found['processes']} | {counts} | {pause} | {takeover} |\n"


def page(figures: dict[str, Any]) -> str:
    """The whole page."""
    rows = "".join(row(case, figures.get(case.name)) for case in [*CASES, BROKEN])
    known = "".join(f"\n*{name}*: {why}.\n" for name, why in KNOWN.items())
    return f"{ABOUT}{rows}\nWhat Kafka or its client does wrong, and is counted apart:\n{known}"


def measured(case: Case, items: int) -> dict[str, Any]:
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as scratch:
        outcome = run(case, items, Path(scratch))
        processes = len(list(Path(scratch).glob("*.history")))
    print(outcome, outcome.wrong or "", flush=True)
    names = ("put", "lost", "shared", "twice", "doubled", "dead", "pause", "takeover")
    when = datetime.now(UTC).date().isoformat()
    return {name: getattr(outcome.verdict, name) for name in names} | {"processes": processes, "day": when}


def main(items: int, names: list[str]) -> None:
    """Run these cases and write the page."""
    stored = DOCS / "faults.json"
    figures: dict[str, Any] = json.loads(stored.read_text()) if stored.exists() else {}
    for case in [*CASES, BROKEN]:
        if items and (case.name in names or not names):
            figures[case.name] = measured(case, items)
            stored.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (DOCS / "faults.md").write_text(page(figures), encoding="utf-8")


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["0"])[0]), sys.argv[2:])
