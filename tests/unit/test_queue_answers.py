"""Which error of ours one of Kafka's becomes: 'no Kafka answered' is raised only where none did."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kqlib.errors import KqError, NotAllowed, NotNow, TopicMissing, Unreachable
from kqlib.kafka.cluster import user
from kqlib.queue import claim, gc, put
from kqlib.queue.answers import as_ours, is_refused, not_allowed
from kqlib.queue.connection import TopicFacts
from kqlib.queue.item import Put
from kqlib.queue.rights import READ_GROUP, WRITE_DEAD, WRITE_NOTES, Right
from kqlib.queue.sender import Sent

CASES: list[tuple[int, type[KqError], str, bool]] = [
    (KafkaError._TIMED_OUT, Unreachable, "No Kafka answered at h:1: ", False),
    (KafkaError._ALL_BROKERS_DOWN, Unreachable, "No Kafka answered at h:1: ", False),
    (KafkaError.NOT_ENOUGH_REPLICAS, NotNow, "Kafka answered at h:1, and cannot do it now: ", False),
    (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, NotNow, "Kafka answered at h:1, and cannot do it now: ", False),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAllowed, "Kafka refused to put into 'football'", True),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAllowed, "Kafka refused to put into 'football'", True),
    (KafkaError.INVALID_RECORD, NotAllowed, "Kafka refused to put into 'football'", True),
    (KafkaError.MSG_SIZE_TOO_LARGE, NotAllowed, "Kafka refused to put into 'football'", True),
    (KafkaError.POLICY_VIOLATION, NotAllowed, "Kafka refused to put into 'football'", True),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing, "'football' does not exist", True),
]


@pytest.mark.parametrize(("code", "kind", "words", "nothing_stored"), CASES)
def test_kafkas_error_becomes_the_sentence_for_what_it_is(
    code: int, kind: type[KqError], words: str, nothing_stored: bool
) -> None:
    error = KafkaError(code)
    ours = as_ours(error, "h:1", "put into 'football'", "Nothing was changed.", "football")
    assert (type(ours), str(ours).startswith(words)) == (kind, True)
    assert is_refused(error) is nothing_stored


@pytest.mark.parametrize(("own", "who"), [({"sasl.username": "app"}, "User 'app'"), ({}, "This user")])
def test_a_missing_right_is_named_with_its_resource_and_the_user(own: dict[str, str], who: str) -> None:
    cluster: Any = SimpleNamespace(_own=own)
    lacks = not_allowed(READ_GROUP.of("football", "fans"), cluster, "Nothing was claimed.")
    assert str(lacks).startswith(f"{who} lacks READ on group 'fans'. Nothing was claimed. Ask your administrator")
    assert str(lacks).endswith("kq doctor --rights QUEUE --site fans shows what else is lacking")
    assert user(cluster).lower() == who.lower()
    error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert as_ours(error, "h:1", "claim", "Nothing was claimed.", lacks=lacks) is lacks


ADVICE: list[tuple[Right, tuple[str, str], str]] = [
    (READ_GROUP, ("football", "my fans"), "--rights football --site 'my fans'"),
    (WRITE_DEAD, ("", ""), "--rights football --site SITE"),
    (WRITE_NOTES, ("", ""), "--rights QUEUE --site SITE"),
    (WRITE_NOTES, ("football.dead", "fans"), "--rights football --site fans"),
]


@pytest.mark.parametrize(("right", "known", "words"), ADVICE)
def test_the_advice_names_the_queue_and_the_site_where_they_are_known(
    right: Right, known: tuple[str, str], words: str
) -> None:
    cluster: Any = SimpleNamespace(_own={})
    assert f"kq doctor {words} shows" in str(not_allowed(right.of("football", "fans"), cluster, "", *known))


@pytest.mark.parametrize(
    "right",
    [gc.SEE_GROUPS, Right("DELETE", "topic", "football"), Right("ALTER_CONFIGS", "group", "fans")],
    ids=str,
)
def test_the_advice_for_a_right_that_the_doctor_does_not_look_at_names_the_page(right: Right) -> None:
    reported = str(not_allowed(right, SimpleNamespace(_own={}), "", "football", "fans"))  # type: ignore[arg-type]
    assert "--rights" not in reported and reported.endswith("docs/rights.md names all that this needs")
    page = (Path(__file__).resolve().parents[2] / "docs" / "rights.md").read_text()
    assert f"{right.operation} on the {right.kind}" in " ".join(page.split())


@pytest.mark.parametrize(
    ("code", "few", "kind"),
    [
        (KafkaError._MSG_TIMED_OUT, "NotEnoughReplicas: 1 of 1", NotNow),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "", NotNow),
        (KafkaError._MSG_TIMED_OUT, "", Unreachable),
        (None, "", Unreachable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "", NotAllowed),
    ],
)
def test_a_put_that_may_be_stored_warns_that_a_repeat_may_store_it_twice(
    code: int | None, few: str, kind: type[KqError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put, "too_few", lambda *_: few)
    cluster: Any = SimpleNamespace(bootstrap="h:1", _own={})
    site: Any = SimpleNamespace(cluster=cluster, name="fans")
    sent = Sent("football", 2)
    sent.ids[0] = "football/0/0"
    if code is not None:
        sent.errors[1] = KafkaError(code)
    error = put.Putting(site, "football", TopicFacts(1, 1_000_000))._failure(sent, [Put(b"1"), Put(b"2")])
    unknown = [] if kind is NotAllowed else [1]
    assert (type(error), vars(error)["unknown"]) == (kind, unknown)
    assert ("the other 1 may have been, or not. To put such an item again may store it twice" in str(error)) == bool(
        unknown
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [({"football": ("id", (0,))}, NotNow), ({}, TopicMissing), (Unreachable(address="h:1", why="none"), Unreachable)],
    ids=["the topic is there", "it is gone", "no answer"],
)
def test_a_claim_that_ends_without_an_answer_asks_whether_kafka_is_there(
    answer: Any, kind: type[KqError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids(*_: object) -> Any:
        if isinstance(answer, KqError):
            raise answer
        return answer

    monkeypatch.setattr(claim.state, "topic_ids", ids)
    monkeypatch.setattr(claim.answers, "not_there", lambda _, topic: TopicMissing(topic=topic))
    queue: Any = SimpleNamespace(
        name="football", _session=SimpleNamespace(suspected=False), site=SimpleNamespace(cluster=SimpleNamespace())
    )
    queue.site.cluster.bootstrap, queue._unlocked = "h:1", lambda ask: ask()
    reported = claim.Claiming._nothing_claimed(queue, "its state could not be read")
    assert type(reported) is kind and queue._session.suspected
    assert kind is TopicMissing or "its state could not be read. Nothing was claimed" in str(reported)
