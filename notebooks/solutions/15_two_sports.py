"""The six steps of 15-two-sports: topics, schemas, feed, workers, small games, pipeline. Each check runs a step on a real Kafka."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import kqlib as kq
from kqlib.errors import CorruptPayload, KqError
from kqlib.schemas.wire import split
from kqlib.topics import existing
from kqlib.workshop.checks import Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic
from kqlib.workshop.games import seasons
from kqlib.workshop.two_sports import (
    SPORTS,
    SUBJECT,
    TABLE,
    Dies,
    DiesAfter,
    Row,
    anew,
    evening,
    latest,
    of_games,
    records,
    truth,
    unused,
)

# --- 1: topics ---


def plan(servers):
    """All topics of two sports, for so many web servers, as a kq.Plan."""
    queue = kq.QueueTopic(web_servers=servers)
    kept = kq.Topic(partitions=2 * servers, config={"retention.ms": -1})
    newest = kq.Topic(compact=True)
    topics = {"football": queue, "basketball": queue, "notifications": queue}
    topics |= {"events": kept, "events.bad": kept, "events.late": kept}
    topics |= {"standings": newest, "form": newest}
    return kq.Plan({**topics, **kq.virtual.topics("small", partitions=2)})


def changed(change: Callable[[str, Any], Any], servers: int) -> kq.Plan:
    """The plan with each topic changed."""
    return kq.Plan({name: change(name, topic) for name, topic in plan(servers).topics.items()})


def queues_as_topics(servers: int) -> kq.Plan:
    return changed(lambda _, topic: kq.Topic(2 * servers) if isinstance(topic, kq.QueueTopic) else topic, servers)


def a_week_of_events(servers: int) -> kq.Plan:
    return changed(lambda name, topic: kq.Topic(2 * servers) if name == "events" else topic, servers)


def all_standings(servers: int) -> kq.Plan:
    return changed(lambda name, topic: kq.Topic() if name == "standings" else topic, servers)


def one_partition(servers: int) -> kq.Plan:
    return changed(lambda name, topic: kq.QueueTopic(partitions=1) if name == "basketball" else topic, servers)


def applied(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Apply the plan for two web servers, then for three, under names of its own, and look at what Kafka has."""
    cluster, first = kafka(), f"{unused('plan')}-"
    for servers in (2, 3):
        found = answer(servers)
        yield Tried("what you return", type(found).__name__, "Plan", hint="Return kq.Plan({name: topic, …}).")
        kq.Plan({first + name: topic for name, topic in found.topics.items()}).apply(cluster, quiet=True)
        there = existing(cluster, [first + name for name in found.all if not name.startswith("kq.")])
        topics = {name.removeprefix(first): topic for name, topic in there.items()}
        names = sorted(plan(servers).all.keys() - {"kq.queues"})
        yield Tried("the topics in Kafka", sorted(topics), names, "a topic for each purpose", WHICH)
        for kind, of_kind in (("the queues", QUEUES), ("the other topics", OTHERS)):
            what = f"the partitions of {kind} for {servers} web servers"
            got = {name: topics[name].partitions for name in of_kind}
            right = {name: plan(servers).all[name].partitions for name in of_kind}
            yield Tried(what, got, right, "two for each web server", PARTITIONS)
        stated = [found.all[name].settings.get("retention.ms") for name in ("events", "events.bad", "events.late")]
        yield Tried("retention.ms of the three topics of events", stated, ["-1"] * 3, "events stay", FOR_EVER)
        policies = [topics[name].config["cleanup.policy"] for name in ("standings", "form")]
        yield Tried("cleanup.policy of standings and form", policies, ["compact"] * 2, "the last row of a team", NEWEST)


QUEUES, OTHERS = (*SPORTS, "notifications"), ("events", "events.bad", "events.late", "standings", "form", "small")
PARTITIONS = "Two for each web server; standings and form have one, and small has two."
WHICH = (
    "football, basketball and notifications are queues: kq.QueueTopic, each with its dead letters. "
    "The table above names the other topics."
)
FOR_EVER = "Kafka's default is seven days. The standings can be counted anew only while all events are there."
NEWEST = "Of each team only the last row counts: kq.Topic(compact=True)."
PLAN = Exercise(
    id="15.1",
    ask="each topic has a name, a number of partitions and a rule for what it forgets, before anything is sent",
    task="return a kq.Plan with the topics of the table, for so many web servers",
    probe=applied,
    hints=(
        "A queue is kq.QueueTopic(web_servers=…): dead letters come with it. Any other topic is kq.Topic(…).",
        'kq.Topic(config={"retention.ms": -1}) keeps all, kq.Topic(compact=True) the last record of a key. '
        'kq.virtual.topics("small", partitions=2) is a dict of three more.',
    ),
    solution=plan,
    wrong=(queues_as_topics, a_week_of_events, all_standings, one_partition),
    seconds=60,
)


# --- 2: schemas ---


def reader(registry, subject):
    """A function that reads the bytes of an event, whichever version wrote it, also one that comes later."""
    known, codec, lock = set(), None, threading.Lock()

    def read(data):
        nonlocal codec
        if data is None:
            raise CorruptPayload("an event has a value")
        number = split(data).id
        with lock:  # a worker has several threads: an older answer must not come last
            if number not in known:
                codec = registry.codec(subject)  # the newest version, now; from here on for all rows
                known.add(number)
        return codec.decode(data)

    return read


def version_of_the_start(registry: Any, subject: str) -> Callable[..., Any]:
    return registry.codec(subject).decode


def as_it_was_written(registry: Any, subject: str) -> Callable[..., Any]:
    return lambda data: registry.codec().decode(data)


def a_codec_for_each_schema(registry: Any, subject: str) -> Callable[..., Any]:
    codecs: dict[int, Any] = {}

    def read(data: Any) -> Any:
        if data is None:
            raise CorruptPayload("an event has a value")
        number = split(data).id
        if number not in codecs:
            codecs[number] = registry.codec(subject)
        return codecs[number].decode(data)

    return read


def none_for_rubbish(registry: Any, subject: str) -> Callable[..., Any]:
    read = reader(registry, subject)

    def quiet(data: Any) -> Any:
        with suppress(KqError):
            return read(data)

    return quiet


def season_read(answer: Callable[..., Any]) -> Iterator[Tried]:
    """A season in one topic: football in three versions, then basketball in a fourth one, which the reader has not seen."""
    cluster = kafka()
    topic = new_topic(cluster, retention_ms=-1)
    subject = f"{topic}-value"
    registry, readers = (kq.schemas.Registry(cluster=cluster) for _ in range(2))
    football = list(kq.games.season(300, sport="football", versions=(1, 2, 3)))
    seasons.produce(cluster, topic, seasons.messages(football, registry, subject))
    read = answer(readers, subject)
    yield Tried("what you return", callable(read), True, hint="Return a function of bytes: def read(data).")
    basketball = list(kq.games.season(20, sport="basketball"))
    broken = [row._replace(damage=damage) for damage, row in zip(seasons.DAMAGES, basketball, strict=False)]
    corrects = [row.corrects if row.version > 1 else -1 for row in football]  # version 1 has no such field
    early = [event.value() for event in kq.snapshot.records(cluster, topic)[0]]
    values = [read(data) for data in early]
    got = [value.get("corrects", "no field") for value in values]
    yield Tried("'corrects' of football's rows", got, corrects, "all versions", OLD)
    for rows in (basketball, broken):
        seasons.produce(cluster, topic, seasons.messages(rows, registry, subject))
    late = [event.value() for event in kq.snapshot.records(cluster, topic)[0]][len(early) :]
    leagues = Counter(read(data)["league"] for data in late[: len(basketball)])
    yield Tried("the leagues of basketball's rows", dict(leagues), {"basketball": 20}, "a version that came later", NEW)
    with_players = sum("player" in read(data) for data in early)  # a field of version 4
    yield Tried("football's rows that have a 'player' now", with_players, len(early), "all versions", AGAIN)
    for damage, data in zip(seasons.DAMAGES, late[len(basketball) :], strict=True):
        got = refused(read, data)
        yield Tried(f"a row with the damage '{damage}'", got, "an error", "no value from a broken row", RUBBISH)


def refused(read: Callable[..., Any], data: bytes | None) -> str:
    """Does reading raise an error?"""
    try:
        read(data)
    except KqError:
        return "an error"
    return "no error"


OLD = "Read each row into the newest version: registry.codec(subject). Fields that the row lacks have a default there."
NEW = "Your reader reads with the version of its start, and a league that this version does not know is 'other'."
AGAIN = "An old row came after a newer one, and it has the fields of an old version. Keep one codec for all rows."
RUBBISH = "Let the error out, and raise CorruptPayload for None. The worker decides what becomes of such an item."
SCHEMAS = Exercise(
    id="15.2",
    ask="a reader takes the newest version when it meets a schema that it has not seen",
    task="return a function that makes a value of an event's bytes, with the fields of the newest version",
    probe=season_read,
    hints=(
        "registry.codec(subject) reads every version into the one that is newest when you call it. When is that too early?",
        "split(data).id says which schema wrote the row. Keep one codec for all rows, and make it anew when an id is new.",
    ),
    solution=reader,
    wrong=(version_of_the_start, as_it_was_written, a_codec_for_each_schema, none_for_rubbish),
    seconds=60,
)


# --- 3: the feed ---


def store(db, outbox, rows):
    """Store the new rows of the feed, each together with its job, or neither."""
    with db:
        for row in rows:
            new = db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", (row.league, row.number))
            if new.rowcount:
                outbox.add(row.league, row.data, key=row.game.encode())


def rows_first(db: Any, outbox: Any, rows: list[Row]) -> None:
    with db:
        new = [row for row in rows if db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", row[:2]).rowcount]
    with db:
        for row in new:
            outbox.add(row.league, row.data, key=row.game.encode())


def every_row(db: Any, outbox: Any, rows: list[Row]) -> None:
    with db:
        for row in rows:
            db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", row[:2])
            outbox.add(row.league, row.data, key=row.game.encode())


def without_a_key(db: Any, outbox: Any, rows: list[Row]) -> None:
    with db:
        for row in rows:
            if db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", row[:2]).rowcount:
                outbox.add(row.league, row.data)


def without_a_commit(db: Any, outbox: Any, rows: list[Row]) -> None:
    for row in rows:
        if db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", row[:2]).rowcount:
            outbox.add(row.league, row.data, key=row.game.encode())


def fed(answer: Callable[..., Any]) -> Iterator[Tried]:
    """A feed that sends each ten rows twice, a process that dies at the fifth job of the second ten, and a mover that dies."""
    cluster = kafka()
    numbers = {sport: new_topic(cluster, 2) for sport in SPORTS}
    made = [row for pair in zip(*(evening(20, sport) for sport in SPORTS), strict=True) for row in pair]
    rows = [Row(numbers[row.league], row.number, row.game, b"%d" % row.number) for row in made]
    with tempfile.TemporaryDirectory() as folder, kq.Site(cluster, unused("feed")) as site:
        connect = partial(sqlite3.connect, Path(folder) / "feed.db")
        with closing(connect()) as db:
            db.execute(TABLE)
        left = False
        for first in range(0, len(rows), 10):
            for outbox in (Dies if first == 10 else kq.virtual.Outbox, kq.virtual.Outbox):
                with closing(connect()) as db, suppress(MemoryError):
                    answer(db, outbox(db), rows[first : first + 10])
                    left |= db.in_transaction
        yield Tried("an open transaction at the end", left, False, hint="Commit: with db: …")
        with closing(connect()) as db:
            jobs = kq.virtual.Outbox(db)
            with suppress(MemoryError):
                jobs.move(lambda name: DiesAfter(site.queue(name, max_attempts=None)))
            while jobs.move(lambda name: site.queue(name, max_attempts=None)):
                pass
    for sport, topic in numbers.items():
        seen: dict[bytes, Any] = {}  # an outbox may put a job twice, with the same id
        for number in (0, 1):
            for record in kq.snapshot.records(cluster, topic)[number]:
                seen.setdefault(dict(record.headers())["outbox-id"], record)
        items = Counter(int(record.value()) for record in seen.values())
        expected = {row.number for row in rows if row.league == topic}
        yield Tried(f"rows of {sport} without an item", sorted(expected - set(items)), [], "none is lost", ATOMIC)
        yield Tried(f"rows of {sport} with two jobs", sorted(n for n in items if items[n] > 1), [], "once", KNOWN)
        keys = sorted({(record.key() or b"").decode() for record in seen.values()})
        games = sorted({row.game for row in rows if row.league == topic})
        yield Tried(f"the keys in {sport}", keys, games, "by game", "The key is the game: key=row.game.encode().")


ATOMIC = "A row was stored, and the process died before its job was. Both belong into one transaction: with db: …"
KNOWN = "The feed sends rows again after it was cut off. INSERT OR IGNORE, and only a new row (rowcount) gets a job."
FEED = Exercise(
    id="15.3",
    ask="a row and its job are one transaction, and a row that comes again gets no second job",
    task="store the rows that are new in the table feed, and add a job for each to the outbox, keyed by game",
    probe=fed,
    hints=(
        "What if the process dies between the row and its job? And what if the feed sends a row again?",
        'with db: for each row db.execute("INSERT OR IGNORE INTO feed VALUES (?, ?)", (row.league, row.number)). If its '
        "rowcount is 1: outbox.add(row.league, row.data, key=row.game.encode()).",
    ),
    solution=store,
    wrong=(rows_first, every_row, without_a_key, without_a_commit),
    seconds=60,
)


# --- 4: workers ---


def work(site, sport, handle):
    """Work on a sport until its queue is empty: each game in order, three attempts, outputs with the ack."""
    queue = site.queue(sport, order="key", max_attempts=3)
    events = site.queue("events", max_attempts=None)
    notices = site.queue("notifications")

    def each(item):
        notice = handle(item)
        with queue.step(item) as step:
            step.put(events, item.data, key=item.key)
            if notice:
                step.put(notices, notice, key=item.key)

    queue.work(each, threads=4, retry=kq.Retry.fixed(0.1), until="empty")


def worked_on(
    terms: dict[str, Any], retry: kq.Retry, site: Any, sport: str, handle: Any, *, apart: bool = False
) -> None:
    """The same with other terms."""
    queue = site.queue(sport, **terms)
    events, notices = site.queue("events", max_attempts=None), site.queue("notifications")

    def each(item: Any) -> None:
        notice = handle(item)
        if apart:
            events.put(item.data, key=item.key)
            if notice:
                notices.put(notice, key=item.key)
            return
        with queue.step(item) as step:
            step.put(events, item.data, key=item.key)
            if notice:
                step.put(notices, notice, key=item.key)

    queue.work(each, threads=4, retry=retry, until="empty")


THREE = {"order": "key", "max_attempts": 3}


def in_any_order(site: Any, sport: str, handle: Any) -> None:
    worked_on({"order": "any", "max_attempts": 3}, kq.Retry.fixed(0.1), site, sport, handle)


def no_second_try(site: Any, sport: str, handle: Any) -> None:
    worked_on(THREE, kq.Retry(attempts=1), site, sport, handle)


def outputs_apart(site: Any, sport: str, handle: Any) -> None:
    worked_on(THREE, kq.Retry.fixed(0.1), site, sport, handle, apart=True)


def errors_are_done(site: Any, sport: str, handle: Any) -> None:
    def quiet(item: Any) -> Any:
        with suppress(ValueError, OSError):
            return handle(item)

    worked_on(THREE, kq.Retry(), site, sport, quiet)


GAMES = ("ARS-CHE", "MCI-LIV", "EVE-WHU", "FUL-BRE")
POISON, SHAKY = "MCI-LIV 2", "EVE-WHU 1"


def worked(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Four games of five items; one item always fails, and one fails at its first attempt."""
    cluster = kafka()
    anew(cluster, plan(1))
    tries: Counter[str] = Counter()

    def handle(item: Any) -> bytes | None:
        name = item.data.decode()
        tries[name] += 1
        if name == POISON:
            raise ValueError("a goal without a team")
        if name == SHAKY and tries[name] == 1:
            raise OSError("the database is away")
        return b"goal!" if name.endswith("3") else None

    with kq.Site(cluster, unused("scores")) as site:
        names = [f"{game} {number}" for number in range(5) for game in GAMES]
        seasons.produce(cluster, "football", [(name[:7].encode(), name.encode(), -1) for name in names])
        answer(site, "football", handle)
    events = records(cluster, "events")
    done = [event.value().decode() for event in events]
    for game in GAMES:
        got = [name for name in done if name.startswith(game)]
        expected = [f"{game} {number}" for number in range(5) if f"{game} {number}" != POISON]
        yield Tried(f"the events of {game}", got, expected, "each game in its order, each item once", IN_ORDER)
    letters = [letter.value().decode() for letter in records(cluster, "football.dead")]
    yield Tried("the dead letters", letters, [POISON], "what always fails is put aside", LETTER)
    yield Tried("the attempts of the dead item", tries[POISON], 3, "three attempts", "max_attempts=3")
    notices = sorted((notice.key() or b"no key").decode() for notice in records(cluster, "notifications"))
    yield Tried("the games of the notifications", notices, sorted(GAMES), "one for each goal", NOTICE)
    named = all("kq-item" in dict(record.headers() or []) for record in events)
    yield Tried("whether each event names its item", named, True, "outputs with the ack", STEP)


IN_ORDER = (
    'An item that fails is tried again, and later items of its game wait: site.queue(sport, order="key"). '
    "A second attempt helps where the trouble is over: kq.Retry.fixed(0.1)."
)
LETTER = "An error of the handler is no success: let it out of each(item). After max_attempts the item is buried."
NOTICE = "If handle returned something, put it into notifications, in the same step, with the item's key: key=item.key."
STEP = "Put outputs with queue.step(item): they are written with the ack, or not at all, and name their item."
WORK = Exercise(
    id="15.4",
    ask="a game is worked on in its order; what fails is tried three times, and then it holds nothing up",
    task="work on the queue of this sport until it is empty: handle(item), then the outputs with the ack",
    probe=worked,
    hints=(
        'site.queue(sport, order="key", max_attempts=3), and queue.work(each, threads=4, retry=…, until="empty").',
        "In each(item): call handle(item), then with queue.step(item) as step: step.put(events, item.data, key=item.key), "
        'and step.put(notices, …) if there is one. events is site.queue("events", max_attempts=None).',
    ),
    solution=work,
    wrong=(in_any_order, no_second_try, outputs_apart, errors_are_done),
    seconds=90,
)


# --- 5: small games ---


def small_games(client, names, handle):
    """Work on games that have a queue each: in order, three attempts, and a game that is over is deleted."""
    for name in names:
        queue = client.queue(name, "scores", max_attempts=3)
        over = []

        def each(item, name=name, over=over):
            if handle(name, item):
                over.append(item)

        queue.work(each, until="empty")
        if over:
            queue.delete()


def never_deleted(client: Any, names: list[str], handle: Any) -> None:
    for name in names:
        client.queue(name, "scores", max_attempts=3).work(lambda item, name=name: handle(name, item), until="empty")


def all_deleted(client: Any, names: list[str], handle: Any) -> None:
    for name in names:
        queue = client.queue(name, "scores", max_attempts=3)
        queue.work(lambda item, name=name: handle(name, item), until="empty")
        queue.delete()


def ack_first(client: Any, names: list[str], handle: Any) -> None:
    for name in names:
        queue = client.queue(name, "scores")
        while item := queue.claim():
            queue.ack(item)
            with suppress(ValueError, OSError):
                if handle(name, item):
                    queue.delete()


SMALL = 10_000


def small(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Ten thousand games have begun. Six of them go on: one has an item that always fails, one fails once, one is not over."""
    cluster = kafka()
    anew(cluster, plan(1))
    producer = Producer(cluster.client(linger_ms=50))
    for number in range(SMALL):
        producer.produce("small", b"kick-off", f"game-{number:04}")
        producer.poll(0)
    producer.flush(60)
    names = [f"game-{number}" for number in range(1000, 7000, 1000)]
    poison, shaky, going_on = names[1:4]
    done: dict[str, list[str]] = {name: [] for name in names}
    tries: Counter[tuple[str, str]] = Counter()

    def handle(name: str, item: Any) -> bool:
        what = item.data.decode()
        tries[name, what] += 1
        if (name, what) == (poison, "goal 1"):
            raise ValueError("a goal without a team")
        if (name, what) == (shaky, "goal 1") and tries[name, what] == 1:
            raise OSError("the database is away")
        done[name].append(what)
        return what == "final"

    with kq.virtual.Node(cluster, "small") as node, kq.virtual.Client(node.url) as client:
        for name in names:
            more = [b"goal 1", b"goal 2"] if name == going_on else [b"goal 1", b"goal 2", b"final"]
            client.queue(name).put_many([(each, name.encode()) for each in more])
        answer(client, names, handle)
        whole = ["kick-off", "goal 1", "goal 2", "final"]
        for name in names:
            expected = [each for each in whole if (name, each) not in ((poison, "goal 1"), (going_on, "final"))]
            yield Tried(f"what was done of {name}", done[name], expected, "each game in its order", SMALL_ORDER)
        letters = [client.queue(name, "scores").dead.depth() for name in names]
        yield Tried(
            "the dead letters of each game", letters, [0, 1, 0, 0, 0, 0], "put aside after three attempts", BURY
        )
        there = [name for name in names if client.queues(name + "~") or name in client.queues(name)]
        yield Tried("the games that still have a queue", there, [going_on], "a game that is over takes no room", OVER)
        other = client.queue("game-0001", "scores").depth()
        yield Tried(
            "the depth of another game", other, 1, "no game touches another one", "Only work on the names given."
        )


SMALL_ORDER = (
    "Claim, handle, ack; if the handler fails, the item is tried again before the next one. queue.work does all that."
)
BURY = (
    'client.queue(name, "scores", max_attempts=3): after three attempts the item goes to the dead letters of its game.'
)
OVER = "handle returns True for the final. Then delete the queue when it is empty, and only then."
SMALL_GAMES = Exercise(
    id="15.5",
    ask="each small game is a queue of its own in one topic, and is deleted when it is over",
    task="work on each of these queues until it is empty; delete the ones for which handle returned True",
    probe=small,
    hints=(
        'A virtual queue has work, as any queue: client.queue(name, "scores", max_attempts=3).work(each, until="empty").',
        "In each(item) note whether handle(name, item) is true. After work: if it was, queue.delete().",
    ),
    solution=small_games,
    wrong=(never_deleted, all_deleted, ack_first),
    seconds=90,
)


# --- 6: the pipeline ---


def pipeline(spark, cluster, registry, home):
    """Standings and form of all events, late ones included. Returns what the audit counts, for each sport."""
    aside = {"quarantine": "events.bad", "late_topic": "events.late"}
    how = {"registry": registry, "home": f"{home}/standings", "once": True, **aside}
    kq.spark.standings(spark, cluster, "events", "standings", **how).wait()
    kq.spark.put_back(spark, cluster, "events.late", "events", dry=False)
    kq.spark.standings(spark, cluster, "events", "standings", **how).wait()
    last = {"registry": registry, "home": f"{home}/form", "once": True}
    kq.spark.form(spark, cluster, "standings", "form", **last).wait()
    counts = {}
    for sport in ("football", "basketball"):
        with kq.spark.audit(spark, cluster, sport, "scores", results="events") as audit:
            counts[sport] = audit.counts
    return counts


def without_late_ones(spark: Any, cluster: Any, registry: Any, home: str) -> Any:
    aside = {"quarantine": "events.bad", "late_topic": "events.late"}
    how = {"registry": registry, "home": f"{home}/standings", "once": True, **aside}
    kq.spark.standings(spark, cluster, "events", "standings", **how).wait()


def never_counted_again(spark: Any, cluster: Any, registry: Any, home: str) -> Any:
    without_late_ones(spark, cluster, registry, home)
    kq.spark.put_back(spark, cluster, "events.late", "events", dry=False)


def nothing_is_late(spark: Any, cluster: Any, registry: Any, home: str) -> Any:
    how = {"registry": registry, "home": f"{home}/standings", "once": True, "quarantine": "events.bad"}
    kq.spark.standings(spark, cluster, "events", "standings", late=86_400, **how).wait()


# for a few hundred rows: one partition, and queries that are interpreted, since to compile them costs more than to run them
FEW_ROWS = {
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def summed_up(answer: Callable[..., Any]) -> Iterator[Tried]:
    """An evening of both sports: a late correction, a late goal, an item that no one can read, and a broken event."""
    cluster = kafka()
    anew(cluster, plan(1))
    registry = kq.schemas.Registry(cluster=cluster)
    rows = {
        "football": of_games(evening(190, "football", 0.1), 11),
        "basketball": of_games(evening(600, "basketball"), 3),
    }
    for sport, sent in rows.items():
        late = [row for row in sent if row.kind == "correction"][:1] or [row for row in sent if row.kind == "goal"][:1]
        rows[sport] = [row._replace(at=row.at - 2 * 3_600_000) if row in late else row for row in sent]
        messages = [(key, data, -1) for key, data, _ in seasons.messages(rows[sport], registry, SUBJECT)]
        seasons.produce(cluster, sport, messages)
    seasons.produce(cluster, "football", [(b"ARS-CHE", b"rubbish", -1)])
    read = reader(registry, SUBJECT)

    def handle(item: Any) -> bytes | None:
        value = read(item.data)
        return value["team"].encode() if value["kind"] == "goal" else None

    with kq.Site(cluster, "scores") as site:
        for sport in SPORTS:
            work(site, sport, handle)
    seasons.produce(cluster, "events", [(b"ARS-CHE", b"rubbish", -1)])
    with tempfile.TemporaryDirectory() as home:
        got = answer(kq.spark.session(cluster, config=FEW_ROWS), cluster, registry, home)
    aside = [len(records(cluster, name)) for name in ("events.bad", "events.late")]
    yield Tried("the rows in events.bad and events.late", aside, [1, 2], "bad and late rows are put aside", ASIDE)
    teams = truth(row for sent in rows.values() for row in sent)
    found = latest(cluster, registry, "standings")
    counted = {key: (row["points"], row["scored"], row["results"]) for key, row in found.items()}
    differ = sorted(key for key in teams.keys() | counted.keys() if teams.get(key) != counted.get(key))
    yield Tried("the teams whose row is not the truth", differ, [], "late corrections count in the end", BACK)
    forms = {key: row["form"] for key, row in latest(cluster, registry, "form").items()}
    expected = {key: row[2][-5:] for key, row in teams.items()}
    yield Tried("the form of each team", forms, expected, "the last five results", LAST_FIVE)
    counts = {sport: {key: n for key, n in (got or {}).get(sport, {}).items() if n} for sport in SPORTS}
    audits = {"football": {"once": len(rows["football"]), "dead": 1}, "basketball": {"once": len(rows["basketball"])}}
    yield Tried("what the audits count", counts, audits, "each item once, or dead", AUDIT)


ASIDE = 'Name the topics: quarantine="events.bad", late_topic="events.late".'
BACK = (
    "A late event is put aside. kq.spark.put_back writes it into events again, with the time of its event; "
    "then the standings have to be run once more."
)
LAST_FIVE = 'kq.spark.form(spark, cluster, "standings", "form", …), with a home of its own, after the last standings.'
AUDIT = 'kq.spark.audit(spark, cluster, sport, "scores", results="events") for each sport; its .counts are a dict.'
PIPELINE = Exercise(
    id="15.6",
    ask="standings, form and late corrections equal the truth, and the audit has a word for each item",
    task="bring standings and form up to date, late events included, and return the audit's counts for each sport",
    probe=summed_up,
    hints=(
        'kq.spark.standings(…, "events", "standings", …, once=True).wait() does all that is there. What is still missing then?',
        "After it: kq.spark.put_back(…, dry=False), the standings once more, kq.spark.form, and an audit for each sport.",
    ),
    solution=pipeline,
    wrong=(without_late_ones, never_counted_again, nothing_is_late),
    seconds=600,
)
