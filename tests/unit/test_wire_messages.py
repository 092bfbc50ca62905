"""Kafka's message definitions: every kind in every version is written and read again, and an error code lands in its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from kqlib.runtime import jars
from kqlib.workshop.wire.crossing import crossings
from kqlib.workshop.wire.encoding import Field, Values
from kqlib.workshop.wire.messages import HEAD, Messages, _span, error_places

MESSAGES = Messages(next(path for path in jars.fetch("broker") if path.name.startswith("kafka-clients-")))


def filled(fields: tuple[Field, ...], number: Iterator[int]) -> Values:
    """A value for each field, each a different one; arrays have two entries."""
    return {each.name: value(each, number) for each in fields}


def value(of: Field, number: Iterator[int], single: bool = False) -> object:
    if of.array and not single:
        return [value(of, number, True), value(of, number, True)]
    if of.fields:
        return filled(of.fields, number)
    if of.type == "bool":
        return True
    if of.type == "uuid":
        return bytes([next(number)]) * 16
    if of.type == "string":
        return f"text {next(number)}"
    return b"bytes %d" % next(number) if of.type in ("bytes", "records") else next(number)


def every() -> Iterator[tuple[str, int]]:
    """The newest and the oldest version of each message, and the first flexible one."""
    for name in MESSAGES.texts:
        if name.endswith(("Request", "Response")):
            text = MESSAGES._json(name)
            low, high = _span(text["validVersions"])  # of a kind that Kafka has removed: none
            flexible = _span(text.get("flexibleVersions", "none"))[0]
            yield from (
                (name, version) for version in sorted({low, high, flexible, flexible - 1}) if low <= version <= high
            )


def test_every_message_is_written_and_read_again_in_every_form() -> None:
    tried = 0
    for name, version in every():
        message = MESSAGES._message(name, version)
        for values in (message.blank(), filled(message.fields, iter([*range(1, 100)] * 20))):
            written = message.write(values)
            assert message.read(written) == values, (name, version)
            tried += 1
    assert tried > 500


def test_a_message_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    message = MESSAGES.request("Produce", 9)
    part = {"Index": 0, "Records": bytes(range(200))}
    data = message.write({"Acks": -1, "TopicData": [{"Name": "games", "PartitionData": [part]}]})
    for size in range(len(data)):
        found = message.read(data[:size])
        assert found == {} or set(found) <= {"TransactionalId", "Acks", "TimeoutMs", "TopicData"}
    found = message.read(data[:90])
    assert found["TopicData"][0]["Name"] == "games"
    assert found["TopicData"][0]["PartitionData"][0]["Records"][:20] == bytes(range(20))


def test_the_names_of_the_kinds_and_of_the_errors_are_kafkas() -> None:
    assert MESSAGES.kinds[0] == "Produce" and MESSAGES.kinds[68] == "ConsumerGroupHeartbeat"
    assert MESSAGES.numbers["EndTxn"] == 26
    assert MESSAGES.errors[6] == "NOT_LEADER_OR_FOLLOWER" and MESSAGES.errors[113] == "STALE_MEMBER_EPOCH"
    same = [code for code, name in MESSAGES.errors.items() if KafkaError(code).name() == name]
    assert len(same) > 90, "librdkafka has older names for a few"


def asked(kind: str, version: int, values: Values) -> bytes:
    return MESSAGES.write_request(kind, version, 77, "client", values)


@pytest.mark.parametrize("version", range(3, 13))
def test_a_refused_produce_names_the_partitions_of_its_request(version: int) -> None:
    parts = [{"Index": 4, "Records": b"x"}, {"Index": 5, "Records": b"y"}]
    frame = asked("Produce", version, {"TopicData": [{"Name": "games", "PartitionData": parts}]})
    answer = MESSAGES.read_answer("Produce", version, MESSAGES.error_answer("Produce", version, frame, 6))
    found = [
        (topic["Name"], part["Index"], part["ErrorCode"])
        for topic in answer["Responses"]
        for part in topic["PartitionResponses"]
    ]
    assert found == [("games", 4, 6), ("games", 5, 6)]


def test_a_refused_transaction_and_a_refused_fetch_name_the_partitions_too() -> None:
    frame = asked("AddPartitionsToTxn", 3, {"V3AndBelowTopics": [{"Name": "games", "Partitions": [2]}]})
    answer = MESSAGES.read_answer("AddPartitionsToTxn", 3, MESSAGES.error_answer("AddPartitionsToTxn", 3, frame, 51))
    assert answer["ResultsByTopicV3AndBelow"] == [
        {"Name": "games", "ResultsByPartition": [{"PartitionIndex": 2, "PartitionErrorCode": 51}]}
    ]
    frame = asked("Fetch", 11, {"Topics": [{"Topic": "games", "Partitions": [{"Partition": 3}]}]})
    answer = MESSAGES.read_answer("Fetch", 11, MESSAGES.error_answer("Fetch", 11, frame, 6))
    part = answer["Responses"][0]["Partitions"][0]
    assert (answer["ErrorCode"], part["PartitionIndex"], part["ErrorCode"]) == (0, 3, 6)


@pytest.mark.parametrize(
    "kind", ["EndTxn", "InitProducerId", "AddOffsetsToTxn", "Heartbeat", "JoinGroup", "ConsumerGroupHeartbeat"]
)
def test_an_answer_of_one_error_code_has_it_and_the_correlation_id(kind: str) -> None:
    newest = MESSAGES.newest(kind)
    frame = MESSAGES.error_answer(kind, newest, asked(kind, newest, {}), 14)
    assert HEAD.unpack_from(frame.ljust(HEAD.size))[0] == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    assert MESSAGES.read_answer(kind, newest, frame)["ErrorCode"] == 14


def test_a_brokers_answer_keeps_all_but_its_innermost_error_codes() -> None:
    parts = [{"PartitionIndex": 1, "ErrorCode": 0}, {"PartitionIndex": 2, "ErrorCode": 3}]
    frame = MESSAGES.write_answer(
        "OffsetCommit", 8, 5, {"ThrottleTimeMs": 9, "Topics": [{"Name": "g", "Partitions": parts}]}
    )
    answer = MESSAGES.read_answer("OffsetCommit", 8, MESSAGES.with_error("OffsetCommit", 8, frame, 27))
    assert answer["ThrottleTimeMs"] == 9
    assert [part["ErrorCode"] for part in answer["Topics"][0]["Partitions"]] == [27, 27]
    groups = [{"GroupId": "g", "Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0}]}]}]
    frame = MESSAGES.write_answer("OffsetFetch", 8, 5, {"Groups": groups})
    answer = MESSAGES.read_answer("OffsetFetch", 8, MESSAGES.with_error("OffsetFetch", 8, frame, 14))
    assert [where[name] for _, where, name in error_places(answer)] == [14, 0], "the group's, not the partition's"


@pytest.mark.parametrize(
    ("throttle", "what"), [(0, "games/4 ×0, acks=all"), (1_700, "games/4 ×0, acks=all, throttled")]
)
def test_an_answer_that_tells_a_client_to_wait_is_seen(throttle: int, what: str) -> None:
    request = {"Acks": -1, "TopicData": [{"Name": "games", "PartitionData": [{"Index": 4, "Records": b"x"}]}]}
    answer = {"ThrottleTimeMs": throttle, "Responses": [{"Name": "games", "PartitionResponses": [{"Index": 4}]}]}
    note = {
        **dict.fromkeys(("at", "done", "size"), 0.0),
        **dict.fromkeys(("nth", "broker"), 1),
        "kind": 0,
        "version": 11,
        "accident": "",
        "owner": (None, "feed"),
        "request": asked("Produce", 11, request),
        "answer": MESSAGES.write_answer("Produce", 11, 77, answer),
    }
    [crossing] = crossings([note], MESSAGES, lambda _: "")
    assert (crossing.throttle, crossing.what, crossing.error) == (throttle, what, "")
