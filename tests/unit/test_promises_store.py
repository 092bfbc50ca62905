"""What one test run keeps of its verdicts: what is stored, under which name, and who tries when two ask at the same time."""

from __future__ import annotations

import threading

import pytest

from kqlib.runtime.java import Java
from kqlib.workshop.ladder import LADDER, LEDGER
from kqlib.workshop.promises import Verdict, store
from kqlib.workshop.view.deliveries import Delivery
from tests.patience import WAIT

KEPT = Verdict(True, 3, "", "1", (Delivery("worker a", 1, 0, 2, "ack"), Delivery("worker b", 2, 3, 3, "refused")))
QUEUES = {"leases": (LADDER["leases"], b"packed")}
ONE, TWO = ("leases", "extend"), ("leases", "depth counts claimed")


@pytest.fixture(autouse=True)
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


def test_a_verdict_is_tried_once_and_read_with_all_that_was_seen():
    judge = Judge()
    store.verdicts(QUEUES, [ONE], judge)
    found = store.verdicts(QUEUES, [ONE, TWO], judge)
    assert judge.asked == [ONE, TWO]
    assert list(found) == [ONE, TWO]
    assert found[ONE] == KEPT
    assert (found[ONE].item, found[ONE].deliveries) == ("1", KEPT.deliveries)


def test_without_the_variable_nothing_is_stored_and_nothing_read(folder, monkeypatch):
    judge = Judge()
    store.verdicts(QUEUES, [ONE], judge)
    monkeypatch.delenv("KQ_VERDICTS")
    before = sorted(folder.iterdir())
    store.verdicts(QUEUES, [ONE, TWO], judge)
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
def test_a_cross_after_a_call_without_an_answer_is_tried_again(verdict, tries):
    judge = Judge(verdict)
    for _ in range(2):
        assert store.verdicts(QUEUES, [ONE], judge) == {ONE: verdict}
    assert len(judge.asked) == tries


def test_a_verdict_is_named_by_the_code_the_judge_the_locks_and_java(tmp_path, monkeypatch):
    files = {"kqlib/workshop/ladder.py": "a", "kqlib/runtime/jars.lock": "b", "requirements.lock": "c"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(store, "KQLIB", tmp_path / "kqlib")

    def name(packed=b"packed"):
        return store.file_name(LADDER["leases"], packed)

    found = [name(), name(b"other")]
    for changed in (*files, "kqlib/workshop/new.py"):
        (tmp_path / changed).write_text("changed")
        found.append(name())
    monkeypatch.setattr(store.java, "find", lambda: Java(tmp_path, 17, "JAVA_HOME"))
    found.append(name())
    assert len(set(found)) == len(found)
    assert name() == found[-1]


def test_only_a_queue_that_is_defined_in_kqlib_is_stored():
    class Mine(LADDER["leases"]):
        pass

    assert store.file_name(LEDGER, b"packed")
    judge = Judge()
    for factory in (Mine, lambda cluster, name: None):
        for _ in range(2):
            store.verdicts({"leases": (factory, b"packed")}, [ONE], judge)
    assert judge.asked == [ONE] * 4


def test_of_two_that_want_the_same_verdict_one_tries_and_the_other_waits():
    begun, go, second = threading.Event(), threading.Event(), Judge()

    def first(pairs):
        begun.set()
        assert go.wait(WAIT)
        return dict.fromkeys(pairs, KEPT)

    one = threading.Thread(target=store.verdicts, args=(QUEUES, [ONE], first))
    two = threading.Thread(target=store.verdicts, args=(QUEUES, [ONE, TWO], second))
    one.start()
    assert begun.wait(WAIT)
    two.start()
    two.join(0.3)
    assert two.is_alive() and second.asked == []
    go.set()
    for thread in (one, two):
        thread.join(WAIT)
        assert not thread.is_alive()
    assert second.asked == [TWO]


def test_a_try_that_fails_stores_nothing_and_frees_the_verdict():
    def fails(pairs):
        raise TimeoutError("no cluster")

    with pytest.raises(TimeoutError):
        store.verdicts(QUEUES, [ONE], fails)
    assert store.verdicts(QUEUES, [ONE], Judge()) == {ONE: KEPT}
