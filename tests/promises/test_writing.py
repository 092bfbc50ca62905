"""Records that are written and waited for: what is refused, by the client at once or by a broker later, is a sentence."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import Kafka, reading
from kqlib.kafka.writing import NoAnswer, settled, write
from kqlib.workshop.games import seasons
from tests.patience import WAIT

LARGE = b"x" * 2_000_000
# A client refuses what is larger than its own limit before it is sent.
BY = {"the client": {}, "the broker": {"message_max_bytes": 4_000_000}}


@pytest.mark.parametrize("client", BY.values(), ids=BY)
def test_the_first_record_that_is_refused_ends_it_and_tells_why(
    kq_cluster: Kafka, kq_topic: str, client: dict[str, int]
) -> None:
    first, large = {"topic": kq_topic, "value": b"first"}, {"topic": kq_topic, "value": LARGE}
    assert "too large" in write(kq_cluster, [first, large], WAIT, acks="all", **client)
    assert [each.value() for each in reading.records(kq_cluster, kq_topic)[0]] == [b"first"]


def test_records_without_an_answer_are_counted_and_may_be_stored() -> None:
    why = write(Kafka("127.0.0.1:1"), [{"topic": "any", "value": b"x"}], 0.1)
    assert (why, type(why)) == ("1 record not acknowledged within 0.1 s", NoAnswer)


def test_a_full_queue_without_answers_ends_too() -> None:
    many = ({"topic": "any", "value": b"x"} for _ in range(10))
    assert write(Kafka("127.0.0.1:1"), many, 0.1, queue_buffering_max_messages=1) == "no answer in 0.1 s"


def test_a_topic_without_an_answer_is_named() -> None:
    with pytest.raises(NotInTime, match="'any' to be created"):
        settled({"any": Future()}, "created", 0)


def test_a_game_that_is_too_large_for_kafka_is_a_sentence(kq_cluster: Kafka, kq_topic: str) -> None:
    with pytest.raises(NotAllowed, match=f"not all records could be written to '{kq_topic}': .*too large"):
        seasons.produce(kq_cluster, kq_topic, [(b"a-b", LARGE, seasons.FIRST)])
