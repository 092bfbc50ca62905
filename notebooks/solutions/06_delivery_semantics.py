"""The exercises of 06-delivery-semantics: the crash table in one's head, and what an idempotent producer's broker keeps."""

from kqlib.workshop.checks import Case, Exercise


def after_a_crash(order: list, crash: str) -> str:
    taken = order[: order.index(crash) + 1]
    if "commit" in taken and "write" not in taken:
        return "lost"
    if "write" in taken and "commit" not in taken:
        return "doubled"
    return "once"


def by_the_last_verb_alone(order: list, crash: str) -> str:
    return {"commit": "lost", "write": "doubled"}.get(crash, "once")


def by_the_order_alone(order: list, crash: str) -> str:
    return "lost" if order.index("commit") < order.index("write") else "doubled"


def working_twice_is_doubled(order: list, crash: str) -> str:
    taken = order[: order.index(crash) + 1]
    if "commit" in taken:
        return "once" if "write" in taken else "lost"
    return "doubled" if "work" in taken else "once"


MOST, LEAST = ["read", "commit", "work", "write"], ["read", "work", "write", "commit"]
BETWEEN = ["read", "work", "commit", "write"]

CRASHED = Exercise(
    id="06.1",
    ask="what counts is which of write and commit had happened: both, neither, or one of them",
    cases=[
        Case((LEAST, "write"), "doubled", "written and not committed: it comes again"),
        Case((LEAST, "commit"), "once", "both had happened: nothing comes again"),
        Case((LEAST, "work"), "once", "neither had happened: it comes again, and is written for the first time"),
        Case((LEAST, "read"), "once", "reading changes nothing"),
        Case((MOST, "commit"), "lost", "committed and not written: nobody comes back for it"),
        Case((MOST, "work"), "lost", "worked on, and the result died with the worker"),
        Case((MOST, "write"), "once", "both had happened, in the other order"),
        Case((BETWEEN, "commit"), "lost", "the order in between has the same gap as at-most-once"),
        Case(
            (["read", "write", "commit", "work"], "write"),
            "doubled",
            "whoever writes before the commit may write twice",
        ),
    ],
    hints=(
        "Which verbs had happened when the worker died? Those of order up to crash. Only two of the four leave a trace.",
        "Committed and not written: lost. Written and not committed: doubled. Both or neither: once.",
    ),
    solution=after_a_crash,
    wrong=(by_the_last_verb_alone, by_the_order_alone, working_twice_is_doubled),
)


def stored(arrivals: list) -> list:
    expected: dict = {}
    kept = []
    for producer, partition, sequence, value in arrivals:
        if sequence == expected.get((producer, partition), 0):
            expected[producer, partition] = sequence + 1
            kept.append(value)
    return kept


def by_value(arrivals: list) -> list:
    return list(dict.fromkeys(value for *_, value in arrivals))


def by_producer(arrivals: list) -> list:
    return list({(producer, sequence): value for producer, _, sequence, value in reversed(arrivals)}.values())[::-1]


def gaps_allowed(arrivals: list) -> list:
    seen, kept = set(), []
    for *which, value in arrivals:
        if tuple(which) not in seen:
            seen.add(tuple(which))
            kept.append(value)
    return kept


STORED = Exercise(
    id="06.2",
    ask="a broker numbers by producer id and partition, and knows nothing of values",
    cases=[
        Case(([(7, 0, 0, "a"), (7, 0, 1, "b"), (7, 0, 1, "b")],), ["a", "b"], "sent again by the client: dropped"),
        Case(([(7, 0, 0, "goal"), (7, 0, 1, "goal")],), ["goal", "goal"], "a second produce() has the next number"),
        Case(([(7, 0, 0, "goal"), (8, 0, 0, "goal")],), ["goal", "goal"], "a restarted program has a new producer id"),
        Case(([(7, 0, 0, "a"), (7, 1, 0, "b"), (7, 1, 0, "b")],), ["a", "b"], "each partition is numbered by itself"),
        Case(
            ([(7, 0, 0, "a"), (7, 0, 2, "c"), (7, 0, 1, "b")],),
            ["a", "b"],
            "too far ahead: refused, something is missing",
        ),
        Case(
            ([(7, 0, 0, "a"), (7, 0, 1, "b"), (7, 0, 0, "a"), (7, 0, 2, "c")],),
            ["a", "b", "c"],
            "late copies change nothing",
        ),
        Case(([],), [], "nothing came"),
    ],
    hints=(
        "What does the broker remember? For each producer id and partition one number: the one that it waits for. It begins at 0.",
        "Is it the number that it waits for: store it and wait for the next one. Anything else is not stored, whatever its value.",
    ),
    solution=stored,
    wrong=(by_value, by_producer, gaps_allowed),
)
