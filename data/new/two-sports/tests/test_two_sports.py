"""The system on a real Kafka: an embedded one, or the one that KQ_BOOTSTRAP names. Its topics have names of their own there."""

import json
import os
import subprocess
import sys
import time
import tomllib
from contextlib import closing

import pytest

import kqlib as kq
from events import HERE, SCHEMA, SPORTS, SUBJECT, reader
from feed import database, move, store
from kqlib.virtual.outbox import Outbox
from worker import TERMS, notification, run

PLAN = kq.Plan.read(HERE / "plan.toml")
PIPELINE = tomllib.loads((HERE / "standings.toml").read_text(encoding="utf-8"))
TOPICS = ("source", "target", "quarantine", "late")  # of the pipeline
GAMES = {"football": "ARS-CHE", "basketball": "LAL-BOS"}
HOUR = 3_600_000


def rows(league, *events, at=None):
    """Rows of the feed of one game, each event given as "ARS goal 1"."""
    at = at or int(time.time() * 1000)
    game = {"league": league, "game": GAMES[league], "round": 1, "at": at}
    parts = [each.split() for each in events]
    return [
        {**game, "number": n, "team": team, "kind": kind, "points": int(points)}
        for n, (team, kind, points) in enumerate(parts)
    ]


def lines(those):
    """Rows as the provider sends them."""
    return [json.dumps(row) for row in those]


def taken(queue):
    """All that is in a queue or a topic."""
    found = []
    while items := queue.claim_many(100):
        queue.ack_many(items)
        found += items
    return found


@pytest.fixture
def db(tmp_path):
    with closing(database(str(tmp_path / "feed.db"))) as connection:
        yield connection


@pytest.fixture
def names(kq_cluster, kq_topic):
    """The topics of the plan, under names of this test."""
    plan = kq.Plan({f"{kq_topic}.{name}": topic for name, topic in PLAN.topics.items()})
    plan.apply(kq_cluster, quiet=True)
    yield {name: f"{kq_topic}.{name}" for name in PLAN.topics}
    for future in kq_cluster.admin.delete_topics([name for name in plan.all if name.startswith(kq_topic)]).values():
        future.result(15)


def test_a_row_and_its_job_are_stored_both_or_neither_and_each_once(db):
    codec, outbox = kq.schemas.Registry().codec(SUBJECT, SCHEMA), Outbox(db)
    sent = lines(rows("football", "ARS kick-off 0", "ARS goal 1", "CHE goal 1", "ARS final 0"))

    class Dies(Outbox):
        def add(self, *job, **how):
            if self.waiting() == 2:
                raise MemoryError
            return super().add(*job, **how)

    with pytest.raises(MemoryError):
        store(db, Dies(db), codec, sent)
    assert outbox.waiting() == db.execute("SELECT COUNT(*) FROM feed").fetchone()[0] == 2
    assert store(db, outbox, codec, sent) == store(db, outbox, codec, sent) == 0
    assert outbox.waiting() == 4


def test_a_row_that_is_no_event_is_kept_and_holds_nothing_up(db):
    codec, outbox = kq.schemas.Registry().codec(SUBJECT, SCHEMA), Outbox(db)
    [good] = rows("football", "ARS goal 1")
    bad = ["no JSON", "7", *lines([{**good, "league": "events"}, {**good, "points": "one"}])]
    assert store(db, outbox, codec, [*bad, *lines([{**good, "weather": "rain"}])]) == 4
    assert {line for (line,) in db.execute("SELECT line FROM bad")} == set(bad)
    assert outbox.waiting() == 1


def test_a_goal_is_a_notification_and_a_wrong_team_is_no_event():
    goal, final, wrong = rows("football", "ARS goal 1", "ARS final 0", "LIV goal 1")
    assert json.loads(notification(goal))["team"] == "ARS"
    assert notification(final) is None
    with pytest.raises(ValueError, match="does not play"):
        notification(wrong)


def test_an_evening_of_both_sports_becomes_standings(kq_cluster, names, kq_queue, db, tmp_path):
    site, outbox, registry = kq_queue.site, Outbox(db), kq.schemas.Registry(cluster=kq_cluster)
    football = rows(
        "football", "ARS kick-off 0", "ARS goal 1", "CHE goal 1", "CHE correction -1", "ARS final 0", "LIV goal 1"
    )
    basketball = rows("basketball", "LAL kick-off 0", "BOS goal 3", "LAL goal 2", "LAL goal 2", "LAL final 0")
    basketball[3]["at"] -= 2 * HOUR  # late
    sent = lines([*football, *basketball])
    assert store(db, outbox, registry.codec(SUBJECT, SCHEMA), [*sent, *sent]) == 0  # the provider repeats itself
    move(outbox, lambda name: site.queue(names[name], **TERMS))
    events, notifications = site.queue(names["events"], max_attempts=None), site.queue(names["notifications"])
    read = reader(registry)
    for sport in SPORTS:
        run(
            site.queue(names[sport], **TERMS),
            events,
            notifications,
            lambda data: notification(read(data)),
            until="empty",
        )
    found = [read(item.data) for item in taken(events)]
    for sport, good in {"football": football[:-1], "basketball": basketball}.items():
        assert [event["number"] for event in found if event["league"] == sport] == [row["number"] for row in good]
    assert len(taken(notifications)) == 5
    [letter] = site.queue(names["football"], **TERMS).dead.peek()
    assert read(letter.data)["team"] == "LIV"

    events.put(b"no Avro")
    mine = {**PIPELINE, **{name: names[PIPELINE[name]] for name in TOPICS}}
    toml = "".join(f"{name} = {json.dumps(value)}\n" for name, value in mine.items())
    (tmp_path / "standings.toml").write_text(toml, encoding="utf-8")
    command = [sys.executable, "-m", "kqlib", "pipeline", "run", "standings.toml", "--once"]
    ran = subprocess.run(command, cwd=tmp_path, env={**os.environ, "KQ_BOOTSTRAP": kq_cluster.bootstrap}, check=False)
    assert ran.returncode == 1  # all is done, and rows were put aside
    decode = registry.codec().decode
    standings = [decode(item.data) for item in taken(site.queue(names["standings"], max_attempts=None))]
    assert {row["team"]: (row["points"], row["scored"]) for row in standings} == {
        "ARS": (3, 1),
        "CHE": (0, 0),
        "BOS": (2, 3),
        "LAL": (0, 2),
    }
    assert [len(taken(site.queue(names[name], max_attempts=None))) for name in ("events.bad", "events.late")] == [1, 1]


def test_what_fails_is_tried_again_and_its_game_waits_and_no_other(names, kq_queue):
    site, done, failed = kq_queue.site, [], []

    def work(data):
        if data == b"ARS-CHE 1" and not failed:
            failed.append(data)
            raise OSError("the database is away for a moment")
        if data == b"LIV-MUN 1":
            raise ValueError("a goal without a team")
        done.append(data)

    queue = site.queue(names["football"], **TERMS)
    queue.put_many([(b"%s %d" % (game, n), game) for n in range(3) for game in (b"ARS-CHE", b"LIV-MUN")])
    run(queue, site.queue(names["events"], max_attempts=None), site.queue(names["notifications"]), work, until="empty")
    assert [each for each in done if each.startswith(b"ARS")] == [b"ARS-CHE 0", b"ARS-CHE 1", b"ARS-CHE 2"]
    assert [each for each in done if each.startswith(b"LIV")] == [b"LIV-MUN 0", b"LIV-MUN 2"]
    assert done.index(b"LIV-MUN 2") < done.index(b"ARS-CHE 1")
    assert [letter.data for letter in queue.dead.peek()] == [b"LIV-MUN 1"]


def test_a_reader_takes_a_schema_that_comes_later_and_refuses_what_is_no_event():
    registry = kq.schemas.Registry()
    [goal] = rows("football", "ARS goal 1")
    old = registry.codec(SUBJECT, SCHEMA).encode(goal)
    read = reader(registry)
    assert "player" not in read(old)
    more = {"name": "player", "type": "string"}
    assert not registry.check(SUBJECT, {**SCHEMA, "fields": [*SCHEMA["fields"], more]})
    newer = {**SCHEMA, "fields": [*SCHEMA["fields"], {**more, "default": "nobody"}]}
    new = registry.codec(SUBJECT, newer).encode({**goal, "player": "ARS 7"})
    assert [read(data)["player"] for data in (new, old)] == ["ARS 7", "nobody"]
    for data in (None, b"", b"no Avro", new[:-1]):
        with pytest.raises(kq.errors.CorruptPayload):
            read(data)


def test_a_worker_that_is_killed_loses_no_event_and_writes_none_twice(kq_crash):
    report = kq_crash([sys.executable, str(HERE / "under_crash.py")], sample=6, seed=1)
    assert report.clean, report


def test_the_plan_has_all_topics():
    assert {*SPORTS, "notifications", *(PIPELINE[name] for name in TOPICS)} == set(PLAN.topics)
