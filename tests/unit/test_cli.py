"""The command `kq` without a broker: what is typed, what is said, with which exit code, and what is passed on untouched."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kqlib import __main__ as cli
from kqlib import checks, places, up
from kqlib.broker import tools
from kqlib.doctor import Finding
from kqlib.errors import NotAllowed, Unreachable

COMMANDS = ["lab", "up", "down", "status", "doctor", "progress", "topics", "kafka"]
OURS, OTHERS = "127.0.0.1:21000,127.0.0.1:21001", "kafka.example:9092"


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing was started and nothing is set."""
    for name in ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KQ_STATE", str(tmp_path))
    monkeypatch.setattr("kqlib.broker.kafka.PATIENCE", 0.3)
    return tmp_path


@pytest.fixture
def holder(nothing_runs: Path) -> Iterator[up.Running]:
    """What a living `kq up` of two brokers leaves to see: its lock, held, and its file. No Kafka."""
    running = up.Running(OURS, 2, 1)
    with (nothing_runs / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (nothing_runs / "up.json").write_text(json.dumps({"bootstrap": OURS, "brokers": 2, "pid": 1}))
        yield running


def run(*words: str) -> int:
    """The exit code of kq with these arguments."""
    try:
        return cli.main(words)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


# --- what is typed ----------------------------------------------------------------------------------------------------


def test_kq_alone_shows_every_command_on_a_line_of_its_own_and_one_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[1][:1].isupper()]
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
        ("games", "kq: error: there is no command 'games'"),
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


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotAllowed("no, because"), 2, "kq: no, because\n"),
        (Unreachable(address="a:1", why="no answer"), 2, "kq: No Kafka answered at a:1: no answer."),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 2, "kq: [Errno 13] Permission denied: '/x'\n"),
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
    code = "import sys, kqlib; before = {*sys.modules}; from kqlib.__main__ import main; main([]); print({*sys.modules} - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.splitlines()[-1]
    assert "kqlib.__main__" in loaded
    assert len(eval(loaded)) < 12, loaded


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


# --- kq up, down, status: what can be seen without a cluster ----------------------------------------------------------


def test_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert (up.find(), run("status"), run("status", "--json"), run("down")) == (None, 1, 1, 0)
    said = ["Nothing runs. Start a cluster with `kq up`, or set KQ_BOOTSTRAP.", "null", "Nothing runs."]
    assert capsys.readouterr().out.splitlines() == said


def test_what_a_dead_holder_left_is_no_cluster_and_is_removed(nothing_runs: Path) -> None:
    file = nothing_runs / "up.json"
    for left in (json.dumps({"bootstrap": OURS, "brokers": 2, "pid": os.getpid()}), "{", "[]", ""):
        file.write_text(left)
        assert up.find() is None
        assert not file.exists()


def test_a_second_up_prints_the_same_line_and_another_size_is_refused(
    holder: up.Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (up.find(), run("up"), run("up", "--brokers", "2")) == (holder, 0, 0)
    assert capsys.readouterr().out == f"export KQ_BOOTSTRAP={OURS}\n" * 2
    assert run("up", "--brokers", "3") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "kq: a cluster of 2 brokers runs already, and it stays as it is; `kq down` ends it\n"


def test_down_waits_for_the_holder_and_says_when_it_does_not_end(
    holder: up.Running, nothing_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "STOP", 0.2)
    (nothing_runs / "up.log").write_text("stuck in the mud\n")
    assert run("down") == 2
    assert not (nothing_runs / "up.json").exists(), "the holder ends when its file is gone"
    err = capsys.readouterr().err
    assert "Waited 0.2 s for the cluster of `kq up` to end" in err
    assert "pid=1" in err and "stuck in the mud" in err


def test_an_old_export_is_pointed_to_the_cluster_that_runs(
    holder: up.Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", "127.0.0.1:1")
    assert run("status") == 2
    err = capsys.readouterr().err
    assert err.startswith("kq: No Kafka answered at 127.0.0.1:1: ")
    assert f'But `kq up` keeps a cluster at {OURS}: eval "$(kq up)"' in err


def test_a_current_cluster_that_does_not_answer_is_said_once(
    holder: up.Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for exported in (None, OURS):
        if exported:
            monkeypatch.setenv("KQ_BOOTSTRAP", exported)
        assert run("status") == 2
        err = capsys.readouterr().err
        assert err.startswith(f"kq: No Kafka answered at {OURS}: ")
        assert "keeps a cluster" not in err


EVAL = 'eval "$(kq up)"'


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            up.Status("kq up", OURS, {1: "up", 2: "down"}, 1, 4, exported=False),
            [
                f"The cluster of `kq up` at {OURS}",
                "  broker 1  up, controller",
                "  broker 2  down",
                "  topics    4",
                f"Notebooks use it after {EVAL}",
            ],
        ),
        (
            up.Status("kq up", OURS, {1: "up"}, None, 0, exported=True),
            [
                f"The cluster of `kq up` at {OURS}",
                "  broker 1  up",
                "  topics    0",
                "Notebooks use it: KQ_BOOTSTRAP names it.",
            ],
        ),
        (
            up.Status("KQ_BOOTSTRAP", OTHERS, {7: "up"}, 100, 12, exported=True, other=OURS),
            [
                f"Your cluster (KQ_BOOTSTRAP) at {OTHERS}",
                "  broker 7  up",
                "  node 100  controller",
                "  topics    12",
                f"`kq up` keeps another one at {OURS}; notebooks use that after {EVAL}",
            ],
        ),
    ],
)
def test_a_status_says_what_runs_where_and_who_uses_it(status: up.Status, said: list[str]) -> None:
    assert str(status).splitlines() == said


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (OURS, OURS, True),
        ("127.0.0.1:21001", OURS, True),
        (" 127.0.0.1:21001 , x:1", OURS, True),
        ("127.0.0.1:2100", OURS, False),
        ("", OURS, False),
        ("", "", False),
    ],
)
def test_two_addresses_are_the_same_cluster_if_they_share_a_broker(one: str, other: str, same: bool) -> None:
    assert up._same(one, other) is same


# --- kq lab -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with three notebooks and a draft."""
    repo = tmp_path / "check out"
    for name in ("notebooks/00-start-here", "notebooks/03-keys", "notebooks/12-spark-pipeline", "drafts/mine"):
        file = repo / f"{name}.ipynb"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    (tmp_path / "outside.ipynb").write_text("{}")
    monkeypatch.chdir(repo)
    monkeypatch.setattr(places, "repo", lambda: repo)
    return repo


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where kq would turn into JupyterLab, its command and its environment."""
    asked: list[Any] = []

    def execve(*args: Any) -> None:
        asked.extend(args)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    return asked


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("", "notebooks/00-start-here.ipynb"),
        ("0", "notebooks/00-start-here.ipynb"),
        ("3", "notebooks/03-keys.ipynb"),
        ("03", "notebooks/03-keys.ipynb"),
        ("12-spark-pipeline", "notebooks/12-spark-pipeline.ipynb"),
        ("03-keys.ipynb", "notebooks/03-keys.ipynb"),
        ("notebooks/03-keys.ipynb", "notebooks/03-keys.ipynb"),
        ("drafts/mine.ipynb", "drafts/mine.ipynb"),
    ],
)
def test_lab_opens_the_notebook_that_is_meant(asked: str, meant: str, checkout: Path, started: list[Any]) -> None:
    assert run("lab", *([asked] if asked else [])) == 0
    assert f"--LabApp.default_url=/lab/tree/{meant}" in started[1]
    assert f"--ServerApp.root_dir={checkout}" in started[1]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("7", "there is no notebook '7' in this checkout; there are 00-start-here, 03-keys, 12-spark-pipeline"),
        ("03-kesy", "there is no notebook '03-kesy' in this checkout; did you mean 03-keys?"),
        ("../outside.ipynb", "there is no notebook '../outside.ipynb' in this checkout"),
        ("drafts", "there is no notebook 'drafts' in this checkout"),
    ],
)
def test_a_notebook_that_is_not_there_is_named(
    asked: str, said: str, checkout: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("lab", asked) == 2
    assert capsys.readouterr().err.startswith(f"kq: {said}")
    assert started == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("kqlib.places.repo", "The notebooks are not here: go into the checkout"),
        ("kqlib.jupyter.find_spec", "JupyterLab is not installed for this Python"),
    ],
)
def test_lab_says_what_is_missing(
    what: str,
    said: str,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(what, lambda *_: None)
    assert run("lab") == 2
    err = capsys.readouterr().err
    assert said in err
    assert "`make lab`" in err


@pytest.mark.parametrize(
    ("typed", "there", "absent"),
    [
        ("", ["--ServerApp.ip=127.0.0.1"], ["--no-browser"]),
        ("--no-browser", ["--no-browser"], []),
        ("03 -- --port=9999 --x", ["--port=9999", "--x"], ["--"]),
        ("-- --ip=0.0.0.0", ["--ip=0.0.0.0"], ["--ServerApp.ip=127.0.0.1"]),
        ("-- --ip 0.0.0.0", ["--ip", "0.0.0.0"], ["--ServerApp.ip=127.0.0.1"]),
        ("-- --allow-root", ["--allow-root"], ["--ServerApp.allow_root=True"]),
    ],
)
def test_what_follows_the_dashes_goes_to_jupyter_and_overrules(
    typed: str, there: list[str], absent: list[str], checkout: Path, started: list[Any]
) -> None:
    assert run("lab", *typed.split()) == 0
    program, words, _ = started
    assert words[:4] == [program, "-P", "-m", "jupyterlab"]
    assert [word for word in there if word not in words] == []
    assert [word for word in absent if word in words] == []


def test_kernels_start_from_the_checkouts_settings_and_find_kq(
    checkout: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/mine")
    monkeypatch.setenv("PATH", "/usr/bin")
    run("lab")
    env = started[2]
    assert env["IPYTHONDIR"] == str(checkout / ".ipython")
    assert env["JUPYTER_CONFIG_PATH"] == f"{checkout / '.jupyter'}{os.pathsep}/mine"
    assert env["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"
    assert env["KQ_STATE"] == os.environ["KQ_STATE"]


def test_lab_says_which_cluster_notebooks_will_use(
    checkout: Path,
    started: list[Any],
    holder: up.Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("lab")
    assert capsys.readouterr().err == 'The cluster of `kq up` is used by notebooks only after: eval "$(kq up)"\n'
    monkeypatch.setenv("KQ_BOOTSTRAP", OTHERS)
    run("lab")
    assert capsys.readouterr().err == f"Notebooks will use the cluster at {OTHERS} (KQ_BOOTSTRAP).\n"


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
    monkeypatch.setattr(sys.modules["kqlib.doctor"], "findings", lambda: iter(found))
    assert run("doctor") == code


def test_doctor_shows_what_it_found_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["kqlib.doctor"], "findings", lambda: iter([WELL, ILL, UNTRIED]))
    run("doctor")
    assert capsys.readouterr().out.splitlines() == [
        "✓ Java        21",
        "✗ jars        none",
        "              at all",
        "              → fetch",
        "– Spark       -",
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
