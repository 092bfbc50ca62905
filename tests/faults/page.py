"""docs/faults.md: what the fault runs measured. `python -m tests.faults.page ITEMS NAME…` runs cases and writes it anew.

In:  how many items, names of cases, of mutants or of neighbours, seeds; without names all of them; without anything only the page is
     written.
Out: docs/faults.json with the figures of each one's last runs, docs/faults.md with the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.__main__ import PLAIN
from tests.faults.cases import BROKEN, CASES, KNOWN, PLANTED, Case, Outcome, run
from tests.faults.flatness import picture, section
from tests.faults.mutants import MUTANTS
from tests.faults.world import ROOT

DOCS = ROOT / "docs"
SOAK = "soak"
PLANT = 2_000  # items for a mutant
COUNTS = (
    "put",
    "lost",
    "vanished",
    "unexpected",
    "copied",
    "shared",
    "twice",
    "revived",
    "uncounted",
    "misordered",
    "doubled",
    "dead",
)
SHOWN = ("lost", "vanished", "unexpected", "shared", "twice", "misordered", "doubled", "dead")
ABOUT = """# The queue under faults

Real workers and producers put, claim, ack and bury on a real broker, and each writes down what it does before and after each call.
While they work, a fault happens. Then the queue is drained, and the histories of all processes are judged.
Every item whose put was acknowledged must be done, and nothing else may come out. These counts must be 0:

- *lost*: acknowledged as put, and never done.
- *not in log*: acknowledged as put, and not in Kafka's log at the end. These are not counted as lost.
- *unexpected*: came out, and was never put.
- *two leases*: handed out again before an ack of the earlier lease was confirmed.
- *twice*: done more than once, or one item with two dead letters.
- *order*: handed out before an earlier item of its key was done; judged where the queue keeps the order of each key; elsewhere –.

*Histories* are the processes of all runs. *Seeds* draw the victims; one run for each.
*Again* counts leases after an item's first: a worker that is gone had it. *Pause* is the longest time without any claim.
*Takeover* is the longest time from a worker's end until all that it had was claimed by others. Limits are in brackets.
With *virtual queues* the nodes suffer the fault, and clients ask again when a node refuses.
With an *outbox* an order counts as put when it is committed, and each of its effects is counted. A job may be in the queue twice.
In the last row auto-commit takes the queue's place, and the judge must find lost items.

Made by `python -m tests.faults.page ITEMS NAME…`. The cases are in [cases.py](../tests/faults/cases.py).

"""
HEAD = (
    *("fault", "items", "histories", "seeds", "lost", "not in log", "unexpected", "two leases", "twice", "order"),
    *("again", "dead", "pause", "takeover", "day"),
)
JUDGES = f"""
## Does the judge see anything?

One mistake is planted in the workers or producers by [mutants.py](../tests/faults/mutants.py). The named count must find it.
{PLANT:,} items each.

| mistake | what it does | fault | found by | count | day |
|---|---|---|---|---|---|
"""
BESIDE = {
    "pipeline": ["tests/faults/test_pipeline.py"],
    "cluster": ["-k", "killed_at_any_moment or reaper_is_stopped", "tests/promises/test_no_orphan.py"],
}
NEIGHBOURS = """
## Beside the queue

The pipeline on Spark and the embedded cluster are judged by tests of their own; virtual queues and the outbox are in the first table.
A Spark driver commits no offsets to Kafka: its checkpoint has them. So the answers that it loses are those of its writes.
All points of a driver take hours: a share of them was taken here, and each of seven nights takes a seventh.
`python -m tests.faults.page ITEMS pipeline cluster` runs these tests; `KQ_FAULT_SHARE=1/40` takes a fortieth of the points.

| promise | what was seen | day |
|---|---|---|
"""
NAMES = {"shared": "two leases", "vanished": "not in log", "misordered": "order", "doubled": "again"}


def what_happens(case: Case) -> str:
    """The first line of the fault's docstring."""
    fault = case.fault.func if isinstance(case.fault, partial) else case.fault
    return (fault.__doc__ or "").splitlines()[0]


def limited(seconds: float, limit: float) -> str:
    """Seconds, with their limit if there is one."""
    return f"{seconds:.1f} s" + (f" ({limit:g} s)" if limit else "")


def row(case: Case, found: dict[str, Any] | None) -> str:
    """A line of the table."""
    start = f"| **{case.name}**<br>{what_happens(case)} |"
    if found is None:
        return f"{start} not measured{' | –' * (len(HEAD) - 2)} |\n"
    # figures from before a run noted its order: the case of that name judged it
    judged = "key" in (found.get("order"), *case.name.split())
    counts = [f"{found.get(name, 0):,}" if judged or name != "misordered" else "–" for name in SHOWN]
    seeds = ", ".join(map(str, found["seeds"])) or "–"
    takeover = limited(found["takeover"], case.takeover) if case.takeover else "–"
    cells = [
        f"{found['put']:,}",
        str(found["histories"]),
        seeds,
        *counts,
        limited(found["pause"], case.longest),
        takeover,
        found["day"],
    ]
    return f"{start} {' | '.join(cells)} |\n"


def planted_row(case: Case, found: dict[str, Any] | None) -> str:
    """A line of the table of mutants."""
    mistake = (MUTANTS[case.name.partition(",")[0]].__doc__ or "").splitlines()[0]
    start = f"| {case.name} | {mistake} | {what_happens(case)} |"
    limit = {"takeover": case.takeover, "pause": case.longest}.get(case.caught)
    count = "not measured"
    if found:
        count = limited(found[case.caught], limit) if limit else f"{found[case.caught]:,}"
    return f"{start} {NAMES.get(case.caught, case.caught)} | {count} | {found['day'] if found else '–'} |\n"


def key_of(case: Case) -> str:
    """Where its figures are stored."""
    return f"{case.name}: {case.caught}" if case.caught else case.name


def beside_queue(name: str, items: int) -> dict[str, Any]:
    """Run the tests of a neighbour. Each promise, and the lines of figures that its test noted; whether it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        env = os.environ | {"KQ_FAULT_ITEMS": str(items), "KQ_NIGHTLY": "1"}
        subprocess.run(
            [*PLAIN, "-o", "junit_family=xunit1", f"--junitxml={report}", *BESIDE[name]], cwd=ROOT, env=env, check=False
        )
        found = dict[str, list[str]]()
        for test in ElementTree.parse(report).iter("testcase"):
            lines = [each.attrib["value"] for each in test.iter("property") if each.get("name") == "figure"]
            failed = test.find("failure") is not None or test.find("error") is not None
            found[test.attrib["name"]] = [*lines, "**failed**"] if failed else lines
    return {"seen": {test: lines for test, lines in found.items() if lines}, "day": today()}


def beside_rows(name: str, found: dict[str, Any] | None) -> str:
    """Lines of the table of neighbours: the name of a test is its promise."""
    if found is None:
        return f"| {name} | not measured | – |\n"
    return "".join(
        f"| {test.removeprefix('test_').replace('_', ' ').replace('[', ' [')} | {'<br>'.join(lines)} | {found['day']} |\n"
        for test, lines in found["seen"].items()
    )


def page(figures: dict[str, Any]) -> str:
    """The whole page."""
    head = f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|\n"
    rows = "".join(row(case, figures.get(case.name)) for case in [*CASES, BROKEN])
    known = "".join(f"\n*{name}*: {why}.\n" for name, why in KNOWN.items())
    judged = "".join(planted_row(case, figures.get(key_of(case))) for case in PLANTED)
    beside = NEIGHBOURS + "".join(beside_rows(name, figures.get(name)) for name in BESIDE)
    soak = section(figures.get(SOAK))
    return f"{ABOUT}{head}{rows}\nWhat Kafka or its client does wrong, and is counted apart:\n{known}{JUDGES}{judged}{beside}{soak}"


def measured(case: Case, items: int, seeds: list[int]) -> dict[str, Any]:
    """The figures of one run for each seed: sums, and the longest times."""
    outcomes, histories = list[Outcome](), 0
    for seed in seeds:
        with tempfile.TemporaryDirectory() as scratch:
            outcomes.append(run(case, items, Path(scratch), seed))
            histories += len(list(Path(scratch).glob("*.history")))
        print(outcomes[-1], outcomes[-1].wrong or "", flush=True)
    verdicts = [outcome.verdict for outcome in outcomes]
    found: dict[str, Any] = {name: sum(getattr(each, name) for each in verdicts) for name in COUNTS}
    found |= {name: max(getattr(each, name) for each in verdicts) for name in ("pause", "takeover")}
    found["order"] = case.worker.get("order", "any")
    return found | {"histories": histories, "seeds": seeds, "day": today()}


def today() -> str:
    """The day of these figures."""
    return datetime.now(UTC).date().isoformat()


def store(key: str = "", found: dict[str, Any] | None = None) -> None:
    """Keep these figures, and write the page and its picture anew."""
    figures: dict[str, Any] = json.loads((DOCS / "faults.json").read_text(encoding="utf-8"))
    if found:
        figures[key] = found
        text = json.dumps(figures, indent=1)
        text = re.sub(r"\[[^][{}]*\]", lambda some: re.sub(r"\s+", " ", some[0]), text)  # a list is a line
        (DOCS / "faults.json").write_text(text + "\n", encoding="utf-8")
    (DOCS / "faults.md").write_text(page(figures), encoding="utf-8")
    if SOAK in figures:
        (DOCS / "soak.svg").write_text(picture(figures[SOAK]).svg, encoding="utf-8")


def main() -> None:
    """Run these cases and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.page", description="Run faults, and write docs/faults.md."
    )
    parser.add_argument("items", type=int, nargs="?", default=0)
    parser.add_argument("names", nargs="*", help="of cases, mutants or neighbours; without: all of them")
    parser.add_argument("--seeds", type=int, nargs="+", help="one run for each; without: one, drawn")
    asked = parser.parse_args()
    for case in [*CASES, BROKEN, *PLANTED]:
        if asked.items and (case.name in asked.names or not asked.names):
            items = min(asked.items, PLANT) if case.caught else asked.items
            store(key_of(case), measured(case, items, asked.seeds or [random.randrange(1000)]))
    for name in BESIDE:
        if asked.items and (name in asked.names or not asked.names):
            store(name, beside_queue(name, asked.items))
    store()


if __name__ == "__main__":
    main()
