"""The exercises of 02-partitions-and-replicas: what is committed, and what a setting survives."""

from kqlib.workshop.checks import Case, Exercise


def high_watermark(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    if len(isr) < min_isr:
        return mark
    return min(ends[broker] for broker in isr)


def every_copy(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    return min(ends.values())


def leader_alone(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    return max(ends.values())


def no_minimum(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    return min(ends[broker] for broker in isr)


def nothing_below_minimum(ends: dict, isr: list, min_isr: int, mark: int) -> int:
    return min(ends[broker] for broker in isr) if len(isr) >= min_isr else 0


COMMITTED = Exercise(
    id="02.1",
    ask="committed is what every replica of the ISR has, as long as the ISR is strong enough",
    cases=[
        Case(({1: 14, 2: 12, 3: 9}, [1, 2, 3], 2, 9), 9, "the slowest copy in sync decides"),
        Case(({1: 14, 2: 12, 3: 9}, [1, 2], 2, 9), 12, "a copy that is out of sync holds nobody up"),
        Case(({1: 14, 2: 12, 3: 9}, [1], 2, 12), 12, "with fewer in sync than the minimum the mark stands still"),
        Case(({1: 14, 2: 12, 3: 9}, [1], 1, 12), 14, "with a minimum of 1 the leader alone can commit"),
        Case(({1: 11, 2: 1, 3: 1}, [1, 2, 3], 1, 1), 1, "ten records that nobody copied were never committed"),
        Case(({1: 10, 3: 10}, [1, 3], 3, 0), 0, "acknowledged with acks=1, and not for a consumer"),
    ],
    hints=(
        "Which copies count? Not all of them, and not the leader alone: those in the ISR. The slowest of them decides.",
        "First ask whether the ISR is as strong as min_isr. If it is not, the mark stays where it is.",
    ),
    solution=high_watermark,
    wrong=(every_copy, leader_alone, no_minimum, nothing_below_minimum),
)


def survives(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    if acks == "all":
        return min_isr - 1, replicas - min_isr
    return 0, replicas - 1


def as_many_as_copies(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    return replicas - 1, replicas - min_isr


def whatever_acks(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    return min_isr - 1, replicas - min_isr


def the_other_way_round(acks: int | str, replicas: int, min_isr: int) -> tuple[int, int]:
    lost, down = survives(acks, replicas, min_isr)
    return down, lost


SURVIVES = Exercise(
    id="02.2",
    ask="with acks=all, lost and down add up to the number of replicas less one: one is bought with the other",
    cases=[
        Case(("all", 3, 2), (1, 1), "three copies, at least two: one may be lost, one may be down"),
        Case(("all", 3, 1), (0, 2), "with the default minimum a yes may stand for a single copy"),
        Case(("all", 3, 3), (2, 0), "at least three of three stops at the first dead broker"),
        Case(("all", 5, 3), (2, 2), "five copies, at least three: two and two"),
        Case((1, 3, 2), (0, 2), "acks=1 asks for no minimum: it writes on, and each yes stands for one copy"),
    ],
    hints=(
        "With acks=all a yes stands for at least min_isr copies. How many of those may go, so that one is left?",
        "acks=1 waits for the leader's own log and nothing else: what is sure then? And acks=1 is never refused for a small ISR.",
    ),
    solution=survives,
    wrong=(as_many_as_copies, whatever_acks, the_other_way_round),
)
