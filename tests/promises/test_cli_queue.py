"""`kq queue` on a real Kafka: put, look, claim at a terminal, work and be stopped, dead letters, stories, garbage collection."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import ResourceType

from kqlib.queue import Site
from kqlib.workshop.doctor import queues
from tests.patience import PATIENCE, WAIT, until
from tests.promises.desk import Desk, Terminal, received
from tests.promises.play import commit, configure, delete
from tests.promises.queues import taken

# --- putting and looking ----------------------------------------------------------------------------------------------


def test_what_is_put_from_an_argument_a_file_or_stdin_is_seen_in_order(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "goal").write_bytes(b"two\nlines\xff")
    one = desk("put", "kick-off", "--key", "ARS", "--header", "trace=1", "--header", "half=first=1")
    assert (one.code, one.out) == (0, f"{desk.name}/0/0\n")
    assert desk("put", "--file", str(tmp_path / "goal"), "--json").json == [f"{desk.name}/0/1"]
    lines = desk("put", "-", typed=b"a\r\n\n\xc3\xa4")
    assert lines.out.split() == [f"{desk.name}/0/{n}" for n in (2, 3, 4)]
    many = desk("put", "-", typed=b"same\n" * 20)
    assert many.out == f"20 items, the first {desk.name}/0/5, the last {desk.name}/0/24\n"
    peeked = desk("peek", "-n", "6", "--json").json
    assert [each["data"] for each in peeked] == ["kick-off", {"base64": "dHdvCmxpbmVz/w=="}, "a", "", "ä", "same"]
    assert (peeked[0]["key"], peeked[0]["headers"]) == ("ARS", {"trace": "1", "half": "first=1"})
    assert desk("peek", "-n", "1").out.split()[:5] == ["item", "age", "key", "headers", "data"]
    assert desk("depth").out == "25\n"


def test_who_only_puts_or_looks_does_not_become_a_site_and_holds_nobody_up(desk: Desk) -> None:
    desk("put", "x")
    for word in ("depth", "peek", "show", "list"):
        assert desk(word).code == 0
    assert "no site has used this queue yet" in desk("story", f"{desk.name}/0/0").out
    row = next(row for row in desk("list", "--json").json if row["queue"] == desk.name)
    assert row == {"queue": desk.name, "partitions": 1, "items": 1, "dead": None, "status": "never used", "sites": []}
    desk("create")
    other = desk("depth", "--site", "someone-else")
    assert other.out == "1\n"
    assert f"site 'someone-else' has never used '{desk.name}' ({desk.site} has; " in other.err


def test_a_mistyped_queue_is_named_with_the_one_that_was_meant(desk: Desk) -> None:
    for word in ("show", "depth", "peek", "put", "create", "delete", "claim", "redrive", "purge", "rewind", "gc"):
        more = ["x"] if word == "put" else []
        missing = desk(word, *more, on=desk.name.replace("ball", "bal"))
        assert (missing.code, missing.out) == (2, ""), word
        assert "does not exist on this cluster. Queues are pre-allocated" in missing.err
        assert missing.err.endswith(f"Did you mean {desk.name}?\n")
        ours = desk(word, *more, on="kq.queues")
        assert ours.code == 2
        assert ours.err.startswith("kq: 'kq.queues' is no queue: kqlib keeps it for itself; see kq queue ")


def test_nothing_is_changed_for_a_site_that_never_was_here(desk: Desk) -> None:
    desk("put", "x")
    for word, *more in (("purge", "--yes"), ("delete", "--yes"), ("rewind", "--yes"), ("redrive",)):
        answer = desk(word, *more, "--site", "drupal-ue")
        assert answer.code == 2
        assert answer.err.startswith(
            f"kq: site 'drupal-ue' has never used '{desk.name}' (no site has; --site or KQ_SITE"
        )
        assert answer.err.endswith(f"Nothing was changed; see kq queue {word} --help\n")
    assert desk.depth() == 1


def test_a_state_that_cannot_be_read_hides_no_other_queue(desk: Desk) -> None:
    desk("create")
    commit(desk.cluster, desk.site, desk.name, 0, "1 7 nonsense state")
    answer = desk("list", "--json")
    rows = {row["queue"]: row for row in answer.json}
    assert rows[desk.name]["items"] is None
    assert f"kq: '{desk.name}': The committed state cannot be read" in answer.err
    assert desk("depth").code == 2


# --- what a site has --------------------------------------------------------------------------------------------------


def test_a_queue_is_created_with_its_terms_and_other_ones_are_refused(desk: Desk) -> None:
    made = desk("create", "--order", "key", "--max-attempts", "none", "--json")
    terms = {"order": "key", "max_attempts": None, "depth": 0}
    assert made.json == {"queue": desk.name, "site": desk.site, **terms}
    assert desk("create").out.endswith("order key, no limit of attempts, 0 items in it.\n")
    refused = desk("create", "--order", "any")
    assert (refused.code, "has order='key' for site" in refused.err) == (2, True)


@pytest.mark.parametrize(("word", "done"), [("purge", "empty"), ("delete", "deleted")])
def test_what_cannot_be_taken_back_is_only_reported_until_yes_does_it(desk: Desk, word: str, done: str) -> None:
    desk("create")
    desk("put", "-", typed=b"1\n2\n3\n")
    dry = desk(word)
    assert dry.code == 1
    assert dry.out.startswith(f"'{desk.name}' would be {done} for site '{desk.site}'")
    assert dry.out.endswith(". 3 items would be marked done, claimed ones included. Nothing was done: add --yes.\n")
    assert desk.depth() == 3
    assert desk(word, "--yes", "--json").json["items"] == 3
    assert desk.depth() == 0
    put = desk("put", "x")
    assert (put.code, "is marked deleted for this site" in put.err) == ((2, True) if word == "delete" else (0, False))
    assert desk("create").code == 0
    assert desk("put", "x").code == 0


# --- claim, at a terminal ---------------------------------------------------------------------------------------------


def test_an_item_is_held_at_a_terminal_longer_than_its_lease_until_it_is_acked(desk: Desk) -> None:
    desk("put", "offside?", "--key", "ARS")
    lease = 1.0 * PATIENCE
    terminal = Terminal(desk, "--lease", f"{lease:g}")
    terminal.wait_for("> ")
    for words in (f"{desk.name}/0/0, attempt 1", "key      ARS", "data     offside?", "ack: done"):
        assert words in terminal.seen
    held = time.monotonic()
    assert desk("show", "--json").json["partitions"][0]["attempts"] == 1
    terminal.type("akc\r")
    terminal.wait_for("did you mean ack?")
    time.sleep(max(0.0, 1.2 * lease - (time.monotonic() - held)))  # longer than the lease
    terminal.type("ack\r")
    terminal.wait_for("0/0: acked.")
    assert terminal.end() == 0
    assert desk.depth() == 0


def test_a_terminal_that_is_closed_releases_the_item(desk: Desk) -> None:
    desk("put", "x")
    terminal = Terminal(desk)
    terminal.wait_for("> ")
    terminal.type("release soon\r")
    terminal.wait_for("delay is a number of seconds from 0 to 900, not 'soon'")
    terminal.process.send_signal(signal.SIGHUP)
    terminal.wait_for("released, since nothing was decided")
    assert terminal.end() == 0
    assert desk("peek", "--json").json[0]["data"] == "x"


def test_nothing_to_claim_is_a_plain_no(desk: Desk) -> None:
    answer = desk("claim")
    assert (answer.code, answer.out) == (1, f"There is nothing to claim in '{desk.name}' for site '{desk.site}' now.\n")
    assert desk("claim", "--json").json is None


# --- work -------------------------------------------------------------------------------------------------------------

SCRIPT = """
read -r line
echo "$KQ_ITEM_ID $KQ_ITEM_ATTEMPT $KQ_ITEM_KEY $KQ_HEADER_TRACE $line" >> "$0"
case "$line" in bad*) echo "thinking" >&2; echo "no such match: $line" >&2; exit 3;; esac
"""


def test_a_command_is_run_for_each_item_and_what_fails_ends_in_the_dead_letters_with_its_last_words(
    desk: Desk, tmp_path: Path
) -> None:
    desk("put", "good", "--key", "ARS", "--header", "trace=7")
    desk("put", "-", typed=b"bad one\nfine\n")
    how = ["--until-empty", "--retry", "0.05", "--max-attempts", "2", "--threads", "2", "--json"]
    worked = desk("work", *how, "--", "sh", "-c", SCRIPT, str(tmp_path / "seen"))
    assert worked.json == {"done": 2, "released": 1, "buried": 1, "lost": 0}, worked.err
    assert worked.code == 1
    assert worked.err.count("no such match: bad one\n") == 2
    name = desk.name
    seen = sorted((tmp_path / "seen").read_text().splitlines())
    assert seen == [
        f"{name}/0/0 1 ARS 7 good",
        f"{name}/0/1 1   bad one",
        f"{name}/0/1 2   bad one",
        f"{name}/0/2 1   fine",
    ]
    letter = desk("peek", on=f"{name}.dead").out.splitlines()[1]
    assert letter.split()[:3] == [f"{name}.dead/0/0", f"{name}/0/1", "2"]
    assert "CommandError: exit 3: no such match: bad one" in letter
    row = next(row for row in desk("list", "--json").json if row["queue"] == name)
    assert (row["items"], row["dead"]) == (0, 1)  # marks of transactions are no items
    shown = desk("show").out
    assert "items    0\n" in shown and "dead     1\n" in shown


TOO_SMALL = "kq: The dead letter would take "
UNBURIED = {  # what the queue is created with, the options of `work`, what its last line begins with
    "after the queue's attempts": (["--max-attempts", "1"], [], TOO_SMALL),
    "after fewer than the queue's": ([], ["--max-attempts", "1"], TOO_SMALL),
    "in a queue without dead letters": (
        ["--max-attempts", "none"],
        ["--max-attempts", "1"],
        "kq: '{}.dead' does not exist",
    ),
}


@pytest.mark.parametrize("case", UNBURIED)
def test_until_empty_ends_with_the_reason_if_only_items_are_left_that_cannot_be_buried(desk: Desk, case: str) -> None:
    created, reported, words = UNBURIED[case]
    configure(desk.cluster, ResourceType.TOPIC, f"{desk.name}.dead", max_message_bytes="10")
    desk("create", *created)
    if words != TOO_SMALL:
        delete(desk.cluster, f"{desk.name}.dead")
    desk("put", "x")
    for _ in range(1 if reported else 2):  # the second time no handler gets the item, if its attempts are used up
        begun = time.monotonic()
        worked = desk("work", "--until-empty", *reported, "--", "false")
        assert time.monotonic() - begun < 10 * PATIENCE
        *_, last = worked.err.splitlines()
        assert (worked.code, worked.out) == (2, "")
        assert last.startswith(words.format(desk.name))
        assert "Traceback" not in worked.err
    assert desk.depth() == 1


def test_more_attempts_than_the_queues_own_are_refused(desk: Desk) -> None:
    answer = desk("work", "--max-attempts", "9", "--", "true")
    assert answer.code == 2
    assert "buries after 5 attempts for site" in answer.err and "--max-attempts can only be lower, not 9" in answer.err


def test_sigterm_waits_for_the_command_that_runs_and_gives_back_nothing_half_done(
    desk: Desk, tmp_path: Path, within: Callable[..., float]
) -> None:
    desk("put", "-", typed=b"1\n2\n3\n")
    mark, go_on = tmp_path / "mark", tmp_path / "mark.go"
    script = 'cat >/dev/null; echo began >> "$0"; while [ ! -e "$0.go" ]; do sleep 0.1; done; echo done >> "$0"'
    working = desk.start("work", "--", "sh", "-c", script, str(mark), stderr=subprocess.PIPE)
    within(60, lambda: mark.exists() and "began" in mark.read_text())
    working.send_signal(signal.SIGTERM)
    received(working, within)  # nothing is begun any more
    go_on.touch()
    _, err = working.communicate(timeout=WAIT)
    assert (working.returncode, err) == (0, "kq: 1 done, 0 to be tried again, 0 buried, 0 lost\n")
    assert mark.read_text() == "began\ndone\n"
    assert desk.depth() == 2
    assert [part["attempts"] for part in desk("show", "--json").json["partitions"]] == [0]


def test_ctrl_c_waits_and_a_second_one_ends_the_command(
    desk: Desk, tmp_path: Path, within: Callable[..., float]
) -> None:
    desk("put", "x")
    mark = tmp_path / "mark"
    script = 'echo $$ > "$0"; sleep 60'
    pipes = {"stderr": subprocess.PIPE, "start_new_session": True}
    working = desk.start("work", "--", "sh", "-c", script, str(mark), **pipes)
    within(60, lambda: mark.exists() and mark.read_text())
    working.send_signal(signal.SIGINT)
    received(working, within)  # or two of them are one for Python
    assert working.poll() is None
    working.send_signal(signal.SIGINT)
    _, err = working.communicate(timeout=WAIT)
    assert working.returncode == 130, err
    within(10, lambda: not Path(f"/proc/{mark.read_text().strip()}").exists())
    assert "Traceback" not in err


# --- dead letters, stories --------------------------------------------------------------------------------------------


def test_a_story_tells_of_one_item_from_the_put_to_the_copy_that_was_put_back(desk: Desk) -> None:
    desk("put", "penalty", "--key", "ARS", "--header", "trace=1")
    with Site(desk.cluster, desk.site) as site:
        queue = site.queue(desk.name)
        item = queue.claim(wait=WAIT)
        assert item is not None
        queue.bury(item, "no such player")
    desk("create", "--site", f"other-{desk.site}")
    id_ = f"{desk.name}/0/0"
    before = desk("story", id_, "--json").json["events"]
    assert [(event["what"], event["who"]) for event in before] == [
        ("put", ""), ("buried", desk.site), ("waiting", f"other-{desk.site}"), ("done", desk.site),
    ]  # fmt: skip
    assert before[1]["how"].startswith("after 1 attempt: no such player; dead letter ")
    assert desk("redrive").out == "1 dead letter put back, 0 left.\n"
    after = desk("story", id_, "--json").json["events"]
    assert [event["what"] for event in after] == ["put", "buried", "put back", "waiting", "done"]
    copy = after[2]["id"]
    assert after[2]["how"] == f"as {copy}, waiting"
    assert desk("peek", "--json").json[0]["id"] == copy
    letter = desk("story", after[1]["id"])
    assert letter.err == f"kq: {after[1]['id']} is a dead letter of {id_}\n"
    assert [line.split()[2] for line in letter.out.splitlines()[2:5]] == ["put", "buried", "put"]
    theirs = desk("story", copy, "--json").json["events"]
    assert [(event["what"], event["who"]) for event in theirs] == [
        ("put back", desk.site), ("not theirs", f"other-{desk.site}"), ("waiting", desk.site),
    ]  # fmt: skip
    assert f"it was {id_} before" in theirs[0]["how"]


def test_delete_does_what_it_says_for_a_queue_that_was_used_and_never_created(desk: Desk) -> None:
    desk("put", "x")
    with Site(desk.cluster, desk.site) as site:
        site.queue(desk.name)
    answer = desk("delete", "--yes")
    assert (answer.code, desk.depth()) == (0, 0) and answer.out.endswith(". 1 item marked done.\n")
    assert "is marked deleted for this site" in desk("put", "y").err


def test_redrive_chooses_and_says_what_stays(desk: Desk) -> None:
    desk("create")
    desk("put", "-", typed=b"7\n" * 3)
    with Site(desk.cluster, desk.site) as site:
        queue = site.queue(desk.name)
        for reason in ("no such player", "KeyError: 7", "no such player"):
            queue.bury(queue.claim(wait=WAIT), reason)
    dry = desk("redrive", "--reason", "KeyError", "--dry-run")
    assert (dry.code, dry.out) == (0, "1 dead letter would be put back, 3 left.\n")
    ids = ["--id", f"{desk.name}/0/0", "--id", f"{desk.name}.dead/0/99"]
    some = desk("redrive", *ids, "--since", "2026-05-01T18:30", "--json")
    assert (some.code, some.json["redriven"], some.json["dead"]) == (1, 1, 2)
    assert list(some.json["refused"]) == [f"{desk.name}.dead/0/99"]
    assert some.err.startswith(f"kq: {desk.name}.dead/0/99 was not put back: it was not found: it is done already")
    assert desk("redrive", "--reason", "nobody wrote this").code == 1
    moved = desk("redrive", "--into", desk.name, "--force")
    assert moved.out == f"2 dead letters put back into '{desk.name}', 0 left.\n"
    assert desk("redrive").code == 0  # there are none
    assert desk("redrive", "--into", f"{desk.name}-ue").err.startswith(f"kq: '{desk.name}-ue' does not exist")
    desk("delete", "--yes")
    assert "is marked deleted" in desk("redrive", "--id", f"{desk.name}/0/1").err


def test_a_story_of_an_item_that_is_out_says_who_can_have_it_and_who_knows_until_when(desk: Desk) -> None:
    desk("put", "offside?")
    terminal = Terminal(desk)
    terminal.wait_for("> ")
    who = desk("show", "--json").json["partitions"][0]["owner"]
    (stands,) = [each for each in desk("story", f"{desk.name}/0/0", "--json").json["events"] if not each["when"]]
    knows = "only that process knows whether it is claimed, and until when"
    assert (stands["what"], " at " in who) == ("open", True)
    assert stands["how"] == f"attempt 1 (floor 0, top 1); {who} owns its partition: {knows}"
    terminal.type("\x03")  # Ctrl-C
    terminal.wait_for("released, since nothing was decided")
    assert terminal.end() == 0
    assert desk("story", f"{desk.name}/0/0").out.endswith("so no worker has it: the next claim gets it\n")


def test_of_what_is_not_there_a_story_says_so(desk: Desk) -> None:
    assert desk("story", f"{desk.name}/0/7").code == 1
    assert "is not in the log" in desk("story", f"{desk.name}/0/7").out
    assert desk("story", f"{desk.name}/3/0").err.startswith(
        f"kq: '{desk.name}' has no partition 3: it has 1, from 0 on"
    )


def test_what_kafkas_own_tool_calls_lag_is_the_end_less_the_floor_and_no_depth(desk: Desk) -> None:
    desk("put", "-", typed=b"x\n" * 5)
    with Site(desk.cluster, desk.site) as site:
        queue = site.queue(desk.name)
        items = taken(queue, 3)
        queue.ack_many(items[1:])
    rows = desk.cluster.kafka("consumer-groups", "--describe", "--group", desk.site).splitlines()
    heads = next(row.split() for row in rows if "CURRENT-OFFSET" in row)
    row = next(row.split() for row in rows if f" {desk.name} " in row)
    reported = dict(zip(heads, row, strict=False))
    assert (reported["CURRENT-OFFSET"], reported["LOG-END-OFFSET"], reported["LAG"]) == ("0", "5", "5")
    assert desk.depth() == 3


# --- garbage collection -----------------------------------------------------------------------------------------------


def done(desk: Desk, site: str, n: int) -> None:
    with Site(desk.cluster, site) as here:
        queue = here.queue(desk.name)
        for _ in range(n):
            item = queue.claim(wait=WAIT)
            assert item is not None
            queue.ack(item)


def test_garbage_is_reported_first_and_goes_with_yes_down_to_the_lowest_floor(desk: Desk) -> None:
    desk.no_tool()  # the next test has it
    desk("put", "-", typed=b"x\n" * 5)
    done(desk, desk.site, 5)
    done(desk, gone := f"gone-{desk.site}", 2)
    dry = desk("gc")
    assert dry.code == 1
    assert dry.out.splitlines()[1].split() == ["0", "0", "2", "2", gone]
    (*_, would) = dry.out.splitlines()
    assert would == "Records of 2 offsets would be deleted, for every reader. Nothing was done: add --yes."
    looked = desk("gc", "--forget", gone, "--json")
    assert (looked.code, looked.json["offsets"], looked.json["deleted"]) == (1, 5, False)
    unknown = desk("gc", "--forget", "nobody", "--yes")
    assert (unknown.code, f"no site 'nobody' uses '{desk.name}'" in unknown.err) == (2, True)
    deleted = desk("gc", "--forget", gone, "--yes").out
    assert deleted.endswith(f"\nRecords of 5 offsets deleted, site '{gone}' is forgotten.\n")
    after = desk("gc")
    assert (after.code, after.out.splitlines()[-1]) == (0, "There is nothing that every site is done with.")
    assert gone not in after.out
    assert "is not in the log" in desk("story", f"{desk.name}/0/0").out


def commit_as_a_stranger(desk: Desk, group: str) -> None:
    desk.no_tool()
    commit(desk.cluster, group, desk.name)


def share_as_a_stranger(desk: Desk, group: str) -> None:
    configure(desk.cluster, ResourceType.GROUP, group, share_auto_offset_reset="earliest")
    reader = ShareConsumer({"bootstrap.servers": desk.cluster.bootstrap, "group.id": group, "log_level": 0})
    reader.subscribe([desk.name])
    try:
        until(lambda: reader.poll(0.5))
    finally:
        reader.close()


@pytest.mark.parametrize("read", [commit_as_a_stranger, share_as_a_stranger])
def test_nothing_is_deleted_under_a_reader_that_is_no_site(desk: Desk, read: Callable[[Desk, str], None]) -> None:
    desk("put", "-", typed=b"x\n" * 2)
    done(desk, desk.site, 2)
    read(desk, stranger := f"stranger-{desk.site}")
    refused = desk("gc", "--yes")
    assert refused.code == 2
    assert refused.err.startswith(f"kq: '{stranger}' read '{desk.name}' as well and are no sites")
    assert desk("story", f"{desk.name}/0/0", "--json").json["item"]
    if read is commit_as_a_stranger:
        dry = desk("gc").out.splitlines()
        assert dry[-1] == f"It would be refused: '{stranger}' reads '{desk.name}' as well and is no site."


def test_a_site_that_never_looked_at_its_dead_letters_still_holds_them(desk: Desk) -> None:
    desk("put", "x")
    with Site(desk.cluster, desk.site) as site:
        queue = site.queue(desk.name)
        item = queue.claim(wait=WAIT)
        assert item is not None
        queue.bury(item, "why")
    other = f"other-{desk.site}"
    desk("create", "--site", other)
    with Site(desk.cluster, other) as site:
        dead = site.queue(desk.name).dead
        dead.put(b"ours")
        theirs = dead.claim(wait=WAIT)
        assert theirs is not None and theirs.data == b"ours"  # the letter before it is not for them: done
        dead.ack(theirs)
    shown = desk("gc", on=f"{desk.name}.dead").out.splitlines()
    assert shown[1].split() == ["0", "0", "0", "0", desk.site]


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_sees_a_commit_that_is_not_ours_a_state_that_is_gone_and_who_committed_lately(desk: Desk) -> None:
    began = time.time()
    desk("put", "x")
    done(desk, desk.site, 1)
    found = {finding.name: finding for finding in queues.of(desk.cluster)}
    topics = ["topic ids", "dead letters", "retention", "compaction", "replicas", "sizes"]
    assert list(found) == ["offsets", "ledgers", *topics, "expiry"]
    assert (found["offsets"].ok, found["expiry"].ok) == (True, True)
    assert desk.name not in found["ledgers"].what
    commit_as_a_stranger(desk, desk.site)
    where = f"site '{desk.site}' in '{desk.name}', partition 0"
    line = f"{where}: another program set its offset to 1"
    assert line in {finding.name: finding for finding in queues.of(desk.cluster)}["ledgers"].what.splitlines()
    state = (desk.site, desk.name, 0)
    assert state in queues.committed_since(desk.cluster, {desk.site}, began - 1)
    assert state not in queues.committed_since(desk.cluster, {desk.site}, time.time() + 60)
    desk.cluster.admin.delete_consumer_groups([desk.site])[desk.site].result(WAIT)
    assert f"{where}: its state is gone" in {f.name: f for f in queues.of(desk.cluster)}["ledgers"].what.splitlines()
