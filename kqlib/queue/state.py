"""What the cluster knows of a site's queue, asked now: topic ids, the log's bounds, committed states; and what follows from it.

In:  a cluster, a site, topics. Out: `Seen` a partition, and the `Ledger` to start from. Nothing here belongs to a group.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from kqlib.errors import LedgerCorrupt, LedgerLost, Unreachable
from kqlib.kafka.clients import AdminClient, Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import answered, patient, reader_of
from kqlib.queue import incidents
from kqlib.queue.answers import NO_TOPIC, RIGHTS, as_ours, first, not_allowed, refused
from kqlib.queue.clients import ANSWER_WITHIN, Kept, judge
from kqlib.queue.incidents import Incident, Seen, Stored
from kqlib.queue.item import Place
from kqlib.queue.ledger import Ledger
from kqlib.queue.rights import READ_QUEUE, SEE_GROUP, Right
from kqlib.runtime.patience import PATIENCE

if TYPE_CHECKING:
    from kqlib.queue.notes import Notes

log = logging.getLogger("kqlib.queue")
ASK_FOR = 2.0 * PATIENCE  # seconds for one answer about topics
READ, UNCHANGED = "read the committed state", "Nothing was changed."  # what was asked, and what is safe
ANSWER = 0.5  # seconds for a coordinator's answer, until the client is asked whether it found one


class Looker:
    """Asks for committed states in the site's name, without being in the group. Thread-safe.

    A consumer, not the AdminClient: its call for this ends the whole process when the coordinator is away (librdkafka 5040).
    wait: behind an open transaction, wait for its outcome, as an owner must. Else take what is committed now, for the depth.
    """

    def __init__(self, cluster: Kafka, site: str, wait: bool) -> None:
        self.cluster = cluster
        self.site = site
        self._wait = wait
        self._one = threading.Lock()
        self._kept = Kept(cluster, self._made)

    def _made(self) -> Consumer:
        level = "read_committed" if self._wait else "read_uncommitted"
        return Consumer(self.cluster.client(group_id=self.site, group_protocol="classic", isolation_level=level))

    def look(self, partitions: list[Place], seconds: float = 5.0, notes: Notes | None = None) -> dict[Place, Seen]:
        """What there is of these partitions. Those that do not exist are left out.

        notes: they are looked at before all else. A state that is noted after that may also be committed after that; it is not lost.
        """
        noted = {at: notes.get(self.site, at[0], "state", at[1]) if notes else None for at in partitions}
        ids = topic_ids(self.cluster, sorted({topic for topic, _ in partitions}), seconds)
        numbers = {topic: set(parts) for topic, (_, parts) in ids.items()}
        there = [(topic, number) for topic, number in partitions if number in numbers.get(topic, ())]
        commits = self.committed(there, seconds)
        lows = _offsets(self.cluster, there, OffsetSpec.earliest(), seconds)
        lasts = _asked(self.cluster, there, OffsetSpec.latest(), seconds)  # after the commits: no state reaches beyond
        found = {}
        for at in there:
            topic_id, last = ids[at[0]][0], lasts[at]
            epoch = -1 if last.leader_epoch is None else last.leader_epoch
            found[at] = Seen(topic_id, lows[at], last.offset, *commits[at], epoch, known=noted[at] == topic_id)
        return found | _checked(self.cluster, found, seconds)

    def committed(self, partitions: list[Place], seconds: float = 5.0) -> dict[Place, tuple[int | None, str]]:
        """The site's commit in each of these partitions, which exist: its offset (None: there is none) and its metadata."""
        try:
            with self._one:
                asked, patience = [TopicPartition(*at) for at in partitions], 0.0 if self._wait else seconds
                found = patient(lambda: self._ask(asked, seconds), patience, self._kept.dead) if partitions else []
        except KafkaException as error:
            right = SEE_GROUP.of("", self.site)
            raise refused(first(error), self.cluster, READ, right, UNCHANGED, queue=partitions[0][0]) from None
        for part in found:
            if part.error is not None:  # no answer is not "no commit"
                right = Right("DESCRIBE", "topic", part.topic)
                raise refused(part.error, self.cluster, READ, right, UNCHANGED, site=self.site)
        return {(p.topic, p.partition): (p.offset if p.offset >= 0 else None, p.metadata or "") for p in found}

    def _ask(self, partitions: list[TopicPartition], seconds: float) -> Any:
        """What is committed. A client that may not see the group finds no coordinator: it says so in poll(), once."""
        client = self._kept.now()
        first_try = min(ANSWER, seconds)
        deadline = time.monotonic() + seconds
        try:
            return client.committed(partitions, timeout=first_try)
        except KafkaException as error:
            if first(error).code() != KafkaError._TIMED_OUT or seconds <= first_try:
                raise
        message = client.poll(0)
        if message is not None and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._kept.close()
            raise KafkaException(message.error())
        return client.committed(partitions, timeout=max(first_try, deadline - time.monotonic()))

    def alone(self) -> bool:
        """Is this process the only member of the group? One that died is a member until its session is over."""
        with suppress(KafkaException):  # who cannot say so is not alone
            return len(self.cluster.describe_group(self.site, 2.0).members) <= 1
        return False

    def close(self) -> None:
        """Close its client."""
        with self._one:
            self._kept.close()


def topic_ids(cluster: Kafka, topics: list[str], seconds: float = 5.0) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The id and the partitions of each topic that exists; a recreated topic has another id."""
    found = {}
    dead = partial(judge, cluster) if seconds >= ANSWER_WITHIN else None  # less time proves nothing
    admin = cluster.admin  # held until all have answered: another thread may renew it meanwhile
    asked = _describe(admin, topics, seconds) if topics else {}
    for name in topics:
        try:
            answer = patient(partial(_described, cluster, name, seconds, asked), seconds, dead)
        except KafkaException as error:
            ours = as_ours(first(error), cluster.bootstrap, f"look at '{name}'", UNCHANGED, name)
            raise ours from None
        except TimeoutError:
            raise Unreachable(address=cluster.bootstrap, why=f"no answer about '{name}'") from None
        if answer is not None:
            found[name] = (plain(str(answer.topic_id)), tuple(part.id for part in answer.partitions))
    return found


def _describe(admin: AdminClient, topics: list[str], seconds: float) -> dict[str, Any]:
    """Ask about all of them in one request: an answer to come for each."""
    # a broker that is away may be taken for the controller, and waited for: asked again, the client knows another one
    how = {"request_timeout": min(seconds, ASK_FOR)}
    return dict(admin.describe_topics(TopicCollection(topics), **how))


def _described(cluster: Kafka, topic: str, seconds: float, asked: dict[str, Any]) -> Any:
    """What Kafka says of a topic; None: it is not there, or not to be seen by this user. Asked again, it is asked about alone."""
    admin = cluster.admin  # held until it has answered
    answer = asked.pop(topic, None) or _describe(admin, [topic], seconds)[topic]
    try:
        return answer.result(seconds + 1)
    except KafkaException as error:
        if first(error).code() in NO_TOPIC | RIGHTS:
            return None
        raise


def plain(topic_id: str) -> str:
    """A topic's id as Kafka's own tools write it."""
    return topic_id.replace("+", "-").replace("/", "_").rstrip("=")


def bounds(cluster: Kafka, partitions: list[Place], seconds: float = 5.0) -> tuple[dict[Place, int], dict[Place, int]]:
    """The first offset of each partition and its end, open transactions left out."""
    return _offsets(cluster, partitions, OffsetSpec.earliest(), seconds), ends(cluster, partitions, seconds)


def ends(cluster: Kafka, partitions: list[Place], seconds: float = 5.0) -> dict[Place, int]:
    """The end of each partition, open transactions left out."""
    return _offsets(cluster, partitions, OffsetSpec.latest(), seconds)


def since(cluster: Kafka, partitions: list[Place], moment: float) -> dict[Place, int]:
    """The first offset of each partition that was written at this moment (seconds since 1970) or later; none where nothing was."""
    found = _offsets(cluster, partitions, OffsetSpec.for_timestamp(max(0, round(moment * 1000))), 10.0)
    return {at: offset for at, offset in found.items() if offset >= 0}


def _offsets(cluster: Kafka, partitions: list[Place], spec: Any, seconds: float) -> dict[Place, int]:
    return {at: found.offset for at, found in _asked(cluster, partitions, spec, seconds).items()}


def _asked(cluster: Kafka, partitions: list[Place], spec: Any, seconds: float) -> dict[Place, ListOffsetsResultInfo]:
    asked = {TopicPartition(*at): spec for at in partitions}
    how = {"isolation_level": IsolationLevel.READ_COMMITTED, "request_timeout": seconds}

    def ask() -> dict[Place, ListOffsetsResultInfo]:
        admin = cluster.admin  # held while it works
        found = admin.list_offsets(asked, **how) if asked else {}
        return {(part.topic, part.partition): answered(future.result(seconds + 1)) for part, future in found.items()}

    try:
        return patient(ask, seconds, partial(judge, cluster))
    except KafkaException as error:
        right = Right("DESCRIBE", "topic", ", ".join(sorted({topic for topic, _ in partitions})))
        raise refused(first(error), cluster, "look at the log's bounds", right, UNCHANGED) from None
    except TimeoutError:
        raise Unreachable(address=cluster.bootstrap, why="no answer about the log's bounds") from None


def _checked(cluster: Kafka, found: dict[Place, Seen], seconds: float) -> dict[Place, Seen]:
    """Those whose state was written under an older leader, with the place up to which the present one has the same log.

    A consumer that begins at the state's top, with its leader epoch, is sent back to where the logs part (KIP-320).
    """
    doubts = [doubt for at, seen in found.items() if (doubt := _doubt(at, seen))]
    if not doubts:
        return {}
    begins, deadline = dict[Place, int](), time.monotonic() + seconds
    with closing(reader_of(cluster, queued_min_messages=1, auto_offset_reset="latest")) as consumer:
        consumer.assign(doubts)
        while len(begins) < len(doubts):
            if time.monotonic() > deadline:
                raise Unreachable(address=cluster.bootstrap, why="no answer about where a log was cut off")
            message = consumer.poll(0.1)
            if message is not None and (not (error := message.error()) or error.code() == KafkaError._PARTITION_EOF):
                begins.setdefault((message.topic(), message.partition()), message.offset())
            elif message is not None:
                check_read(message, cluster)
    return {at: replace(found[at], kept=begin) for at, begin in begins.items()}


def check_read(message: Any, cluster: Kafka) -> None:
    """Raise `NotAllowed` if this error of a reader in no group says that it may not read the topic."""
    if (error := message.error()) is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise not_allowed(READ_QUEUE.of(message.topic(), ""), cluster, UNCHANGED)


def _doubt(at: Place, seen: Seen) -> TopicPartition | None:
    """The state's top, if another leader has come since the state was written."""
    with suppress(LedgerCorrupt):  # `ledger_from` says so
        ledger = Ledger.read(seen.metadata, seen.committed or 0)
        if ledger.topic == seen.topic_id and ledger.top > seen.low and 0 <= ledger.leader < seen.leader:
            return TopicPartition(*at, ledger.top, leader_epoch=ledger.leader)
    return None


def ledger_from(seen: Seen, on_lost: str, where: str) -> Ledger:
    """The state from which the next owner goes on."""
    if seen.committed is None:
        if seen.known and on_lost == "raise":
            raise LedgerLost(
                f"The state of {where} is gone, and it was there: Kafka forgets a group's offsets after offsets.retention.minutes "
                "without a commit, or they were deleted. Nothing was handed out again. Choose what to do: "
                'site.queue(…, on_lost="earliest") delivers every item still in the log, on_lost="latest" only new ones. '
                "On the command line: kq queue work … --on-lost earliest (or latest)"
            )
        return Ledger(seen.low, seen.low, int(time.time()) if seen.known else 0, seen.topic_id)
    if not seen.metadata:  # Kafka's own tools, or a stock consumer in our group: `incidents` says what that did
        floor = max(seen.low, min(seen.committed, seen.end))
        return Ledger(floor, floor, int(time.time()), seen.topic_id)  # a new epoch, above any that was counted up
    ledger = Ledger.read(seen.metadata, seen.committed)
    if ledger.topic != seen.topic_id:  # its items are others, or have other offsets
        text = (
            "%s: the committed state is of another topic. Either this one was deleted and made again, or a mirror copied "
            "the commit. Every item in the log is handed out. (kq topics copy --state moves a state to another cluster)"
        )
        log.info(text, where, extra={"where": where})
        return Ledger(seen.low, seen.low, ledger.epoch, seen.topic_id)
    end = min(seen.end, seen.kept)
    if ledger.top > end:  # a broker that had lost records became leader; what is written there now is new
        text = "%s: the log was cut off at %s, and the state reached to %s"
        log.warning(text, where, end, ledger.top, extra={"where": where})
        ledger.cut(end)
    return ledger


class Happened(NamedTuple):
    """The incidents of a partition."""

    new: list[Incident]  # those that are not noted yet
    known: list[Incident]  # those that are noted, and the new ones
    last: Stored | None  # our last state


def happened(notes: Notes, site: str, at: Place, seen: Seen, ledger: Ledger, *, own: Stored | None = None) -> Happened:
    """What happened to a site's partition without it. ledger: where its next owner goes on. own: a last state that is not noted."""
    queue, number = at
    before = incidents.noted(notes.get(site, queue, "incidents", number), seen.topic_id, seen.low)
    last = incidents.newest(seen.topic_id, own, incidents.last(notes.get(site, queue, "last", number)))
    mark = notes.purge_mark(site, queue, number, seen.topic_id)
    rewound = notes.mark(site, queue, number, seen.topic_id, kind="rewind")
    new = incidents.found(seen, ledger, last, mark, int(time.time() * 1000))
    return Happened(new, incidents.together(before, new, rewound), last)
