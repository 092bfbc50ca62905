"""The exercises of 11-share-groups: what a broker hands out, and how many members have work."""

from kqlib.workshop.checks import Case, Exercise


def handed_out(records: int, limit: int, steps: list) -> list:
    state, count, handed = ["free"] * records, [0] * records, []
    for verb, *which in steps:
        if verb == "poll":
            first = state.index("free") if "free" in state else None
            if first is not None:
                state[first], count[first] = "locked", count[first] + 1
            handed.append(None if first is None else (first, count[first]))
        elif verb in ("accept", "reject"):
            state[which[0]] = "done"
        else:
            state[which[0]] = "free" if count[which[0]] < limit else "gone"
    return handed


def without_a_limit(records: int, limit: int, steps: list) -> list:
    return handed_out(records, 10**9, steps)


def one_delivery_too_many(records: int, limit: int, steps: list) -> list:
    return handed_out(records, limit + 1, steps)


def rejected_ones_come_again(records: int, limit: int, steps: list) -> list:
    return handed_out(records, limit, [("release" if verb == "reject" else verb, *which) for verb, *which in steps])


def locks_never_end(records: int, limit: int, steps: list) -> list:
    return handed_out(records, limit, [step for step in steps if step[0] != "over"])


POLL = ("poll",)
BROKER = Exercise(
    id="11.1",
    ask="the first free record is handed out, and counted; after `limit` deliveries it is never free again",
    cases=[
        Case((2, 5, [POLL, POLL, POLL]), [(0, 1), (1, 1), None], "what is locked is nobody else's"),
        Case((2, 5, [POLL, ("release", 0), POLL]), [(0, 1), (0, 2)], "released: it comes again, first, as delivery 2"),
        Case((2, 5, [POLL, ("accept", 0), POLL]), [(0, 1), (1, 1)], "accepted: done"),
        Case((2, 5, [POLL, ("reject", 0), POLL]), [(0, 1), (1, 1)], "rejected: never again, as if it were done"),
        Case((2, 5, [POLL, POLL, ("over", 0), POLL]), [(0, 1), (1, 1), (0, 2)], "a lock that is over counts"),
        Case((1, 2, [POLL, ("release", 0), POLL, ("over", 0), POLL]), [(0, 1), (0, 2), None], "the limit is two: gone"),
        Case((0, 2, [POLL]), [None], "there is nothing"),
    ],
    hints=(
        "For each record keep two things: whether it is free, locked or done, and how often it was handed out.",
        "Count when you hand out. On a release, or when a lock is over, look at the count: below the limit it is free again.",
    ),
    solution=handed_out,
    wrong=(without_a_limit, one_delivery_too_many, rejected_ones_come_again, locks_never_end),
)


def have_work(kind: str, members: int, batches: list, at_most: int) -> int:
    if kind == "consumer":
        return min(1, members, len(batches))
    left, busy = list(batches), 0
    for _ in range(members):
        taken = 0
        while left and taken < at_most:
            taken += left.pop(0)
        busy += taken > 0
    return busy


def a_record_each(kind: str, members: int, batches: list, at_most: int) -> int:
    return min(1 if kind == "consumer" else members, -(-sum(batches) // at_most))


def a_batch_each(kind: str, members: int, batches: list, at_most: int) -> int:
    return min(1 if kind == "consumer" else members, len(batches))


def all_share(kind: str, members: int, batches: list, at_most: int) -> int:
    return have_work("share", members, batches, at_most)


WORK = Exercise(
    id="11.2",
    ask="a poll takes batches whole until it has at_most records or more; a consumer group has one owner a partition",
    cases=[
        Case(("share", 5, [10], 1), 1, "one batch of ten: who takes it takes all of it"),
        Case(("share", 5, [1] * 10, 1), 5, "ten batches of one: all have work"),
        Case(("share", 5, [1] * 10, 4), 3, "up to four each: 4 + 4 + 2"),
        Case(("share", 5, [3, 3, 3], 4), 2, "3 are fewer than 4, so it takes another 3; one batch is left"),
        Case(("share", 5, [1, 1], 1), 2, "two records for five members"),
        Case(("consumer", 5, [1] * 10, 1), 1, "in a consumer group a partition has one owner"),
        Case(("consumer", 5, [], 1), 0, "nothing there, nothing to do"),
        Case(("share", 0, [1], 1), 0, "nobody there"),
    ],
    hints=(
        "Play it: a list of batches, and one member after the other. What does the first one leave?",
        "A member takes batches from the front while it has fewer than at_most records; it has work if it took any.",
    ),
    solution=have_work,
    wrong=(a_record_each, a_batch_each, all_share),
)
