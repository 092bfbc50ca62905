"""`kq pipeline …`: its output and exit status; a stopped stream goes on where it was."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kqlib as kq
from kqlib.command.main import main
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka, reading
from kqlib.spark import running
from kqlib.spark.snapshot import Files, Snapshot
from kqlib.spark.table import LATE
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from tests.patience import WAIT, until
from tests.promises.play import put


@pytest.fixture
def name(kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A queue with two done items, one lost and one dead; commands find this cluster."""
    name = f"football-{secrets.token_hex(3)}"
    topics = {f"{name}.{what}": kq.Topic(1) for what in ("results", "again", "bad", "avro")}
    kq.Plan({name: kq.QueueTopic(partitions=1)} | topics).apply(kq_cluster, quiet=True)
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "kq"))
    with kq.Site(kq_cluster, "eu") as site:
        queue, results = site.queue(name), site.queue(f"{name}.results", max_attempts=None)
        queue.put_many([kq.Put(b"%d" % at) for at in range(5)])
        for item in [queue.claim(wait=WAIT) for _ in range(2)]:
            with queue.step(item) as step:
                step.put(results, b"done")
        queue.ack(queue.claim())
        queue.bury(queue.claim(), "broken")
    return name


def test_an_audit_lists_faults_and_ends_with_one(spark: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pipeline", "audit", name, "--site", "eu", "--results", f"{name}.results", "--bucket", "52 weeks"]
    assert main([*words, "--once"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:5]] == [
        [f"{name},", "site", "eu"],
        ["once", "2"],
        ["dead", "1"],
        ["waiting", "1"],
        ["missing", "1", f"{name}/0/2"],
    ]
    assert "· 5 put · 3 ended · 1 open · oldest" in lines[-1] and "p50" in lines[-1]
    assert main([*words, "--outputs", "2", "--once", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    missing = [f"{name}/0/{at}" for at in (0, 1, 2)]
    assert report["counts"]["once"] == 0 and report["ids"] == {"missing": missing, "doubled": []}
    for more in (["--once"], []):  # also where the audit goes on
        assert main([*words, "--outputs", "0", *more]) == 2
        assert "outputs is a whole number" in capsys.readouterr().err
    assert main([*words, "--since", "2026-01-01"]) == 2 and "--since goes with --once" in capsys.readouterr().err
    assert main(["pipeline", "audit", name, "--site", "eu", "--results", "nobodys", "--once"]) == 2
    assert "'nobodys' does not exist" in capsys.readouterr().err


def test_a_replay_writes_nothing_without_yes(
    spark: Any, kq_cluster: Kafka, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mend.py").write_text("def fix(item):\n    return b'mended'\n")
    dead = ["pipeline", "replay", name, "--dead", "--site", "eu", "--with", f"{tmp_path}/mend.py:fix"]
    assert main(dead) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-2].split() == ["all", "1", "1"] and "would be written" in out
    assert out.endswith("\nNothing was done: add --yes.\n")
    assert main([*dead, "--yes"]) == 0 and "would" not in capsys.readouterr().out
    with kq.Site(kq_cluster, "eu") as site:
        assert [item.data for item in site.queue(name).peek(10)] == [b"4", b"mended"]
    again = ["pipeline", "replay", name, f"{name}.again", "--start", "0:3", "--run", "r1"]
    assert main(again) == 1 and main([*again, "--yes"]) == 0
    (records,) = kq.snapshot.records(kq_cluster, f"{name}.again").values()
    assert [record.value() for record in records] == [b"3", b"4", b"mended"]
    assert dict(records[0].headers() or [])["kq-replay"] == b"r1"
    assert main(["pipeline", "replay", name]) == 2 and "where to?" in capsys.readouterr().err
    assert main(["pipeline", "replay", name, "--dead"]) == 2 and "whose dead letters?" in capsys.readouterr().err


def test_bad_rows_go_into_a_topic_with_their_cause(
    spark: Any, kq_cluster: Kafka, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = [{"name": "game", "type": "string"}]
    codec = kq.schemas.Registry(cluster=kq_cluster).codec(
        f"{name}.avro-value", {"type": "record", "name": "Goal", "fields": fields}
    )
    for value in (codec.encode({"game": "ARS-CHE"}), None, codec.encode({"game": "LIV-EVE"}) + b"x", b"abc"):
        put(kq_cluster, f"{name}.avro", {"value": value, "key": b"k"})
    words = ["pipeline", "quarantine", f"{name}.avro", f"{name}.bad", "--once"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert "lag 0 records · 4 in = 1 out + 3 broken + 0 late\n" in out
    assert err == f"3 of 4 rows could not be decoded: they are in '{name}.bad' with their causes\n"
    (records,) = kq.snapshot.records(kq_cluster, f"{name}.bad").values()
    events = [{key: (value or b"").decode() for key, value in record.headers() or []} for record in records]
    assert [(record.key().decode(), each["kq-cause"]) for record, each in zip(records, events, strict=True)] == [
        (f"{name}.avro/0/1", "null"),
        (f"{name}.avro/0/2", "trailing bytes"),
        (f"{name}.avro/0/3", "short"),
    ]
    assert [record.value() for record in records][::2] == [None, b"abc"]
    assert main(words) == 0  # it went on, and there was nothing
    assert len(kq.snapshot.records(kq_cluster, f"{name}.bad")[0]) == 3
    assert reading.committed(kq_cluster, f"kq-quarantine-{name}.avro", f"{name}.avro", [0]) == {0: 4}


@pytest.fixture
def games(kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A topic of games, one for their table, one for bad rows; commands find this cluster."""
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    monkeypatch.setenv("KQ_STATE", str(tmp_path / "kq"))
    games = f"games-{secrets.token_hex(3)}"
    plan = {
        games: kq.Topic(2, config=FOR_EVER),
        f"{games}.bad": kq.Topic(1),
        f"{games}.late": kq.Topic(1),
        f"{games}.table": kq.Topic(1, compact=True),
    }
    kq.Plan(plan).apply(kq_cluster, quiet=True)
    return games


def test_games_become_standings_and_every_row_is_counted(
    spark: Any, kq_cluster: Kafka, games: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "standings", games, f"{games}.table", "--once"]
    registry = kq.schemas.Registry(cluster=kq_cluster)
    registry.register(f"{games}-value", seasons.schema(1))
    produce(kq_cluster, games, [(b"k", b"rubbish", seasons.FIRST)] * 50)
    assert main(["pipeline", "plan", *words[1:-1]]) == 0
    before = capsys.readouterr().out
    assert before.splitlines()[0].endswith(": no batch is committed") and ": 50 records\n" in before
    assert main(words) == 1  # also without a quarantine
    out, err = capsys.readouterr()
    assert "50 in = 0 out + 50 broken + 0 late" in out
    assert err == f"50 of 50 rows could not be decoded: see kq pipeline quarantine {games} TOPIC\n"
    events = list(kq.games.season(437, seed=5, sport="football", broken=0.15))
    broken = sum(bool(each.damage) for each in events)
    late = [
        each for each in kq.games.season(300, seed=6, sport="football", late=0.2) if each.sent - each.at > LATE * 1000
    ]
    produce(kq_cluster, games, seasons.messages([*events, *late], registry, f"{games}-value"))
    assert main([*words, "--quarantine", f"{games}.bad", "--late", f"{games}.late"]) == 1  # it goes on
    out, err = capsys.readouterr()
    rows, (table,) = 437 + len(late), kq.snapshot.records(kq_cluster, f"{games}.table").values()
    assert f"{rows} rows" in out and "lag 0 records" in out and len(late) > 10
    assert f"{rows} in = {437 - broken} out + {broken} broken + {len(late)} late" in out
    first, second = err.splitlines()
    assert first == f"{broken} of {rows} rows could not be decoded: they are in '{games}.bad' with their causes"
    assert second.startswith(
        f"{len(late)} of {rows} rows came more than 60 min late and do not count: the field 'late'"
    )
    retry = ["pipeline", "quarantine", "retry", f"{games}.late", games]
    assert second.endswith(f"; to put them back: kq {' '.join(retry)}") and main(retry) == 1
    *_, counted, last = capsys.readouterr().out.splitlines()
    assert counted.split() == ["all", *[str(len(late))] * 2] and last == "Nothing was done: add --yes."
    assert main(["pipeline", "quarantine", games, f"{games}.bad", "--yes"]) == 2
    assert f"go with a retry: kq pipeline quarantine retry {games} {games}.bad" in capsys.readouterr().err
    assert {record.key().decode() for record in table} == {team for each in events for team in each.game.split("-")}
    assert len(kq.snapshot.records(kq_cluster, f"{games}.bad")[0]) == broken
    assert main(words) == 0 and capsys.readouterr().err == ""
    assert len(kq.snapshot.records(kq_cluster, f"{games}.table")[0]) == len(table)
    assert main(["pipeline", "plan", *words[1:-1]]) == 0
    state, *partitions, reads, writes = capsys.readouterr().out.splitlines()
    assert reads == f"reads values with the latest schema of {games}-value" and writes.startswith(
        f"writes {games}.table"
    )
    assert state.endswith(" is committed") and len(partitions) == 2
    assert all(each.endswith(": 0 records") for each in partitions)


def test_a_stream_of_a_file_runs_is_seen_and_is_stopped(
    spark: Any, kq_cluster: Kafka, games: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, home = tmp_path / "pipeline.toml", tmp_path / "home"
    file.write_text(
        f'stream = "standings"\nsource = "{games}"\ntarget = "{games}.table"\nquarantine = "{games}.bad"\nhome = "home"\n'
        'rules = {points = "points < 3", "two sides" = {that = "team <> league", then = "keep"}}\n'
    )
    registry, words = kq.schemas.Registry(cluster=kq_cluster), [str(file)]
    events = list(kq.games.season(200, seed=5, sport="basketball"))
    produce(kq_cluster, games, seasons.messages(events, registry, f"{games}-value"))
    high = sum(each.points >= 3 for each in events)
    assert main(["pipeline", "plan", *words]) == 0 and not home.exists()
    assert main(["pipeline", "status", *words]) == main(["pipeline", "stop", *words]) == 1
    assert "does not run\n" in capsys.readouterr().out

    def stop() -> list[int]:
        until(lambda: running.noted(str(home)).get("progress", {}).get("state_rows"))
        assert main(["metrics", "--site", "nobody", "--pipeline", str(home)]) == 0
        return [main(["pipeline", word, *words]) for word in ("status", "run", "stop")]

    with ThreadPoolExecutor() as pool:
        ended = pool.submit(stop)
        assert main(["pipeline", "run", *words]) == 1
        assert ended.result(WAIT) == [0, 2, 0]
    out, err = capsys.readouterr()
    assert f"{games} -> {games}.table: process {os.getpid()} on " in out and f"{games}.bad: {high} records\n" in out
    assert (
        "batch 0 is committed" in out
        and "last seen: batch 0 · 200 rows" in out
        and out.endswith("stopped\n")
        and "runs already: process" in err
    )
    assert f"{high} of 200 rows could not be decoded or broke a rule: they are in '{games}.bad'" in err
    newest = registry.latest(f"{games}-value")
    text = f"rule 'points': {high} rows of schema {newest.id} (version {newest.number}) broke it\n"
    assert text in err and text in out and "two sides" not in err and high > 5
    assert main(["pipeline", "status", "--json", *words]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["running"], sum(found["lag"].values()), found["aside"]) == (None, 0, {f"{games}.bad": high})
    labels, seen = f'stream="standings",source="{games}",target="{games}.table"', found["progress"]
    assert f"kqlib_pipeline_running{{{labels}}} 1\n" in out
    assert f"kqlib_pipeline_state_rows{{{labels}}} {seen['state_rows']}\n" in out
    assert f'kqlib_pipeline_aside_records{{{labels},topic="{games}.bad"}} {high}\n' in out
    assert f'{labels},rule="points",schema="{newest.id}",version="{newest.number}"}} {high}\n' in out
    teams = {team for each in events for team in each.game.split("-")}
    assert (
        seen["state_rows"] == len(teams) + len({(each.round, each.game) for each in events}) and seen["state_bytes"] > 0
    )


def reader(**changed: Any) -> str:
    """A schema that reads all versions of a season's events: without `minute`, with `city`. changed: fields; None leaves one out."""
    made = json.loads(seasons.schema(4))
    fields = {each["name"]: each for each in made["fields"]} | {"minute": None}
    fields |= {"city": {"name": "city", "type": "string", "default": "?"}} | changed
    return json.dumps(made | {"fields": [each for each in fields.values() if each]})


def test_a_file_names_the_schema_that_reads_and_a_folder_of_parquet(
    spark: Any, kq_cluster: Kafka, games: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, schema, folder = tmp_path / "pipeline.toml", tmp_path / "reader.avsc", tmp_path / "table"
    text = f'stream = "standings"\nsource = "{games}"\ntarget = "{games}.table"\nhome = "home"\nparquet = "table"\n'
    text += 'schema = "{}"\nrules = {{city = "city = \'?\'", scored = "points < 2"}}\n'
    file.write_text(text.format("reader.avsc"))
    schema.write_text(reader())
    registry, events = kq.schemas.Registry(cluster=kq_cluster), list(kq.games.season(600, seed=5, sport="football"))

    def send(some: list[Any]) -> None:
        produce(kq_cluster, games, seasons.messages(some, registry, f"{games}-value"))

    def run(word: str = "run", *more: str) -> int:
        return main(["pipeline", word, str(file), *(["--once"] if word == "run" else []), *more])

    def same() -> bool:
        """Has the folder what the state has, and nothing else beside it?"""
        found = [
            {*frame.collect()}
            for frame in (spark.read.parquet(str(folder)), Snapshot(spark, f"{tmp_path}/home").read("teams"))
        ]
        return found[0] == found[1] != set() and not Path(f"{folder}.new").exists()

    send(events[:300])
    assert run("plan") == 0 and not folder.exists()
    *_, reads, writes = capsys.readouterr().out.splitlines()
    assert (reads, writes) == (f"reads values with {schema}", f"writes {games}.table, {folder}")
    assert run() == 0 and same() and "broke" not in capsys.readouterr().err  # so each row has a city
    send(events[300:450])

    def fail(*_: Any) -> None:
        raise NotAllowed("the power is gone")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Files, "_move", fail)
        assert run() == 2 and "the power is gone" in capsys.readouterr().err and not folder.exists()
    assert run() == 0 and same()
    send(events[450:])
    registry.register("a reader", reader(place={"name": "place", "type": "string", "default": "!"}))
    file.write_text(
        text.format("a reader").replace("city = '?'", "place = '!'").replace("points < 2", "kind <> 'goal'")
    )
    assert run() == 1 and same()  # the goals of this batch were put aside
    before = {*spark.read.parquet(str(folder)).collect()}
    assert run("backfill", "--switch") == 0 and run() == 0 and same()
    assert before != {*spark.read.parquet(str(folder)).collect()}


def test_a_schema_or_a_folder_that_does_not_fit_is_named_and_nothing_is_written(
    spark: Any, kq_cluster: Kafka, games: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry, schema, folder = kq.schemas.Registry(cluster=kq_cluster), tmp_path / "reader.avsc", tmp_path / "table"
    words = ["standings", games, f"{games}.table"]
    for again in (["plan", *words], [*words, "--once"]):
        assert main(["pipeline", *again]) == 2
        assert f"'{games}-value' is not in this registry" in capsys.readouterr().err
    produce(kq_cluster, games, seasons.messages(kq.games.season(9, seed=5), registry, f"{games}-value"))
    registry.register("others", '"string"')
    file, least = tmp_path / "pipeline.toml", f'stream = "standings"\nsource = "{games}"\ntarget = "{games}.table"\n'
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "_delta_log").mkdir()
    for name, text, says in [
        ("no.avsc", "", "no.avsc cannot be read: "),
        ("reader.avsc", "{", "reader.avsc: this is no Avro schema: "),
        ("reader.avsc", '"string"', "reader.avsc has no field 'at', which standings need"),
        ("reader.avsc", reader(points=None), "reader.avsc has no field 'points', which standings need"),
        (
            "reader.avsc",
            reader(city={"name": "city", "type": "string"}),
            "the reader's schema cannot read version 1 of ",
        ),
        ("nobodys", "", "'nobodys'"),
    ]:
        schema.write_text(text)
        file.write_text(f'{least}schema = "{name}"\n')
        typed = str(tmp_path / name) if "." in name else name
        for again in (["plan", str(file)], ["run", str(file), "--once"], [*words, "--once", "--schema", typed]):
            assert main(["pipeline", *again]) == 2, again
            assert says in capsys.readouterr().err, again
    for more, says in [
        ('subject = "others"', "the schema others has no field 'at', which standings need"),
        ('late = "nobodys"', "'nobodys' does not exist"),
        (f'late = "{games}"', f"a stream that writes into '{games}' would read its own rows"),
    ]:
        file.write_text(f"{least}{more}\n")
        for again in (["plan", str(file)], ["run", str(file), "--once"]):
            assert main(["pipeline", *again]) == 2, again
            assert says in capsys.readouterr().err, again
    for word in ("plan", "status", "stop"):
        for target, says in (("nobodys", "'nobodys' does not exist"), (games, "would read its own rows")):
            assert main(["pipeline", word, "standings", games, target]) == 2
            assert says in capsys.readouterr().err
    schema.write_text(reader())
    file.write_text(f'{least}schema = "reader.avsc"\nrules = {{a = "minute < 90"}}\n')
    assert main(["pipeline", "plan", str(file)]) == 0
    assert capsys.readouterr().err.startswith(
        "kq: rule 'a': the schema has no field 'minute'. If Spark does not know it"
    )
    assert main(["pipeline", "run", str(file), "--once"]) == 2
    assert "rule 'a': Spark cannot read 'minute < 90': " in capsys.readouterr().err
    for name, says in [
        ("table", "has other files, such as _delta_log"),
        ("home/teams", f"is in {tmp_path / 'home'}, "),
    ]:
        file.write_text(f'{least}home = "home"\nparquet = "{name}"\n')
        for again in (["plan", str(file)], ["run", str(file), "--once"]):
            assert main(["pipeline", *again]) == 2
            assert f"each batch replaces the folder {tmp_path / name}, and it {says}" in capsys.readouterr().err
    assert (folder / "notes.txt").read_text() == "mine"
    assert kq.snapshot.records(kq_cluster, f"{games}.table") == {0: []}


STOPPED = [(signal.SIGTERM, 1), (signal.SIGINT, 130)]


def test_a_stream_that_is_stopped_goes_on_where_it_was(
    spark: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "audit", name, "--site", "eu", "--results", f"{name}.results", "--every", "0.2"]
    words += ["--state", str(tmp_path / "state")]
    rounds = 0
    for number, code in STOPPED:
        with stopped_after(tmp_path / "state" / "state.json", rounds + 1, number):
            assert main(words) == code
        out, err = capsys.readouterr()
        assert out.startswith(f"audit {name}: round {rounds + 1}:") and "2 once, 1 dead, 1 waiting, 1 missing\n" in out
        assert err == "stopped; the same command goes on from here\n"
        rounds = saved(tmp_path)["round"]
    assert (tmp_path / "state" / f"round-{rounds}").is_dir()


def saved(home: Path) -> dict[str, Any]:
    """The state of the audit."""
    return json.loads((home / "state" / "state.json").read_text())


@contextmanager
def stopped_after(state: Path, rounds: int, number: signal.Signals) -> Iterator[None]:
    """Inside, this process gets the signal once the audit has saved so many rounds."""

    def wait() -> None:
        until(lambda: state.exists() and json.loads(state.read_text())["round"] >= rounds)
        os.kill(os.getpid(), number)

    with ThreadPoolExecutor() as pool:
        sent = pool.submit(wait)
        yield
        sent.result(WAIT)
