"""The exercises of 09-retries-and-dead-letters: how long a policy holds out, a key's order, and a rung of one's own."""

from collections.abc import Iterator

from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.ladder import LADDER
from kqlib.workshop.promises import promises


def last_try(first: int, cap: int, attempts: int) -> int:
    return sum(min(cap, first * 2**number) for number in range(attempts - 1))


def a_wait_after_the_last(first: int, cap: int, attempts: int) -> int:
    return sum(min(cap, first * 2**number) for number in range(attempts))


def without_the_cap(first: int, cap: int, attempts: int) -> int:
    return sum(first * 2**number for number in range(attempts - 1))


def doubled_at_once(first: int, cap: int, attempts: int) -> int:
    return sum(min(cap, first * 2**number) for number in range(1, attempts))


LAST = Exercise(
    id="09.1",
    ask="a wait stands between two attempts: first, twice that, twice that again, and never more than cap",
    cases=[
        Case((1, 300, 5), 15, "four waits lie between five attempts: 1 + 2 + 4 + 8"),
        Case((1, 300, 1), 0, "a single attempt waits for nothing"),
        Case((5, 300, 2), 5, "the first wait is `first`, not twice that"),
        Case((1, 4, 6), 15, "with a cap of 4: 1 + 2 + 4 + 4 + 4"),
        Case((30, 10, 4), 30, "the cap counts from the first wait on"),
        Case((1, 900, 14), 3723, "the most that a queue of kqlib allows, attempts and cap: an hour"),
    ],
    hints=(
        "How many waits are there between five attempts? Write down the five moments for first=1, from 0 on.",
        "Wait number n (from 0) is first * 2**n, or cap if that is less. There is one wait less than there are attempts.",
    ),
    solution=last_try,
    wrong=(a_wait_after_the_last, without_the_cap, doubled_at_once),
)


def handed_out(keys: list, steps: list) -> list:
    state, handed = dict.fromkeys(range(len(keys)), "ready"), []

    def first_of_its_key(number: int) -> bool:
        return keys[number] is None or not any(m < number and keys[m] == keys[number] for m in state)

    for verb, *which in steps:
        if verb == "claim":
            ready = [n for n in sorted(state) if state[n] == "ready" and first_of_its_key(n)]
            handed.append(ready[0] if ready else None)
            if ready:
                state[ready[0]] = "out"
        elif verb in ("ack", "bury"):
            del state[which[0]]
        else:
            state[which[0]] = "later" if verb == "delay" else "ready"
    return handed


def only_what_is_out_blocks(keys: list, steps: list) -> list:
    state, handed = dict.fromkeys(range(len(keys)), "ready"), []
    for verb, *which in steps:
        if verb == "claim":
            busy = {keys[n] for n in state if state[n] == "out"} - {None}
            ready = [n for n in sorted(state) if state[n] == "ready" and keys[n] not in busy]
            handed.append(ready[0] if ready else None)
            if ready:
                state[ready[0]] = "out"
        elif verb in ("ack", "bury"):
            del state[which[0]]
        else:
            state[which[0]] = "later" if verb == "delay" else "ready"
    return handed


def any_order(keys: list, steps: list) -> list:
    return handed_out([None] * len(keys), steps)


def none_is_a_key(keys: list, steps: list) -> list:
    return handed_out(["" if key is None else key for key in keys], steps)


def buried_ones_block(keys: list, steps: list) -> list:
    return handed_out(keys, [("delay", which[0]) if verb == "bury" else (verb, *which) for verb, *which in steps])


CLAIM = ("claim",)
BY_KEY = Exercise(
    id="09.2",
    ask="an item goes out only if every earlier one of its key is done or buried; where a key is None nobody waits",
    cases=[
        Case((["A", "B", "A"], [CLAIM, CLAIM, CLAIM]), [0, 1, None], "A is out: its next one waits"),
        Case((["A", "A"], [CLAIM, ("ack", 0), CLAIM]), [0, 1], "done: the next one of its key may go"),
        Case((["A", "B", "A"], [CLAIM, ("release", 0), CLAIM, CLAIM]), [0, 0, 1], "released: it goes first"),
        Case(
            (["A", "A", "B"], [CLAIM, ("delay", 0), CLAIM, CLAIM, ("due", 0), CLAIM]),
            [0, 2, None, 0],
            "a delayed one is not out, and yet its key waits for it; other keys do not",
        ),
        Case((["A", "A"], [CLAIM, ("bury", 0), CLAIM]), [0, 1], "a buried one holds nobody up"),
        Case(([None, None], [CLAIM, CLAIM]), [0, 1], "items without a key have no order to keep"),
        Case(([], [CLAIM]), [None], "nothing was put"),
    ],
    hints=(
        "Keep what is not done, and for each whether it is ready, out or due later. Which of the ready ones may go?",
        "The lowest ready one such that no lower one of the same key is in your list, whatever that one is doing. None is no key.",
    ),
    solution=handed_out,
    wrong=(only_what_is_out_blocks, any_order, none_is_a_key, buried_ones_block),
)


Leases = LADDER["leases"]


class GivesUp(Leases):
    def __init__(self, cluster, name):
        super().__init__(cluster, name)
        self.dead = Leases(cluster, f"{name}.dead")

    def claim(self, lease=30, wait=1.0):
        while (item := super().claim(lease, wait)) is not None and item.attempt > 5:
            self.dead.put(item.data)
            self.ack(item)
        return item


class GivesUpWithoutALetter(Leases):
    def claim(self, lease=30, wait=1.0):
        while (item := super().claim(lease, wait)) is not None and item.attempt > 5:
            self.ack(item)
        return item


class HandsOutAll(Leases):
    def __init__(self, cluster, name):
        super().__init__(cluster, name)
        self.dead = Leases(cluster, f"{name}.dead")

    def claim(self, lease=30, wait=1.0):
        item = super().claim(lease, wait)
        if item is not None and item.attempt > 5:
            self.dead.put(item.data)
            self.ack(item)
        return item


WANTED = ["released comes back", "delayed release", "dead letter, once"]


def rung(answer: type) -> Iterator[Tried]:
    """Score a rung: it must keep what the fourth one keeps, and one promise more."""
    own = isinstance(answer, type) and "claim" in vars(answer)
    yield Tried("looking for a claim of your own", own, True, "that is where an item's attempts are seen")
    scores = promises({"yours": answer}, only=WANTED)
    for name in WANTED:
        verdict = scores["yours", name]
        said = {True: "kept", False: verdict.seen, None: verdict.seen}[verdict.kept]
        yield Tried(f"'{name}'", said, "kept", "kept by your rung" if verdict.kept else "")


RUNG = Exercise(
    id="09.3",
    ask="a fifth rung, on top of the fourth",
    probe=rung,
    hints=(
        "Make `self.dead` in __init__, after super().__init__(cluster, name): a queue of its own, on the topic f'{name}.dead'.",
        "In claim: ask super().claim(lease, wait). While what comes has an attempt above 5, put its data into self.dead, "
        "ack it, and ask again.",
    ),
    solution=GivesUp,
    wrong=(GivesUpWithoutALetter, HandsOutAll),
    seconds=60,
)
