"""Names, plans, files and differences: everything about topics that needs no Kafka."""

from __future__ import annotations

import pickle
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import example, given, settings, strategies as st

from kqlib import topic_rules, topics
from kqlib.errors import (
    BadConfig,
    BadTopicName,
    KqError,
    NotAllowed,
    NotInTime,
    TopicMissing,
    Unreachable,
)
from kqlib.topics import Existing, Plan, QueueTopic, Topic, check_name, compare, partitions_of

BAD_NAMES = [
    ("", "empty"),
    (".", "directory"),
    ("foot ball", "not ' '"),
    ("football\n", r"not '\n'"),
    ("fußball", "not 'ß'"),
    ("x" * 250, "250 characters and Kafka takes 249"),
    ("__consumer_offsets", "Kafka keeps"),
    ("__consumer.offsets", "write '.' as '_'"),
    ("kq.queues", "kqlib keeps 'kq.queues' for itself."),
    (None, "not NoneType"),
    (b"football", "not bytes"),
]


@pytest.mark.parametrize(("name", "why"), BAD_NAMES)
def test_a_bad_name_is_refused_with_the_reason(name: Any, why: str) -> None:
    with pytest.raises(BadTopicName) as refused:
        check_name(name)
    assert why in str(refused.value)
    assert refused.value.facts["topic"] == name


# --- one topic -------------------------------------------------------------------------------------------------------

WRONG_TOPICS: list[tuple[Any, dict[str, Any], str]] = [
    (Topic, {"partitions": 0}, "partitions is a whole number from 1 to 10,000, not 0"),
    (Topic, {"partitions": True}, "not True"),
    (Topic, {"replicas": 0}, "replicas is a whole number from 1 to 32,767, not 0"),
    (Topic, {"compact": "yes"}, "compact is True or False, not 'yes'"),
    (Topic, {"compact": True, "config": {"cleanup.policy": "delete"}}, "compact or cleanup.policy, not both"),
    (Topic, {"config": "retention.ms=1"}, "a table of Kafka's settings"),
    (Topic, {"config": {"Retention.Ms": 3}}, "is no setting"),
    (Topic, {"config": {"retention.ms": None}}, "not None"),
    (Topic, {"config": {"retention.ms": "1\n2"}}, "retention.ms is a text"),
    (QueueTopic, {}, "web_servers or partitions"),
    (QueueTopic, {"web_servers": 2, "partitions": 4}, "one of the two"),
    (QueueTopic, {"web_servers": 0}, "web_servers is a whole number from 1 to 5,000, not 0"),
    (QueueTopic, {"partitions": 0}, "at least 1"),
    (QueueTopic, {"web_servers": 1, "config": {"retention.ms": 1}}, "kept for ever: leave retention.ms out"),
    (QueueTopic, {"web_servers": 1, "config": {"max.message.bytes": "much"}}, "max.message.bytes cannot be much"),
    (QueueTopic, {"web_servers": 1, "config": {"max.message.bytes": 2**31 - 1}}, "max.message.bytes cannot be"),
]


@pytest.mark.parametrize(("kind", "given", "why"), WRONG_TOPICS)
def test_a_wrong_argument_is_named(kind: Any, given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadConfig) as refused:
        kind(**given)
    assert str(refused.value).startswith(f"{kind.__name__}: ")
    assert why in str(refused.value)


REPRS = [
    (Topic(), "Topic(partitions=1)"),
    (Topic(3, compact=True), "Topic(partitions=3, compact=True)"),
    (Topic(3, replicas=3), "Topic(partitions=3, replicas=3)"),
    (Topic(config=None), "Topic(partitions=1)"),  # type: ignore[arg-type]
    (
        Topic(config={"retention.ms": 5, "flush.ms": "6", "unclean.leader.election.enable": False}),
        "Topic(partitions=1, config={'flush.ms': '6', 'retention.ms': '5', 'unclean.leader.election.enable': 'false'})",
    ),
    (QueueTopic(web_servers=2), "QueueTopic(web_servers=2)"),
    (QueueTopic(partitions=4, replicas=3), "QueueTopic(partitions=4, replicas=3)"),
    (Plan({"a": Topic()}), "Plan(topics={'a': Topic(partitions=1)})"),
]


@pytest.mark.parametrize(("value", "text"), REPRS)
def test_a_repr_makes_the_value_again(value: Any, text: str) -> None:
    assert repr(value) == text
    assert eval(text) == value
    assert pickle.loads(pickle.dumps(value)) == value


# --- a plan ----------------------------------------------------------------------------------------------------------

FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def test_a_queue_brings_its_dead_letters_and_once_the_list_of_queues() -> None:
    plan = Plan(
        {
            "football": QueueTopic(web_servers=2, replicas=3),
            "basketball": QueueTopic(partitions=3, config={"max.message.bytes": 2_000_000, "flush.ms": 9}),
            "scores": Topic(3, compact=True),
        }
    )
    every = plan.all
    assert list(every) == ["football", "basketball", "scores", "football.dead", "basketball.dead", "kq.queues"]
    assert [topic.partitions for topic in every.values()] == [4, 3, 3, 4, 3, 1]
    assert [topic.replicas for topic in every.values()] == [3, None, None, 3, None, 3]
    assert every["football"].settings == FOR_EVER | {"max.message.bytes": "1048588"}
    assert every["football.dead"].settings == FOR_EVER | {"max.message.bytes": str(1_048_588 + 65_536)}
    assert every["basketball.dead"].settings == FOR_EVER | {"max.message.bytes": "2065536", "flush.ms": "9"}
    assert every["kq.queues"].settings == {"cleanup.policy": "compact"}


QUEUE = QueueTopic(web_servers=1)
WRONG_PLANS: list[tuple[dict[Any, Any], str, str]] = [
    ({"a b": Topic()}, "a b", "not ' '"),
    ({"kq.queues": Topic()}, "kq.queues", "kqlib keeps"),
    ({None: QUEUE}, "None", "a name is text"),
    ({"a.b": Topic(), "a_b": Topic()}, "a_b", "this plan makes 'a.b' too, and Kafka's metrics write '.' as '_'"),
    ({"x.dead": QUEUE}, "x.dead", "a queue does not"),
    ({"x": QUEUE, "x.dead": Topic()}, "x.dead", "this plan makes 'x.dead' too."),
    ({"a.b": QUEUE, "a_b.dead": Topic()}, "a.b.dead", "this plan makes 'a_b.dead' too"),
]


@pytest.mark.parametrize(("given", "topic", "why"), WRONG_PLANS)
def test_names_that_cannot_live_together_are_refused(given: dict[Any, Any], topic: str, why: str) -> None:
    with pytest.raises(BadTopicName) as refused:
        Plan(given)
    assert str(refused.value.facts["topic"]) == topic
    assert why in str(refused.value)


def test_names_that_only_look_alike_are_fine() -> None:
    Plan({"a.b": Topic(), "a-b": Topic(), "A.b": Topic(), "x.dead": Topic(), "x" * 244: QUEUE})


def test_the_table_shows_every_topic() -> None:
    plan = Plan({"football": QueueTopic(web_servers=2), "scores": Topic(3, compact=True), "log": Topic(replicas=2)})
    assert plan.show().splitlines() == [
        "topic          partitions  kept and set                              why",
        "football       4           kept for ever                             planned",
        "scores         3           compacted                                 planned",
        "log            1           2 replicas                                planned",
        "football.dead  4           kept for ever, max.message.bytes=1114124  dead letters of football",
        "kq.queues      1           compacted                                 which site has which queue",
    ]


# --- the plan as a file ----------------------------------------------------------------------------------------------

GOOD_FILES: list[tuple[str, dict[str, Topic | QueueTopic]]] = [
    ("", {}),
    ("[football]\nweb_servers = 2", {"football": QueueTopic(web_servers=2)}),
    ("[football]\nqueue = true\npartitions = 4", {"football": QueueTopic(partitions=4)}),
    ("[football]\npartitions = 4", {"football": Topic(4)}),
    ('["a.b"]\ncompact = true\nreplicas = 3', {"a.b": Topic(compact=True, replicas=3)}),
    ('[a]\nconfig = {"retention.ms" = "5"}', {"a": Topic(config={"retention.ms": "5"})}),
    (
        "[a]\nconfig.retention.ms = 5\nconfig.preallocate = true",
        {"a": Topic(config={"retention.ms": 5, "preallocate": True})},
    ),
]


@pytest.mark.parametrize(("text", "given"), GOOD_FILES)
def test_a_file_reads_as_its_plan(tmp_path: Path, text: str, given: dict[str, Topic | QueueTopic]) -> None:
    (tmp_path / "plan.toml").write_text(text)
    assert Plan.read(tmp_path / "plan.toml") == Plan(given)


BAD_FILES = [
    ("[football", "plan.toml: ", "at the end of a table declaration"),
    ("partitions = 3", "plan.toml: [partitions]: ", "outside of a topic's section"),
    (
        "[football]\nwebservers = 2",
        "plan.toml: [football]: ",
        "unknown key 'webservers'; a Topic has partitions, compact",
    ),
    (
        "[football]\nweb_servers = 2\ncompact = true",
        "plan.toml: [football]: ",
        "unknown key 'compact'; a QueueTopic has",
    ),
    ('[football]\nqueue = "yes"', "plan.toml: [football]: ", "queue is true or false, not 'yes'"),
    ("[foot.ball]\npartitions = 3", "plan.toml: [foot]: ", 'A name with dots is quoted: ["a.b"]'),
    ('["foot ball"]', "plan.toml: ", "'foot ball' cannot be a topic's name"),
    ('["x.dead"]\nweb_servers = 1', "plan.toml: ", "'x.dead' cannot be a topic's name"),
    ('["a.b"]\npartitions = 0', 'plan.toml: ["a.b"]: ', "not 0"),
]


@pytest.mark.parametrize(("text", "place", "why"), BAD_FILES)
def test_a_wrong_file_says_where_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(text)
    with pytest.raises(BadConfig) as refused:
        Plan.read("plan.toml")
    assert str(refused.value).startswith(place)
    assert why in str(refused.value)


def test_a_written_plan_says_what_it_is_and_how_it_is_applied(tmp_path: Path) -> None:
    Plan({"football": QueueTopic(web_servers=2), "a.b": QueueTopic(partitions=3, config={"flush.ms": 9})}).write(
        tmp_path / "mine.toml"
    )
    head, football, ab = (tmp_path / "mine.toml").read_text().split("\n\n")
    assert all(line.startswith("#") for line in head.splitlines())
    assert "`kq topics apply mine.toml`" in head
    assert football == "[football]\nweb_servers = 2"
    assert ab == '["a.b"]\nqueue = true\npartitions = 3\nconfig."flush.ms" = "9"\n'


NAMES = st.from_regex(r"[a-z0-9._-]{1,8}", fullmatch=True).filter(lambda name: not topic_rules._wrong(name))
VALUES = st.text(st.characters(codec="utf-8"), max_size=8).filter(str.isprintable) | st.integers() | st.booleans()
SETTINGS = st.dictionaries(
    st.sampled_from(["retention.ms", "flush.ms", "preallocate", "segment.bytes"]),
    VALUES,
    max_size=2,
)
REPLICAS = st.none() | st.integers(1, 9)
PLAIN = st.builds(Topic, st.integers(1, 99), st.booleans(), REPLICAS, SETTINGS)
SAFE = SETTINGS.map(lambda given: {key: value for key, value in given.items() if key != "retention.ms"})
QUEUES = st.builds(lambda n, r, c: QueueTopic(web_servers=n, replicas=r, config=c), st.integers(1, 99), REPLICAS, SAFE)
QUEUES |= st.builds(lambda n, r, c: QueueTopic(partitions=n, replicas=r, config=c), st.integers(1, 99), REPLICAS, SAFE)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, PLAIN | QUEUES, max_size=4))
@example({"a.b": Topic(config={"flush.ms": '"🏀\\n"'})})
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any]) -> None:
    try:
        plan = Plan(given)
    except BadTopicName:
        return
    file = tmp_path_factory.getbasetemp() / "round.toml"
    plan.write(file)
    assert repr(Plan.read(file)) == repr(plan)


# --- what differs ----------------------------------------------------------------------------------------------------

SCORES = {"scores": Topic(3)}
OTHER = "1 other topic on this cluster: left alone."
GROWS = "~ scores: 2 → 3 partitions; keys move to others (notebook 03)"
TUNED = {"a": Topic(config={"min.cleanable.dirty.ratio": "0.50", "cleanup.policy": "Compact, delete"})}
COMPACTED = Existing(1, config={"cleanup.policy": "compact"})
COMPARED: list[tuple[dict[str, Topic], dict[str, Existing], list[str], list[str]]] = [
    ({}, {}, [], ["An empty plan: nothing to do."]),
    (SCORES, {}, [], ["+ scores: create, 3 partitions"]),
    ({"a": Topic(replicas=2, config={"b.c": 5})}, {}, [], ["+ a: create, 1 partition, 2 replicas, b.c=5"]),
    (
        Plan({"football": QueueTopic(web_servers=2)}).all,
        {},
        [],
        [
            "+ football: create, 4 partitions, kept for ever",
            "+ football.dead: create, 4 partitions, kept for ever, max.message.bytes=1114124",
            "+ kq.queues: create, 1 partition, compacted",
        ],
    ),
    (SCORES, {"scores": Existing(3)}, ["scores"], ["= scores: as planned"]),
    (SCORES, {"scores": Existing(2)}, ["scores"], [GROWS]),
    (SCORES, {"scores": Existing(6)}, [], ["! scores: has 6 partitions, the plan says 3 (CannotShrink)"]),
    (
        {"scores": Topic(3, config={"retention.ms": -1})},
        {"scores": Existing(2, config={"retention.ms": "604800000", "flush.ms": "7"})},
        [],
        [GROWS, "~ scores: retention.ms 604800000 → -1"],
    ),
    ({"a": Topic(config={"no.such": 1})}, {"a": Existing(1)}, [], ["~ a: no.such (not set) → 1"]),
    ({"a": Topic(compact=True)}, {"a": COMPACTED}, [], ["= a: as planned"]),
    ({"a": Topic()}, {"a": COMPACTED}, [], ["≠ a: is compacted, the plan does not say so; left as it is"]),
    (
        TUNED,
        {"a": Existing(1, config={"min.cleanable.dirty.ratio": "0.5", "cleanup.policy": "delete,compact"})},
        [],
        ["= a: as planned"],
    ),
    (
        {"a": Topic(replicas=3)},
        {"a": Existing(1)},
        [],
        ["≠ a: has 1 replica, the plan says 3; a plan does not move replicas"],
    ),
    ({"a": Topic(replicas=3)}, {"a": Existing(1, replicas=3)}, [], ["= a: as planned"]),
    ({"a.b": Topic()}, {}, ["a_b"], ["! a.b: collides with 'a_b' on the cluster (BadTopicName)", OTHER]),
    ({"a.b": Topic()}, {"a.b": Existing(1)}, ["a.b", "a_b"], ["= a.b: as planned", OTHER]),
    (
        SCORES,
        {"scores": Existing(3)},
        ["scores", "b", "__consumer_offsets", "kq.labs"],
        ["= scores: as planned", OTHER],
    ),
    (
        SCORES,
        {"scores": Existing(2)},
        ["scores", "scores.offsets", "scores.partitions"],
        [
            "! scores: its virtual queues have 2 partitions, the plan says 3 (NotAllowed)",
            "2 other topics on this cluster: left alone.",
        ],
    ),
    ({}, {}, ["a.b", "a_b"], ["2 other topics on this cluster: left alone."]),
]


@pytest.mark.parametrize(("plan", "there", "names", "lines"), COMPARED)
def test_a_difference_is_reported_in_words(
    plan: dict[str, Topic], there: dict[str, Existing], names: list[str], lines: list[str]
) -> None:
    assert repr(compare(plan, there, names)).splitlines() == lines


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, PLAIN | QUEUES, max_size=4))
@example({"a": Topic(config={"flush.ms": "NAN"})})
def test_what_was_done_needs_nothing_more(given: dict[str, Any]) -> None:
    try:
        plan = Plan(given).all
    except BadTopicName:
        return
    there = {name: Existing(want.partitions, want.replicas or 1, want.settings) for name, want in plan.items()}
    again = compare(plan, there, there)
    assert not again.waits
    assert all(line.startswith("= ") for line in again.lines)


# --- a cluster that answers badly ------------------------------------------------------------------------------------


class Answers:
    """A cluster whose every answer about a topic is this error."""

    bootstrap, _own = "127.0.0.1:1", dict[str, str]()

    def __init__(self, code: int, words: str = "so says the broker.", brokers: int = 2) -> None:
        self.error = KafkaException(KafkaError(code, words))
        self.admin, self.brokers, self.late = self, range(brokers), [True, False]

    def describe_topics(self, names: Any, **given: Any) -> dict[str, Any]:
        return {"football": self}

    def result(self) -> None:
        raise self.error

    def list_offsets(self, latest: dict[Any, Any], request_timeout: float) -> dict[Any, Any]:
        """The first time the leader does not serve yet."""
        late = self.late.pop(0)
        return {each: SimpleNamespace(exception=lambda: self.error if late else None) for each in latest}

    def describe(self, timeout: float) -> None:
        """Asked in between, so that the client knows a broker that is there."""


REFUSED = [
    (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing, "'football' does not exist"),
    (KafkaError.TOPIC_EXCEPTION, TopicMissing, "'football' does not exist"),
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        NotAllowed,
        "This user lacks DESCRIBE on topic 'football'. Ask your administrator",
    ),
    (KafkaError.POLICY_VIOLATION, NotAllowed, "refuses to look at 'football': so says the broker."),
    (KafkaError._TIMED_OUT, Unreachable, "No Kafka answered at 127.0.0.1:1: so says the broker (asked to look at"),
    (KafkaError.REQUEST_TIMED_OUT, Unreachable, "so says the broker"),
]


@pytest.mark.parametrize(("code", "kind", "words"), REFUSED)
def test_a_refusal_becomes_an_error_of_ours_in_the_brokers_words(code: int, kind: type[KqError], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        partitions_of(Answers(code), "football")  # type: ignore[arg-type]


def test_applying_gives_up_in_time_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "APPLIED", 0.05)
    monkeypatch.setattr(Plan, "diff", lambda *_: compare(SCORES, {"scores": Existing(3, leaderless=1)}))
    with pytest.raises(NotInTime, match=r"Last seen: not yet so: scores"):
        Plan(SCORES).apply(Answers(0), quiet=True)  # type: ignore[arg-type]


def test_it_is_done_when_several_looks_in_a_row_agree_who_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    there: dict[str, Existing] = {"scores": Existing(3)}
    seen = [{}, {}, there, there, {}, *[there] * topics.AGREED]  # the brokers learn of it a little apart
    trials: list[bool] = []
    monkeypatch.setattr(Plan, "diff", lambda *_: compare(SCORES, seen.pop(0)))
    monkeypatch.setattr(
        topics, "_send", lambda cluster, diff, trial: trials.extend([trial] * len(diff.create)) or "late"
    )
    done = Plan(SCORES).apply(Answers(0), quiet=True)  # type: ignore[arg-type]
    assert repr(done) == "+ scores: create, 3 partitions"
    assert trials == [True, True, True]
    assert seen == []


def test_the_only_broker_is_asked_for_each_partition_instead_of_looking_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there: dict[str, Existing] = {"scores": Existing(3)}
    seen = [{}, there, there, there]
    monkeypatch.setattr(Plan, "diff", lambda *_: compare(SCORES, seen.pop(0)))
    monkeypatch.setattr(topics, "_send", lambda *_, trial: "")
    cluster = Answers(0, brokers=1)
    assert Plan(SCORES).apply(cluster, quiet=True)  # type: ignore[arg-type]
    assert (len(seen), cluster.late) == (1, [])


def test_many_topics_are_asked_for_together_and_one_request_after_the_other() -> None:
    """With a request for each, all at once, a plan of 300 queues got no answer in time, and the controller lost its broker."""
    asked: list[int] = []
    open_ones: set[str] = set()

    class Asked:
        def create_topics(self, new: list[Any], validate_only: bool, request_timeout: float) -> dict[str, Any]:
            assert not open_ones, "the request before was not answered yet"
            assert request_timeout >= topics.ANSWER + topics.EACH * len(new)
            asked.append(sum(each.num_partitions for each in new))
            open_ones.update(each.topic for each in new)
            return {
                name: SimpleNamespace(exception=partial(open_ones.remove, name), result=int)
                for name in open_ones.copy()
            }

    plan = {f"scores-{n}": Topic(partitions=10) for n in range(21)} | {"wide": Topic(partitions=1_000)}
    topics._send(SimpleNamespace(admin=Asked()), compare(plan, {}), trial=False)  # type: ignore[arg-type]
    assert asked == [100, 100, 10, 1_000]  # as many as one request takes, or one topic


def test_applying_waits_longer_for_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "APPLIED", 0.0)
    monkeypatch.setattr(topics, "EACH", 0.01)
    plan = {f"scores-{n}": Topic(partitions=1) for n in range(7)}
    monkeypatch.setattr(Plan, "diff", lambda *_: compare(plan, {}))
    monkeypatch.setattr(topics, "_send", lambda *_, trial: "")
    with pytest.raises(NotInTime) as late:
        Plan(plan).apply(Answers(0), quiet=True)  # type: ignore[arg-type]
    assert late.value.facts["seconds"] == pytest.approx(0.07)
