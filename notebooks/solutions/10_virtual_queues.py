"""The exercises of 10-virtual-queues: which node has a queue, and reading one's own in a partition that others fill."""

from kqlib.workshop.checks import Case, Exercise


def node_of(hashed: int, owners: dict) -> str | None:
    return owners[str((hashed & 0x7FFFFFFF) % len(owners))]


def by_abs(hashed: int, owners: dict) -> str | None:
    return owners[str(abs(hashed) % len(owners))]


def with_the_sign(hashed: int, owners: dict) -> str | None:
    return owners[str(hashed % len(owners))]


def by_and(hashed: int, owners: dict) -> str | None:
    masked = hashed & 0x7FFFFFFF
    return owners[str(masked & (len(owners) - 1))]


def those_that_are_there(hashed: int, owners: dict) -> str | None:
    there = [owner for owner in owners.values() if owner]
    return there[(hashed & 0x7FFFFFFF) % len(there)]


TWO = {"0": "http://a", "1": "http://b"}
THREE = {"0": "http://a", "1": "http://b", "2": "http://c"}
SIX = {str(number): f"http://{name}" for number, name in enumerate("abcdef")}
NODE = Exercise(
    id="10.1",
    ask="without the sign bit, modulo the number of partitions; and that partition's owner, if it has one",
    cases=[
        Case((275646681, TWO), "http://b", "an odd hash and two partitions"),
        Case((479470107, THREE), "http://a", "479470107 is a multiple of three; three is no power of two"),
        Case((-2138650532, THREE), "http://a", "ARS-CHE: negative; without its sign bit 8833116, a multiple of three"),
        Case((-1892391194, SIX), "http://a", "LAL-BOS: without its sign bit 255092454, a multiple of six"),
        Case((316155434, {**THREE, "2": None}), None, "nobody has partition 2 now: ask again, and nobody else"),
        Case((-2147483648, TWO), "http://a", "the smallest of 32 bits: without its sign bit it is 0"),
    ],
    hints=(
        "Three steps: take the sign bit away, find the partition, look it up. Which operator takes one bit away?",
        "masked = hashed & 0x7fffffff; the partition is masked % len(owners); the map's keys are text.",
    ),
    solution=node_of,
    wrong=(by_abs, with_the_sign, by_and, those_that_are_there),
)


def own(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    found: list = []
    for offset in range(start, len(log)):
        if len(found) == limit:
            return found, offset
        if log[offset] == queue:
            found.append(offset)
    return found, max(start, len(log))


def behind_the_last_found(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    found = [offset for offset in range(start, len(log)) if log[offset] == queue][:limit]
    return found, found[-1] + 1 if found else start


def a_page_of_the_partition(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    page = range(start, min(len(log), start + limit))
    return [offset for offset in page if log[offset] == queue], page.stop


def always_the_end(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    found = [offset for offset in range(start, len(log)) if log[offset] == queue][:limit]
    return found, len(log)


SCAN = Exercise(
    id="10.2",
    ask="the records of one queue, and how far was looked",
    cases=[
        Case((["A", "A", "A"], "A", 0, 10), ([0, 1, 2], 3), "alone in the partition"),
        Case((["B"] * 6, "A", 0, 10), ([], 6), "nothing of yours, and yet you have looked at six records"),
        Case((["B", "A", "B", "B"], "A", 0, 10), ([1], 4), "what lies behind your last one was looked at, too"),
        Case((["B", "B", "B", "A"], "A", 0, 2), ([3], 4), "the limit counts your records, not the neighbour's"),
        Case((["A", "B", "A", "A"], "A", 0, 2), ([0, 2], 3), "enough: the rest was not looked at"),
        Case((["A", "B", "A", "A"], "A", 3, 2), ([3], 4), "and from there on"),
        Case((["A", "B"], "A", 2, 2), ([], 2), "nothing new: the same place again"),
    ],
    hints=(
        "Walk from start to the end of the log, whoever's records they are. When do you stop before the end?",
        "Stop in front of the first record that you do not look at: once you have `limit` of your own. Else `next` is len(log).",
    ),
    solution=own,
    wrong=(behind_the_last_found, a_page_of_the_partition, always_the_end),
)
