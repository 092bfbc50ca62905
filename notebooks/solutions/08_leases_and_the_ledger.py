"""The exercises of 08-leases-and-the-ledger: a ledger by hand, how many items are left, and whose ack counts."""

from kqlib.workshop.checks import Case, Exercise


def ledger(steps: list) -> tuple:
    top, out = 0, set()
    for verb, offset in steps:
        if verb == "claim":
            out.add(offset)
            top = max(top, offset + 1)
        else:
            out.discard(offset)
    return min(out, default=top), top, sorted(out)


def floor_past_the_last_ack(steps: list) -> tuple:
    _, top, out = ledger(steps)
    return max((offset + 1 for verb, offset in steps if verb == "ack"), default=0), top, out


def floor_moves_one_by_one(steps: list) -> tuple:
    _, top, out = ledger(steps)
    acked = {offset for verb, offset in steps if verb == "ack"}
    floor = 0
    while floor in acked:
        floor += 1
    return floor, top, out


def top_is_the_last_open(steps: list) -> tuple:
    floor, _, out = ledger(steps)
    return floor, max(out, default=floor - 1) + 1, out


def claims(*offsets: int) -> list:
    return [("claim", offset) for offset in offsets]


def acks(*offsets: int) -> list:
    return [("ack", offset) for offset in offsets]


LEDGER = Exercise(
    id="08.1",
    ask="the floor is the first open offset, or top where nothing is open; top never goes back",
    cases=[
        Case(([],), (0, 0, []), "nothing happened yet"),
        Case((claims(0, 1, 2),), (0, 3, [0, 1, 2]), "three are out"),
        Case((claims(0, 1, 2) + acks(1),), (0, 3, [0, 2]), "acked out of order: the floor stays"),
        Case((claims(0, 1, 2) + acks(1, 0),), (2, 3, [2]), "the first one is acked: the floor moves past 1 as well"),
        Case((claims(0, 1, 2) + acks(2, 1, 0),), (3, 3, []), "nothing is open: floor and top are one"),
        Case((claims(0, 1) + acks(1),), (0, 2, [0]), "top stays where it was, although the last one is done"),
        Case((claims(0, 5, 6) + acks(0),), (5, 7, [5, 6]), "1 to 4 held nothing to do: the floor passes them"),
        Case((claims(0, 1) + claims(0) + acks(0),), (1, 2, [1]), "claimed a second time, it is still one item"),
    ],
    hints=(
        "Keep top and a set of open offsets. What does a claim do to them, and what an ack? The floor follows from the two.",
        "claim: add the offset, top = max(top, offset + 1). ack: take it out. In the end: min(open, default=top).",
    ),
    solution=ledger,
    wrong=(floor_past_the_last_ack, floor_moves_one_by_one, top_is_the_last_open),
)


def not_done(low: int, end: int, top: int, open_ones: list) -> int:
    return sum(offset >= low for offset in open_ones) + end - max(top, low)


def lag(low: int, end: int, top: int, open_ones: list) -> int:
    return end - max(low, min(open_ones, default=top))


def without_the_open_ones(low: int, end: int, top: int, open_ones: list) -> int:
    return end - max(top, low)


def whatever_has_left_the_log(low: int, end: int, top: int, open_ones: list) -> int:
    return len(open_ones) + end - top


DEPTH = Exercise(
    id="08.2",
    ask="what is open and still in the log, and what nobody was handed yet",
    cases=[
        Case((0, 6, 0, []), 6, "nothing was claimed: all of it"),
        Case((0, 6, 4, [0, 2]), 4, "two are open, two were never handed out"),
        Case((0, 6, 6, []), 0, "all done"),
        Case((0, 1000, 1000, [3]), 1, "one slow item: lag says 997"),
        Case((0, 6, 6, [0, 5]), 2, "claimed ones are not done"),
        Case((4, 10, 8, [2, 3, 6]), 3, "2 and 3 were open and have left the log: they are lost, not waiting"),
        Case((9, 10, 5, [2]), 1, "the log begins above top: only 9 is left"),
    ],
    hints=(
        "Two parts: open offsets, and what lies from top to the end. Which of both are still in the log?",
        "Count the open ones with offset >= low. Add end - top, but begin at low where that is higher than top.",
    ),
    solution=not_done,
    wrong=(lag, without_the_open_ones, whatever_has_left_the_log),
)


def fence(steps: list) -> list:
    epoch, number, leases, said = 1, 0, {}, []
    for verb, *what in steps:
        if verb == "claim":
            number += 1
            leases[what[0]] = (what[0], epoch, number)
        elif verb == "expire":
            leases.pop(what[0], None)
        elif verb == "takeover":
            epoch, number, leases = epoch + 1, 0, {}
        else:
            said.append(leases.get(what[0][0]) == what[0])
            if said[-1]:
                del leases[what[0][0]]
    return said


def without_the_epoch(steps: list) -> list:
    number, leases, said = 0, {}, []
    for verb, *what in steps:
        if verb == "claim":
            number += 1
            leases[what[0]] = number
        elif verb == "expire":
            leases.pop(what[0], None)
        elif verb == "takeover":
            number, leases = 0, {}
        else:
            offset, _, receipt = what[0]
            said.append(leases.get(offset) == receipt)
            if said[-1]:
                del leases[offset]
    return said


def by_the_offset_alone(steps: list) -> list:
    out, said = set(), []
    for verb, *what in steps:
        if verb == "claim":
            out.add(what[0])
        elif verb == "expire":
            out.discard(what[0])
        elif verb == "takeover":
            out = set()
        else:
            said.append(what[0][0] in out)
            out.discard(what[0][0])
    return said


def twice_is_fine(steps: list) -> list:
    epoch, number, leases, said = 1, 0, {}, []
    for verb, *what in steps:
        if verb == "claim":
            number += 1
            leases[what[0]] = (what[0], epoch, number)
        elif verb == "expire":
            leases.pop(what[0], None)
        elif verb == "takeover":
            epoch, number, leases = epoch + 1, 0, {}
        else:
            said.append(leases.get(what[0][0]) == what[0])
    return said


FENCE = Exercise(
    id="08.3",
    ask="an ack counts if its receipt is that of the lease which is running now: offset, epoch and number",
    cases=[
        Case(([("claim", 0), ("ack", (0, 1, 1))],), [True], "claimed and acked"),
        Case(([("claim", 0), ("ack", (0, 1, 1)), ("ack", (0, 1, 1))],), [True, False], "the second ack is refused"),
        Case(([("claim", 0), ("expire", 0), ("ack", (0, 1, 1))],), [False], "too late, although nobody has it"),
        Case(
            ([("claim", 0), ("expire", 0), ("claim", 0), ("ack", (0, 1, 1)), ("ack", (0, 1, 2))],),
            [False, True],
            "somebody else has it now: the offset is the same, the number is not",
        ),
        Case(
            ([("claim", 0), ("takeover",), ("claim", 0), ("ack", (0, 1, 1)), ("ack", (0, 2, 1))],),
            [False, True],
            "a new owner counts from 1 again: offset and number are the same, the epoch is not",
        ),
        Case(([("claim", 0), ("takeover",), ("ack", (0, 1, 1))],), [False], "a takeover voids every lease"),
        Case(
            ([("claim", 0), ("claim", 1), ("expire", 0), ("ack", (1, 1, 2)), ("ack", (0, 1, 1))],),
            [True, False],
            "each item has a lease of its own",
        ),
        Case(([("ack", (3, 1, 1))],), [False], "nobody has claimed it"),
    ],
    hints=(
        "Remember for each offset that is out the one receipt that counts now. Which steps add one, and which take one away?",
        "leases = {offset: (offset, epoch, number)}. A takeover empties it, raises the epoch and begins to number anew. "
        "An ack is good if leases.get(offset) == receipt; a good ack takes it out.",
    ),
    solution=fence,
    wrong=(without_the_epoch, by_the_offset_alone, twice_is_fine),
)
