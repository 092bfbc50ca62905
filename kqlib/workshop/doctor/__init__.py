"""What this machine has and lacks for Kafka, Spark and the notebooks, and what to do about each ✗.

In:  the environment. Out: a `Finding` for each check. `kq doctor` prints them as they come, with versions and places (`run`).
`kq.doctor()` shows them as a table, which is the same on every machine that is well.
The checks of this machine are in `machine.py`. A check that needs another one's ✓ is not tried without it.
What threatens the queues of the current cluster is in `queues.py` and `topics.py`: only `kq doctor` asks that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING

from kqlib.errors import KqError
from kqlib.runtime import places
from kqlib.text import as_json
from kqlib.workshop.doctor import machine, queues
from kqlib.workshop.doctor.finding import Finding, words

if TYPE_CHECKING:
    from kqlib.workshop.view import Table


@dataclass(frozen=True)
class Check:
    """A check: its name, what it is good for in a newcomer's words, the function, and the checks that it needs."""

    name: str
    good_for: str
    look: Callable[[], Finding]
    needs: tuple[str, ...] = ()


CHECKS = (
    Check("Python", "a version that everything here supports", machine.python),
    Check("Java", "runs Kafka and Spark", machine.java),
    Check("jars", "Kafka itself and Spark's connectors, each file checked", machine.jars),
    Check("ports", "brokers can listen on this machine, for this machine only", machine.ports),
    Check("memory", "enough for three brokers, and for Spark", machine.memory),
    Check("round trip", "a record went into a real Kafka and came out", machine.round_trip, ("Java", "jars", "ports")),
    Check("Spark", "started, counted to ten, and left nothing running", machine.spark, ("Java", "jars")),
)


def findings(checks: tuple[Check, ...] = CHECKS) -> Iterator[Finding]:
    """Every check's finding, as they come; the last two take seconds."""
    seen: dict[str, Finding] = {}
    for check in checks:
        lacking = [name for name in check.needs if not seen[name].ok]
        if lacking:
            found = Finding(check.name, None, f"not tried: it needs {' and '.join(lacking)}")
        else:
            try:
                found = check.look()
            except (OSError, KqError) as error:
                what = places.words(error) if isinstance(error, OSError) else words(error)
                found = Finding(check.name, False, what, "see that this user may read and write there")
        seen[check.name] = found
        yield found


def run(json: bool) -> int:
    """`kq doctor`: print every finding. The exit status is the number of ✗."""
    found: list[Finding] = []
    for finding in chain(findings(), queues.findings()):
        found.append(finding)
        if not json:
            print(finding, flush=True)
    if json:
        print(as_json([asdict(each) for each in found]))
    return min(sum(each.ok is False for each in found), 100)


def doctor() -> Table:
    """Check this machine: `kq.doctor()`. ✓ stands without versions and places, ✗ with what was found and what to do."""
    from kqlib.workshop.view import Cell, Table

    rows = [
        (check.name, Cell(found.ok, "" if found.ok else _reason(found)), check.good_for)
        for check, found in zip(CHECKS, findings(), strict=True)
    ]
    return Table(rows, ("check", "here", "good for"))


def _reason(found: Finding) -> str:
    return f"{found.what} → {found.remedy}" if found.remedy else found.what
