"""The doctor's trials without a broker and without Spark, and what it makes of all its findings."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kqlib import kafka
from kqlib.errors import KqError
from kqlib.workshop.doctor import CHECKS, Check, Diagnosis, Finding, findings, trials
from tests.patience import PATIENCE
from tests.unit.test_doctor import Patch, failed

# --- does it work -----------------------------------------------------------------------------------------------------


class Kafka:
    """A cluster that answers each request to create or delete a topic with this error."""

    embedded, bootstrap = False, "a:9092"

    def __init__(self, error: Exception) -> None:
        self.error, self.admin, self._own = error, self, dict[str, str]()

    def __enter__(self) -> Kafka:
        return self

    def __exit__(self, *_: object) -> None: ...

    def create_topics(self, wanted: list[Any]) -> dict[str, Kafka]:
        return {wanted[0].topic: self}

    def result(self, _: float) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KqError("broken"), "broken"),
        (KafkaException(KafkaError(KafkaError.POLICY_VIOLATION, "against the policy")), "against the policy"),
    ],
)
def test_a_cluster_that_takes_no_topic_fails_the_round_trip(error: Exception, said: str, monkeypatch: Patch) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", "a:9092")
    monkeypatch.setattr(kafka, "connect", lambda: Kafka(error))
    failed(trials.round_trip(), said, "or unset them")


def test_a_user_who_may_not_make_a_topic_is_told_which_rights_the_round_trip_needs(monkeypatch: Patch) -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    monkeypatch.setattr(kafka, "connect", lambda: Kafka(refused))
    found = trials.round_trip()
    assert (found.ok, found.remedy) == (None, "")
    assert found.what.startswith("This user lacks CREATE or DELETE on topics that begin with 'kq-doctor-'")


@pytest.mark.parametrize("name", ["KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG"])
def test_a_cluster_that_does_not_answer_fails_the_round_trip(name: str, monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "client").write_text("bootstrap.servers=127.0.0.1:1\n")
    monkeypatch.setattr("kqlib.kafka.cluster.PATIENCE", 0.3)
    monkeypatch.delenv("KQ_BOOTSTRAP", raising=False)
    monkeypatch.setenv(name, "127.0.0.1:1" if name == "KQ_BOOTSTRAP" else str(tmp_path / "client"))
    failed(trials.round_trip(), "no Kafka answered at 127.0.0.1:1", "correct KQ_BOOTSTRAP")


@pytest.fixture
def counting(monkeypatch: Patch, tmp_path: Path) -> Callable[[str, float], Finding]:
    """What the doctor finds when this script counts in Spark's stead."""

    def count(script: str, seconds: float = 30) -> Finding:
        (tmp_path / "count.py").write_text(script)
        monkeypatch.setattr(trials, "COUNT", tmp_path / "count.py")
        monkeypatch.setattr(trials, "GONE", 0.3)
        return trials.spark(seconds)

    return count


def test_spark_counts_to_ten(counting: Callable[..., Finding]) -> None:
    assert counting("print('counted 10')") == Finding("Spark", True, "started, counted to ten, and its Java is gone")


@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        ("print('counted 9')", 30, "counted 9"),
        ("import sys; print('counted 10'); sys.exit(1)", 30, "counted 10"),
        ("import sys; sys.exit('no good\\nJAVA_GATEWAY_EXITED')", 30, "JAVA_GATEWAY_EXITED"),
        ("import time; time.sleep(60)", 0.5, "no answer within 0.5 s"),
        ("import subprocess; subprocess.Popen(['sleep', '60']); print('counted 10')", 30, "its Java was left running"),
        (
            "import tempfile; tempfile.mkdtemp(prefix='kqlib-spark-'); print('counted 10')",
            30,
            "its Java was left running",
        ),
    ],
)
def test_a_spark_that_fails_is_told_and_nothing_of_it_is_left(
    script: str, seconds: float, words: str, counting: Callable[..., Finding], marked: Any
) -> None:
    found = counting(script, seconds)
    failed(found, words)
    deadline = time.monotonic() + 2 * PATIENCE
    while marked.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert marked.alive() == []


# --- all of them ------------------------------------------------------------------------------------------------------


def well(name: str) -> Finding:
    return Finding(name, True, "1.2.3 in /home/ana")


def ill(name: str) -> Finding:
    return Finding(name, False, "broken", "mend it")


def test_what_needs_a_cross_is_not_tried_and_the_others_are() -> None:
    def never() -> Finding:
        raise AssertionError("it was tried")

    made = (
        Check("a", "", lambda: well("a")),
        Check("b", "", lambda: ill("b")),
        Check("c", "", never, ("a", "b")),
        Check("d", "", never, ("c",)),
        Check("e", "", lambda: well("e"), ("a",)),
    )
    found = list(findings(made))
    assert [each.ok for each in found] == [True, False, None, None, True]
    assert (found[2].what, found[3].what) == ("not tried: it needs b", "not tried: it needs c")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), KqError("no room")])
def test_a_check_that_cannot_look_is_a_cross_and_not_the_end(error: Exception) -> None:
    def fail() -> Finding:
        raise error

    first, second = findings((Check("a", "", fail), Check("b", "", lambda: well("b"))))
    failed(first, "Permission denied" if isinstance(error, OSError) else "no room")
    assert second.ok


def test_every_check_that_another_needs_comes_before_it() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) == 11
    for at, check in enumerate(CHECKS):
        assert set(check.needs) <= set(names[:at])


def test_a_notebook_shows_the_same_on_every_machine_that_is_well() -> None:
    seen = [
        Diagnosis(tuple(Finding(check.name, True, what) for check in CHECKS)) for what in ("1.2.3 in /home/ana", "9")
    ]
    assert seen[0].well
    assert repr(seen[0]) == repr(seen[1])
    assert seen[0]._repr_mimebundle_() == seen[1]._repr_mimebundle_()
    lines = repr(seen[0]).splitlines()
    assert len(lines) == 1 + len(CHECKS)
    assert lines[3].split(maxsplit=2) == ["Java", "✓", "runs Kafka and Spark"]


def test_a_notebook_shows_what_is_wrong_and_what_to_do() -> None:
    sick = Diagnosis((well("Python"), ill("Java"), Finding("Spark", None, "not tried: it needs Java")))
    assert not sick.well
    assert repr(sick).splitlines()[1:] == [
        "Python  ✓     a version that everything here supports",
        "Java    ✗     runs Kafka and Spark",
        "Spark   –     started, counted to ten, and left nothing running",
        "Java, here: broken → mend it",
        "Spark, here: not tried: it needs Java",
    ]
    assert "mend it" in sick._repr_mimebundle_()["text/html"]
