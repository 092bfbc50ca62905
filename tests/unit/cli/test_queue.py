"""`kq queue` without a broker: what is mistyped is named, wrong values get the queue's own sentences, and what it prints."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.command import output, queue
from kqlib.command.queue import claim, work
from kqlib.command.queue.change import _sentence
from kqlib.command.queue.site import queues, warnings_shown
from kqlib.command.queue.story import standing
from kqlib.queue import Item
from kqlib.queue.gc import Garbage
from kqlib.queue.incidents import Seen
from kqlib.queue.ledger import Ledger
from kqlib.text import as_json
from tests.conftest import Marked
from tests.patience import PATIENCE
from tests.unit.cli.conftest import run
from tests.unit.records import Rec

NOWHERE = "kq: no cluster: start one with `kq up`, or set KQ_BOOTSTRAP\n"


# --- what is typed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", list(queue.WORDS))
def test_every_word_has_its_function_takes_a_site_and_json_and_says_how_to_get_a_cluster(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_SITE", "drupal-eu")
    parser = argparse.ArgumentParser()
    queue.arguments(parser)
    more = {"list": [], "story": ["football/0/1"], "put": ["football", "x"]}.get(word, ["football"])
    assert parser.parse_args([word, *more]).site == "drupal-eu"
    args = parser.parse_args([word, *more, "--site", "us", "--json"])
    assert (args.site, args.json) == ("us", True)
    command = ["--", "true"] if word == "work" else []
    assert run("queue", word, *more, *command) == 2
    assert capsys.readouterr() == ("", NOWHERE)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["list", "--site", "ä"], "a site's name is text of 1 to 200 printable ASCII characters, not 'ä'"),
        (["create", "x", "--max-attempts", "few"], "max_attempts is a whole number from 1 to 14, or None for no limit, not 'few'"),
        (["put", "x"], "what shall be put? DATA, --file FILE, or - for a line of stdin each"),
        (["put", "x", "y", "--file", "z"], "either DATA or --file is the item, not both"),
        (["put", "x", "y", "--header", "k"], "a header is NAME=VALUE, not 'k'"),
        (["put", "x", "y", "--header", "k=1", "--header", "k=2"], "header 'k' is given twice, and an item has one of each"),
        (["put", "x", "--file", "/no/such/file"], "there is no file '/no/such/file'. Nothing was put"),
        (["put", "x", "y", "--delay", "901"], "delay is a number of seconds from 0 to 900, not 901.0. Longer ones keep"),
        (["put", "x", "y", "--delay", "soon"], "delay is a number of seconds from 0 to 900, not 'soon'"),
        (["peek", "x", "-n", "0"], "n is a whole number, at least 1, not 0"),
        (["redrive", "x", "-n", "all"], "n is a whole number, at least 1, not 'all'"),
        (["redrive", "x", "--since", "soon"], "since is a time like 2026-05-01T18:30 or 2026-05-01T18:30+02:00, not 'soon'"),
        (["redrive", "x", "--id", "x"], "an item's id is topic/partition/offset, like 'football/3/41', not 'x'"),
        (["claim", "x", "--lease", "0"], "lease is a number of seconds from 0.001 to 86400, not 0.0"),
        (["work", "x"], "which command? As in: kq queue work football -- ./score.sh"),
        (["work", "x", "--", "no-such-command-7"], "there is no command 'no-such-command-7' that could be run. Nothing was"),
        (["work", "x", "--threads", "0", "--", "true"], "threads is a whole number, at least 1, not 0"),
        (["story", "football"], "an item's id is topic/partition/offset, like 'football/3/41', not 'football'"),
    ],
)  # fmt: skip
def test_wrong_values_get_one_sentence_before_a_cluster_is_asked(
    typed: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("queue", *typed) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kq: {sentence}")
    assert re.search(r"kq queue \w+", err) and err.count("\n") == 1


@pytest.mark.parametrize(("typed", "what"), [(["put", "x", "-"], "put"), (["claim", "x"], "claimed")])
def test_a_closed_stdin_is_reported_before_anything_is_done(
    typed: list[str], what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run("queue", *typed) == 2
    out, err = capsys.readouterr()
    assert (
        out,
        err.startswith("kq: stdin is closed, and "),
        err.endswith(f". Nothing was {what}; see kq queue {typed[0]} --help\n"),
    ) == (
        "",
        True,
        True,
    )


def test_a_queue_is_a_topic_beside_which_its_dead_letters_stand() -> None:
    topics = ["scores", "hockey.dead", "hockey", "football", "football.dead", "orphan.dead", "kq.queues"]
    assert queues(topics) == ["football", "hockey"]


def test_what_the_queue_warns_of_is_a_notice_of_the_command_and_only_then(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("kqlib.queue")
    with warnings_shown():
        log.info("stopping")
        log.warning("%s", "No Kafka answered")
    log.warning("nobody listens")
    assert capsys.readouterr() == ("", "kq: No Kafka answered\n")


# --- what is printed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "–"),
        ("Tor für ÄÖÜ".encode(), "Tor für ÄÖÜ"),
        (b"a\nb\x1b[2J", "a\\nb\\x1b[2J"),
        (b"\xff\x00x", "\\xff\\x00x"),
        (b"x" * 48, "x" * 48),
        (b"x" * 49, "x" * 47 + "…"),
    ],
)
def test_a_payload_is_one_line_that_moves_no_cursor(data: bytes | None, shown: str) -> None:
    assert output.short(data) == shown


def item(lease: int = 1, **facts: Any) -> Item:
    return Item("football", 3, Rec(41, **{"data": b"goal", "time": 1_700_000_000_123, **facts}), 2, 0.0, 7, lease)


def test_an_item_as_json_keeps_text_readable_and_bytes_exact() -> None:
    found = item(name=b"ARS", data=b"\xff", more=[("trace", b"1"), ("odd", b"\xfe"), ("none", None), ("kq-due", b"5")])
    shown = json.loads(as_json(output.item(found)))
    assert shown == {
        "id": "football/3/41",
        "attempt": 2,
        "key": "ARS",
        "created": "2023-11-14T22:13:20.123+00:00",
        "headers": {"trace": "1", "odd": {"base64": "/g=="}, "none": None},
        "data": {"base64": "/w=="},
    }
    assert "attempt" not in output.item(item(lease=0))  # only looked at


def test_a_command_learns_its_item_from_its_environment() -> None:
    headers = [("trace-id", b"1"), ("zero", b"a\0b"), ("none", None), ("kq-site", b"eu")]
    assert work.environment(item(name=b"ARS", more=headers), "eu") == {
        "KQ_ITEM_ID": "football/3/41",
        "KQ_ITEM_ATTEMPT": "2",
        "KQ_ITEM_CREATED": "2023-11-14T22:13:20.123+00:00",
        "KQ_QUEUE": "football",
        "KQ_SITE": "eu",
        "KQ_ITEM_KEY": "ARS",
        "KQ_HEADER_TRACE_ID": "1",
    }


class Site:
    name = "eu"


def commands_of(*words: str) -> work.Commands:
    return work.Commands(SimpleNamespace(site=Site), list(words))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("cat >/dev/null", ""),
        ('test "$(cat)" = goal && test "$KQ_ITEM_ID" = football/3/41', ""),
        ("exit 3", "exit 3"),
        ("echo first >&2; echo second >&2; echo >&2; exit 4", "exit 4: second"),
        ("kill -9 $$", "signal 9"),
        (f"(sleep {30 * PATIENCE:.0f} >/dev/null)& echo left >&2; exit 5", "exit 5: left"),
    ],
)
def test_exit_code_0_is_done_and_another_one_fails_with_the_last_line_of_stderr(
    script: str, reason: str, marked: Marked
) -> None:
    commands_, start = commands_of("sh", "-c", script), time.monotonic()
    if not reason:
        commands_.run(item())
        return
    with pytest.raises(work.CommandError) as failed:
        commands_.run(item())
    assert str(failed.value) == reason
    assert time.monotonic() - start < 20 * PATIENCE  # what the command left running is not waited for


def test_a_command_that_cannot_be_run_is_a_reason_in_words(tmp_path: Path) -> None:
    script = tmp_path / "score.sh"
    script.write_text("cat")  # no first line says by what
    script.chmod(0o755)
    with pytest.raises(work.CommandError) as failed:
        commands_of(str(script)).run(item())
    assert str(failed.value) == f"{script} cannot be run (Exec format error)"


def test_a_command_that_does_not_read_its_stdin_is_not_waited_for() -> None:
    commands_of("true").run(item(data=b"x" * 1_000_000))


@pytest.mark.parametrize(
    ("offset", "mark", "low", "word", "how"),
    [
        (4, 0, 0, "done", "floor 5, top 12"),
        (5, 0, 0, "open", "attempt 2 (floor 5, top 12)"),
        (8, 0, 0, "waiting", "passed over (not due, its key busy), or given back unhandled (floor 5, top 12)"),
        (12, 0, 0, "waiting", "not looked at yet: the next in its partition (floor 5, top 12)"),
        (14, 0, 0, "waiting", "not looked at yet: 2 offsets before it in its partition (floor 5, top 12)"),
        (20, 0, 0, "not there", "its partition ends before 20"),
        (14, 15, 0, "done", "purged"),
        (5, 0, 6, "lost", "it left the log before it was done (floor 5, top 12)"),
    ],
)
def test_where_an_item_stands_is_read_from_the_ledger_the_log_and_the_purge_mark(
    offset: int, mark: int, low: int, word: str, how: str
) -> None:
    ledger = Ledger(5, 5, 1, "id")
    assert ledger.claim([5, 6, 7]) == [1, 1, 1]
    assert ledger.claim([5]) == [2]
    ledger.ack([6, 7])
    assert ledger.pass_over([8, 9]) == 2
    ledger.skip(12)
    assert standing(ledger, Seen("id", low, 20, 5, ""), mark, offset) == (word, how)


@pytest.mark.parametrize(
    ("offsets", "deleted", "forget", "sentence"),
    [
        (0, False, [], "There is nothing that every site is done with."),
        (2, False, [], "Records of 2 offsets would be deleted, for every reader. Nothing was done: add --yes."),
        (0, False, ["eu"], "Records of 0 offsets would be deleted, site 'eu' would be forgotten, for every reader. "
            "Nothing was done: add --yes."),
        (1, True, ["eu", "us"], "Records of 1 offset deleted, site 'eu' is forgotten, site 'us' is forgotten."),
    ],
)  # fmt: skip
def test_garbage_is_reported_in_one_sentence(offsets: int, deleted: bool, forget: list[str], sentence: str) -> None:
    garbage = Garbage("football", {0: (5, 5 + offsets)}, deleted=deleted)
    assert _sentence(garbage, forget) == sentence


# --- claim: lines of stdin --------------------------------------------------------------------------------------------


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stdin into which a test types; None ends it."""
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda text: keys.close() if text is None else print(text, end="", file=keys, flush=True)


def test_lines_come_one_by_one_however_they_arrive(typing: Any) -> None:
    lines = claim.Lines(lambda: None, 10)
    typing("show\nre")
    assert lines.next() == "show"
    typing("lease 5\nack")
    assert lines.next() == "release 5"
    typing(None)
    assert [lines.next(), lines.next()] == ["ack", None]


def test_while_nothing_is_typed_the_lease_is_prolonged_and_a_lost_one_ends_the_waiting(typing: Any) -> None:
    often: list[int] = []

    def extend() -> None:
        often.append(1)
        if len(often) == 3:
            raise claim.LeaseLost("it was purged")

    with pytest.raises(claim.LeaseLost, match="it was purged"):
        claim.Lines(extend, 0.01).next()


class Queue:
    """What a claim is decided on."""

    name, lease = "football", 30.0

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, verb: str) -> Any:
        return lambda item, *more: self.calls.append((verb, *more))


@pytest.mark.parametrize(
    ("typed", "done", "calls"),
    [
        ("ack\n", "acked", [("ack",)]),
        ("ack", "acked", [("ack",)]),
        ("release 2.5\n", "released, due in 2.5 s while this site is at work", [("release", 2.5)]),
        ("release later\nack\n", "acked", [("ack",)]),
        ("release 1000\nack\n", "acked", [("ack",)]),
        ("bury no such match\n", "buried, see football.dead", [("bury", "no such match")]),
        ("akc\nack\n", "acked", [("ack",)]),
        ("", "released, since nothing was decided", [("release",)]),
    ],
)
def test_the_first_line_that_can_be_done_decides_and_the_end_releases(
    typed: str, done: str, calls: list[tuple[Any, ...]], typing: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    typing(typed)
    typing(None)
    made = Queue()
    assert claim._decide(made, item()) == done  # type: ignore[arg-type]
    assert made.calls == calls
    err = capsys.readouterr().err
    assert ("did you mean ack?" in err) == ("akc" in typed)
    assert ("delay is a number of seconds from 0 to 900" in err) == ("later" in typed or "1000" in typed)


def test_an_interrupt_releases(typing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("select.select", interrupt)
    made = Queue()
    assert claim._decide(made, item()) == "released, since nothing was decided"  # type: ignore[arg-type]
    assert made.calls == [("release",)]
