"""Which states a commit carries. No broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kqlib.queue.assigned import Assigned
from kqlib.queue.commits import Commits
from tests.unit.records import Rec
from tests.unit.test_queue_partition import arrive, owner


class Consumer:
    """Remembers what was committed."""

    def __init__(self) -> None:
        self.committed: list[int] = []

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.committed += [part.partition for part in offsets]
        return offsets


@pytest.mark.parametrize(
    ("what", "value"), [("frozen", 1), ("dropped", "a change was broken off")], ids=["a transaction runs", "given up"]
)
def test_no_commit_is_made_for_a_partition_whose_state_is_a_transactions_or_unknown(what: str, value: Any) -> None:
    assigned = Assigned(cast(Any, None), "here")
    for number in (0, 1):
        each = assigned.partitions["football", number] = owner()
        arrive(each, Rec(0))
        each.number = number
        each.changed()
        each.awaited = each.version
    assigned.consumer = consumer = Consumer()
    commits = Commits(assigned, cast(Any, SimpleNamespace(committed=print)))
    setattr(assigned.partitions["football", 1], what, value)
    assert commits.run() and consumer.committed == [0]
    setattr(assigned.partitions["football", 1], what, type(value)())
    assert commits.run() and consumer.committed == [0, 1]


@pytest.mark.parametrize(
    ("code", "unsure"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),
        (KafkaError._FATAL, False),  # the answer to a heartbeat came first, and so the commit was not sent
        (KafkaError._TRANSPORT, True),
        (KafkaError.REQUEST_TIMED_OUT, True),
    ],
)
def test_a_commit_that_was_refused_or_not_sent_is_not_stored_and_one_without_an_answer_may_be(
    code: int, unsure: bool
) -> None:
    def commit(**_: Any) -> None:
        raise KafkaException(KafkaError(code))

    assigned = Assigned(cast(Any, None), "here")
    assigned.complain = print  # type: ignore[method-assign]
    partition = assigned.partitions["football", 0] = owner()
    arrive(partition, Rec(0))
    partition.changed()
    partition.awaited = partition.version
    assigned.consumer = SimpleNamespace(commit=commit)
    commits = Commits(assigned, cast(Any, None))
    commits._why_not = print  # type: ignore[assignment]
    assert not commits.run()
    assert (partition.unsure > partition.saved) == unsure
