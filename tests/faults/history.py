"""What happened, judged: Jepsen's rule for a queue. Everything acknowledged as put comes out, and nothing else does.

In:  histories, one file a process, a line when a call begins and one when it has ended. Out: `Verdict`, counts and what is wrong.
Pure: no Kafka, no clock. All processes are of one machine, so that their monotonic clocks are one.

    [call, time, verb, values, attempts, ids]   it begins; of a claim: it has returned (what it gives is not known before)
    [call, time, {place: why}]                  it has ended; places that are not well are "refused" or "unknown"

A call without an end is unknown: its process was killed. A value is put once and never again. With its id (partition/offset) it
is an item: so a record that the log has twice differs from an item that was handed out twice.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

MOST = 15  # the ledger counts no further
ENDS = ("ack", "bury")
WRONG = ("lost", "vanished", "unexpected", "copied", "uncounted", "twice", "revived", "shared", "misordered")
KEYS = 1000  # the key of a value is its rest

Item = tuple[int, str]  # a value and where it stands


@dataclass(frozen=True, slots=True)
class Did:
    """One call of one process: about which values, from when to when, and how each fared.

    verb: put, claim, ack, bury; letter: found among the dead at the end; gone: this process was killed or stopped;
    wiped: the topic was deleted, and with it what was in it. stored: what the log has at the end.
    """

    who: str
    verb: str
    values: tuple[int, ...] = ()
    began: float = 0.0
    ended: float | None = None
    attempts: tuple[int, ...] = ()
    bad: Mapping[int, str] = field(default_factory=dict)
    ids: tuple[str, ...] = ()

    @property
    def items(self) -> list[Item]:
        """Each value with its id."""
        return list(zip(self.values, self.ids or [""] * len(self.values), strict=True))

    def outcome(self, place: int) -> str:
        """ok, refused or unknown."""
        return "unknown" if self.ended is None else self.bad.get(place, "ok")


@dataclass(frozen=True, slots=True)
class Lease:
    """An item that a worker holds."""

    who: str
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class End:
    """An ack of an item."""

    who: str
    attempt: int
    began: float
    ended: float | None
    verb: str
    outcome: str


@dataclass(frozen=True)
class Verdict:
    """What a history comes to; its repr has counts only, and is the same whenever they are."""

    put: int = 0  # acknowledged
    maybe: int = 0  # puts of which nobody knows
    # acknowledged as put, and nobody ever finished with it: it never came out, or was forgotten afterwards
    lost: int = 0
    vanished: int = 0  # acknowledged as put, and not in Kafka's log at the end; not counted as lost
    unexpected: int = 0  # came out, and was never put
    copied: int = 0  # stood in the log twice, though it was put once
    doubled: int = 0  # leases after an item's first
    uncounted: int = 0  # of those: with an attempt that an earlier one had
    twice: int = 0  # done more than once: acked or buried again
    revived: int = 0  # handed out again after it was done
    shared: int = 0  # two live leases at once: handed out again before the one that ended it
    misordered: int = 0  # with order="key": handed out before an earlier item of its key was finished
    dead: int = 0  # letters
    refused: int = 0  # acks that came too late, and were refused
    pause: float = field(default=0.0, compare=False)  # seconds between two claims of anybody; the longest
    takeover: float = 0.0  # seconds from a worker's end until others had all that it had; the longest

    @property
    def wrong(self) -> dict[str, int]:
        """What must never be, and was."""
        return {name: count for name in WRONG if (count := getattr(self, name))}

    def __repr__(self) -> str:
        counts = ("lost", "vanished", "unexpected", "doubled", "dead", "refused", *WRONG[3:])
        return f"Verdict({self.put} put, {', '.join(f'{name} {getattr(self, name)}' for name in counts)})"


def read(who: str, lines: Iterable[str]) -> list[Did]:
    """A process's history; the last line may be torn."""
    begun: dict[int, list] = {}
    ends: dict[int, tuple[float, dict[int, str]]] = {}
    for line in lines:
        if not line.endswith("\n"):
            continue
        call, at, *rest = json.loads(line)
        if isinstance(rest[0], dict):
            ends[call] = at, {int(place): why for place, why in rest[0].items()}
        else:
            begun[call] = [at, *rest]
    made = []
    for call, (at, verb, values, attempts, *ids) in begun.items():
        ended, bad = ends.get(call, (None, {}))
        made.append(Did(who, verb, tuple(values), at, ended, tuple(attempts), bad, tuple(*ids)))
    return made


def judge(history: Iterable[Did], by_key: bool = False) -> Verdict:
    """What it comes to. by_key: the queue keeps the order of each key."""
    history = list(history)
    leases, ends, letters = _by_item(history)
    asked = {value for did in history if did.verb == "put" for value in did.values}
    wiped = max((did.ended or did.began for did in history if did.verb == "wiped"), default=0.0)
    stored, kept, maybe = set[int](), set[int](), 0
    for did in (did for did in history if did.verb == "put"):
        for place, value in enumerate(did.values):
            maybe += did.outcome(place) != "ok"
            if did.outcome(place) == "ok":
                stored.add(value)
                if did.began >= wiped:
                    kept.add(value)
    left = [did.values for did in history if did.verb == "stored"]  # nobody looked: nothing is blamed on Kafka
    items = leases.keys() | letters.keys()
    came = {value for value, _ in items}
    finished = {item[0] for item in items | ends.keys() if _finished(ends[item], letters[item])}
    missing = kept - finished
    vanished = missing.difference(*left) if left else set[int]()
    special = (item for item in items if letters.get(item) or not _once(leases[item], ends[item]))
    per_item = [_of_item(leases[item], ends[item], letters[item]) for item in special]
    total: Counter[str] = sum(per_item, Counter())
    return Verdict(
        put=len(stored),
        maybe=maybe,
        lost=len(missing - vanished),
        vanished=len(vanished),
        unexpected=len(came - asked),
        copied=len(items) - len(came),
        misordered=_misordered(leases, ends) if by_key else 0,
        dead=sum(letters.values()),
        refused=sum(end.outcome == "refused" for some in ends.values() for end in some),
        pause=_pause(leases),
        takeover=max((_takeover(did, leases, ends) for did in history if did.verb == "gone"), default=0.0),
        **{name: total[name] for name in ("doubled", "uncounted", "twice", "revived", "shared")},
    )


Items = tuple[defaultdict[Item, list[Lease]], defaultdict[Item, list[End]], Counter[Item]]


def _by_item(history: list[Did]) -> Items:
    leases: defaultdict[Item, list[Lease]] = defaultdict(list)
    ends: defaultdict[Item, list[End]] = defaultdict(list)
    letters: Counter[Item] = Counter()
    for did in history:
        if did.verb == "letter":
            letters.update(did.items)
        elif did.verb == "claim":
            for item, attempt in zip(did.items, did.attempts, strict=True):
                leases[item].append(Lease(did.who, attempt, did.began))
        elif did.verb in ENDS:
            for place, (item, attempt) in enumerate(zip(did.items, did.attempts, strict=True)):
                ends[item].append(End(did.who, attempt, did.began, did.ended, did.verb, did.outcome(place)))
    return leases, ends, letters


def _finished(ends: list[End], letters: int) -> bool:
    """Did anybody finish with it? An ack without an answer counts, a bury does not: its letter says whether it was."""
    return letters > 0 or any(end.verb == "ack" and end.outcome != "refused" for end in ends)


def _once(leases: list[Lease], ends: list[End]) -> bool:
    """Had one process this item, once, and is there no more to say? So it is with nearly all items of a long run."""
    return len(leases) == len(ends) == 1 and (leases[0].who, leases[0].attempt) == (ends[0].who, ends[0].attempt)


def _of_item(leases: list[Lease], ends: list[End], letters: int) -> Counter[str]:
    """Every fault of one item."""
    done = [end for end in ends if end.outcome == "ok"]
    counted = Counter(lease.attempt for lease in leases if lease.attempt < MOST)
    found = Counter(
        doubled=max(0, len(leases) - 1),
        uncounted=sum(many - 1 for many in counted.values()),
        twice=max(0, sum(end.verb == "ack" for end in done) + letters - 1),
    )
    for end in done:
        for lease in leases:
            if lease.attempt < end.attempt or (lease.who, lease.attempt) == (end.who, end.attempt):
                continue
            found["revived" if lease.at > (end.ended or end.began) else "shared"] += 1
    return found


def _misordered(leases: Mapping[Item, list[Lease]], ends: Mapping[Item, list[End]]) -> int:
    """How many were handed out before the one before them, of the same key and partition, was finished with."""
    rows: defaultdict[tuple[str, int], list[tuple[int, Item]]] = defaultdict(list)
    for item in leases:
        partition, _, offset = item[1].partition("/")
        rows[partition, item[0] % KEYS].append((int(offset), item))
    found = 0
    for row in rows.values():
        for (_, one), (_, following) in pairwise(sorted(row)):
            finished = [
                end.began for end in ends.get(one, ()) if end.outcome != "refused"
            ]  # none: lost, or its owner buried it
            found += bool(finished) and min(lease.at for lease in leases[following]) < min(finished)
    return found


def _pause(leases: Mapping[Item, list[Lease]]) -> float:
    """The longest time from one claim to the next."""
    times = sorted(lease.at for some in leases.values() for lease in some)
    return max((after - before for before, after in pairwise(times)), default=0.0)


def _takeover(gone: Did, leases: Mapping[Item, list[Lease]], ends: Mapping[Item, list[End]]) -> float:
    """From when a worker was gone until the last item that it had was in another hand."""
    longest = 0.0
    for item, some in leases.items():
        if not any(lease.who == gone.who and lease.at <= gone.began for lease in some):
            continue
        if any(end.who == gone.who and end.ended is not None and end.ended <= gone.began for end in ends.get(item, ())):
            continue
        others = [lease.at for lease in some if lease.who != gone.who and lease.at > gone.began]
        longest = max(longest, min(others, default=gone.began) - gone.began)
    return longest
