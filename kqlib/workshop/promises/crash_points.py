"""A queue whose worker is killed or stopped at each of its requests to Kafka: is an item lost, done twice, or leased twice?

    scores = visit({"ledger": LEDGER})          # all points: some minutes a queue
    visit({"ledger": LEDGER}, sample=12)        # some of them
    stored()                                    # the scores of the last full visit, as a table

In:  factories as for `kq.promises`. Out: a `Score` for each queue and trial: at how many points, at which of them it failed.
`python -m kqlib.workshop.promises.crash_points [QUEUE…]` visits all points of kqlib's queues, and stores the scores
beside this file. They have the hash of the queues, the judge, the locks and Java: `read()` tells if they are of other code.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kqlib.runtime.patience import PATIENCE
from kqlib.runtime.places import write_atomic
from kqlib.workshop.children import ROOT, packed
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.crash import Report, crash, crash_cluster
from kqlib.workshop.crash.verdict import Pair, last_number, named
from kqlib.workshop.ladder import LEDGER, Ledger
from kqlib.workshop.promises.share import Share
from kqlib.workshop.promises.store import KQLIB, digest
from kqlib.workshop.view import Table

STORED = Path(__file__).with_name("crash_points.json")
# What a score depends on: the queues, what they are made of, the judge.
CODE = ("queue", "share", "kafka", "workshop/promises", "workshop/crash", "workshop/wire", "workshop/ladder.py")
ITEMS = 4
SESSION = 2.0 * PATIENCE  # seconds until the group has put out a stopped worker
CLOCKS = {
    "group.consumer.session.timeout.ms": int(SESSION * 1000),
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 300,
}

Factory = Callable[..., Any]


@dataclass(frozen=True)
class Trial:
    """What happens to the worker, what it does, and what may not come of it."""

    name: str
    wrong: str
    way: str
    accident: str = "kill"


TRIALS = (
    Trial("killed", "lost", "ack"),
    Trial("killed in a step", "lost or doubled", "step"),
    Trial("stopped, another takes over", "with two live leases", "ack", "stop"),
)


@dataclass(frozen=True)
class Score:
    """At how many points a queue was tried, and at which it failed, with what was seen."""

    points: int
    failed: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{len(self.failed)} of {self.points:,}"


Scores = dict[str, dict[str, Score]]  # by queue, then by trial


def visit(
    queues: Mapping[str, Factory], trials: Sequence[Trial] = TRIALS, cluster: Cluster | None = None, **how: Any
) -> Scores:
    """Try each queue at each crash point. cluster: one of yours with wires. how: sample, seed, only, as `kq.crash` takes them."""
    if cluster is None:
        with crash_cluster(config=CLOCKS) as made:
            return visit(queues, trials, made, **how)
    found: Scores = {}
    for name, factory in queues.items():
        found[name] = {each.name: _tried(factory, each, cluster, how) for each in trials if _offers(factory, each)}
    return found


def _tried(factory: Factory, trial: Trial, cluster: Cluster, how: Mapping[str, Any]) -> Score:
    """One queue, one trial."""
    with tempfile.TemporaryDirectory(prefix="kqlib-") as home:
        file = Path(home) / "factory"
        file.write_bytes(packed(factory))
        worker = [
            sys.executable,
            "-P",
            "-m",
            "kqlib.workshop.promises.crash_worker",
            str(file),
            trial.way,
            str(ITEMS - 1),
        ]
        command = ["env", f"TMPDIR={home}", f"PYTHONPATH={os.pathsep.join([ROOT, *sys.path])}", *worker]
        report = crash(
            command,
            ITEMS,
            accident=trial.accident,
            pause=2 * SESSION,
            takeover=trial.accident == "stop",
            judge=two_leases if trial.accident == "stop" else None,
            cluster=cluster,
            **how,
        )
    return Score(len(report.runs), dict(sorted(_failed(report, trial).items())))


def _failed(report: Report, trial: Trial) -> dict[str, str]:
    """The points at which the queue failed, with what was seen. An item that comes again after a kill is no failure, but in a step."""
    found = {}
    for run in report.runs:
        verdict = run.verdict
        doubled = verdict.doubled if trial.way == "step" else ()
        seen = [f"lost {item}" for item in verdict.lost] + [f"doubled {item}" for item in doubled]
        seen += [run.failed, *verdict.judge]
        if any(seen):
            found["+".join(map(str, run.points))] = "; ".join(filter(None, seen))
    return found


def two_leases(items: Sequence[Pair], results: Sequence[Pair]) -> list[str]:
    """A lease is live if its owner's ack is still taken. An item whose ack was taken twice had two live leases."""
    taken = Counter(last_number(value) or 0 for _, value in results if value and value.startswith(b"acked "))
    twice = sorted(item for item, times in taken.items() if times > 1)
    return [f"two acks were taken of {named(twice)}"] if twice else []


def _offers(factory: Factory, trial: Trial) -> bool:
    """Has the queue steps? Only those with a site can write to another topic in one."""
    return trial.way != "step" or isinstance(factory, Ledger)


# --- stored ---------------------------------------------------------------------------------------------------------------


def store(scores: Scores) -> None:
    """Write the scores of a full visit."""
    found = {queue: {trial: asdict(score) for trial, score in each.items()} for queue, each in scores.items()}
    write_atomic(STORED, json.dumps({"hash": code_hash(), "queues": found}, indent=1) + "\n")


def read() -> tuple[Scores, bool]:
    """The stored scores, and whether they are of this code."""
    text: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    queues = text.get("queues", {})
    scores = {queue: {name: Score(**each) for name, each in trials.items()} for queue, trials in queues.items()}
    return scores, text.get("hash") == code_hash()


def stored() -> Table:
    """The stored scores: a row a trial, a column a queue."""
    scores, _ = read()
    rows = []
    for trial in TRIALS:
        cells = [_cell(scores[queue].get(trial.name), trial) for queue in scores]
        rows.append([trial.name, *cells])
    return Table(rows, ["a worker is …", *scores], "at each of its requests to Kafka")


def _cell(score: Score | None, trial: Trial) -> str:
    """'✓ 0 of 64 lost'."""
    return f"{'✗' if score.failed else '✓'} {score} {trial.wrong}" if score else "–"


def code_hash() -> str:
    """The hash of what the scores depend on."""
    files = [KQLIB / "runtime" / "jars.lock"]
    for each in CODE:
        files += sorted((KQLIB / each).rglob("*.py")) or [KQLIB / each]
    return digest(files).hex()


def all_queues() -> dict[str, Factory]:
    """The queues whose scores are stored. Virtual queues are not among them: their nodes talk to Kafka, not their worker."""
    return {"ledger": LEDGER, "share group": Share}


def main(names: Sequence[str]) -> None:
    """Visit all points of these queues, or of all, and store the scores."""
    known = all_queues()
    stored_now, _ = read()
    store(stored_now | visit({name: known[name] for name in names or known}))
    print(stored())


if __name__ == "__main__":
    main(sys.argv[1:])
