"""Records that are written and waited for: what is refused, by the client at once or by a broker later, is a sentence."""

from __future__ import annotations

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka, reading
from kqlib.kafka.writing import write
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


def test_a_game_that_is_too_large_for_kafka_is_a_sentence(kq_cluster: Kafka, kq_topic: str) -> None:
    with pytest.raises(NotAllowed, match=f"not all records could be written to '{kq_topic}': .*too large"):
        seasons.produce(kq_cluster, kq_topic, [(b"a-b", LARGE, seasons.FIRST)])
