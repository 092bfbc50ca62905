"""The exercises of 07-queue-on-a-log: what a createItem leaves, what a rolled-back queue hands out, and a depth after all."""

from kqlib.workshop.checks import Case, Exercise


def records_left(deleted: list, end: int) -> int:
    listed, left = set(deleted), 1
    while end in listed:
        end, left = end + 1, left + 1
    return left


def the_whole_list_and_one(deleted: list, end: int) -> int:
    return len(deleted) + 1


def whatever_is_behind(deleted: list, end: int) -> int:
    return sum(offset >= end for offset in deleted) + 1


def only_the_copies(deleted: list, end: int) -> int:
    return records_left(deleted, end) - 1


RECORDS = Exercise(
    id="07.1",
    ask="a record is written first, and only then is its offset looked up; the first that is not in the list ends it",
    cases=[
        Case(([], 0), 1, "nothing is in the list: one record for one item"),
        Case(([0, 1, 2], 3), 1, "a topic that nobody re-created: new offsets are never in the list"),
        Case(([0, 1, 2], 0), 4, "after a re-creation: k + 1 records"),
        Case(([0, 1, 5, 6], 0), 3, "2 is free: what is in the list behind it costs the next items"),
        Case(([0, 1, 5, 6], 5), 3, "5 and 6 are taken, 7 is free"),
        Case(([4, 2, 3], 2), 4, "a list has no order"),
        Case((list(range(1000)), 0), 1001, "after a thousand deleted items"),
    ],
    hints=(
        "Write the record at `end` first. Is that offset in the list? Then it was for nothing, and the next one comes at end + 1.",
        "Count from 1; as long as `end` is in the list, add one to both. Make a set of the list first: it may be long.",
    ),
    solution=records_left,
    wrong=(the_whole_list_and_one, whatever_is_behind, only_the_copies),
)


def handed_out(total: int, steps: list) -> list:
    position, deleted, handed = 0, set(), []
    for verb, *offset in steps:
        if verb == "delete":
            deleted.add(offset[0])
        elif verb == "release":
            position = offset[0]
        else:
            while position in deleted:
                position += 1
            handed.append(position if position < total else None)
            position = min(position + 1, total)
    return handed


def only_what_was_released(total: int, steps: list) -> list:
    fresh, back, handed = 0, [], []
    for verb, *offset in steps:
        if verb == "release":
            back.append(offset[0])
        elif verb == "claim":
            handed.append(back.pop(0) if back else fresh if fresh < total else None)
            fresh = max(fresh, (handed[-1] if handed[-1] is not None else total) + 1)
    return handed


def without_the_list(total: int, steps: list) -> list:
    return handed_out(total, [step for step in steps if step[0] != "delete"])


def never_back(total: int, steps: list) -> list:
    return handed_out(total, [step for step in steps if step[0] != "release"])


def never_forward(total: int, steps: list) -> list:
    position, deleted, handed = 0, set(), []
    for verb, *offset in steps:
        if verb == "delete":
            deleted.add(offset[0])
        elif verb == "release":
            position = min(position, offset[0])
        else:
            while position in deleted:
                position += 1
            handed.append(position if position < total else None)
            position = min(position + 1, total)
    return handed


CLAIM = ("claim",)

QUEUE = Exercise(
    id="07.2",
    ask="the position is one number: a claim moves it on and passes over what is deleted, a release sets it to that offset",
    cases=[
        Case((2, [CLAIM, CLAIM, CLAIM]), [0, 1, None], "one after the other, then nothing"),
        Case((3, [CLAIM, ("release", 0), CLAIM, CLAIM]), [0, 0, 1], "a released item comes again first"),
        Case(
            (4, [CLAIM, CLAIM, CLAIM, ("release", 0), CLAIM, CLAIM, CLAIM, CLAIM]),
            [0, 1, 2, 0, 1, 2, 3],
            "what is in flight behind a released item comes again as well",
        ),
        Case(
            (4, [CLAIM, CLAIM, CLAIM, ("delete", 1), ("release", 0), CLAIM, CLAIM, CLAIM]),
            [0, 1, 2, 0, 2, 3],
            "a deleted one does not",
        ),
        Case(
            (3, [CLAIM, CLAIM, CLAIM, ("release", 0), ("release", 2), CLAIM, CLAIM]),
            [0, 1, 2, 2, None],
            "the last release counts: item 0 is stranded, although it was given back",
        ),
        Case((2, [CLAIM, ("delete", 0), ("release", 0), CLAIM]), [0, 1], "deleted is deleted"),
    ],
    hints=(
        "You need the position, which begins at 0, and the set of deleted offsets. What does each step do to them?",
        "A release sets the position to its offset, no more. A claim moves on over deleted ones, hands out, and moves on by one.",
    ),
    solution=handed_out,
    wrong=(only_what_was_released, without_the_list, never_back, never_forward),
)


def not_done(low: int, end: int, deleted: list) -> int:
    return end - low - sum(low <= offset < end for offset in deleted)


def by_the_length_of_the_list(low: int, end: int, deleted: list) -> int:
    return end - low - len(deleted)


def from_zero(low: int, end: int, deleted: list) -> int:
    return end - sum(offset < end for offset in deleted)


def up_to_anywhere(low: int, end: int, deleted: list) -> int:
    return end - low - sum(offset >= low for offset in deleted)


DEPTH = Exercise(
    id="07.3",
    ask="what is in the log and not in the list; the list may know offsets that the log does not have",
    cases=[
        Case((0, 6, []), 6, "nobody has deleted anything: all of it"),
        Case((0, 6, [1, 2]), 4, "claimed ones are not deleted, so they count"),
        Case((0, 3, [0, 1, 2]), 0, "all done"),
        Case((150, 200, list(range(160))), 40, "offsets below the log's beginning are still in the list"),
        Case((0, 3, list(range(12))), 0, "after a re-creation the list is longer than the log"),
        Case((5, 10, [4, 9, 10]), 4, "the end is the next offset: it is not in the log"),
    ],
    hints=(
        "How many offsets are in the log? And how many of those are in the list? Not all that is in the list is in the log.",
        "end - low, less those offsets of the list with low <= offset < end.",
    ),
    solution=not_done,
    wrong=(by_the_length_of_the_list, from_zero, up_to_anywhere),
)
