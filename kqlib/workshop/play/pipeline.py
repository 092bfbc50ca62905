"""A pipeline to play with: put good, late and broken rows into a topic, run it, and see where each row is. All of it is real.

In:  a lab. Out: `pipeline(lab)`: a Playground over a table and the curve of `view.curve`.
It begins with a hundred rows that wait. "run" takes what waits, in micro-batches, and ends. It uses this process's Spark session. If
there is none, it starts one, which stays until the process ends. Then each row is in one of three places: it counts (out), it was
too late (put back, it counts), or it is broken. The table is what Kafka holds of the standings; "status" is what `kq pipeline status`
says, live while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kqlib.schemas import Registry
from kqlib.workshop import games, snapshot, view
from kqlib.workshop.games import seasons
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.play.scene import LOOK, cluster_of
from kqlib.workshop.view.picture import Picture

if TYPE_CHECKING:
    from kqlib.workshop.lab import Lab

NAME, ROWS = "play-games", 100  # of the topic; rows at a press
SEASONS = 100_000  # rows that are there to put
COLUMNS = ("place", "team", "played", "points", "scored", "late")
SHOWN = 5  # teams


def pipeline(lab: Lab) -> Playground:
    """Put good, late and broken rows, and run the pipeline: `kq.play.pipeline(lab)`."""
    state = _Pipeline(lab)
    controls = {
        "rows": dropdown("rows", ["good", "late", "broken"]),
        "batch": dropdown("batch ≤", [50, 100, 1000], 100),
        "see": dropdown("see", ["standings", "batches", "status"]),
    }
    actions: dict[str, Callable[..., object]] = {f"put {ROWS} rows": state.put, "run": state.run}
    actions["put the late ones back"] = state.put_back
    play = Playground("pipeline", state.draw, controls, actions)
    state.show = lambda: play.refresh(by_itself=True)
    return play


class _Pipeline:
    """The pipeline behind the picture, and what its buttons do."""

    def __init__(self, lab: Lab) -> None:
        from kqlib.spark.progress import Progress
        from kqlib.spark.stream import Counted

        self.cluster, kept = cluster_of(lab, "pipeline"), seasons.FOR_EVER
        self.games = lab.topic(NAME, 2, config=kept)
        self.bad, self.late = [lab.topic(f"{NAME}.{what}", config=kept) for what in ("bad", "late")]
        self.table = lab.topic(f"{NAME}.standings", config={"cleanup.policy": "compact"})
        self.registry, self.home = Registry(), lab.folder(NAME)
        self.events = games.season(SEASONS, sport="football", versions=(3,))
        self.sent, self.counted, self.now, self.starting = 0, Counted(), Progress(), False
        self.history: dict[str, list[int]] = {"waiting": [], "out": [], "broken": [], "late": []}
        self.show: Callable[[], object] = lambda: None
        self.put("good")

    def put(self, rows: str, **_: object) -> None:
        """The next rows of the season: as they come, two hours late, or each with its bytes damaged."""
        events = list(islice(self.events, ROWS))
        if rows == "late":
            events = [each._replace(sent=each.at + seasons.LATE_FROM) for each in events]
        if rows == "broken":
            kinds = seasons.DAMAGES
            events = [each._replace(damage=kinds[at % len(kinds)]) for at, each in enumerate(events)]
        seasons.produce(self.cluster, self.games, seasons.messages(events, self.registry, f"{self.games}-value"))
        self.note(sent=len(events))

    def run(self, batch: int, **_: object) -> None:
        """Take what waits, in micro-batches, from where the checkpoint says."""
        from kqlib.spark import standings

        how: dict[str, Any] = {"quarantine": self.bad, "late_topic": self.late, "maxOffsetsPerTrigger": batch}
        how |= {"registry": self.registry, "home": self.home, "once": True}
        running, before = standings(self.spark(), self.cluster, self.games, self.table, **how), self.counted
        starts = self.now.restarts + (self.now.batch >= 0)  # a start where it has run before is a restart
        try:
            while not running.wait(LOOK):
                self.look(running, before, starts)
        finally:  # what was done before an error counts
            self.look(running, before, starts)

    def look(self, running: Any, before: Any, starts: int) -> None:
        """How far the run is, and how fast."""
        from kqlib.spark import seen

        self.note(before + running.counted)
        now = seen(running)
        if now.batch >= 0 and (now := replace(now, restarts=starts + now.restarts)) != self.now:
            self.now = now
            self.show()

    def put_back(self, **_: object) -> None:
        """Write the late rows into the topic once more, with the time of their event."""
        from kqlib.spark import put_back

        self.note(sent=sum(put_back(self.spark(), self.cluster, self.late, self.games, dry=False).written.values()))

    def spark(self) -> Any:
        """The session of this process; to start one takes some seconds, which the picture says."""
        from kqlib.spark import session

        self.starting = True
        self.show()
        try:
            return session(self.cluster)
        finally:
            self.starting = False

    def note(self, counted: Any = None, sent: int = 0) -> None:
        """Rows were put, or a batch is done."""
        if sent or counted not in (None, self.counted):
            self.sent, self.counted = self.sent + sent, counted or self.counted
            now = {"waiting": self.sent - self.counted.rows, **vars(self.counted)}
            for name, numbers in self.history.items():
                numbers.append(now[name])
            self.show()

    def status(self) -> list[tuple[str, Any]]:
        """How fast the last batch was, the lag of each partition now, the state, and what was put aside."""
        from kqlib.spark.plan import plan

        now, offsets = self.now, plan(self.cluster, self.home, self.games, self.table).offsets
        speed = [("rows a second", round(now.rate)), ("seconds a batch", round(now.seconds, 2))]
        lags = [(f"lag of {self.games}/{number}", end - at) for number, (at, end) in sorted(offsets.items())]
        state = [("state, rows", now.state_rows), ("state, bytes", now.state_bytes), ("watermark", now.watermark)]
        aside = [("quarantined", self.counted.broken), ("late", self.counted.late), ("restarts", now.restarts)]
        return [*speed, *lags, *state, *aside]

    def draw(self, see: str, **_: object) -> Picture | view.Table:
        """The standings and where the rows are, or how many were where, batch by batch, or the status."""
        waiting = f"{self.counted} · {self.sent - self.counted.rows:,} waiting"
        title = "Spark starts: some seconds" if self.starting else waiting
        if see == "batches":
            return view.curve(self.history, title=title, step="step")
        if see == "status":
            return view.Table(
                self.status(), ["", f"batch {self.now.batch}" if self.now.batch >= 0 else "no batch"], title
            )
        codec, records = self.registry.codec(), snapshot.records(self.cluster, self.table)[0]
        last = {record.key(): record.value() for record in records}
        teams = sorted(map(codec.decode, last.values()), key=lambda team: team["place"])[:SHOWN]
        return view.Table([[team[name] for name in COLUMNS] for team in teams], COLUMNS, title)
