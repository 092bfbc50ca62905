"""The judge of the fault runs: every planted fault is found, exactly, and nothing else is."""

from __future__ import annotations

import json

import pytest

from tests.faults.history import Did, Verdict, judge, read


def put(value: int, at: float = 0, how: str = "ok", ended: float | None = 1) -> Did:
    return Did("producer", "put", (value,), at, ended, bad={0: how} if how != "ok" else {})


def claim(who: str, value: int, attempt: int, at: float) -> Did:
    return Did(who, "claim", (value,), at, at, (attempt,))


def ack(who: str, value: int, attempt: int, at: float, how: str = "ok", *, verb: str = "ack") -> Did:
    bad = {0: how} if how != "ok" else {}
    return Did(who, verb, (value,), at, None if how == "no answer" else at + 1, (attempt,), bad)


def letter(value: int) -> Did:
    return Did("dead", "letter", (value,))


GOOD = [put(1), claim("a", 1, 1, 2), ack("a", 1, 1, 3)]
AGAIN = [put(1), claim("a", 1, 1, 2), claim("b", 1, 2, 9)]
BURIED = [put(1), claim("a", 1, 1, 2), ack("a", 1, 1, 3, verb="bury"), letter(1)]

CASES: dict[str, tuple[list[Did], Verdict]] = {
    "put, claimed, acked": (GOOD, Verdict(put=1)),
    "acknowledged and never seen again": ([*GOOD, put(2)], Verdict(put=2, lost=1)),
    "claimed by a worker that died, and never by another": (GOOD[:2], Verdict(put=1, lost=1)),
    "acknowledged, and not in the log at the end": (
        [*GOOD, put(2), put(3), Did("log", "stored", (1, 3))],
        Verdict(put=3, lost=1, vanished=1),
    ),
    "its only ack was refused": ([*GOOD[:2], ack("a", 1, 1, 3, "refused")], Verdict(put=1, lost=1, refused=1)),
    "its only ack got no answer": ([*GOOD[:2], ack("a", 1, 1, 3, "unknown")], Verdict(put=1)),
    "its worker died while it acked": ([*GOOD[:2], ack("a", 1, 1, 3, "no answer")], Verdict(put=1)),
    "a put without an answer, gone": ([put(1, how="unknown")], Verdict(maybe=1)),
    "a put whose producer died, and which came": ([put(1, ended=None), *GOOD[1:]], Verdict(maybe=1)),
    "came out and was never put": (GOOD[1:], Verdict(unexpected=1)),
    "a letter of what was never put": ([letter(7)], Verdict(unexpected=1, dead=1)),
    "again after a crash": ([*AGAIN, ack("b", 1, 2, 10)], Verdict(put=1, doubled=1)),
    "again, and the first one's ack is refused": (
        [*AGAIN, ack("b", 1, 2, 10), ack("a", 1, 1, 11, "refused")],
        Verdict(put=1, doubled=1, refused=1),
    ),
    "again with the same attempt": (
        [put(1), claim("a", 1, 1, 2), claim("b", 1, 1, 9), ack("b", 1, 1, 10)],
        Verdict(put=1, doubled=1, uncounted=1, shared=1),
    ),
    "two live leases: the first still acked": ([*AGAIN, ack("a", 1, 1, 12)], Verdict(put=1, doubled=1, shared=1)),
    "both acked": (
        [*AGAIN, ack("b", 1, 2, 10), ack("a", 1, 1, 12)],
        Verdict(put=1, doubled=1, shared=1, twice=1),
    ),
    "came again after its ack": ([*GOOD, claim("b", 1, 2, 20)], Verdict(put=1, doubled=1, revived=1)),
    "acked twice by one worker": ([*GOOD, ack("a", 1, 1, 5)], Verdict(put=1, twice=1)),
    "buried": (BURIED, Verdict(put=1, dead=1)),
    "buried twice": ([*BURIED, letter(1)], Verdict(put=1, dead=2, twice=1)),
    "buried and acked": ([*BURIED, ack("a", 1, 1, 9)], Verdict(put=1, dead=1, twice=1)),
    "buried without a letter": (BURIED[:3], Verdict(put=1, lost=1)),
    "buried by a worker that died, with its letter": (
        [*GOOD[:2], ack("a", 1, 1, 3, "no answer", verb="bury"), letter(1)],
        Verdict(put=1, dead=1),
    ),
    "the log has it twice, and both were done": (
        [
            put(1),
            Did("a", "claim", (1, 1), 2, 2, (1, 1), ids=("0/7", "0/8")),
            Did("a", "ack", (1, 1), 3, 4, (1, 1), ids=("0/7", "0/8")),
        ],
        Verdict(put=1, copied=1),
    ),
    "one item, twice in one claim": (
        [
            put(1),
            Did("a", "claim", (1, 1), 2, 2, (1, 1), ids=("0/7", "0/7")),
            Did("a", "ack", (1,), 3, 4, (1,), ids=("0/7",)),
        ],
        Verdict(put=1, doubled=1, uncounted=1),
    ),
    "a letter of the same item": (
        [
            put(1),
            Did("a", "claim", (1,), 2, 2, (1,), ids=("0/7",)),
            Did("dead", "letter", (1,), ids=("0/7",)),
        ],
        Verdict(put=1, dead=1),
    ),
    "put before its topic was deleted": ([put(1), Did("world", "wiped", (), 5, 6)], Verdict(put=1)),
    "put after its topic was made again": (
        [Did("world", "wiped", (), 5, 6), put(1, at=7, ended=8)],
        Verdict(put=1, lost=1),
    ),
    "taken over after 4 s": (
        [*AGAIN, Did("a", "gone", (), 5, 5), ack("b", 1, 2, 10)],
        Verdict(put=1, doubled=1, takeover=4),
    ),
    "gone with nothing in hand": ([*GOOD, Did("a", "gone", (), 5, 5)], Verdict(put=1)),
}


@pytest.mark.parametrize(("history", "verdict"), CASES.values(), ids=CASES)
def test_the_judge_finds_what_was_planted_and_nothing_else(history: list[Did], verdict: Verdict) -> None:
    assert judge(history) == verdict
    assert judge(reversed(history)) == verdict, "the order of the files does not matter"


def of_one_key(second_claimed: float, partition: int = 0, key: int = 0) -> list[Did]:
    """Two items: the first is acked from 3 to 4, the second is claimed then."""
    ids, values = ("0/7", f"{partition}/8"), (1000, 2000 + key)
    return [
        Did("p", "put", values, 0, 1),
        Did("a", "claim", values[:1], 2, 2, (1,), ids=ids[:1]),
        Did("a", "ack", values[:1], 3, 4, (1,), ids=ids[:1]),
        Did("b", "claim", values[1:], second_claimed, second_claimed, (1,), ids=ids[1:]),
        Did("b", "ack", values[1:], 9, 9.5, (1,), ids=ids[1:]),
    ]


@pytest.mark.parametrize(
    ("history", "misordered"),
    [
        (of_one_key(5), 0),
        (of_one_key(3.5), 0),
        (of_one_key(2), 1),
        (of_one_key(2.5), 1),
        (of_one_key(2, partition=1), 0),
        (of_one_key(2, key=1), 0),
        ([did for did in of_one_key(2) if did.verb != "ack" or did.who == "b"], 0),
    ],
)
def test_the_order_of_a_key_is_judged_where_the_queue_keeps_it(history: list[Did], misordered: int) -> None:
    assert judge(history, by_key=True).misordered == misordered
    assert judge(history).misordered == 0


def test_what_must_never_be_is_named() -> None:
    assert Verdict(put=5, doubled=3, dead=1, refused=2).wrong == {}
    assert Verdict(put=5, lost=1, twice=2).wrong == {"lost": 1, "twice": 2}


def test_a_verdict_shows_counts_only() -> None:
    answer = repr(Verdict(put=5, doubled=3, takeover=1.25))
    assert (
        answer
        == "Verdict(5 put, lost 0, vanished 0, unexpected 0, doubled 3, dead 0, refused 0, copied 0, uncounted 0, twice 0, revived 0,"
        " shared 0, misordered 0)"
    )


def test_a_history_is_read_as_it_was_written_and_a_torn_line_is_left_out() -> None:
    lines = [
        [0, 1.5, "claim", [7, 8], [1, 2]],
        [1, 2.0, "ack", [7, 8], [1, 2], ["0/3", "0/4"]],
        [1, 2.5, {"1": "refused"}],
    ]
    text = [json.dumps(line) + "\n" for line in lines] + ['[2, 3.0, "cla']
    first, second = read("worker", text)
    assert first == Did("worker", "claim", (7, 8), 1.5, None, (1, 2), {})
    assert second == Did("worker", "ack", (7, 8), 2.0, 2.5, (1, 2), {1: "refused"}, ("0/3", "0/4"))
    assert [second.outcome(0), second.outcome(1), first.outcome(0)] == ["ok", "refused", "unknown"]
