"""The error codes that a broker can answer a request with and that a client gets over by itself.

In:  a request that crossed, and Kafka's message definitions. Out: names of errors, each with the side: a broker answers some of them
before it has done anything, others after it has stored the records.
"""

from __future__ import annotations

from collections.abc import Iterator

from kqlib.workshop.wire.crossing import Crossing
from kqlib.workshop.wire.messages import Messages

RETRIABLE = {  # those whose exception in Kafka's Java client extends RetriableException
    *("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "LEADER_NOT_AVAILABLE"),
    *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "CORRUPT_MESSAGE"),
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"),
    *("REQUEST_TIMED_OUT", "SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"),
}
COORDINATOR = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
TRANSACTION = (*COORDINATOR, "CONCURRENT_TRANSACTIONS")
# Of kinds whose definition lists no errors: 'Possible error codes' in the javadoc of Kafka's classes ProduceResponse,
# TxnOffsetCommitResponse, … (org.apache.kafka.common.requests), as far as they are retriable.
POSSIBLE = {
    "Produce": (
        *("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR"),
        *("CORRUPT_MESSAGE", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT"),
    ),
    "TxnOffsetCommit": (*COORDINATOR, "UNKNOWN_TOPIC_OR_PARTITION"),
    "AddPartitionsToTxn": (*TRANSACTION, "UNKNOWN_TOPIC_OR_PARTITION"),
    "AddOffsetsToTxn": TRANSACTION,
    "EndTxn": TRANSACTION,
    "InitProducerId": TRANSACTION,
    "Fetch": ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"),
    "ListOffsets": ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"),
    "Metadata": ("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"),
    **dict.fromkeys(
        ("FindCoordinator", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"), COORDINATOR
    ),
}
STORED = {"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT"}  # the records are in the leader's log


def retriable(request: Crossing, messages: Messages) -> Iterator[tuple[str, str]]:
    """Each error, and whether the broker answers it before or after it has done the request."""
    listed = messages.listed_errors(request.api, request.version) or POSSIBLE.get(request.api, ())
    for error in listed:
        if error == "CONCURRENT_TRANSACTIONS" and not request.request.get("TransactionalId"):
            continue  # of an idempotent producer without transactions
        if error in RETRIABLE:
            yield ("after" if error in STORED else "before"), error
