"""The exercises of 04-consumer-groups: how partitions are dealt, and what a crash leaves to the next owner."""

from kqlib.workshop.checks import Case, Exercise


def dealt(partitions: int, members: int) -> list:
    each, more = divmod(partitions, members)
    return [each + 1] * more + [each] * (members - more)


def only_whole_shares(partitions: int, members: int) -> list:
    return [partitions // members] * members


def nobody_idles(partitions: int, members: int) -> list:
    return [size for size in dealt(partitions, members) if size]


def all_the_rest_to_the_first(partitions: int, members: int) -> list:
    each, more = divmod(partitions, members)
    return [each + more] + [each] * (members - 1)


WHO_IDLES = Exercise(
    id="04.1",
    ask="each partition has one owner, nobody has two more than another, and whoever is left over idles",
    cases=[
        Case((4, 1), [4], "one member has everything"),
        Case((4, 2), [2, 2], "an even share"),
        Case((4, 3), [2, 1, 1], "a partition is never split, so somebody has one more"),
        Case((4, 5), [1, 1, 1, 1, 0], "members beyond the number of partitions idle"),
        Case((12, 5), [3, 3, 2, 2, 2], "nobody has two more than another"),
        Case((1, 3), [1, 0, 0], "one partition keeps one member at work, whatever you pay for"),
    ],
    hints=(
        "divmod(partitions, members) gives how many everybody has, and how many partitions are left over.",
        "The partitions that are left over go to as many members, one each; they come first in the list.",
    ),
    solution=dealt,
    wrong=(only_whole_shares, nobody_idles, all_the_rest_to_the_first),
)


def after_the_crash(commits: list, worked: int) -> tuple[int, int]:
    start = commits[-1] if commits else 0
    return max(0, worked - start), max(0, start - worked)


def the_highest_commit(commits: list, worked: int) -> tuple[int, int]:
    start = max(commits, default=0)
    return max(0, worked - start), max(0, start - worked)


def commit_is_the_last_record(commits: list, worked: int) -> tuple[int, int]:
    start = commits[-1] + 1 if commits else 0
    return max(0, worked - start), max(0, start - worked)


def nothing_is_ever_lost(commits: list, worked: int) -> tuple[int, int]:
    return after_the_crash(commits, worked)[0], 0


AFTER_THE_CRASH = Exercise(
    id="04.2",
    ask="the next owner begins at the last commit: what was done after it comes again, what was not done before it never comes",
    cases=[
        Case(([], 5), (5, 0), "no commit: all of it comes again"),
        Case(([3], 5), (2, 0), "3 is the next offset: 0, 1 and 2 are done with, 3 and 4 come again"),
        Case(([3, 5], 5), (0, 0), "committed to the end of the work"),
        Case(([5, 2], 5), (3, 0), "a commit may go backwards, and the last one counts"),
        Case(([5], 4), (0, 1), "committed when it was read, dead before the work: nobody ever does that one"),
        Case(([500], 0), (0, 500), "a whole batch, read and committed and not worked on"),
    ],
    hints=(
        "Where does the next owner begin? At the last commit, whatever was committed before it; without one at 0.",
        "Again: the records from there up to what was worked on. Never: those from what was worked on up to there. One of them is 0.",
    ),
    solution=after_the_crash,
    wrong=(the_highest_commit, commit_is_the_last_record, nothing_is_ever_lost),
)
