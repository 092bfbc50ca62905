"""What this machine has and lacks for Kafka, Spark and the notebooks, and what to do about each ✗.

In:  the environment. Out: a `Finding` for each check, as they come (`findings`, for `kq doctor`, with versions and places),
or all of them as one value (`doctor`, for a notebook: what it shows is the same on every machine that is well).
The checks are in `machine.py` (what is there) and `trials.py` (does it work); one that needs another's ✓ is not tried without.
What threatens the queues of the current cluster is in `queues.py`: `kq doctor` asks that too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kqlib.errors import KqError
from kqlib.workshop.doctor import machine, trials
from kqlib.workshop.doctor.finding import Finding, words

if TYPE_CHECKING:
    from kqlib.workshop.view import Table

__all__ = ["CHECKS", "Check", "Diagnosis", "Finding", "doctor", "findings"]


@dataclass(frozen=True)
class Check:
    """A check: how it is called, what it is good for in a newcomer's words, the function, what it cannot do without."""

    name: str
    good_for: str
    look: Callable[[], Finding]
    needs: tuple[str, ...] = ()


CHECKS = (
    Check("Python", "a version that everything here supports", machine.python),
    Check("packages", "the Kafka client, Spark, Jupyter", machine.packages),
    Check("Java", "runs Kafka and Spark", machine.java),
    Check("jars", "Kafka itself and Spark's connectors, each file checked", machine.jars),
    Check("ports", "brokers can listen on this machine, for this machine only", machine.ports),
    Check("memory", "enough for three brokers, and for Spark", machine.memory),
    Check("disk", "room for what brokers and Spark write", machine.disk),
    Check("variables", "what is set by KQ_… names makes sense", machine.variables),
    Check("leftovers", "no files of dead clusters", machine.leftovers),
    Check("round trip", "a record went into a real Kafka and came out", trials.round_trip, ("Java", "jars", "ports")),
    Check("Spark", "started, counted to ten, and left nothing running", trials.spark, ("packages", "Java", "jars")),
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
                found = Finding(check.name, False, words(error), "see that this user may read and write there")
        seen[check.name] = found
        yield found


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """All findings, as a notebook shows them: ✓ without versions and places, ✗ with what was found and what to do."""

    findings: tuple[Finding, ...]

    @property
    def well(self) -> bool:
        """Is there no ✗?"""
        return not any(finding.ok is False for finding in self.findings)

    @property
    def table(self) -> Table:
        """The findings as a table."""
        from kqlib.workshop.view import Cell, Table

        good_for = {check.name: check.good_for for check in CHECKS}
        rows = [(f.name, Cell(f.ok, _reason(f)), good_for.get(f.name, "")) for f in self.findings]
        return Table(rows, ("check", "here", "good for"))

    def __repr__(self) -> str:
        return self.table.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.table._repr_mimebundle_(include, exclude)


def _reason(finding: Finding) -> str:
    return "" if finding.ok else f"{finding.what}{f' → {finding.remedy}' if finding.remedy else ''}"


def doctor() -> Diagnosis:
    """Check this machine: `kq.doctor()`. `kq doctor` in a terminal shows versions and places too."""
    return Diagnosis(tuple(findings()))
