"""`--config FILE`: every command has it, wherever it is typed, and it means what KQ_KAFKA_CONFIG means."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib import kafka
from kqlib.command import main as cli
from kqlib.workshop.cluster import up
from tests.unit.cli.conftest import run

# Every command, and what has to be typed after it.
COMMANDS = {
    **dict.fromkeys(("lab", "up", "down", "status", "doctor", "progress", "bench", "faults"), ""),
    "topics": "show plan.toml",
    "kafka": "topics --create --config retention.ms=1",
    **dict.fromkeys(("games produce", "games show"), "--rows 1"),
    "queue list": "",
    "queue story": "football/0/1",
    **{
        f"queue {word}": "football"
        for word in ("show", "depth", "peek", "create", "delete", "put", "claim", "redrive", "purge", "rewind", "gc")
    },
    "queue work": "football -- ./score.sh --config of-the-command",
    "virtual serve": "football",
    "virtual plan": "football plan.toml",
    **dict.fromkeys(("pipeline standings", "pipeline quarantine"), "games out"),
    "pipeline audit": "football --site eu --results football.results",
    "pipeline replay": "games again",
    "metrics": "",
}
TYPED = {f"kq {command} --config": (command, "behind") for command in COMMANDS} | {
    f"kq --config {command}": (command, "before") for command in COMMANDS
}


def typed(command: str, where: str, *config: str) -> list[str]:
    """The whole line, with --config behind the command or before it."""
    words = command.split()
    return (
        [*words, *config, *COMMANDS[command].split()]
        if where == "behind"
        else [*config, *words, *COMMANDS[command].split()]
    )


def leaves(parser: argparse.ArgumentParser, name: str = "") -> Iterator[str]:
    """Every command that has no sub-commands."""
    under = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not under:
        yield name
    for action in under:
        for word, each in action.choices.items():
            yield from leaves(each, f"{name} {word}".strip())


def test_the_table_has_every_command() -> None:
    assert set(leaves(cli.parsers()[0])) == set(COMMANDS)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which file each command saw in its environment, and what goes on untouched; no command does anything."""
    found: list[Any] = []
    real = cli.parsers

    def parsers() -> Any:
        whole, made = real()
        for parser in made.values():
            parser.set_defaults(run=lambda args: found.append((os.environ.get("KQ_KAFKA_CONFIG"), args.rest)) or 0)
        return whole, made

    monkeypatch.setattr(cli, "parsers", parsers)
    return found


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client's settings, in the current directory."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "client.properties"
    made.write_text("bootstrap.servers=127.0.0.1:9\nclient.id=scores\n")
    return made


@pytest.mark.parametrize(("command", "where"), TYPED.values(), ids=TYPED)
def test_every_command_takes_a_file_of_client_settings(command: str, where: str, file: Path, seen: list[Any]) -> None:
    rest = {
        "kafka": ["--create", "--config", "retention.ms=1"],
        "queue work": ["./score.sh", "--config", "of-the-command"],
    }
    for config in (["--config", "client.properties"], ["--config=client.properties"]):
        assert run(*typed(command, where, *config)) == 0
    assert seen == [(str(file), rest.get(command, []))] * 2
    assert "KQ_KAFKA_CONFIG" not in os.environ


@pytest.mark.parametrize(("command", "where"), TYPED.values(), ids=TYPED)
def test_a_missing_file_and_an_unknown_word_get_one_sentence_before_anything_is_done(
    command: str, where: str, file: Path, seen: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*typed(command, where, "--config", "nowhere")) == 2
    wanted = "this file of client settings (--config or KQ_KAFKA_CONFIG) cannot be read (FileNotFoundError)"
    assert capsys.readouterr().err == f"kq: {file.parent}/nowhere: {wanted}\n"
    file.write_text("sasl.passwort=s3cr3t\n")
    assert run(*typed(command, where, "--config", "client.properties")) == 2
    wanted = 'kq: client.properties, line 1: No such configuration property: "sasl.passwort". Nothing was done; correct the file\n'
    assert capsys.readouterr().err == wanted
    assert seen == []


@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_every_command_explains_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command.split(), "--help") == 0
    assert "--config FILE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--config", "kq: error: argument --config: expected one argument"),
        ("--config client.properties", "kq: error: which command?"),
        ("status --config", "kq status: error: argument --config: expected one argument"),
        ("status --confi client.properties", "kq status: error: there is no '--confi' here; did you mean --config?"),
        ("queue --config client.properties pt football", "kq queue: error: there is no 'pt' here; did you mean put?"),
    ],
)
def test_what_is_mistyped_is_named(words: str, says: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words.split()) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(says)


def test_it_goes_before_the_environment_which_is_then_as_it_was(
    file: Path, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQ_KAFKA_CONFIG", "other.properties")
    assert run("status", "--config", "client.properties") == run("status") == 0
    assert [path for path, _ in seen] == [str(file), "other.properties"]
    assert os.environ["KQ_KAFKA_CONFIG"] == "other.properties"


def test_settings_without_an_address_are_used_for_the_cluster_of_kq_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=41000\n", encoding="utf-8")
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    monkeypatch.setenv("KQ_KAFKA_CONFIG", str(file))
    monkeypatch.setattr(kafka, "reach", lambda address, own: (address, own))
    found = up._seek(SimpleNamespace(bootstrap="127.0.0.1:1"))
    assert found == ("127.0.0.1:1", {"request.timeout.ms": "41000"})
