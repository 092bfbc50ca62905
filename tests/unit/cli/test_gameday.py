"""`kq gameday` without a broker: wrong arguments, and no game that runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kqlib.workshop.cluster import up
from tests.unit.cli.conftest import run

NONE = "kq: no game runs: start one with `kq gameday start`\n"


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("", "the following arguments are required: WORD"),
        ("begin", "there is no command 'begin'"),
        ("strat", "did you mean start?"),
        ("start --faults 0", "--faults: a whole number from 1 to 8, not 0"),
        ("start --faults 9", "--faults: a whole number from 1 to 8, not 9"),
        ("start --faults two", "invalid int value: 'two'"),
        ("start --minutes 0", "--minutes: a number above 0, up to 1440, not 0"),
        ("start --seed x", "invalid int value: 'x'"),
        ("answer quota", "the following arguments are required: --evidence"),
        ("answer --evidence text", "the following arguments are required: FAULT"),
        ("restart", "the following arguments are required: PROGRAM"),
        ("end --html missing/debrief.html", "there is no directory missing for the debrief"),
    ],
)
def test_wrong_arguments_are_found_before_anything_starts(
    typed: str, sentence: str, nothing_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("gameday", *typed.split()) == 2
    assert sentence in capsys.readouterr().err
    assert not (nothing_runs / "up.log").exists()


@pytest.mark.parametrize("typed", ["status", "answer quota --evidence text", "restart mover", "end"])
def test_without_a_game_every_word_says_how_to_start_one(
    typed: str, nothing_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("gameday", *typed.split()) == 2
    assert capsys.readouterr().err == NONE
    (nothing_runs / "gameday").write_text(str(nothing_runs / "gone"))  # the game was killed
    assert run("gameday", *typed.split()) == 2
    assert capsys.readouterr().err == NONE


@pytest.mark.parametrize("typed", [["--evidence", " "], ["--evidence", "-"]])
def test_empty_evidence_is_refused(
    typed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("gameday", "answer", "quota", *typed) == 2
    assert "the evidence is empty" in capsys.readouterr().err


def test_a_game_starts_no_second_cluster(holder: up.Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gameday", "start") == 2
    assert "first end it, a game with `kq gameday end`, that of `kq up` with `kq down`" in capsys.readouterr().err
