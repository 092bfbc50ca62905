"""The table of rights: docs/rights.md says what the code says, and the commands grant exactly that."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqlib.command.main import main
from kqlib.queue.rights import BEGIN, CLAIM, OPEN, VERBS, Right, commands, needed, table
from kqlib.workshop.doctor import rights as shown

ROOT = Path(__file__).resolve().parents[2]


def markdown() -> str:
    """The table as it stands in docs/rights.md."""
    lines = ["| verb | rights |", "|---|---|"]
    for verb, some in table("QUEUE", "SITE").items():
        lines.append(f"| `{verb}` | {' · '.join(map(short, some))} |")
    return "\n".join(lines)


def short(right: Right) -> str:
    return f"{right.operation} {right.kind.replace('-', ' ')} `{right.name}{'*' * right.prefixed}`"


def test_the_page_says_what_the_code_says() -> None:
    page = (ROOT / "docs" / "rights.md").read_text()
    assert f"compares -->\n{markdown()}\n" in page
    assert f"\n```sh\n{shown.acls('QUEUE', 'SITE', 'USER')}\n```\n" in page


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/rights.md)" in (ROOT / "README.md").read_text()


def test_a_describe_is_named_only_where_nothing_else_is_needed_of_the_same_thing() -> None:
    named = {verb: {str(right) for right in some} for verb, some in table("football", "fans").items()}
    assert "DESCRIBE on topic 'football'" in named["purge"]
    assert "DESCRIBE on topic 'football'" not in named["put"]
    assert "DESCRIBE on group 'fans'" in named["depth"]
    assert not any("{" in text for some in named.values() for text in some)


def test_a_right_is_for_the_queue_and_site_that_are_meant() -> None:
    assert [str(right) for right in needed("claim", "a.b", "x y")] == [
        "READ on topic 'a.b'",
        "READ on group 'x y'",
        "WRITE on topic 'kq.queues'",
    ]
    assert str(BEGIN.of("a.b", "{queue}")) == "WRITE on transactional ids that begin with 'kq-{queue}-'"


def test_the_commands_grant_each_right_of_the_verbs_once() -> None:
    lines = commands(VERBS, "football", "fans", "app")
    assert len(lines) == len({(right.kind, right.name) for some in (OPEN, *VERBS.values()) for right in some})
    assert all(line.startswith("kq kafka acls --add --allow-principal User:app --operation ") for line in lines)
    assert [line for line in lines if "prefixed" in line] == [
        "kq kafka acls --add --allow-principal User:app --operation WRITE --transactional-id kq-fans- --resource-pattern-type prefixed"
    ]
    few = commands(["put"], "football", "fans", "app")
    assert "--group" not in " ".join(few) and "--operation READ --topic football" not in " ".join(few)
    assert set(CLAIM) <= set(VERBS["bury"])


@pytest.mark.parametrize("given", [["--acl", "app"], ["--site", "fans"]])
def test_what_belongs_to_the_rights_does_not_stand_alone(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *given]) == 2
    assert "go with --rights QUEUE" in capsys.readouterr().err


def test_the_commands_need_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rights", "football", "--site", "fans", "--acl", "app"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == shown.acls("football", "fans", "app")


def test_a_line_names_what_a_verb_lacks_and_what_is_not_known() -> None:
    read, write = CLAIM[1].of("football", "fans"), BEGIN.of("football", "fans")
    named = "WRITE on transactional ids that begin with 'kq-fans-'"
    assert shown.line("put", {read: True}) == "✓ put"
    assert shown.line("claim", {read: False, write: True}) == "✗ claim        lacks READ on group 'fans'"
    assert shown.line("bury", {read: True, write: None}) == f"? bury         not known: {named}"
    both = shown.line("bury", {read: False, write: None})
    assert both == f"✗ bury         lacks READ on group 'fans'; not known: {named}"
