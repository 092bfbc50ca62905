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
        self.name, self.rows, self.facts, self.sides = name, {}, defaultdict(dict), {}

    def add(self, fact):
        game = fact["round"], fact["game"]
        known = self.facts[game]
        if fact["number"] not in known or known[fact["number"]]["late"]:
            known[fact["number"]] = fact
        score, late = Counter(), Counter()
        over = any(each["kind"] == "final" and not each["late"] for each in known.values())
        for each in known.values():
            (late if each["late"] else score)[each["team"]] += each["late"] or each["points"] * over
        a, b = fact["game"].split("-")
        both = [(a, score[a], score[b], over, late[a]), (b, score[b], score[a], over, late[b])]
        changed, self.sides[game] = self.sides.get(game) != both, both
        return list(known.values()), changed

    def table(self):
        rows = defaultdict(lambda: {"results": ""} | dict.fromkeys(COUNTS, 0))
        for _, sides in sorted(self.sides.items()):
            for team, scored, against, over, late in sides:
                row, won, lost = rows[team], scored > against, scored < against
                row["late"] += late
                if over:
                    row["results"] += "W" if won else "L" if lost else "D"
                    for name, more in zip(COUNTS, (1, won, scored == against, lost, scored, against), strict=False):
                        row[name] += more
        for row in rows.values():
            row["difference"] = row["scored"] - row["against"]
            row["points"] = (3 if self.name == "football" else 2) * row["won"] + row["drawn"]
        best = sorted(rows.items(), key=lambda t: (-t[1]["points"], -t[1]["difference"], -t[1]["scored"], t[0]))
        return {team: {"league": self.name, "team": team, "place": n} | row for n, (team, row) in enumerate(best, 1)}


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
        before, (facts, changed) = league.rows or league.table(), league.add(fact)
        rows = league.table() if changed else before
        with self.events.step(item) as step:
            step.put(self.facts, json.dumps(facts).encode(), "{league}/{round}/{game}".format(**fact).encode())
            for team, row in rows.items():
                if row != before.get(team):
                    step.put(self.out, self.rows.encode(row), team.encode())
        self.epochs[item.partition], league.rows = item.epoch, rows

    def load(self):
        # A dead owner's open transaction hides what is behind it, until the broker ends it.
        there = reading.bounds(self.cluster, self.facts.name, isolation_level="read_uncommitted")
        found = reading.records(self.cluster, self.facts.name, there).values()
        last = {each.key(): json.loads(each.value()) for part in found for each in part}
        self.leagues = {}
        for fact in (fact for facts in last.values() for fact in facts):
            self.leagues.setdefault(fact["league"], League(fact["league"])).add(fact)


def main(games, out, session="10", kind=Worker):
    with kq.connect() as cluster, kq.Site(cluster, out, session=float(session)) as site:
        worker = kind(cluster, site, games, out)
        first = ThreadPoolExecutor(1).submit(worker.games.work, worker.forward, threads=8)
        worker.events.work(worker.count, until=lambda: first.done() and first.result())


if __name__ == "__main__":
    main(*sys.argv[1:])
