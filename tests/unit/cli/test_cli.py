"""The command `kq` without a broker: what is typed, what is said, with which exit code, and what is passed on untouched."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kqlib.command import main as cli
from kqlib.errors import NotAllowed, Unreachable
from kqlib.kafka import tools
from kqlib.workshop import checks
from kqlib.workshop.doctor import Finding
from tests.unit.cli.conftest import run

SHORT = ["lab", "up", "down", "status", "doctor", "progress", "topics"]
COMMANDS = [*SHORT, "games", "queue", "virtual", "pipeline", "metrics", "bench", "faults", "kafka"]


# --- what is typed ----------------------------------------------------------------------------------------------------


def test_kq_alone_shows_every_command_on_a_line_of_its_own_and_one_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [
        line.split()[0] for line in lines if line.startswith("  ") and line[2] != "-" and line.split()[1][:1].isupper()
    ]
    assert shown == COMMANDS
    assert sum('eval "$(kq up' in line for line in lines) == 1
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: kq {command}")
    assert cli.parsers()[1][command].description in said


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == "kq 0.1.0\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("statsu", "kq: error: there is no command 'statsu'; did you mean status?"),
        ("quue", "kq: error: there is no command 'quue'; did you mean queue?"),
        ("nonsense", "kq: error: there is no command 'nonsense'"),
        ("faults now", "kq faults: error: there is no 'now' here"),
        ("--versoin", "kq: error: there is no '--versoin' here; did you mean --version?"),
        ("--", "kq: error: "),
        ("up --broker 3", "kq up: error: there is no '--broker' here; did you mean --brokers?"),
        ("up --brokers", "kq up: error: argument --brokers: expected one argument"),
        ("up --brokers three", "kq up: error: argument --brokers: invalid int value: 'three'"),
        ("up --brokers 0", "kq up: error: argument --brokers: invalid choice: 0"),
        ("up three", "kq up: error: there is no 'three' here"),
        ("down now", "kq down: error: there is no 'now' here"),
        ("status --jsn", "kq status: error: there is no '--jsn' here; did you mean --json?"),
        ("topics", "kq topics: error: the following arguments are required: what, FILE"),
        ("topics diff", "kq topics: error: the following arguments are required: FILE"),
        ("topics dif plan.toml", "kq topics: error: argument what: invalid choice: 'dif'"),
        ("lab --no-brwser", "kq lab: error: there is no '--no-brwser' here; did you mean --no-browser?"),
    ],
)
def test_what_is_mistyped_is_named_with_the_right_usage(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*typed.split()) == 2
    out, err = capsys.readouterr()
    usage, *rest = err.splitlines()
    command = typed.split(maxsplit=1)[0]
    assert usage.startswith(f"usage: kq {command if command in COMMANDS else 'COMMAND'}")
    assert rest[-1].startswith(said)
    assert (out, len(rest)) == ("", 1)


@pytest.mark.parametrize("many", ["-1", "ten", ""])
def test_a_number_of_rows_is_a_whole_number(many: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("games", "show", "--rows", many) == 2
    assert capsys.readouterr().err.endswith(f"argument --rows: a whole number from 0, not {many!r}\n")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotAllowed("no, because"), 2, "kq: no, because\n"),
        (Unreachable(address="a:1", why="no answer"), 2, "kq: No Kafka answered at a:1: no answer."),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 2, "kq: /x: Permission denied\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "kq: No space left on device\n"),
        (OSError("timed out"), 2, "kq: timed out\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_message_without_a_traceback(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(checks, "progress", fail)
    assert run("progress") == code
    out, err = capsys.readouterr()
    assert (out, err[: len(said)], "Traceback" in err) == ("", said, False)
    assert bool(err) == bool(said)


def test_a_mistake_of_our_own_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "progress", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("progress")


@pytest.mark.parametrize("words", [["kafka"], ["--help"]])
def test_a_reader_that_has_seen_enough_ends_it_in_silence(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "kqlib", *words]
    ran = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, env=env)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_help_does_not_load_what_only_a_command_needs() -> None:
    code = "import sys, kqlib; before = {*sys.modules}; from kqlib.command.main import main; main([]); print([before, {*sys.modules}])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = eval(ran.stdout.splitlines()[-1])
    assert "kqlib.command.main" in after - before
    ours = {each for each in after if each.startswith("kqlib")}
    assert len(ours) < 15, ours
    assert not {each.split(".")[0] for each in after} & {"pyspark", "fastapi", "httpx", "IPython"}


# --- kq topics, without a cluster -------------------------------------------------------------------------------------


def test_a_plan_is_shown_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text("[football]\nweb_servers = 2\n")
    assert run("topics", "show", str(tmp_path / "plan.toml")) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "topic",
        "football",
        "football.dead",
        "kq.queues",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "plan.toml: No such file or directory"),
        ("[football\n", "plan.toml: Expected ']'"),
        ("[football]\npartition = 2\n", "plan.toml: [football]: unknown key 'partition'"),
        ("[foot ball]\n", "plan.toml: "),
        ("[football]\npartitions = 1\n", "no cluster: start one with `kq up`, or set KQ_BOOTSTRAP"),
    ],
)
def test_a_plan_that_cannot_be_compared_says_why_on_one_line(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "plan.toml").write_text(text)
    assert run("topics", "diff", str(tmp_path / "plan.toml")) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("kq: ") and err.count("\n") == 1


# --- kq kafka: everything goes on as it was typed ---------------------------------------------------------------------


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where kq would turn into a tool, what it was asked for."""
    asked: list[Any] = []
    monkeypatch.setattr(tools, "become", lambda *args: asked.extend(args) or 0)
    return asked


@pytest.mark.parametrize(
    ("typed", "tool", "rest"),
    [
        ("dump-log --help", "dump-log", ["--help"]),
        ("storage random-uuid", "storage", ["random-uuid"]),
        ("kafka-storage.sh info -c x", "storage", ["info", "-c", "x"]),
        ("connect-standalone.sh a.properties", "connect-standalone", ["a.properties"]),
        ("topics --bootstrap-server other:9092 --list", "topics", ["--bootstrap-server", "other:9092", "--list"]),
        (
            "topics --bootstrap-server=other:9092 -- --x -h",
            "topics",
            ["--bootstrap-server=other:9092", "--", "--x", "-h"],
        ),
        ("topics --version", "topics", ["--version"]),
        ("nonsense --json", "nonsense", ["--json"]),
    ],
)
def test_a_tool_that_needs_no_cluster_gets_its_arguments_and_no_address(
    typed: str, tool: str, rest: list[str], became: list[Any]
) -> None:
    assert run("kafka", *typed.split()) == 0
    assert became == [tool, rest, None, {}]


def test_a_tool_that_asks_a_cluster_says_how_to_get_one(became: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kafka", "topics", "--list") == 2
    assert became == []
    assert capsys.readouterr().err == "kq: no cluster: start one with `kq up`, or set KQ_BOOTSTRAP\n"


def test_a_misspelt_tool_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kafka", "topcs", "--list") == 2
    assert capsys.readouterr().err == "kq: there is no tool 'topcs'; did you mean topics?\n"


def test_without_a_tool_all_of_them_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kafka") == 0
    said = capsys.readouterr().out.replace(",", "").split()
    assert set(tools.names()) <= set(said)


# --- kq doctor, kq progress -------------------------------------------------------------------------------------------

WELL, ILL, UNTRIED = (
    Finding("Java", True, "21"),
    Finding("jars", False, "none\nat all", "fetch"),
    Finding("Spark", None, "-"),
)


@pytest.mark.parametrize(
    ("found", "code"),
    [([WELL], 0), ([WELL, UNTRIED], 0), ([WELL, ILL, UNTRIED], 1), ([ILL, ILL], 2), ([ILL] * 300, 100)],
)
def test_doctor_ends_with_the_number_of_crosses(
    found: list[Finding], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["kqlib.workshop.doctor"], "findings", lambda: iter(found))
    assert run("doctor") == code


def test_doctor_shows_what_it_found_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["kqlib.workshop.doctor"], "findings", lambda: iter([WELL, ILL, UNTRIED]))
    run("doctor")
    assert capsys.readouterr().out.splitlines() == [
        "✓ Java          21",
        "✗ jars          none",
        "                at all",
        "                → fetch",
        "– Spark         -",
    ]
    run("doctor", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said[1] == {"name": "jars", "ok": False, "what": "none\nat all", "remedy": "fetch"}


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
