"""A group with real members: they join, leave, get busy and crash on your word, and all that they do is recorded.

In:  a lab or a cluster, a group's name, its topics. Out: `Group`: the members' verbs, what they hold, lag, work, a timeline.

Each member is a process with a real Consumer (`process.py` says why). It ends with its parent, with its cluster or lab, with its
Group, and when a Group of the same name is made.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from kqlib.errors import Closed, NotAllowed, TopicMissing, Unreachable
from kqlib.kafka import Kafka, forks
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.text import count
from kqlib.workshop import view
from kqlib.workshop.children import Children
from kqlib.workshop.groups import ask, member
from kqlib.workshop.groups.process import MemberProcess, Record, leave_all
from kqlib.workshop.groups.timeline import Change, Timeline
from kqlib.workshop.groups.values import Assignment, Lag, Work

if TYPE_CHECKING:
    from kqlib.workshop.lab import Lab

PROTOCOLS: dict[str, dict[str, str]] = {
    "consumer": {"group.protocol": "consumer"},  # KIP-848: the broker deals, and takes back one partition at a time
    "cooperative": {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
    "eager": {"group.protocol": "classic", "partition.assignment.strategy": "range"},
}
NAMES = ("ann", "ben", "cem", "dia", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "leo", "mia", "noa", "oli", "pia")
MOST = len(NAMES)  # members at a time: each is a process
GONE = {"left": "has left", "crashed": "has crashed", "failed": "could not go on"}
MOVES = {"assigned", "revoked", "lost"}
HEARTBEAT = 0.1  # seconds; a lab allows no less
SETTLE = 30.0 * PATIENCE  # seconds until it is given up
_open: weakref.WeakValueDictionary[tuple[str, str], Group] = weakref.WeakValueDictionary()


class Group:
    """A consumer group whose members you hold: `scores = kq.groups.Group(lab, "scores", football)`, then `scores.join(3)`.

    where: a lab (the group begins without commits) or a cluster. topics: names, or a regular expression that begins with ^.
    protocol: "consumer" (KIP-848), "cooperative" or "eager" (both classic). session: seconds of silence until a member
    counts as dead; None: the cluster's. max_poll: the most seconds between two polls; None: the client's (300).
    static: members keep their place while they are away for less than a session. commit: after each batch, or never.
    pace: records a second that a member works on; None: as fast as it can.
    """

    def __init__(
        self,
        where: Lab | Kafka,
        name: str,
        *topics: str,
        protocol: str = "consumer",
        session: float | None = None,
        max_poll: float | None = None,
        static: bool = False,
        commit: bool = True,
        pace: float | None = None,
    ) -> None:
        _check(name, protocol, session=session, max_poll=max_poll, pace=pace)
        self.cluster = _cluster(where)
        self.cluster._check_open()
        self.topics, self.protocol, self.static = topics, protocol, static
        self._matched()  # TopicMissing, if one is missing
        self._commit, self._pace = commit, pace
        self._members: dict[str, MemberProcess] = {}
        self._record, self._changes, self._begun = Record(), list[Change](), list[tuple[str, float]]()
        if before := _open.pop((self.cluster.bootstrap, name), None):
            before.close()  # a cell run twice
        self.name = name if isinstance(where, Kafka) else where.group(name)
        _open[self.cluster.bootstrap, name] = self
        self._children = Children(modules=[member.__name__])
        self._finish = weakref.finalize(self, forks.only_here(_end), self._members, self._children)
        if not isinstance(where, Kafka):
            where._groups.add(self)
        self._extra = PROTOCOLS[protocol] | self._clocks(session, max_poll)

    # --- the verbs ------------------------------------------------------------------------------------------------------

    def join(self, *who: str | int, wait: bool = True) -> Assignment:
        """Members join: `join(3)` three more, `join("ann", "ben")` these; returns who holds what when all is settled."""
        names = self._newcomers(who or (1,))
        self._begin(names, "joins", "join")
        for name in names:
            self._members[name] = MemberProcess(self._children, name, self._orders(name), self.cluster, self._record)
        self._wait(lambda: not self._who("starting"), f"{', '.join(names)} to start")
        return self._settled(wait)

    def leave(self, *who: str, wait: bool = True) -> Assignment:
        """Members leave in good order, so that the others need not wait for a session to end; without names all of them."""
        names = self._here(who or tuple(self.members))
        self._begin(names, "leaves", "leave")
        leave_all([self._members[name] for name in names])
        return self._settled(wait)

    def pause(self, *who: str) -> Assignment:
        """Members get busy with one record: they do not poll, while their heartbeats go on."""
        self._busy(who, True)
        if len(self._begun) == 1:  # nothing changes for the others
            self._end()
        return self.assignment()

    def resume(self, *who: str, wait: bool = True) -> Assignment:
        """Busy members are done and poll again; without names all of them."""
        self._busy(who or tuple(self._who("busy")), False)
        return self._settled(wait)

    def crash(self, *who: str, wait: bool = True) -> Assignment:
        """Members are killed: no goodbye, so the others get their partitions when the session is over."""
        names = self._here(who)
        self._begin(names, "crashes", "crash")
        for name in names:
            self._members[name].kill()
        return self._settled(wait)

    def settle(self, seconds: float = SETTLE) -> Assignment:
        """Wait until every member that polls holds what the cluster says, and every partition has an owner."""
        found: list[Assignment] = []

        def settled() -> bool:
            """The same before and after the question, so that what is returned is settled although the next change may begin."""
            found[:] = [self.assignment()]
            return self._is_settled() and found == [self.assignment()]

        self._wait(settled, f"group '{self.name}' to settle", seconds)
        self._end()
        return found[0]

    def close(self) -> None:
        """All members leave. Calling it twice does no harm. In a fork nothing is done: the members are the parent's."""
        self._finish()

    # --- what one can see -----------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[str]:
        """The names of those who are in the group."""
        return [name for name, each in self._members.items() if not each.over]

    def assignment(self) -> Assignment:
        """Who holds what, as the members report it. A busy one knows what it held before."""
        with self._lock():
            held = {name: sorted(each.held) for name, each in self._members.items() if not each.over}
            busy = frozenset(name for name, each in self._members.items() if each.state == "busy")
        return Assignment(held, ask.partitions(self.cluster, self.name, self._matched()), self.name, busy)

    def lag(self) -> Lag:
        """How far behind the group is, by partition."""
        return ask.lag(self.cluster, self.name, *self._matched())

    @property
    def work(self) -> Work:
        """Which records its members have worked on, and how often."""
        with self._lock():
            return Work({part: tuple(runs) for part, runs in self._record.runs.items()})

    def timeline(self) -> Timeline:
        """What happened so far."""
        with self._lock():
            return Timeline.of(self.name, self._record.events, self._changes, self._members)

    def draw(self, names: bool = False) -> view.Picture:
        """The picture: members left, partitions right, lag behind them."""
        return self.assignment().draw(self.lag(), names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Group({self.name!r}, {count(len(self.members), 'member')}, {self.protocol})"

    # --- how ------------------------------------------------------------------------------------------------------------

    def _orders(self, name: str) -> member.Orders:
        """What a new member is to do."""
        quick = {"topic.metadata.refresh.interval.ms": 1000}  # a regular expression soon meets a topic that is new
        own = {"group.id": self.name, "client.id": name, **quick, **self._extra}
        if self.static:
            own["group.instance.id"] = name
        settings = {**self.cluster.client(), **own}
        return {"settings": settings, "topics": list(self.topics), "commit": self._commit, "pace": self._pace}

    def _clocks(self, session: float | None, max_poll: float | None) -> dict[str, Any]:
        """Session, heartbeat and poll interval; under KIP-848 the first two are the group's, and the cluster keeps them.

        A member learns of a change with its next heartbeat: here ten times a second, at work every 3 or 5 s.
        """
        beat = HEARTBEAT if self.cluster.embedded else None if session is None else session / 9
        own: dict[str, Any] = {} if max_poll is None else {"max.poll.interval.ms": int(max_poll * 1000)}
        if self.protocol == "consumer":
            if session or beat:
                ask.clocks(self.cluster, self.name, session, beat)
            return own
        times = {"session.timeout.ms": session, "heartbeat.interval.ms": beat}
        return own | {key: int(seconds * 1000) for key, seconds in times.items() if seconds}

    def _matched(self) -> tuple[str, ...]:
        """The topics there are of those it subscribes to."""
        there = [topic for topic in sorted(self.cluster.describe().topics) if not topic.startswith("__")]
        if not self.topics:
            raise NotAllowed("a group reads topics: Group(lab, 'scores', 'football')")
        found: list[str] = []
        for topic in self.topics:
            if not isinstance(topic, str) or not topic:
                raise NotAllowed(
                    f"a topic is a name, as in 'football', or '^foot.*' for all that begin so, not {topic!r}"
                )
            if not topic.startswith("^") and topic not in there:
                raise TopicMissing(topic=topic)
            found += _matching(topic, there) if topic.startswith("^") else [topic]
        return tuple(dict.fromkeys(found))

    def _newcomers(self, who: tuple[str | int, ...]) -> list[str]:
        """The names of those who are to join."""
        self._check_open()
        names: list[str] = []
        for one in who:
            names += [_name("member", one)] if isinstance(one, str) else self._free(one, names)
        if there := [name for at, name in enumerate(names) if name in self.members or name in names[:at]]:
            raise NotAllowed(f"'{there[0]}' is in group '{self.name}' already; give the new member another name")
        if len(names) + len(self.members) > MOST:
            raise NotAllowed(_too_many(len(self.members)))
        return names

    def _free(self, how_many: Any, taken: list[str]) -> list[str]:
        """So many names; first those that nobody here ever had."""
        if isinstance(how_many, bool) or not isinstance(how_many, int) or how_many < 1:
            raise NotAllowed(f"who joins? So many, from 1 on, or names; not {how_many!r}")
        free = sorted({*NAMES} - {*taken, *self.members}, key=lambda name: (name in self._members, NAMES.index(name)))
        if how_many > len(free):
            raise NotAllowed(_too_many(len(self.members)))
        return free[:how_many]

    def _here(self, who: tuple[str, ...]) -> list[str]:
        """These members, all of them in the group."""
        self._check_open()
        there = f"in group '{self.name}' are {', '.join(self.members)}"
        if not self.members:
            there = f"nobody is in group '{self.name}': a member must join() first"
        if not who:
            raise NotAllowed(f"who? Say a name; {there}")
        for name in who:
            if name not in self.members:
                state = self._members[name].state if name in self._members else ""
                raise NotAllowed(f"{name!r} {GONE.get(state, 'is not here')}; {there}")
        return list(dict.fromkeys(who))

    def _busy(self, who: tuple[str, ...], busy: bool) -> None:
        """Tell members to stop or to go on, and wait until they do."""
        names, state = self._here(who), "busy" if busy else "working"
        self._begin(names, *(("is busy", "are busy") if busy else ("is back", "are back")))
        for name in names:
            self._members[name].tell("pause" if busy else "resume")
        self._wait(lambda: {*names} <= {*self._who(state)}, f"{', '.join(names)} to be {state}")

    def _who(self, state: str) -> list[str]:
        """The members in this state."""
        return [name for name, each in self._members.items() if each.state == state]

    def _begin(self, names: list[str], one: str, many: str) -> None:
        """A change begins; one that nobody waited for becomes a part of it."""
        who = ", ".join(names) if len(names) <= 2 else f"{len(names)} members"
        self._begun.append((f"{who} {one if len(names) == 1 else many}", time.monotonic()))

    def _end(self) -> None:
        """The group is settled: record what has begun as one change. What timeouts did by themselves is a change as well."""
        since = self._changes[-1].end if self._changes else 0.0
        if not self._begun and any(event.at > since and event.what in MOVES for event in self._record.events):
            out = {*self._who("busy")} - {member.client_id for member in ask.described(self.cluster, self.name)}
            self._begun.append((f"{', '.join(sorted(out))} put out" if out else "a change", since))
        if self._begun:
            self._changes.append(
                Change(", ".join(words for words, _ in self._begun), self._begun[0][1], time.monotonic())
            )
            self._begun.clear()

    def _settled(self, wait: bool) -> Assignment:
        return self.settle() if wait else self.assignment()

    def _is_settled(self) -> bool:
        """Does everybody who polls hold what the cluster says, and does the cluster want nothing else?"""
        if not self._who("working"):
            return True  # nobody polls, so no partition will move
        with self._lock():
            here = {name: (each.state, {*each.held}) for name, each in self._members.items()}
        seen = ask.described(self.cluster, self.name)
        names = [member.client_id for member in seen]
        polls = {name for name, (state, _) in here.items() if state == "working"}
        may_be = polls | {n for n, (state, _) in here.items() if state == "busy" or (state == "left" and self.static)}
        if len({*names}) < len(names) or not polls <= {*names} <= may_be:
            return False  # a member is not in yet, or a dead one is not out yet
        given = {member.client_id: sorted(member.assignment) for member in seen}
        if any({*given[name]} != here[name][1] for name in polls):
            return False
        if any(member.target and sorted(member.target) != given[member.client_id] for member in seen):
            return False  # KIP-848: a partition is still to move
        sizes = [len(parts) for parts in given.values()]
        if max(sizes) - min(sizes) > len(self._matched()):  # each way of dealing is even, by topic at the least
            return False
        every = [part for parts in given.values() for part in parts]
        return sorted(every) == ask.partitions(self.cluster, self.name, self._matched())

    def _wait(self, condition: Callable[[], bool], why: str, seconds: float = SETTLE) -> None:
        """Wait for a state; a member that cannot go on, or the deadline, says why."""

        def holds() -> bool:
            self._check_open()
            for name in self._who("failed"):
                raise NotAllowed(f"{name} cannot be in group '{self.name}': {self._members.pop(name).trouble}")
            with suppress(Unreachable):  # a busy machine: asked again until the deadline
                return condition()
            return False

        def last() -> str:
            troubles = [f"{name}: {each.trouble}" for name, each in self._members.items() if each.trouble]
            return " · ".join([repr(self.assignment()), *troubles])

        wait_for(holds, seconds, why, last)

    def _lock(self) -> threading.Lock:
        """The record's. Refused in a fork: the thread that may hold it is not there to release it."""
        self.cluster._check_here()
        return self._record.lock

    def _check_open(self) -> None:
        if not self._finish.alive:
            raise Closed(thing="group")
        self.cluster._check_open()


def _end(members: Mapping[str, MemberProcess], children: Children) -> None:
    """The end of a group: all members leave."""
    leave_all([each for each in members.values() if not each.over])
    children.close()


def _matching(expression: str, topics: list[str]) -> list[str]:
    """The topics that a subscription's regular expression means."""
    try:
        return [topic for topic in topics if re.match(expression, topic)]
    except re.error as error:
        raise NotAllowed(f"{expression!r} is not a regular expression: {error}") from None


def _cluster(where: Any) -> Kafka:
    cluster = getattr(where, "cluster", where)
    if not isinstance(cluster, Kafka):
        raise NotAllowed(
            f"a Group is in a lab or on a cluster, as in Group(lab, 'scores', 'football'), not in {where!r}"
        )
    return cluster


def _name(whose: str, name: Any) -> str:
    """A name that Kafka and a picture can bear."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name):
        raise NotAllowed(f"a {whose}'s name is made of letters, digits, '.', '_' and '-', not {name!r}")
    return name


def _too_many(here: int) -> str:
    return f"a Group has {MOST} members at the most, for each is a process on this machine; {here} are in it"


def _check(name: Any, protocol: Any, **numbers: Any) -> None:
    """The arguments of a Group."""
    _name("group", name)
    if protocol not in list(PROTOCOLS):  # a list: the argument need not be hashable
        kinds = "; the classic protocol comes as 'eager' and as 'cooperative'" if protocol == "classic" else ""
        raise NotAllowed(f"protocol is one of {', '.join(map(repr, PROTOCOLS))}, not {protocol!r}{kinds}")
    for what, value in numbers.items():
        ask.check_seconds(what, value)
