"""Kill a worker yourself: pick an order and a crash point, run it, and the crash table fills up cell by cell.

In:  a cluster. Out: `delivery(cluster)`: a Playground over `view.crash`. "run it" starts a real worker, kills it, starts it again and
counts; "all of the row" does so at each of the four points.
"""

from __future__ import annotations

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.workshop import delivery as crashes
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.view.crash import Counts, Place, crash
from kqlib.workshop.view.picture import Picture


def delivery(cluster: Kafka) -> Playground:
    """Pick an order and a crash point, and run it for real: `kq.play.delivery(lab.cluster)`."""
    if not isinstance(cluster, Kafka):
        raise NotAllowed(f"this wants a cluster, as in kq.play.delivery(lab.cluster), not {type(cluster).__name__}")
    counts: dict[Place, Counts] = {}  # what was run so far

    def draw(order: str, killed_after: str) -> Picture:
        return crash(list(crashes.ORDERS), crashes.CRASHES, counts, "your crash table", chosen=(order, killed_after))

    def run(order: str, killed_after: str) -> None:
        counts[order, killed_after] = crashes.run(cluster, order, killed_after).counts

    def row(order: str, killed_after: str) -> None:
        outcomes = crashes.table(cluster, [order]).outcomes
        counts.update({place: outcome.counts for place, outcome in outcomes.items()})

    style = {"description_width": "initial"}
    controls = {
        "order": dropdown("order", crashes.ORDERS, style=style),
        "killed_after": dropdown("killed after", crashes.CRASHES, style=style),
    }
    return Playground("delivery", draw, controls, {"run it": run, "all of the row": row})
