"""What one test run keeps of its verdicts: what is stored, under which name, and who tries when two ask at the same time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from kqlib.runtime.java import Java
from kqlib.workshop.ladder import LADDER, LEDGER
from kqlib.workshop.promises import Verdict, store
from kqlib.workshop.view.deliveries import Delivery
from tests.patience import WAIT

KEPT = Verdict(True, 3, "", "1", (Delivery("worker a", 1, 0, 2, "ack"), Delivery("worker b", 2, 3, 3, "refused")))
ONE, TWO = ("leases", "extend"), ("leases", "depth counts claimed")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """This test's own store."""
    monkeypatch.setenv("KQ_VERDICTS", str(tmp_path / "verdicts"))
    return tmp_path / "verdicts"


class Judge:
    """Gives one verdict for all, and counts what it was asked for."""

    def __init__(self, verdict=KEPT):
        self.verdict, self.asked = verdict, []

    def __call__(self, pairs):
        self.asked += pairs
        return dict.fromkeys(pairs, self.verdict)


def test_a_verdict_is_tried_once_and_read_with_all_that_was_seen(folder):
    judge = Judge()
    store.verdicts({ONE: "a"}, judge)
    found = store.verdicts({ONE: "a", TWO: "b"}, judge)
    assert judge.asked == [ONE, TWO]
    assert list(found) == [ONE, TWO]
    assert found[ONE] == KEPT
    assert (found[ONE].item, found[ONE].deliveries) == ("1", KEPT.deliveries)


def test_without_the_variable_nothing_is_stored_and_nothing_read(folder, monkeypatch):
    judge = Judge()
    store.verdicts({ONE: "a"}, judge)
    monkeypatch.delenv("KQ_VERDICTS")
    before = sorted(folder.iterdir())
    assert store.keys({"leases": (LADDER["leases"], b"packed")}, ["extend"]) == {ONE: None}
    store.verdicts({ONE: "a", TWO: "b"}, judge)
    assert judge.asked == [ONE, ONE, TWO]
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("verdict", "tries"),
    [
        (Verdict(False, 3, "1 came twice"), 1),
        (Verdict(None, 0, "no extend"), 1),
        (Verdict(False, 3, "put did not return within 30 s", answered=False), 2),
        (Verdict(True, 20, answered=False), 1),  # a broker died in it, as it should, and the promise was kept
    ],
)
def test_a_cross_after_a_call_without_an_answer_is_tried_again(folder, verdict, tries):
    judge = Judge(verdict)
    for _ in range(2):
        assert store.verdicts({ONE: "a"}, judge) == {ONE: verdict}
    assert len(judge.asked) == tries


@pytest.fixture
def names(folder, tmp_path, monkeypatch):
    """A small kqlib, and the name of a verdict that depends on it."""
    files = {"kqlib/workshop/ladder.py": "a", "kqlib/runtime/jars.lock": "b", "requirements.lock": "c"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(store, "KQLIB", tmp_path / "kqlib")

    def name(factory=LADDER["leases"], packed=b"packed", promise="extend"):
        return store.keys({"q": (factory, packed)}, [promise])["q", promise]

    return name


def test_a_verdict_is_named_by_the_code_the_judge_the_locks_java_and_the_promise(names, tmp_path, monkeypatch):
    found = [names(), names(packed=b"other"), names(promise="depth counts claimed")]
    for changed in ("kqlib/workshop/ladder.py", "kqlib/runtime/jars.lock", "requirements.lock"):
        (tmp_path / changed).write_text("changed")
        found.append(names())
    (tmp_path / "kqlib/workshop/new.py").write_text("")
    found.append(names())
    monkeypatch.setattr(store.java, "find", lambda: Java(tmp_path, 17, "JAVA_HOME"))
    found.append(names())
    assert len(set(found)) == len(found)
    assert names() == found[-1]


def test_only_a_queue_that_is_defined_in_kqlib_is_stored(names):
    class Mine(LADDER["leases"]):
        pass

    assert names(LEDGER) is not None
    assert names(Mine) is None
    assert names(lambda cluster, name: None) is None
    judge = Judge()
    store.verdicts({ONE: None}, judge)
    store.verdicts({ONE: None}, judge)
    assert judge.asked == [ONE, ONE]


def test_of_two_that_want_the_same_verdict_one_tries_and_the_other_waits(folder, within):
    begun, go, second = threading.Event(), threading.Event(), Judge()

    def first(pairs):
        begun.set()
        assert go.wait(WAIT)
        return dict.fromkeys(pairs, KEPT)

    one = threading.Thread(target=store.verdicts, args=({ONE: "a"}, first))
    two = threading.Thread(target=store.verdicts, args=({ONE: "a", TWO: "b"}, second))
    one.start()
    assert begun.wait(WAIT)
    two.start()
    within(10, (folder / "b").exists, "the second one waits with what nobody tries")
    assert two.is_alive()
    go.set()
    for thread in (one, two):
        thread.join(WAIT)
        assert not thread.is_alive()
    assert second.asked == [TWO]


HOLDS = """
import sys
from kqlib.workshop.promises import store

def never(pairs):
    print("tries", flush=True)
    sys.stdin.read()

store.verdicts({("leases", "extend"): "a"}, never)
"""


def test_a_process_that_is_killed_while_it_tries_holds_up_nobody(folder):
    judge = Judge()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "tries\n"
        other.send_signal(signal.SIGKILL)
        store.verdicts({ONE: "a"}, judge)
    assert judge.asked == [ONE]


def test_a_try_that_fails_stores_nothing_and_frees_the_verdict(folder):
    def fails(pairs):
        raise TimeoutError("no cluster")

    with pytest.raises(TimeoutError):
        store.verdicts({ONE: "a"}, fails)
    assert store.verdicts({ONE: "a"}, Judge()) == {ONE: KEPT}
