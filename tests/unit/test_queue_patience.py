"""What Kafka says while something is being made or moved is waited out; what it means is noticed at once. No broker."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kqlib.errors import KqError, NotAllowed, NotNow, Unreachable
from kqlib.kafka import reading
from kqlib.kafka.reading import patient
from kqlib.queue import state
from kqlib.queue.transactions import Transactions, insist
from tests.patience import PATIENCE

MADE = SimpleNamespace(topic_id="AAA", partitions=[SimpleNamespace(id=0)])


class Answers:
    """An admin client that says these things one after another, the last one for ever."""

    def __init__(self, *answer: Any) -> None:
        self.answer, self.asked = list(answer), 0

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(brokers={1: "it hears someone"})

    def describe_topics(self, _: Any, request_timeout: float) -> dict[str, Any]:
        self.asked += 1
        return {"football": self}

    def result(self, _: float) -> Any:
        answer = self.answer.pop(0) if len(self.answer) > 1 else self.answer[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


MOVING = [
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
]


@pytest.mark.parametrize("code", MOVING)
def test_a_topic_that_is_just_being_made_is_waited_for(code: int) -> None:
    admin = Answers(code, code, MADE)
    cluster: Any = SimpleNamespace(admin=admin, bootstrap="nowhere")
    assert state.topic_ids(cluster, ["football"]) == {"football": ("AAA", (0,))} and admin.asked == 3


def test_one_that_is_not_there_is_known_at_once() -> None:
    admin = Answers(KafkaError.UNKNOWN_TOPIC_OR_PART)
    cluster: Any = SimpleNamespace(admin=admin, bootstrap="nowhere")
    assert state.topic_ids(cluster, ["football"]) == {} and admin.asked == 1


def test_what_stays_away_is_unreachable_when_the_time_is_up() -> None:
    cluster: Any = SimpleNamespace(admin=Answers(KafkaError.LEADER_NOT_AVAILABLE), bootstrap="nowhere")
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="nowhere"):
        state.topic_ids(cluster, ["football"], 0.2)
    assert time.monotonic() - begun < 5 * PATIENCE


def test_a_right_that_is_missing_is_not_waited_for() -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    with pytest.raises(KafkaException):
        patient(ask, 5)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Unreachable),
        (KafkaError.NETWORK_EXCEPTION, NotNow),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAllowed),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAllowed),
    ],
)
def test_a_reader_tells_a_missing_right_from_a_kafka_that_does_not_answer(code: int, kind: type[KqError]) -> None:
    def ask() -> None:
        raise KafkaException(KafkaError(code))

    cluster: Any = SimpleNamespace(bootstrap="nowhere")
    with pytest.raises(KqError) as caught:
        reading.asked(cluster, ask)
    assert type(caught.value) is kind
    answer = state.as_ours(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "nowhere", "look", "Nothing was changed.")
    assert isinstance(answer, NotAllowed)


# what a transaction's call says, one after another; how often it is called; does it end well?
CALLS: dict[str, tuple[list[KafkaError | None], int, bool]] = {
    "at once": ([None], 1, True),
    "not now, then yes": ([KafkaError(KafkaError._TIMED_OUT, retriable=True), None], 2, True),
    "abort": ([KafkaError(KafkaError._FAIL, txn_requires_abort=True), None], 1, False),
    "abort, though it could be tried again": (
        [KafkaError(KafkaError._FAIL, retriable=True, txn_requires_abort=True), None],
        1,
        False,
    ),
    "never": ([KafkaError(KafkaError._FENCED, fatal=True), None], 1, False),
}


@pytest.mark.parametrize(("answer", "times", "well"), CALLS.values(), ids=CALLS)
def test_a_transactions_call_is_repeated_while_kafka_only_says_not_now(
    answer: list[KafkaError | None], times: int, well: bool
) -> None:
    left = list(answer)

    def call(seconds: float) -> None:
        assert seconds > 0
        if (error := left.pop(0)) is not None:
            raise KafkaException(error)

    try:
        insist(call, time.monotonic() + 5)
        assert well
    except KafkaException:
        assert not well
    assert len(answer) - len(left) == times


def test_it_is_not_repeated_for_ever() -> None:
    def call(seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

    begun = time.monotonic()
    with pytest.raises(KafkaException):
        insist(call, begun + 0.1)
    assert time.monotonic() - begun < 3 * PATIENCE


REFUSED = KafkaError(KafkaError._STATE)
ABORT = KafkaError(KafkaError._FAIL, txn_requires_abort=True)
FATAL = KafkaError(KafkaError._FENCED, fatal=True)

# what commit and abort say; what is known then: True committed, False nothing happened, None neither
ENDS: dict[str, tuple[KafkaError | None, KafkaError | None, bool | None]] = {
    "committed": (None, None, True),
    "to be aborted, and that is done": (ABORT, None, False),
    "to be aborted, and that is refused: it may have been committed": (ABORT, REFUSED, None),
    "fenced: Kafka has ended it, one way or the other": (FATAL, None, None),
}


class Transacting:
    """A producer that says this to a commit and that to an abort."""

    def __init__(self, commit: KafkaError | None, abort: KafkaError | None) -> None:
        self.commit, self.abort = commit, abort

    def begin_transaction(self) -> None: ...

    def purge(self) -> None: ...

    def commit_transaction(self, _: float) -> None:
        if self.commit:
            raise KafkaException(self.commit)

    def abort_transaction(self, _: float) -> None:
        if self.abort:
            raise KafkaException(self.abort)


@pytest.mark.parametrize(("commit", "abort", "known"), ENDS.values(), ids=ENDS)
def test_what_is_not_known_of_a_transaction_is_not_taken_for_nothing(
    commit: KafkaError | None, abort: KafkaError | None, known: bool | None
) -> None:
    transactions = Transactions(cast(Any, SimpleNamespace(trouble="", changed=threading.Condition())))
    transactions._producer = Transacting(commit, abort)
    assert transactions.run([], {}) is known


def test_a_close_before_a_transactions_end_was_asked_for_is_known_to_have_stored_nothing() -> None:
    class Never(Transacting):
        def commit_transaction(self, _: float) -> None:
            raise AssertionError("its end must not be asked for")

    transactions = Transactions(cast(Any, SimpleNamespace(trouble="", changed=threading.Condition())))
    transactions._producer = Never(None, None)
    transactions.closed = True
    assert transactions.run([], {}) is False and not transactions.committing
