"""League tables by a plain worker: `python examples/standings/worker.py GAMES OUT`, on the cluster of KQ_BOOTSTRAP.

    GAMES ──► GAMES.league, keyed by league ──► OUT, and GAMES.facts (compacted: the state)
All events of a league go to one partition, where each number counts once. Rows, state and ack are one transaction.
"""

import json
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import kqlib as kq
from kqlib.kafka import reading

COUNTS = ("played", "won", "drawn", "lost", "scored", "against", "difference", "points", "late")


class League:
    def __init__(self, name):
        self.name, self.win = name, 3 if name == "football" else 2
        self.facts, self.sides, self.rows = defaultdict(dict), {}, {}

    def add(self, fact):
        game = fact["round"], fact["game"]
        facts = self.facts[game]
        if fact["number"] not in facts or facts[fact["number"]]["late"]:  # in time counts, if it came both ways
            facts[fact["number"]] = fact
        over = any(each["kind"] == "final" and not each["late"] for each in facts.values())
        points, late = Counter(), Counter()
        for each in facts.values():
            points[each["team"]] += 0 if each["late"] else each["points"]
            late[each["team"]] += each["late"]
        a, b = fact["game"].split("-")
        self.sides[game] = [(a, points[a], points[b], over, late[a]), (b, points[b], points[a], over, late[b])]
        return list(facts.values())

    def table(self):
        rows = defaultdict(lambda: {"results": ""} | dict.fromkeys(COUNTS, 0))
        for _, sides in sorted(self.sides.items()):
            for team, scored, against, over, late in sides:
                row, won, drawn = rows[team], scored > against, scored == against
                row["late"] += late
                if over:
                    row["results"] += "W" if won else "D" if drawn else "L"
                    more = 1, won, drawn, scored < against, scored, against, scored - against, won * self.win + drawn
                    for name, n in zip(COUNTS, more, strict=False):
                        row[name] += n
        best = sorted(rows, key=lambda t: (-rows[t]["points"], -rows[t]["difference"], -rows[t]["scored"], t))
        return {team: {"league": self.name, "team": team, "place": n} | rows[team] for n, team in enumerate(best, 1)}


class Worker:
    def __init__(self, cluster, site, games, out):
        registry = kq.schemas.Registry(cluster=cluster)
        self.read, self.rows = registry.codec(), registry.codec(f"{out}-value")
        self.cluster, self.epochs, self.leagues = cluster, {}, {}
        topics = games, f"{games}.league", f"{games}.facts", out
        plan = {topics[1]: kq.QueueTopic(partitions=2), topics[2]: kq.Topic(2, config={"cleanup.policy": "compact"})}
        kq.Plan(plan).apply(cluster, quiet=True)
        self.games, self.events, self.facts, self.out = (site.queue(each, max_attempts=None) for each in topics)

    def forward(self, item):
        event = self.read.decode(item.data)
        late = (item.created - event["at"]).total_seconds() > 3600
        self.events.put(json.dumps(event | {"at": None, "late": late}).encode(), event["league"].encode())

    def count(self, item):
        if self.epochs.pop(item.partition, None) != item.epoch:  # a new owner, or its last step failed
            self.load()
        fact = json.loads(item.data)
        league = self.leagues.setdefault(fact["league"], League(fact["league"]))
        facts, before = league.add(fact), league.rows
        league.rows = league.table()
        with self.events.step(item) as step:
            step.put(self.facts, json.dumps(facts).encode(), "{league}/{round}/{game}".format(**fact).encode())
            for team, row in league.rows.items():
                if row != before.get(team):
                    step.put(self.out, self.rows.encode(row), team.encode())
        self.epochs[item.partition] = item.epoch

    def load(self):
        # A dead owner's open transaction hides what is behind it, until the broker ends it.
        there = reading.bounds(self.cluster, self.facts.name, isolation_level="read_uncommitted")
        found = reading.records(self.cluster, self.facts.name, there).values()
        last = {each.key(): json.loads(each.value()) for part in found for each in part}
        self.leagues = {}
        for fact in (fact for facts in last.values() for fact in facts):
            self.leagues.setdefault(fact["league"], League(fact["league"])).add(fact)
        for league in self.leagues.values():
            league.rows = league.table()


def main(games, out, session="10"):
    with kq.connect() as cluster, kq.Site(cluster, out, session=float(session)) as site:
        worker = Worker(cluster, site, games, out)
        first = ThreadPoolExecutor(1).submit(worker.games.work, worker.forward, threads=8)
        worker.events.work(worker.count, until=lambda: first.done() and first.result())


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)
