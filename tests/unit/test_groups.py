"""Who holds what, lag, work and timelines, as tables; what a person reads who asks for the impossible. No broker here."""

import re

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.workshop import play
from kqlib.workshop.groups import (
    Assignment,
    Change,
    Event,
    Group,
    Lag,
    Span,
    Stop,
    Timeline,
    Work,
    clocks,
    lag,
)

P = [("football", number) for number in range(6)]


def held(text):
    """'01 2 -' is three members with p0 and p1, with p2, and with nothing."""
    return {f"m{at}": [P[int(n)] for n in word if n != "-"] for at, word in enumerate(text.split())}


# --- who holds what ------------------------------------------------------------------------------------------------------

SHAPES = {
    # who has what, of how many: sizes, idle, in words
    "the fifth idles": ("0 1 2 3 -", 4, (1, 1, 1, 1, 0), 1, "5 members, 4 partitions: 1 + 1 + 1 + 1 + 0 · 1 idle"),
    "the largest first": ("2 01", 3, (2, 1), 0, "2 members, 3 partitions: 2 + 1"),
    "one without an owner": ("01 2", 4, (2, 1), 0, "2 members, 4 partitions: 2 + 1 · 1 partition without an owner"),
    "two believe that they have one": ("012 23", 4, (3, 2), 0, "2 members, 4 partitions: 3 + 2 · 1 with two owners"),
    "no member": ("", 2, (), 0, "0 members, 2 partitions · 2 partitions without an owner"),
    "there is nothing to have": ("- -", 0, (0, 0), 2, "2 members, 0 partitions: 0 + 0 · 2 idle"),
}


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_an_assignment_is_reported_by_its_shape(case) -> None:
    who, of, *shape, words = case
    found = Assignment(held(who), P[:of])
    assert [found.sizes, found.idle] == shape
    assert repr(found) == words


def test_two_dealings_of_the_same_shape_look_the_same() -> None:
    one, other = (
        Assignment(held("01 2 -"), P[:3]),
        Assignment(dict(zip("zyx", held("2 - 01").values(), strict=True)), P[:3]),
    )
    assert repr(one) == repr(other)
    assert one.draw().text == other.draw().text and one.draw().svg == other.draw().svg


def test_a_picture_names_members_only_when_asked() -> None:
    found = Assignment({"ann": [P[0]], "ben": []}, P[:1], "scores", busy=frozenset({"ann"}))
    behind = Lag({P[0]: 7})
    assert found.draw(behind).text.splitlines() == [
        "scores · 2 members, 1 idle, 1 busy · 1 partition · lag 7",
        "member  p0 (lag 7), busy",
        "member  idle",
    ]
    assert "ann     p0" in found.draw(behind, names=True).text.replace("ann  ", "ann     ")
    assert "ann" not in found.draw(behind).svg


def test_partitions_of_several_topics_wear_their_topic_in_a_picture() -> None:
    found = Assignment({"ann": [("a", 0), ("b", 0)]}, [("a", 0), ("b", 0)])
    assert "a-0 · b-0" in found.draw().text


# --- lag and work --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by_partition", "total", "words"),
    [({0: 3, 1: 0}, 3, "lag 3 = 3 + 0"), ({0: 7}, 7, "lag 7"), ({}, 0, "lag 0"), ({1: 2, 0: 1}, 3, "lag 3 = 1 + 2")],
)
def test_lag_is_reported_by_partition(by_partition, total, words) -> None:
    found = Lag({P[n]: offsets for n, offsets in by_partition.items()})
    assert (found.total, repr(found)) == (total, words)


WORKED = {
    "each once": ([(0, 9), (10, 19)], 20, 20, "worked 20 times on 20 records"),
    "some again": ([(5, 9), (0, 6)], 12, 10, "worked 12 times on 10 records, 2 of them again"),
    "one inside of another": ([(0, 9), (3, 4), (8, 8)], 13, 10, "worked 13 times on 10 records, 3 of them again"),
    "a hole": ([(0, 0), (5, 5)], 2, 2, "worked 2 times on 2 records"),
    "one record": ([(7, 7)], 1, 1, "worked 1 time on 1 record"),
}


@pytest.mark.parametrize(("runs", "times", "records", "words"), WORKED.values(), ids=WORKED)
def test_work_counts_how_often_and_on_how_many(runs, times, records, words) -> None:
    found = Work({P[0]: runs})
    assert (found.times, found.records, found.again, repr(found)) == (times, records, times - records, words)


# --- over time -----------------------------------------------------------------------------------------------------------


def at(when, who, what, parts=""):
    return Event(when, who, what, tuple(P[int(n)] for n in parts))


EAGER = [
    at(1, "ann", "joined"),
    at(2, "ann", "assigned", "01"),
    at(10, "ben", "joined"),
    at(11, "ann", "revoked", "01"),
    at(12, "ann", "assigned", "0"),
    at(13, "ben", "assigned", "1"),
]
COOPERATIVE = [*EAGER[:3], at(11, "ann", "revoked", "1"), at(12, "ann", "assigned"), EAGER[5]]
STEPS = [Change("ann joins", 0, 5), Change("ben joins", 9, 15)]
CRASH = [*COOPERATIVE, at(20, "ben", "crashed"), at(22, "ann", "assigned", "1")]
BUSY = [
    *COOPERATIVE,
    at(20.5, "ben", "busy"),
    at(24, "ann", "assigned", "1"),
    at(31, "ben", "back"),
    at(31, "ben", "lost", "1"),
]
TIMES = {
    "eager: everybody lets go of everything": (EAGER, STEPS, [(0, 0), (2, 2)]),
    "cooperative: only what moves": (COOPERATIVE, STEPS, [(0, 0), (2, 1)]),
    "a crash stops what the dead one had": (
        CRASH,
        [*STEPS, Change("ben crashes", 20, 25)],
        [(0, 0), (2, 1), (2, 1)],
    ),
    "a step in which nothing moves": (EAGER, [*STEPS, Change("nothing", 30, 31)], [(0, 0), (2, 2), (2, 0)]),
    "what began and ended within a step is not seen": (EAGER, [Change("all", 0, 15)], [(0, 0)]),
    "nothing recorded": ([], [], []),
}


@pytest.mark.parametrize(("events", "steps", "stops"), TIMES.values(), ids=TIMES)
def test_a_step_counts_what_stood_still(events, steps, stops) -> None:
    found = Timeline.of("scores", events, steps)
    assert found.stops == [Stop(step.what, *stop) for step, stop in zip(steps, stops, strict=True)]


def test_a_stop_in_words() -> None:
    assert str(Stop("cem joins", 6, 2)) == "cem joins: 2 of 6 stood still"
    assert str(Stop("ann joins", 4, 0, 2)) == "ann joins: 0 of 4 stood still (2 had no owner)"


PICTURES = {
    "crash": (
        *(CRASH, [STEPS[1], Change("ben crashes", 20, 25)]),
        """
        scores over time · 2 members · 2 changes
                     ben joins     ben crashes
        ann          ■          ■  ■            ■■
        ben                     ■  ✕
        stood still                1 of 2
        """,
    ),
    "busy, and believing that it still holds what another has": (
        *(
            BUSY,
            [STEPS[1], Change("ben is busy", 20, 21), Change("ben put out", 21, 25), Change("ben is back", 30, 32)],
        ),
        """
        scores over time · 2 members · 4 changes
                     ben joins     ben is busy     ben put out      ben is back
        ann          ■          ■  ■            ■  ■            ■■  ■■           ■■
        ben                     ■  ■            □  □            □   ·            –
        stood still                0 of 2          0 of 2           1 of 2
        """,
    ),
}


@pytest.mark.parametrize(("events", "steps", "twin"), PICTURES.values(), ids=PICTURES)
def test_a_timeline_in_words(events, steps, twin) -> None:
    expected = [line[8:] for line in twin.strip("\n").splitlines()[:-1]]
    assert repr(Timeline.of("scores", events, steps)).splitlines() == expected


def test_the_last_steps_begin_with_the_state_before_them_and_forget_who_was_gone() -> None:
    gone = [*EAGER[:2], at(3, "zoe", "joined"), at(6, "zoe", "left"), *EAGER[2:]]
    every = Timeline.of("scores", gone, [Change("zoe leaves", 4, 7), *STEPS[1:]])
    last = every.last(1)
    assert [(stop.what, stop.partitions) for stop in last.stops if stop.what] == [("ben joins", 2)]
    assert repr(last).splitlines()[1:3] == ["                 ben joins", "ann          ■■  ··         ■"]
    assert every.last(9).members == ("ann", "zoe", "ben") and last.members == ("ann", "ben")


def test_members_stand_in_the_order_that_their_group_gives_them() -> None:
    assert Timeline.of("scores", EAGER, STEPS, ["ben", "ann"]).members == ("ben", "ann")


def test_a_span_that_ends_with_a_moment_does_not_cover_it() -> None:
    assert Span("ann", P[0], 1, 5).over(1, 4.9) and not Span("ann", P[0], 1, 5).over(1, 5)


# --- wrong arguments -----------------------------------------------------------------------------------------------------

CLUSTER = Kafka("127.0.0.1:1")
WRONG = {
    "a group without a name": (
        lambda: Group(CLUSTER, "", "t"),
        "a group's name is made of letters, digits, '.', '_' and '-', not ''",
    ),
    "an unknown protocol": (
        lambda: Group(CLUSTER, "g", "t", protocol="lazy"),
        "protocol is one of 'consumer', 'cooperative', 'eager', not 'lazy'",
    ),
    "a protocol of two kinds": (
        lambda: Group(CLUSTER, "g", "t", protocol="classic"),
        "the classic protocol comes as 'eager' and as 'cooperative'",
    ),
    "no session": (lambda: Group(CLUSTER, "g", "t", session=0), "session is a number above 0, or None, not 0"),
    "a poll interval that is no number": (
        lambda: Group(CLUSTER, "g", "t", max_poll=float("nan")),
        "max_poll is a number above 0",
    ),
    "nowhere": (
        lambda: Group("here", "g", "t"),
        "a Group is in a lab or on a cluster, as in Group(lab, 'scores', 'football'), not in 'here'",
    ),
    "the lag of no group": (lambda: lag(CLUSTER, "", "t"), "a group has a name, as in 'scores', not ''"),
    "the lag in no topic": (lambda: lag(CLUSTER, "g"), "of which topic? As in lag(cluster, 'g', 'football')"),
    "a heart that does not beat": (lambda: clocks(CLUSTER, "g", 2, 0), "heartbeat is a number above 0, or None, not 0"),
    "a playground nowhere": (
        lambda: play.group("here"),
        "this wants a lab or a cluster, as in kq.play.group(lab), not str",
    ),
    "the last no changes": (
        lambda: Timeline.of("g", [], []).last(0),
        "how many changes back? A number from 1 on, not 0",
    ),
}


@pytest.mark.parametrize(("ask", "words"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_get_a_sentence(ask, words) -> None:
    with pytest.raises(NotAllowed, match=re.escape(words)):
        ask()
