"""The command `kq` without a broker: what is typed, what is printed, the exit status, and what is passed on untouched."""

from __future__ import annotations

import argparse
import errno
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib import kafka
from kqlib.command import main as cli
from kqlib.command.output import YES
from kqlib.errors import NotAllowed, NotInTime, PayloadTooLarge, QueueDeleted, SparkDied, TopicMissing, Unreachable
from kqlib.kafka import tools
from kqlib.workshop import checks
from kqlib.workshop.cluster import up
from kqlib.workshop.doctor import Finding
from tests.unit.cli.conftest import run

COMMANDS = ["lab", "up", "down", "status", "doctor", "progress", "topics", *cli.MODULES, "kafka"]


# --- what is typed ----------------------------------------------------------------------------------------------------


def parsed(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command, and every sub-command, with its parser."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, each in action.choices.items():
                yield from parsed(each, f"{name} {word}".strip())


@pytest.fixture
def one_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands are typed into the same parser: to make it takes longer than the rest of a command that ends at once."""
    made = cli.parsers()
    monkeypatch.setattr(cli, "parsers", lambda: made)


@pytest.mark.usefixtures("one_parser")
def test_every_command_explains_itself_and_takes_a_file_of_client_settings(capsys: pytest.CaptureFixture[str]) -> None:
    whole, commands = cli.parsers()
    assert list(commands) == COMMANDS
    for command, _ in parsed(whole):
        assert run(*command.split(), "--help") == 0
        out = capsys.readouterr().out
        assert out.startswith(f"usage: kq {command}"), command
        assert "--config FILE" in out, command
        assert re.match("[A-Z].*[.]$", out.split("\n\n")[1], re.DOTALL), f"no sentence of what it does: {command}"
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [f"    {name:<11}  {parser.description}" for name, parser in commands.items()]
    assert listed == [line for line in lines if line.startswith("    ")]
    assert max(map(len, lines)) <= 80
    assert sum('eval "$(kq up' in line for line in lines) == 1


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == "kq 0.2.0\n"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("statsu", "kq: error: there is no command 'statsu'; did you mean status?"),
        ("nonsense", "kq: error: there is no command 'nonsense'; see kq --help"),
        ("--versoin", "kq: error: there is no '--versoin' here; did you mean --version?"),
        ("--", "kq: error: "),
        ("--config client.properties", "kq: error: which command?"),
        ("--config", "kq: error: argument --config: expected one argument"),
        ("up --broker 3", "kq up: error: there is no '--broker' here; did you mean --brokers?"),
        ("down now", "kq down: error: there is no 'now' here"),
        ("up --brokers 0", "kq up: error: argument --brokers: invalid choice: 0"),
        ("topics dif plan.toml", "kq topics: error: argument what: invalid choice: 'dif'; did you mean diff?"),
        ("games show --rows -1", "kq games show: error: argument --rows: a whole number from 0, not '-1'"),
        ("games show --rows ten", "kq games show: error: argument --rows: a whole number from 0, not 'ten'"),
        ("queue", "kq queue: error: the following arguments are required: WORD"),
        ("queue --config client.properties pt x", "kq queue: error: there is no command 'pt'; did you mean put?"),
        ("queue --json list", "kq queue: error: there is no '--json' here"),
        ("queue create", "kq queue create: error: the following arguments are required: QUEUE; see kq queue create --help"),
        ("queue create x --order lifo", "kq queue create: error: argument --order: invalid choice: 'lifo'; choose from any, key"),
    ],
)  # fmt: skip
def test_what_is_mistyped_is_named_with_the_right_usage(
    typed: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*typed.split()) == 2
    out, err = capsys.readouterr()
    usage = "kq COMMAND" if words.startswith("kq:") else words.partition(":")[0]
    assert err.startswith(f"usage: {usage}")
    assert err.splitlines()[-1].startswith(words)
    assert out == ""


def helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The help of a command, and of the commands below it."""
    yield parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from helps(each)


def test_no_line_of_a_help_text_is_wider_than_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line for text in helps(cli.parsers()[0]) for line in text.splitlines()]
    assert len(lines) > 500
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("topics", "which plan? kq topics diff FILE"),
        ("topics apply", "which plan? kq topics apply FILE"),
        ("topics copy", "which topic? kq topics copy SRC DST"),
    ],
)
def test_topics_without_a_file_names_the_command_to_type(
    typed: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*typed.split()) == 2
    assert capsys.readouterr().err == f"kq: {words}\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotAllowed("no, because"), "no, because; see kq progress --help"),
        (NotAllowed("a plan is needed: kq topics apply"), "a plan is needed: kq topics apply"),
        (error := Unreachable(address="a:1", why="no answer"), f"{error} See kq status"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), "/x: No such file; see kq progress --help"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied; see kq doctor"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; see kq doctor"),
        (OSError("timed out"), "timed out; see kq doctor"),
        (error := PayloadTooLarge(size=9, topic="x", limit=8, safe="."), f"{error} See kq progress --help"),
        (error := QueueDeleted(queue="x"), f"{error} See kq queue create --help"),
        (error := NotInTime(seconds=3, why="a leader", last="none"), f"{error}; see kq doctor"),
        (error := SparkDied(why="exit 1", tail="a line\nanother"), f"{error}\nSee kq doctor"),
        (error := TopicMissing(topic="x"), str(error)),
        (KeyboardInterrupt(), ""),
    ],
)
def test_an_error_is_one_message_without_a_traceback(
    error: BaseException, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(checks, "progress", fail)
    assert run("progress") == (2 if words else 130)
    assert capsys.readouterr() == ("", words and f"kq: {words}\n")


def test_nothing_is_coloured_not_even_at_a_terminal() -> None:
    outside, terminal = pty.openpty()
    command = [sys.executable, "-m", "kqlib", "kafka"]
    subprocess.run(command, stdout=terminal, stderr=terminal, check=True, env=os.environ | {"FORCE_COLOR": "1"})
    os.close(terminal)
    assert b"kq kafka TOOL" in (printed := os.read(outside, 4096)) and b"\x1b" not in printed
    os.close(outside)


def test_an_option_has_the_same_form_in_every_command() -> None:
    forms: dict[str, set[object]] = {}
    for _, parser in parsed(cli.parsers()[0]):
        for action in parser._actions:
            for option in {"--config", "--json", "--site", "--yes", "-n"}.intersection(action.option_strings):
                forms.setdefault(option, set()).add((*action.option_strings, action.nargs, action.metavar))
    assert [option for option, found in forms.items() if len(found) > 1] == []


def test_what_takes_away_has_yes_and_what_only_adds_or_looks_has_none() -> None:
    options = {name: {o: a.help for a in p._actions for o in a.option_strings} for name, p in parsed(cli.parsers()[0])}
    asks = {name: found["--yes"] for name, found in options.items() if "--yes" in found}
    emptied = [f"queue {word}" for word in ("delete", "purge", "rewind", "gc")]
    assert list(asks) == [*emptied, "pipeline quarantine", "pipeline replay"]
    assert set(asks.values()) == {YES["help"]}
    assert [name for name, found in options.items() if "--dry-run" in found] == ["queue redrive"]  # it adds


@pytest.mark.usefixtures("one_parser")
def test_a_wrong_option_of_any_command_ends_in_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    for name, parser in parsed(cli.parsers()[0]):
        needed = [str(a.metavar) for a in parser._actions if not a.option_strings and a.nargs is None]
        typed = ["crash", "--zzz", "--", "true"] if name == "crash" else [*name.split(), *needed, "--zzz"]
        if name == "kafka" or any(isinstance(a, argparse._SubParsersAction) for a in parser._actions):
            continue  # a tool reads its own options; the words under a command are tried each
        assert run(*typed) == 2, name
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.endswith(f"; see kq {name} --help"), last


def test_a_mistake_of_our_own_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "progress", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("progress")


@pytest.mark.parametrize("end", ["", ">&-"], ids=["no UTF-8", "closed"])
def test_an_answer_goes_to_any_stdout(end: str) -> None:
    kq = [sys.executable, "-m", "kqlib", "size", "--items=1/s", "--bytes=9", "--keep=7d", "--handler=1s"]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(["sh", "-c", f'"$@" {end}', "sh", *kq], capture_output=True, text=True, check=False, env=env)
    assert (ran.returncode, ran.stderr, "\\xd7" in ran.stdout) == (0, "", not end)


def test_a_reader_that_has_seen_enough_ends_it_in_silence() -> None:
    read, write = os.pipe()
    os.close(read)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "kqlib", "kafka"]
    ran = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, env=env)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_help_does_not_load_what_only_a_command_needs() -> None:
    code = "import sys; from kqlib.command.main import main; main([]); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.splitlines()[-1].split()
    assert len([each for each in loaded if each.startswith("kqlib")]) < 16
    assert not {each.split(".")[0] for each in loaded} & {"confluent_kafka", "pyspark", "fastapi", "httpx", "IPython"}


# --- --config FILE means what KQ_KAFKA_CONFIG means -------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Which file each command saw in its environment, and what goes on untouched. No command does anything."""
    found: list[Any] = []
    real = cli.parsers

    def parsers() -> Any:
        whole, made = real()
        for parser in made.values():
            parser.set_defaults(run=lambda args: found.append((os.environ.get("KQ_KAFKA_CONFIG"), args.rest)) or 0)
        return whole, made

    monkeypatch.setattr(cli, "parsers", parsers)
    monkeypatch.setenv("KQ_KAFKA_CONFIG", "other.properties")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").write_text("bootstrap.servers=127.0.0.1:9\nclient.id=scores\n")
    return found


@pytest.mark.parametrize(
    ("typed", "rest"),
    [
        ("status CONFIG", []),
        ("CONFIG status", []),
        ("queue CONFIG depth football", []),
        ("queue depth football CONFIG", []),
        ("lab CONFIG 03 -- --config of-jupyter", ["--config", "of-jupyter"]),
        ("queue work football CONFIG -- ./score.sh --config its-own", ["./score.sh", "--config", "its-own"]),
        ("kafka CONFIG topics --create --config retention.ms=1", ["--create", "--config", "retention.ms=1"]),
        ("CONFIG kafka topics --config=retention.ms=1", ["--config=retention.ms=1"]),
        ("kafka CONFIG topics -- --x", ["--", "--x"]),
        ("queue put football CONFIG -- --config", []),  # an item that begins with dashes
    ],
)
def test_a_file_of_client_settings_is_taken_wherever_it_is_typed(
    typed: str, rest: list[str], seen: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for config in ("--config client.properties", "--config=client.properties"):
        assert run(*typed.replace("CONFIG", config).split()) == 0
    assert seen == [(str(tmp_path / "client.properties"), rest)] * 2
    seen.clear()
    assert run(*typed.replace("CONFIG", "--config nowhere").split()) == 2
    why = "this file of client settings (--config or KQ_KAFKA_CONFIG) cannot be read (No such file or directory)"
    assert capsys.readouterr().err.startswith(f"kq: {tmp_path}/nowhere: {why}; see kq ")
    (tmp_path / "client.properties").write_text("sasl.passwort=s3cr3t\n")
    assert run(*typed.replace("CONFIG", "--config client.properties").split()) == 2
    why = 'client.properties, line 1: No such configuration property: "sasl.passwort"'
    assert capsys.readouterr().err.startswith(f"kq: {why}. Nothing was done; correct the file; see kq ")
    assert seen == []


def test_without_it_the_environment_counts(seen: list[Any]) -> None:
    assert run("status") == 0
    assert seen == [("other.properties", [])]


def test_settings_without_an_address_are_used_for_the_cluster_of_kq_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=41000\n", encoding="utf-8")
    monkeypatch.setenv("KQ_KAFKA_CONFIG", str(file))
    monkeypatch.setattr(kafka, "reach", lambda address, own: (address, own))
    found = up._seek(SimpleNamespace(bootstrap="127.0.0.1:1"))
    assert found == ("127.0.0.1:1", {"request.timeout.ms": "41000"})


# --- kq topics, without a cluster -------------------------------------------------------------------------------------


def test_a_plan_is_shown_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text("[football]\nweb_servers = 2\n")
    assert run("topics", "show", str(tmp_path / "plan.toml")) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["topic", "football", "football.dead", "kq.queues"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "plan.toml: No such file or directory"),
        ("[football]\npartition = 2\n", "plan.toml: [football]: unknown key 'partition'"),
        ("[football]\npartitions = 1\n", "no cluster: start one with `kq up`, or set KQ_BOOTSTRAP"),
    ],
)
def test_a_plan_that_cannot_be_compared_says_why_on_one_line(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "plan.toml").write_text(text)
    assert run("topics", "diff", str(tmp_path / "plan.toml")) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.startswith("kq: ") and err.count("\n") == 1


# --- kq kafka: everything goes on as it was typed ---------------------------------------------------------------------


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What kq would turn into."""
    asked: list[Any] = []
    monkeypatch.setattr(tools, "become", lambda *args: asked.extend(args) or 0)
    return asked


@pytest.mark.parametrize(
    ("typed", "tool", "rest"),
    [
        ("dump-log --help", "dump-log", ["--help"]),
        ("kafka-storage.sh info -c x", "storage", ["info", "-c", "x"]),
        ("topics --bootstrap-server other:9092 --list", "topics", ["--bootstrap-server", "other:9092", "--list"]),
        ("topics --bootstrap-server=other:1 -- --x -h", "topics", ["--bootstrap-server=other:1", "--", "--x", "-h"]),
        ("nonsense --json", "nonsense", ["--json"]),
    ],
)
def test_a_tool_that_needs_no_cluster_gets_its_arguments_and_no_address(
    typed: str, tool: str, rest: list[str], became: list[Any]
) -> None:
    assert run("kafka", *typed.split()) == 0
    assert became == [tool, rest, None, {}]


def test_a_tool_that_cannot_be_run_says_why_and_without_one_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kafka", "topics", "--list") == 2
    assert capsys.readouterr().err == "kq: no cluster: start one with `kq up`, or set KQ_BOOTSTRAP\n"
    assert run("kafka", "topcs", "--list") == 2
    assert capsys.readouterr().err == "kq: there is no tool 'topcs'; did you mean topics?\n"
    assert run("kafka") == 0
    assert set(tools.names()) <= set(capsys.readouterr().out.replace(",", "").split())


# --- kq doctor, kq progress -------------------------------------------------------------------------------------------

WELL = Finding("Java", True, "21")
ILL = Finding("jars", False, "none\nat all", "fetch")
UNTRIED = Finding("Spark", None, "-")


def test_doctor_shows_what_it_found_and_ends_with_the_number_of_crosses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for found, code in (([WELL, UNTRIED], 0), ([ILL] * 300, 100), ([WELL, ILL, UNTRIED], 1)):
        capsys.readouterr()
        monkeypatch.setattr(sys.modules["kqlib.workshop.doctor"], "findings", lambda found=found: iter(found))
        assert run("doctor") == code
    assert capsys.readouterr().out.splitlines() == [
        "✓ Java          21",
        "✗ jars          none",
        "                at all",
        "                → fetch",
        "– Spark         -",
    ]
    run("doctor", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert rows[1] == {"name": "jars", "ok": False, "what": "none\nat all", "remedy": "fetch"}


def test_progress_is_shown_for_one_and_merged_for_several(
    solutions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("progress", "--json") == 0
    (tmp_path / "ana.json").write_text(capsys.readouterr().out)
    assert run("progress") == 0
    assert capsys.readouterr().out.startswith("notebook")
    assert run("progress", str(tmp_path / "ana.json")) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("all")
    assert run("progress", str(tmp_path / "nobody.json")) == 2
    assert "nobody.json is not what `kq progress --json` prints" in capsys.readouterr().err
