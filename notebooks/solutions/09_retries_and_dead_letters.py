"""The exercises of 09-retries-and-dead-letters: how long a policy holds out, a key's order, and a rung of one's own."""

from collections.abc import Iterator

from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.ladder import LADDER
from kqlib.workshop.promises import promises


def last_try(first: int, cap: int, attempts: int) -> int:
    return sum(min(cap, first * 2**number) for number in range(attempts - 1))


def a_wait_after_the_last(first: int, cap: int, attempts: int) -> int:
    """You count one wait too many. After the last attempt nothing is waited for."""
    return sum(min(cap, first * 2**number) for number in range(attempts))


def without_the_cap(first: int, cap: int, attempts: int) -> int:
    """No wait is longer than `cap`, however often it was doubled."""
    return sum(first * 2**number for number in range(attempts - 1))


def doubled_at_once(first: int, cap: int, attempts: int) -> int:
    """The first wait is `first` itself. It is doubled from the second wait on."""
    return sum(min(cap, first * 2**number) for number in range(1, attempts))


def cap_on_the_sum(first: int, cap: int, attempts: int) -> int:
    """`cap` is the most for a single wait, not for the sum of all waits."""
    return min(cap, sum(first * 2**number for number in range(attempts - 1)))


LAST = Exercise(
    id="09.1",
    ask="a wait stands between two attempts: first, twice that, twice that again, and never more than cap",
    task="return the second of the last attempt; the first one is at second 0",
    cases=[
        Case(
            (1, 300, 5),
            15,
            "four waits between five attempts: 1 + 2 + 4 + 8",
            "Five attempts have four waits: 1, 2, 4, 8.",
        ),
        Case((1, 300, 1), 0, hint="There is one attempt, at second 0. It waits for nothing."),
        Case((5, 300, 2), 5, hint="There is one wait, and it is `first`."),
        Case((1, 4, 6), 15, "with a cap of 4: 1 + 2 + 4 + 4 + 4", "With a cap of 4 the waits are 1, 2, 4, 4, 4."),
        Case((30, 10, 4), 30, hint="`first` is longer than `cap`: even the first wait is 10."),
        Case((1, 900, 14), 3723, "the most attempts of a queue of kqlib hold out for an hour"),
    ],
    hints=(
        "How many waits are there between five attempts? Write down the five moments for first=1, from 0 on.",
        "Wait number n (from 0) is first * 2**n, or cap if that is less. There is one wait less than there are attempts.",
    ),
    solution=last_try,
    wrong=(a_wait_after_the_last, without_the_cap, doubled_at_once, cap_on_the_sum),
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
    """An item that waits for its next attempt delays its key too, though it is not out."""
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
    """You ignore the keys. While an item of A is not done, no later item of A may go."""
    return handed_out([None] * len(keys), steps)


def none_is_a_key(keys: list, steps: list) -> list:
    """None means no key: such items wait for no other item."""
    return handed_out(["" if key is None else key for key in keys], steps)


def buried_ones_block(keys: list, steps: list) -> list:
    """A buried item has left the queue: the next one of its key may go."""
    return handed_out(keys, [("delay", which[0]) if verb == "bury" else (verb, *which) for verb, *which in steps])


CLAIM = ("claim",)
BY_KEY = Exercise(
    id="09.2",
    ask="an item goes out only if every earlier one of its key is done or buried; an item without a key never waits",
    task="return a list with the result of each claim: an offset or None",
    cases=[
        Case(
            (["A", "B", "A"], [CLAIM, CLAIM, CLAIM]), [0, 1, None], hint="0 is out, and 2 has the same key: it waits."
        ),
        Case((["A", "A"], [CLAIM, ("ack", 0), CLAIM]), [0, 1], hint="0 is done: the next one of its key may go."),
        Case(
            (["A", "B", "A"], [CLAIM, ("release", 0), CLAIM, CLAIM]),
            [0, 0, 1],
            hint="A released item is ready again, at its old place: before all later ones.",
        ),
        Case(
            (["A", "A", "B"], [CLAIM, ("delay", 0), CLAIM, CLAIM, ("due", 0), CLAIM]),
            [0, 2, None, 0],
            "a delayed item is not out, and still its key waits for it",
            "0 is delayed. Its key waits for it; the key B does not.",
        ),
        Case((["A", "A"], [CLAIM, ("bury", 0), CLAIM]), [0, 1], hint="0 is buried: the next one of its key may go."),
        Case(([None, None], [CLAIM, CLAIM]), [0, 1], hint="Items without a key have no order to keep."),
        Case(([], [CLAIM]), [None], hint="Nothing was put, so the claim gives None."),
    ],
    hints=(
        "Keep what is not done, and for each whether it is ready, out or due later. Which of the ready ones may go?",
        "Take the lowest ready one, if no lower one of the same key is in your list, whatever state that one has. None is no key.",
    ),
    solution=handed_out,
    wrong=(only_what_is_out_blocks, any_order, none_is_a_key, buried_ones_block),
)


class GivesUp(LADDER["leases"]):
    def __init__(self, cluster, name):
        super().__init__(cluster, name)
        self.dead = LADDER["leases"](cluster, f"{name}.dead")

    def claim(self, lease=30, wait=1.0):
        while (item := super().claim(lease, wait)) is not None and item.attempt > 5:
            self.dead.put(item.data)
            self.ack(item)
        return item


class GivesUpWithoutALetter(LADDER["leases"]):
    def claim(self, lease=30, wait=1.0):
        while (item := super().claim(lease, wait)) is not None and item.attempt > 5:
            self.ack(item)
        return item


class GivesEachOut(GivesUp):
    def claim(self, lease=30, wait=1.0):
        item = LADDER["leases"].claim(self, lease, wait)
        if item is not None and item.attempt > 5:
            self.dead.put(item.data)
            self.ack(item)
        return item


class OnlyTheFirst(GivesUp):
    def claim(self, lease=30, wait=1.0):
        item = LADDER["leases"].claim(self, lease, wait)
        if item is not None and item.attempt > 5:
            self.dead.put(item.data)
            self.ack(item)
            return None
        return item


class ForgetsTheAck(GivesUp):
    def claim(self, lease=30, wait=1.0):
        while (item := LADDER["leases"].claim(self, lease, wait)) is not None and item.attempt > 5:
            self.dead.put(item.data)
            self.release(item)
        return item


PROMISES = ["released comes back", "delayed release", "dead letter, once"]
HINTS = {  # words of what was seen, and a hint for that
    "no dead": "Your rung has no `dead`. Make self.dead in __init__: a queue of its own, on the topic f'{name}.dead'.",
    "more than": "An item comes again and again. When its attempt is above 5, put its data into self.dead and ack it.",
    "the item behind them came 0 times": "The good item never came. After a burial claim again; do not return None.",
    "are none": "No letter was written: put the data of the item into self.dead.",
    "the dead letters are": "A letter is there more than once, or is missing. Put once, then ack, and do not return that item.",
}


def rung(answer: type) -> Iterator[Tried]:
    """Score a rung: it must keep what the fourth one keeps, and one promise more."""
    own = isinstance(answer, type) and "claim" in vars(answer)
    where = "Your class has no claim yet: def claim(self, lease=30, wait=1.0)."
    yield Tried("looking for a claim of your own", own, True, "a claim sees how often an item was tried", where)
    scores = promises({"yours": answer}, only=PROMISES)
    for name in PROMISES:
        verdict = scores["yours", name]
        got = "kept" if verdict.kept else verdict.seen
        fits = [hint for words, hint in HINTS.items() if words in verdict.seen]
        keep = "Your rung still has to keep this one, as `leases` does. Call super().claim(lease, wait)."
        yield Tried(f"'{name}'", got, "kept", "kept by your rung" if verdict.kept else "", next(iter(fits), keep))


RUNG = Exercise(
    id="09.3",
    ask="a fifth rung, on top of the fourth",
    probe=rung,
    hints=(
        "Make `self.dead` in __init__, after super().__init__(cluster, name): a queue of its own, on the topic f'{name}.dead'.",
        "In claim: call super().claim(lease, wait). While the item has an attempt above 5, put its data into self.dead, "
        "ack it, and claim again.",
    ),
    solution=GivesUp,
    wrong=(GivesUpWithoutALetter, GivesEachOut, OnlyTheFirst, ForgetsTheAck),
    seconds=60,
)
