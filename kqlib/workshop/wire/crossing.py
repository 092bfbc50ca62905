"""One request that crossed the wire, and what matters in it: topics, offsets, acks, transactions, the error code of its answer.

In:  the proxy's notes. Out: `Crossing`s. Their text has no times, processes or ports, so a notebook can show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqlib.workshop.wire.encoding import Values
from kqlib.workshop.wire.messages import Messages, error_places

POLLS = (  # requests that come again and again, as often as time passes
    *("Fetch", "Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "Metadata", "ApiVersions"),
    *(
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        "FindCoordinator",
        "ListOffsets",
        "SaslHandshake",
        "SaslAuthenticate",
    ),
)
ACKS = {0: "acks=0", 1: "acks=1", -1: "acks=all"}
Topics = Callable[[bytes], str]  # a topic's name by its id
RECORDS_AT = 57  # where a batch of records says how many it has


@dataclass(frozen=True)
class Crossing:
    """A request: when, whose, which kind, the nth of its kind from that client, how large, how long until its answer."""

    at: float  # seconds since the cluster began
    client: str  # its client id
    api: str
    nth: int
    bytes: int
    ms: float | None  # None: no answer yet
    broker: int = field(compare=False)
    pid: int | None = field(compare=False, repr=False)  # the client's process, where the system tells it
    version: int = field(compare=False, repr=False)
    what: str = ""  # what matters in it, in words
    error: str = ""  # the error code of its answer
    accident: str = ""  # what the wire did to it
    request: Values = field(default_factory=dict, compare=False, repr=False)
    answer: Values = field(default_factory=dict, compare=False, repr=False)

    @property
    def poll(self) -> bool:
        """Is it a poll, a heartbeat or a question, and no work?"""
        return self.api in POLLS

    @property
    def throttle(self) -> int:
        """For how many milliseconds the broker reads nothing more from this client, which is above its quota. 0: it is not."""
        return int(self.answer.get("ThrottleTimeMs") or 0)

    def __repr__(self) -> str:
        words = [f"{self.api} {self.nth}", self.what, self.error, self.accident]
        return f"Crossing({self.client} → {self.broker}: {', '.join(filter(None, words))})"


def crossings(notes: Iterable[Mapping[str, Any]], messages: Messages, topics: Topics) -> Iterator[Crossing]:
    """What the proxy noted, decoded. topics: a topic's name by its id, where a request has nothing else."""
    for note in notes:
        kind = messages.kinds.get(note["kind"], f"kind {note['kind']}")
        request, answer = _read(messages, kind, note)
        pid, client = note["owner"]
        yield Crossing(
            at=note["at"],
            client=client or "no name",
            api=kind,
            nth=note["nth"],
            bytes=note["size"],
            ms=None if note["done"] is None else (note["done"] - note["at"]) * 1000,
            broker=note["broker"],
            pid=pid,
            version=note["version"],
            what=", ".join(filter(None, (in_words(kind, request, answer, topics), _throttled(answer)))),
            error=error_of(answer, messages),
            accident=note["accident"],
            request=request,
            answer=answer,
        )


def _read(messages: Messages, kind: str, note: Mapping[str, Any]) -> tuple[Values, Values]:
    """The fields of a request and of its answer; none of a kind or a version that the definitions lack."""
    try:
        request = messages.read_request(note["request"])
        return request, messages.read_answer(kind, note["version"], note["answer"]) if note["answer"] else {}
    except KeyError:
        return {}, {}


def _throttled(answer: Values) -> str:
    """A quota's only trace."""
    return "throttled" if answer.get("ThrottleTimeMs") else ""


def error_of(answer: Values, messages: Messages) -> str:
    """The first error code of an answer, by Kafka's name."""
    codes = (where[name] for _, where, name in error_places(answer))
    found = next((code for code in codes if code), 0)
    return messages.errors.get(found, f"error {found}") if found else ""


def in_words(kind: str, request: Values, answer: Values, topics: Topics) -> str:
    """What a reader wants to know of such a request."""
    words = WORDS.get(kind)
    return ", ".join(filter(None, words(request, answer, topics))) if words and request else ""


def records(batch: bytes | None) -> int:
    """How many records a batch has (those of the first batch)."""
    if not batch or len(batch) < RECORDS_AT + 4:
        return 0
    return int.from_bytes(batch[RECORDS_AT : RECORDS_AT + 4], "big")


Words = Callable[[Values, Values, Topics], Iterable[str]]


def _name(topic: Values, topics: Topics) -> str:
    """A topic's name. New versions send its id only."""
    name = topic.get("Name") or topic.get("Topic") or topic.get("TopicName")
    return name or topics(topic.get("TopicId", b""))


def _produce(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    for topic in request.get("TopicData") or ():
        for part in topic.get("PartitionData") or ():
            yield f"{_name(topic, topics)}/{part.get('Index')} ×{records(part.get('Records'))}"
    yield ACKS.get(request.get("Acks", -1), "")
    yield _transaction(request)


def _fetch(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    for topic in answer.get("Responses") or ():
        for part in topic.get("Partitions") or ():
            if found := records(part.get("Records")):
                yield f"{_name(topic, topics)}/{part.get('PartitionIndex')} ×{found}"


def _offsets(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    for topic in request.get("Topics") or ():
        for part in topic.get("Partitions") or ():
            if "CommittedOffset" in part:
                yield f"{_name(topic, topics)}/{part['PartitionIndex']} = {part['CommittedOffset']}"


def _committed(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    for group in answer.get("Groups") or [answer]:
        for topic in group.get("Topics") or ():
            for part in topic.get("Partitions") or ():
                yield f"{_name(topic, topics)}/{part.get('PartitionIndex')} = {part.get('CommittedOffset')}"


def _partitions(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    several = [each for one in request.get("Transactions") or () for each in one.get("Topics") or ()]
    for topic in several or request.get("V3AndBelowTopics") or ():
        yield from (f"{_name(topic, topics)}/{number}" for number in topic.get("Partitions") or ())


def _acknowledged(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    kinds = {0: "gap", 1: "accept", 2: "release", 3: "reject", 4: "renew"}
    for topic in request.get("Topics") or ():
        for part in topic.get("Partitions") or ():
            for batch in part.get("AcknowledgementBatches") or ():
                types = {kinds.get(each, str(each)) for each in batch.get("AcknowledgeTypes") or ()}
                yield f"{_name(topic, topics)}/{part.get('PartitionIndex')} {_range(batch)} {'+'.join(sorted(types))}"
    yield from _fetch(request, answer, topics)


def _range(batch: Values) -> str:
    first, last = batch.get("FirstOffset"), batch.get("LastOffset")
    return f"{first}" if first == last else f"{first}–{last}"


def _member(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    yield f"group {request['GroupId']}" if request.get("GroupId") else ""
    epoch = request.get("MemberEpoch")
    yield {0: "joins", -1: "leaves", -2: "leaves for a moment"}.get(epoch, "") if epoch is not None else ""


def _end(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    yield "commit" if request.get("Committed") else "abort"


def _listed(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    yield from (_name(each, topics) for each in request.get("Topics") or ())


def _coordinator(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    yield from request.get("CoordinatorKeys") or ([request["Key"]] if request.get("Key") else [])


def _transaction(request: Values) -> str:
    return "in a transaction" if request.get("TransactionalId") else ""


def _nothing(request: Values, answer: Values, topics: Topics) -> Iterator[str]:
    yield _transaction(request) and "transactional"


WORDS: dict[str, Words] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _listed,
    "Metadata": _listed,
    "OffsetCommit": _offsets,
    "TxnOffsetCommit": _offsets,
    "OffsetFetch": _committed,
    "FindCoordinator": _coordinator,
    "JoinGroup": _member,
    "SyncGroup": _member,
    "Heartbeat": _member,
    "LeaveGroup": _member,
    "ConsumerGroupHeartbeat": _member,
    "ShareGroupHeartbeat": _member,
    "InitProducerId": _nothing,
    "AddPartitionsToTxn": _partitions,
    "AddOffsetsToTxn": _member,
    "EndTxn": _end,
    "ShareFetch": _acknowledged,
    "ShareAcknowledge": _acknowledged,
    "CreateTopics": _listed,
    "DeleteTopics": _listed,
}
